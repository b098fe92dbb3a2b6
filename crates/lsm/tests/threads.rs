//! Readers, two writers and the background in threads of their own.
//!
//! Every value says which write it is from, and each writer, which has every second key, says how far it is, so that
//! a reader knows what it must find at least. Batches write two keys together, which no snapshot may see apart. Both
//! writers add to one number.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::tiny;
use argosy_base::{Direction, Instant, KeyRange, RegionId, SEGMENT_SIZE, ServerId};
use argosy_device::{Device, FormatOptions, MemoryDevice, Store, StoreSettings};
use argosy_engine::conformance::Choices;
use argosy_engine::{Change, EngineError, Snapshot, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};
use argosy_memory::AnonymousWindows;

const KEYS: u64 = 500;
const ROUNDS: u64 = 60;
const WRITERS: u64 = 2;

/// The number to which both writers add one after each round.
const SUM: &[u8] = b"c";

fn engine(settings: &Settings) -> (Arc<Store>, Lsm) {
    let device = MemoryDevice::eager(1024 * SEGMENT_SIZE as u64, 1);
    let options = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(1),
        created_by: "test".to_owned(),
    };
    Store::format(&device, &options).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    let windows = AnonymousWindows::new();
    let lsm = Lsm::open(&store, RegionId(1), &windows, settings, None).unwrap();
    (store, lsm)
}

fn key(name: char, number: u64) -> Vec<u8> {
    format!("{name}{number:06}").into_bytes()
}

/// The write's number, and bytes that follow from it; sometimes long enough for the large log.
fn value(write: u64) -> Vec<u8> {
    let len = if write.is_multiple_of(7) { 700 } else { 40 };
    let mut value = format!("{write:010}").into_bytes();
    value.resize(len, write.to_le_bytes()[0]);
    value
}

fn write_of(found: &[u8]) -> u64 {
    let write = std::str::from_utf8(&found[..10]).unwrap().parse().unwrap();
    assert!(found == value(write), "a value is whole");
    write
}

#[test]
fn readers_see_whole_batches_while_everything_moves() {
    let (store, engine) = engine(&tiny());
    // How many rounds of each writer are over: its key n then holds at least write `round * KEYS + n`.
    let rounds: [AtomicU64; 2] = Default::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut now = 0;
            while !done.load(Ordering::Acquire) {
                now += 1_000_000;
                if !engine.step(Instant::from_nanos(now)).unwrap().made {
                    std::thread::yield_now();
                }
            }
        });
        for reader in 0..2u64 {
            let (engine, rounds, done) = (&engine, &rounds, &done);
            scope.spawn(move || {
                let mut choices = Choices::new(reader);
                while !done.load(Ordering::Acquire) {
                    let number = choices.below(KEYS);
                    let before = rounds[of_writer(number)].load(Ordering::Acquire);
                    let found = engine.get(&key('a', number)).unwrap().value;
                    if before > 0 {
                        let write = write_of(&found.expect("it was written"));
                        assert_eq!(write % KEYS, number);
                        assert!(write / KEYS + 1 >= before, "nothing goes back");
                    }
                    if choices.chance(5) {
                        pairs_agree(engine, all_rounds(rounds));
                    }
                }
            });
        }
        {
            let (engine, rounds, done) = (&engine, &rounds, &done);
            scope.spawn(move || a_snapshot_stays(engine, rounds, done));
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (engine, rounds) = (&engine, &rounds);
                scope.spawn(move || write_all(engine, rounds, writer))
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer");
        }
        done.store(true, Ordering::Release);
    });
    pairs_agree(&engine, ROUNDS);
    let sum = engine.get(SUM).unwrap().value;
    assert_eq!(sum, Some((WRITERS * ROUNDS).to_string().into_bytes()));
    // What the readers met of the levels was for the scheduler to say. Now keys that are not there are
    // between others, and leaves are read twice.
    for number in 0..KEYS {
        let absent = [&key('a', number)[..], b"x"].concat();
        assert_eq!(engine.get(&absent).unwrap().value, None);
        for _ in 0..2 {
            let found = engine.get(&key('b', number)).unwrap().value;
            write_of(&found.expect("it was written"));
        }
    }
    let stats = engine.stats();
    assert!(
        stats.work.flushes > 10 && stats.work.compactions > 3,
        "{stats:?}"
    );
    assert!(stats.filters.spared > stats.filters.misled, "{stats:?}");
    assert!(
        stats.cache.leaf.hits > 0 && stats.log_work.write_bytes > 0,
        "{stats:?}"
    );
    drop(engine);
    drop(store);
}

