//! Bulk-loaded pairs and crashes: all of them are there, or none, and nothing is leaked.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::counting::Counting;
use crate::common::{Machine, tiny};
use argosy_base::{Direction, Instant, KeyRange};
use argosy_device::{Crash, OpKind};
use argosy_engine::conformance::Host;
use argosy_engine::{EngineError, Seen, Store, WriteBatch, WriteOptions};
use argosy_lsm::Lsm;
use argosy_lsm::db::bulk_load::Taken;
use argosy_lsm::db::bulk_loader::BulkLoadError;

const PAIRS: u32 = 3000;

fn key(n: u32) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Hands in all pairs, and steps until they are in the levels.
fn bulk_load(
    engine: &Lsm,
    mut step: impl FnMut() -> Result<(), EngineError>,
) -> Result<Taken, BulkLoadError> {
    let mut loader = engine.bulk_loader()?;
    for n in 0..PAIRS {
        loader.add(key(n), n.to_le_bytes().repeat(20))?;
    }
    let ticket = loader.finish()?;
    loop {
        if let Some(taken) = engine.taken(ticket) {
            return Ok(taken);
        }
        step()?;
    }
}

/// A step of `machine`, which may fail.
fn step(machine: &mut Machine, engine: &Lsm) -> Result<(), EngineError> {
    machine.device.run_one();
    machine.try_step(engine).map(drop)
}

fn count(engine: &Lsm) -> u32 {
    let snapshot = engine.snapshot();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    let mut count = 0;
    while let Some((_, value)) = scan.next().unwrap() {
        if value != b"there before" {
            count += 1;
        }
    }
    count
}

/// Versions do not notice bulk-loaded pairs. That a key was not bound when a batch was computed does.
#[test]
fn a_batch_that_saw_no_pair_is_refused_where_one_was_bulk_loaded() {
    let mut machine = Machine::new(tiny(), 256, 9);
    let engine = machine.open();
    let look = |key: &[u8]| engine.get(key).unwrap();
    let (before, key) = (look(&key(5)), key(5));
    let commit = |bound, version| {
        let mut batch = WriteBatch::new();
        batch.put(b"z", b"there before").unwrap();
        let key = &key;
        batch
            .saw(Seen {
                key,
                bound,
                version,
            })
            .unwrap();
        engine
            .write(&batch, WriteOptions::default())
            .unwrap()
            .applied
    };
    assert!(commit(false, before.version));
    let before = look(&key);
    let loaded = bulk_load(&engine, || step(&mut machine, &engine)).unwrap();
    assert!(matches!(loaded, Taken::Done));
    assert!(!commit(false, before.version));
    assert!(commit(true, look(&key).version));
}

/// A write that has looked what its keys are bound to sees pairs that are bulk-loaded before it is written.
#[test]
fn a_write_under_way_sees_what_is_bulk_loaded() {
    let mut machine = Machine::new(tiny(), 256, 9);
    let engine = machine.open();
    let mut batch = WriteBatch::new();
    batch.put(b"z", b"there before").unwrap();
    engine.write(&batch, WriteOptions::default()).unwrap();
    machine.settle(&engine);
    engine.close().unwrap();
    machine.end(engine, Crash::Kill);
    let settings = machine.settings.clone().with(|of| of.cache_bytes = 0);
    let (device, engine) = Counting::open(&mut machine, &settings);
    let engine = Arc::new(engine);
    let (stepped, disk) = (Arc::clone(&engine), Arc::clone(&machine.device));
    // It happens while the second key is looked up, after the first one.
    device.on_read(move || {
        let mut now = 0;
        let step = || {
            disk.run_one();
            now += 1_000_000;
            stepped.step(Instant::from_nanos(now)).map(drop)
        };
        assert!(matches!(bulk_load(&stepped, step).unwrap(), Taken::Done));
    });
    let mut batch = WriteBatch::new();
    batch.put(key(7), b"7").unwrap();
    batch.put(b"z", b"z").unwrap();
    let options = WriteOptions {
        return_previous: true,
        ..WriteOptions::default()
    };
    let written = engine.write(&batch, options).unwrap();
    assert_eq!(written.previous[0], Some(7u32.to_le_bytes().repeat(20)));
    assert_eq!(written.existed, [true, true]);
}

