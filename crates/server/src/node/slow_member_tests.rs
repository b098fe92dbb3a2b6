//! A backup whose server makes the logs durable more slowly than the others: stepped by the test. It does a step now
//! and then, so that it is heard, and its memory takes writes as always.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Epoch, Instant, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::{Reach, WriteOptions};
use argosy_fabric::sim::SimSettings;
use argosy_wire::message::Message;

use super::copies_tests::{Pair, REGIONS, settings};
use super::planted_tests::write_of;
use super::readers_tests::{Answers, set_clock};
use super::region::Driver;
use super::views_tests::changed;
use super::{Mutants, NodeSettings};
use crate::service::{ReplySink, ReplyTo, Request, Response, Service};

/// Writes that are on their way at one time, of a kilobyte each.
const WRITERS: usize = 32;
/// By so much one run may have a longer wait than another by chance.
const LEEWAY: Duration = Duration::from_millis(5);
/// Steps of a quarter of a millisecond in a second.
const SECOND: u64 = 4000;

/// Two servers with four windows of 16 KiB for each log, and writers that are as fast as they are let.
struct Loaded {
    pair: Pair,
    told: Arc<Answers>,
    /// When writes came that have no answer.
    under_way: BTreeMap<u64, Instant>,
    asked: u64,
    acknowledged: u64,
    /// How long writes have waited for their answers.
    waits: Vec<Duration>,
}

impl Loaded {
    fn new() -> Self {
        let usual = settings(Mutants::default());
        let settings = NodeSettings {
            engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
                of.layout.window_bytes = 16 << 10;
                of.memtables.bytes = 4 << 20;
                of.cache_bytes = 0;
            })),
            deadline: Duration::from_secs(20),
            remove_after: Duration::from_millis(500),
            ..usual
        };
        let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), settings);
        pair.open();
        Self {
            pair,
            told: Arc::default(),
            under_way: BTreeMap::new(),
            asked: 0,
            acknowledged: 0,
            waits: Vec::new(),
        }
    }

    fn write(&mut self) {
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&self.told);
        self.asked += 1;
        let batch = write_of(format!("a{}", self.asked % 1000).as_bytes(), 900);
        let request = Request::Write {
            batch: &batch,
            options: WriteOptions::default(),
        };
        self.under_way.insert(self.asked, self.pair.now);
        let reply = ReplyTo::new(&sink, self.asked);
        let begun = self.pair.nodes[0].call(request, Reach::Device, reply);
        if let Some(response) = begun.answered() {
            sink.deliver(self.asked, response);
        }
    }

    /// A quarter of a millisecond in which the slow server does something, or not.
    fn step(&mut self, with_slow: bool) {
        while self.under_way.len() < WRITERS {
            self.write();
        }
        let pair = &mut self.pair;
        pair.now = pair.now + Duration::from_micros(250);
        pair.world.step(pair.now);
        set_clock(pair.now.as_nanos());
        for node in &pair.nodes[..1 + usize::from(with_slow)] {
            node.step_fabric(pair.now);
            node.step_background(pair.now);
        }
        for (token, response) in std::mem::take(&mut *self.told.0.lock()) {
            let done = matches!(response, Response::Written { applied: true, .. });
            assert!(done, "{response:?}");
            let came = self.under_way.remove(&token).expect("it was asked");
            let waited = self.pair.now.since(came);
            self.waits.push(waited);
            self.acknowledged += 1;
        }
    }

    /// Runs for so many steps, in each `every`th of which the slow server does something; or until the primary wishes
    /// that it is a member no more. Returns after how many steps it did.
    fn run(&mut self, steps: u64, every: u64) -> Option<u64> {
        (1..=steps).find(|step| {
            self.step(step % every == 0);
            let report = self.pair.nodes[0].report_to_master(self.pair.now);
            report.wishes.contains_key(&REGIONS[0])
        })
    }
}

/// What a backup does not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NotTaken {
    #[default]
    Nothing,
    Edits,
    Segments,
}

impl NotTaken {
    pub(super) const fn covers(self, message: &Message<'_>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Edits => matches!(message, Message::Edit { .. }),
            Self::Segments => matches!(message, Message::Ship { .. }),
        }
    }
}

