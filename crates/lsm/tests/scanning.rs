//! What a scan reads of the device, how often it waits for it, and what a failed read does to it.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use argosy_base::{DeviceSegment, Direction, KeyRange};
use argosy_device::io::Read;
use argosy_device::{
    Counters, Crash, Device, DeviceError, Io, OpKind, Store, StoreSettings, Ticket, Waker,
};
use argosy_engine::conformance::Host;
use argosy_engine::{Engine, Scan, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};
use common::{Machine, REGION, tiny};

const PAIRS: usize = 1500;

fn key(number: usize) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

/// Every third value lies in the large log.
fn value(number: usize) -> Vec<u8> {
    let len = if number.is_multiple_of(3) { 1500 } else { 20 };
    vec![u8::try_from(number % 251).unwrap(); len]
}

/// A device that counts how often somebody waits for a read, and fails one of those read together.
struct Counting {
    inner: Arc<dyn Device>,
    alone: AtomicUsize,
    together: AtomicUsize,
    /// How many of those that are read together, from now on, are well.
    fails_after: Mutex<Option<usize>>,
}

impl Device for Counting {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.alone.fetch_add(1, Ordering::Relaxed);
        self.inner.read(at, buffer)
    }

    fn read_together(&self, reads: &mut [Read<'_>]) {
        self.together.fetch_add(1, Ordering::Relaxed);
        let mut left = self.fails_after.lock().unwrap();
        for read in reads {
            read.result = match &mut *left {
                Some(0) => Err(DeviceError::Io {
                    op: OpKind::Read,
                    at: read.at,
                    len: read.buffer.len(),
                    source: Arc::new(std::io::Error::other("planted")),
                }),
                left => {
                    *left = left.map(|left| left - 1);
                    self.inner.read(read.at, read.buffer)
                }
            };
        }
    }

    fn submit(&self, io: Io) -> Ticket {
        self.inner.submit(io)
    }

    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        self.inner.wait(ticket)
    }

    fn discard(&self, segment: DeviceSegment) {
        self.inner.discard(segment);
    }

    fn set_waker(&self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Writes every third pair from `first` on, and flushes.
fn write(machine: &mut Machine, engine: &Lsm, first: usize) {
    for number in (first..PAIRS).step_by(3) {
        let mut batch = WriteBatch::new();
        batch.put(&key(number), &value(number)).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(engine);
        }
    }
    while !engine.freeze_now() {
        machine.step(engine);
    }
    machine.step(engine);
    while engine.background_pending() > 0 {
        machine.step(engine);
    }
}

/// All pairs in the levels, opened again with nothing in the cache.
fn opened() -> (Machine, Arc<Counting>, Lsm) {
    let settings = Settings {
        l1_runs: 8,
        l1_runs_max: 12,
        l0_bytes: 1 << 20,
        l0_log_bytes: 4 << 20,
        ..tiny()
    };
    let mut machine = Machine::new(settings, 512, 1);
    let engine = machine.open();
    // Three runs, each over all keys.
    for first in 0..3 {
        write(&mut machine, &engine, first);
    }
    engine.close().unwrap();
    machine.end(engine, Crash::PowerLoss);
    let device = Arc::new(Counting {
        inner: machine.device.clone(),
        alone: AtomicUsize::new(0),
        together: AtomicUsize::new(0),
        fails_after: Mutex::new(None),
    });
    let store = Store::open(device.clone(), &StoreSettings::default()).unwrap();
    let settings = Settings {
        cache_bytes: 8 << 20,
        ..machine.settings.clone()
    };
    let engine = Lsm::open(&store, REGION, &machine.windows, &settings, None).unwrap();
    machine.store = Some(store);
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
        let begun = starts.clone().map(|from| scan(&engine, from, direction));
        assert_eq!(begun.count(), 10);
        let together = device.together.load(Ordering::Relaxed);
        assert!((7..=10).contains(&together), "{together} times");
        // What they read is there for the next.
        let alone = device.alone.load(Ordering::Relaxed);
        starts.for_each(|from| drop(scan(&engine, from, direction)));
        assert_eq!(device.together.load(Ordering::Relaxed), together);
        assert_eq!(device.alone.load(Ordering::Relaxed), alone);
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
            let begun = device.alone.load(Ordering::Relaxed);
            let warmed = device.together.load(Ordering::Relaxed);
            for pair in 0..60 {
                let at = number(700, pair, direction);
                let found = pairs.next().unwrap().unwrap();
                assert_eq!(found, (key(at), value(at)));
            }
            let together = device.together.load(Ordering::Relaxed) - warmed;
            let most = if expected.is_some() { 2 } else { 4 };
            assert!(
                together >= 1 && together <= most,
                "{together} times 20 values"
            );
            // Leaves of 512 bytes are read by the cursors, a few at a time.
            let alone = device.alone.load(Ordering::Relaxed) - begun;
            assert!(alone <= 8 * runs, "{alone} waits in {runs} runs");
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
    let mut pairs = scan(&engine, 300, Direction::Up);
    pairs.expect(30);
    // 300, 303 and 306 can be read, 309 cannot.
    *device.fails_after.lock().unwrap() = Some(3);
    for at in 300..309 {
        assert_eq!(pairs.next().unwrap().unwrap(), (key(at), value(at)));
    }
    let error = pairs.next().unwrap_err();
    assert!(error.to_string().contains("planted"), "{error}");
}
