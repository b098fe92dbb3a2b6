//! A device without room: writers are told, readers and deletes go on, nothing is lost, and once
//! something was deleted there is room again with nobody's help.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Machine, random_settings, tiny};
use argosy_device::{Crash, Purpose};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{BusyReason, EngineError, Store, WriteBatch, WriteOptions};
use argosy_lsm::{Compaction, Lsm, Mutants, Placement, Settings};

/// Steps after which what has not happened does not happen any more.
const PATIENCE: usize = 20_000;

/// An engine on a small device, and what it has to hold.
struct Rig {
    machine: Machine,
    engine: Option<Lsm>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    written: u64,
    /// Steps until the next kill, if there are any, and who decides how many the next life has.
    lives: Option<(u64, Choices)>,
    kills: u64,
}

/// [`tiny`], but with leaves large enough that pairs of a few hundred bytes lie in them.
fn in_leaves() -> Settings {
    tiny().with(|of| {
        of.layout.node_bytes = 4096;
        of.layout.window_slots = 4;
        of.values.placement = Placement::InPlace;
    })
}

/// Both ways of compaction.
fn ways() -> [Settings; 2] {
    let whole = in_leaves().with(|of| of.levels.compaction = Compaction::WholeLevel);
    [in_leaves(), whole]
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

impl Rig {
    fn new(settings: Settings, segments: u64, seed: u64) -> Self {
        let mut machine = Machine::new(settings, segments, seed);
        let engine = machine.open();
        Self {
            machine,
            engine: Some(engine),
            model: BTreeMap::new(),
            written: 0,
            lives: None,
            kills: 0,
        }
    }

    fn engine(&self) -> &Lsm {
        self.engine.as_ref().expect("it is open")
    }

    /// A step, or a kill and a new start.
    fn step(&mut self) {
        match &mut self.lives {
            Some((0, choices)) => {
                // Some lives are long enough to get something done.
                let long = if choices.below(4) == 0 { 1000 } else { 40 };
                let steps = choices.below(long);
                self.lives.as_mut().expect("just seen").0 = steps;
                self.kills += 1;
                return self.restart(Crash::Kill);
            }
            Some((steps, _)) => *steps -= 1,
            None => {}
        }
        let engine = self.engine.take().expect("it is open");
        self.machine.step(&engine);
        self.engine = Some(engine);
    }

    fn restart(&mut self, crash: Crash) {
        let engine = self.engine.take().expect("it is open");
        self.machine.end(engine, crash);
        self.engine = match self.machine.try_open() {
            Ok(engine) => Some(engine),
            Err(error) => panic!("a full region does not open: {error}"),
        };
    }

    /// Writes, stepping until there is room. The reason where there is none.
    fn write(&mut self, batch: &WriteBatch) -> Result<(), BusyReason> {
        let mut reason = None;
        for _ in 0..PATIENCE {
            match self.engine().write(batch, WriteOptions::default()) {
                Ok(_) => return Ok(()),
                Err(EngineError::Busy(why)) => reason = Some(why),
                Err(error) => panic!("{error}"),
            }
            self.step();
        }
        Err(reason.expect("it was refused at least once"))
    }

    fn put(&mut self, number: u64, len: usize) -> Result<(), BusyReason> {
        self.written += 1;
        let mut value = format!("{}-", self.written).into_bytes();
        value.resize(len.max(value.len()), b'.');
        let mut batch = WriteBatch::new();
        batch.put(key(number), &value).unwrap();
        self.write(&batch)?;
        self.model.insert(key(number), value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) {
        let mut batch = WriteBatch::new();
        batch.delete(key).unwrap();
        if let Err(reason) = self.write(&batch) {
            panic!(
                "a delete was refused: {reason:?}; {:?}",
                self.engine().stats()
            );
        }
        self.model.remove(key);
    }

    /// Writes until the device is full; returns how many pairs that took.
    fn fill(&mut self, len: usize) -> u64 {
        for number in 0.. {
            match self.put(number, len) {
                Ok(()) => {}
                Err(reason) => {
                    assert_eq!(reason, BusyReason::DeviceFull);
                    return number;
                }
            }
        }
        unreachable!("a device ends")
    }

    fn check(&self) {
        for (key, value) in &self.model {
            let found = self.engine().get(key).unwrap().value;
            assert_eq!(
                found.as_ref(),
                Some(value),
                "{}",
                String::from_utf8_lossy(key)
            );
        }
        let snapshot = self.engine().snapshot_of_all();
        let (all, up) = (argosy_base::KeyRange::all(), argosy_base::Direction::Up);
        let mut scan = snapshot.scan(&all, up).unwrap();
        let mut model = self.model.iter();
        while let Some((key, value)) = scan.next().unwrap() {
            assert_eq!(Some((&key, &value)), model.next());
        }
        assert_eq!(model.next(), None);
    }

    /// Deletes half of the keys, scattered ones or the first, then writes half as many as these:
    /// segments are packed only where that wins a quarter of them.
    fn empty_and_fill(&mut self, choices: &mut Choices, scattered: bool, len: usize) {
        let keys: Vec<_> = self.model.keys().cloned().collect();
        let half = keys.len() / 2;
        let doomed: Vec<_> = if scattered {
            keys.iter()
                .filter(|_| choices.below(2) == 0)
                .cloned()
                .collect()
        } else {
            keys[..half].to_vec()
        };
        for key in &doomed {
            self.delete(key);
        }
        self.check();
        let room = doomed.len() as u64 / 2;
        for number in 0..room {
            if let Err(reason) = self.put(1_000_000 + self.written, len) {
                panic!(
                    "{} deleted, {number} written: {reason:?}; {:?}",
                    doomed.len(),
                    self.engine().stats()
                );
            }
        }
        self.check();
    }
}

#[test]
fn a_full_device_turns_writers_away_and_nobody_else() {
    for settings in ways() {
        let mut rig = Rig::new(settings, 64, 1);
        let written = rig.fill(400);
        assert!(written > 1000, "{written}");
        for crash in [Crash::Kill, Crash::PowerLoss, Crash::Kill] {
            rig.check();
            rig.engine().close().unwrap();
            rig.restart(crash);
        }
        // Opening takes from the reserve, but not more each time.
        for _ in 0..100 {
            rig.restart(Crash::Kill);
        }
        rig.check();
        rig.delete(&key(0));
    }
}

#[test]
fn deletes_make_room() {
    for (seed, settings) in (1..3).flat_map(|seed| ways().map(|settings| (seed, settings))) {
        let mut choices = Choices::new(seed);
        let mut rig = Rig::new(settings, 64, seed);
        assert!(rig.fill(400) > 1000);
        for round in 0..4 {
            rig.empty_and_fill(&mut choices, round % 2 == 0, 400);
            rig.fill(400);
        }
    }
}

#[test]
fn deletes_make_room_in_the_large_log() {
    let settings = tiny().with(|of| of.values.placement = Placement::Separated);
    let mut choices = Choices::new(7);
    let mut rig = Rig::new(settings, 120, 7);
    rig.fill(2000);
    // Segments of the log go as a whole: in the order in which they were written.
    for _ in 0..2 {
        rig.empty_and_fill(&mut choices, false, 2000);
        rig.fill(2000);
    }
}

#[test]
fn overwrites_make_room() {
    for settings in ways() {
        let mut rig = Rig::new(settings, 64, 5);
        // Half of what fits, again and again: what is shadowed is found before writers are turned away.
        let mut choices = Choices::new(5);
        let fits = rig.fill(400);
        for number in 0..fits {
            rig.delete(&key(number));
        }
        for _ in 0..3 * fits {
            let number = choices.below(fits / 2);
            if let Err(reason) = rig.put(number, 400) {
                panic!("{reason:?}: {:?}", rig.engine().stats());
            }
        }
        rig.check();
    }
}

/// Five short runs of L1 on a device with one free segment: no merge may take it, packing may. Returns how many
/// segments are left of the five.
fn segments_left_of_short_runs(settings: Settings) -> usize {
    let settings = settings.with(|of| {
        of.levels.l1_runs = 8;
        of.levels.l1_runs_max = 12;
    });
    let mut rig = Rig::new(settings, 100, 6);
    for _ in 0..5 {
        for number in 0..20 {
            rig.put(number, 100).unwrap();
        }
        let engine = rig.engine.take().unwrap();
        rig.machine.settle(&engine);
        rig.engine = Some(engine);
    }
    let segments = |rig: &Rig| -> usize {
        let levels = rig.engine().stats().levels;
        levels.iter().map(|level| level.segments).sum()
    };
    assert_eq!(segments(&rig), 5);

    let store = Arc::clone(rig.machine.store.as_ref().unwrap());
    let mut taken = Vec::new();
    while store.room().free > 1 {
        taken.push(store.allocate(Purpose::Metadata).unwrap());
    }
    for _ in 0..PATIENCE {
        rig.step();
    }
    let left = segments(&rig);
    let free = store.room().free as usize;
    assert!(free > 5 - left, "{left} segments are left, {free} are free");
    rig.check();
    drop(taken);
    left
}

#[test]
fn runs_of_l1_become_one_where_merges_have_no_room() {
    for settings in ways() {
        assert_eq!(segments_left_of_short_runs(settings), 1);
    }
}

/// The test above notices when nothing is packed.
#[test]
fn runs_that_are_not_packed_are_found() {
    for settings in ways() {
        let mutants = Mutants {
            skip_packing: true,
            ..Mutants::default()
        };
        assert_eq!(
            segments_left_of_short_runs(settings.with(|of| of.mutants = mutants)),
            5
        );
    }
}

/// Kills after few steps or many, whatever is under way, with many settings.
#[test]
fn kills_on_a_full_device_lose_nothing() {
    let mut kills = 0;
    for seed in 0..8 {
        let mut choices = Choices::new(100 + seed);
        let settings = random_settings(&mut choices).with(|of| {
            of.layout.node_bytes = 4096;
            of.layout.window_slots = 4;
            of.values.placement = Placement::InPlace;
        });
        let mut rig = Rig::new(settings, 64, seed);
        rig.lives = Some((0, Choices::new(seed)));
        rig.fill(300);
        rig.check();
        rig.empty_and_fill(&mut choices, seed % 2 == 0, 300);
        kills += rig.kills;
    }
    assert!(kills > 500, "{kills}");
}
