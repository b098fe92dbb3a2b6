//! What planted mistakes of a node do that no seed of the simulator shows. Each story is told twice, without the
//! mistake and with it, and ends well only without.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Outcome, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::{Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::SimSettings;

use super::copies_tests::{Pair, REGIONS, settings};
use super::readers_tests::{Answers, set_clock};
use super::region::engine_of;
use super::{Mutants, NodeSettings, bad_wire};
use crate::service::{Failure, ReplySink, ReplyTo, Request, Response, Service};

impl Pair {
    /// Lets so much time pass, in which the first server does nothing.
    fn run_second(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now + Duration::from_millis(1);
            self.world.step(self.now);
            set_clock(self.now.as_nanos());
            self.nodes[1].step_fabric(self.now);
            self.nodes[1].step_background(self.now);
        }
    }

    /// What `server` answers. A millisecond passes at each `step`.
    pub(super) fn ask(
        &mut self,
        server: usize,
        request: Request<'_>,
        step: fn(&mut Self),
    ) -> Response {
        let told = Arc::<Answers>::default();
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&told);
        if let Some(now) = self.nodes[server]
            .call(request, Reach::Device, ReplyTo::new(&sink, 1))
            .answered()
        {
            return now;
        }
        self.nodes[server].flush();
        for _ in 0..3000 {
            step(self);
            if let Some((_, later)) = told.0.lock().pop() {
                return later;
            }
        }
        panic!("no answer in three seconds")
    }

    /// Whether `key` is bound, as its region's primary says.
    fn is_bound(&mut self, key: &[u8]) -> bool {
        let answer = self.ask(0, Request::Get { key }, |pair| pair.run(1));
        matches!(answer, Response::Value(Some(_)))
    }

    /// How many of the pairs can be read that [`put`](Self::put) wrote into the first region under these keys.
    fn readable(&mut self, keys: Range<u64>) -> usize {
        let pairs = keys.flat_map(|key| (0..4).map(move |part| format!("a{key:08}{part}")));
        pairs.filter(|key| self.is_bound(key.as_bytes())).count()
    }
}

pub(super) fn write_of(key: &[u8], bytes: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, vec![b'v'; bytes]).expect("it is short");
    batch
}

/// A killed primary has begun to write to its backup, and these bytes take long. Its next process is acknowledged 24
/// writes, whose records have the same places in the same window. The late bytes land, and then the primary loses
/// all that it has. Returns how many of the 96 pairs the backup had.
fn left_after_late_bytes(mutants: Mutants) -> usize {
    let fabric = SimSettings {
        linger_max: Duration::from_secs(2),
        ..SimSettings::default()
    };
    let mut pair = Pair::new(fabric, mutants);
    pair.open();
    // The backup's windows are awake from here on.
    pair.put(0, 99);
    pair.run(5);
    for key in 0..12 {
        pair.put(0, key);
    }
    pair.restart(0);
    pair.open();
    pair.acknowledged();
    for key in 100..124 {
        pair.put(0, key);
        pair.step_fabric();
    }
    // The background has no turn, so that nothing is flushed.
    for _ in 0..200 {
        pair.step_fabric();
    }
    assert_eq!(pair.acknowledged(), (24, 24));
    for _ in 0..8000 {
        pair.step_fabric();
    }
    pair.replace(0);
    pair.open();
    pair.readable(100..124)
}

/// A backup that reports takes its windows back first: whoever wrote to them before writes to them no more.
#[test]
fn late_bytes_of_a_killed_primary_harm_nothing() {
    assert_eq!(left_after_late_bytes(Mutants::default()), 96);
    let mutants = Mutants {
        keep_grant: true,
        ..Mutants::default()
    };
    let left = left_after_late_bytes(mutants);
    assert!(left < 96, "all that was acknowledged is there");
}

/// A backup reports anew, which grants its windows anew, and four pairs are written. Returns how many writes were
/// acknowledged, and whether connections were refused.
fn written_under_a_later_grant(mutants: Mutants) -> (usize, bool) {
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    pair.put(0, 1);
    pair.run(20);
    assert_eq!(pair.acknowledged(), (1, 1));
    let before = pair.world.counters().connections.refused;
    pair.prepare_anew();
    pair.put(0, 2);
    pair.run(50);
    let refused = pair.world.counters().connections.refused - before;
    (pair.acknowledged().0, refused > 0)
}

/// An attempt to connect is for the grant that was reported last: those of earlier reports are over.
#[test]
fn a_backup_is_written_to_under_its_last_grant() {
    let usual = Mutants::default();
    assert_eq!(written_under_a_later_grant(usual), (1, false));
    let mutants = Mutants {
        use_earlier_grant: true,
        ..usual
    };
    assert_eq!(written_under_a_later_grant(mutants), (0, true));
}

