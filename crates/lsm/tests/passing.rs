//! Levels of which something cannot be read: merges pass over it and say so, writing goes on, and all that can be
//! read stays right.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{AddressMode, KeyRange, SegmentNumber, SegmentPart};
use argosy_device::{Buffer, Crash, Device, Store};
use argosy_engine::conformance::Host;
use argosy_engine::{EngineError, Source as _, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::inspect::{InspectedRegion, LeftWindows, ProblemKind, recount, verify_region};
use argosy_lsm::level::form_and_refs;
use argosy_lsm::level::pointers::for_each_pointer_mut;
use argosy_lsm::names::logs::LARGE_LOG;
use argosy_lsm::repair::{RepairError, wanted};
use argosy_lsm::{Lsm, Mutants, Placement, Settings};

use crate::common::{Machine, mixed, tiny, tiny_whole};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The first bytes of a segment, up to `to`.
const fn front(number: SegmentNumber, to: u32) -> SegmentPart {
    SegmentPart {
        number,
        from: 0,
        to,
    }
}

fn worlds() -> impl Iterator<Item = (u64, Settings)> {
    let modes = AddressMode::ALL.into_iter().enumerate();
    modes.flat_map(|(at, addresses)| {
        let seed = 2 * at as u64;
        [(seed, tiny()), (seed + 1, tiny_whole())].map(|(seed, settings)| {
            let settings = mixed(settings).with(|of| {
                of.layout.addresses = addresses;
                of.cache_bytes = 0;
            });
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

/// Flips a bit in every 256 bytes of the segment at byte `start` of the device: damages it, or mends it again.
fn flip(machine: &Machine, start: u64) {
    for at in (0..machine.settings.layout.segment_bytes as u64).step_by(256) {
        machine.device.flip_bit(start + at + 30, 3);
    }
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
    let log = version.log(LARGE_LOG).iter();
    let log = log.filter(|entry| entry.segment.end.is_some_and(|end| end > 4096));
    let numbers = finished.map(|entry| entry.segment.number);
    let numbers = numbers.chain(log.take(1).map(|entry| entry.segment.number));
    for number in numbers {
        let part = wanted(&version, number).unwrap();
        let bytes = engine.read(part, &[]);
        let start = version.stored(number).unwrap().place().start();
        flip(machine, start);
        hurt.insert(number, bytes.unwrap().unwrap());
    }
    hurt
}

/// A machine whose levels are damaged.
struct Hurt {
    machine: Machine,
    engine: Lsm,
    model: Model,
    /// What is damaged, each with what another member would send of it.
    hurt: BTreeMap<SegmentNumber, Buffer>,
}

impl Hurt {
    fn new(seed: u64, settings: &Settings) -> Self {
        let mut machine = Machine::new(settings.clone(), 2048, seed);
        let engine = machine.open();
        let mut model = Model::new();
        for number in 0..1500 {
            write(&mut machine, &engine, &mut model, number);
        }
        machine.settle(&engine);
        let hurt = hurt(&machine, &engine);
        Self {
            machine,
            engine,
            model,
            hurt,
        }
    }
}

#[test]
fn merges_pass_over_what_cannot_be_read() {
    for (seed, settings) in worlds() {
        let Hurt {
            mut machine,
            engine,
            mut model,
            hurt,
        } = Hurt::new(seed, &settings);
        let before = engine.stats();
        // Every write is taken, and levels are merged as before.
        for number in 1500..6000 {
            write(&mut machine, &engine, &mut model, number);
        }
        machine.settle(&engine);
        let stats = engine.stats();
        assert!(stats.work.flushes > before.work.flushes + 20, "seed {seed}");
        assert!(
            stats.work.compactions > before.work.compactions + 5,
            "seed {seed}"
        );
        assert!(stats.damage.merges_passed > 0, "seed {seed}");
        assert!(stats.damage.merges_passed < 20, "{:?}", stats.damage);
        let runs = stats.levels.first().map_or(0, |level| level.runs);
        assert!(
            runs <= 3 * settings.levels.l1_runs_max,
            "seed {seed}: {runs} runs"
        );
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

/// Writes while something is damaged, also over ranges that are removed, has garbage collected, and mends what was
/// damaged. Returns what is wrong then, and how many log segments could not be counted again meanwhile.
fn wrong_once_mended(seed: u64, settings: &Settings) -> (Vec<String>, usize) {
    let Hurt {
        mut machine,
        engine,
        mut model,
        hurt,
    } = Hurt::new(seed, settings);
    let places: BTreeMap<_, _> = {
        let version = engine.version();
        let place = |number| version.stored(number).unwrap().place();
        hurt.keys()
            .map(|number| (*number, place(*number)))
            .collect()
    };
    for number in 1500..3500 {
        write(&mut machine, &engine, &mut model, number);
        if number.is_multiple_of(300) {
            remove_range(&mut machine, &engine, &mut model, number);
        }
    }
    rest(&mut machine, &engine);
    let unknown = notes_on_counts(&machine, &engine);
    for number in hurt.keys() {
        let version = engine.version();
        let stored = version.stored(*number);
        if let Some(stored) = stored.filter(|stored| stored.place() == places[number]) {
            flip(&machine, stored.place().start());
        }
        drop(version);
        engine.damages().repaired(*number);
    }
    rest(&mut machine, &engine);
    let mut wrong = Vec::new();
    match recount(&engine.version()) {
        Ok(miscounts) => wrong.extend(miscounts.iter().map(|found| format!("{found:?}"))),
        Err(error) => wrong.push(error.to_string()),
    }
    if !engine.version().uncounted().is_empty() {
        wrong.push("something that was cut off is uncounted".to_owned());
    }
    for number in 0..3000 {
        let key = format!("{number:06}").into_bytes();
        match engine.get(&key) {
            Ok(found) if found.value.as_ref() == model.get(&key) => {}
            Ok(_) => wrong.push(format!("{number} has another value")),
            Err(error) => wrong.push(format!("{number}: {error}")),
        }
    }
    (wrong, unknown)
}

/// Merges what is in levels until nothing is due.
fn rest(machine: &mut Machine, engine: &Lsm) {
    engine.freeze_now();
    machine.step(engine);
    while engine.background_pending() > 0 {
        machine.step(engine);
    }
}

/// Removes 40 keys.
fn remove_range(machine: &mut Machine, engine: &Lsm, model: &mut Model, number: u64) {
    let from = number * 7919 % 2900;
    let key = |number: u64| format!("{number:06}").into_bytes();
    let range = KeyRange::new(key(from), Some(key(from + 40)));
    let mut batch = WriteBatch::new();
    batch.delete_range(&range).unwrap();
    while let Err(error) = engine.write(&batch, WriteOptions::default()) {
        assert!(matches!(error, EngineError::Busy(_)), "{error}");
        machine.step(engine);
    }
    model.retain(|key, _| !range.contains(key));
}

/// How often `inspect verify` says of what is on the device that pointers could not be counted again. It finds damage,
/// and no wrong counts.
fn notes_on_counts(machine: &Machine, engine: &Lsm) -> usize {
    let device: Arc<dyn Device> = Arc::<argosy_device::MemoryDevice>::clone(&machine.device);
    let store = Store::open_read_only(device).unwrap();
    let region = InspectedRegion::read(&store, &store.regions()[0], engine.settings());
    let version = region.version.unwrap();
    let (_, problems, notes) = verify_region(&version, &LeftWindows::default(), engine.settings());
    for problem in problems {
        assert!(problem.kind != ProblemKind::Reference, "{problem}");
    }
    let notes = notes.iter();
    notes
        .filter(|note| note.contains("could be counted again"))
        .count()
}

/// [`worlds`] in which garbage is collected.
fn with_garbage_collection() -> impl Iterator<Item = (u64, Settings)> {
    worlds().map(|(seed, settings)| {
        let settings = settings.with(|of| {
            of.space.floor_bytes = None;
            of.space.amplification_max = 120;
        });
        (seed, settings)
    })
}

#[test]
fn what_is_passed_over_keeps_what_it_points_to() {
    let mut unknown = 0;
    for (seed, settings) in with_garbage_collection() {
        let (wrong, notes) = wrong_once_mended(seed, &settings);
        assert_eq!(wrong, Vec::<String>::new(), "seed {seed}");
        unknown += notes;
    }
    assert!(unknown > 0, "all pointers could be counted");
}

/// The same, with merges that leave out what they cannot read. Without pointers: their counts end it sooner.
#[test]
fn a_merge_that_loses_what_is_damaged_is_found() {
    for (seed, mut settings) in with_garbage_collection() {
        settings.values.placement = Placement::InPlace;
        settings.layout.node_bytes = 8 << 10;
        settings.mutants = Mutants {
            lose_damaged: true,
            ..Mutants::default()
        };
        let (wrong, _) = wrong_once_mended(seed, &settings);
        assert!(!wrong.is_empty(), "seed {seed}: nothing is wrong");
    }
}

/// A store in which something is damaged that reads have met.
fn damaged(
    settings: &Settings,
    seed: u64,
) -> (Machine, Lsm, Model, BTreeMap<SegmentNumber, Buffer>) {
    let Hurt {
        machine,
        engine,
        model,
        hurt,
    } = Hurt::new(seed, settings);
    assert_right(&engine, &model, "damaged");
    assert!(!engine.damages().is_empty());
    (machine, engine, model, hurt)
}

fn repair(machine: &mut Machine, engine: &Lsm, number: SegmentNumber, bytes: &Buffer) {
    let copy = engine.stored();
    let Some(part) = copy.wanted(number) else {
        return;
    };
    assert_eq!((part.from, part.to as usize), (0, bytes.len()));
    let repair = copy
        .begin_repair(number, Buffer::from_slice(bytes))
        .unwrap();
    loop {
        machine.step(engine);
        if let Some(done) = repair.poll(&*engine.stored()) {
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
            let copy = engine.stored();
            let mut flipped = Buffer::from_slice(bytes);
            flipped[40] ^= 8;
            let others = hurt.values().filter(|other| !std::ptr::eq(*other, bytes));
            for wrong in std::iter::once(&flipped).chain(others) {
                let begun = copy.begin_repair(*number, Buffer::from_slice(wrong));
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

/// An index segment that leads to a leaf segment which has left the version, with what another member would send.
fn with_a_gone_child(engine: &Lsm) -> Option<(SegmentNumber, Buffer)> {
    let version = engine.version();
    let mut indexes = version
        .finished()
        .filter(|entry| entry.segment.form.is_index());
    indexes.find_map(|entry| {
        let (number, len) = (entry.segment.number, entry.segment.len);
        let bytes = engine.read(front(number, len), &[]);
        let bytes = bytes.unwrap().unwrap();
        let (_, children) = form_and_refs(version.name_of(&entry.segment), &bytes).unwrap();
        let mut children = children.iter();
        let gone = children.any(|(child, _)| version.stored(*child).is_none());
        gone.then_some((number, bytes))
    })
}

/// A merge has passed over a leaf segment, and took the others of its tree. Nobody knows any more where these lay. What
/// is not damaged of the index stays as it is: a snapshot still has them.
#[test]
fn an_index_segment_is_written_again_although_a_child_is_gone() {
    let settings = mixed(tiny_whole()).with(|of| {
        of.layout.addresses = AddressMode::Rewrite;
        of.cache_bytes = 0;
    });
    let mut machine = Machine::new(settings, 2048, 7);
    let engine = machine.open();
    let mut model = Model::new();
    for number in 0..1500 {
        write(&mut machine, &engine, &mut model, number);
    }
    machine.settle(&engine);
    let (snapshot, shown) = (engine.snapshot(), model.clone());
    let leaf = {
        let version = engine.version();
        let (_, run) = version.runs().last().unwrap();
        let middle = &run.segments[run.segments.len() / 2].segment;
        version.stored(middle.number).unwrap().place().start()
    };
    flip(&machine, leaf);
    let mut numbers = 1500..6000;
    let (number, bytes) = loop {
        let number = numbers
            .next()
            .expect("a merge passes over the leaf segment");
        write(&mut machine, &engine, &mut model, number);
        if let Some(found) = with_a_gone_child(&engine) {
            break found;
        }
    };
    flip(&machine, leaf);
    let start = engine.version().stored(number).unwrap().place().start();
    let held = |machine: &Machine| {
        let mut held = Buffer::for_reading(bytes.len());
        machine.device.read(start, &mut held).unwrap();
        held
    };
    let before = held(&machine);
    machine.device.flip_bit(start + bytes.len() as u64 - 60, 3);
    repair(&mut machine, &engine, number, &bytes);
    assert!(*held(&machine) == *before, "it is what it was");
    for (key, value) in &shown {
        assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
    }
    drop(snapshot);
    flip(&machine, start);
    repair(&mut machine, &engine, number, &bytes);
    for number in 0..3000 {
        let key = format!("{number:06}").into_bytes();
        assert_eq!(engine.get(&key).unwrap().value.as_ref(), model.get(&key));
    }
    machine.close(engine);
}

/// A segment of which a merge took a part, with what another member would send of it: that lacks the pointers of the
/// part.
fn with_a_part_taken(engine: &Lsm) -> Option<(SegmentNumber, Buffer)> {
    let version = engine.version();
    let mut leaves = version
        .finished()
        .filter(|entry| !entry.segment.form.is_index() && entry.segment.points_into_logs());
    leaves.find_map(|entry| {
        let (number, len) = (entry.segment.number, entry.segment.len);
        let bytes = engine.read(front(number, len), &[])?;
        let mut bytes = bytes.unwrap();
        let mut lacks = false;
        for_each_pointer_mut(version.name_of(&entry.segment), &mut bytes, |_, at| {
            lacks |= at.segment() == SegmentNumber(0);
            Some(at)
        })
        .unwrap();
        lacks.then_some((number, bytes))
    })
}

/// What another member sends lacks the pointers that do not count any more. A snapshot here may still need them.
#[test]
fn what_is_not_damaged_of_a_segment_stays_as_it_is_when_it_is_written_again() {
    let settings = mixed(tiny()).with(|of| {
        of.layout.addresses = AddressMode::Rewrite;
        of.cache_bytes = 0;
    });
    let mut machine = Machine::new(settings, 2048, 7);
    let engine = machine.open();
    let mut model = Model::new();
    for number in 0..1500 {
        write(&mut machine, &engine, &mut model, number);
    }
    machine.settle(&engine);
    let (snapshot, shown) = (engine.snapshot(), model.clone());
    let mut numbers = 1500..6000;
    let (number, bytes) = loop {
        let number = numbers.next().expect("a merge takes a part of a segment");
        write(&mut machine, &engine, &mut model, number);
        if let Some(found) = with_a_part_taken(&engine) {
            break found;
        }
    };
    let start = engine.version().stored(number).unwrap().place().start();
    let held = |machine: &Machine| {
        let mut held = Buffer::for_reading(bytes.len());
        machine.device.read(start, &mut held).unwrap();
        held
    };
    let before = held(&machine);
    machine.device.flip_bit(start + bytes.len() as u64 - 60, 3);
    repair(&mut machine, &engine, number, &bytes);
    assert!(*held(&machine) == *before, "it is what it was");
    for (key, value) in &shown {
        assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
    }
    drop(snapshot);
    machine.close(engine);
}

/// A loss of power at any request while segments are written again leaves each damaged or whole, and everything else
/// as it was.
#[test]
fn a_crash_while_something_is_written_again_harms_nothing() {
    let (mut ended, mut mended) = (0, 0);
    for (seed, settings) in worlds() {
        for requests in 0..3 {
            let (mut machine, engine, model, hurt) = damaged(&settings, seed);
            let copy = engine.stored();
            for (number, bytes) in &hurt {
                let bytes = Buffer::from_slice(bytes);
                drop(copy.begin_repair(*number, bytes).unwrap());
            }
            for _ in 0..requests {
                ended += u32::from(machine.device.run_one());
            }
            drop(copy);
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
