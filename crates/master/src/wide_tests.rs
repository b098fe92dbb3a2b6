//! Very many regions on many servers, without a coordinator: how much is planned, written and kept when one is lost.
//!
//! The cluster is made up: each region has three members, drawn from all servers, and a key of twelve bytes. Servers
//! report at once, and all of their copies are whole. Each transaction is checked against what a coordinator takes, and
//! against the bounds of the master, which do not depend on the number of regions.
//!
//! `cargo test --release -p argosy-master -- --ignored --nocapture wide` prints how long plans take.

use std::time::Duration;

use argosy_base::{EditSeq, KeyRange, Lsn, RegionId};
use argosy_coordinator::contract::{CoordinatorOp, OPS_MAX};
use argosy_coordinator::jobs_format::LOG_BYTES_MAX;
use argosy_coordinator::{
    ClusterId, ClusterMap, CopyReport, EntryVersion, JobLog, MapWrite, Replication,
    SHARD_BYTES_MAX, Server, ServerReport, SessionId, StoredMap, Wish,
};

use super::tests::started;
use super::*;
use crate::cluster::{LiveServer, looks};
use crate::redo::Errand;
use crate::settings::MapBounds;

const SERVERS: u32 = 100;
/// The server that is lost.
const LOST: ServerId = ServerId(0);
const ME: SessionId = SessionId(7);
/// Most bytes of a transaction: shards up to the bound of a change and one more, which may have grown by half, the
/// index, and the redo log.
const TRANSACTION_BYTES_MAX: usize = 5 * SHARD_BYTES_MAX;
/// Most bytes of a region in the coordinator, before and behind a promotion.
const STORED_BYTES_MAX: usize = 30;
const STORED_PROMOTED_BYTES_MAX: usize = 60;
/// Most bytes of a region in memory.
const KEPT_BYTES_MAX: usize = 400;

/// What was done because of a loss.
#[derive(Debug, Default)]
struct Figures {
    rounds: usize,
    /// Transactions that wrote the redo log alone, and the map.
    notes: usize,
    acts: usize,
    /// Shards that all of them wrote.
    shards: usize,
    /// Bytes of all of them, and of the longest.
    bytes: usize,
    longest: usize,
    /// The longest redo log.
    log: usize,
    /// Looks at reports in the round that looked most.
    looks: u64,
    /// How long a plan took, and what follows from it: the longest.
    plan: Duration,
    errand: Duration,
}

/// A cluster whose map lies in shards.
struct Wide {
    planner: Planner,
    cluster: Cluster,
    now: Instant,
    figures: Figures,
}

fn made_up(regions: u32) -> ClusterMap {
    let server = |id| Server {
        id: ServerId(id),
        resp: format!("10.0.0.{id}:7379"),
        admin: format!("10.0.0.{id}:7480"),
    };
    let key = |nth: u32| {
        let place = u64::from(nth) * (0x1_0000_0000_0000 / u64::from(regions));
        format!("{place:012x}").into_bytes()
    };
    let mut random = 1_u64;
    let mut draw = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ServerId(u32::try_from((random >> 33) % u64::from(SERVERS)).unwrap())
    };
    let regions = (0..regions).map(|nth| {
        let mut members = vec![ServerId(nth % SERVERS)];
        while members.len() < 3 {
            let drawn = draw();
            if !members.contains(&drawn) {
                members.push(drawn);
            }
        }
        let from = if nth == 0 { Vec::new() } else { key(nth) };
        let to = (nth + 1 < regions).then(|| key(nth + 1));
        Region::first(
            RegionId(nth + 1),
            KeyRange::new(from, to),
            members[0],
            members,
        )
    });
    let servers = (0..SERVERS).map(server).collect();
    ClusterMap::new(
        ClusterId(1),
        Replication::SendIndex,
        servers,
        regions.collect(),
    )
    .unwrap()
}

impl Wide {
    fn new(regions: u32) -> Self {
        let now = Instant::from_nanos(1);
        let settings = PlanSettings::default();
        let write = MapWrite::first(Arc::new(made_up(regions)), SHARD_BYTES_MAX).unwrap();
        assert!(write.ops().unwrap().len() <= OPS_MAX);
        let StoredMap {
            version,
            map,
            shards,
        } = write.stored();
        Self {
            planner: Planner::new(settings, Mutants::default(), now),
            cluster: Cluster {
                map,
                version,
                shards,
                jobs: JobLog::default(),
                jobs_version: EntryVersion(0),
                servers: (0..SERVERS).map(|id| (ServerId(id), started(1))).collect(),
            },
            now,
            figures: Figures::default(),
        }
    }