/// A bit flips in a segment on its way to the backup. Then the primary loses all that it has. Returns how often the
/// link broke for the segment, and how many of the 160 pairs in it the backup had.
fn left_after_a_flipped_bit(mutants: Mutants) -> (u64, usize) {
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    for key in 0..40 {
        pair.put(0, key);
        pair.run(1);
    }
    bad_wire::damage(1);
    let engine = engine_of(pair.nodes[0].region(REGIONS[0]).expect("a member"));
    assert!(engine.expect("it is open").freeze_now());
    pair.run(1000);
    assert_eq!(bad_wire::to_damage(), 0, "a segment was shipped");
    pair.open();
    let broken = pair.nodes[0].inspect().counts().links_lost;
    pair.replace(0);
    pair.run(3000);
    (broken, pair.readable(0..40))
}

/// What was shipped is checked before it is stored: a backup that stored it as it came would say that it has what
/// nobody can read.
#[test]
fn a_segment_that_was_damaged_on_its_way_is_fetched_anew() {
    assert_eq!(left_after_a_flipped_bit(Mutants::default()), (1, 160));
    let mutants = Mutants {
        trust_shipments: true,
        ..Mutants::default()
    };
    let told = left_after_a_flipped_bit(mutants);
    assert_eq!(told, (0, 0), "nobody notices, until nothing can be read");
}

/// A primary does nothing for a while. The other server is asked to write two keys there: before it can know that, and
/// when it knows. Returns which of them are bound once the primary has gone on.
fn bound_after_a_stop(mutants: Mutants) -> [bool; 2] {
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    pair.world.stop(ServerId(0));
    let told: [(&[u8], Outcome); 2] = [
        (b"a before", Outcome::Unknown),
        (b"a after", Outcome::NotApplied),
    ];
    for (key, known) in told {
        let batch = write_of(key, 100);
        let options = WriteOptions::default();
        let request = Request::Write {
            batch: &batch,
            options,
        };
        let answer = pair.ask(1, request, |pair| pair.run_second(1));
        let Response::Failed(Failure::Unavailable { outcome, .. }) = answer else {
            panic!("nobody can have done it: {answer:?}");
        };
        assert_eq!(outcome, known);
        pair.run_second(2500);
    }
    pair.world.resume(ServerId(0));
    pair.run(200);
    assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);
    told.map(|(key, _)| pair.is_bound(key))
}

/// Who is told that nothing was applied can rely on it: what lies in the primary's memory is carried out one day.
#[test]
fn what_is_refused_was_not_sent() {
    assert_eq!(bound_after_a_stop(Mutants::default()), [true, false]);
    let mutants = Mutants {
        refuse_what_was_sent: true,
        ..Mutants::default()
    };
    assert_eq!(bound_after_a_stop(mutants), [true, true]);
}

/// A backup loses power when all members have flushed a window of the recovery log, and not the large value before it:
/// its log ends in front of that, and it has to be caught up with what all had. Returns how often the link to it broke
/// once it was back, how many checkpoints it was offered, and how many of 40 more writes were acknowledged.
fn after_losing_what_was_flushed(mutants: argosy_replication::Mutants) -> (u64, u64, usize) {
    let usual = settings(Mutants::default());
    let engine = argosy_lsm::Settings::default().with(|of| {
        of.memtables.bytes = 4 << 20;
        of.memtables.count_max = 2;
        of.cache_bytes = 0;
        of.layout.window_bytes = 16 << 10;
        of.layout.window_slots = 2;
    });
    let settings = NodeSettings {
        engine: Arc::new(engine),
        replication_mutants: mutants,
        ..usual
    };
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), settings);
    pair.open();
    let batch = write_of(b"a large one", 2000);
    let options = WriteOptions::default();
    let request = Request::Write {
        batch: &batch,
        options,
    };
    let answer = pair.ask(0, request, |pair| pair.run(1));
    assert!(matches!(answer, Response::Written { .. }), "{answer:?}");
    for key in 0..20 {
        pair.put(0, key);
        pair.run(1);
    }
    pair.run(30);
    pair.windows[1] = Arc::default();
    pair.restart(1);
    let before = pair.nodes[0].inspect().counts().offers;
    pair.open();
    pair.acknowledged();
    let back = pair.nodes[0].inspect().counts();
    for key in 20..60 {
        pair.put(0, key);
        pair.run(1);
    }
    pair.run(200);
    let broken = pair.nodes[0].inspect().counts().links_lost - back.links_lost;
    (broken, back.offers - before, pair.acknowledged().0)
}

/// What every member had durable is not flushed again, and its window is used for something else. A member whose log
/// ends before that is caught up first. It could not follow a later flush otherwise: that begins where its log is
/// durable, in a window that it has no more.
#[test]
fn a_member_fetches_what_all_others_have_flushed() {
    let usual = argosy_replication::Mutants::default();
    assert_eq!(after_losing_what_was_flushed(usual), (0, 1, 40));
    let mutants = argosy_replication::Mutants {
        lacks_nothing: true,
        ..usual
    };
    let (broken, offered, _) = after_losing_what_was_flushed(mutants);
    assert_eq!(offered, 0, "it seems to lack nothing");
    assert!(broken > 0, "it followed every flush");
}
