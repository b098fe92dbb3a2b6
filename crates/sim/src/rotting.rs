//! Windows in shared memory in which something else lies than what was written: a bit flips, or some bytes in a row.
//!
//! It happens to one server's windows, of regions of which it is the primary and of others: while it runs, while it is
//! down, just before it is started again. What lies there is acknowledged and need not be on its device yet. What
//! becomes of it:
//!
//! - Whoever *recovers* the copy reads records with their checksums. The history ends there in front of the damage; or
//!   a mark says that what is missing was durable, and the copy counts as damaged. Another member has all of it: the
//!   region opens with the furthest copy, a copy that is behind fetches what it lacks, a damaged one is filled anew.
//! - A *flush* takes to the device what lies in the window, whatever it is. So the device is damaged, too, and whoever
//!   reads the log there, or opens the copy, says so. Once the segment is sealed, it is repaired.
//! - A *read* of a value in the window is right, or an error that names the damage.
//! - What lies *between* records nobody reads: nobody finds that it was damaged, and members may differ there.
//!
//! At the end of the episode the server is killed and started again, so that it recovers; perhaps all are, and one
//! loses power. Then the members have to repair each other until everything that is stored can be read. Until then the
//! server counts as one that has lost what it had: one member is whole.

use std::time::Duration;

use argosy_base::{RegionId, SegmentNumber};

use crate::cluster::Cluster;
use crate::coverage::{DAMAGE_BETWEEN_RECORDS, WINDOWS_DAMAGED};
use crate::damaging::Damage;
use crate::engine::{Placement, Stated};
use crate::plan::{Episode, Event, Plan, SERVERS, WorldKind};
use crate::random::Random;
use crate::{alone, lone, slow, wire};

/// Of 100 episodes, how many have damaged windows; of 100 of these, in how many nothing else goes wrong.
const EPISODES_PERCENT: usize = 75;
const ALONE_PERCENT: usize = 60;

/// How far seeds are apart of which one takes the place of another.
const APART: u64 = 1 << 32;

/// The plan of `seed` in which windows are damaged. Single copies have nobody from whom to get anything: in the
/// place of a seed with such there is another one.
pub(crate) fn of_damaged_windows(seed: u64) -> Plan {
    let mut seeds = std::iter::successors(Some(seed), |seed| seed.checked_add(APART));
    let plan = seeds.find_map(|seed| {
        let plan = Plan::beginning(seed);
        (plan.kind == WorldKind::Replicated).then_some(plan)
    });
    let plan = plan.expect("most seeds have copies");
    let plan = alone::with_scarce_memory(plan, &mut Random::new(seed, 25));
    let plan = with_damaged_windows(plan, &mut Random::new(seed, 63));
    let plan = lone::with_lone_members(plan, &mut Random::new(seed, 50));
    let plan = wire::with_bad_wires(plan, &mut Random::new(seed, 51));
    slow::with_slow_devices(plan, &mut Random::new(seed, 54))
}

/// The plan, with windows that are damaged. In half of the seeds most values lie in the large log, so that reads
/// come to windows for them.
fn with_damaged_windows(mut plan: Plan, random: &mut Random) -> Plan {
    if random.chance(50) {
        plan.load.large_percent = 60;
        plan.engine.values.placement = Placement::Separated;
    }
    for episode in &mut plan.episodes {
        if random.chance(EPISODES_PERCENT) {
            rot(episode, random);
        }
    }
    plan
}

/// Damages windows in an episode, and has them used.
fn rot(episode: &mut Episode, random: &mut Random) {
    if random.chance(ALONE_PERCENT) {
        episode.events.clear();
    }
    let server = random.below(SERVERS);
    let other = (server + random.between(1, SERVERS - 1)) % SERVERS;
    let from = random.micros(0, 20_000);
    for _ in 0..random.between(1, 3) {
        let at = from + random.micros(0, 60_000);
        episode.events.push((at, damage(server, random)));
    }
    let then = from + random.micros(0, 80_000);
    let mut back = then + random.micros(0, 60_000);
    match random.below(6) {
        0 => {}
        1 => {
            let effects = random.between(0, 60) as u64;
            episode
                .events
                .push((then, Event::KillAfter(server, effects)));
        }
        2 | 3 => {
            episode.events.push((then, Event::Kill(server)));
            episode.events.push((back, damage(server, random)));
            back += random.micros(0, 20_000);
        }
        4 => episode.events.push((then, Event::Power(1 << other))),
        _ => episode.events.push((then, Event::Kill(other))),
    }
    for who in [server, other] {
        episode.events.push((back, Event::Start(who, None)));
    }
    episode
        .events
        .sort_by_key(|(at, _): &(Duration, Event)| *at);
}