    /// All servers report: where copies stand that wait for a primary, and who is to leave.
    fn report(&mut self) {
        let Cluster {
            map,
            version,
            servers,
            ..
        } = &mut self.cluster;
        for live in servers.values_mut() {
            let report = live.report.get_or_insert_default();
            report.map = *version;
            report.copies.clear();
            report.wishes.clear();
        }
        let is_lost = !servers.contains_key(&LOST);
        for region in map.regions() {
            if region.state == RegionState::Recovering {
                for member in &region.members {
                    if let Some(report) = report_of(servers, *member) {
                        report.copies.insert(region.id, whole(region));
                    }
                }
            } else if is_lost && region.members.contains(&LOST) {
                let wish = Wish {
                    epoch: region.epoch,
                    remove: vec![LOST],
                    ..Wish::default()
                };
                if let Some(report) = report_of(servers, region.primary) {
                    report.wishes.insert(region.id, wish);
                }
            }
        }
    }

    /// A round of the master. Returns whether it has done anything.
    fn round(&mut self, time: &dyn Fn() -> Duration) -> bool {
        let _ = looks::take();
        let begun = time();
        let plan = self.planner.step(&self.cluster, self.now);
        let planned = time();
        self.figures.looks = self.figures.looks.max(looks::take());
        let bounds = MapBounds::default();
        let Errand { note, act } = Errand::of(&self.cluster, plan, bounds, ME);
        let write = act.as_ref().map(|act| {
            let next = Arc::clone(&act.map);
            MapWrite::change(&self.cluster.stored(), next, bounds.shard_bytes).unwrap()
        });
        let figures = &mut self.figures;
        figures.rounds += 1;
        figures.plan = figures.plan.max(planned.saturating_sub(begun));
        figures.errand = figures.errand.max(time().saturating_sub(planned));
        if let Some(note) = note {
            figures.notes += 1;
            figures.wrote(0, note.encode().len());
            self.cluster.jobs = note;
        }
        let (Some(act), Some(write)) = (act, write) else {
            return false;
        };
        let ops = write.ops().unwrap();
        assert!(ops.len() + 2 <= OPS_MAX, "{} operations", ops.len());
        let index: usize = match &ops[0] {
            CoordinatorOp::Set { value, .. } => value.len(),
            odd => panic!("{odd:?}"),
        };
        figures.acts += 1;
        figures.shards += write.shards_written();
        figures.wrote(index + write.shard_bytes(), act.log.encode().len());
        let StoredMap {
            version,
            map,
            shards,
        } = write.stored();
        (self.cluster.version, self.cluster.map, self.cluster.shards) = (version, map, shards);
        self.cluster.jobs = act.log;
        true
    }

    fn until_quiet(&mut self, time: &dyn Fn() -> Duration) {
        loop {
            self.report();
            if !self.round(time) {
                return;
            }
        }
    }
}

impl Figures {
    fn wrote(&mut self, map: usize, log: usize) {
        assert!(log <= LOG_BYTES_MAX, "{log} bytes of log");
        assert!(map + log <= TRANSACTION_BYTES_MAX, "{map} and {log} bytes");
        self.bytes += map + log;
        self.longest = self.longest.max(map + log);
        self.log = self.log.max(log);
    }
}

fn report_of(
    servers: &mut BTreeMap<ServerId, LiveServer>,
    id: ServerId,
) -> Option<&mut ServerReport> {
    servers.get_mut(&id)?.report.as_mut()
}

fn whole(region: &Region) -> CopyReport {
    CopyReport {
        epoch: region.epoch,
        status: CopyStatus::Whole,
        cut: region.since,
        edit: EditSeq(u64::from(region.since.0) << 32 | 70_000),
        lsn: Lsn(1 << 40),
    }
}

