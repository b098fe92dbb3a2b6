//! A crash at every write and sync of short histories that have everything in them, killed and without power:
//! pairs of all sizes, deletes of keys and of ranges, conditions, changes, expiries, values in parts, a pin,
//! bulk-loaded parts, garbage collection, flushes, merges, and the openings and the close between them.
//!
//! Before each request of the device ends, both copies that it leaves ([`watched`](crate::common::watched)) are
//! opened. What must hold of them:
//!
//! - Every key and everything in order is as after a prefix of the history, whole batches: all of it after a
//!   kill, and after a loss of power no less than what was durable (I7). What was told to have expired stays
//!   away. A part that was bulk-loaded is there as a whole or not at all, and once it was told it is there.
//! - A pin is there as a whole or not at all, and what was told of it is true.
//! - No segment of the device is in use that nothing names (I3).
//! - It goes on; some of them are written to and crashed once more.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::history::{Bound, Did, Event, History, PIN, Pinned, open, shown};
use crate::common::judge::Pairs;
use crate::common::wall::Wall;
use crate::common::watched::{Left, Memory, Watched, windows_of};
use crate::common::{Machine, tiny};
use argosy_base::{KeyRange, Moment, SegmentNumber};
use argosy_device::Crash;
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::long::{LongWriter, Versions};
use argosy_engine::{Change, Condition, EngineError, Expiry, Op, Store, WriteBatch, WriteOptions};
use argosy_lsm::db::Stats;
use argosy_lsm::db::bulk_load::Taken;
use argosy_lsm::pins::Pins;
use argosy_lsm::{Compaction, Lsm, Placement, Settings};

const SEGMENTS: u64 = 512;
const KEYS: u64 = 120;

/// Steps after which what has not happened does not happen any more.
const PATIENCE: usize = 20_000;

/// Opens what a crash has left, looks, and sometimes goes on and crashes it once more.
fn survive(left: Left, history: &History, settings: &Settings, what: &str) {
    let Left { crash, request, .. } = left;
    let what = format!("{what}, request {request}, {crash:?}");
    let mut machine = left.machine(settings);
    let device = machine.device.clone();
    let (pins, engine) = open(&mut machine, device);
    let lsn = history.holds(&pins, &engine, Some(crash), &what);
    let had = pins.remove(PIN).is_ok();
    machine.assert_no_leak(&engine);
    if !request.is_multiple_of(16) || had {
        return;
    }
    let expected = shown(&*engine.snapshot());
    let more: Pairs = (0..20u8).map(|n| (vec![b'a', n], vec![n; 400])).collect();
    for (key, value) in &more {
        let mut batch = WriteBatch::new();
        batch.put(key, value).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
        machine.step(&engine);
    }
    drop(pins);
    let durable = engine.durable_lsn();
    machine.end(engine, crash);
    let device = machine.device.clone();
    let (_pins, engine) = open(&mut machine, device);
    let what = format!("{what}, and once more");
    assert!(engine.last_lsn() >= durable.max(lsn), "{what}");
    let mut found = shown(&*engine.snapshot());
    assert!(found.split_off(b"b".as_slice()) == expected, "{what}");
    let all = crash == Crash::PowerLoss || found.len() == more.len();
    assert!(
        all && found.iter().eq(more.iter().take(found.len())),
        "{what}"
    );
    machine.assert_no_leak(&engine);
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    Crash(Crash),
}

/// A history on its way, with crashes before each request.
struct World {
    machine: Machine,
    device: Arc<Watched>,
    /// `None` between two processes.
    opened: Option<(Pins, Lsm)>,
    wall: Arc<Wall>,
    choices: Choices,
    bound: Bound,
    history: History,
    versions: Versions,
    /// The long value that is bound.
    long: Option<LongWriter>,
    /// Of the processes before.
    past: Vec<Stats>,
    /// Segments of levels that were seen, and into which levels some were merged.
    segments: BTreeSet<SegmentNumber>,
    merged: BTreeSet<u8>,
    forks: u64,
    name: String,
}

