//! Levels that are compacted whole are trees across their segments; a region goes over from one way of
//! compaction to the other and back, and both kinds of levels stand beside each other meanwhile.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]
#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Machine, tiny, tiny_whole};
use argosy_base::{Direction, KeyRange};
use argosy_device::{Crash, Device, Store};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{EngineError, Snapshot, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::inspect::{InspectedRegion, LeftWindows, verify_region};
use argosy_lsm::names::Form;
use argosy_lsm::{Compaction, Lsm, Settings, Version};

const SEGMENTS: u64 = 1024;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Small pairs in many segments.
fn small(compaction: Compaction) -> Settings {
    tiny().with(|of| {
        of.memtables.bytes = 24 << 10;
        of.layout.segment_bytes = 32 << 10;
        of.levels.compaction = compaction;
    })
}

fn write(machine: &mut Machine, engine: &Lsm, choices: &mut Choices, model: &mut Model) {
    let key = format!("{:05}", choices.below(3000)).into_bytes();
    let mut batch = WriteBatch::new();
    if choices.chance(10) {
        batch.delete(&key).unwrap();
        model.remove(&key);
    } else {
        let len = [20, 60, 90, 1500][usize::try_from(choices.below(4)).unwrap()];
        let value = vec![choices.bits().to_le_bytes()[0]; len];
        batch.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    loop {
        match engine.write(&batch, WriteOptions::default()) {
            Ok(_) => break,
            Err(EngineError::Busy(_)) => {
                machine.step(engine);
            }
            Err(error) => panic!("{error}"),
        }
    }
    machine.step(engine);
}

/// Whether `snapshot` has the pairs of `model`, from either end of some ranges.
fn shows(snapshot: &dyn Snapshot, model: &Model) {
    let range = |from: u32, to: u32| {
        let key = |number: u32| format!("{number:05}").into_bytes();
        KeyRange::new(key(from), Some(key(to)))
    };
    let parts = (0..3000).step_by(37).map(|from| range(from, from + 91));
    for range in parts.chain([KeyRange::all()]) {
        let mut up = snapshot.scan(&range, Direction::Up).unwrap();
        let inside = || model.iter().filter(|(key, _)| range.contains(key));
        for pair in inside() {
            let found = up.next().unwrap();
            assert_eq!(found.as_ref().map(|(key, value)| (key, value)), Some(pair));
        }
        assert_eq!(up.next().unwrap(), None);
        let mut down = snapshot.scan(&range, Direction::Down).unwrap();
        for pair in inside().rev() {
            let found = down.next().unwrap();
            assert_eq!(found.as_ref().map(|(key, value)| (key, value)), Some(pair));
        }
        assert_eq!(down.next().unwrap(), None);
    }
}

fn check(engine: &Lsm, model: &Model) {
    shows(&*engine.snapshot(), model);
    for number in 0..3000 {
        let key = format!("{number:05}").into_bytes();
        let found = engine.get(&key).unwrap().value;
        assert_eq!(found.as_ref(), model.get(&key), "{number}");
    }
}

/// The version on a machine's device, after everything in it was verified.
fn verified(machine: &Machine) -> Version {
    let device: Arc<dyn Device> = Arc::<argosy_device::MemoryDevice>::clone(&machine.device);
    let store = Store::open_read_only(device).unwrap();
    let region = InspectedRegion::read(&store, &store.regions()[0], &machine.settings);
    let version = region.version.unwrap();
    let (checked, problems, _) =
        verify_region(&version, &LeftWindows::default(), &machine.settings);
    assert_eq!(problems, []);
    assert!(checked.level_segments > 0);
    version
}

/// Segments of each kind: self-contained, leaves, index.
fn kinds(version: &Version) -> [usize; 3] {
    let mut kinds = [0; 3];
    for entry in version.levels().iter().flat_map(|level| level.entries()) {
        kinds[match entry.segment.form {
            Form::SelfContained => 0,
            Form::Leaves => 1,
            Form::Index(_) => 2,
            Form::Medium => unreachable!("it is of no level"),
        }] += 1;
    }
    kinds
}

#[test]
fn levels_that_are_compacted_whole_are_trees() {
    let mut machine = Machine::new(small(Compaction::WholeLevel), SEGMENTS, 1);
    let mut choices = Choices::new(1);
    let mut model = Model::new();
    let engine = machine.open();
    for _ in 0..9000 {
        write(&mut machine, &engine, &mut choices, &mut model);
    }
    check(&engine, &model);
    let stats = engine.stats();
    assert!(
        stats.work.compactions > 5 && stats.levels.len() >= 2,
        "{stats:?}"
    );
    assert!(stats.cache.index.hits > 1000, "{:?}", stats.cache);
    for level in &stats.levels {
        assert_eq!(level.trees, level.runs, "{level:?}");
    }
    machine.close(engine);
    let version = verified(&machine);
    let [alone, leaves, index] = kinds(&version);
    assert!(alone == 0 && leaves > 5 && index >= 2, "{version}");
    let trees = version.runs().map(|(_, run)| run.tree.as_ref().unwrap());
    assert!(
        trees.map(|tree| tree.tree.height).max() >= Some(2),
        "{version}"
    );
}

/// Every opening compacts in the other way than the one before; kills come in between.
#[test]
fn the_way_of_compaction_may_change() {
    let mut seen = [false; 3];
    for seed in 0..6u64 {
        let mut machine = Machine::new(small(Compaction::Partial), SEGMENTS, seed);
        let mut choices = Choices::new(seed);
        let mut model = Model::new();
        for opening in 0..8 {
            machine.settings.levels.compaction = match (opening + seed) % 2 {
                0 => Compaction::Partial,
                _ => Compaction::WholeLevel,
            };
            let engine = machine.open();
            machine.assert_no_leak(&engine);
            check(&engine, &model);
            for _ in 0..200 + choices.below(1200) {
                write(&mut machine, &engine, &mut choices, &mut model);
            }
            check(&engine, &model);
            if choices.chance(50) {
                machine.end(engine, Crash::Kill);
                continue;
            }
            machine.close(engine);
            let [alone, leaves, _] = kinds(&verified(&machine));
            seen[usize::from(alone > 0) + 2 * usize::from(leaves > 0) - 1] = true;
        }
    }
    assert_eq!(seen, [true; 3], "only segments alone, only trees, and both");
}

/// A snapshot keeps the trees that it reads, whatever is merged meanwhile.
#[test]
fn a_snapshot_keeps_its_trees() {
    let mut machine = Machine::new(tiny_whole(), SEGMENTS, 3);
    let mut choices = Choices::new(3);
    let mut model = Model::new();
    let engine = machine.open();
    for _ in 0..3000 {
        write(&mut machine, &engine, &mut choices, &mut model);
    }
    let snapshot = engine.snapshot();
    let then = model.clone();
    let before = engine.stats().work.compactions;
    for _ in 0..6000 {
        write(&mut machine, &engine, &mut choices, &mut model);
    }
    assert!(engine.stats().work.compactions > before + 2);
    shows(&*snapshot, &then);
    drop(snapshot);
    check(&engine, &model);
}
