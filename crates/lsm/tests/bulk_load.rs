//! Sorted pairs that are bulk-loaded in parts, in the background: in order with writes, told once everybody has
//! them, all of a part or nothing after a crash.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Machine, tiny};
use argosy_base::{Direction, EditSeq, FlushRange, KeyRange};
use argosy_device::{Crash, OpKind};
use argosy_engine::conformance::Host;
use argosy_engine::{
    BusyReason, EditNotice, EngineError, LogEnd, Observer, SealedSegment, Source as _, Store,
    WriteBatch, WriteOptions,
};
use argosy_lsm::db::bulk_load::{Taken, Ticket, WAITING_BYTES_MAX};
use argosy_lsm::db::bulk_loader::BulkLoadError;
use argosy_lsm::{Lsm, Settings};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn key(n: u32) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

fn pairs(numbers: std::ops::Range<u32>) -> Pairs {
    let pair = |n: u32| (key(n), n.to_le_bytes().repeat(20));
    numbers.map(pair).collect()
}

fn all(engine: &Lsm) -> Pairs {
    let snapshot = engine.snapshot();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    let mut pairs = Vec::new();
    while let Some(pair) = scan.next().unwrap() {
        pairs.push(pair);
    }
    pairs
}

fn put(engine: &Lsm, n: u32) -> Result<(), EngineError> {
    let mut batch = WriteBatch::new();
    batch.put(key(n), b"put").unwrap();
    engine.write(&batch, WriteOptions::default()).map(|_| ())
}

fn delete(engine: &Lsm, n: u32) {
    let mut batch = WriteBatch::new();
    batch.delete(key(n)).unwrap();
    engine.write(&batch, WriteOptions::default()).unwrap();
}

const DONE: &str = "done";
const NOT_EMPTY: &str = "not empty";

/// What has become of parts, in a word, or the error.
fn ends(engine: &Lsm) -> Vec<(Ticket, String)> {
    let word = |taken| match taken {
        Taken::Done => DONE.to_owned(),
        Taken::NotEmpty => NOT_EMPTY.to_owned(),
        Taken::Contended => "contended".to_owned(),
        Taken::Full => "full".to_owned(),
        Taken::Unreadable(error) => error.to_string(),
    };
    let ended = engine.bulk_loads_ended().into_iter();
    ended.map(|(ticket, taken)| (ticket, word(taken))).collect()
}

/// Steps until every part has come to an end.
fn told(machine: &mut Machine, engine: &Lsm, parts: usize) -> Vec<(Ticket, String)> {
    let mut told = Vec::new();
    for _ in 0..100_000 {
        told.extend(ends(engine));
        if told.len() >= parts {
            return told;
        }
        machine.step(engine);
    }
    panic!("of {parts} parts only {told:?} were told");
}

#[test]
fn parts_that_wait_together_are_bulk_loaded_together_without_a_log() {
    let mut machine = Machine::new(tiny(), 256, 1);
    let engine = machine.open();
    while machine.step(&engine) {}
    let before = engine.stats();
    let tickets: Vec<_> = (0..8)
        .map(|part| engine.bulk_load(pairs(part * 100..part * 100 + 100)))
        .collect::<Result<_, _>>()
        .unwrap();
    let told = told(&mut machine, &engine, 8);
    let done = tickets.into_iter().map(|ticket| (ticket, DONE.to_owned()));
    assert_eq!(told, done.collect::<Vec<_>>());
    assert_eq!(all(&engine), pairs(0..800));
    let after = engine.stats();
    assert_eq!(
        after.log_work.recovery_write_bytes,
        before.log_work.recovery_write_bytes
    );
    assert_eq!((after.work.flushes, after.work.compactions), (0, 0));
    let version = engine.version();
    assert_eq!(version.deepest(), 2);
    assert!(version.level(1).is_none_or(|level| level.runs.is_empty()));
    assert!(engine.bulk_loads_ended().is_empty(), "each is told once");
    let held = engine.version().memory_bytes() as u64;
    assert_eq!(after.cache.charged_bytes, held);
}

#[test]
fn a_part_whose_range_is_bound_is_refused_and_the_next_is_not() {
    let mut machine = Machine::new(tiny(), 256, 2);
    let engine = machine.open();
    while machine.step(&engine) {}
    for n in [50, 150, 250] {
        put(&engine, n).unwrap();
    }
    delete(&engine, 150);
    let first = engine.bulk_load(pairs(0..100)).unwrap();
    // A tombstone in a memtable is flushed first.
    let second = engine.bulk_load(pairs(100..200)).unwrap();
    // Behind the key that is there.
    let third = engine.bulk_load(pairs(251..300)).unwrap();
    let told = told(&mut machine, &engine, 3);
    assert_eq!(
        told,
        [
            (first, NOT_EMPTY.to_owned()),
            (second, DONE.to_owned()),
            (third, DONE.to_owned())
        ]
    );
    assert_eq!(engine.stats().work.flushes, 1);
    let numbers = [50].into_iter().chain(100..200).chain(250..300);
    let found = all(&engine);
    assert_eq!(
        found.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
        numbers.map(key).collect::<Vec<_>>()
    );
}