impl World {
    fn new(settings: Settings, seed: u64) -> Self {
        let name = format!(
            "{:?}, {:?}",
            settings.values.placement, settings.levels.compaction
        );
        let machine = Machine::new(settings, SEGMENTS, seed);
        let device = Watched::new(&machine.device, 0, Box::new(Memory::new));
        let wall = Wall::default();
        wall.set(1000);
        let mut world = Self {
            machine,
            device: Arc::new(device),
            opened: None,
            wall: Arc::new(wall),
            choices: Choices::new(seed),
            bound: Bound::new(),
            history: History::default(),
            versions: Versions::new(u128::from(seed) << 64),
            long: None,
            past: Vec::new(),
            segments: BTreeSet::new(),
            merged: BTreeSet::new(),
            forks: 0,
            name,
        };
        world.open();
        world.set_clock();
        world
    }

    fn engine(&self) -> &Lsm {
        &self.opened.as_ref().expect("it is open").1
    }

    fn pins(&self) -> &Pins {
        &self.opened.as_ref().expect("it is open").0
    }

    // --- Crashes ---

    /// Takes note of what must survive from here on.
    fn note(&mut self) {
        let (last, durable) = (self.engine().last_lsn(), self.engine().durable_lsn());
        let time = self.engine().committed_time();
        let history = &mut self.history;
        history.last = last;
        history.durable = history.durable.max(durable);
        if history.times.last().map_or(Moment(0), |(_, told)| *told) < time {
            history.times.push((last, time));
        }
        let loads = self.history.told_parts < self.history.parts.len();
        let version = self.engine().version();
        for (level, run) in version.runs() {
            for entry in run.entries() {
                if self.segments.insert(entry.segment.number) && level > 1 && !loads {
                    self.merged.insert(level);
                }
            }
        }
    }

    /// Looks at what crashes would have left meanwhile.
    fn judge(&mut self, what: &str) {
        let what = format!("{}: {what}", self.name);
        for left in self.device.take() {
            self.forks += 1;
            survive(left, &self.history, &self.machine.settings, &what);
        }
    }

    fn step(&mut self) {
        self.note();
        for _ in 0..self.choices.below(3) {
            self.device.run_one();
        }
        self.judge("on the way");
        let (_, engine) = self.opened.as_ref().expect("it is open");
        self.machine.tick(engine);
    }

    fn open(&mut self) {
        let device = Arc::<Watched>::clone(&self.device);
        let (pins, engine) = open(&mut self.machine, device);
        let slots = self.machine.settings.layout.window_slots;
        self.device.look_at(windows_of(&engine, slots));
        self.opened = Some((pins, engine));
        // What was found is all that later openings find.
        self.history.last = self.engine().last_lsn();
        self.judge("opening");
        self.history.durable = self.history.last;
    }

    fn set_clock(&self) {
        let clock = Arc::<Wall>::clone(&self.wall);
        self.engine().set_clock(clock);
    }

    fn restart(&mut self, end: End) {
        self.note();
        let mut memory = Memory::new();
        if end == End::Close {
            self.engine().close().unwrap();
            self.judge("closing");
            self.history.durable = self.history.last;
        }
        let (pins, engine) = self.opened.take().expect("it is open");
        self.past.push(engine.stats());
        drop(pins);
        let crash = match end {
            End::Close => Crash::PowerLoss,
            End::Crash(crash) => crash,
        };
        if crash == Crash::Kill {
            memory = windows_of(&engine, self.machine.settings.layout.window_slots)();
        }
        self.machine.end(engine, crash);
        let requests = self.device.requests();
        let device = Watched::new(
            &self.machine.device,
            requests,
            Box::new(move || memory.clone()),
        );
        self.device = Arc::new(device);
        let before = self.history.last;
        self.open();
        let last = self.history.last;
        let what = format!("{}: after {end:?}", self.name);
        let (pins, engine) = self.opened.as_ref().expect("it was opened");
        if end != End::Crash(Crash::PowerLoss) {
            assert_eq!(last, before, "{what}: nothing is lost");
        }
        let crash = Some(crash).filter(|_| end != End::Close);
        self.history.holds(pins, engine, crash, &what);
        self.bound = self.history.cut(last);
        self.set_clock();
    }

