//! The one memory budget: how `memory.limit` is divided over the parts of a server (I9).
//!
//! ```text
//! memtables   up to 3 of each region that the server is primary of; under build-index, of each region
//!             that it is a member of. Where it comes to be primary of more, all of them are smaller
//! windows     4 MiB for each region that may be awake: for each server, at most `memory.awake-regions` of the regions
//!             that it is primary of and that are stored here. And 36 KiB for each region that is stored here: the
//!             control blocks of its windows, and the mark that its copy is whole
//! links       a message ring and landing slots for each other server
//! clients     an eighth, and at least what the longest request and reply need
//! native      a sixteenth, within bounds: memory shared with native clients; nothing without them
//! answers     a 64th, within bounds: those that wait until what they tell of is committed
//! buffers     three 128ths, within bounds: memory for segments and reads that is kept for the next; and what a
//!             flush and a merge have in hand
//! cache       the rest of the limit, and those parts of clients and native clients that are unused: leaves, values,
//!             indexes and filters
//! ```
//!
//! A limit with which the cache would come to less than `CACHE_BYTES_MIN` is refused, and the least
//! that would do is named.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{DurabilityMode, SEGMENT_SIZE, ServerId};
use argosy_coordinator::{ClusterMap, Replication};
use argosy_engine::scrub::Pace as ScrubPace;
use argosy_server::native::Settings as NativeSettings;
use argosy_server::node::{Awake, LeaseSettings, LinkSettings, MemoryParts, NodeSettings};
use argosy_server::resp::Settings as RespSettings;
use argosy_wire::ring::MESSAGE_BYTES_MAX;

use crate::config::{FailoverSection, ServerConfig};
use crate::engines::{self, Settings};
use crate::failure::CommandFailure;
use crate::units::Size;

/// Bytes of the message ring in each direction between two servers: 128 of the longest messages, so that a
/// peer that is slow for a moment holds nobody up.
const RING_BYTES: usize = 8 << 20;
/// The smallest memtable.
const L0_BYTES_MIN: usize = 64 << 10;
/// The smallest cache.
const CACHE_BYTES_MIN: usize = 8 << 20;

/// The settings of a server whose memory is divided.
pub(crate) struct Divided {
    /// Those of its node.
    pub(crate) node: NodeSettings,
    /// Those of its engine, which the node has, too.
    pub(crate) engine: Settings,
}

/// The settings of a server's node, with its memory divided. `threads` serve clients.
pub(crate) fn node_settings(
    config: &ServerConfig,
    map: &ClusterMap,
    threads: usize,
) -> Result<Divided, CommandFailure> {
    let id = ServerId(config.server.id);
    let regions = || map.regions().iter();
    let primaries = regions().filter(|region| region.primary == id).count();
    let members = regions().filter(|region| region.members.contains(&id));
    let members = members.count();
    // Who builds levels has memtables.
    let builders = match map.replication() {
        Replication::BuildIndex => members,
        _ => primaries,
    };
    // A server that leads nothing at first may come to lead something.
    let planned = builders.max(usize::from(config.failover.enabled));
    let sharing = if config.storage.l0_per_replica {
        primaries
    } else {
        builders
    };
    let mut engine = engines::of_storage(&config.storage).with(|of| {
        // All memtables of this server share what it was given.
        of.memtables.bytes = (config.storage.l0_bytes.bytes() / sharing.max(1)).max(L0_BYTES_MIN);
        // Where it comes to serve more regions than now, they share that.
        of.memtables.regions = Some(planned);
        of.layout.addresses = map.addresses();
        of.logs.sync = map.durability() == DurabilityMode::Sync;
    });
    let link = LinkSettings {
        ring_bytes: RING_BYTES,
        slot_bytes: SEGMENT_SIZE,
        part_bytes: MESSAGE_BYTES_MAX,
    };
    let awake = Awake::of(map, id, config.memory.awake_regions.get());
    let fixed = MemoryParts {
        memtables: planned * engine.memtables.bytes * engine.memtables.count_max,
        windows: MemoryParts::windows_of(awake, &engine.layout.logs()),
        links: (map.servers().len() - 1) * link.memory_bytes(),
        buffers: engine.layout.work_bytes(),
        awake: config.memory.awake_regions.get(),
        ..MemoryParts::default()
    };
    let limit = config.memory.limit.bytes();
    let threads = (threads, config.native.threads);
    let memory = divide(&fixed, limit, threads)
        .ok_or_else(|| too_small(config.memory.limit, &fixed, threads, awake))?;
    engine.cache_bytes = memory.cache + memory.lent();
    engine.cache_lent = memory.lent();
    engine
        .validate()
        .map_err(|error| CommandFailure::Config(format!("storage: {error}")))?;
    let node = NodeSettings {
        engine: Arc::new(engine.clone()),
        link,
        memory,
        deadline: config.replication.deadline.0,
        failover_wait: failover_wait(&config.failover),
        remove_after: config.failover.remove_after.0,
        leases: leases(&config.failover)?,
        sweep: Default::default(),
        scrub: ScrubPace {
            period: config.storage.scrub.period.0,
            bytes_per_second_max: config.storage.scrub.bytes_per_second_max.0.max(1),
        },
        mutants: Default::default(),
        replication_mutants: Default::default(),
    };
    Ok(Divided { node, engine })
}