fn damage(server: usize, random: &mut Random) -> Event {
    Event::Damage(server, Damage::Window(random.pick(&[1, 1, 1, 2, 8, 64])))
}

/// Whether two members hold the same records of a log segment of `stated`, where windows were damaged, although
/// they do not hold the same bytes, which are `both`.
pub(crate) fn same_records(
    cluster: &mut Cluster,
    region: RegionId,
    stated: &Stated,
    number: SegmentNumber,
    both: [&[u8]; 2],
) -> bool {
    if cluster.coverage.get(WINDOWS_DAMAGED) == 0 {
        return false;
    }
    let reader = &cluster.reader;
    let same = reader.same_records(region, stated, number, both);
    let coverage = &mut cluster.coverage;
    coverage.add(DAMAGE_BETWEEN_RECORDS, u64::from(same));
    same
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use argosy_base::{Epoch, SEGMENT_SIZE};
    use argosy_device::{Crash, FormatOptions, MemoryDevice};
    use argosy_device::{Store, StoreSettings};
    use argosy_engine::{Store as _, WriteBatch, WriteOptions};
    use argosy_log::segment::WINDOW_HEADER_BYTES;
    use argosy_memory::AnonymousWindows;

    use super::*;
    use crate::engine::lsm::cache::NodeCache;
    use crate::engine::lsm::db::promote::{fresh_windows, survivors};
    use crate::engine::lsm::{Lsm, Replica, ReplicaError, Service, Settings};

    const REGION: RegionId = RegionId(1);
    const WRITES: u32 = 50;

    fn settings() -> Settings {
        Settings::default().with(|of| of.layout.window_bytes = 64 << 10)
    }

    /// A copy that was opened after a kill, with everything in its windows alone.
    fn opened() -> Replica {
        let device = MemoryDevice::eager(64 * SEGMENT_SIZE as u64, 1);
        Store::format(&device, &FormatOptions::default()).expect("it is new");
        let (device, windows) = (Arc::new(device), AnonymousWindows::new());
        let open = |device: &Arc<MemoryDevice>| {
            let device = Arc::clone(device);
            Store::open(device, &StoreSettings::default()).expect("it was formatted")
        };
        let store = open(&device);
        let engine = Lsm::open(&store, REGION, &windows, &settings(), None);
        let engine = engine.expect("it is empty");
        for n in 0..WRITES {
            let mut batch = WriteBatch::new();
            let key = format!("key {n:06}").into_bytes();
            batch.put(&key, b"value").expect("it is short");
            let written = engine.write(&batch, WriteOptions::default());
            assert!(written.expect("there is room").applied);
        }
        windows.disown();
        let device = Arc::new(device.crash(Crash::Kill));
        drop((engine, store));
        let (store, windows) = (open(&device), windows.restart());
        let left = survivors(&windows, REGION, &settings());
        let fresh = fresh_windows(&windows, REGION, &settings()).expect("there is memory");
        let replica = Replica::open(&store, REGION, fresh, &left, &settings());
        store.finish_recovery();
        replica.expect("nothing is damaged")
    }

    fn promote(replica: Replica) -> Result<Lsm, ReplicaError> {
        let cache = Arc::new(NodeCache::new(1 << 20));
        let service = Service {
            epoch: Epoch(1),
            ..Service::default()
        };
        Lsm::promote(replica, &cache, service)
    }

    /// It has reported what it holds, and others rely on that: it must not open with less.
    #[test]
    fn windows_that_are_damaged_after_a_report_are_no_shorter_history() {
        let engine = promote(opened()).expect("nothing is damaged");
        assert_eq!(engine.last_lsn().0, u64::from(WRITES));
        let replica = opened();
        replica.windows()[0][0].flip_bit(WINDOW_HEADER_BYTES + 200, 1);
        let error = promote(replica).err();
        assert!(
            matches!(error, Some(ReplicaError::CorruptLog { .. })),
            "{error:?}"
        );
    }

    #[test]
    fn windows_are_damaged_of_regions_with_copies_alone() {
        let mut damages = 0;
        for seed in 0..100 {
            let plan = of_damaged_windows(seed);
            assert_eq!(plan.kind, WorldKind::Replicated, "seed {seed}");
            let events = plan.episodes.iter().flat_map(|episode| &episode.events);
            let is_one = |event: &Event| matches!(event, Event::Damage(_, Damage::Window(_)));
            damages += events.filter(|(_, event)| is_one(event)).count();
        }
        assert!(damages > 500, "{damages}");
    }
}