    // --- What is done ---

    /// What `key` is bound to at `time`.
    fn live(&self, key: &[u8], time: Moment) -> Option<(Vec<u8>, Option<Moment>)> {
        let bound = self.bound.get(key).cloned();
        bound.filter(|(_, expiry)| expiry.is_none_or(|expiry| expiry > time))
    }

    /// What `key` is bound to for whoever writes it now.
    fn live_now(&self, key: &[u8]) -> Option<(Vec<u8>, Option<Moment>)> {
        self.live(key, self.engine().time())
    }

    /// Writes `batch`, which is applied or not.
    fn write(&mut self, batch: &WriteBatch, condition: Condition, did: Vec<Did>) -> bool {
        let options = WriteOptions {
            condition,
            return_previous: false,
        };
        for _ in 0..PATIENCE {
            let before = (self.engine().last_lsn(), self.engine().committed_time());
            match self.engine().write(batch, options) {
                Ok(written) if written.applied => {
                    // A record of the time may be in front of it.
                    let same = self.engine().committed_time() == before.1;
                    let first = if same {
                        before.0.next()
                    } else {
                        written.wait.lsn()
                    };
                    did.iter().for_each(|did| did.change(&mut self.bound));
                    let event = Event::Batch(first, written.wait.lsn(), did);
                    self.history.events.push(event);
                    return true;
                }
                Ok(_) => return false,
                Err(EngineError::Busy(_)) => self.step(),
                Err(error) => panic!("{error}"),
            }
        }
        panic!(
            "{}: the engine stays busy: {:#?}",
            self.name,
            self.engine().stats()
        );
    }

    /// Writes `batch` as it says.
    fn write_all(&mut self, batch: &WriteBatch) {
        let now = self.engine().time();
        let did = batch.ops().map(|op| match op {
            Op::Put { key, value, expiry } => {
                Did::Put(key.to_vec(), value.to_vec(), expiry.resolve(now, None))
            }
            Op::Delete { key } => Did::Gone(key.to_vec()),
            Op::DeleteRange { .. } => Did::DeletedRange(op.range().unwrap()),
        });
        let did = did.collect();
        assert!(self.write(batch, Condition::Always, did));
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{:03}", self.choices.below(KEYS)).into_bytes()
    }

    /// A value of any size.
    fn value(&mut self) -> Vec<u8> {
        let len = [20, 80, 100, 300, 2500][usize::try_from(self.choices.below(5)).unwrap()];
        let fill = self.choices.bits().to_le_bytes();
        (0..len).map(|at| fill[at % 8]).collect()
    }

    /// One of the things that are done again and again.
    fn act(&mut self) {
        self.wall.set(self.wall.get() + 10);
        let (key, value) = (self.key(), self.value());
        let mut batch = WriteBatch::new();
        match self.choices.below(20) {
            0..10 => batch.put(&key, &value).unwrap(),
            10 => {
                batch.put(&key, &value).unwrap();
                batch.delete(self.key()).unwrap();
                batch.put(self.key(), b"together").unwrap();
            }
            11 | 12 => batch.delete(&key).unwrap(),
            13 => {
                let first = self.choices.below(KEYS);
                let name = |number: u64| format!("k{number:03}").into_bytes();
                let range = KeyRange::new(name(first), Some(name(first + 8)));
                batch.delete_range(&range).unwrap();
            }
            14 | 15 => {
                let after = 50 + self.choices.below(500);
                let put = batch.put_until(&key, &value, Expiry::After(after));
                put.unwrap();
            }
            16 | 17 => return self.put_on_condition(&key, &value),
            18 => return self.count(),
            _ => {
                let found = self.engine().get(&key).unwrap().value;
                // Without room for a record the region's time stands still, and the pair is there.
                let time = self.engine().committed_time();
                let live = self.live(&key, time);
                assert_eq!(found, live.map(|(value, _)| value));
                return;
            }
        }
        self.write_all(&batch);
        self.step();
    }

