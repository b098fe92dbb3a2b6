//! Reads and writes of threads that must not wait for the device: what is in memory is found, what is
//! not is said to be so without a byte being read.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use crate::common::{Machine, tiny, tiny_whole};
use argosy_base::{Direction, KeyRange};
use argosy_device::{Crash, Device};
use argosy_engine::conformance::Host;
use argosy_engine::{
    Condition, EngineError, Found, Reach, Store, WriteBatch, WriteOptions, Written,
};
use argosy_lsm::{Lsm, Settings};

const PAIRS: u64 = 2000;

fn key(number: u64) -> Vec<u8> {
    format!("{:06}", number * 7 % PAIRS).into_bytes()
}

/// Values of all placements: in leaves, and in the large log.
fn value(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(3) { 1500 } else { 20 };
    vec![u8::try_from(number % 251).unwrap(); len]
}

fn put(machine: &mut Machine, engine: &Lsm, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put(key, value).unwrap();
    while engine.write(&batch, WriteOptions::default()).is_err() {
        machine.step(engine);
    }
}

/// `None` where it would take the device.
fn known<T>(told: Result<T, EngineError>) -> Option<T> {
    match told {
        Ok(told) => Some(told),
        Err(EngineError::NotInMemory) => None,
        Err(error) => panic!("{error}"),
    }
}

fn get_in_memory(engine: &Lsm, key: &[u8]) -> Option<Found> {
    known(engine.get_within(key, Reach::Memory))
}

fn write_in_memory(engine: &Lsm, batch: &WriteBatch, options: WriteOptions) -> Option<Written> {
    known(engine.write_within(batch, options, Reach::Memory))
}

/// An engine with all pairs in its levels, opened again: nothing of them is in memory.
fn loaded(settings: Settings) -> (Machine, Lsm) {
    let mut machine = Machine::new(settings, 1024, 1);
    let engine = machine.open();
    for number in 0..PAIRS {
        put(&mut machine, &engine, &key(number), &value(number));
    }
    while !engine.freeze_now() {
        machine.step(&engine);
    }
    while engine.background_pending() > 0 {
        machine.step(&engine);
    }
    engine.close().unwrap();
    machine.end(engine, Crash::Kill);
    machine.settings = machine
        .settings
        .clone()
        .with(|of| of.cache_bytes = 16 << 20);
    let engine = machine.open();
    (machine, engine)
}

#[test]
fn what_was_read_once_is_found_without_the_device() {
    for settings in [tiny(), tiny_whole()] {
        let (machine, engine) = loaded(settings);
        let read_bytes = || machine.device.counters().read_bytes;
        let before = read_bytes();
        let first = engine.stats().cache;
        for number in 0..PAIRS {
            assert_eq!(get_in_memory(&engine, &key(number)), None, "{number}");
        }
        assert_eq!(read_bytes(), before, "nothing is read to know that");
        assert_eq!(engine.stats().cache, first, "and nothing counted");
        for number in 0..PAIRS {
            let found = engine.get(&key(number)).unwrap();
            assert_eq!(found.value, Some(value(number)));
        }
        let before = read_bytes();
        for number in 0..PAIRS {
            let found = get_in_memory(&engine, &key(number));
            assert_eq!(found, Some(engine.get(&key(number)).unwrap()), "{number}");
        }
        // Filters are in memory by now, and answer for nearly all keys that are not there.
        let absent = (0..PAIRS).filter(|number| {
            let key = format!("{:06}x", number * 7 % PAIRS);
            let found = get_in_memory(&engine, key.as_bytes());
            found.is_some_and(|found| found.value.is_none())
        });
        assert_eq!(absent.count() as u64, PAIRS);
        assert_eq!(read_bytes(), before);
    }
}

type Pair = (Vec<u8>, Vec<u8>);

/// The first ten pairs of all on this way.
fn first_ten(engine: &Lsm, direction: Direction, reach: Reach) -> Result<Vec<Pair>, EngineError> {
    let snapshot = engine.snapshot_of_all();
    let mut scan = snapshot.scan_within(&KeyRange::all(), direction, reach)?;
    scan.expect(10);
    let mut pairs = Vec::new();
    while pairs.len() < 10 {
        pairs.push(scan.next()?.expect("there are more"));
    }
    Ok(pairs)
}

#[test]
fn a_scan_in_memory_shows_what_is_there_and_says_what_is_not() {
    let (mut machine, engine) = loaded(tiny());
    put(&mut machine, &engine, b"000000", b"new");
    let read_bytes = || machine.device.counters().read_bytes;
    for direction in [Direction::Up, Direction::Down] {
        let before = read_bytes();
        let in_memory = || known(first_ten(&engine, direction, Reach::Memory));
        assert_eq!(in_memory(), None);
        assert_eq!(read_bytes(), before, "nothing is read to know that");
        let shown = first_ten(&engine, direction, Reach::Device).unwrap();
        for (key, value) in &shown {
            assert_eq!(engine.get(key).unwrap().value.as_ref(), Some(value));
        }
        let before = read_bytes();
        assert_eq!(in_memory(), Some(shown));
        assert_eq!(read_bytes(), before);
    }
    let first = first_ten(&engine, Direction::Up, Reach::Memory).unwrap();
    assert_eq!(first[0], (b"000000".to_vec(), b"new".to_vec()));
}

#[test]
fn what_was_just_written_is_found_and_writes_that_have_to_look_say_so() {
    let (mut machine, engine) = loaded(tiny());
    for number in [1, 3] {
        put(&mut machine, &engine, &key(number), b"new");
        let found = get_in_memory(&engine, &key(number)).unwrap();
        assert_eq!(found.value.unwrap(), b"new");
    }
    let batch = |number: u64| {
        let mut batch = WriteBatch::new();
        batch.put(key(number), b"newer").unwrap();
        batch
    };
    let options = |condition| WriteOptions {
        condition,
        return_previous: false,
    };
    let last = engine.last_lsn();
    let absent = options(Condition::Absent);
    assert_eq!(write_in_memory(&engine, &batch(2), absent), None);
    let mut delete = WriteBatch::new();
    delete.delete(key(2)).unwrap();
    let any = WriteOptions::default();
    assert_eq!(write_in_memory(&engine, &delete, any), None);
    assert_eq!(engine.last_lsn(), last, "nothing was written");
    // Without a condition there is nothing to look for; and what a memtable has is known.
    let written = |written: Option<Written>| written.unwrap().applied;
    assert!(written(write_in_memory(&engine, &batch(2), any)));
    assert!(!written(write_in_memory(&engine, &batch(1), absent)));
    let present = options(Condition::Present);
    assert!(written(write_in_memory(&engine, &batch(1), present)));
    let deleted = write_in_memory(&engine, &delete, any).unwrap();
    assert_eq!((deleted.applied, deleted.existed), (true, vec![true]));
}
