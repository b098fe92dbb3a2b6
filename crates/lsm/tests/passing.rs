//! Levels of which something cannot be read: merges pass over it and say so, writing goes on, and all that can be
//! read stays right.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{AddressMode, LogKind, SegmentNumber};
use argosy_device::{Buffer, Crash};
use argosy_engine::conformance::Host;
use argosy_engine::{Engine, EngineError, WriteBatch, WriteOptions};
use argosy_lsm::repair::{Repair, RepairError, wanted};
use argosy_lsm::{Lsm, Settings};
use common::{Machine, mixed, tiny, tiny_whole};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn worlds() -> impl Iterator<Item = (u64, Settings)> {
    let modes = AddressMode::ALL.into_iter().enumerate();
    modes.flat_map(|(at, addresses)| {
        let seed = 2 * at as u64;
        [(seed, tiny()), (seed + 1, tiny_whole())].map(|(seed, settings)| {
            let settings = Settings {
                addresses,
                cache_bytes: 0,
                ..mixed(settings)
            };
            (seed, settings)
        })
    })
}

/// Puts pair `number`, of one of four sizes.
fn write(machine: &mut Machine, engine: &Lsm, model: &mut Model, number: u64) {
    let key = format!("{:06}", number * 7919 % 3000).into_bytes();
    let len = [20, 80, 100, 1500][usize::try_from(number % 4).unwrap()];
    let mut value = format!("{number}-").into_bytes();
    value.resize(len, b'v');
    let mut batch = WriteBatch::new();
    batch.put(&key, &value).unwrap();
    loop {
        match engine.write(&batch, WriteOptions::default()) {
            Ok(_) => break,
            Err(EngineError::Busy(_)) => {
                machine.step(engine);
            }
            Err(error) => panic!("{error}"),
        }
    }
    model.insert(key, value);
    machine.step(engine);
}

/// Damages every block of a segment of each level, of one of the medium log, and of one of the large log. Returns
/// them, each with what another member would send of it.
fn hurt(machine: &Machine, engine: &Lsm) -> BTreeMap<SegmentNumber, Buffer> {
    let version = engine.version();
    let mut hurt = BTreeMap::new();
    let levels = version.runs().map(|(level, run)| (level, &run.segments));
    let mut chosen = BTreeMap::new();
    for (level, segments) in levels {
        let middle = &segments[segments.len() / 2];
        chosen.entry(level).or_insert(middle);
    }
    let medium = version.medium_log().values().next();
    let finished = chosen.into_values().chain(medium);
    let log = version.log(LogKind::Large).iter();
    let log = log.filter(|entry| entry.segment.end.is_some_and(|end| end > 4096));
    let numbers = finished.map(|entry| entry.segment.number);
    let numbers = numbers.chain(log.take(1).map(|entry| entry.segment.number));
    for number in numbers {
        let part = wanted(&version, number).unwrap();
        let bytes = engine.read_segment(number, (part.from, part.to), std::iter::empty());
        let start = version.stored(number).unwrap().place().start();
        for at in (0..u64::from(part.to)).step_by(256) {
            machine.device.flip_bit(start + at + 30, 3);
        }
        hurt.insert(number, bytes.unwrap().unwrap());
    }
    hurt
}

#[test]
fn merges_pass_over_what_cannot_be_read() {
    for (seed, settings) in worlds() {
        let mut machine = Machine::new(settings.clone(), 2048, seed);
        let engine = machine.open();
        let mut model = Model::new();
        for number in 0..1500 {
            write(&mut machine, &engine, &mut model, number);
        }
        machine.settle(&engine);
        let hurt = hurt(&machine, &engine);
        let before = engine.stats();
        // Every write is taken, and levels are merged as before.
        for number in 1500..6000 {
            write(&mut machine, &engine, &mut model, number);
        }
        machine.settle(&engine);
        let stats = engine.stats();
        assert!(stats.flushes > before.flushes + 20, "seed {seed}");
        assert!(stats.compactions > before.compactions + 5, "seed {seed}");
        assert!(stats.damage.merges_passed > 0, "seed {seed}");
        assert!(stats.damage.merges_passed < 20, "{:?}", stats.damage);
        let runs = stats.levels.first().map_or(0, |level| level.runs);
        assert!(runs <= 3 * settings.l1_runs_max, "seed {seed}: {runs} runs");
        let found: BTreeSet<_> = engine
            .damages()
            .take_new()
            .iter()
            .map(|d| d.number)
            .collect();
        assert!(
            !found.is_empty() && found.iter().all(|number| hurt.contains_key(number)),
            "{found:?}, {:?}",
            hurt.keys()
        );
        assert!(engine.damages().take_new().is_empty());
        let errors = assert_right(&engine, &model, &format!("seed {seed}"));
        assert!(errors < 1500, "seed {seed}: {errors} errors");
        // And again, after it was opened anew.
        machine.end(engine, Crash::Kill);
        let engine = machine.open();
        assert_right(&engine, &model, &format!("seed {seed}, again"));
        for number in 6000..6500 {
            write(&mut machine, &engine, &mut model, number);
        }
        assert_right(&engine, &model, &format!("seed {seed}, on"));
        machine.close(engine);
    }
}

