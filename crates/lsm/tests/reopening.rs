//! Reopening at every depth of levels, and directly after every kind of edit that moves what levels hold.
//!
//! What an edit did is read from the versions before and behind it, and why a merge was begun from the version
//! of that moment: no level was full, say, and the device was. The first times that something happens the
//! process is killed, on a copy of the machine, and opened, closed and opened again; the original goes on. What
//! must hold each time: every pair is there in both directions, and no segment of the device is in use that nothing
//! names (I3, I7); and at least once behind each kind the levels are what they were. Another time the edit that
//! followed was durable, too.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::judge::{Pairs, errors};
use crate::common::watched::fork;
use crate::common::{Machine, tiny, tiny_whole};
use argosy_base::{AddressMode, KeyRange, SegmentNumber};
use argosy_device::Crash;
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{BusyReason, EngineError, Store, WriteBatch, WriteOptions};
use argosy_lsm::compaction::pick::score;
use argosy_lsm::compaction::plan::shape;
use argosy_lsm::compaction::policy::{Aim, Growth, L1Policy, Packing, PartLimits, Policy};
use argosy_lsm::damage::Shut;
use argosy_lsm::db::bulk_load::Taken;
use argosy_lsm::edit::LEVELS_MAX;
use argosy_lsm::names::Form;
use argosy_lsm::{Compaction, Lsm, Placement, Settings, Version};

/// Steps after which what has not happened does not happen any more.
const PATIENCE: usize = 20_000;

/// How often it is reopened after one kind of thing, and how often that is tried.
const TIMES: u32 = 2;
const TRIES: u32 = 16;

/// What an edit did to the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// There are so many levels.
    Depth(u8),
    /// A memtable became a run.
    Flush,
    /// … had no pairs, and left none.
    FlushOfNothing,
    /// It took away segments, or a part of some, or of a tree.
    CutSegment,
    CutBounds,
    CutTree,
    /// Segments of L1, of a level below, and a tree, went down as they were.
    MoveFromL1,
    MoveBelow,
    MoveTree,
    /// A merge left a part of an input, wrote nothing, wrote a tree.
    LeftBounds,
    WroteNothing,
    WroteTree,
    /// Why it was begun: L1 was full, or a level below.
    FullL1,
    FullBelow,
    /// Reads had triggered it.
    ReadTriggered,
    /// Somebody had asked for everything in one level.
    Asked,
    /// The device was full, and levels hid something, or segments were short.
    Space,
    Pack,
    /// The medium log was too long.
    Drain,
    /// A segment had several bounds, or little of it was left.
    Loose,
    /// Dead values were looked for, in the level above the last, or in any.
    Lower,
    GarbageCollection,
    /// A segment of the large log went although levels point into it.
    Evacuate,
    /// Sorted pairs came into the lowest level, or on top.
    LoadBelow,
    LoadOnTop,
}

/// The segments of levels, by their numbers: level, what each stands for, and form.
type Segments = BTreeMap<SegmentNumber, (u8, Vec<KeyRange>, Form)>;

fn segments(version: &Version) -> Segments {
    let mut segments = Segments::new();
    for (level, _, segment) in version.checkpoint().added {
        if segment.form != Form::Medium {
            let new = || (level, Vec::new(), segment.form);
            let known = segments.entry(segment.number).or_insert_with(new);
            known.1.push(segment.range);
        }
    }
    segments
}

