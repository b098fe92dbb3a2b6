//! What a configuration says of the ports where clients and operators come in: the sections `resp` and `admin`.

use std::net::SocketAddr;
use std::time::Duration;

use argosy_server::admin::Hosts;
use argosy_server::resp::{ClientPolicy, CrossRegion, SlowLogSettings};
use serde::{Deserialize, Serialize};

use crate::units::TimeSpan;

/// The Redis protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RespSection {
    /// Where to listen.
    #[serde(default = "resp_addr")]
    pub addr: SocketAddr,
    /// Whether it may be an address that other machines reach.
    #[serde(default)]
    pub allow_remote: bool,
    /// What becomes of a transaction over several regions.
    #[serde(default)]
    pub cross_region_exec: CrossRegionName,
    /// Whether `FLUSHALL` and `FLUSHDB` remove all keys.
    #[serde(default = "flush_all")]
    pub flush_all: bool,
    /// What `SLOWLOG` records.
    #[serde(flatten)]
    pub slow_log: SlowLogKeys,
}

impl RespSection {
    /// The section of a server that listens there, and is as usual.
    pub(crate) fn at(addr: SocketAddr) -> Self {
        let cross_region_exec = CrossRegionName::default();
        Self {
            addr,
            allow_remote: false,
            cross_region_exec,
            flush_all: flush_all(),
            slow_log: SlowLogKeys::default(),
        }
    }
}

impl RespSection {
    /// What clients may do. At most `connections_max` may be connected.
    pub(crate) fn policy(&self, connections_max: usize) -> ClientPolicy {
        ClientPolicy {
            cross_region_exec: self.cross_region_exec.into(),
            flush_all: self.flush_all,
            connections_max,
            slow_log: self.slow_log.into(),
        }
    }
}

impl Default for RespSection {
    fn default() -> Self {
        Self::at(resp_addr())
    }
}

const fn flush_all() -> bool {
    true
}

fn resp_addr() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7379))
}

/// The keys of [`RespSection`] about slow commands, under the names that Redis has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowLogKeys {
    /// Commands that waited at least so long are recorded.
    #[serde(rename = "slowlog-log-slower-than")]
    pub slower_than: TimeSpan,
    /// How many entries are kept; 0: nothing is recorded.
    #[serde(rename = "slowlog-max-len")]
    pub entries_max: usize,
}

impl Default for SlowLogKeys {
    fn default() -> Self {
        let SlowLogSettings {
            slower_than,
            entries_max,
        } = SlowLogSettings::default();
        Self {
            slower_than: TimeSpan(slower_than),
            entries_max,
        }
    }
}

impl From<SlowLogKeys> for SlowLogSettings {
    fn from(keys: SlowLogKeys) -> Self {
        let slower_than: Duration = keys.slower_than.0;
        Self {
            slower_than,
            entries_max: keys.entries_max,
        }
    }
}

/// What becomes of a transaction whose keys lie in several regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrossRegionName {
    /// It is refused.
    #[default]
    Refuse,
    /// Its commands are carried out in order, without isolation.
    InOrder,
}

impl From<CrossRegionName> for CrossRegion {
    fn from(name: CrossRegionName) -> Self {
        match name {
            CrossRegionName::Refuse => Self::Refuse,
            CrossRegionName::InOrder => Self::InOrder,
        }
    }
}

/// Health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct AdminSection {
    /// Where to listen.
    pub addr: SocketAddr,
    /// Names of this server, beside those of the machine's own, that a request may be addressed to.
    pub hosts: Vec<String>,
}

impl AdminSection {
    /// The section of a server that listens there, and is as usual.
    pub(crate) const fn at(addr: SocketAddr) -> Self {
        let hosts = Vec::new();
        Self { addr, hosts }
    }

    /// Whom requests may be addressed to.
    pub(crate) fn allowed(&self) -> Hosts {
        Hosts::new(self.addr.ip(), &self.hosts)
    }
}

impl Default for AdminSection {
    fn default() -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 7480)))
    }
}
