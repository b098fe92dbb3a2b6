//! Values in parts: whoever sees one sees all of it, whatever comes between parts and head; and of parts that
//! no head names nothing is left.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Machine, REGION, random_settings, tiny};
use argosy_base::{Direction, Instant, KeyRange, Lsn};
use argosy_device::Crash;
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::long::{
    Head, LongReader, LongWriter, SweepPace, Sweeper, Versions, is_reserved, parts,
};
use argosy_engine::{Condition, EngineError, Expiry, Snapshot, Store, WriteBatch, WriteOptions};
use argosy_lsm::Lsm;
use argosy_lsm::db::promote::window_name;
use argosy_memory::{AnonymousWindows, WindowStore};

const SEGMENTS: u64 = 2048;
const PART: u32 = 1500;
const KEYS: u64 = 5;
const GRACE: Duration = Duration::from_secs(10);

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A value that is being written.
struct Writing {
    writer: LongWriter,
    key: Vec<u8>,
    value: Vec<u8>,
    at: usize,
}

/// What users see, and what is under way.
struct World {
    machine: Machine,
    engine: Lsm,
    choices: Choices,
    pairs: Pairs,
    /// What they saw from which LSN on.
    history: Vec<(Lsn, Pairs)>,
    held: Vec<(Box<dyn Snapshot>, Pairs)>,
    writing: Vec<Writing>,
    versions: Versions,
    sweeper: Sweeper,
    now: u64,
    refused: u32,
    durable: Lsn,
}

fn key(choices: &mut Choices) -> Vec<u8> {
    format!("key{}", choices.below(KEYS)).into_bytes()
}

fn bytes(choices: &mut Choices, len: u64) -> Vec<u8> {
    (0..len).map(|_| choices.bits().to_le_bytes()[0]).collect()
}

fn new_sweeper() -> Sweeper {
    let pace = SweepPace {
        every: Duration::from_secs(1),
        brief: GRACE,
        readers: GRACE,
        writers: GRACE,
    };
    Sweeper::new(pace, Arc::default())
}

/// What `key` is bound to, as users see it.
fn shown(engine: &Lsm, key: &[u8]) -> Option<Vec<u8>> {
    let found = engine.get(key).unwrap().value?;
    let Some(head) = Head::parse(&found) else {
        return Some(found);
    };
    let get = |keys: &[&[u8]]| -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        let found = engine.get_many(keys)?;
        Ok(found.into_iter().map(|found| found.value).collect())
    };
    Some(LongReader::new(head).whole(get).unwrap().unwrap())
}

fn all_shown(snapshot: &dyn Snapshot) -> Pairs {
    let range = argosy_engine::long::users(KeyRange::all());
    let mut scan = snapshot.scan(&range, Direction::Up).unwrap();
    let mut pairs = Pairs::new();
    while let Some((key, value)) = scan.next().unwrap() {
        let value = match Head::parse(&value) {
            Some(head) => {
                let value = LongReader::new(head).whole(|keys| snapshot.get_many(keys));
                value.unwrap().unwrap()
            }
            None => value,
        };
        pairs.insert(key, value);
    }
    pairs
}

fn parts_there(engine: &Lsm) -> usize {
    let snapshot = engine.snapshot();
    let mut scan = snapshot.scan(&parts(), Direction::Up).unwrap();
    let keys = std::iter::from_fn(|| scan.next().unwrap());
    keys.inspect(|(key, _)| assert!(is_reserved(key))).count()
}

/// The parts of what is bound now.
fn parts_wanted(engine: &Lsm) -> usize {
    let snapshot = engine.snapshot();
    let range = argosy_engine::long::users(KeyRange::all());
    let mut scan = snapshot.scan(&range, Direction::Up).unwrap();
    let mut count = 0;
    while let Some((_, value)) = scan.next().unwrap() {
        count += Head::parse(&value).map_or(0, |head| head.parts() as usize);
    }
    count
}

