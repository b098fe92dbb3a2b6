//! What was confirmed as flushed and is damaged afterwards: it is never taken for what was not written, whichever
//! record it is and whatever became of the windows.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::ops::Range;
use std::sync::Arc;

use crate::common::blocks::{blocks, bytes_at};
use crate::common::judge::{Pairs, Verdict, judge, problems};
use crate::common::{Machine, REGION, tiny};
use argosy_base::Lsn;
use argosy_device::{Crash, Device, MemoryDevice, Store, StoreSettings};
use argosy_engine::conformance::Host;
use argosy_engine::{Store as _, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Mutants, Settings};
use argosy_memory::AnonymousWindows;

/// More steps than a flush interval has.
const INTERVAL_STEPS: usize = 60;

/// Bytes of a mark's block.
const MARK_BYTES: u64 = 4096;

/// How a flush is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmed {
    /// By who asks for it, as `KV.FLUSH` and `Db::flush` do.
    Asked,
    /// By time: after it two intervals pass in which nothing is written.
    Idle,
}

fn settings(forget_mark: bool) -> Settings {
    tiny().with(|of| {
        of.mutants = Mutants {
            forget_mark,
            ..Mutants::default()
        }
    })
}

fn put(engine: &Lsm, model: &mut Pairs, number: usize) {
    // Every third goes to the large log.
    let len = if number.is_multiple_of(3) { 1200 } else { 30 };
    let value = vec![u8::try_from(number % 250).unwrap() | 1; len];
    let key = format!("key {number:03}").into_bytes();
    let mut batch = WriteBatch::new();
    batch.put(&key, &value).unwrap();
    engine.write(&batch, WriteOptions::default()).unwrap();
    model.insert(key, value);
}

fn steps(machine: &mut Machine, engine: &Lsm, count: usize) {
    for _ in 0..count {
        while machine.device.run_one() {}
        machine.tick(engine);
    }
}

fn confirm(machine: &mut Machine, engine: &Lsm, how: Confirmed) {
    let last = engine.last_lsn();
    match how {
        Confirmed::Asked => {
            engine.flush_and_mark();
            while engine.marked_lsn() < last {
                machine.step(engine);
            }
        }
        Confirmed::Idle => steps(machine, engine, 3 * INTERVAL_STEPS),
    }
    assert!(engine.durable_lsn() >= last);
}

/// A device that lost power behind three flushes, and what they confirmed.
struct Stopped {
    settings: Settings,
    device: Arc<MemoryDevice>,
    model: Pairs,
    last: Lsn,
}

fn stopped(forget_mark: bool, how: Confirmed) -> Stopped {
    let settings = settings(forget_mark);
    let mut machine = Machine::new(settings.clone(), 256, 1);
    let engine = machine.open();
    let mut model = Pairs::new();
    for batch in 0..3 {
        (batch * 7..batch * 7 + 7).for_each(|number| put(&engine, &mut model, number));
        confirm(&mut machine, &engine, how);
    }
    let last = engine.last_lsn();
    machine.end(engine, Crash::PowerLoss);
    Stopped {
        settings,
        device: machine.device,
        model,
        last,
    }
}

/// Where the records of both logs lie on the device.
fn records(stopped: &Stopped) -> Vec<Range<u64>> {
    let blocks = blocks(&stopped.device, &stopped.settings);
    let logs = ["record of the recovery log", "record of the large log"];
    logs.iter().flat_map(|log| blocks[log].clone()).collect()
}

/// The device with one bit flipped in `record`, or all of it zero.
fn hurt(stopped: &Stopped, record: &Range<u64>, zero: bool) -> Arc<MemoryDevice> {
    let device = stopped.device.crash_clone(Crash::Kill, 1);
    if !zero {
        device.flip_bit(record.start.midpoint(record.end), 3);
        return Arc::new(device);
    }
    let bytes = bytes_at(&device, record.start, record.end - record.start);
    for (at, byte) in (record.start..).zip(bytes) {
        let set = (0..8).filter(|bit| byte & 1 << bit != 0);
        set.for_each(|bit| device.flip_bit(at, bit));
    }
    Arc::new(device)
}

/// The engine on `device`, without windows; `None` where it is refused.
fn open(device: &Arc<MemoryDevice>, settings: &Settings) -> Option<Lsm> {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    Lsm::open(&store, REGION, &AnonymousWindows::new(), settings, None).ok()
}

/// The last LSN of what is found on `device`; `None` where it is refused.
fn found(device: &Arc<MemoryDevice>, settings: &Settings) -> Option<Lsn> {
    open(device, settings).map(|engine| engine.last_lsn())
}

