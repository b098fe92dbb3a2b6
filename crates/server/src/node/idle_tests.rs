//! Regions that nobody uses: nobody looks at them, however many there are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Instant, KeyRange, RegionId, ServerId};
use argosy_coordinator::{ClusterId, ClusterMap, Replication, Server};
use argosy_device::{FormatOptions, MemoryDevice, Store};
use argosy_engine::scrub::Pace;
use argosy_engine::{Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::{SimSettings, SimWorld};
use argosy_memory::{AnonymousWindows, SharedMemory};

use super::copies_tests::settings;
use super::readers_tests::{Answers, set_clock, surroundings};
use super::schedule::Crew;
use super::whole::MARK_BYTES;
use super::{MemoryParts, Mutants, Node, NodeSettings, World};
use crate::service::{Begun, ReplySink, ReplyTo, Request, Response, Service};

const REGIONS: u32 = 1000;
const ID: ServerId = ServerId(0);
const SECOND: u64 = 1_000_000_000;
/// Regions that may be awake at one time, where that is bounded.
const AWAKE: usize = 8;
const MINUTE: u64 = 60 * SECOND;

fn key_of(region: u32) -> Vec<u8> {
    format!("{region:04}").into_bytes()
}

fn map() -> ClusterMap {
    let server = Server {
        id: ID,
        resp: "127.0.0.1:7000".to_owned(),
        admin: "127.0.0.1:8000".to_owned(),
    };
    let regions = (0..REGIONS).map(|region| {
        let from = match region {
            0 => Vec::new(),
            _ => key_of(region),
        };
        let to = (region + 1 < REGIONS).then(|| key_of(region + 1));
        let (id, range) = (RegionId(region + 1), KeyRange::new(from, to));
        argosy_coordinator::Region::first(id, range, ID, vec![ID])
    });
    let regions = regions.collect();
    ClusterMap::new(ClusterId(1), Replication::None, vec![server], regions).expect("it is valid")
}

/// A server that is alone, on a clock of the test's own.
struct Alone {
    node: Arc<Node>,
    world: SimWorld,
    windows: AnonymousWindows,
    answers: Arc<Answers>,
    now: u64,
}

impl Alone {
    /// One whose regions are scrubbed once in `period`; zero: never.
    fn new(period: Duration) -> Self {
        let usual = settings(Default::default());
        let scrub = Pace {
            period,
            ..Pace::default()
        };
        Self::with(NodeSettings { scrub, ..usual })
    }

    /// One that has windows of eight regions in memory at one time.
    fn with_eight_awake(mutants: Mutants) -> Self {
        let usual = settings(mutants);
        let memory = MemoryParts {
            awake: AWAKE,
            ..usual.memory
        };
        Self::with(NodeSettings {
            memory,
            deadline: Duration::from_secs(60),
            scrub: Pace {
                period: Duration::ZERO,
                ..Pace::default()
            },
            ..usual
        })
    }

    fn with(usual: NodeSettings) -> Self {
        set_clock(1);
        let settings = NodeSettings {
            engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
                of.memtables.bytes = 64 << 10;
                of.memtables.count_max = 2;
                of.cache_bytes = 0;
                of.layout.window_bytes = 64 << 10;
            })),
            ..usual
        };
        let world = SimWorld::with_settings(7, SimSettings::default());
        let device = MemoryDevice::eager(10_000 * SEGMENT_SIZE as u64, 1);
        Store::format(&device, &FormatOptions::default()).expect("it is new");
        let windows = AnonymousWindows::new();
        let surroundings = World {
            windows: Arc::new(windows.clone()),
            ..surroundings(&world, ID, Arc::new(device))
        };
        let node = Node::open(ID, settings, surroundings, map()).expect("it opens");
        Self {
            node,
            world,
            windows,
            answers: Arc::default(),
            now: 1,
        }
    }

    /// Does everything that is due until `nanos` have passed, and steps in between only when something is.
    fn run(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            set_clock(self.now);
            let now = Instant::from_nanos(self.now);
            self.world.step(now);
            self.node.step_fabric(now);
            while self.node.step_logs(now).made | self.node.step_next(now).made {}
            let steppers = self.node.regions.steppers();
            let ready = |crew| steppers.ready(crew, now) > 0;
            if ready(Crew::Logs) || ready(Crew::Steppers) {
                continue;
            }
            let due = [Crew::Logs, Crew::Steppers].map(|crew| steppers.next_due(crew, now));
            let due = due.into_iter().flatten().min().map(Instant::as_nanos);
            match due.filter(|due| *due < end) {
                Some(due) => self.now = due.max(self.now + 1),
                None => break,
            }
        }
        self.now = end;
    }

    /// How often regions, or their logs, are stepped within `nanos`.
    fn steps_within(&mut self, nanos: u64) -> u64 {
        let before = self.node.regions.steppers().region_steps();
        self.run(nanos);
        self.node.regions.steppers().region_steps() - before
    }

    /// When a region is due the next time, if nobody uses any.
    fn region_due(&self) -> Option<Instant> {
        self.node.regions.steppers().region_due()
    }

    fn call(&self, token: u64, request: Request<'_>) {
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&self.answers);
        let reply = ReplyTo::new(&sink, token);
        if let Begun::Answered(answer) = self.node.call(request, Reach::Device, reply) {
            sink.deliver(token, answer);
        }
        self.node.flush();
    }

    fn put(&self, region: u32) {
        let mut batch = WriteBatch::new();
        batch.put(key_of(region), b"value").expect("it is short");
        let options = WriteOptions::default();
        let batch = &batch;
        self.call(region.into(), Request::Write { batch, options });
    }

    /// Regions whose windows have memory.
    fn awake(&self) -> usize {
        let memories = self.windows.memories().into_iter();
        let is_awake = |(name, memory): (u64, Arc<SharedMemory>)| {
            (memory.len() > MARK_BYTES && memory.is_allocated()).then_some(name >> 24)
        };
        let awake: BTreeSet<u64> = memories.filter_map(is_awake).collect();
        awake.len()
    }

    fn answers(&self) -> Vec<(u64, Response)> {
        std::mem::take(&mut *self.answers.0.lock())
    }
}