/// Passes until all that nobody wants has gone.
fn sweep_all(machine: &mut Machine, engine: &Lsm, sweeper: &mut Sweeper, now: u64) {
    let mut now = now;
    for _ in 0..400 {
        now += 200_000_000;
        sweeper
            .step(engine, Instant::from_nanos(now), false)
            .unwrap();
        machine.step(engine);
    }
    assert_eq!(parts_there(engine), parts_wanted(engine));
}

impl World {
    fn new(mut machine: Machine, seed: u64) -> Self {
        let engine = machine.open();
        Self {
            machine,
            engine,
            choices: Choices::new(seed),
            pairs: Pairs::new(),
            history: vec![(Lsn(0), Pairs::new())],
            held: Vec::new(),
            writing: Vec::new(),
            versions: Versions::new(u128::from(seed) << 64),
            sweeper: new_sweeper(),
            now: 0,
            refused: 0,
            durable: Lsn(0),
        }
    }

    /// Writes `batch`; `None`: there was no room, and nothing happened.
    fn write(&mut self, batch: &WriteBatch) -> Option<bool> {
        match self.engine.write(batch, WriteOptions::default()) {
            Ok(written) => Some(written.applied),
            Err(EngineError::Busy(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn wrote(&mut self, change: impl FnOnce(&mut Pairs)) {
        change(&mut self.pairs);
        let last = self.engine.last_lsn();
        self.history.push((last, self.pairs.clone()));
    }

    fn act(&mut self) {
        match self.choices.below(100) {
            0..8 => self.begin(),
            8..60 => self.go_on(),
            60..64 => self.put_short(),
            64..67 => self.remove(),
            67..69 if !self.writing.is_empty() => {
                let at = self.choices.below(self.writing.len() as u64);
                self.writing.swap_remove(usize::try_from(at).unwrap());
            }
            69..74 => {
                let key = key(&mut self.choices);
                assert!(shown(&self.engine, &key) == self.pairs.get(&key).cloned());
            }
            74..76 if self.held.len() < 3 => {
                let held = (self.engine.snapshot(), self.pairs.clone());
                self.held.push(held);
            }
            76..77 => {
                if let Some((snapshot, pairs)) = self.held.pop() {
                    assert!(all_shown(&*snapshot) == pairs, "a snapshot shows what was");
                }
            }
            77..90 => self.sweep(),
            _ => {
                self.machine.step(&self.engine);
            }
        }
    }

    fn sweep(&mut self) {
        // Sometimes much time passes at once.
        let span = self.choices.below(40);
        self.now += span * span * 20_000_000;
        let now = Instant::from_nanos(self.now);
        self.sweeper.step(&self.engine, now, false).unwrap();
    }

    fn begin(&mut self) {
        if self.writing.len() == 3 {
            return;
        }
        let key = key(&mut self.choices);
        let len = self.choices.below(u64::from(PART) * 6);
        let value = bytes(&mut self.choices, len);
        let writer = LongWriter::new(&key, len, self.versions.draw()).unwrap();
        self.writing.push(Writing {
            writer: writer.in_parts_of(PART),
            key,
            value,
            at: 0,
        });
    }

    fn go_on(&mut self) {
        if self.writing.is_empty() {
            return;
        }
        let at = self.choices.below(self.writing.len() as u64);
        let mut writing = self.writing.swap_remove(usize::try_from(at).unwrap());
        let mut batch = WriteBatch::new();
        match writing.writer.next_bytes() {
            Some(bytes) => {
                let part = writing.value[writing.at..writing.at + bytes].to_vec();
                writing.writer.part(&part, &mut batch);
                // Without room the writer gives up.
                if self.write(&batch).is_some() {
                    writing.at += bytes;
                    self.writing.push(writing);
                }
            }
            None => {
                writing.writer.head(Expiry::Never, &mut batch);
                match self.write(&batch) {
                    None => self.writing.push(writing),
                    Some(false) => self.refused += 1,
                    Some(true) => {
                        let Writing { key, value, .. } = writing;
                        self.wrote(|pairs| drop(pairs.insert(key, value)));
                    }
                }
            }
        }
    }

    fn put_short(&mut self) {
        let key = key(&mut self.choices);
        let mut batch = WriteBatch::new();
        batch.put(&key, b"short").unwrap();
        if self.write(&batch).is_some() {
            self.wrote(|pairs| drop(pairs.insert(key, b"short".to_vec())));
        }
    }

    fn remove(&mut self) {
        let key = key(&mut self.choices);
        let mut batch = WriteBatch::new();
        let range = match self.choices.below(3) {
            0 => KeyRange::new(key.clone(), None),
            1 => KeyRange::prefix(&key),
            _ => {
                batch.delete(&key).unwrap();
                KeyRange::prefix(&key)
            }
        };
        if batch.is_empty() {
            batch.delete_range(&range).unwrap();
        }
        if self.write(&batch).is_some() {
            self.wrote(|pairs| pairs.retain(|key, _| !range.contains(key)));
        }
    }

    /// What a crash at this moment leaves.
    fn crash(&mut self, crash: Crash, seed: u64) {
        self.durable = self.durable.max(self.engine.durable_lsn());
        let mut copy = Machine {
            device: Arc::new(self.machine.device.crash_clone(crash, seed)),
            windows: AnonymousWindows::new(),
            settings: self.machine.settings.clone(),
            store: None,
            choices: Choices::new(seed),
            now: 0,
        };
        if crash == Crash::Kill {
            for windows in self.engine.windows() {
                for slot in 0..self.machine.settings.layout.window_slots {
                    let name = window_name(REGION, windows.log(), slot);
                    let memory = windows.memory(slot);
                    let same = copy.windows.create(name, memory.len()).unwrap();
                    same.write(0, &memory.read_vec(0, memory.len()));
                }
            }
            copy.windows = copy.windows.restart();
        }
        let engine = copy.open();
        let last = engine.last_lsn();
        assert!(last >= self.durable, "what was durable stays");
        if crash == Crash::Kill {
            assert_eq!(last, self.engine.last_lsn(), "a kill loses nothing");
        }
        let seen = self.history.iter().rev().find(|(lsn, _)| *lsn <= last);
        let (_, pairs) = seen.unwrap();
        for number in 0..KEYS {
            let key = format!("key{number}").into_bytes();
            assert!(
                shown(&engine, &key) == pairs.get(&key).cloned(),
                "{crash:?}"
            );
        }
        assert!(all_shown(&*engine.snapshot()) == *pairs, "{crash:?}");
        sweep_all(&mut copy, &engine, &mut new_sweeper(), 0);
        assert!(
            all_shown(&*engine.snapshot()) == *pairs,
            "swept after {crash:?}"
        );
    }
}

fn run(machine: Machine, seed: u64, acts: u64, crash_every: u64) -> (u32, u64) {
    let mut world = World::new(machine, seed);
    for act in 1..=acts {
        world.act();
        if act % crash_every == 0 {
            let crash =
                [Crash::Kill, Crash::PowerLoss][usize::from((act / crash_every).is_multiple_of(2))];
            world.crash(crash, act);
        }
    }
    for number in 0..KEYS {
        let key = format!("key{number}").into_bytes();
        assert!(shown(&world.engine, &key) == world.pairs.get(&key).cloned());
    }
    for (snapshot, pairs) in std::mem::take(&mut world.held) {
        assert!(all_shown(&*snapshot) == pairs, "a snapshot shows what was");
    }
    let World {
        mut machine,
        engine,
        mut sweeper,
        now,
        ..
    } = world;
    sweep_all(&mut machine, &engine, &mut sweeper, now);
    (world.refused, sweeper.stats().swept)
}

#[test]
fn long_values_are_whole_whatever_comes_between() {
    let (mut refused, mut swept) = (0, 0);
    for seed in 0..12 {
        let machine = Machine::new(random_settings(&mut Choices::new(seed)), SEGMENTS, seed);
        let (r, s) = run(machine, seed, 3000, u64::MAX);
        refused += r;
        swept += s;
    }
    assert!(swept > 300, "{swept}");
    assert!(
        refused > 20,
        "the sweeper was faster than {refused} writers"
    );
}

#[test]
fn long_values_are_whole_after_crashes() {
    for seed in 100..104 {
        let machine = Machine::new(tiny(), SEGMENTS, seed);
        let (_, swept) = run(machine, seed, 2000, 23);
        assert!(swept > 20, "{swept}");
    }
}

/// More ranges than a memtable takes: where the engine is busy, the sweeper comes back to what it was at.
#[test]
fn a_pass_removes_all_that_is_due() {
    let mut machine = Machine::new(tiny(), SEGMENTS, 5);
    let engine = machine.open();
    let versions = Versions::new(9 << 64);
    let mut batch = WriteBatch::new();
    for number in 0..900 {
        let key = format!("key{number}").into_bytes();
        let mut writer = LongWriter::new(&key, 10, versions.draw()).unwrap();
        writer.part(&[7; 10], &mut batch);
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
    }
    machine.settle(&engine);
    let mut sweeper = new_sweeper();
    let mut pass = |from: Duration| {
        let passes = sweeper.stats().passes;
        let mut now = Instant::from_nanos(0) + from;
        while sweeper.stats().passes == passes {
            let wait = sweeper.step(&engine, now, false).unwrap();
            if wait != Some(Duration::ZERO) {
                machine.step(&engine);
                // It looks at nothing while the engine may still be busy.
                now = now + Duration::from_millis(1);
            }
        }
        sweeper.stats()
    };
    assert_eq!(pass(Duration::from_secs(1)).swept, 0);
    let stats = pass(GRACE * 2);
    assert_eq!((stats.swept, stats.versions), (900, 900));
    assert_eq!(parts_there(&engine), 0);
}

#[test]
fn one_of_real_length_is_written_beside_small_windows() {
    let mut machine = Machine::new(tiny(), SEGMENTS, 1);
    let engine = machine.open();
    let value = bytes(&mut Choices::new(1), 3 << 20);
    let mut writer = LongWriter::new(b"k", value.len() as u64, 1).unwrap();
    let mut batch = WriteBatch::new();
    let mut rest = &value[..];
    while let Some(bytes) = writer.next_bytes() {
        let (part, behind) = rest.split_at(bytes);
        rest = behind;
        writer.part(part, &mut batch);
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
    }
    batch.clear();
    writer.head(Expiry::Never, &mut batch);
    while engine.write(&batch, WriteOptions::default()).is_err() {
        machine.step(&engine);
    }
    assert!(shown(&engine, b"k") == Some(value.clone()));
    machine.settle(&engine);
    machine.kill(engine);
    let engine = machine.open();
    assert!(shown(&engine, b"k") == Some(value));
}

#[test]
fn a_head_without_its_parts_is_refused_under_any_condition() {
    let mut machine = Machine::new(tiny(), SEGMENTS, 3);
    let engine = machine.open();
    let versions = Versions::new(1 << 64);
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"old").unwrap();
    let old = engine.write(&batch, WriteOptions::default()).unwrap();
    for (condition, key, met) in [
        (Condition::Always, b"k", true),
        (Condition::Present, b"k", true),
        (Condition::Absent, b"k", false),
        (Condition::Absent, b"j", true),
    ] {
        let mut writer = LongWriter::new(key, 10, versions.draw()).unwrap();
        writer.part(&[7; 10], &mut batch);
        batch.clear();
        writer.head(Expiry::Never, &mut batch);
        let options = WriteOptions {
            condition,
            return_previous: true,
        };
        let written = engine.write(&batch, options).unwrap();
        assert!(!written.applied);
        assert_eq!(written.unguarded, met, "{condition:?}");
        if key == b"k" {
            assert_eq!(written.previous, [Some(b"old".to_vec())]);
            assert!(
                written.wait.lsn() >= old.wait.lsn(),
                "what is told may be newer than the guard"
            );
        }
    }
}
