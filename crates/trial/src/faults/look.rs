//! What a cluster looks like: whether all regions are served by as many members as they are to have, and what servers
//! that returned have fetched for that.

use std::fmt;

use crate::cluster::Cluster;
use crate::status::Status;

/// What a cluster looks like at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// What is not as it should be, by region or server, in words.
    pub lacks: Vec<String>,
}

/// What a server that returned has fetched, since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// Which.
    pub server: usize,
    /// Bytes that it has fetched.
    pub bytes: u64,
    /// Bytes of its device that are in use.
    pub of: u64,
    /// Copies that it has set aside and begun anew.
    pub refilled: u64,
    /// Records that were given up where it opened a copy that was cut.
    pub given_up: u64,
}

/// What `cluster` looks like, whose regions have so many copies.
#[must_use]
pub(crate) fn look(cluster: &Cluster, copies: usize) -> Look {
    let servers = 0..cluster.servers.len();
    let all: Vec<_> = servers.map(|server| cluster.status(server).ok()).collect();
    look_at(&all, copies)
}

/// The same, of what servers said.
#[must_use]
pub(crate) fn look_at(all: &[Option<Status>], copies: usize) -> Look {
    let mut lacks = Vec::new();
    for (server, status) in all.iter().enumerate() {
        if status.is_none() {
            lacks.push(format!("server {server} does not answer"));
        }
    }
    let most = all
        .iter()
        .flatten()
        .max_by_key(|status| status.regions.len());
    let mut ids: Vec<_> = most
        .map(|status| status.regions.iter().map(|region| region.id).collect())
        .unwrap_or_default();
    ids.sort_unstable();
    for id in ids {
        let leads = all.iter().zip(0..).find_map(|(status, server)| {
            let regions = &status.as_ref()?.regions;
            let mut own = regions.iter().filter(|region| region.id == id);
            own.find(|region| region.primary == Some(server))
        });
        match leads {
            None => lacks.push(format!("region {id} is led by nobody")),
            Some(region) if region.state != "serving" || region.members.len() != copies => {
                let members: Vec<_> = region.members.iter().map(u64::to_string).collect();
                lacks.push(format!(
                    "region {id} is {} with members {}",
                    region.state,
                    members.join(", ")
                ));
            }
            Some(_) => {}
        }
    }
    Look { lacks }
}

impl Look {
    /// Whether nothing is lacking.
    #[must_use]
    pub(crate) const fn is_whole(&self) -> bool {
        self.lacks.is_empty()
    }
}

/// What a server has fetched; `None` where it does not answer.
#[must_use]
pub(crate) fn fetched(cluster: &Cluster, server: usize) -> Option<Fetched> {
    let status = cluster.status(server).ok()?;
    Some(Fetched {
        server,
        bytes: status.replication.catch_up_bytes,
        of: status.device.used_bytes,
        refilled: status.scrub.refilled_copies,
        given_up: status.replication.cut_records,
    })
}

impl fmt::Display for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, of) = (mib(self.bytes), mib(self.of));
        write!(f, "server {} fetched {bytes} of {of} MiB", self.server)?;
        if self.refilled > 0 {
            write!(f, ", {} copies anew", self.refilled)?;
        }
        if self.given_up > 0 {
            write!(f, ", gave up {} records", self.given_up)?;
        }
        Ok(())
    }
}

/// Bytes in MiB, to a tenth.
fn mib(bytes: u64) -> String {
    let tenths = bytes * 10 / (1 << 20);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::status_of;

    fn status(primary: u64, state: &str, members: &str) -> Option<Status> {
        let text = format!(
            r#"{{"regions": [{{"id": 3, "primary": {primary}, "state": "{state}", "members": [{members}],
            "from": {{"base64": ""}}, "to": null}}]}}"#
        );
        Some(status_of(&text).unwrap())
    }

    #[test]
    fn a_cluster_is_whole_where_primaries_serve_with_all_members() {
        let backup = || status(0, "following", "0, 1");
        assert!(look_at(&[status(0, "serving", "0, 1"), backup()], 2).is_whole());
        for (all, lacks) in [
            (
                [status(0, "degraded", "0, 1"), backup()],
                "region 3 is degraded with members 0, 1",
            ),
            (
                [status(0, "serving", "0"), backup()],
                "region 3 is serving with members 0",
            ),
            (
                [status(1, "following", "0, 1"), backup()],
                "region 3 is led by nobody",
            ),
            (
                [status(0, "serving", "0, 1"), None],
                "server 1 does not answer",
            ),
        ] {
            assert_eq!(look_at(&all, 2).lacks, [lacks]);
        }
    }

    #[test]
    fn bytes_are_told_in_mib() {
        let fetched = Fetched {
            server: 2,
            bytes: 3 << 19,
            of: 20 << 20,
            refilled: 1,
            given_up: 3,
        };
        assert_eq!(
            fetched.to_string(),
            "server 2 fetched 1.5 of 20.0 MiB, 1 copies anew, gave up 3 records"
        );
    }
}