    fn put_on_condition(&mut self, key: &[u8], value: &[u8]) {
        let bound = self.live_now(key);
        let mut batch = WriteBatch::new();
        let condition = match self.choices.chance(50) {
            true => Condition::Absent,
            false => {
                let expected = bound.as_ref().map_or(&b"nothing"[..], |(value, _)| value);
                batch.expect(expected).unwrap();
                Condition::Equals
            }
        };
        batch.put(key, value).unwrap();
        let did = vec![Did::Put(key.to_vec(), value.to_vec(), None)];
        let applied = self.write(&batch, condition, did);
        assert_eq!(applied, (condition == Condition::Equals) == bound.is_some());
        self.step();
    }

    /// Adds one to a number, and a byte to a text.
    fn count(&mut self) {
        let mut batch = WriteBatch::new();
        let number = self.live_now(b"number").map_or(0, |(value, _)| {
            let text = String::from_utf8(value).unwrap();
            text.parse::<u64>().unwrap()
        });
        let sum = (number + 1).to_string().into_bytes();
        batch.change(b"number", Change::Add(1), b"").unwrap();
        let did = vec![Did::Put(b"number".to_vec(), sum, None)];
        assert!(self.write(&batch, Condition::Always, did));
        let mut batch = WriteBatch::new();
        let (mut text, _) = self.live_now(b"text").unwrap_or_default();
        text.extend_from_slice(b"more and more");
        batch
            .change(b"text", Change::Append, b"more and more")
            .unwrap();
        let did = vec![Did::Put(b"text".to_vec(), text, None)];
        assert!(self.write(&batch, Condition::Always, did));
        self.step();
    }

    /// A value in parts, in place of the one before.
    fn put_long(&mut self) {
        let value: Vec<u8> = (0..4000)
            .map(|_| self.choices.bits().to_le_bytes()[0])
            .collect();
        let writer = LongWriter::new(b"long", value.len() as u64, self.versions.draw());
        let mut writer = writer.unwrap().in_parts_of(900);
        let mut batch = WriteBatch::new();
        let mut rest = &value[..];
        while let Some(bytes) = writer.next_bytes() {
            let (part, behind) = rest.split_at(bytes);
            rest = behind;
            writer.part(part, &mut batch);
            self.write_all(&batch);
            self.step();
        }
        batch.clear();
        writer.head(Expiry::Never, &mut batch);
        self.write_all(&batch);
        self.step();
        if let Some(old) = self.long.replace(writer) {
            let mut batch = WriteBatch::new();
            old.take_back(&mut batch);
            self.write_all(&batch);
        }
    }

    fn bulk_load(&mut self, first: u32) {
        let part = self.history.parts.len();
        let value = format!("of part {part}").into_bytes().repeat(8);
        let pair = |number: u32| (format!("m{number:04}").into_bytes(), value.clone());
        let pairs: Pairs = (first..first + 500).map(pair).collect();
        self.history.parts.push(pairs.clone());
        self.history.events.push(Event::Part(part));
        self.engine()
            .bulk_load(pairs.clone().into_iter().collect())
            .unwrap();
        for _ in 0..PATIENCE {
            let told = self.engine().bulk_loads_ended();
            if let Some((_, taken)) = told.first() {
                assert!(matches!(taken, Taken::Done), "{taken:?}");
                self.history.told_parts += 1;
                let pairs = pairs.into_iter().map(|(key, value)| (key, (value, None)));
                self.bound.extend(pairs);
                return;
            }
            self.step();
        }
        panic!("{}: a part is never taken", self.name);
    }

    fn pin(&mut self) {
        let version = loop {
            let last = self.engine().last_lsn();
            if let Some(version) = self.engine().version_with(last) {
                break version;
            }
            self.step();
        };
        self.note();
        let time = self.engine().committed_time();
        let pairs = self.history.pairs(self.history.last, time, &|_| true);
        self.history.pin = Pinned::Perhaps(pairs.clone());
        self.pins().add(PIN, &version, time).unwrap();
        self.judge("pinning");
        self.history.pin = Pinned::Yes(pairs);
    }

    fn unpin(&mut self) {
        self.note();
        if let Pinned::Yes(pairs) = std::mem::take(&mut self.history.pin) {
            self.history.pin = Pinned::Perhaps(pairs);
        }
        self.pins().remove(PIN).unwrap();
        self.judge("unpinning");
        self.history.pin = Pinned::No;
    }