/// Until everything is flushed and windows rest: they do after half a minute.
const TO_REST: u64 = MINUTE;

#[test]
fn a_thousand_regions_at_rest_are_not_stepped() {
    let mut alone = Alone::new(Duration::ZERO);
    alone.run(SECOND);
    (0..REGIONS).for_each(|region| alone.put(region));
    alone.run(TO_REST);
    assert_eq!(alone.answers().len(), REGIONS as usize);
    // Chores wake none, and by itself none is due within the hour, or ever.
    assert_eq!(alone.steps_within(MINUTE), 0);
    assert_eq!(alone.region_due(), None);
    // What is written is flushed in its time all the same, and who was read rests again.
    alone.put(7);
    let steps = alone.steps_within(TO_REST);
    assert!((4..200).contains(&steps), "{steps}");
    alone.call(1, Request::Get { key: &key_of(7) });
    alone.run(TO_REST);
    assert_eq!(alone.answers().len(), 2);
    assert_eq!(alone.steps_within(MINUTE), 0);
    assert_eq!(alone.region_due(), None);
}

/// By default a region is scrubbed within four weeks, and looked at every ten minutes at most.
#[test]
fn scrubbing_steps_a_region_every_ten_minutes_at_most() {
    let mut alone = Alone::new(Pace::default().period);
    let opened = alone.now;
    alone.run(SECOND);
    alone.run(TO_REST);
    assert_eq!(alone.steps_within(MINUTE), 0);
    let due = alone.region_due().expect("it is scrubbed");
    assert!(due.as_nanos() >= opened + 10 * MINUTE, "{due:?}");
    // It is looked at once, and rests for as long again.
    alone.now = due.as_nanos();
    let steps = alone.steps_within(MINUTE);
    let each = u64::from(REGIONS);
    assert!((each..=4 * each).contains(&steps), "{steps}");
    let next = alone.region_due().expect("it is scrubbed");
    assert!(next.as_nanos() >= due.as_nanos() + 10 * MINUTE, "{next:?}");
}

/// How many of `answers` are writes that were applied.
fn applied(answers: &[(u64, Response)]) -> usize {
    let is_applied =
        |answer: &&(u64, Response)| matches!(answer.1, Response::Written { applied: true, .. });
    answers.iter().filter(is_applied).count()
}

#[test]
fn a_thousand_regions_take_turns_with_memory_for_the_windows_of_eight() {
    let mut alone = Alone::with_eight_awake(Mutants::default());
    assert_eq!(alone.awake(), 0, "they open at rest");
    alone.run(SECOND);
    for region in 0..REGIONS {
        alone.put(region);
        alone.run(SECOND);
        assert_eq!(applied(&alone.answers()), 1, "{region}");
        assert!(alone.awake() <= AWAKE, "{}", alone.awake());
    }
    // All at once, twice: each has its turn, and then another.
    for region in (0..REGIONS).chain(0..REGIONS) {
        alone.put(region);
    }
    for _ in 0..30 {
        alone.run(SECOND);
        assert!(alone.awake() <= AWAKE, "{}", alone.awake());
    }
    assert_eq!(applied(&alone.answers()), 2 * REGIONS as usize);
    assert_eq!(alone.node.memory.permits().held().1, AWAKE);
    // They rest by themselves, too, and nobody looks at them.
    alone.run(TO_REST);
    assert_eq!(alone.awake(), 0);
    assert_eq!(alone.node.memory.permits().held().0, 0);
    assert_eq!(alone.steps_within(MINUTE), 0);
}

#[test]
fn a_permit_that_does_not_come_back_is_found() {
    let mut mutants = Mutants::default();
    assert!(mutants.plant("keep_permit"), "tests have the mistakes");
    let mut alone = Alone::with_eight_awake(mutants);
    alone.run(SECOND);
    let regions = 3 * AWAKE;
    (0..3 * 8).for_each(|region| alone.put(region));
    alone.run(2 * MINUTE);
    let answers = alone.answers();
    assert_eq!((applied(&answers), answers.len()), (AWAKE, regions));
}
