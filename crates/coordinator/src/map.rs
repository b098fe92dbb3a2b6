//! The region map: which servers there are, and which of them store which keys.
//!
//! As JSON, in the coordinator (keys as hexadecimal digits, since a key may be any bytes):
//!
//! ```json
//! {
//!   "schema": "argosy.cluster.v2",
//!   "cluster": "00112233445566778899aabbccddeeff",
//!   "replication": "send-index",
//!   "addresses": "rewrite",
//!   "servers": [{ "id": 0, "resp": "127.0.0.1:7379", "admin": "127.0.0.1:7480",
//!                 "device": "8899aabbccddeeff0011223344556677" }],
//!   "regions": [{ "id": 1, "from": "", "to": null, "epoch": 1, "primary": 0, "members": [0] }]
//! }
//! ```
//!
//! `addresses` is what pointers inside level segments name; it is left out where that is "logical".
//! `device` is the id of the device that has the server's data; it is left out until the server has
//! one. A server that finds another device, or none, does not start as if it were new. Version 1 had no
//! `device`; it is refused.
//!
//! A [`ClusterMap`] that exists is valid: its regions are in the order of their keys and cover all
//! keys without gap or overlap; names are used once; each region's members are distinct servers of
//! the map, its primary among them. [`ClusterMap::new`] and [`ClusterMap::parse`] are the only
//! ways to one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use argosy_base::limits::REGION_ID_MAX;
use argosy_base::range::Starts;
use argosy_base::{AddressMode, Direction, Epoch, KeyRange, RegionId, ServerId};
use serde::{Deserialize, Serialize};

/// What the only layout so far calls itself.
pub const SCHEMA: &str = "argosy.cluster.v2";

/// Names a cluster. Random; written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Names a device: a random number in its superblock; written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u128);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// How the members of a group become equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Replication {
    /// Every region has one member.
    None,
    /// The log is written to the backups, finished segments are shipped to them.
    SendIndex,
    /// The log is written to the backups, which build their own levels from it.
    BuildIndex,
}

impl Replication {
    /// The name by which a user calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SendIndex => "send-index",
            Self::BuildIndex => "build-index",
        }
    }

    /// The mode that a user calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::SendIndex, Self::BuildIndex]
            .into_iter()
            .find(|mode| mode.name() == name)
    }
}

impl fmt::Display for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A server, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub id: ServerId,
    /// Where it speaks the Redis protocol: `host:port`.
    pub resp: String,
    /// Where it tells of its health: `host:port`.
    pub admin: String,
}

/// A range of keys, and who stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name; not 0.
    pub id: RegionId,
    /// Its keys.
    pub range: KeyRange,
    /// The number of this configuration; at least 1.
    pub epoch: Epoch,
    /// Who serves it; one of `members`.
    pub primary: ServerId,
    /// All that store it, the primary too.
    pub members: Vec<ServerId>,
}

impl Region {
    /// The members without the primary.
    pub fn backups(&self) -> impl Iterator<Item = ServerId> + '_ {
        let primary = self.primary;
        self.members
            .iter()
            .copied()
            .filter(move |id| *id != primary)
    }
}

/// Why something is no region map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The text is no JSON of a map.
    #[error("the region map cannot be read: {reason}")]
    Malformed {
        /// What the parser says.
        reason: String,
    },
    /// It was written by another version.
    #[error("the region map has schema {found:?}; this program knows {SCHEMA:?}")]
    UnknownSchema {
        /// What it calls itself.
        found: String,
    },
    /// Two servers or two regions have one name, or a region is named 0 or above [`REGION_ID_MAX`].
    #[error("{what} {id} is named twice, or has a name that is kept for no one")]
    BadName {
        /// Servers or regions.
        what: &'static str,
        /// The name.
        id: u32,
    },
    /// Some keys belong to no region, or to two, or the regions are not in order.
    #[error("{region} begins at {begins}, but the keys before it end at {expected}")]
    BadRange {
        /// The region at fault; where the last one ends early, that one.
        region: RegionId,
        /// Where its range begins, as text.
        begins: String,
        /// Where it should begin, as text.
        expected: String,
    },
    /// A region's members are not distinct servers of the map with its primary among them, or its
    /// epoch is 0, or it has several members without replication.
    #[error("{region}: {what}")]
    BadGroup {
        /// The region.
        region: RegionId,
        /// What is wrong.
        what: &'static str,
    },
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    cluster: ClusterId,
    replication: Replication,
    addresses: AddressMode,
    servers: Vec<Server>,
    devices: BTreeMap<ServerId, DeviceId>,
    regions: Vec<Region>,
    starts: Starts,
}