/// What the edit between two versions did; `why` is why the last merge was begun.
fn kinds(before: &Version, after: &Version, why: Kind) -> BTreeSet<Kind> {
    let (old, new) = (segments(before), segments(after));
    let gone: Vec<_> = old
        .keys()
        .filter(|number| !new.contains_key(number))
        .collect();
    let fresh: Vec<_> = new
        .iter()
        .filter(|(number, _)| !old.contains_key(number))
        .collect();
    let both = || {
        old.iter()
            .filter_map(|(number, was)| Some((was, new.get(number)?)))
    };
    let moved: Vec<_> = both().filter(|(was, is)| was.0 != is.0).collect();
    let trimmed: Vec<_> = both()
        .filter(|(was, is)| was.0 == is.0 && was.1 != is.1)
        .collect();
    let mut kinds = BTreeSet::from([Kind::Depth(after.deepest())]);
    if after.replay_from() > before.replay_from() {
        kinds.insert(match fresh.is_empty() {
            true => Kind::FlushOfNothing,
            false => Kind::Flush,
        });
        kinds.extend((!gone.is_empty()).then_some(Kind::CutSegment));
        kinds.extend(trimmed.iter().map(|(was, _)| match was.2 {
            Form::Leaves => Kind::CutTree,
            _ => Kind::CutBounds,
        }));
    } else if !moved.is_empty() {
        kinds.extend(moved.iter().map(|(was, _)| match was {
            (_, _, Form::Leaves) => Kind::MoveTree,
            (1, _, _) => Kind::MoveFromL1,
            _ => Kind::MoveBelow,
        }));
    } else if !gone.is_empty() || !trimmed.is_empty() {
        // Only packing takes nothing but segments of the last level.
        let last = before.deepest();
        let within = gone.iter().all(|number| old[*number].0 == last)
            && trimmed.iter().all(|(was, _)| was.0 == last);
        kinds.insert(match why {
            Kind::Space if within => Kind::Pack,
            why => why,
        });
        kinds.extend((!trimmed.is_empty()).then_some(Kind::LeftBounds));
        kinds.extend(fresh.is_empty().then_some(Kind::WroteNothing));
        let tree = fresh.iter().any(|(_, is)| is.2 == Form::Leaves);
        kinds.extend(tree.then_some(Kind::WroteTree));
    } else if let Some((_, (level, _, _))) = fresh.first() {
        kinds.insert(match level {
            1 => Kind::LoadOnTop,
            _ => Kind::LoadBelow,
        });
    }
    let evacuated = |version: &Version| version.checkpoint().evacuated;
    let were = evacuated(before);
    let more = evacuated(after).iter().any(|number| !were.contains(number));
    kinds.extend(more.then_some(Kind::Evacuate));
    kinds
}

/// The level that is fullest, if one is full.
fn full(version: &Version, settings: &Settings) -> Option<u8> {
    let policy = Policy {
        gather: None,
        aim: Aim::Levels,
        nothing_shut: true,
        sparse: BTreeSet::new(),
        l1: L1Policy {
            runs: settings.levels.l1_runs,
            is_read_triggered: false,
        },
        growth: Growth {
            factor: settings.levels.growth_factor,
            l0_bytes: settings.memtables.bytes as u64,
        },
        part: PartLimits {
            bytes: settings.levels.part_bytes,
            segments_max: usize::MAX,
            whole_segments_max: usize::MAX,
        },
        reclaim: false,
        packing: Packing {
            bytes: 0,
            segments: 0,
            first: None,
        },
        drain: None,
        lowers: false,
        behind: None,
    };
    let shape = shape(version, &Shut::default());
    let scores = (1..LEVELS_MAX).map(|level| (score(&shape, &policy, level), u8::MAX - level));
    let fullest = scores.filter(|(score, _)| *score >= 100).max();
    fullest.map(|(_, level)| u8::MAX - level)
}

struct Rig {
    machine: Machine,
    engine: Option<Lsm>,
    model: Pairs,
    choices: Choices,
    /// Sorted pairs on their way.
    part: Pairs,
    /// Why the last merge was begun.
    why: Kind,
    /// Why one is begun now where no level is full, and the device is not.
    otherwise: Kind,
    /// How often it was reopened after what, and how often that was tried.
    seen: BTreeMap<Kind, (u32, u32)>,
}

impl Rig {
    fn new(settings: Settings, segments: u64) -> Self {
        let mut machine = Machine::new(settings, segments, 1);
        let engine = machine.open();
        let mut rig = Self {
            machine,
            engine: Some(engine),
            model: Pairs::new(),
            choices: Choices::new(1),
            part: Pairs::new(),
            why: Kind::FullL1,
            otherwise: Kind::FullL1,
            seen: BTreeMap::new(),
        };
        rig.saw(Kind::Depth(0));
        rig
    }

