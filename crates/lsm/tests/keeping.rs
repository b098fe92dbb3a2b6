//! What is written to the levels and to the medium log stays in memory, while there is room; what is given away does
//! not.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::counting::Counting;
use crate::common::{Machine, tiny};
use argosy_device::Crash;
use argosy_engine::conformance::Host;
use argosy_engine::{Store, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};

const PAIRS: u64 = 3000;

fn key(number: u64) -> Vec<u8> {
    format!("{:05}", number * 7 % PAIRS).into_bytes()
}

fn opened(cache_bytes: usize) -> (Machine, Arc<Counting>, Lsm) {
    opened_with(tiny().with(|of| of.cache_bytes = cache_bytes))
}

fn opened_with(settings: Settings) -> (Machine, Arc<Counting>, Lsm) {
    let mut machine = Machine::new(settings, 512, 1);
    let engine = machine.open();
    engine.close().unwrap();
    machine.end(engine, Crash::Kill);
    let settings = machine.settings.clone();
    let (device, engine) = Counting::open(&mut machine, &settings);
    (machine, device, engine)
}

/// Writes all pairs, and lets everything go to the levels.
fn write(machine: &mut Machine, engine: &Lsm, round: u64) {
    for number in 0..PAIRS {
        let mut batch = WriteBatch::new();
        let value = (number + round).to_le_bytes();
        batch.put(key(number), value).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(engine);
        }
    }
    machine.settle(engine);
}

/// Reads all of them. Returns how often the device was waited for.
fn read(device: &Counting, engine: &Lsm, round: u64) -> u64 {
    let waits = || device.alone() + device.together();
    let before = waits();
    for number in 0..PAIRS {
        let value = (number + round).to_le_bytes();
        assert_eq!(
            engine.get(&key(number)).unwrap().value,
            Some(value.to_vec())
        );
    }
    waits() - before
}

fn levels_bytes(engine: &Lsm) -> u64 {
    engine.stats().levels.iter().map(|level| level.bytes).sum()
}

#[test]
fn what_was_merged_is_read_without_the_device() {
    let (mut machine, device, engine) = opened(8 << 20);
    for round in 0..4 {
        write(&mut machine, &engine, round);
        assert!(engine.stats().work.compactions > round);
        assert_eq!(read(&device, &engine, round), 0);
    }
    // What the last merge took away goes with the witness of its append.
    while machine.device.in_flight() > 0 {
        machine.step(&engine);
    }
    // The leaves of segments that are gone have made room.
    let kept = engine.stats().cache.bytes;
    let most = levels_bytes(&engine) * 3 / 2;
    assert!(kept > 0 && kept <= most, "{kept} bytes of {most}");
}

#[test]
fn what_has_no_room_is_not_kept() {
    let (mut machine, device, engine) = opened(64 << 10);
    write(&mut machine, &engine, 0);
    let stats = engine.stats().cache;
    assert!(stats.bytes + stats.pinned_bytes <= stats.budget);
    assert!(read(&device, &engine, 0) > 0);
}

/// Medium values lie in segments of their own until they come to the last level.
#[test]
fn medium_values_are_read_without_the_device_until_their_segments_go() {
    let settings = tiny().with(|of| {
        of.cache_bytes = 8 << 20;
        of.memtables.bytes = 16 << 10;
        of.layout.segment_bytes = 32 << 10;
        of.values.small_bytes = 4;
        of.levels.growth_factor = 2;
    });
    let (mut machine, device, engine) = opened_with(settings);
    let mut apart = 0;
    for round in 0..6 {
        write(&mut machine, &engine, round);
        let lies_apart = engine.stats().medium.log_segments;
        apart = apart.max(lies_apart);
        assert_eq!(
            read(&device, &engine, round),
            0,
            "{lies_apart} segments lie apart"
        );
    }
    assert!(apart > 0, "no value was put apart");
    while machine.device.in_flight() > 0 {
        machine.step(&engine);
    }
    let stats = engine.stats();
    let medium = stats.medium.log_segments as u64 * (32 << 10);
    let most = (levels_bytes(&engine) + medium) * 3 / 2;
    let kept = stats.cache.bytes;
    assert!(kept > 0 && kept <= most, "{kept} bytes of {most}");
}