#[test]
fn a_damaged_record_of_a_confirmed_flush_is_never_the_end_of_the_history() {
    for how in [Confirmed::Asked, Confirmed::Idle] {
        let stopped = stopped(false, how);
        assert_eq!(
            found(&stopped.device, &stopped.settings),
            Some(stopped.last)
        );
        let records = records(&stopped);
        assert_eq!(records.len(), 21, "all that was written");
        for record in &records {
            for zero in [false, true] {
                let what = format!("{how:?}, {record:?}, zero: {zero}");
                let device = hurt(&stopped, record, zero);
                let told = problems(&device, &stopped.settings);
                assert!(!told.is_empty(), "{what}: verify finds nothing");
                let expected = |lsn: Lsn| {
                    assert_eq!(lsn, stopped.last, "{what}: what was confirmed is gone");
                    stopped.model.clone()
                };
                let none = AnonymousWindows::new();
                let verdict = judge(&device, &none, &stopped.settings, &expected, &what);
                assert!(
                    matches!(verdict, Verdict::Refused(_)),
                    "{what}: {verdict:?}"
                );
            }
        }
    }
}

/// Without marks the test above would fail.
#[test]
fn a_forgotten_mark_is_found() {
    for how in [Confirmed::Asked, Confirmed::Idle] {
        let stopped = stopped(true, how);
        let records = records(&stopped);
        let lost = records.iter().filter(|record| {
            let last = found(&hurt(&stopped, record, false), &stopped.settings);
            last.is_some_and(|last| last < stopped.last)
        });
        assert_eq!(lost.count(), 7, "{how:?}: the last flush is forgotten");
    }
}

#[test]
fn a_log_that_goes_idle_ends_in_one_mark() {
    let mut machine = Machine::new(settings(false), 256, 1);
    let engine = machine.open();
    let mut model = Pairs::new();
    steps(&mut machine, &engine, 2 * INTERVAL_STEPS);
    assert_eq!(engine.stats().log_work.marks, 0, "nothing was written");
    let (mut next, mut marks) = (0, 0);
    for _ in 0..3 {
        // Under load there is none: each flush tells of the one before.
        for _ in 0..2 * INTERVAL_STEPS {
            put(&engine, &mut model, 3 * next + 1);
            next += 1;
            steps(&mut machine, &engine, 1);
        }
        assert_eq!(engine.stats().log_work.marks, marks);
        // What is left is flushed within one interval, and marked within another.
        while engine.durable_lsn() < engine.last_lsn() {
            steps(&mut machine, &engine, 1);
        }
        let (flushed, before) = (engine.stats(), machine.device.counters());
        steps(&mut machine, &engine, 2 * INTERVAL_STEPS);
        let after = machine.device.counters();
        marks += 1;
        assert_eq!(
            engine.stats().log_work.marks,
            marks,
            "of the log that was written"
        );
        assert_eq!(
            engine.stats().log_work.write_bytes - flushed.log_work.write_bytes,
            MARK_BYTES
        );
        assert_eq!(after.syncs - before.syncs, 1);
        assert_eq!(after.write_bytes - before.write_bytes, MARK_BYTES);
        assert_eq!(engine.marked_lsn(), engine.last_lsn());
        // And once it is there, nothing is written, and a flush is answered at once.
        steps(&mut machine, &engine, 5 * INTERVAL_STEPS);
        engine.flush_and_mark();
        assert_eq!(engine.marked_lsn(), engine.last_lsn());
        steps(&mut machine, &engine, 5);
        assert_eq!(machine.device.counters(), after);
    }
    assert!(marks == 3 && next > 300);
}

/// Sync writes are answered by their own sync: marks go with the next one.
#[test]
fn flushes_without_a_mark_cost_no_mark() {
    let mut machine = Machine::new(settings(false), 256, 1);
    let engine = machine.open();
    let mut model = Pairs::new();
    for number in 0..50 {
        put(&engine, &mut model, 3 * number + 1);
        engine.flush_now();
        while engine.durable_lsn() < engine.last_lsn() {
            machine.step(&engine);
        }
        let behind = engine.last_lsn().0 - engine.marked_lsn().0;
        assert!(
            behind <= 1,
            "the next flush tells of the last one: {behind}"
        );
    }
    assert_eq!(engine.stats().log_work.marks, 0);
    // Asked for, it comes once, however many ask.
    for _ in 0..3 {
        engine.flush_and_mark();
        steps(&mut machine, &engine, 3);
    }
    assert_eq!(engine.stats().log_work.marks, 1);
    assert_eq!(engine.marked_lsn(), engine.last_lsn());
}

/// Marks that begin segments or end them are in nobody's way: segments are sealed, logs read again.
#[test]
fn marks_at_any_place_of_a_segment_are_passed_over() {
    let mut machine = Machine::new(settings(false), 256, 3);
    let mut engine = machine.open();
    let mut model = Pairs::new();
    for number in 0..300 {
        put(&engine, &mut model, number);
        if number.is_multiple_of(2) {
            confirm(&mut machine, &engine, Confirmed::Asked);
        }
        if number % 50 == 49 {
            let crash = [Crash::PowerLoss, Crash::Kill][number / 50 % 2];
            confirm(&mut machine, &engine, Confirmed::Asked);
            machine.end(engine, crash);
            engine = machine.open();
        }
    }
    assert_eq!(problems(&machine.device, &machine.settings), [""; 0]);
    for (key, value) in &model {
        assert_eq!(engine.get(key).unwrap().value.as_ref(), Some(value));
    }
    engine.close().unwrap();
}
