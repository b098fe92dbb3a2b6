//! A merge that is given up, since what it reads is damaged or the device is full: what it dropped is forgotten with
//! it. The next merge drops the same pointers, and a log segment to which others lead stays.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::judge::{Pairs, problems};
use crate::common::{Machine, tiny};
use argosy_base::{AddressMode, SegmentNumber};
use argosy_device::{Crash, Purpose};
use argosy_engine::conformance::Host;
use argosy_engine::{EngineError, Store, WriteBatch, WriteOptions};
use argosy_lsm::inspect::contents::{Content, contents};
use argosy_lsm::inspect::recount;
use argosy_lsm::names::logs::LARGE_LOG;
use argosy_lsm::{Lsm, Mutants, Placement, Settings};

/// Keys, in three segments of the last level or so.
const KEYS: u64 = 1500;

/// Why a merge is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Because {
    Damaged,
    Full,
}

/// All values lie in the large log, levels are merged when they are asked to be, all at once, in many steps, and what
/// an edit frees is not looked up before.
fn settings(addresses: AddressMode, count_twice: bool) -> Settings {
    tiny().with(|of| {
        of.layout.addresses = addresses;
        of.mutants = Mutants {
            count_twice,
            ..Mutants::default()
        };
        of.values.placement = Placement::Separated;
        of.check_frees = false;
        of.cache_bytes = 0;
        of.layout.segment_bytes = 32 << 10;
        of.layout.window_bytes = 16 << 10;
        of.levels.l1_runs = 60;
        of.levels.l1_runs_max = 80;
        of.levels.part_bytes = 1 << 30;
        of.levels.step_bytes = 4096;
        of.space.floor_bytes = Some(1 << 30);
    })
}

/// Long, and not alike.
fn key(number: u64) -> Vec<u8> {
    let digits = [1, 2, 3].map(|n| (number + n).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ n));
    let [a, b, c] = digits;
    format!("{number:06}{a:016x}{b:016x}{c:016x}").into_bytes()
}

struct Rig {
    machine: Machine,
    engine: Lsm,
    model: Pairs,
}

impl Rig {
    /// All keys are in one level.
    fn new(settings: Settings) -> Self {
        let mut machine = Machine::new(settings, 1024, 3);
        let engine = machine.open();
        let mut rig = Self {
            machine,
            engine,
            model: Pairs::new(),
        };
        for number in 0..KEYS {
            rig.put(key(number), b'a');
        }
        rig.engine.compact_now();
        rig.rest();
        rig
    }

    fn step(&mut self) {
        self.machine.step(&self.engine);
    }

    fn rest(&mut self) {
        self.step();
        while self.engine.is_compacting() || self.engine.background_pending() > 0 {
            self.step();
        }
    }

    /// All values are equally long.
    fn put(&mut self, key: Vec<u8>, fill: u8) {
        let value = vec![fill; 1000];
        let mut batch = WriteBatch::new();
        batch.put(&key, &value).unwrap();
        while let Err(error) = self.engine.write(&batch, WriteOptions::default()) {
            assert!(matches!(error, EngineError::Busy(_)), "{error}");
            self.step();
        }
        self.model.insert(key, value);
        self.step();
    }

    /// Of each log segment with an even number of keys, half of the keys. A merge that counts their pointers twice
    /// takes the whole segment for garbage.
    fn halves(&self) -> Vec<Vec<u8>> {
        let version = self.engine.version();
        let log = version.log(LARGE_LOG).iter();
        let sealed = log.filter(|entry| entry.segment.end.is_some());
        let mut halves = Vec::new();
        for number in sealed.map(|entry| entry.segment.number) {
            let mut keys = Vec::new();
            let _ = contents(&version, number, &self.machine.settings, &mut |content| {
                if let Content::Record(_, record) = content
                    && self.model.contains_key(record.key)
                {
                    keys.push(record.key.to_vec());
                }
                ControlFlow::Continue(())
            });
            if keys.len().is_multiple_of(2) {
                halves.extend(keys.drain(..keys.len() / 2));
            }
        }
        halves
    }

    /// Damages, or mends, the last segment of the last level, which a merge of all keys comes to last.
    fn flip_last(&self) -> SegmentNumber {
        let version = self.engine.version();
        let (_, run) = version.runs().last().unwrap();
        let last = run.segments.iter().next_back().unwrap();
        for at in (0..self.machine.settings.layout.segment_bytes as u64).step_by(256) {
            let start = last.stored.place().start();
            self.machine.device.flip_bit(start + at + 30, 3);
        }
        last.segment.number
    }

    /// Takes all room that merges have while one is under way, until that is given up.
    fn fill_while_merging(&mut self) {
        let merges = |rig: &Self| rig.engine.space_in_words().contains("compacting: true");
        while !merges(self) {
            self.step();
        }
        let store = self.machine.store.clone().unwrap();
        let mut taken = Vec::new();
        while let Ok(segment) = store.allocate(Purpose::Merge) {
            taken.push(segment);
        }
        while merges(self) {
            self.step();
        }
    }

