//! Where everything of a cluster on one machine lies, and which server stores which keys.
//!
//! ```text
//! DIR/control               the socket on which a running playground takes commands
//! DIR/coordinator/          the region map
//! DIR/server-N/argosy.toml  the configuration of server N
//! DIR/server-N/log          what it says
//! DIR/server-N/lock         held while it runs
//! DIR/server-N/...          its device
//! ```
//!
//! Region `i` has its primary on server `i` modulo the number of servers, and its backups on the
//! servers that follow: primaries and backups are spread evenly ([`Primaries::Spread`]). Or server
//! 0 is primary of all regions, and the backups are spread over the others ([`Primaries::Split`]):
//! then what a server uses is what its role costs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use argosy_base::{AddressMode, DurabilityMode, KeyRange, RegionId, ServerId};
use argosy_coordinator::split::{SPLIT_MAX, split_hex, split_text};
use argosy_coordinator::{
    CLUSTER_KEY, ClusterId, ClusterMap, CoordinatorError, DeviceId, Embedded, MapAccessError,
    MapWrite, Region, SHARD_BYTES_MAX, Server,
};
use argosy_device::random;
use clap::ValueEnum;

use crate::cluster::ports::Ports;
use crate::failure::{CommandFailure, chain};

pub(crate) use argosy_coordinator::Replication;

/// The region map's directory in that of a cluster.
pub(crate) const COORDINATOR: &str = "coordinator";

/// Most servers of a cluster on one machine.
pub(crate) const SERVERS_MAX: usize = 64;

/// How many of what a cluster has. What a user leaves open is taken from a cluster that is there
/// already, or else has a default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Server processes.
    pub servers: Option<usize>,
    /// Members of each region.
    pub replicas: Option<usize>,
    /// Regions.
    pub regions: Option<usize>,
    /// How members become equal.
    pub replication: Option<Replication>,
    /// Which servers are primaries.
    pub primaries: Option<Primaries>,
    /// What pointers inside level segments name.
    pub addresses: Option<AddressMode>,
    /// When writes are acknowledged.
    pub durability: Option<DurabilityMode>,
}

/// Which servers are primaries of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Primaries {
    /// All, of as many each.
    #[default]
    Spread,
    /// Server 0, of all regions; the others are backups.
    Split,
}

impl Primaries {
    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Split => "split",
        }
    }

    /// The members of the region at `index`, the primary first.
    fn members(self, index: usize, servers: usize, replicas: usize) -> Vec<ServerId> {
        let server = |step: usize| match (self, step) {
            (Self::Split, 0) => 0,
            // There is one, or no replica would be asked for here.
            (Self::Split, _) => 1 + (index + step - 1) % (servers - 1),
            (Self::Spread, _) => (index + step) % servers,
        };
        (0..replicas)
            .map(|step| ServerId(small(server(step))))
            .collect()
    }

    /// What `map` has; `None` where the two are the same, or it has neither.
    fn of(map: &ClusterMap) -> Option<Self> {
        let (servers, replicas) = (map.servers().len(), map.regions().first()?.members.len());
        if servers == 1 || map.regions().len() == 1 {
            return None;
        }
        let is = |how: &Self| {
            map.regions()
                .iter()
                .enumerate()
                .all(|(index, region)| region.members == how.members(index, servers, replicas))
        };
        [Self::Spread, Self::Split].into_iter().find(is)
    }
}

/// For what kind of keys regions are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Keys that begin with letters and digits, as people choose them.
    Text,
    /// Keys that begin with hexadecimal digits, as the bench makes them.
    Hex,
}

/// The directories of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// `DIR`.
    pub dir: PathBuf,
    /// Where all servers keep their shared memory.
    pub shm: PathBuf,
}

impl Layout {
    /// The region map's directory.
    pub(crate) fn coordinator(&self) -> PathBuf {
        self.dir.join(COORDINATOR)
    }

    /// The directory of server `id`.
    pub(crate) fn server(&self, id: usize) -> PathBuf {
        self.dir.join(format!("server-{id}"))
    }

    /// The configuration of server `id`.
    pub(crate) fn config(&self, id: usize) -> PathBuf {
        self.server(id).join("argosy.toml")
    }
}