    fn engine(&self) -> &Lsm {
        self.engine.as_ref().expect("it is open")
    }

    fn step(&mut self) -> bool {
        let engine = self.engine.take().expect("it is open");
        let (before, merges) = (engine.version(), engine.stats().work.compactions);
        let moved = self.machine.step(&engine);
        let after = engine.version();
        if engine.stats().work.compactions > merges {
            self.why = match full(&before, &self.machine.settings) {
                Some(1) => Kind::FullL1,
                Some(_) => Kind::FullBelow,
                None if engine.is_full() => Kind::Space,
                None => self.otherwise,
            };
        }
        self.engine = Some(engine);
        // Of several edits at once nobody could tell which did what.
        if after.seq().0 == before.seq().0 + 1 {
            let kinds = kinds(&before, &after, self.why);
            if kinds.contains(&Kind::LoadBelow) || kinds.contains(&Kind::LoadOnTop) {
                self.model.append(&mut self.part);
            }
            kinds.into_iter().for_each(|kind| self.saw(kind));
        }
        moved
    }

    /// The first times that something happens, reopens.
    fn saw(&mut self, kind: Kind) {
        let (seen, tried) = self.seen.get(&kind).copied().unwrap_or_default();
        if seen < TIMES && tried < TRIES {
            let same = self.reopen(&format!("{kind:?}, try {tried}"), tried.into());
            self.seen.insert(kind, (seen + u32::from(same), tried + 1));
        }
    }

    /// Returns whether the levels were those of this moment: the next edit may be on the device already.
    fn reopen(&self, what: &str, seed: u64) -> bool {
        let engine = self.engine();
        let levels = engine.version();
        let mut copy = fork(&self.machine, engine, Crash::Kill, seed);
        let engine = copy.open();
        let found = engine.version();
        let same = found.levels_digest() == levels.levels_digest();
        if !same && !self.part.is_empty() {
            // It may be there by now.
            return false;
        }
        assert_eq!(errors(&engine, &self.model, what), [""; 0], "{what}");
        copy.assert_no_leak(&engine);
        copy.close(engine);
        let engine = copy.open();
        assert_eq!(engine.version().levels_digest(), found.levels_digest());
        assert_eq!(
            errors(&engine, &self.model, what),
            [""; 0],
            "{what}, closed"
        );
        copy.assert_no_leak(&engine);
        // And what comes next finds all that it needs.
        for _ in 0..100 {
            copy.step(&engine);
        }
        assert_eq!(errors(&engine, &self.model, what), [""; 0], "{what}, later");
        same
    }

    fn rest(&mut self) {
        let mut still = 0;
        while still < 50 {
            let busy = self.step() || self.engine().background_pending() > 0;
            still = if busy { 0 } else { still + 1 };
        }
    }

    /// Everything that is in memory goes into the levels.
    fn flush(&mut self) {
        while !self.engine().freeze_now() {
            self.step();
        }
        self.rest();
    }

    fn compact(&mut self) {
        let before = std::mem::replace(&mut self.otherwise, Kind::Asked);
        self.engine().compact_now();
        while self.engine().is_compacting() {
            self.step();
        }
        self.rest();
        self.otherwise = before;
    }

    fn write(&mut self, batch: &WriteBatch) -> Result<(), BusyReason> {
        let mut reason = BusyReason::Memtable;
        for _ in 0..PATIENCE {
            match self.engine().write(batch, WriteOptions::default()) {
                Ok(_) => return Ok(()),
                Err(EngineError::Busy(why)) => reason = why,
                Err(error) => panic!("{error}"),
            }
            self.step();
        }
        Err(reason)
    }

    fn put(&mut self, number: u64, len: usize) -> Result<(), BusyReason> {
        let key = format!("{number:06}").into_bytes();
        let value = vec![self.choices.bits().to_le_bytes()[0]; len];
        let mut batch = WriteBatch::new();
        batch.put(&key, &value).unwrap();
        self.write(&batch)?;
        self.model.insert(key, value);
        self.step();
        Ok(())
    }

