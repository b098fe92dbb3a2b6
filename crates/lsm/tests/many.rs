//! Several keys at once: the same answers as one by one, in few requests to the device.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::counting::Counting;
use crate::common::{Machine, random_settings, tiny};
use argosy_base::{Direction, KeyRange};
use argosy_device::{Crash, Device};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{Reach, Store, Wanted, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};

fn write(machine: &mut Machine, engine: &Lsm, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put(key, value).unwrap();
    while engine.write(&batch, WriteOptions::default()).is_err() {
        machine.step(engine);
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{:05}", number * 7 % 20_000).into_bytes()
}

/// An engine with `pairs` pairs in its levels and logs, opened again on a device that counts.
fn loaded(settings: Settings, pairs: u64, value_len: usize) -> (Machine, Arc<Counting>, Lsm) {
    let mut machine = Machine::new(settings, 512, 1);
    let engine = machine.open();
    for number in 0..pairs {
        let value = number.to_le_bytes().repeat(value_len / 8 + 1);
        write(&mut machine, &engine, &key(number), &value);
    }
    machine.settle(&engine);
    engine.close().unwrap();
    machine.end(engine, Crash::Kill);
    let settings = machine.settings.clone();
    let (counted, engine) = Counting::open(&mut machine, &settings);
    (machine, counted, engine)
}

/// An engine to which `pairs` pairs were just written, on a device that counts.
fn written(
    settings: Settings,
    pairs: u64,
    value: impl Fn(u64) -> Vec<u8>,
) -> (Machine, Arc<Counting>, Lsm) {
    let mut machine = Machine::new(settings.clone(), 512, 1);
    let (counted, engine) = Counting::open(&mut machine, &settings);
    for number in 0..pairs {
        write(&mut machine, &engine, &key(number), &value(number));
    }
    machine.settle(&engine);
    (machine, counted, engine)
}

/// Gets `count` keys together. Returns the requests to the device, and the reads among them that were
/// asked for one by one.
fn get(counted: &Counting, engine: &Lsm, from: u64, count: u64, value_len: usize) -> (u64, u64) {
    let before = (counted.together(), counted.alone());
    let keys: Vec<_> = (from..from + count).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let found = engine.get_many(&keys).unwrap();
    for (number, found) in (from..).zip(found) {
        let expected = number.to_le_bytes().repeat(value_len / 8 + 1);
        assert_eq!(found.value, Some(expected), "{number}");
    }
    (counted.together() - before.0, counted.alone() - before.1)
}

#[test]
fn leaves_are_read_by_one_request() {
    let settings = tiny().with(|of| of.cache_bytes = 1 << 20);
    let (_machine, counted, engine) = loaded(settings, 20_000, 40);
    // The first keys open segments, too.
    for from in (0..20_000).step_by(200) {
        get(&counted, &engine, from, 1, 40);
    }
    let misled = engine.stats().filters.misled;
    let read_bytes = counted.counters().read_bytes;
    let (requests, alone) = get(&counted, &engine, 5000, 64, 40);
    assert!(counted.counters().read_bytes > read_bytes, "it was read");
    assert_eq!(alone, 0);
    // One, and one for each key whose filter was wrong, at most.
    assert!(
        requests <= 1 + engine.stats().filters.misled - misled,
        "{requests}"
    );
}

#[test]
fn values_in_the_log_are_read_by_another_request() {
    let settings = tiny().with(|of| of.cache_bytes = 1 << 20);
    let (_machine, counted, engine) = loaded(settings, 3000, 2000);
    get(&counted, &engine, 0, 500, 2000);
    let misled = engine.stats().filters.misled;
    let (requests, alone) = get(&counted, &engine, 1500, 64, 2000);
    assert_eq!(alone, 0);
    assert!(
        requests <= 2 + engine.stats().filters.misled - misled,
        "{requests}"
    );
}

#[test]
fn what_is_told_is_bounded_and_so_is_what_is_read_for_it() {
    let settings = tiny().with(|of| of.cache_bytes = 1 << 20);
    let (_machine, counted, engine) = loaded(settings, 3000, 2000);
    get(&counted, &engine, 0, 500, 2000);
    let keys: Vec<_> = (1500..1564).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    // Opens the segments, and brings in the leaves.
    engine
        .get_some(&keys, Wanted::Presence, Reach::Device)
        .unwrap();
    let before = counted.counters().read_bytes;
    let found = engine
        .get_some(&keys, Wanted::Values(9000), Reach::Device)
        .unwrap();
    let values = found
        .iter()
        .map(|found| found.value.as_ref().unwrap().len());
    assert_eq!(found.len(), 5, "the fifth goes over it");
    assert_eq!(values.sum::<usize>(), 5 * 2008);
    let read = counted.counters().read_bytes - before;
    assert!(read <= 5 * 8192, "{read} bytes for five values");
    let found = engine
        .get_some(&keys, Wanted::Values(0), Reach::Device)
        .unwrap();
    assert_eq!(found.len(), 1, "one in any case");
}

#[test]
fn whether_keys_are_bound_is_told_without_their_values() {
    let settings = tiny().with(|of| of.cache_bytes = 4 << 20);
    let (_machine, counted, engine) = loaded(settings, 3000, 2000);
    let scan = |keys_only: bool| {
        let snapshot = engine.snapshot();
        let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
        if keys_only {
            scan.leave_values_out();
        }
        let mut pairs = Vec::new();
        while let Some(pair) = scan.next().unwrap() {
            pairs.push(pair);
        }
        pairs
    };
    // What leaves and segments there are comes into memory.
    scan(true);
    let reads = || counted.counters().read_bytes;
    let keys: Vec<_> = (0..64).map(key).chain([b"none".to_vec()]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    engine
        .get_some(&keys, Wanted::Presence, Reach::Device)
        .unwrap();
    let before = reads();
    let found = engine
        .get_some(&keys, Wanted::Presence, Reach::Device)
        .unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.value, (*key != b"none").then(Vec::new));
        let outline = engine.outline(key, Reach::Device).unwrap();
        assert_eq!(outline.len, (*key != b"none").then_some(2008));
        assert_eq!(engine.outline(key, Reach::Memory).unwrap(), outline);
    }
    assert_eq!(reads(), before, "no value was read");
    let keys = scan(true);
    assert!(keys.len() == 3000 && keys.iter().all(|(_, value)| value.is_empty()));
    let leaves = reads() - before;
    assert!(leaves < 3000 * 60, "{leaves} bytes for the keys");
    let pairs = scan(false);
    assert!(pairs.iter().all(|(_, value)| value.len() == 2008));
    assert!(reads() - before - leaves > 20 * leaves);
}

