//! What is written to the levels stays in memory, while there is room; what is given away does not.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod common;

use std::sync::Arc;

use argosy_device::Crash;
use argosy_engine::conformance::Host;
use argosy_engine::{Store, WriteBatch, WriteOptions};
use argosy_lsm::Lsm;
use common::counting::Counting;
use common::{Machine, tiny};

const PAIRS: u64 = 3000;

fn key(number: u64) -> Vec<u8> {
    format!("{:05}", number * 7 % PAIRS).into_bytes()
}

fn opened(cache_bytes: usize) -> (Machine, Arc<Counting>, Lsm) {
    let settings = tiny().with(|of| of.cache_bytes = cache_bytes);
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
        batch.put(&key(number), &value).unwrap();
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