    fn delete(&mut self, number: u64) {
        let key = format!("{number:06}").into_bytes();
        let mut batch = WriteBatch::new();
        batch.delete(&key).unwrap();
        self.write(&batch).unwrap();
        self.model.remove(&key);
        self.step();
    }

    fn delete_range(&mut self, from: u64, to: u64) {
        let key = |number: u64| format!("{number:06}").into_bytes();
        let range = KeyRange::new(key(from), Some(key(to)));
        let mut batch = WriteBatch::new();
        batch.delete_range(&range).unwrap();
        self.write(&batch).unwrap();
        self.model.retain(|key, _| !range.contains(key));
        self.step();
    }

    /// Puts of random keys below `keys`.
    fn mix(&mut self, keys: u64, puts: u64, len: usize) {
        for _ in 0..puts {
            let number = self.choices.below(keys);
            self.put(number, len).unwrap();
        }
    }

    fn bulk_load(&mut self, from: u64) {
        // Its edit comes alone: of several at once nobody can tell which did what.
        self.rest();
        self.engine().freeze_now();
        self.rest();
        let pair = |number: u64| (format!("{number:06}").into_bytes(), vec![b'i'; 50]);
        self.part = (from..from + 200).map(pair).collect();
        let pairs = self.part.clone().into_iter().collect();
        self.engine().bulk_load(pairs).unwrap();
        let told = loop {
            let told = self.engine().bulk_loads_ended();
            if !told.is_empty() {
                break told;
            }
            self.step();
        };
        assert!(matches!(told[0].1, Taken::Done), "{told:?}");
        assert!(self.part.is_empty(), "the edit was seen");
    }

    fn saw_all(&self, kinds: &[Kind]) {
        for kind in kinds {
            let seen = self.seen.get(kind).is_some_and(|(seen, _)| *seen > 0);
            assert!(seen, "{kind:?}: {:?}", self.seen);
        }
    }
}

/// So small that little data comes far down; pairs of a few hundred bytes lie in leaves.
fn deep() -> Settings {
    tiny().with(|of| {
        of.memtables.bytes = 20 << 10;
        of.layout.node_bytes = 2048;
        of.layout.segment_bytes = 24 << 10;
        of.layout.window_bytes = 8 << 10;
        of.layout.window_slots = 8;
        of.levels.part_bytes = 32 << 10;
        of.values.placement = Placement::InPlace;
    })
}

const DEPTHS: [Kind; 5] = [
    Kind::Depth(0),
    Kind::Depth(1),
    Kind::Depth(2),
    Kind::Depth(3),
    Kind::Depth(4),
];

#[test]
fn after_moves_and_at_every_depth() {
    let mut rig = Rig::new(deep(), 1024);
    for number in 0..1800 {
        rig.put(number, 200).unwrap();
    }
    rig.saw_all(&DEPTHS);
    rig.saw_all(&[Kind::Flush, Kind::MoveFromL1, Kind::MoveBelow]);
}

#[test]
fn after_merges_until_nothing_is_left() {
    let mut rig = Rig::new(deep(), 1024);
    rig.mix(1200, 3000, 200);
    rig.saw_all(&DEPTHS);
    rig.compact();
    for number in 0..1200 {
        rig.delete(number);
    }
    rig.flush();
    rig.compact();
    assert_eq!(rig.engine().version().deepest(), 0);
    let merges = [Kind::FullL1, Kind::FullBelow, Kind::LeftBounds];
    rig.saw_all(&merges);
    rig.saw_all(&[Kind::Asked, Kind::WroteNothing]);
}

#[test]
fn after_ranges_are_removed() {
    let mut rig = Rig::new(deep(), 1024);
    rig.otherwise = Kind::Loose;
    rig.mix(1600, 2500, 150);
    rig.compact();
    rig.put(100, 10).unwrap();
    rig.delete_range(100, 800);
    rig.flush();
    for number in (800..1600).step_by(10) {
        rig.delete_range(number, number + 8);
    }
    rig.flush();
    rig.saw_all(&[
        Kind::FlushOfNothing,
        Kind::CutSegment,
        Kind::CutBounds,
        Kind::Loose,
    ]);
}

