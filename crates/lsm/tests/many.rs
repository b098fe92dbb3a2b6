//! Several keys at once: the same answers as one by one, in few requests to the device.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::DeviceSegment;
use argosy_device::io::Read;
use argosy_device::{Counters, Device, DeviceError, Io, MemoryDevice, Store, StoreSettings};
use argosy_device::{Crash, Ticket, Waker};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{Engine, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};
use common::{Machine, REGION, random_settings, tiny};

/// A device that counts what is asked of it.
struct Counted {
    inner: Arc<MemoryDevice>,
    reads: AtomicU64,
    together: AtomicU64,
}

impl Device for Counted {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(at, buffer)
    }

    fn read_together(&self, reads: &mut [Read<'_>]) {
        self.together.fetch_add(1, Ordering::Relaxed);
        self.inner.read_together(reads);
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
fn loaded(settings: Settings, pairs: u64, value_len: usize) -> (Machine, Arc<Counted>, Lsm) {
    let mut machine = Machine::new(settings, 512, 1);
    let engine = machine.open();
    for number in 0..pairs {
        let value = number.to_le_bytes().repeat(value_len / 8 + 1);
        write(&mut machine, &engine, &key(number), &value);
    }
    while !engine.freeze_now() {
        machine.step(&engine);
    }
    while engine.background_pending() > 0 {
        machine.step(&engine);
    }
    engine.close().unwrap();
    machine.end(engine, Crash::Kill);
    let counted = Arc::new(Counted {
        inner: machine.device.clone(),
        reads: AtomicU64::new(0),
        together: AtomicU64::new(0),
    });
    let store = Store::open(counted.clone(), &StoreSettings::default()).unwrap();
    let engine = Lsm::open(&store, REGION, &machine.windows, &machine.settings, None).unwrap();
    machine.store = Some(store);
    (machine, counted, engine)
}

/// Gets `count` keys together. Returns the requests to the device, and the reads among them that were
/// asked for one by one.
fn get(counted: &Counted, engine: &Lsm, from: u64, count: u64, value_len: usize) -> (u64, u64) {
    let before = (
        counted.together.load(Ordering::Relaxed),
        counted.reads.load(Ordering::Relaxed),
    );
    let keys: Vec<_> = (from..from + count).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let found = engine.get_many(&keys).unwrap();
    for (number, found) in (from..).zip(found) {
        let expected = number.to_le_bytes().repeat(value_len / 8 + 1);
        assert_eq!(found.value, Some(expected), "{number}");
    }
    (
        counted.together.load(Ordering::Relaxed) - before.0,
        counted.reads.load(Ordering::Relaxed) - before.1,
    )
}

#[test]
fn leaves_are_read_by_one_request() {
    let settings = Settings {
        cache_bytes: 1 << 20,
        ..tiny()
    };
    let (_machine, counted, engine) = loaded(settings, 20_000, 40);
    // The first keys open segments, too.
    get(&counted, &engine, 0, 2000, 40);
    let misled = engine.stats().filter_misled;
    let read_bytes = counted.counters().read_bytes;
    let (requests, alone) = get(&counted, &engine, 5000, 64, 40);
    assert!(counted.counters().read_bytes > read_bytes, "it was read");
    assert_eq!(alone, 0);
    // One, and one for each key whose filter was wrong, at most.
    assert!(
        requests <= 1 + engine.stats().filter_misled - misled,
        "{requests}"
    );
}

#[test]
fn values_in_the_log_are_read_by_another_request() {
    let settings = Settings {
        cache_bytes: 1 << 20,
        ..tiny()
    };
    let (_machine, counted, engine) = loaded(settings, 3000, 2000);
    get(&counted, &engine, 0, 500, 2000);
    let misled = engine.stats().filter_misled;
    let (requests, alone) = get(&counted, &engine, 1500, 64, 2000);
    assert_eq!(alone, 0);
    assert!(
        requests <= 2 + engine.stats().filter_misled - misled,
        "{requests}"
    );
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
                assert_eq!(together.lsn, alone.lsn);
                assert!(seen == alone.value, "seed {seed}");
            }
        }
    }
}
