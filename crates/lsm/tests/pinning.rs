//! Indexes and filters within the cache's budget: more of them than may be pinned, and all of them.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use crate::common::{Machine, tiny};
use argosy_base::{Direction, KeyRange};
use argosy_device::Crash;
use argosy_engine::conformance::Host;
use argosy_engine::{Store, WriteBatch, WriteOptions};
use argosy_lsm::Lsm;

/// Pairs so small that filters and indexes are a good part of the data.
const PAIRS: u64 = 40_000;

fn key(number: u64) -> Vec<u8> {
    format!("{:06}", number * 7 % PAIRS).into_bytes()
}

/// An engine with all pairs in its levels, opened again with a cache of `cache_bytes`.
fn loaded(cache_bytes: usize) -> (Machine, Lsm) {
    let mut machine = Machine::new(tiny(), 512, 1);
    let engine = machine.open();
    let mut written = 0;
    while written < PAIRS {
        let mut batch = WriteBatch::new();
        batch.put(key(written), written.to_le_bytes()).unwrap();
        match engine.write(&batch, WriteOptions::default()) {
            Ok(_) => written += 1,
            Err(_) => drop(machine.step(&engine)),
        }
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
        .with(|of| of.cache_bytes = cache_bytes);
    let engine = machine.open();
    (machine, engine)
}

fn read_all(engine: &Lsm) {
    for number in 0..PAIRS {
        let found = engine.get(&key(number)).unwrap().value;
        assert_eq!(found, Some(number.to_le_bytes().to_vec()), "{number}");
        let cache = engine.stats().cache;
        assert!(
            cache.bytes + cache.pinned_bytes <= cache.budget,
            "{cache:?}"
        );
    }
}

#[test]
fn what_fits_is_pinned_and_read_once() {
    let (_machine, engine) = loaded(8 << 20);
    read_all(&engine);
    let first = engine.stats();
    let segments: usize = first.levels.iter().map(|level| level.segments).sum();
    assert!(segments > 10, "{segments}");
    assert_eq!(
        first.cache.reader.misses, segments as u64,
        "each opened once"
    );
    assert_eq!((first.cache.reader.hits, first.cache.pins_refused), (0, 0));
    assert!(first.cache.pinned_bytes > 50_000, "{:?}", first.cache);
    read_all(&engine);
    assert_eq!(engine.stats().cache.reader.misses, segments as u64);
}

#[test]
fn what_does_not_fit_goes_through_the_cache() {
    let (_machine, engine) = loaded(8 << 20);
    read_all(&engine);
    let all = engine.stats().cache.pinned_bytes;
    drop(engine);

    // Pins may take three quarters of the budget: here, half of what there is to pin.
    let budget = usize::try_from(all).unwrap() / 2 * 4 / 3;
    let (_machine, engine) = loaded(budget);
    read_all(&engine);
    let cache = engine.stats().cache;
    assert_eq!(cache.budget, budget as u64);
    assert!(cache.pinned_bytes <= all / 2, "{cache:?}");
    assert!(cache.pinned_bytes > all / 4, "{cache:?}");
    assert!(cache.pins_refused > 0, "{cache:?}");
    let segments: usize = engine.stats().levels.iter().map(|l| l.segments).sum();
    assert!(
        cache.reader.misses > segments as u64,
        "some were read again: {cache:?}"
    );

    // With no budget at all everything is read each time, and right.
    let (_machine, engine) = loaded(0);
    read_all(&engine);
    let cache = engine.stats().cache;
    assert_eq!((cache.bytes, cache.pinned_bytes), (0, 0));
}

/// A page of a range costs what it returns: as many leaves and segments from the one end as from the
/// other, and in the middle, however many pairs the range has.
#[test]
fn a_page_costs_the_same_from_either_end() {
    let all = KeyRange::all();
    let half = |number: u64| format!("{number:06}").into_bytes();
    let above = KeyRange::new(half(PAIRS / 2), None);
    let below = KeyRange::new(half(0), Some(half(PAIRS / 2)));
    for (range, direction, first) in [
        (&all, Direction::Up, 0),
        (&all, Direction::Down, PAIRS - 1),
        (&above, Direction::Up, PAIRS / 2),
        (&below, Direction::Down, PAIRS / 2 - 1),
    ] {
        let (_machine, engine) = loaded(8 << 20);
        let snapshot = engine.snapshot();
        let mut scan = snapshot.scan(range, direction).unwrap();
        for pair in 0..100 {
            let expected = match direction {
                Direction::Up => first + pair,
                Direction::Down => first - pair,
            };
            let (found, _) = scan.next().unwrap().unwrap();
            assert_eq!(found, half(expected));
        }
        let (levels, cache) = (engine.stats().levels, engine.stats().cache);
        let runs: usize = levels.iter().map(|level| level.runs).sum();
        let segments: usize = levels.iter().map(|level| level.segments).sum();
        assert!(segments > 10, "{segments}");
        // The page may go on in the next segment of a run.
        assert!(
            cache.reader.misses <= runs as u64 + 1,
            "{direction:?}: {cache:?}"
        );
        let leaves = cache.leaf.hits + cache.leaf.misses;
        assert!(
            leaves <= 8 * runs as u64,
            "{direction:?}: {leaves} leaves of {runs} runs"
        );
    }
}

/// What a snapshot pins of memtables that became runs long ago comes off the cache, and goes back to it.
#[test]
fn the_cache_gives_way_to_memtables_that_a_snapshot_keeps() {
    let (mut machine, engine) = loaded(1 << 20);
    read_all(&engine);
    let full = engine.stats().cache.bytes;
    // What the region consists of is charged, too.
    let charged = |engine: &Lsm| {
        let cache = engine.stats().cache;
        cache.charged_bytes - engine.memory().versions
    };
    assert_eq!(charged(&engine), 0);
    let mut snapshots = Vec::new();
    for round in 0..6_u64 {
        snapshots.push(engine.snapshot());
        let mut batch = WriteBatch::new();
        for number in 0..100 {
            batch.put(key(number), [7; 64]).unwrap();
        }
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
        while !engine.freeze_now() {
            machine.step(&engine);
        }
        while engine.stats().work.flushes <= round {
            machine.step(&engine);
        }
    }
    while engine.background_pending() > 0 {
        machine.step(&engine);
    }
    machine.step(&engine);
    let cache = engine.stats().cache;
    let memtables = charged(&engine);
    assert!(memtables > 4 << 16, "{cache:?}");
    assert!(
        cache.bytes < full - (4 << 16),
        "{cache:?}, and {full} before"
    );
    let taken = cache.bytes + cache.pinned_bytes + cache.charged_bytes;
    assert!(taken <= cache.budget, "{cache:?}");
    assert!(engine.memory().memtables >= memtables);

    drop(snapshots);
    machine.step(&engine);
    // What is done meanwhile changes what the region consists of.
    while engine.background_pending() > 0 {
        machine.step(&engine);
    }
    machine.step(&engine);
    assert_eq!(charged(&engine), 0);
}
