//! Pins: what they keep, what they free, and crashes while they are made and removed.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::wall::Wall;
use crate::common::{Machine, REGION, tiny};
use argosy_base::{Clock, Direction, KeyRange, Moment};
use argosy_device::{Crash, Device, OpKind, Store, StoreSettings};
use argosy_engine::conformance::Host;
use argosy_engine::{Expiry, Snapshot, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::pins::{NAME_BYTES_MAX, PinError, Pins};
use argosy_lsm::{Lsm, Version};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(machine: &mut Machine) -> (Pins, Lsm) {
    let device: Arc<dyn Device> = machine.device.clone();
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    let pins = Pins::open(&store, REGION, &machine.settings).unwrap();
    let engine = Lsm::open(&store, REGION, &machine.windows, &machine.settings, None).unwrap();
    machine.store = Some(store);
    (pins, engine)
}

/// Writes `pairs` pairs, some with values that go to the log, and some of them anew.
fn write(machine: &mut Machine, engine: &Lsm, map: &mut Map, pairs: u64) {
    for _ in 0..pairs {
        let key = format!("{:04}", machine.choices.below(600)).into_bytes();
        let len = [8, 100, 1500][usize::try_from(machine.choices.below(3)).unwrap()];
        let fill = u8::try_from(machine.choices.below(256)).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&key, vec![fill; len]).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(engine);
        }
        map.insert(key, vec![fill; len]);
        machine.step(engine);
    }
}

fn settled(machine: &mut Machine, engine: &Lsm) -> Arc<Version> {
    let last = engine.last_lsn();
    loop {
        if let Some(version) = engine.version_with(last) {
            return version;
        }
        machine.step(engine);
    }
}

fn rest(machine: &mut Machine, engine: &Lsm) {
    while machine.step(engine) || engine.background_pending() > 0 {}
}

fn shown(snapshot: &dyn Snapshot) -> Map {
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    let mut map = Map::new();
    while let Some((key, value)) = scan.next().unwrap() {
        assert_eq!(snapshot.get(&key).unwrap().as_ref(), Some(&value));
        map.insert(key, value);
    }
    map
}

fn pinned(pins: &Pins, engine: &Lsm, name: &str) -> Map {
    let pin = pins.find(name).unwrap();
    shown(&engine.snapshot_of(pin.version()))
}

#[test]
fn a_pin_stays_as_it_was_and_frees_its_space_when_it_goes() {
    let mut machine = Machine::new(tiny(), 512, 5);
    let (pins, engine) = open(&mut machine);
    let mut map = Map::new();
    write(&mut machine, &engine, &mut map, 1500);
    let version = settled(&mut machine, &engine);
    let used = machine.store.as_ref().unwrap().used();
    pins.add("first", &version, Moment(0)).unwrap();
    drop(version);
    // A manifest, and nothing else.
    assert_eq!(machine.store.as_ref().unwrap().used(), used + 1);
    let first = map.clone();
    for _ in 0..3 {
        write(&mut machine, &engine, &mut map, 1500);
    }
    rest(&mut machine, &engine);
    assert!(pinned(&pins, &engine, "first") == first);
    assert!(shown(&*engine.snapshot()) == map);

    // Everything once more, by another process.
    engine.close().unwrap();
    drop(pins);
    machine.end(engine, Crash::Kill);
    let (pins, engine) = open(&mut machine);
    assert!(pinned(&pins, &engine, "first") == first);
    assert!(shown(&*engine.snapshot()) == map);
    write(&mut machine, &engine, &mut map, 1500);
    rest(&mut machine, &engine);
    assert!(pinned(&pins, &engine, "first") == first);

    // A snapshot of it outlives it.
    let held = engine.snapshot_of(pins.find("first").unwrap().version());
    pins.remove("first").unwrap();
    assert!(shown(&held) == first);
    drop(held);
    rest(&mut machine, &engine);
    machine.assert_no_leak(&engine);
    assert!(shown(&*engine.snapshot()) == map);
}

