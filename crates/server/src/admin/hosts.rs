//! Whom a request may be addressed to: the field `Host` of its head.
//!
//! A page in a browser may have a name of its own resolve to this machine, and then ask the admin port as if it were
//! of the same origin (DNS rebinding). The name stands in `Host`. So names are taken that nobody else can give away:
//! `localhost`, addresses of the machine's own, the address at which the connection arrived, and what the
//! configuration names. A request without the field comes from no browser, and is taken.

use std::net::IpAddr;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Hosts {
    address: IpAddr,
    names: Vec<String>,
}

impl Hosts {
    /// Those of a port that listens at `address`, and these names.
    #[must_use]
    pub fn new(address: IpAddr, names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase());
        Self {
            address,
            names: names.collect(),
        }
    }

    /// Whether a request to `host`, a name or an address with or without a port, is taken that arrived at `local`.
    #[must_use]
    pub fn allow(&self, host: &str, local: Option<IpAddr>) -> bool {
        let host = name_of(host).to_ascii_lowercase();
        if let Ok(address) = host.parse::<IpAddr>() {
            return address.is_loopback() || address == self.address || Some(address) == local;
        }
        host == "localhost" || self.names.contains(&host)
    }
}

/// `host` without its port, the brackets of an address, and the dot behind a full name.
fn name_of(host: &str) -> &str {
    let host = host.trim();
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    let name = match host.rsplit_once(':') {
        // An address of several colons has no port behind it.
        Some((name, _)) if !name.contains(':') => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_else_can_give_away_are_allowed() {
        let address = "10.1.2.3".parse().unwrap();
        let hosts = Hosts::new(address, &["Metrics.Example.org".to_owned()]);
        let local = Some("192.168.0.7".parse().unwrap());
        for host in [
            "localhost",
            "LOCALHOST:7480",
            "127.0.0.1:7480",
            "127.9.9.9",
            "[::1]:7480",
            "::1",
            "10.1.2.3:7480",
            "192.168.0.7",
            "metrics.example.org:80",
            "metrics.example.org.",
        ] {
            assert!(hosts.allow(host, local), "{host}");
        }
        for host in [
            "",
            "evil.example.org",
            "localhost.evil.org",
            "127.0.0.1.evil.org",
            "192.168.0.8",
            "10.1.2.4:7480",
            "[evil",
            "metrics.example.org.evil",
        ] {
            assert!(!hosts.allow(host, local), "{host}");
        }
        assert!(!hosts.allow("192.168.0.7", None));
    }
}