/// Which writer has key `number`.
fn of_writer(number: u64) -> usize {
    usize::from(number % WRITERS == 1)
}

/// The rounds that both have ended.
fn all_rounds(rounds: &[AtomicU64; 2]) -> u64 {
    let each = rounds.iter().map(|rounds| rounds.load(Ordering::Acquire));
    each.min().expect("there are two")
}

/// Every round of a writer.
fn write_all(engine: &Lsm, rounds: &[AtomicU64; 2], writer: u64) {
    for round in 0..ROUNDS {
        for number in (0..KEYS).filter(|number| number % WRITERS == writer) {
            let mut batch = WriteBatch::new();
            let value = value(round * KEYS + number);
            batch.put(key('a', number), &value).unwrap();
            batch.put(key('b', number), &value).unwrap();
            write(engine, &batch);
        }
        let mut batch = WriteBatch::new();
        batch.change(SUM, Change::Add(1), b"").unwrap();
        write(engine, &batch);
        rounds[of_writer(writer)].store(round + 1, Ordering::Release);
    }
}

fn write(engine: &Lsm, batch: &WriteBatch) {
    while let Err(error) = engine.write(batch, WriteOptions::default()) {
        assert!(matches!(error, EngineError::Busy(_)), "{error}");
        std::thread::yield_now();
    }
}

/// What a snapshot showed when it was taken, it shows from the highest key down while everything it
/// saw is overwritten, flushed and compacted. One scan of it goes on all the while.
fn a_snapshot_stays(engine: &Lsm, rounds: &[AtomicU64; 2], done: &AtomicBool) {
    while all_rounds(rounds) < 2 {
        std::thread::yield_now();
    }
    let snapshot = engine.snapshot();
    let taken = writes_of(&*snapshot, Direction::Up);
    let mut slow = snapshot.scan(&KeyRange::all(), Direction::Down).unwrap();
    let mut slowly = Vec::new();
    while !done.load(Ordering::Acquire) {
        assert_eq!(writes_of(&*snapshot, Direction::Down), taken);
        let next = (0..5).map_while(|_| slow.next().unwrap());
        slowly.extend(next.filter_map(|(key, value)| (key != SUM).then(|| write_of(&value))));
    }
    while let Some((key, value)) = slow.next().unwrap() {
        slowly.extend((key != SUM).then(|| write_of(&value)));
    }
    slowly.reverse();
    assert_eq!(slowly, taken.concat());
}

/// The numbers of the writes that `snapshot` shows, of the first keys of batches and of the second.
fn writes_of(snapshot: &dyn Snapshot, direction: Direction) -> [Vec<u64>; 2] {
    let mut scan = snapshot.scan(&KeyRange::all(), direction).unwrap();
    let mut writes = [Vec::new(), Vec::new()];
    while let Some((key, value)) = scan.next().unwrap() {
        if key != SUM {
            writes[usize::from(key[0] - b'a')].push(write_of(&value));
        }
    }
    if direction == Direction::Down {
        writes.iter_mut().for_each(|writes| writes.reverse());
    }
    writes
}

/// In a snapshot, both keys of a batch have the same value, and all keys of a round are there; from
/// either end.
fn pairs_agree(engine: &Lsm, rounds: u64) {
    let snapshot = engine.snapshot();
    let [first, second] = writes_of(&*snapshot, Direction::Down);
    assert_eq!(
        writes_of(&*snapshot, Direction::Up),
        [first.clone(), second.clone()]
    );
    assert_eq!(first, second, "a batch is seen whole");
    if rounds > 0 {
        assert_eq!(first.len() as u64, KEYS);
        assert!(first.iter().all(|write| write / KEYS + 1 >= rounds));
    }
}
