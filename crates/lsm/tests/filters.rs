//! Filters, as lookups feel them: what is looked for in vain reads no leaf, nearly always; how often it does
//! is counted, and so is the memory for it.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use crate::common::{Machine, tiny, tiny_whole};
use argosy_engine::conformance::Host;
use argosy_engine::{Store, WriteBatch, WriteOptions};
use argosy_lsm::db::Stats;
use argosy_lsm::{Lsm, Settings};

/// Keys that are put; as many are looked for that are not there.
const KEYS: u64 = 20_000;

/// Key `number`: those that are put have even numbers.
fn key(number: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = spread.to_le_bytes().to_vec();
    key.extend(number.to_le_bytes());
    key
}

fn put(machine: &mut Machine, engine: &Lsm, key: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put(key, b"a value of twenty-two.").unwrap();
    while engine.write(&batch, WriteOptions::default()).is_err() {
        machine.step(engine);
    }
}

/// Levels and runs that an engine with many keys has, and some more of them in its memtable.
fn loaded(settings: &Settings) -> (Machine, Lsm) {
    let mut machine = Machine::new(settings.clone(), 1024, 3);
    let engine = machine.open();
    for number in 0..KEYS {
        put(&mut machine, &engine, &key(2 * number));
    }
    machine.settle(&engine);
    // Runs of L1 above what has settled.
    while engine.stats().levels[0].runs + 1 < settings.levels.l1_runs {
        for number in 0..200 {
            put(&mut machine, &engine, &key(200 * number));
        }
        machine.settle(&engine);
    }
    for number in 0..100 {
        put(&mut machine, &engine, &key(2 * number));
    }
    (machine, engine)
}

/// Leaves that lookups asked for, whether the cache had them or not.
fn leaves(stats: &Stats) -> u64 {
    stats.cache.leaf.hits + stats.cache.leaf.misses
}

fn kinds() -> [Settings; 2] {
    [tiny(), tiny_whole()].map(|settings| {
        settings.with(|of| {
            of.levels.l1_runs = 4;
            of.cache_bytes = 1 << 20;
        })
    })
}

#[test]
fn of_keys_that_are_not_there_one_in_a_hundred_reads_a_leaf_at_most() {
    for settings in kinds() {
        let (_machine, engine) = loaded(&settings);
        let before = engine.stats();
        let runs: Vec<_> = before.levels.iter().map(|level| level.runs).collect();
        assert!(runs.len() >= 3, "{runs:?}");
        assert!(runs.iter().sum::<usize>() >= 4, "{runs:?}");
        for number in 0..KEYS {
            let found = engine.get(&key(2 * number + 1)).unwrap();
            assert_eq!(found.value, None);
        }
        let after = engine.stats();
        let touched = leaves(&after) - leaves(&before);
        assert!(
            touched * 100 <= KEYS,
            "{touched} leaves for {KEYS}, of {runs:?}"
        );
        // What the filters let pass is what was read, but for keys that no key of the segment is above.
        let misled = after.filters.misled - before.filters.misled;
        assert!(
            (touched..=touched + touched / 8).contains(&misled),
            "{misled}"
        );
        let spared = after.filters.spared - before.filters.spared;
        let asked = KEYS * runs.iter().sum::<usize>() as u64;
        assert!(
            spared > KEYS && spared + misled <= asked,
            "{spared} of {asked}"
        );
    }
}

#[test]
fn a_key_that_is_in_a_memtable_asks_no_filter() {
    for settings in kinds() {
        let (_machine, engine) = loaded(&settings);
        let before = engine.stats();
        assert!(before.memtables.entries >= 100);
        for number in 0..100 {
            assert!(engine.get(&key(2 * number)).unwrap().value.is_some());
        }
        let after = engine.stats();
        assert_eq!(leaves(&after), leaves(&before));
        let filters = |stats: &Stats| (stats.filters.spared, stats.filters.misled);
        assert_eq!(filters(&after), filters(&before));
    }
}

#[test]
fn the_memory_for_filters_is_counted() {
    for settings in kinds() {
        let (mut machine, engine) = loaded(&settings);
        machine.close(engine);
        // Once with room to pin them, and once with so little that they come and go.
        for cache_bytes in [1 << 20, 24 << 10] {
            machine.settings = settings.clone().with(|of| of.cache_bytes = cache_bytes);
            let engine = machine.open();
            let opened = engine.stats();
            assert_eq!(opened.filters.bytes, 0, "nothing was asked for yet");
            for number in 0..KEYS {
                assert_eq!(engine.get(&key(2 * number + 1)).unwrap().value, None);
            }
            let stats = engine.stats();
            let (entries, segments) = stats.levels.iter().fold((0, 0), |(e, s), level| {
                (e + level.entries, s + level.segments as u64)
            });
            let taken = stats.cache.pinned_bytes + stats.cache.bytes;
            assert!(
                stats.filters.bytes > 0 && stats.filters.bytes <= taken,
                "{stats:?}"
            );
            if cache_bytes == 1 << 20 {
                assert!(stats.filters.bytes >= entries * 12 / 8, "{stats:?}");
                assert!(
                    stats.filters.bytes <= entries * 22 / 8 + 64 * segments,
                    "{stats:?}"
                );
            }
            machine.close(engine);
        }
    }
}