/// A part that goes over damaged bytes is refused; the region goes on.
#[test]
fn a_part_whose_range_cannot_be_read_is_refused_and_the_next_is_not() {
    let settings = tiny().with(|of| of.cache_bytes = 0);
    let mut machine = Machine::new(settings, 256, 4);
    let engine = machine.open();
    for n in (0..100).chain(200..300) {
        put(&engine, n).unwrap();
    }
    machine.settle(&engine);
    for (_, run) in engine.version().runs() {
        for entry in &run.segments {
            (0..entry.segment.len / 512).for_each(|node| {
                machine
                    .device
                    .flip_bit(entry.stored.place().start() + u64::from(node * 512 + 20), 1)
            });
        }
    }
    let over = engine.bulk_load(pairs(120..130)).unwrap();
    let behind = engine.bulk_load(pairs(400..500)).unwrap();
    let told = told(&mut machine, &engine, 2);
    let (ticket, why) = &told[0];
    assert!(*ticket == over && why.starts_with("segment "), "{told:?}");
    assert_eq!(told[1], (behind, DONE.to_owned()));
    put(&engine, 1000).unwrap();
    // What is charged is the version behind all edits that are on their way.
    machine.settle(&engine);
    let held = engine.version().memory_bytes() as u64;
    assert_eq!(engine.stats().cache.charged_bytes, held);
}

#[test]
fn what_is_no_sorted_part_is_refused_at_once() {
    let mut machine = Machine::new(tiny(), 256, 3);
    let engine = machine.open();
    let refused = |pairs: Pairs| engine.bulk_load(pairs).unwrap_err();
    assert!(matches!(refused(Vec::new()), BulkLoadError::Nothing));
    let twice = vec![pairs(1..2).remove(0), pairs(1..2).remove(0)];
    assert!(matches!(refused(twice), BulkLoadError::Unsorted(1)));
    let long = vec![(key(1), vec![0; 40 << 10])];
    assert!(matches!(
        refused(long),
        BulkLoadError::TooLong { pair: 0, .. }
    ));
    assert!(matches!(
        refused(vec![(Vec::new(), Vec::new())]),
        BulkLoadError::Key(_)
    ));
    let reserved = vec![(vec![0xff; 9], Vec::new())];
    assert!(matches!(refused(reserved), BulkLoadError::Key(_)));
    let part = || (0..500).map(|n| (key(n), vec![0; 4000])).collect::<Pairs>();
    let first = engine.bulk_load(part()).unwrap();
    // They are in the budget: the cache gives way to them.
    let held = || engine.version().memory_bytes() as u64;
    let charged = || engine.stats().cache.charged_bytes - held();
    let one = charged();
    assert!(one > 500 * 4000 && one < 500 * 5000, "{one}");
    for _ in 1..WAITING_BYTES_MAX as u64 / one {
        engine.bulk_load(part()).unwrap();
    }
    let all = charged();
    assert!(engine.memory().buffers >= all && all <= WAITING_BYTES_MAX as u64);
    let full = refused(part());
    let busy = matches!(
        full,
        BulkLoadError::Engine(EngineError::Busy(BusyReason::BulkLoad))
    );
    assert!(busy, "{full}");
    assert_eq!(charged(), all, "what is refused takes nothing");
    assert!(engine.take_back(first) && !engine.take_back(first));
    assert_eq!(charged(), all - one);
    assert!(engine.bulk_load(part()).is_ok());
}

/// A driver of other copies that can be made to take no segments.
#[derive(Default)]
struct Listener {
    refuses: AtomicBool,
    last: Mutex<EditSeq>,
}

impl Observer for Listener {
    fn appended(&self, _: LogEnd, _: argosy_base::Lsn) {}
    fn flush(&self, _: FlushRange) {}
    fn segment_built(&self, _: &SealedSegment) -> bool {
        !self.refuses.load(Ordering::Relaxed)
    }
    fn edit_committed(&self, edit: &EditNotice) {
        *self.last.lock().unwrap() = edit.seq;
    }
}

