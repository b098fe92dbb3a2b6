//! The region map: which servers there are, and which of them store which keys.
//!
//! A [`ClusterMap`] that exists is valid: its regions are in the order of their keys and cover all
//! keys without gap or overlap; names are used once; each region's group is one ([`Region`] says what that
//! takes). [`ClusterMap::new`] and [`ClusterMap::with_regions`] are the only ways to one.
//!
//! In the coordinator it lies in shards: [`map_format`](mod@crate::map_format) has the bytes,
//! [`map_write`](mod@crate::map_write) says how it is changed, and [`map_reader`](mod@crate::map_reader) how it is
//! read. In memory a region of three members takes some 310 bytes, the places of a map included.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use argosy_base::limits::REGION_ID_MAX;
use argosy_base::range::Starts;
use argosy_base::{AddressMode, Direction, DurabilityMode, KeyRange, RegionId, ServerId};
use serde::{Deserialize, Serialize};

use crate::region::Region;

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

/// Why something is no region map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// What is in the coordinator is none. A person has to look.
    #[error("the region map cannot be read: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// It was written by another version of the program, which is to be used with this cluster.
    #[error(
        "the region map has format {found}; this program knows 1: use the program that made this cluster, or make \
         another cluster and import what `argosy export` of that program writes"
    )]
    UnknownFormat {
        /// What it is.
        found: String,
    },
    /// It was changed again and again while it was read. Try again.
    #[error("the region map has changed {attempts} times while it was read; try again")]
    Unsteady {
        /// How often it was read.
        attempts: u32,
    },
    /// A value of it would be too long. Have fewer regions or servers, or shorter keys.
    #[error("a part of the region map would have {bytes} bytes: at most {max}")]
    TooLarge {
        /// Bytes that it would have.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// It would be in too many parts. Have fewer regions, or shorter keys.
    #[error("the region map would be in {shards} parts: at most {max}")]
    TooManyShards {
        /// How many.
        shards: usize,
        /// How many are allowed.
        max: usize,
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
    /// A region's group is none: see [`Region`].
    #[error("{region}: {what}")]
    BadGroup {
        /// The region.
        region: RegionId,
        /// What is wrong.
        what: &'static str,
    },
    /// There are to be no copies, or more than servers.
    #[error("{copies} copies: there can be 1 to {servers}")]
    BadCopies {
        /// Copies of each region.
        copies: u32,
        /// Servers that there are.
        servers: usize,
    },
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    cluster: ClusterId,
    replication: Replication,
    addresses: AddressMode,
    durability: DurabilityMode,
    copies: u32,
    servers: Vec<Server>,
    devices: BTreeMap<ServerId, DeviceId>,
    regions: Vec<Region>,
    starts: Starts,
    /// Places among the regions, in the order of their names.
    by_name: Vec<usize>,
}

impl ClusterMap {
    /// A map of these parts; `regions` in the order of their keys. Each region is to have as many copies as
    /// the one with most members has.
    ///
    /// # Errors
    /// What rule of the module documentation the parts break.
    pub fn new(
        cluster: ClusterId,
        replication: Replication,
        servers: Vec<Server>,
        regions: Vec<Region>,
    ) -> Result<Self, MapError> {
        let most = regions.iter().map(|region| region.members.len()).max();
        let map = Self {
            cluster,
            replication,
            addresses: AddressMode::default(),
            durability: DurabilityMode::default(),
            copies: u32::try_from(most.unwrap_or_default()).unwrap_or(u32::MAX),
            servers,
            devices: BTreeMap::new(),
            starts: Starts::new(regions.iter().map(|region| &*region.range.from)),
            by_name: by_name(&regions),
            regions,
        };
        map.check()?;
        Ok(map)
    }

    /// The same map with other regions, in the order of their keys.
    ///
    /// # Errors
    /// What rule of the module documentation they break.
    pub fn with_regions(&self, regions: Vec<Region>) -> Result<Self, MapError> {
        let map = Self {
            cluster: self.cluster,
            replication: self.replication,
            addresses: self.addresses,
            durability: self.durability,
            copies: self.copies,
            servers: self.servers.clone(),
            devices: self.devices.clone(),
            starts: Starts::new(regions.iter().map(|region| &*region.range.from)),
            by_name: by_name(&regions),
            regions,
        };
        map.check()?;
        Ok(map)
    }

    /// The same map where each region is to have `copies`.
    ///
    /// # Errors
    /// [`MapError::BadCopies`].
    pub fn with_copies(mut self, copies: u32) -> Result<Self, MapError> {
        self.copies = copies;
        self.check_copies()?;
        Ok(self)
    }

    /// The same map for a cluster whose level segments' pointers name what `addresses` says.
    #[must_use]
    pub fn with_addresses(mut self, addresses: AddressMode) -> Self {
        self.addresses = addresses;
        self
    }

    /// The same map for a cluster that acknowledges writes as `durability` says.
    #[must_use]
    pub fn with_durability(mut self, durability: DurabilityMode) -> Self {
        self.durability = durability;
        self
    }

    /// The same map where the data of `server`, which the map names, is on `device` alone.
    #[must_use]
    pub fn with_device(mut self, server: ServerId, device: DeviceId) -> Self {
        debug_assert!(self.server(server).is_some(), "{server} is in the map");
        self.devices.insert(server, device);
        self
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

    /// When writes are acknowledged.
    #[must_use]
    pub const fn durability(&self) -> DurabilityMode {
        self.durability
    }

    /// How many members a region is to have. It has fewer from when one is removed until another has taken its
    /// place.
    #[must_use]
    pub const fn copies(&self) -> u32 {
        self.copies
    }

    /// All servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server of that name.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        // Most clusters name their servers 0, 1, 2, …
        let place = usize::try_from(id.0).ok();
        let here = place.and_then(|place| self.servers.get(place));
        let here = here.filter(|server| server.id == id);
        here.or_else(|| self.servers.iter().find(|server| server.id == id))
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
        self.place_of(id).map(|place| &self.regions[place])
    }

    /// The place among [`regions`](Self::regions) of the one of that name.
    #[must_use]
    pub fn place_of(&self, id: RegionId) -> Option<usize> {
        let name = |place: &usize| self.regions[*place].id;
        let found = self.by_name.binary_search_by_key(&id, name);
        found.ok().map(|nth| self.by_name[nth])
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

    fn check(&self) -> Result<(), MapError> {
        self.check_names()?;
        self.check_ranges()?;
        self.check_copies()?;
        let servers: BTreeSet<ServerId> = self.servers.iter().map(|server| server.id).collect();
        let mut regions = self.regions.iter();
        regions.try_for_each(|region| self.check_group(region, &servers))
    }

    fn check_copies(&self) -> Result<(), MapError> {
        let (copies, servers) = (self.copies, self.servers.len());
        let fits = usize::try_from(copies).is_ok_and(|copies| (1..=servers).contains(&copies));
        match fits {
            true => Ok(()),
            false => Err(MapError::BadCopies { copies, servers }),
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

    fn check_group(&self, region: &Region, servers: &BTreeSet<ServerId>) -> Result<(), MapError> {
        let known = |id| servers.contains(&id);
        let alone = self.replication == Replication::None;
        let what = if alone && region.members.len() + region.filling.len() > 1 {
            "without replication there is one member"
        } else if let Err(what) = region.check(known) {
            what
        } else {
            return Ok(());
        };
        let region = region.id;
        Err(MapError::BadGroup { region, what })
    }
}

/// The places of `regions`, in the order of their names.
fn by_name(regions: &[Region]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..regions.len()).collect();
    places.sort_by_key(|place| regions[*place].id);
    places
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
            writeln!(f, "{region}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
pub(crate) mod tests;