/// Whatever the settings, and while everything moves: as one by one.
#[test]
fn many_are_what_each_is() {
    for seed in 1..=12 {
        let mut choices = Choices::new(seed);
        let settings = random_settings(&mut choices);
        let mut machine = Machine::new(settings, 512, seed);
        let engine = machine.open();
        for round in 0..40 {
            for _ in 0..60 {
                let len = [10, 200, 3000, 20_000][usize::try_from(choices.below(4)).unwrap()];
                let value = vec![u8::try_from(round).unwrap(); len];
                write(&mut machine, &engine, &key(choices.below(900)), &value);
                machine.step(&engine);
            }
            let keys: Vec<_> = (0..choices.below(200))
                .map(|_| key(choices.below(1000)))
                .collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let together = engine.get_many(&keys).unwrap();
            let snapshot = engine.snapshot();
            let seen = snapshot.get_many(&keys).unwrap();
            assert_eq!(together.len(), keys.len());
            for ((key, together), seen) in keys.iter().zip(together).zip(seen) {
                let alone = engine.get(key).unwrap();
                assert!(together.value == alone.value, "seed {seed}");
                assert_eq!(together.wait.lsn(), alone.wait.lsn());
                assert!(seen == alone.value, "seed {seed}");
            }
        }
    }
}

/// Values in chunks, of which the oldest have left memory: whoever asks, and however, gets what was written.
#[test]
fn values_of_which_a_part_is_in_memory_are_whole() {
    let settings = tiny().with(|of| of.cache_bytes = 2 << 20);
    // Two windows and a half, so that segments begin inside of values.
    let value = |number: u64| number.to_le_bytes().repeat(10 << 10);
    let (_machine, counted, engine) = written(settings, 60, value);
    let read = || counted.counters().read_bytes;
    let before = read();
    let keys: Vec<_> = (0..60).map(key).collect();
    for (number, key) in (0..60).zip(&keys) {
        assert_eq!(
            engine.get(key).unwrap().value,
            Some(value(number)),
            "{number}"
        );
    }
    let from_device = read() - before;
    let all = 60 * (80 << 10);
    assert!(
        (all / 2..all * 9 / 10).contains(&from_device),
        "{from_device} of {all}"
    );
    for keys in keys.chunks(16) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = engine.get_many(&keys).unwrap();
        for (key, found) in keys.iter().zip(found) {
            let number = (0..60).find(|number| self::key(*number) == *key).unwrap();
            assert_eq!(found.value, Some(value(number)), "{number}");
        }
    }
    let snapshot = engine.snapshot();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    let mut pairs = 0;
    while let Some((key, found)) = scan.next().unwrap() {
        let number = (0..60).find(|number| self::key(*number) == key).unwrap();
        assert_eq!(found, value(number), "{number}");
        pairs += 1;
    }
    assert_eq!(pairs, 60);
}

/// Values of the large log are found in memory, where there is room, without having been read.
#[test]
fn what_was_written_is_in_memory() {
    let settings = tiny().with(|of| of.cache_bytes = 8 << 20);
    let value = |number: u64| number.to_le_bytes().repeat(250);
    let (_machine, counted, engine) = written(settings, 1000, value);
    let before = counted.counters().read_bytes;
    for number in 0..1000 {
        let found = engine.get(&key(number)).unwrap().value;
        assert_eq!(found, Some(value(number)));
    }
    let read = counted.counters().read_bytes - before;
    assert!(read < 1000 * 200, "{read} bytes: leaves at most");
}
