//! Garbage collection of the large log: what is overwritten is given back, what lives is moved and
//! stays what it was, for whoever looks, whenever it is looked at.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeMap;

use crate::common::{Machine, tiny};
use argosy_base::{AddressMode, Direction, KeyRange};
use argosy_device::Crash;
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{BusyReason, EngineError, Snapshot, Store, WriteBatch, WriteOptions};
use argosy_lsm::{Compaction, Lsm, Settings};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Segments of the device: a few times what lives.
const SEGMENTS: u64 = 96;
const KEYS: u64 = 400;
const VALUE_BYTES: u64 = 4000;

fn settings() -> Settings {
    tiny().with(|of| {
        of.memtables.log_bytes = 128 << 10;
        of.layout.window_slots = 8;
    })
}

struct Rig {
    machine: Machine,
    engine: Option<Lsm>,
    model: Pairs,
    choices: Choices,
    /// The device was full so often.
    refused: u64,
}

impl Rig {
    fn new(settings: Settings, seed: u64) -> Self {
        let mut machine = Machine::new(settings, SEGMENTS, seed);
        let engine = machine.open();
        Self {
            machine,
            engine: Some(engine),
            model: Pairs::new(),
            choices: Choices::new(seed),
            refused: 0,
        }
    }

    fn engine(&self) -> &Lsm {
        self.engine.as_ref().unwrap()
    }

    fn step(&mut self) -> bool {
        let engine = self.engine.take().unwrap();
        let moved = self.machine.step(&engine);
        self.engine = Some(engine);
        moved
    }

    fn rest(&mut self) {
        let mut still = 0;
        while still < 100 {
            let moved = self.step();
            let busy = moved || self.engine().background_pending() > 0;
            still = if busy { 0 } else { still + 1 };
        }
    }

    fn write(&mut self, batch: &WriteBatch) {
        for _ in 0..50_000 {
            match self.engine().write(batch, WriteOptions::default()) {
                Ok(_) => return,
                Err(EngineError::Busy(BusyReason::DeviceFull)) => self.refused += 1,
                Err(EngineError::Busy(_)) => {}
                Err(error) => panic!("{error}"),
            }
            self.step();
        }
        panic!("no room: {:#?}", self.engine().stats());
    }

    /// Writes one random pair, and now and then deletes one.
    fn put(&mut self) {
        let key = format!("key{:05}", self.choices.below(KEYS)).into_bytes();
        let mut batch = WriteBatch::new();
        if self.choices.chance(3) {
            batch.delete(&key).unwrap();
            self.write(&batch);
            self.model.remove(&key);
            return;
        }
        let len = if self.choices.chance(1) { 10 } else { 1 };
        let len = len * (1000 + self.choices.below(VALUE_BYTES - 1000));
        let fill = self.choices.bits().to_le_bytes();
        let value: Vec<u8> = (0..len).map(|i| fill[(i % 8) as usize]).collect();
        batch.put(&key, &value).unwrap();
        self.write(&batch);
        self.model.insert(key, value);
    }

    fn compare(&self, what: &str) {
        compare(&*self.engine().snapshot(), &self.model, what);
    }

    fn restart(&mut self, crash: Crash) {
        let engine = self.engine.take().unwrap();
        self.machine.end(engine, crash);
        self.engine = Some(self.machine.open());
    }

    fn live(&self) -> u64 {
        let pairs = self.model.iter();
        pairs
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum()
    }

    fn used(&self) -> u64 {
        let used = self.machine.store.as_ref().unwrap().used();
        u64::from(used) * self.machine.settings.layout.segment_bytes as u64
    }
}

fn pairs(snapshot: &dyn Snapshot) -> Pairs {
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    let mut found = Pairs::new();
    while let Some((key, value)) = scan.next().unwrap() {
        found.insert(key, value);
    }
    found
}

