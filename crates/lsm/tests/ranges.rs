//! Ranges of keys that are removed: what that costs, and that their space comes back.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use crate::common::{Machine, tiny};
use argosy_base::{Direction, KeyRange};
use argosy_engine::conformance::Host;
use argosy_engine::long::LongWriter;
use argosy_engine::{BusyReason, EngineError, Expiry, Store, WriteBatch, WriteOptions};
use argosy_lsm::db::Stats;
use argosy_lsm::names::logs::LARGE_LOG;
use argosy_lsm::{Compaction, Lsm, Settings};

/// Steps after which what has not happened does not happen any more.
const PATIENCE: usize = 20_000;

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn rest(machine: &mut Machine, engine: &Lsm) {
    let mut still = 0;
    while still < 100 {
        let busy = machine.step(engine) || engine.background_pending() > 0;
        still = if busy { 0 } else { still + 1 };
    }
}

fn compact(machine: &mut Machine, engine: &Lsm) {
    engine.compact_now();
    while engine.is_compacting() {
        machine.step(engine);
    }
}

fn write(machine: &mut Machine, engine: &Lsm, batch: &WriteBatch) -> Result<(), BusyReason> {
    let mut reason = BusyReason::Memtable;
    for _ in 0..PATIENCE {
        match engine.write(batch, WriteOptions::default()) {
            Ok(_) => return Ok(()),
            Err(EngineError::Busy(why)) => reason = why,
            Err(error) => panic!("{error}"),
        }
        machine.step(engine);
    }
    Err(reason)
}

fn put(machine: &mut Machine, engine: &Lsm, number: u64, len: usize) -> Result<(), BusyReason> {
    let mut batch = WriteBatch::new();
    batch.put(key(number), vec![b'.'; len]).unwrap();
    write(machine, engine, &batch)
}

fn delete_range(machine: &mut Machine, engine: &Lsm, range: &KeyRange) {
    let mut batch = WriteBatch::new();
    batch.delete_range(range).unwrap();
    write(machine, engine, &batch).unwrap();
}

/// Bytes of sealed segments of the large log.
fn logged(engine: &Lsm) -> u64 {
    let logs = engine.stats().logs;
    let large = logs.iter().filter(|log| log.log == LARGE_LOG);
    large.map(|log| log.bytes).sum()
}

fn count(engine: &Lsm) -> usize {
    let snapshot = engine.snapshot();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    std::iter::from_fn(|| scan.next().unwrap()).count()
}

fn ways() -> [Settings; 2] {
    let whole = tiny().with(|of| of.levels.compaction = Compaction::WholeLevel);
    [tiny(), whole]
}

/// Nothing is read and nothing merged for it, whatever the range holds; only a memtable that is nearly
/// empty is flushed.
#[test]
fn a_large_range_frees_its_segments_without_a_merge() {
    for settings in ways() {
        let whole = settings.levels.compaction == Compaction::WholeLevel;
        let mut machine = Machine::new(settings, 2048, 5);
        let engine = machine.open();
        for number in 0..3000 {
            let len = [20, 300, 2000][usize::try_from(number % 3).unwrap()];
            put(&mut machine, &engine, number, len).unwrap();
        }
        compact(&mut machine, &engine);
        rest(&mut machine, &engine);
        let before = engine.stats();
        let segments = engine.device_segments();
        delete_range(&mut machine, &engine, &KeyRange::new(key(10), None));
        assert_eq!(count(&engine), 10, "what the memtable shadows");
        assert!(engine.freeze_now());
        rest(&mut machine, &engine);
        assert_eq!(count(&engine), 10);
        let after = engine.stats();
        // Garbage collection may have another one flushed.
        assert!(after.work.flushes - before.work.flushes <= 2);
        assert!(
            after.work.compactions - before.work.compactions <= 2,
            "one segment is left of which little lives"
        );
        let read = after.work.read_bytes - before.work.read_bytes;
        assert!(read <= 128 << 10, "{read} bytes read");
        let entries = |stats: &Stats| stats.levels.iter().map(|level| level.entries).sum::<u64>();
        assert_eq!(entries(&before), 3000);
        // How much of a segment of a tree is left only the tree's index could tell: it waits for a merge.
        let left = after.levels.iter().map(|level| level.segments);
        assert_eq!(
            (entries(&after) == 10, left.sum::<usize>()),
            if whole { (false, 4) } else { (true, 1) }
        );
        let logged: u64 = after.logs.iter().map(|log| log.bytes).sum();
        assert!(
            whole || logged <= 128 << 10,
            "{logged} bytes of logs are left"
        );
        assert!(engine.device_segments() < segments);
    }
}