/// Bytes of a map's regions in memory: themselves, what they own, and how they are found.
fn kept_bytes(map: &ClusterMap) -> usize {
    // What an allocator takes for a piece of memory.
    let piece = |bytes: usize| {
        if bytes == 0 {
            0
        } else {
            (bytes + 8).next_multiple_of(16).max(32)
        }
    };
    let of = |region: &Region| {
        let ids = [&region.members, &region.filling, &region.last];
        let ids = ids.map(|ids| piece(ids.capacity() * size_of::<ServerId>()));
        let to = region.range.to.as_ref().map_or(0, Vec::capacity);
        let keys = piece(region.range.from.capacity()) + piece(to);
        size_of::<Region>() + ids.iter().sum::<usize>() + keys
    };
    let found = 2 * size_of::<usize>();
    map.regions().iter().map(|region| of(region) + found).sum()
}

fn stored_bytes(cluster: &Cluster) -> usize {
    let places = cluster.shards.places();
    assert!(places.iter().all(|place| place.bytes <= SHARD_BYTES_MAX));
    places.iter().map(|place| place.bytes).sum()
}

/// One of all servers is lost. Returns the cluster behind it.
fn lose_one(regions: u32, time: &dyn Fn() -> Duration) -> Wide {
    let mut wide = Wide::new(regions);
    let count = wide.cluster.map.regions().len();
    assert!(stored_bytes(&wide.cluster) <= count * STORED_BYTES_MAX);
    wide.until_quiet(time);
    assert_eq!((wide.figures.notes, wide.figures.acts), (0, 0));
    wide.figures = Figures::default();
    let has = |region: &&Region| region.members.contains(&LOST);
    let stored = wide.cluster.map.regions().iter().filter(has).count();
    assert!(stored > count * 2 / 100, "{stored}");
    wide.cluster.servers.remove(&LOST);
    wide.until_quiet(time);
    let map = &wide.cluster.map;
    assert_eq!(map.regions().iter().filter(has).count(), 0);
    assert!(
        map.regions()
            .iter()
            .all(|region| region.state == RegionState::Serving)
    );
    let open: usize = wide.cluster.jobs.open().count();
    assert_eq!(open, 0, "all jobs have ended");
    assert!(stored_bytes(&wide.cluster) <= count * STORED_PROMOTED_BYTES_MAX);
    assert!(
        kept_bytes(map) <= count * KEPT_BYTES_MAX,
        "{}",
        kept_bytes(map) / count
    );
    wide
}

#[test]
fn what_is_written_for_a_lost_server_is_bounded_by_what_changes() {
    let still = || Duration::ZERO;
    let few = lose_one(2_000, &still);
    // What it led is raised, and it leaves other groups; then others are promoted: each time all that is in one shard.
    assert_eq!(
        (few.cluster.shards.places().len(), few.figures.acts),
        (1, 2)
    );
    let many = lose_one(100_000, &still);
    let (few, figures) = (few.figures, &many.figures);
    let shards = many.cluster.shards.places().len();
    assert!((3..=8).contains(&shards), "{shards} shards");
    // Each shard is written twice, or three times if it is not known at first who is to leave; some in one transaction.
    assert!(figures.shards <= 3 * shards, "{figures:?}");
    assert!(figures.acts <= 3 * shards.div_ceil(2), "{figures:?}");
    assert!(figures.notes <= figures.acts + 1, "{figures:?}");
    assert!(figures.longest <= TRANSACTION_BYTES_MAX, "{figures:?}");
    // Fifty times as many regions are fifty times as many looks.
    assert!(figures.looks <= 51 * few.looks, "{few:?} {figures:?}");
}

#[test]
#[ignore = "it prints times"]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn wide_figures() {
    let begun = std::time::Instant::now();
    let time = || begun.elapsed();
    for regions in [1_000, 10_000, 100_000] {
        let wide = lose_one(regions, &time);
        let quiet = {
            let mut wide = Wide::new(regions);
            wide.until_quiet(&time);
            wide.until_quiet(&time);
            wide.figures.plan
        };
        let places = wide.cluster.shards.places().len();
        let (stored, kept) = (stored_bytes(&wide.cluster), kept_bytes(&wide.cluster.map));
        println!(
            "{regions} regions: {places} shards of {stored} bytes, {kept} bytes in memory; a quiet plan {quiet:?}; \
             {:?}",
            wide.figures
        );
    }
}