/// That `limit` is too small.
fn too_small(limit: Size, fixed: &MemoryParts, threads: Threads, awake: Awake) -> CommandFailure {
    let least = Size(least(fixed, threads) as u64);
    CommandFailure::Config(format!(
        "memory.limit = {limit} is too small for the regions of this server: memtables take {}, log \
         windows {} ({} of {} regions may be awake), links to other servers {}, and clients and the cache \
         need some, too; raise it to {least} or more, or lower storage.l0-bytes, or memory.awake-regions on all \
         servers",
        Size(fixed.memtables as u64),
        Size(fixed.windows as u64),
        awake.awake,
        awake.members,
        Size(fixed.links as u64),
    ))
}

/// How long requests wait for a primary. Where regions stay nobody else becomes one, and there is nothing to wait for.
fn failover_wait(of: &FailoverSection) -> Duration {
    match of.enabled {
        true => of.wait.0,
        false => Duration::ZERO,
    }
}

/// The leases of a server whose regions may move.
fn leases(of: &FailoverSection) -> Result<Option<LeaseSettings>, CommandFailure> {
    let leases = LeaseSettings::new(of.lease.0, of.clock_drift_ppm).map_err(|error| {
        let keys = "failover.lease, failover.clock-drift-ppm";
        CommandFailure::Config(format!("{keys}: {error}"))
    })?;
    Ok(of.enabled.then_some(leases))
}

/// Threads that serve Redis clients, and those that serve native ones.
type Threads = (usize, usize);

/// `limit`, divided; `None` if it is too small. The parts that `limit` has no influence on are in
/// `fixed`.
fn divide(fixed: &MemoryParts, limit: usize, threads: Threads) -> Option<MemoryParts> {
    let clients = RespSettings::share_of(limit, threads.0);
    let native = match threads.1 {
        0 => 0,
        _ => NativeSettings::share_of(limit),
    };
    let answers = MemoryParts::answers_of(limit);
    let kept = argosy_device::buffer::share_of(limit);
    let cache = limit.checked_sub(fixed.limit() + clients + native + answers + kept)?;
    (cache >= CACHE_BYTES_MIN).then_some(MemoryParts {
        clients,
        native,
        answers,
        buffers: fixed.buffers + kept,
        cache,
        ..*fixed
    })
}

/// The least limit that can be divided, in whole MiB.
fn least(fixed: &MemoryParts, threads: Threads) -> usize {
    const MIB: usize = 1 << 20;
    // What is left for others grows with the limit: clients take an eighth of what is added, or a
    // sixteenth where replies may become longer.
    let (mut low, mut high) = (0, 2 * fixed.limit() / MIB + 1024);
    while low + 1 < high {
        let middle = low.midpoint(high);
        match divide(fixed, middle * MIB, threads) {
            Some(_) => high = middle,
            None => low = middle,
        }
    }
    high * MIB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::TimeSpan;

    #[test]
    fn requests_wait_where_regions_move() {
        let of = |enabled| FailoverSection {
            enabled,
            wait: TimeSpan(Duration::from_secs(7)),
            ..FailoverSection::default()
        };
        assert_eq!(failover_wait(&of(true)), Duration::from_secs(7));
        assert_eq!(failover_wait(&of(false)), Duration::ZERO);
    }

    /// Leases are asked for only with failover on. A bad setting is an error also with failover off.
    #[test]
    fn leases_are_as_they_are_set() {
        let of = |enabled, millis, clock_drift_ppm| FailoverSection {
            enabled,
            lease: TimeSpan(Duration::from_millis(millis)),
            clock_drift_ppm,
            ..FailoverSection::default()
        };
        assert!(
            leases(&of(false, 1000, 1000))
                .expect("it is good")
                .is_none()
        );
        let set = leases(&of(true, 250, 500)).expect("it is good");
        let terms = set.expect("they are asked for").terms;
        assert_eq!(
            (terms.term(), terms.drift_ppm()),
            (Duration::from_millis(250), 500)
        );
        for (millis, drift, words) in [
            (0, 0, "a lease of 0ns"),
            (3_600_001, 0, "a lease of"),
            (1, 100_001, "a drift of"),
        ] {
            for enabled in [false, true] {
                let refused = leases(&of(enabled, millis, drift)).expect_err("it is out of bounds");
                assert!(format!("{refused:?}").contains(words), "{refused:?}");
            }
        }
    }

    #[test]
    fn the_parts_add_up_and_the_least_limit_is_the_least() {
        for fixed_mib in [0, 1, 100, 3000] {
            let fixed = MemoryParts {
                memtables: fixed_mib << 20,
                windows: 4 << 20,
                ..MemoryParts::default()
            };
            let least = least(&fixed, (1, 1));
            for limit in [least, least + (1 << 20), 2 * least, 16 * least] {
                let parts = divide(&fixed, limit, (1, 1)).expect("it is enough");
                assert_eq!(parts.limit(), limit);
                assert!(parts.cache >= CACHE_BYTES_MIN);
            }
            assert_eq!(
                divide(&fixed, least - (1 << 20), (1, 1)),
                None,
                "{fixed_mib}"
            );
        }
    }
}