/// Reads the region map in `coordinator`, if there is one.
pub(crate) fn read_map(coordinator: &Path) -> Result<Option<ClusterMap>, CommandFailure> {
    let stored = open(coordinator)?.read_map_now();
    let stored = stored.map_err(|error| unreadable(&error, coordinator))?;
    Ok(stored.map(|stored| Arc::unwrap_or_clone(stored.map)))
}

fn unreadable(error: &MapAccessError, coordinator: &Path) -> CommandFailure {
    match error {
        MapAccessError::Map(error) => {
            CommandFailure::Corrupt(format!("{}: {error}", coordinator.display()))
        }
        error => CommandFailure::Failed(chain(error)),
    }
}

/// Puts `map` into `coordinator`, in place of whatever map is there.
pub(crate) fn write_map(coordinator: &Path, map: &ClusterMap) -> Result<(), CommandFailure> {
    let failed = |error: MapAccessError| CommandFailure::Failed(chain(&error));
    let mut embedded = open(coordinator)?;
    let found = embedded.read_map_now();
    let found = found.map_err(|error| unreadable(&error, coordinator))?;
    let next = Arc::new(map.clone());
    let write = match found {
        Some(found) if *found.map == *map => return Ok(()),
        Some(found) => MapWrite::change(&found, next, SHARD_BYTES_MAX),
        None => MapWrite::first(next, SHARD_BYTES_MAX),
    };
    let write = write.map_err(|error| failed(error.into()))?;
    embedded.write_map_now(&write).map_err(failed)
}

