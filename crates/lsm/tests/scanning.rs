//! What a scan reads of the device, how often it waits for it, and what a failed read does to it.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::counting::Counting;
use crate::common::{Machine, tiny};
use argosy_base::{Direction, KeyRange};
use argosy_device::{Crash, Device};
use argosy_engine::conformance::Host;
use argosy_engine::{Scan, Store, WriteBatch, WriteOptions};
use argosy_lsm::Lsm;

const PAIRS: usize = 1500;

fn key(number: usize) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

/// Every third value lies in the large log.
fn value(number: usize) -> Vec<u8> {
    let len = if number.is_multiple_of(3) { 1500 } else { 20 };
    vec![u8::try_from(number % 251).unwrap(); len]
}

/// Writes every third pair from `first` on, and flushes.
fn write(machine: &mut Machine, engine: &Lsm, first: usize) {
    for number in (first..PAIRS).step_by(3) {
        let mut batch = WriteBatch::new();
        batch.put(key(number), value(number)).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(engine);
        }
    }
    machine.settle(engine);
}

/// All pairs in the levels, opened again with nothing in the cache.
fn opened() -> (Machine, Arc<Counting>, Lsm) {
    let settings = tiny().with(|of| {
        of.levels.l1_runs = 8;
        of.levels.l1_runs_max = 12;
        of.memtables.bytes = 1 << 20;
        of.memtables.log_bytes = 4 << 20;
    });
    let mut machine = Machine::new(settings, 512, 1);
    let engine = machine.open();
    // Three runs, each over all keys.
    for first in 0..3 {
        write(&mut machine, &engine, first);
    }
    engine.close().unwrap();
    machine.end(engine, Crash::PowerLoss);
    let settings = machine.settings.clone().with(|of| of.cache_bytes = 8 << 20);
    let (device, engine) = Counting::open(&mut machine, &settings);
    (machine, device, engine)
}

fn scan(engine: &Lsm, from: usize, direction: Direction) -> Box<dyn Scan> {
    let range = match direction {
        Direction::Up => KeyRange::new(key(from), None),
        Direction::Down => KeyRange::new(Vec::new(), Some(key(from + 1))),
    };
    engine.snapshot().scan(&range, direction).unwrap()
}

fn number(from: usize, pair: usize, direction: Direction) -> usize {
    match direction {
        Direction::Up => from + pair,
        Direction::Down => from - pair,
    }
}

#[test]
fn the_leaves_in_which_a_scan_begins_are_read_together() {
    for direction in [Direction::Up, Direction::Down] {
        let (_machine, device, engine) = opened();
        let runs: usize = engine.stats().levels.iter().map(|level| level.runs).sum();
        assert!(runs >= 2, "{runs}");
        // Seldom the first segment of one of two runs ends in front of the range.
        let starts = (100..1400).step_by(130);
        let begin = |from| {
            let mut pairs = scan(&engine, from, direction);
            pairs.leave_values_out();
            assert_eq!(pairs.next().unwrap().unwrap().0, key(from));
        };
        starts.clone().for_each(begin);
        let together = device.together();
        assert!((7..=10).contains(&together), "{together} times");
        // What they read is there for the next.
        let alone = device.alone();
        starts.for_each(begin);
        assert_eq!(device.together(), together);
        assert_eq!(device.alone(), alone);
    }
}

#[test]
fn values_are_read_together() {
    for direction in [Direction::Up, Direction::Down] {
        for expected in [Some(60), None] {
            let (_machine, device, engine) = opened();
            let runs: usize = engine.stats().levels.iter().map(|level| level.runs).sum();
            let mut pairs = scan(&engine, 700, direction);
            if let Some(expected) = expected {
                pairs.expect(expected);
            }
            // Indexes and filters, and the leaves in which it begins.
            let begun = device.alone();
            let warmed = device.together();
            for pair in 0..60 {
                let at = number(700, pair, direction);
                let found = pairs.next().unwrap().unwrap();
                assert_eq!(found, (key(at), value(at)));
            }
            let together = device.together() - warmed;
            let most = if expected.is_some() { 2 } else { 4 };
            assert!(
                together >= 1 && together <= most,
                "{together} times 20 values"
            );
            // Leaves of 512 bytes are read by the cursors, a few at a time, but for those that were read
            // where it began: as many as it was to come to.
            let alone = device.alone() - begun;
            let most = if expected.is_some() { 2 } else { 8 };
            assert!(alone <= most * runs as u64, "{alone} waits in {runs} runs");
        }
    }
}

#[test]
fn no_more_is_read_than_is_expected() {
    let (_machine, device, engine) = opened();
    let mut pairs = scan(&engine, 300, Direction::Up);
    pairs.expect(4);
    assert_eq!(pairs.next().unwrap().unwrap(), (key(300), value(300)));
    let before = device.counters().read_bytes;
    for at in 301..304 {
        assert_eq!(pairs.next().unwrap().unwrap(), (key(at), value(at)));
    }
    assert_eq!(device.counters().read_bytes, before, "it was read ahead");
    // Whoever takes more than was said gets it all the same.
    for at in 304..PAIRS {
        assert_eq!(pairs.next().unwrap().unwrap(), (key(at), value(at)));
    }
    assert_eq!(pairs.next().unwrap(), None);
}

#[test]
fn what_was_read_before_an_error_is_returned_before_it() {
    let (_machine, device, engine) = opened();
    // The leaves are there before the values are read.
    let mut keys = scan(&engine, 300, Direction::Up);
    keys.expect(30);
    keys.leave_values_out();
    for at in 300..330 {
        assert_eq!(keys.next().unwrap().unwrap().0, key(at));
    }
    let mut pairs = scan(&engine, 300, Direction::Up);
    pairs.expect(30);
    // 300, 303 and 306 can be read, 309 cannot.
    device.fail_after(3);
    for at in 300..309 {
        assert_eq!(pairs.next().unwrap().unwrap(), (key(at), value(at)));
    }
    let error = pairs.next().unwrap_err();
    assert!(error.to_string().contains("planted"), "{error}");
}
