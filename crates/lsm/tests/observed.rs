//! An engine that is watched: what it tells, in which order, and what it waits for.
//!
//! The observer writes down what it hears. The tests play the driver: they commit LSNs, acknowledge
//! flushes and edits, and refuse segments, and look at what the engine does without them.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::common::{Machine, tiny};
use argosy_base::{EditSeq, FlushRange, Lsn, SegmentNumber};
use argosy_device::Room;
use argosy_engine::conformance::Host;
use argosy_engine::{
    BusyReason, EditNotice, EngineError, LogEnd, Observer, SealedSegment, Source as _, Store,
    WriteBatch, WriteOptions,
};
use argosy_lsm::names::logs::{LOGS, RECOVERY_LOG};
use argosy_lsm::{Edit, Lsm, Settings};

const SEGMENTS: u64 = 1024;

#[derive(Default)]
struct Heard {
    /// By log: ordinal and byte.
    ends: [(u64, u32); LOGS.len()],
    last: Lsn,
    flushes: Vec<FlushRange>,
    edits: Vec<Edit>,
    segments: BTreeSet<SegmentNumber>,
    refuse: bool,
    refused: usize,
}

#[derive(Default)]
struct Listener(Mutex<Heard>);

impl Listener {
    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.0.lock().unwrap()
    }
}

impl Observer for Listener {
    fn appended(&self, end: LogEnd, last: Lsn) {
        let mut heard = self.heard();
        let at = &mut heard.ends[end.log.index()];
        assert!(*at <= (end.ordinal, end.end), "a log only grows");
        *at = (end.ordinal, end.end);
        assert!(heard.last <= last, "LSNs only rise");
        heard.last = last;
    }

    fn flush(&self, range: FlushRange) {
        let mut heard = self.heard();
        let end = heard.ends[range.log.index()];
        assert!(
            (range.ordinal, range.to) <= end,
            "{range:?} was announced as written before"
        );
        assert!(range.from.is_multiple_of(4096) && range.to.is_multiple_of(4096));
        heard.flushes.push(range);
    }

    fn segment_built(&self, segment: &SealedSegment) -> bool {
        let mut heard = self.heard();
        if heard.refuse {
            heard.refused += 1;
            return false;
        }
        assert!(
            heard.segments.insert(segment.number),
            "offered once it is taken"
        );
        true
    }

    fn edit_committed(&self, edit: &EditNotice) {
        let mut heard = self.heard();
        let bytes = Edit::decode(&edit.bytes).unwrap();
        assert_eq!(bytes.seq, edit.seq);
        if let Some(before) = heard.edits.last() {
            assert_eq!(bytes.seq, before.seq.next(), "edits come without a gap");
        }
        for (_, _, segment) in &bytes.added {
            let moved = bytes
                .removed
                .iter()
                .any(|place| place.number == segment.number);
            let known = heard.segments.contains(&segment.number);
            assert!(moved || known, "{} was shipped first", segment.number);
        }
        heard.edits.push(bytes);
    }
}

/// An engine with an observer, on a machine.
struct Watched {
    machine: Machine,
    engine: Lsm,
    listener: Arc<Listener>,
}

impl Watched {
    fn new(settings: Settings) -> Self {
        let mut machine = Machine::new(settings, SEGMENTS, 3);
        let listener = Arc::new(Listener::default());
        let engine = machine.open_observed(Arc::clone(&listener) as Arc<dyn Observer>);
        Self {
            machine,
            engine,
            listener,
        }
    }

