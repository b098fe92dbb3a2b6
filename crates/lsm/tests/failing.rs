//! A device that fails: after the first write or sync that does, nothing is written any more, writers are
//! told that nothing of theirs was applied, and reads go on. What was acknowledged is there when the store
//! is opened again. A file system without room is no failure: writes are taken again when it has some.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Machine, tiny, tiny_whole};
use argosy_base::{Epoch, Instant, Outcome, RegionId, SEGMENT_SIZE};
use argosy_device::{Crash, Device, FormatOptions, MemoryDevice, OpKind, Store, StoreSettings};
use argosy_engine::conformance::Host;
use argosy_engine::{BusyReason, EngineError, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::cache::NodeCache;
use argosy_lsm::db::promote::{fresh_windows, survivors};
use argosy_lsm::{Lsm, Replica, Service, Settings};
use argosy_memory::AnonymousWindows;

const SEGMENTS: u64 = 128;
const ROUNDS: u64 = 700;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pair `number` of a history with pairs of all sizes.
fn pair(number: u64) -> (Vec<u8>, Vec<u8>) {
    let len = [20, 150, 400, 2500][usize::try_from(number % 4).unwrap()];
    let mut value = format!("{number}-").into_bytes();
    value.resize(len, b'v');
    (format!("{:06}", number * 7919 % 500).into_bytes(), value)
}

fn put(engine: &Lsm, number: u64, model: &mut Model) -> Result<(), EngineError> {
    let (key, value) = pair(number);
    let mut batch = WriteBatch::new();
    batch.put(&key, &value).unwrap();
    engine.write(&batch, WriteOptions::default())?;
    model.insert(key, value);
    Ok(())
}

fn assert_holds(engine: &Lsm, model: &Model, what: &str) {
    for (key, value) in model {
        let found = engine.get(key).unwrap().value;
        assert!(
            found.as_ref() == Some(value),
            "{what}: {}",
            key.escape_ascii()
        );
    }
}

/// Runs the history until a step fails. The error, if one did.
fn run(machine: &mut Machine, engine: &Lsm, model: &mut Model) -> Option<EngineError> {
    for number in 0..ROUNDS {
        loop {
            match put(engine, number, model) {
                Ok(()) => break,
                Err(EngineError::Busy(_)) => {}
                Err(error) => panic!("a write met {error}"),
            }
            machine.device.run_one();
            if let Err(error) = machine.try_step(engine) {
                return Some(error);
            }
        }
        machine.device.run_one();
        if let Err(error) = machine.try_step(engine) {
            return Some(error);
        }
    }
    None
}

/// Whichever request fails first, of logs, levels, manifest and catalog alike.
#[test]
fn the_first_failure_ends_all_writing() {
    for settings in [tiny(), tiny_whole()] {
        for op in [OpKind::Write, OpKind::Sync] {
            let mut failures = 0;
            for count in (0..60).chain((60..600).step_by(17)) {
                failures += u32::from(fails(&settings, op, count));
            }
            assert!(failures > 60, "{op}: {failures}");
        }
    }
}

/// Whether the history was long enough to meet the failure.
fn fails(settings: &Settings, op: OpKind, count: u64) -> bool {
    let what = format!("{op} {count} fails");
    let mut machine = Machine::new(settings.clone(), SEGMENTS, count);
    let engine = machine.open();
    machine.device.fail_after(op, count);
    let mut model = Model::new();
    let Some(error) = run(&mut machine, &engine, &mut model) else {
        return false;
    };
    assert!(matches!(error, EngineError::Device(_)), "{what}: {error}");

    let told = machine.device.failure().unwrap().to_string();
    assert!(told.starts_with(&op.to_string()), "{what}: {told}");
    let before = machine.device.counters();
    for number in 0..20 {
        let refused = put(&engine, number, &mut Model::new()).unwrap_err();
        assert!(matches!(refused, EngineError::Closed(_)), "{refused}");
        assert_eq!(refused.outcome(), Outcome::NotApplied);
        machine.device.run_all();
        assert!(machine.try_step(&engine).is_err(), "{what}");
    }
    assert_holds(&engine, &model, &what);
    assert!(engine.close().is_err(), "{what}: a close says so");
    let after = machine.device.counters();
    assert_eq!(after.write_bytes, before.write_bytes, "{what}");
    assert_eq!(after.syncs, before.syncs, "{what}: no sync is tried again");

    machine.end(engine, Crash::Kill);
    let engine = machine.open();
    assert_holds(&engine, &model, &what);
    put(&engine, 1, &mut model).unwrap();
    true
}

/// What one region meets ends the other's writes with its next step, although it has written nothing.
#[test]
fn a_failure_is_the_whole_devices() {
    let device = MemoryDevice::eager(64 * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).unwrap();
    let device = Arc::new(device);
    let shared: Arc<dyn Device> = device.clone();
    let store = Store::open(shared, &StoreSettings::default()).unwrap();
    let windows = AnonymousWindows::new();
    let settings = tiny();
    store.finish_recovery();
    let engines = [RegionId(1), RegionId(2)].map(|region| {
        let fresh = fresh_windows(&windows, region, &settings).unwrap();
        let lost = survivors(&windows, region, &settings);
        let copy = Replica::open(&store, region, fresh, &lost, &settings).unwrap();
        let cache = Arc::new(NodeCache::new(1 << 20));
        let service = Service {
            epoch: Epoch(1),
            ..Service::default()
        };
        Lsm::promote(copy, &cache, service).unwrap()
    });
    let now = Instant::from_nanos(1);
    let mut model = Model::new();
    for engine in &engines {
        put(engine, 1, &mut model).unwrap();
        engine.step(now).unwrap();
    }
    device.fail_after(OpKind::Sync, 0);
    engines[0].flush_now();
    let mut steps = 0..20;
    while steps.any(|_| engines[0].step(now).is_ok()) {}
    assert!(store.failure().is_some());
    assert!(engines[1].step(now).is_err());
    let refused = put(&engines[1], 2, &mut Model::new()).unwrap_err();
    assert_eq!(refused.outcome(), Outcome::NotApplied);
    assert_holds(&engines[1], &model, "reads");
}

/// The file system beneath has no room: new data is refused, the rest goes on, and writes are taken again
/// when there is room, in the same engine.
#[test]
fn a_full_file_system_is_waited_for() {
    let mut machine = Machine::new(tiny(), SEGMENTS, 5);
    let engine = machine.open();
    let mut model = Model::new();
    assert!(run(&mut machine, &engine, &mut model).is_none());
    for _ in 0..3 {
        // Not a write of a block comes through that is not there yet.
        machine.device.set_room_beneath(Some(0));
        machine.device.set_full(true);
        for _ in 0..50 {
            machine.step(&engine);
        }
        let refused = put(&engine, 3, &mut Model::new()).unwrap_err();
        let full = matches!(refused, EngineError::Busy(BusyReason::DeviceFull));
        assert!(full, "{refused}");
        assert_eq!(refused.outcome(), Outcome::NotApplied);
        let mut batch = WriteBatch::new();
        let (key, _) = pair(4);
        batch.delete(&key).unwrap();
        engine.write(&batch, WriteOptions::default()).unwrap();
        model.remove(&key);
        assert_eq!(engine.get(&key).unwrap().value, None);
        assert_holds(&engine, &model, "reads go on");

        machine.device.set_room_beneath(None);
        machine.device.set_full(false);
        for _ in 0..50 {
            machine.step(&engine);
        }
        put(&engine, 5, &mut model).unwrap();
        assert!(run(&mut machine, &engine, &mut model).is_none());
    }
    assert!(machine.device.failure().is_none());
    assert_holds(&engine, &model, "with room again");
    machine.close(engine);
    let engine = machine.open();
    assert_holds(&engine, &model, "reopened");
}

/// While only the reserve is left beneath, new data is refused before it is touched, and deletes and what
/// they free go on out of it.
#[test]
fn the_reserve_is_there_beneath_the_device_too() {
    let mut machine = Machine::new(tiny(), SEGMENTS, 6);
    let engine = machine.open();
    let mut model = Model::new();
    assert!(run(&mut machine, &engine, &mut model).is_none());
    let reserve = machine.store.as_ref().unwrap().room().reserve;
    let before = machine.store.as_ref().unwrap().used();
    let bytes = u64::from(reserve) * SEGMENT_SIZE as u64;
    machine.device.set_room_beneath(Some(bytes));
    machine.step(&engine);
    let refused = put(&engine, 3, &mut Model::new()).unwrap_err();
    assert!(matches!(refused, EngineError::Busy(BusyReason::DeviceFull)));
    let keys: Vec<_> = model.keys().cloned().collect();
    for key in keys {
        let mut batch = WriteBatch::new();
        batch.delete(&key).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
        model.remove(&key);
        machine.step(&engine);
    }
    machine.settle(&engine);
    let used = machine.store.as_ref().unwrap().used();
    machine
        .device
        .set_room_beneath(Some(bytes + SEGMENT_SIZE as u64));
    machine.step(&engine);
    put(&engine, 3, &mut model).unwrap();
    assert!(used < before, "{used} of {before}");
    assert_holds(&engine, &model, "after all");
}