fn compare(snapshot: &dyn Snapshot, expected: &Pairs, what: &str) {
    let found = pairs(snapshot);
    let differs = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
    let wrong: Vec<_> = expected
        .keys()
        .chain(found.keys())
        .filter(differs)
        .collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

/// All ways to store values behind pointers.
fn ways() -> [Settings; 3] {
    [
        settings(),
        settings().with(|of| of.layout.addresses = AddressMode::Rewrite),
        settings().with(|of| of.levels.compaction = Compaction::WholeLevel),
    ]
}

/// Bytes of what is not part of a version yet, or will not be for much longer: what a flush and a merge write,
/// and, where pointers hold places, a batch of victims that wait for merges.
fn in_flight(settings: &Settings) -> u64 {
    let segment = settings.layout.segment_bytes as u64;
    let flush = (settings.memtables.bytes + settings.memtables.bytes / 8) as u64 / segment + 2;
    // A part, and one segment more at either end of it in each level.
    let merge = 2 * (settings.levels.part_bytes / segment + 2);
    let victims = match settings.layout.addresses {
        AddressMode::Logical => 0,
        AddressMode::Rewrite => settings.space_floor(),
    };
    (flush + merge) * segment + victims
}

#[test]
fn what_is_overwritten_does_not_fill_the_device() {
    for (seed, settings) in (1..).zip(ways()) {
        // Segments of logs that are declared before they are needed are in it.
        let logs = settings.memtables.log_bytes_max() + settings.layout.windows_bytes() as u64;
        let floor = settings.space_floor() + logs;
        let in_flight = in_flight(&settings);
        let mut rig = Rig::new(settings, seed);
        let mut most = 0;
        for n in 0..8000 {
            rig.put();
            for _ in 0..rig.choices.below(8) {
                rig.step();
            }
            most = most.max(rig.used());
            let bound = rig.live() / 2 * 3 + floor + in_flight;
            assert!(
                rig.used() <= bound,
                "write {n}: {} {bound}: {:#?}",
                rig.used(),
                rig.engine().stats()
            );
            if n % 500 == 0 {
                rig.compare("on the way");
            }
        }
        rig.rest();
        rig.compare("at rest");
        let engine = rig.engine();
        let stats = engine.stats();
        rig.machine.assert_no_leak(engine);
        assert!(stats.gc.moved > 100, "{stats:#?}");
        let bound = rig.live() / 2 * 3 + floor;
        assert!(rig.used() <= bound, "{} {bound}: {stats:#?}", rig.used());
        assert_eq!(rig.refused, 0, "most {most}, bound {bound}: {stats:#?}");
        // And once more from what is on the device.
        rig.restart(Crash::PowerLoss);
        rig.compare("opened again");
        rig.rest();
        rig.compare("opened again, at rest");
        rig.machine.assert_no_leak(rig.engine());
    }
}

#[test]
fn snapshots_keep_their_view_while_values_move() {
    let mut rig = Rig::new(settings(), 5);
    for _ in 0..3000 {
        rig.put();
        rig.step();
    }
    let moved = rig.engine().stats().gc.moved;
    let snapshot = rig.engine().snapshot();
    let seen = rig.model.clone();
    for _ in 0..150 {
        rig.put();
        for _ in 0..20 {
            rig.step();
        }
    }
    assert!(rig.engine().stats().gc.moved > moved);
    compare(&*snapshot, &seen, "the snapshot");
    drop(snapshot);
    rig.rest();
    rig.compare("at rest");
    rig.machine.assert_no_leak(rig.engine());
}

/// A value that is written again between the look at it and its move stays as it was written.
#[test]
fn a_move_loses_against_a_write() {
    let run = |mutant: bool| {
        let mut settings = settings();
        settings.mutants.move_unconditionally = mutant;
        let mut rig = Rig::new(settings, 6);
        let mut same = true;
        for n in 0..6000 {
            rig.put();
            rig.step();
            if n % 100 == 0 {
                same &= pairs(&*rig.engine().snapshot()) == rig.model;
            }
        }
        (same, rig.engine().stats().gc.lost)
    };
    let (same, lost) = run(false);
    assert!(same && lost > 0, "{lost}");
    assert!(!run(true).0, "the mistake is seen");
}

/// On a device that is too small for the bound, garbage is collected all the same.
#[test]
fn garbage_is_collected_on_a_full_device() {
    let settings = settings().with(|of| of.space.floor_bytes = Some(1 << 40));
    let mut rig = Rig::new(settings, 7);
    for _ in 0..4000 {
        rig.put();
        rig.step();
    }
    rig.rest();
    rig.compare("at rest");
    let stats = rig.engine().stats();
    assert!(stats.gc.moved > 0, "{stats:#?}");
    rig.restart(Crash::Kill);
    rig.compare("after a kill");
    rig.machine.assert_no_leak(rig.engine());
}

/// How much of what levels point to is overwritten is known about, before a merge has found it: neither are new
/// keys taken for such that shadow something, nor is anything forgotten.
#[test]
fn what_lives_is_known_before_merges_find_it() {
    const PAIRS: u64 = 1500;
    const BYTES: u64 = 1000;
    for (seed, settings) in (1..).zip(ways()) {
        let settings = settings.with(|of| {
            of.space.floor_bytes = Some(1 << 30);
            of.levels.l1_runs = 60;
            of.levels.l1_runs_max = 80;
        });
        let mut machine = Machine::new(settings.clone(), 1024, seed);
        let engine = machine.open();
        let mut choices = Choices::new(seed);
        for round in 0..4 {
            for number in 0..PAIRS {
                // New keys first, then some of them again.
                let number = if round == 0 {
                    number
                } else {
                    choices.below(PAIRS)
                };
                let key = format!("key{number:05}").into_bytes();
                let mut batch = WriteBatch::new();
                batch.put(&key, [round; 1000]).unwrap();
                while engine.write(&batch, WriteOptions::default()).is_err() {
                    machine.step(&engine);
                }
                machine.step(&engine);
            }
            while engine.background_pending() > 0 {
                machine.step(&engine);
            }
            let stats = engine.stats();
            let runs: usize = stats.levels.iter().map(|level| level.runs).sum();
            assert!(
                runs > 10 * (usize::from(round) + 1),
                "{runs} runs, none merged"
            );
            let levels: u64 = stats.levels.iter().map(|level| level.bytes).sum();
            let values = stats.space.live_bytes - levels;
            let close = PAIRS * BYTES / 10 * 9..PAIRS * BYTES / 10 * 11;
            assert!(close.contains(&values), "{values} bytes, round {round}");
        }
        machine.end(engine, Crash::Kill);
    }
}