impl ClusterMap {
    /// A map of these parts; `regions` in the order of their keys.
    ///
    /// # Errors
    /// What rule of the module documentation the parts break.
    pub fn new(
        cluster: ClusterId,
        replication: Replication,
        servers: Vec<Server>,
        regions: Vec<Region>,
    ) -> Result<Self, MapError> {
        let map = Self {
            cluster,
            replication,
            addresses: AddressMode::default(),
            servers,
            devices: BTreeMap::new(),
            starts: Starts::new(regions.iter().map(|region| &*region.range.from)),
            regions,
        };
        map.check_names()?;
        map.check_ranges()?;
        map.regions
            .iter()
            .try_for_each(|region| map.check_group(region))?;
        Ok(map)
    }

    /// The same map for a cluster whose level segments' pointers name what `addresses` says.
    #[must_use]
    pub fn with_addresses(mut self, addresses: AddressMode) -> Self {
        self.addresses = addresses;
        self
    }

    /// The same map where the data of `server`, which the map names, is on `device` alone.
    #[must_use]
    pub fn with_device(mut self, server: ServerId, device: DeviceId) -> Self {
        debug_assert!(self.server(server).is_some(), "{server} is in the map");
        self.devices.insert(server, device);
        self
    }

    /// Reads a map from its JSON.
    ///
    /// # Errors
    /// Why it is not one.
    pub fn parse(json: &[u8]) -> Result<Self, MapError> {
        let malformed = |e: serde_json::Error| MapError::Malformed {
            reason: e.to_string(),
        };
        let head: Head = serde_json::from_slice(json).map_err(malformed)?;
        if head.schema != SCHEMA {
            return Err(MapError::UnknownSchema { found: head.schema });
        }
        let raw: RawMap = serde_json::from_slice(json).map_err(malformed)?;
        raw.decode()
    }

    /// The map as JSON, with a line's end behind it.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let raw = RawMap::encode(self);
        let mut json = serde_json::to_vec_pretty(&raw).expect("plain data has a JSON form");
        json.push(b'\n');
        json
    }

    /// The cluster's name.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// How members become equal.
    #[must_use]
    pub const fn replication(&self) -> Replication {
        self.replication
    }

    /// What pointers inside level segments name.
    #[must_use]
    pub const fn addresses(&self) -> AddressMode {
        self.addresses
    }

    /// All servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server of that name.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.iter().find(|server| server.id == id)
    }

    /// The device that has the data of `server`; `None` until the server has one.
    #[must_use]
    pub fn device(&self, server: ServerId) -> Option<DeviceId> {
        self.devices.get(&server).copied()
    }

    /// All regions, in the order of their keys. Never empty.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The region of that name.
    #[must_use]
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        self.regions.iter().find(|region| region.id == id)
    }

    /// The region that `key` belongs to: every key belongs to one.
    #[must_use]
    pub fn region_of(&self, key: &[u8]) -> &Region {
        &self.regions[self.index_of(key)]
    }

    /// The index among [`regions`](Self::regions) of the one that `key` belongs to.
    #[must_use]
    pub fn index_of(&self, key: &[u8]) -> usize {
        // The first region begins at the empty key, so at least one begins at or below `key`.
        let from = |index: usize| &*self.regions[index].range.from;
        self.starts.index_of(key, from)
    }

    /// The index of the first region that a scan of `range`, which is not empty, comes to.
    #[must_use]
    pub fn first_of(&self, range: &KeyRange, direction: Direction) -> usize {
        match (direction, &range.to) {
            (Direction::Up, _) => self.index_of(&range.from),
            (Direction::Down, None) => self.regions.len() - 1,
            (Direction::Down, Some(to)) => {
                // The bound itself is left out.
                let begun = |region: &Region| region.range.from < *to;
                self.regions.partition_point(begun).max(1) - 1
            }
        }
    }

    fn check_names(&self) -> Result<(), MapError> {
        let mut servers = BTreeSet::new();
        for server in &self.servers {
            if !servers.insert(server.id) {
                let id = server.id.0;
                return Err(MapError::BadName { what: "server", id });
            }
        }
        let mut regions = BTreeSet::from([RegionId(0)]);
        for region in &self.regions {
            if region.id.0 > REGION_ID_MAX || !regions.insert(region.id) {
                let id = region.id.0;
                return Err(MapError::BadName { what: "region", id });
            }
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), MapError> {
        let bad = |region: RegionId, begins: &str, expected: &str| MapError::BadRange {
            region,
            begins: begins.to_owned(),
            expected: expected.to_owned(),
        };
        let text = |key: &[u8]| argosy_base::range::Printable(key).to_string();
        // Where the next region has to begin; `None` once one reaches to the very last key.
        let mut next = Some(&[][..]);
        for region in &self.regions {
            let from = region.range.from.as_slice();
            if next != Some(from) {
                let expected = next.map_or("the very last key".to_owned(), text);
                return Err(bad(region.id, &text(from), &expected));
            }
            if region.range.is_empty() {
                return Err(bad(region.id, &text(from), "a key below its own end"));
            }
            next = region.range.to.as_deref();
        }
        match (next, self.regions.last()) {
            (None, Some(_)) => Ok(()),
            (_, last) => {
                let id = last.map_or(RegionId(0), |region| region.id);
                Err(bad(
                    id,
                    "a key",
                    "no end: the last region holds the very last key",
                ))
            }
        }
    }

    fn check_group(&self, region: &Region) -> Result<(), MapError> {
        let distinct: BTreeSet<_> = region.members.iter().collect();
        let known = |id: &ServerId| self.server(*id).is_some();
        let what = if distinct.len() != region.members.len() {
            "a server is a member twice"
        } else if !region.members.iter().all(known) {
            "a member is no server of this cluster"
        } else if !region.members.contains(&region.primary) {
            "the primary is not a member"
        } else if region.epoch == Epoch(0) {
            "epochs begin at 1"
        } else if self.replication == Replication::None && region.members.len() > 1 {
            "without replication there is one member"
        } else {
            return Ok(());
        };
        let region = region.id;
        Err(MapError::BadGroup { region, what })
    }
}

