//! Sorted runs of L1 run up while nothing reads, and are merged once reads trigger that.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use crate::common::{Machine, tiny, tiny_whole};
use argosy_base::{Direction, KeyRange};
use argosy_engine::conformance::Host;
use argosy_engine::{Store, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};

const RUNS: u64 = 5;
const PAIRS: u64 = 200;

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

/// An engine with so many runs in L1, all over the same keys, and nothing else; at rest.
fn with_runs(settings: Settings) -> (Machine, Lsm) {
    let settings = settings.with(|of| {
        of.levels.l1_runs = 8;
        of.levels.l1_runs_max = 10;
    });
    let mut machine = Machine::new(settings, 1024, 1);
    let engine = machine.open();
    for run in 0..RUNS {
        for number in 0..PAIRS {
            let mut batch = WriteBatch::new();
            batch.put(key(number * RUNS + run), [7; 20]).unwrap();
            engine.write(&batch, WriteOptions::default()).unwrap();
        }
        assert!(engine.freeze_now());
        rest(&mut machine, &engine);
    }
    assert_eq!(runs(&engine), [RUNS]);
    (machine, engine)
}

fn rest(machine: &mut Machine, engine: &Lsm) {
    machine.step(engine);
    while engine.background_pending() > 0 {
        machine.step(engine);
    }
}

/// Sorted runs of each level that has some.
fn runs(engine: &Lsm) -> Vec<u64> {
    let levels = engine.stats().levels;
    let runs = levels.iter().map(|level| level.runs as u64);
    runs.filter(|runs| *runs > 0).collect()
}

fn segment_bytes(engine: &Lsm) -> u64 {
    let levels = engine.stats().levels;
    levels.iter().map(|level| level.bytes).sum()
}

#[test]
fn gets_trigger_a_merge() {
    for settings in [tiny(), tiny_whole()] {
        let (mut machine, engine) = with_runs(settings);
        let price = segment_bytes(&engine);
        let mut gets = 0;
        while runs(&engine) == [RUNS] {
            for number in 0..100 {
                let found = engine.get(&key(number * 7 % (PAIRS * RUNS))).unwrap();
                assert!(found.value.is_some());
            }
            gets += 100;
            rest(&mut machine, &engine);
            assert!(gets < 100_000, "it is merged at some time");
        }
        // One get looks at a filter of each newer run: two of five on average, 64 bytes each, and of
        // these four in five count.
        let least = price / (RUNS * 64);
        assert!(
            gets >= least,
            "{gets} gets triggered a merge of {price} bytes"
        );
        assert!(runs(&engine).iter().all(|runs| *runs == 1));
        let merged = engine.stats().work.compactions;
        for number in 0..PAIRS * RUNS {
            assert!(engine.get(&key(number)).unwrap().value.is_some());
        }
        rest(&mut machine, &engine);
        assert_eq!(
            engine.stats().work.compactions,
            merged,
            "one run costs nothing"
        );
    }
}

#[test]
fn scans_trigger_a_merge() {
    let (mut machine, engine) = with_runs(tiny());
    let price = segment_bytes(&engine);
    let mut scans = 0;
    while runs(&engine) == [RUNS] {
        let range = KeyRange::new(key(scans), None);
        let mut scan = engine.snapshot().scan(&range, Direction::Up).unwrap();
        assert_eq!(scan.next().unwrap().unwrap().0, key(scans));
        scans += 1;
        rest(&mut machine, &engine);
    }
    // A scan begins in a leaf of each run, at 16 looks of 32 bytes, and at its 512 bytes if these are
    // not in the cache.
    let least = scans * (RUNS - 1) * 16 * 32;
    assert!(
        2 * least >= price && least < 2 * price,
        "{scans} scans, {price} bytes"
    );
    assert_eq!(runs(&engine), [1]);
}

/// A merge writes all of L2 again, so it is worth more runs where L2 is long.
#[test]
fn more_runs_are_awaited_while_l2_is_long() {
    const FLUSHES: u64 = 80;
    let settings = tiny_whole().with(|of| {
        of.levels.l1_runs = 6;
        of.levels.l1_runs_max = 12;
        of.levels.growth_factor = 16;
    });
    let mut machine = Machine::new(settings, 1024, 1);
    let engine = machine.open();
    // How many runs L1 had, each time that it was merged.
    let (mut merged, mut before) = (Vec::new(), 0);
    for flush in 0..FLUSHES {
        for number in 0..PAIRS {
            let mut batch = WriteBatch::new();
            batch.put(key(number * FLUSHES + flush), [7; 20]).unwrap();
            engine.write(&batch, WriteOptions::default()).unwrap();
        }
        assert!(engine.freeze_now());
        rest(&mut machine, &engine);
        let runs = engine.stats().levels[0].runs;
        if runs <= before {
            assert_eq!(runs, 0);
            merged.push(before + 1);
        }
        before = runs;
    }
    assert_eq!(merged[0], 6, "{merged:?}");
    assert_eq!(merged[merged.len() - 3..], [8; 3], "{merged:?}");
    assert!(merged.is_sorted(), "{merged:?}");
}