/// Each key of `model` has its value, or an error. Returns how many have an error.
fn assert_right(engine: &Lsm, model: &Model, what: &str) -> usize {
    let mut errors = 0;
    for number in 0..3000 {
        let key = format!("{number:06}").into_bytes();
        match engine.get(&key) {
            Ok(found) => assert_eq!(found.value.as_ref(), model.get(&key), "{what}: {number}"),
            Err(EngineError::Corrupt { .. } | EngineError::Device(_)) => errors += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    errors
}

/// A store in which something is damaged that reads have met.
fn damaged(
    settings: &Settings,
    seed: u64,
) -> (Machine, Lsm, Model, BTreeMap<SegmentNumber, Buffer>) {
    let mut machine = Machine::new(settings.clone(), 2048, seed);
    let engine = machine.open();
    let mut model = Model::new();
    for number in 0..1500 {
        write(&mut machine, &engine, &mut model, number);
    }
    machine.settle(&engine);
    let hurt = hurt(&machine, &engine);
    assert_right(&engine, &model, "damaged");
    assert!(!engine.damages().is_empty());
    (machine, engine, model, hurt)
}

fn repair(machine: &mut Machine, engine: &Lsm, number: SegmentNumber, bytes: &Buffer) {
    let (version, settings) = (engine.version(), engine.settings());
    let Some(part) = wanted(&version, number) else {
        return;
    };
    assert_eq!((part.from, part.to as usize), (0, bytes.len()));
    let repair = Repair::begin(&version, settings, number, Buffer::from_slice(bytes)).unwrap();
    loop {
        machine.step(engine);
        if let Some(done) = repair.poll(&engine.version(), settings, engine.damages()) {
            return done.unwrap();
        }
    }
}

#[test]
fn what_is_damaged_is_written_again_with_what_another_member_has() {
    for (seed, settings) in worlds() {
        let (mut machine, engine, mut model, hurt) = damaged(&settings, seed);
        for (number, bytes) in &hurt {
            // What is not the segment is refused, whatever it is.
            let (version, settings) = (engine.version(), engine.settings());
            let mut flipped = Buffer::from_slice(bytes);
            flipped[40] ^= 8;
            let others = hurt.values().filter(|other| !std::ptr::eq(*other, bytes));
            for wrong in std::iter::once(&flipped).chain(others) {
                let begun = Repair::begin(&version, settings, *number, Buffer::from_slice(wrong));
                let refused = matches!(begun, Err(RepairError::Wrong { .. }));
                assert!(refused, "seed {seed}: {number}");
            }
            repair(&mut machine, &engine, *number, bytes);
        }
        assert!(engine.damages().is_empty(), "{:?}", engine.damages());
        for number in 0..3000 {
            let key = format!("{number:06}").into_bytes();
            assert_eq!(engine.get(&key).unwrap().value.as_ref(), model.get(&key));
        }
        // Merges read it again.
        for number in 1500..3000 {
            write(&mut machine, &engine, &mut model, number);
        }
        machine.settle(&engine);
        assert_eq!(engine.stats().damage.merges_passed, 0, "seed {seed}");
        machine.close(engine);
    }
}

/// A loss of power at any request while segments are written again leaves each damaged or whole, and everything else
/// as it was.
#[test]
fn a_crash_while_something_is_written_again_harms_nothing() {
    let (mut ended, mut mended) = (0, 0);
    for (seed, settings) in worlds() {
        for requests in 0..3 {
            let (mut machine, engine, model, hurt) = damaged(&settings, seed);
            let version = engine.version();
            for (number, bytes) in &hurt {
                let bytes = Buffer::from_slice(bytes);
                drop(Repair::begin(&version, &settings, *number, bytes).unwrap());
            }
            for _ in 0..requests {
                ended += u32::from(machine.device.run_one());
            }
            drop(version);
            machine.end(engine, Crash::PowerLoss);
            let engine = machine.open();
            assert_right(
                &engine,
                &model,
                &format!("seed {seed}, {requests} requests"),
            );
            for (number, bytes) in &hurt {
                mended += u32::from(!engine.damages().list().iter().any(|d| d.number == *number));
                repair(&mut machine, &engine, *number, bytes);
            }
            for number in 0..3000 {
                let key = format!("{number:06}").into_bytes();
                assert_eq!(engine.get(&key).unwrap().value.as_ref(), model.get(&key));
            }
            while machine.step(&engine) || engine.background_pending() > 0 {}
            machine.assert_no_leak(&engine);
            machine.end(engine, Crash::Kill);
        }
    }
    assert!(ended > 4 && mended > 0, "{ended} requests, {mended} mended");
}