#[test]
fn after_trees_are_made_moved_and_cut() {
    let settings = deep().with(|of| of.levels.compaction = Compaction::WholeLevel);
    let mut rig = Rig::new(settings, 1024);
    for number in 0..900 {
        rig.put(number, 200).unwrap();
    }
    rig.mix(1200, 1500, 200);
    rig.delete_range(100, 110);
    rig.flush();
    rig.saw_all(&DEPTHS);
    rig.saw_all(&[Kind::WroteTree, Kind::MoveTree, Kind::CutTree]);
}

#[test]
fn after_read_triggered_merges() {
    let mut rig = Rig::new(
        deep().with(|of| {
            of.levels.l1_runs = 8;
            of.levels.l1_runs_max = 10;
        }),
        1024,
    );
    for _ in 0..5 {
        rig.mix(300, 30, 100);
        rig.flush();
    }
    rig.otherwise = Kind::ReadTriggered;
    for _ in 0..1000 {
        if rig.seen.contains_key(&Kind::ReadTriggered) {
            break;
        }
        for key in rig.model.keys() {
            rig.engine().get(key).unwrap();
        }
        rig.rest();
    }
    rig.saw_all(&[Kind::ReadTriggered]);
}

#[test]
fn after_the_medium_log_became_shorter() {
    let settings = deep().with(|of| {
        of.values.placement = Placement::Hybrid;
        of.values.small_bytes = 60;
        of.values.medium_log_percent = 1;
        of.values.medium_levels_min = 1;
        of.space.floor_bytes = Some(1 << 30);
        of.levels.l1_runs_max = 20;
        of.memtables.count_max = 2;
    });
    let mut rig = Rig::new(settings, 1024);
    rig.otherwise = Kind::Drain;
    rig.mix(800, 3000, 200);
    rig.rest();
    rig.saw_all(&[Kind::Drain]);
}

/// Overwrites of large values, near the bound of space.
fn garbage_collected(addresses: AddressMode, otherwise: Kind) -> Rig {
    let settings = deep().with(|of| {
        of.values.placement = Placement::Separated;
        of.layout.addresses = addresses;
        of.space.amplification_max = 110;
        of.space.floor_bytes = Some(128 << 10);
        of.memtables.log_bytes = 64 << 10;
    });
    let mut rig = Rig::new(settings, 512);
    rig.otherwise = otherwise;
    rig.mix(200, 2000, 1000);
    rig.rest();
    assert!(
        rig.engine().stats().gc.moved > 20,
        "{:#?}",
        rig.engine().stats()
    );
    rig
}

#[test]
fn after_garbage_was_collected() {
    let rig = garbage_collected(AddressMode::Logical, Kind::Lower);
    rig.saw_all(&[Kind::Evacuate, Kind::Lower]);
    let rig = garbage_collected(AddressMode::Rewrite, Kind::GarbageCollection);
    rig.saw_all(&[Kind::GarbageCollection]);
}

#[test]
fn after_merges_for_space() {
    for settings in [
        deep(),
        deep().with(|of| of.levels.compaction = tiny_whole().levels.compaction),
    ] {
        let mut rig = Rig::new(settings, 80);
        let mut number = 0;
        while rig.put(number, 400).is_ok() {
            number += 1;
            assert!(number < 100_000, "a device ends");
        }
        for number in (0..number).filter(|number| number % 3 > 0) {
            rig.delete(number);
        }
        rig.rest();
        rig.saw_all(&[Kind::Space, Kind::Pack]);
    }
}

#[test]
fn after_sorted_pairs_came() {
    let mut rig = Rig::new(deep(), 512);
    rig.bulk_load(1000);
    rig.mix(500, 800, 100);
    rig.bulk_load(2000);
    // Tombstones in the levels.
    rig.bulk_load(3000);
    for number in 3000..3200 {
        rig.delete(number);
    }
    rig.bulk_load(3000);
    rig.saw_all(&[Kind::LoadBelow, Kind::LoadOnTop]);
}