    /// Steps until nothing is done without the driver.
    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 200 {
            let moved = self.machine.device.run_one();
            let made = self.machine.tick(&self.engine).made;
            idle = if moved || made { 0 } else { idle + 1 };
        }
    }

    fn acknowledge_edits(&self) {
        let seq = self
            .listener
            .heard()
            .edits
            .last()
            .map_or(EditSeq(0), |edit| edit.seq);
        self.engine.edit_applied_everywhere(seq);
    }

    /// Settles, with every edit acknowledged.
    fn settle_with_edits(&mut self) {
        for _ in 0..6 {
            self.settle();
            self.acknowledge_edits();
        }
    }

    fn put(&self, key: u64, len: usize) -> Result<Lsn, EngineError> {
        let mut batch = WriteBatch::new();
        batch
            .put(format!("{key:08}").as_bytes(), vec![1; len])
            .unwrap();
        let written = self.engine.write(&batch, WriteOptions::default())?;
        Ok(written.wait.lsn())
    }

    /// Writes until the engine is busy.
    fn fill(&self, len: usize) -> (u64, BusyReason) {
        for key in 0.. {
            match self.put(key, len) {
                Ok(_) => {}
                Err(EngineError::Busy(reason)) => return (key, reason),
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("a bounded engine becomes busy")
    }
}

fn small() -> Settings {
    tiny().with(|of| {
        of.layout.window_slots = 4;
        of.memtables.bytes = 256 << 10;
    })
}

/// A log segment is written to only once every member has the edit that declares it.
#[test]
fn nothing_is_written_before_everybody_has_the_edits() {
    let mut watched = Watched::new(small());
    watched.settle();
    assert!(matches!(
        watched.put(1, 10),
        Err(EngineError::Busy(BusyReason::LogWindows))
    ));
    watched.acknowledge_edits();
    watched.settle();
    assert!(
        watched.put(1, 10).is_err(),
        "numbers come first, then segments"
    );
    watched.settle_with_edits();
    assert_eq!(watched.put(1, 10).unwrap(), Lsn(1));
    assert_eq!(watched.listener.heard().last, Lsn(1), "and is told");
}

/// Windows are used again only once their ranges are durable everywhere, however long this device
/// has had them.
#[test]
fn windows_wait_for_every_member() {
    let mut watched = Watched::new(small());
    watched.settle_with_edits();
    let (_, reason) = watched.fill(100);
    assert_eq!(reason, BusyReason::LogWindows);
    watched.settle_with_edits();
    assert!(watched.put(0, 100).is_err(), "durable here is not enough");
    let ranges = std::mem::take(&mut watched.listener.heard().flushes);
    let recovery: Vec<_> = ranges.iter().filter(|r| r.log == RECOVERY_LOG).collect();
    assert!(recovery.len() >= 4, "{ranges:?}");
    assert_eq!(watched.engine.durable_lsn(), Lsn(0));
    let first = recovery[0];
    watched
        .engine
        .flushed_everywhere(first.log, first.segment, first.to);
    let before = watched.engine.last_lsn();
    assert!(watched.put(0, 100).is_ok(), "one window is free");
    assert!(watched.engine.durable_lsn() > Lsn(0) && watched.engine.durable_lsn() < before);
    for range in &ranges {
        watched
            .engine
            .flushed_everywhere(range.log, range.segment, range.to);
    }
    assert_eq!(
        watched.engine.durable_lsn(),
        before,
        "all but the last write"
    );
}

/// A memtable is flushed only when everything in it is committed, and snapshots see nothing more.
#[test]
fn what_is_not_committed_stays_in_memory() {
    let settings = tiny().with(|of| {
        of.layout.window_slots = 64;
        of.memtables.bytes = 64 << 10;
    });
    let mut watched = Watched::new(settings);
    watched.settle_with_edits();
    let (count, reason) = watched.fill(100);
    assert_eq!(reason, BusyReason::Memtable);
    watched.settle_with_edits();
    assert_eq!(watched.engine.stats().work.flushes, 0);
    assert_eq!(watched.engine.committed_lsn(), Lsn(0));
    assert_eq!(watched.engine.snapshot().lsn(), Lsn(0));
    assert_eq!(watched.engine.snapshot().get(b"00000000").unwrap(), None);
    let found = watched.engine.get(b"00000005").unwrap();
    assert_eq!(
        (found.value.is_some(), found.wait.lsn()),
        (true, Lsn(6)),
        "a reader waits"
    );

    let half = Lsn(count / 2);
    watched.engine.commit(half);
    watched.settle_with_edits();
    let stats = watched.engine.stats();
    assert!(
        stats.work.flushes > 0 && stats.memtables.frozen > 0,
        "{stats:?}"
    );
    let snapshot = watched.engine.snapshot();
    assert_eq!(snapshot.lsn(), half);
    assert!(snapshot.get(b"00000000").unwrap().is_some());
    let behind = format!("{:08}", half.get());
    assert_eq!(
        snapshot.get(behind.as_bytes()).unwrap(),
        None,
        "not committed"
    );
    let replay = watched
        .listener
        .heard()
        .edits
        .iter()
        .filter_map(|e| e.numbers.replay_from)
        .max();
    assert!(
        replay.unwrap() <= half.next(),
        "nothing above the commit LSN leaves the log"
    );
}

/// A finished segment that is refused is offered again, and its edit waits for it.
#[test]
fn a_segment_that_is_refused_holds_the_compaction() {
    let settings = tiny().with(|of| {
        of.layout.window_slots = 64;
        of.memtables.bytes = 64 << 10;
    });
    let mut watched = Watched::new(settings);
    watched.settle_with_edits();
    watched.fill(100);
    watched.listener.heard().refuse = true;
    watched.engine.commit(watched.engine.last_lsn());
    watched.settle_with_edits();
    {
        let heard = watched.listener.heard();
        assert!(heard.refused > 0);
        assert!(heard.edits.iter().all(|edit| edit.added.is_empty()));
    }
    watched.listener.heard().refuse = false;
    watched.settle_with_edits();
    assert!(watched.engine.stats().work.flushes > 0);
    let heard = watched.listener.heard();
    assert!(heard.edits.iter().any(|edit| !edit.added.is_empty()));
}

/// Where little is left, a member may have no room for the outputs of two jobs: one waits for the other.
#[test]
fn with_little_room_jobs_wait_for_the_members() {
    for (free, alone) in [(200, false), (30, true)] {
        let settings = tiny().with(|of| {
            of.layout.window_slots = 64;
            of.memtables.bytes = 64 << 10;
            of.levels.l1_runs = 8;
            of.levels.l1_runs_max = 16;
        });
        let mut watched = Watched::new(settings);
        let room = Room { free, reserve: 20 };
        watched.engine.set_members_room(Some(room));
        watched.settle_with_edits();
        watched.fill(100);
        watched.engine.commit(watched.engine.last_lsn());
        watched.settle();
        let outputs = |heard: &Heard| heard.edits.iter().filter(|e| !e.added.is_empty()).count();
        let began = outputs(&watched.listener.heard());
        assert_eq!(began == 1, alone, "{began} jobs with {room:?}");
        watched.settle_with_edits();
        assert!(outputs(&watched.listener.heard()) > 1);
    }
}

/// Deletes go on while a member is full, and their log takes room there, too. No segment of it is declared once that
/// would take what merges need to empty the member's device.
#[test]
fn the_log_of_deletes_leaves_a_full_member_room_for_merges() {
    for (free, grows) in [(18, true), (9, false)] {
        let mut watched = Watched::new(tiny());
        watched.settle_with_edits();
        let room = Room { free, reserve: 20 };
        watched.engine.set_members_room(Some(room));
        watched.settle_with_edits();
        let declared = |heard: &Heard| {
            let added = heard.edits.iter().flat_map(|edit| &edit.logs.added);
            added.filter(|segment| segment.log == RECOVERY_LOG).count()
        };
        let before = declared(&watched.listener.heard());
        for number in 0..2000_u32 {
            let mut batch = WriteBatch::new();
            batch.delete(format!("{number:0100}").as_bytes()).unwrap();
            let _ = watched.engine.write(&batch, WriteOptions::default());
            watched.engine.commit(watched.engine.last_lsn());
            if number % 20 == 0 {
                watched.settle_with_edits();
            }
        }
        let after = declared(&watched.listener.heard());
        assert_eq!(after > before, grows, "{before} and {after} with {room:?}");
    }
}

/// A group that lies in both logs is announced as a whole: its LSN is named last.
#[test]
fn a_group_over_both_logs_is_announced_once() {
    let mut watched = Watched::new(small());
    watched.settle_with_edits();
    let mut batch = WriteBatch::new();
    batch.put(b"large", [1; 5000]).unwrap();
    batch.put(b"small", b"1").unwrap();
    let written = watched
        .engine
        .write(&batch, WriteOptions::default())
        .unwrap();
    let heard = watched.listener.heard();
    assert_eq!(heard.last, written.wait.lsn());
    assert!(
        heard.ends.iter().all(|end| end.1 > 0),
        "both logs: {:?}",
        heard.ends
    );
    drop(heard);
    let _ = watched.machine.step(&watched.engine);
}