    /// What is wrong with the pairs that the engine shows.
    fn wrong(&self) -> Vec<String> {
        let named = |key: &[u8]| key[..6].escape_ascii().to_string();
        let wrong = self.model.iter().filter_map(|(key, value)| {
            let found = self.engine.get(key);
            match found.map(|found| found.value) {
                Ok(found) if found.as_ref() == Some(value) => None,
                Ok(_) => Some(format!("{} has another value", named(key))),
                Err(error) => Some(format!("{}: {error}", named(key))),
            }
        });
        wrong.collect()
    }
}

/// Overwrites half of the keys. A merge of all keys is given up, and the next merges end. Returns what is wrong then.
fn wrong_after(because: Because, settings: Settings) -> (Rig, Vec<String>) {
    let mut rig = Rig::new(settings);
    let halves = rig.halves();
    assert!(halves.len() > 300, "{}", halves.len());
    for key in halves {
        rig.put(key, b'b');
    }
    rig.engine.freeze_now();
    rig.rest();
    let before = rig.engine.stats().work.compactions;
    match because {
        Because::Damaged => {
            let damaged = rig.flip_last();
            rig.engine.compact_now();
            rig.rest();
            assert!(rig.engine.stats().damage.merges_passed > 0);
            assert_eq!(rig.flip_last(), damaged, "merges passed over it");
            rig.engine.damages().repaired(damaged);
        }
        Because::Full => {
            rig.engine.compact_now();
            rig.fill_while_merging();
        }
    }
    rig.rest();
    let merges = rig.engine.stats().work.compactions - before;
    assert!(merges > 1, "the first of {merges} was given up");
    let wrong = rig.wrong();
    (rig, wrong)
}

fn ways() -> impl Iterator<Item = (Because, AddressMode)> {
    let ways = [Because::Damaged, Because::Full];
    ways.into_iter()
        .flat_map(|because| AddressMode::ALL.map(|addresses| (because, addresses)))
}

#[test]
fn what_a_merge_dropped_that_was_given_up_counts_once() {
    for (because, addresses) in ways() {
        let what = format!("{because:?}, {addresses}");
        let (mut rig, wrong) = wrong_after(because, settings(addresses, false));
        assert_eq!(wrong, [""; 0], "{what}");
        assert_eq!(recount(&rig.engine.version()).unwrap(), [], "{what}");
        rig.machine.assert_no_leak(&rig.engine);
        // And again, after it was opened anew.
        rig.engine.close().unwrap();
        rig.machine.end(rig.engine, Crash::PowerLoss);
        let told = problems(&rig.machine.device, &rig.machine.settings);
        assert_eq!(told, [""; 0], "{what}");
        rig.engine = rig.machine.open();
        assert_eq!(rig.wrong(), [""; 0], "{what}");
    }
}

/// The planted mistake: log segments in which half of the values live are freed.
#[test]
fn what_is_counted_twice_is_lost() {
    for (because, addresses) in ways() {
        let (_, wrong) = wrong_after(because, settings(addresses, true));
        let what = format!("{because:?}, {addresses}: {} wrong", wrong.len());
        assert!(wrong.len() > 50, "{what}");
    }
}

/// [`settings`] with which each record of what an edit frees is looked up before.
fn looking_up(addresses: AddressMode, count_twice: bool) -> Settings {
    settings(addresses, count_twice).with(|of| of.check_frees = true)
}

#[test]
fn what_is_counted_twice_is_found_before_it_is_freed() {
    for (because, addresses) in ways() {
        let settings = looking_up(addresses, true);
        let ended = catch_unwind(AssertUnwindSafe(|| wrong_after(because, settings)));
        let what = format!("{because:?}, {addresses}");
        let panic = ended.err().unwrap_or_else(|| panic!("{what}: not found"));
        let said = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(said.starts_with("I1: "), "{what}: {said}");
    }
}

#[test]
fn what_is_counted_right_is_freed_although_it_is_looked_up() {
    for (because, addresses) in ways() {
        let what = format!("{because:?}, {addresses}");
        let (mut rig, wrong) = wrong_after(because, looking_up(addresses, false));
        assert_eq!(wrong, [""; 0], "{what}");
        let before = rig.engine.version();
        for number in 0..KEYS {
            rig.put(key(number), b'c');
        }
        rig.engine.freeze_now();
        rig.rest();
        rig.engine.compact_now();
        rig.rest();
        // Those keys are in newer segments now, whose records the same levels point to.
        let after = rig.engine.version();
        let log = before.log(LARGE_LOG).iter();
        let numbers = log.map(|entry| entry.segment.number);
        let freed = numbers.filter(|number| after.log_segment(*number).is_none());
        assert!(freed.count() > 10, "{what}");
        assert_eq!(rig.wrong(), [""; 0], "{what}");
    }
}