#[test]
fn a_crash_leaves_all_of_it_or_nothing() {
    for crash in [Crash::Kill, Crash::PowerLoss] {
        for op in [OpKind::Write, OpKind::Sync] {
            let (mut all, mut nothing) = (0, 0);
            for at in 0..16 {
                let mut machine = Machine::new(tiny(), 256, at + 1);
                let engine = machine.open();
                let mut batch = WriteBatch::new();
                batch.put(key(7), b"there before").unwrap();
                engine.write(&batch, WriteOptions::default()).unwrap();
                while engine.version_with(engine.last_lsn()).is_none() {
                    machine.step(&engine);
                }
                machine.device.fail_after(op, at);
                let taken = bulk_load(&engine, || step(&mut machine, &engine));
                let done = matches!(taken, Ok(Taken::Done));
                machine.end(engine, crash);
                let engine = machine.open();
                let found = count(&engine);
                assert!(found == PAIRS || !done && found == 0, "{found} {op} {at}");
                *if found == 0 { &mut nothing } else { &mut all } += 1;
                while machine.step(&engine) || engine.background_pending() > 0 {}
                machine.assert_no_leak(&engine);
            }
            assert!(
                all > 0 && nothing > 0,
                "{crash:?}, {op}: {all} and {nothing}"
            );
        }
    }
}

/// Many small bulk loads of keys that are there already, one right after the other.
#[test]
fn many_small_bulk_loads_leave_l1_as_short_as_it_may_be() {
    let settings = tiny();
    let mut machine = Machine::new(settings.clone(), 512, 3);
    let engine = machine.open();
    let taken = bulk_load(&engine, || step(&mut machine, &engine)).unwrap();
    assert!(matches!(taken, Taken::Done), "{taken:?}");
    for round in 0..60u32 {
        let pair = |n| (key(n), round.to_le_bytes().repeat(20));
        let pairs = (0..PAIRS).step_by(30).map(pair).collect();
        crate::common::sorted::bulk_load(&engine, &pairs, || _ = machine.step(&engine));
        let runs = engine.stats().levels.first().map_or(0, |level| level.runs);
        assert!(
            runs <= settings.levels.l1_runs_max,
            "round {round}: {runs} runs"
        );
    }
    assert_eq!(count(&engine), PAIRS);
    for n in (0..PAIRS).step_by(30) {
        let found = engine.get(&key(n)).unwrap();
        assert_eq!(found.value, Some(59u32.to_le_bytes().repeat(20)));
    }
}

/// Who bulk-loads is told where others keep writing into the range, and where the part is taken back; neither leaves
/// anything.
#[test]
fn what_is_given_up_leaves_nothing() {
    let mut machine = Machine::new(tiny(), 512, 4);
    let engine = machine.open();
    while machine.step(&engine) {}
    let hand_in = || {
        let mut loader = engine.bulk_loader().unwrap();
        (0..PAIRS).for_each(|n| loader.add(key(n), b"never there".to_vec()).unwrap());
        loader.finish().unwrap()
    };
    let ticket = hand_in();
    assert!(engine.take_back(ticket) && !engine.take_back(ticket));
    assert!(engine.taken(ticket).is_none());

    let ticket = hand_in();
    let mut batch = WriteBatch::new();
    batch.put(key(7), b"there before").unwrap();
    let taken = loop {
        match engine.taken(ticket) {
            Some(taken) => break taken,
            None => drop(engine.write(&batch, WriteOptions::default())),
        }
        machine.step(&engine);
    };
    assert!(matches!(taken, Taken::Contended), "{taken:?}");
    while machine.step(&engine) || engine.background_pending() > 0 {}
    assert_eq!(count(&engine), 0);
    machine.assert_no_leak(&engine);
}