    /// Overwrites large values until what lives among them is moved.
    fn collect_garbage(&mut self) {
        for number in 0..3000 {
            if self.engine().stats().gc.moved > 10 {
                return;
            }
            let key = format!(
                "l{:02}",
                self.choices.below(if number < 20 { 20 } else { 8 })
            );
            let mut batch = WriteBatch::new();
            batch.put(key.as_bytes(), [b'l'; 3000]).unwrap();
            self.write_all(&batch);
            self.step();
        }
        panic!(
            "{}: no garbage is collected: {:#?}",
            self.name,
            self.engine().stats()
        );
    }

    fn acts(&mut self, count: u32) {
        for _ in 0..count {
            self.act();
        }
    }
}

/// What all processes of a history did, and crashes.
#[derive(Debug, Default)]
struct Came {
    flushes: u64,
    compactions: u64,
    gc_moved: u64,
    medium_written: u64,
    medium_placed: u64,
    merged: BTreeSet<u8>,
    requests: u64,
    forks: u64,
}

fn run(settings: Settings, seed: u64) -> Came {
    let mut world = World::new(settings, seed);
    world.acts(250);
    world.put_long();
    world.bulk_load(0);
    world.acts(60);
    world.restart(End::Close);
    world.pin();
    world.collect_garbage();
    world.restart(End::Crash(Crash::Kill));
    world.acts(60);
    world.unpin();
    world.put_long();
    let mut batch = WriteBatch::new();
    let range = KeyRange::new(b"m0100".to_vec(), Some(b"m0700".to_vec()));
    batch.delete_range(&range).unwrap();
    world.write_all(&batch);
    world.bulk_load(110);
    world.acts(150);
    world.restart(End::Crash(Crash::PowerLoss));
    world.acts(60);
    world.restart(End::Crash(Crash::Kill));
    let sum = |of: fn(&Stats) -> u64| world.past.iter().map(of).sum();
    Came {
        flushes: sum(|stats| stats.work.flushes),
        compactions: sum(|stats| stats.work.compactions),
        gc_moved: sum(|stats| stats.gc.moved),
        medium_written: sum(|stats| stats.medium.written),
        medium_placed: sum(|stats| stats.medium.placed),
        merged: world.merged,
        requests: world.device.requests(),
        forks: world.forks,
    }
}

/// So small that little data comes far down.
fn settings(placement: Placement, compaction: Compaction) -> Settings {
    tiny().with(|of| {
        of.memtables.bytes = 14 << 10;
        of.memtables.log_bytes = 64 << 10;
        of.layout.segment_bytes = 32 << 10;
        of.layout.window_bytes = 16 << 10;
        of.layout.window_slots = 4;
        of.levels.part_bytes = 32 << 10;
        of.values.small_bytes = 60;
        of.values.placement = placement;
        of.levels.compaction = compaction;
        of.values.medium_log_percent = 400;
        of.values.medium_levels_min = 1;
        of.space.amplification_max = 110;
        of.space.floor_bytes = Some(96 << 10);
    })
}

fn survives(placement: Placement, compaction: Compaction) {
    let came = run(settings(placement, compaction), 2);
    assert!(came.merged.len() >= 2 && came.compactions > 5, "{came:?}");
    assert!(came.gc_moved > 10 && came.flushes > 10, "{came:?}");
    let medium = came.medium_written > 0 && came.medium_placed > 0;
    assert_eq!(medium, placement == Placement::Hybrid, "{came:?}");
    assert!(
        came.forks == 2 * came.requests && came.requests > 300,
        "{came:?}"
    );
}

#[test]
fn crashes_at_every_request_with_values_in_place() {
    survives(Placement::InPlace, Compaction::Partial);
}

#[test]
fn crashes_at_every_request_with_values_apart() {
    survives(Placement::Separated, Compaction::WholeLevel);
}

#[test]
fn crashes_at_every_request_with_values_in_both_places() {
    survives(Placement::Hybrid, Compaction::Partial);
}