/// What was told to be gone does not come back with a pin, although the levels that it keeps have it.
#[test]
fn a_pin_does_not_bring_back_what_has_expired() {
    let wall = Arc::new(Wall::default());
    let mut machine = Machine::new(tiny(), 256, 8);
    let (pins, engine) = open(&mut machine);
    engine.set_clock(Arc::clone(&wall) as Arc<dyn Clock>);
    wall.set(10);
    let mut batch = WriteBatch::new();
    batch
        .put_until(b"k", b"v", Expiry::At(Moment(100)))
        .unwrap();
    engine.write(&batch, WriteOptions::default()).unwrap();
    drop(settled(&mut machine, &engine));
    wall.set(150);
    assert_eq!(engine.get(b"k").unwrap().value, None);
    let version = settled(&mut machine, &engine);
    pins.add("p", &version, engine.committed_time()).unwrap();
    assert!(pinned(&pins, &engine, "p").is_empty());
    engine.close().unwrap();
    drop(pins);
    machine.end(engine, Crash::Kill);
    let (pins, engine) = open(&mut machine);
    assert!(pinned(&pins, &engine, "p").is_empty());
}

#[test]
fn names_are_taken_once() {
    let mut machine = Machine::new(tiny(), 256, 6);
    let (pins, engine) = open(&mut machine);
    let version = settled(&mut machine, &engine);
    pins.add("b", &version, Moment(0)).unwrap();
    pins.add("a", &version, Moment(0)).unwrap();
    assert!(matches!(
        pins.add("a", &version, Moment(0)),
        Err(PinError::Exists(_))
    ));
    assert!(matches!(
        pins.add("", &version, Moment(0)),
        Err(PinError::Name(0))
    ));
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    assert!(matches!(
        pins.add(&long, &version, Moment(0)),
        Err(PinError::Name(_))
    ));
    assert!(matches!(pins.remove("c"), Err(PinError::Unknown(_))));
    let names = |pins: &Pins| -> Vec<_> {
        let pins = pins.list();
        pins.iter().map(|pin| pin.name().to_owned()).collect()
    };
    assert_eq!(names(&pins), ["a", "b"]);
    pins.remove("b").unwrap();
    pins.add("c", &version, Moment(0)).unwrap();
    assert_eq!(names(&pins), ["a", "c"]);
}

/// The process ends at each request that making or removing a pin takes, killed or without power.
#[test]
fn a_crash_leaves_a_pin_or_none_and_leaks_nothing() {
    for (seed, op) in [(1, OpKind::Write), (2, OpKind::Sync)] {
        for crash in [Crash::Kill, Crash::PowerLoss] {
            for removes in [false, true] {
                (0..9).for_each(|count| crash_at(seed, op, count, crash, removes));
            }
        }
    }
}

fn crash_at(seed: u64, op: OpKind, count: u64, crash: Crash, removes: bool) {
    let mut machine = Machine::new(tiny(), 256, seed);
    let (pins, engine) = open(&mut machine);
    let mut map = Map::new();
    write(&mut machine, &engine, &mut map, 400);
    let version = settled(&mut machine, &engine);
    rest(&mut machine, &engine);
    if removes {
        pins.add("p", &version, Moment(0)).unwrap();
    }
    machine.device.fail_after(op, count);
    let done = match removes {
        true => pins.remove("p").is_ok(),
        false => pins.add("p", &version, Moment(0)).is_ok(),
    };
    drop((version, pins));
    machine.end(engine, crash);
    let (pins, engine) = open(&mut machine);
    let exists = pins.find("p").is_ok();
    assert!(!done || exists != removes, "{op} {count} {crash:?}");
    assert!(shown(&*engine.snapshot()) == map);
    if exists {
        assert!(pinned(&pins, &engine, "p") == map);
        pins.remove("p").unwrap();
    }
    rest(&mut machine, &engine);
    machine.assert_no_leak(&engine);
}