/// One whose device stands still for edits, or for segments, holds up flushes and then writers, although it makes the
/// logs durable. It is removed, after as long as it might catch up; then writers go on.
#[test]
fn one_that_takes_no_edits_or_segments_is_removed() {
    for what in [NotTaken::Edits, NotTaken::Segments] {
        let mut loaded = Loaded::new();
        assert_eq!(loaded.run(SECOND, 1), None, "{what:?}");
        let region = loaded.pair.nodes[1]
            .region(REGIONS[0])
            .expect("it is in the map");
        match &mut *region.driver() {
            Driver::Backup(copy) => copy.untaken = what,
            _ => panic!("it is a backup"),
        }
        let steps = loaded.run(12 * SECOND, 1).expect("it is removed");
        assert!(steps >= 4 * SECOND, "{what:?}: after {steps} steps");
        let alone = changed(&loaded.pair, |of| {
            (of.epoch, of.members) = (Epoch(2), vec![ServerId(0)]);
        });
        for node in &loaded.pair.nodes {
            node.set_map(alone.clone()).expect("newer");
        }
        let before = loaded.acknowledged;
        let _ = loaded.run(SECOND, 1);
        assert!(loaded.acknowledged > before + 1000, "{what:?}");
    }
}

/// How a second is beside a backup that does one step of so many.
struct Seen {
    acknowledged: u64,
    half: Duration,
    longest: Duration,
}

fn beside(every: u64) -> Seen {
    let mut loaded = Loaded::new();
    for step in 1..=SECOND {
        loaded.step(step % every == 0);
    }
    loaded.waits.sort();
    Seen {
        acknowledged: loaded.acknowledged,
        half: loaded.waits[loaded.waits.len() / 2],
        longest: loaded.waits[loaded.waits.len() - 1],
    }
}

/// The windows pass the pace of the backup on: the slower it is, the longer writes wait, and not one much longer than
/// the backup takes for what lies in them.
#[test]
fn writers_become_as_slow_as_the_slowest_member() {
    let all: Vec<Seen> = [1, 12, 32, 100, 200].map(beside).into();
    for pair in all.windows(2) {
        assert!(pair[0].acknowledged > pair[1].acknowledged);
        assert!(pair[0].half < pair[1].half && pair[0].longest <= pair[1].longest + LEEWAY);
    }
    for slow in &all[3..] {
        assert!(
            slow.longest < 3 * slow.half,
            "{:?} {:?}",
            slow.longest,
            slow.half
        );
    }
}

/// One of half the speed is waited for, and stays.
#[test]
fn one_of_half_the_speed_stays() {
    let mut fast = Loaded::new();
    assert_eq!(fast.run(2 * SECOND, 1), None);
    let mut half = Loaded::new();
    assert_eq!(half.run(2 * SECOND, 20), None);
    let percent = half.acknowledged * 100 / fast.acknowledged;
    assert!((35..65).contains(&percent), "{percent}");
}

/// One of a tenth of the speed is waited for until it is to be removed; then writers are as fast as before.
#[test]
fn one_of_a_tenth_of_the_speed_is_removed() {
    let mut loaded = Loaded::new();
    assert_eq!(loaded.run(SECOND, 1), None);
    let fast = loaded.acknowledged;
    loaded.waits.clear();
    let steps = loaded.run(4 * SECOND, 100).expect("it is removed");
    assert!(
        steps >= SECOND / 2,
        "not before it has been for half a second"
    );
    let slow = (loaded.acknowledged - fast) * SECOND / steps;
    assert!((fast / 16..fast / 6).contains(&slow), "{slow} and {fast}");
    let longest = loaded.waits.iter().max().expect("there are some");
    assert!(*longest <= Duration::from_millis(100), "{longest:?}");

    let alone = changed(&loaded.pair, |of| {
        (of.epoch, of.members) = (Epoch(2), vec![ServerId(0)]);
    });
    for node in &loaded.pair.nodes {
        node.set_map(alone.clone()).expect("newer");
    }
    let _ = loaded.run(SECOND / 4, 100);
    let before = loaded.acknowledged;
    assert_eq!(loaded.run(SECOND, 100), None);
    assert!(loaded.acknowledged - before >= fast);
}