impl fmt::Display for ClusterMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cluster {}, replication {}",
            self.cluster, self.replication
        )?;
        for server in &self.servers {
            writeln!(
                f,
                "{}: resp {}, admin {}",
                server.id, server.resp, server.admin
            )?;
        }
        for region in &self.regions {
            let (id, range, epoch) = (region.id, &region.range, region.epoch);
            write!(f, "{id} {range} {epoch}: primary {}", region.primary.0)?;
            let backups: Vec<_> = region.backups().map(|id| id.0.to_string()).collect();
            writeln!(f, ", backups {}", backups.join(" "))?;
        }
        Ok(())
    }
}

// --- The JSON form ---

/// What is read first, of a map of any version.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMap {
    schema: String,
    cluster: String,
    replication: Replication,
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses: Option<String>,
    servers: Vec<RawServer>,
    regions: Vec<RawRegion>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    id: u32,
    resp: String,
    admin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRegion {
    id: u32,
    from: String,
    to: Option<String>,
    epoch: u32,
    primary: u32,
    members: Vec<u32>,
}

impl RawMap {
    fn encode(map: &ClusterMap) -> Self {
        let server = |s: &Server| RawServer {
            id: s.id.0,
            resp: s.resp.clone(),
            admin: s.admin.clone(),
            device: map.device(s.id).map(|device| device.to_string()),
        };
        let region = |r: &Region| RawRegion {
            id: r.id.0,
            from: hex::encode(&r.range.from),
            to: r.range.to.as_deref().map(hex::encode),
            epoch: r.epoch.0,
            primary: r.primary.0,
            members: r.members.iter().map(|id| id.0).collect(),
        };
        Self {
            schema: SCHEMA.to_owned(),
            cluster: map.cluster.to_string(),
            replication: map.replication,
            addresses: match map.addresses {
                AddressMode::Logical => None,
                other => Some(other.name().to_owned()),
            },
            servers: map.servers.iter().map(server).collect(),
            regions: map.regions.iter().map(region).collect(),
        }
    }

    fn decode(self) -> Result<ClusterMap, MapError> {
        let cluster = number(&self.cluster)?;
        let devices = self.servers.iter().filter_map(|server| {
            let device = number(server.device.as_ref()?).map(DeviceId);
            Some(device.map(|device| (ServerId(server.id), device)))
        });
        let devices = devices.collect::<Result<_, _>>()?;
        let server = |s: RawServer| Server {
            id: ServerId(s.id),
            resp: s.resp,
            admin: s.admin,
        };
        let addresses = match &self.addresses {
            None => AddressMode::default(),
            Some(name) => AddressMode::from_name(name).ok_or_else(|| MapError::Malformed {
                reason: format!("no address mode is called {name:?}"),
            })?,
        };
        let regions: Result<Vec<_>, _> = self.regions.into_iter().map(RawRegion::decode).collect();
        let mut map = ClusterMap::new(
            ClusterId(cluster),
            self.replication,
            self.servers.into_iter().map(server).collect(),
            regions?,
        )?;
        map.devices = devices;
        Ok(map.with_addresses(addresses))
    }
}

impl RawRegion {
    fn decode(self) -> Result<Region, MapError> {
        let to = self.to.as_deref().map(from_hex).transpose()?;
        Ok(Region {
            id: RegionId(self.id),
            range: KeyRange::new(from_hex(&self.from)?, to),
            epoch: Epoch(self.epoch),
            primary: ServerId(self.primary),
            members: self.members.into_iter().map(ServerId).collect(),
        })
    }
}

fn from_hex(digits: &str) -> Result<Vec<u8>, MapError> {
    hex::decode(digits).map_err(|_| not_hex(digits))
}

/// A number of 128 bits, written most significant digit first, as a person reads it.
fn number(digits: &str) -> Result<u128, MapError> {
    let bytes: [u8; 16] = from_hex(digits)?.try_into().map_err(|_| not_hex(digits))?;
    Ok(bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

fn not_hex(digits: &str) -> MapError {
    MapError::Malformed {
        reason: format!("{digits:?} are not the hexadecimal digits that belong here"),
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