/// Says in the map in `embedded` that the data of `server` is on `device`. Others may change the map meanwhile.
///
/// # Errors
/// The coordinator's; of a map that cannot be read, or does not name the server, that it is damaged.
pub(crate) fn record_device(
    embedded: &mut Embedded,
    server: ServerId,
    device: DeviceId,
) -> Result<(), CoordinatorError> {
    loop {
        let damaged = |_| CoordinatorError::Damaged {
            path: CLUSTER_KEY.to_owned(),
            what: "the region map is gone, or does not name this server any more",
        };
        let found = match embedded.read_map_now() {
            Err(MapAccessError::Coordinator(error)) => return Err(error),
            found => found.ok().flatten(),
        };
        let found = found.filter(|found| found.map.server(server).is_some());
        let found = found.ok_or(()).map_err(damaged)?;
        let next = Arc::new((*found.map).clone().with_device(server, device));
        let write = MapWrite::change(&found, next, SHARD_BYTES_MAX);
        let ops = write.and_then(|write| write.ops());
        match embedded.change_now(ops.map_err(|_| damaged(()))?) {
            Ok(_) => return Ok(()),
            // Each time somebody else's change has succeeded, one for each server that starts. Or it is not known
            // whether this one has: then it is made again.
            Err(CoordinatorError::Conflict { .. } | CoordinatorError::ConnectionLost) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens the coordinator in `coordinator`, which is made if there is none.
pub(crate) fn open(coordinator: &Path) -> Result<Embedded, CommandFailure> {
    let name = random::number().map_err(CommandFailure::no_random)?;
    Embedded::open(coordinator, name).map_err(|error| CommandFailure::Failed(chain(&error)))
}

/// A new cluster of `shape`, or why there can be none.
pub(crate) fn new_map(
    shape: &Shape,
    split: Split,
    ports: &[Ports],
) -> Result<ClusterMap, CommandFailure> {
    let regions = shape.regions_or_default();
    let ranges = match split {
        Split::Text => split_text(regions),
        Split::Hex => split_hex(regions),
    };
    let regions = ranges
        .into_iter()
        .enumerate()
        .map(|(index, range)| region(shape, index, range))
        .collect();
    let map = ClusterMap::new(
        ClusterId(random::number().map_err(CommandFailure::no_random)?),
        shape.replication_or_default(),
        servers_at(ports),
        regions,
    );
    let map = map.map_err(|error| CommandFailure::Usage(chain(&error)))?;
    let map = map.with_addresses(shape.addresses.unwrap_or_default());
    Ok(map.with_durability(shape.durability.unwrap_or_default()))
}

/// `map` with its servers at `ports`.
pub(crate) fn moved(map: &ClusterMap, ports: &[Ports]) -> Result<ClusterMap, CommandFailure> {
    let regions = map.regions().to_vec();
    let moved = ClusterMap::new(map.cluster(), map.replication(), servers_at(ports), regions)
        .and_then(|moved| moved.with_copies(map.copies()))
        .map_err(|error| CommandFailure::Failed(chain(&error)))?;
    let devices = map.servers().iter().filter_map(|server| {
        let device = map.device(server.id)?;
        Some((server.id, device))
    });
    let moved = moved.with_addresses(map.addresses());
    let moved = moved.with_durability(map.durability());
    Ok(devices.fold(moved, |moved, (id, device)| moved.with_device(id, device)))
}

fn region(shape: &Shape, index: usize, range: KeyRange) -> Region {
    let (servers, replicas) = (shape.servers_or_default(), shape.replicas_or_default());
    let primaries = shape.primaries.unwrap_or_default();
    let members = primaries.members(index, servers, replicas);
    Region::first(RegionId(small(index + 1)), range, members[0], members)
}

fn servers_at(ports: &[Ports]) -> Vec<Server> {
    let server = |(id, ports): (usize, &Ports)| Server {
        id: ServerId(small(id)),
        resp: ports.resp.to_string(),
        admin: ports.admin.to_string(),
    };
    ports.iter().enumerate().map(server).collect()
}

fn small(n: usize) -> u32 {
    u32::try_from(n).expect("servers and regions are few")
}

impl Shape {
    /// What `map` has.
    pub(crate) fn of(map: &ClusterMap) -> Self {
        Self {
            servers: Some(map.servers().len()),
            replicas: usize::try_from(map.copies()).ok(),
            regions: Some(map.regions().len()),
            replication: Some(map.replication()),
            primaries: Primaries::of(map),
            addresses: Some(map.addresses()),
            durability: Some(map.durability()),
        }
    }

    /// Whether there can be such a cluster.
    pub(crate) fn check(&self) -> Result<(), CommandFailure> {
        let (servers, replicas) = (self.servers_or_default(), self.replicas_or_default());
        let regions = self.regions_or_default();
        let refuse = |reason: String| Err(CommandFailure::Usage(reason));
        if !(1..=SERVERS_MAX).contains(&servers) {
            return refuse(format!(
                "--servers {servers}: there can be 1 to {SERVERS_MAX}"
            ));
        }
        if !(1..=SPLIT_MAX).contains(&regions) {
            return refuse(format!(
                "--regions {regions}: there can be 1 to {SPLIT_MAX}"
            ));
        }
        if !(1..=servers).contains(&replicas) {
            return refuse(format!(
                "--replicas {replicas}: each is on another server, so with {servers} servers \
                 there can be 1 to {servers}"
            ));
        }
        if self.replication == Some(Replication::None) && replicas > 1 {
            return refuse(format!(
                "--replication none has one replica, not {replicas}"
            ));
        }
        Ok(())
    }

    /// Whether everything that is asked for is what `there` has.
    pub(crate) fn agrees_with(&self, there: &Self) -> Result<(), CommandFailure> {
        let differs = [
            ("--servers", self.servers, there.servers),
            ("--replicas", self.replicas, there.replicas),
            ("--regions", self.regions, there.regions),
        ];
        if let (Some(asked), Some(found)) = (self.addresses, there.addresses)
            && asked != found
        {
            return Err(CommandFailure::Usage(format!(
                "--address {asked}: the cluster in this data directory has {found}, for the life of \
                 its data"
            )));
        }
        if let (Some(asked), Some(found)) = (self.durability, there.durability)
            && asked != found
        {
            return Err(CommandFailure::Usage(format!(
                "--durability {asked}: the cluster in this data directory has {found}"
            )));
        }
        for (flag, asked, found) in differs {
            if let (Some(asked), Some(found)) = (asked, found)
                && asked != found
            {
                return Err(CommandFailure::Usage(format!(
                    "{flag} {asked}: the cluster in this data directory has {found}; leave the \
                     flag out, or use another directory"
                )));
            }
        }
        if let (Some(asked), Some(found)) = (self.replication, there.replication)
            && asked != found
        {
            return Err(CommandFailure::Usage(format!(
                "--replication {asked}: the cluster in this data directory has {found}"
            )));
        }
        match (self.primaries, there.primaries) {
            (Some(asked), Some(found)) if asked != found => Err(CommandFailure::Usage(format!(
                "--layout {}: the cluster in this data directory has {}",
                asked.name(),
                found.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Server processes; 3 unless said otherwise.
    pub(crate) fn servers_or_default(&self) -> usize {
        self.servers.unwrap_or(3)
    }

    /// Members of each region; 3, or as many as there are servers, unless said otherwise.
    pub(crate) fn replicas_or_default(&self) -> usize {
        match self.replication {
            Some(Replication::None) => self.replicas.unwrap_or(1),
            _ => self
                .replicas
                .unwrap_or_else(|| self.servers_or_default().min(3)),
        }
    }

    /// Regions; one for each server unless said otherwise.
    pub(crate) fn regions_or_default(&self) -> usize {
        self.regions.unwrap_or_else(|| self.servers_or_default())
    }

    /// How members become equal; by send-index unless said otherwise.
    pub(crate) fn replication_or_default(&self) -> Replication {
        self.replication.unwrap_or(Replication::SendIndex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn shape(servers: usize, replicas: usize, regions: usize) -> Shape {
        Shape {
            servers: Some(servers),
            replicas: Some(replicas),
            regions: Some(regions),
            replication: None,
            primaries: None,
            addresses: None,
            durability: None,
        }
    }

    fn ports(count: u16) -> Vec<Ports> {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        (0..count)
            .map(|n| Ports {
                resp: at(7379 + n),
                admin: at(7480 + n),
            })
            .collect()
    }

    #[test]
    fn regions_and_their_members_are_spread_over_the_servers() {
        let map = new_map(&shape(3, 2, 6), Split::Hex, &ports(3)).unwrap();
        for id in 0..3 {
            let id = ServerId(id);
            let primary = map.regions().iter().filter(|region| region.primary == id);
            let member = map
                .regions()
                .iter()
                .filter(|region| region.members.contains(&id));
            assert_eq!((primary.count(), member.count()), (2, 4));
        }
        assert_eq!(
            Shape::of(&map),
            Shape {
                replication: Some(Replication::SendIndex),
                primaries: Some(Primaries::Spread),
                addresses: Some(AddressMode::Logical),
                durability: Some(DurabilityMode::LastWrite),
                ..shape(3, 2, 6)
            }
        );
        let map = map.with_device(ServerId(1), DeviceId(7));
        let moved = moved(&map, &ports(3)[..]).unwrap();
        assert_eq!(moved, map, "devices stay");
    }

    #[test]
    fn one_server_may_be_primary_of_all() {
        let split = Some(Primaries::Split);
        for (servers, replicas) in [(2, 2), (3, 2), (3, 3), (5, 3), (3, 1), (1, 1)] {
            let shape = Shape {
                primaries: split,
                ..shape(servers, replicas, 6)
            };
            let map = new_map(&shape, Split::Hex, &ports(5)[..servers]).unwrap();
            let mut backups = vec![0; servers];
            for region in map.regions() {
                assert_eq!(
                    (region.primary, region.members.len()),
                    (ServerId(0), replicas)
                );
                for member in &region.members[1..] {
                    backups[usize::try_from(member.0).unwrap()] += 1;
                }
            }
            assert_eq!(backups[0], 0);
            let (least, most) = (backups[1..].iter().min(), backups[1..].iter().max());
            assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 2, "{backups:?}");
            let found = Shape::of(&map);
            assert_eq!(found.primaries, split.filter(|_| servers > 1));
            shape.agrees_with(&found).unwrap();
            let spread = Shape {
                primaries: Some(Primaries::Spread),
                ..shape
            };
            assert_eq!(spread.agrees_with(&found).is_err(), servers > 1);
        }
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        for (bad, flag) in [
            (shape(0, 1, 1), "--servers"),
            (shape(2, 3, 1), "--replicas"),
            (shape(2, 0, 1), "--replicas"),
            (shape(2, 2, 0), "--regions"),
            (
                Shape {
                    replication: Some(Replication::None),
                    ..shape(2, 2, 1)
                },
                "--replication",
            ),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
        for good in [Shape::default(), shape(1, 1, 1), shape(64, 64, 4096)] {
            good.check().unwrap();
        }
    }

    #[test]
    fn a_cluster_that_is_there_keeps_its_shape() {
        let there = shape(3, 3, 1);
        Shape::default().agrees_with(&there).unwrap();
        there.agrees_with(&there).unwrap();
        assert!(shape(4, 3, 1).agrees_with(&there).is_err());
    }
}