#[test]
fn writes_into_the_range_wait_and_a_part_is_told_once_everybody_has_it() {
    let mut machine = Machine::new(tiny(), 256, 4);
    let listener = Arc::new(Listener::default());
    let engine = machine.open_observed(Arc::clone(&listener) as Arc<dyn Observer>);
    let acknowledge = || engine.edit_applied_everywhere(*listener.last.lock().unwrap());
    for _ in 0..1000 {
        machine.step(&engine);
        acknowledge();
    }
    listener.refuses.store(true, Ordering::Relaxed);
    let ticket = engine.bulk_load(pairs(100..200)).unwrap();
    for _ in 0..1000 {
        machine.step(&engine);
    }
    assert!(all(&engine).is_empty() && !engine.take_back(ticket));
    let waits = |n| {
        matches!(
            put(&engine, n),
            Err(EngineError::Busy(BusyReason::BulkLoad))
        )
    };
    assert!(waits(100) && waits(199));
    assert!(put(&engine, 99).is_ok() && put(&engine, 200).is_ok());

    listener.refuses.store(false, Ordering::Relaxed);
    for _ in 0..1000 {
        machine.step(&engine);
    }
    let shown = engine.get(&key(150)).unwrap().value.is_some();
    assert!(
        shown && put(&engine, 100).is_ok(),
        "its edit is durable here"
    );
    assert!(engine.bulk_loads_ended().is_empty(), "and not everywhere");
    acknowledge();
    assert_eq!(ends(&engine), [(ticket, DONE.to_owned())]);
}

#[test]
fn a_crash_leaves_all_of_a_part_or_nothing() {
    for crash in [Crash::Kill, Crash::PowerLoss] {
        for op in [OpKind::Write, OpKind::Sync] {
            let (mut some, mut nothing) = (0, 0);
            for at in 0..12 {
                let mut machine = Machine::new(tiny(), 256, at + 1);
                let engine = machine.open();
                while machine.step(&engine) {}
                machine.device.fail_after(op, at);
                engine.bulk_load(pairs(0..700)).unwrap();
                engine.bulk_load(pairs(700..1000)).unwrap();
                let mut done = Vec::new();
                for _ in 0..2000 {
                    let _ = machine.try_step(&engine);
                    machine.device.run_one();
                    done.extend(engine.bulk_loads_ended());
                }
                machine.end(engine, crash);
                let engine = machine.open();
                let found = all(&engine).len();
                assert!([0, 700, 1000].contains(&found), "{found} {op} {at}");
                assert!(done.len() < 2 || found == 1000, "{found} {op} {at}");
                *if found == 0 { &mut nothing } else { &mut some } += 1;
                while machine.step(&engine) || engine.background_pending() > 0 {}
                machine.assert_no_leak(&engine);
            }
            assert!(
                some > 0 && nothing > 0,
                "{crash:?}, {op}: {some} and {nothing}"
            );
        }
    }
}

/// Steps within which a flush of some KiB and a merge of as many end, whatever else is done in turns with them.
const STEPS_MAX: u32 = 400;

/// Hands in a small part with a range of its own ahead of every step, and returns whether a flush and a merge that
/// are due end all the same.
fn flush_and_merge_end(settings: Settings, hand_in: impl Fn(&Lsm, Pairs)) -> bool {
    let mut machine = Machine::new(settings, 1024, 5);
    let engine = machine.open();
    let runs = || {
        engine
            .version()
            .level(1)
            .map_or(0, |level| level.runs.len())
    };
    for flush in [true, false] {
        (0..300).for_each(|n| put(&engine, 900_000 + n).unwrap());
        engine.freeze_now();
        while flush && engine.version_with(engine.last_lsn()).is_none() {
            machine.step(&engine);
        }
    }
    assert_eq!(runs(), 1, "the second run makes a merge due");
    let mut is_flushed = false;
    (0..STEPS_MAX).any(|step| {
        hand_in(&engine, pairs(step * 10..step * 10 + 5));
        machine.step(&engine);
        is_flushed |= engine.version_with(engine.last_lsn()).is_some();
        is_flushed && runs() < 2
    })
}

#[test]
fn many_small_bulk_loads_do_not_keep_a_flush_or_a_merge_from_ending() {
    let part = |engine: &Lsm, pairs| _ = engine.bulk_load(pairs).unwrap();
    let built = |engine: &Lsm, pairs: Pairs| {
        let mut loader = engine.bulk_loader().unwrap();
        for (key, value) in pairs {
            loader.add(key, value).unwrap();
        }
        _ = loader.finish().unwrap();
    };
    assert!(flush_and_merge_end(tiny(), part));
    assert!(flush_and_merge_end(tiny(), built));
    let mut mistaken = tiny();
    mistaken.mutants.bulk_load_gives_up = true;
    assert!(!flush_and_merge_end(mistaken.clone(), part));
    assert!(!flush_and_merge_end(mistaken, built));
}