/// Ranges inside of segments: the rest of these is merged once it is little, or has many bounds.
#[test]
fn small_ranges_give_their_space_back_in_merges() {
    let mut machine = Machine::new(tiny(), 2048, 6);
    let engine = machine.open();
    for number in 0..4000 {
        put(&mut machine, &engine, number, 40).unwrap();
    }
    compact(&mut machine, &engine);
    rest(&mut machine, &engine);
    let entries = |engine: &Lsm| -> u64 {
        let levels = engine.stats().levels;
        levels.iter().map(|level| level.entries).sum()
    };
    assert_eq!(entries(&engine), 4000);
    for number in (0..4000).step_by(10) {
        let range = KeyRange::new(key(number), Some(key(number + 9)));
        delete_range(&mut machine, &engine, &range);
    }
    engine.freeze_now();
    rest(&mut machine, &engine);
    assert_eq!(count(&engine), 400);
    let now = entries(&engine);
    assert!(
        now < 1000,
        "{now} entries are left; {:?}",
        engine.stats().levels
    );
}

/// A device that is full takes ranges to be removed, and has room by that.
#[test]
fn a_range_empties_a_full_device() {
    for settings in ways() {
        let mut machine = Machine::new(settings, 96, 7);
        let engine = machine.open();
        let mut number = 0;
        while put(&mut machine, &engine, number, 700).is_ok() {
            number += 1;
            assert!(number < 100_000, "the device fills");
        }
        delete_range(
            &mut machine,
            &engine,
            &KeyRange::new(key(0), Some(key(number / 2))),
        );
        let more = number / 4;
        for number in number..number + more {
            put(&mut machine, &engine, number, 700).unwrap();
        }
        let left = number - number / 2 + more;
        assert_eq!(count(&engine), usize::try_from(left).unwrap());
    }
}

/// A few keys may hold most of a device: what ranges took of a segment is found out, and what it still points to
/// beyond that is given back.
#[test]
fn what_small_ranges_took_is_not_kept_beyond_the_bound() {
    for settings in ways() {
        let bound = |live: u64| live * 3 / 2 + settings.space_floor();
        let mut machine = Machine::new(settings.clone(), 2048, 9);
        let engine = machine.open();
        for number in 0..4500 {
            put(&mut machine, &engine, number, 2000).unwrap();
        }
        compact(&mut machine, &engine);
        for number in (0..4500).step_by(150) {
            let range = KeyRange::new(key(number + 1), Some(key(number + 81)));
            delete_range(&mut machine, &engine, &range);
        }
        engine.freeze_now();
        rest(&mut machine, &engine);
        let live = 2100 * 2006;
        let taken = logged(&engine);
        assert!(taken <= bound(live), "{taken} bytes, of which {live} live");
        assert_eq!(count(&engine), 2100);
    }
}

/// What the estimate of keys knows: ranges in memtables, and that parts of long values are none, in memtables and
/// in segments.
#[test]
fn keys_are_counted_without_parts_and_what_ranges_shadow() {
    for settings in ways() {
        let mut machine = Machine::new(settings, 2048, 7);
        let engine = machine.open();
        let flush = |machine: &mut Machine| {
            engine.freeze_now();
            rest(machine, &engine);
        };
        for number in 0..100 {
            put(&mut machine, &engine, number, 40).unwrap();
        }
        let mut batch = WriteBatch::new();
        for number in 0..5 {
            let bytes = vec![7; 50];
            let mut writer = LongWriter::new(&key(200 + number), 500, number.into()).unwrap();
            writer = writer.in_parts_of(50);
            while writer.next_bytes().is_some() {
                writer.part(&bytes, &mut batch);
                write(&mut machine, &engine, &batch).unwrap();
            }
            batch.clear();
            writer.head(Expiry::Never, &mut batch);
            write(&mut machine, &engine, &batch).unwrap();
        }
        assert_eq!(engine.count_estimate(), 105);
        flush(&mut machine);
        assert_eq!(engine.count_estimate(), 105);
        put(&mut machine, &engine, 300, 40).unwrap();
        delete_range(&mut machine, &engine, &KeyRange::new(key(250), None));
        put(&mut machine, &engine, 400, 40).unwrap();
        assert_eq!(
            engine.count_estimate(),
            106,
            "what was written since counts"
        );
        delete_range(&mut machine, &engine, &KeyRange::all());
        assert_eq!(engine.count_estimate(), 0, "before it is flushed");
        flush(&mut machine);
        assert_eq!(engine.count_estimate(), 0);
        put(&mut machine, &engine, 1, 40).unwrap();
        assert_eq!(engine.count_estimate(), 1);
    }
}
