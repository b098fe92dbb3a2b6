//! Medium pairs: values go to the medium log when they leave memory, come back in place at the last level,
//! and what held them is freed with the last pointer.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]
#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Machine, tiny};
use argosy_base::{AddressMode, Direction, KeyRange};
use argosy_device::{Crash, Device, Store};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{EngineError, Snapshot, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::inspect::{
    InspectedRegion, LeftWindows, Owner, owners, verify_owners, verify_region,
};
use argosy_lsm::{Compaction, Lsm, Settings, Version};

const SEGMENTS: u64 = 1024;
const KEYS: u64 = 3000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Many levels of little data.
fn deep(compaction: Compaction, addresses: AddressMode) -> Settings {
    tiny().with(|of| {
        of.memtables.bytes = 16 << 10;
        of.layout.segment_bytes = 32 << 10;
        of.values.small_bytes = 60;
        of.values.medium_log_percent = 50;
        of.levels.compaction = compaction;
        of.layout.addresses = addresses;
    })
}

/// Every way in which levels are compacted and pointers hold something.
fn modes() -> impl Iterator<Item = Settings> {
    [Compaction::Partial, Compaction::WholeLevel]
        .into_iter()
        .flat_map(|way| AddressMode::ALL.map(|addresses| deep(way, addresses)))
}

fn write(machine: &mut Machine, engine: &Lsm, choices: &mut Choices, model: &mut Model) {
    let key = format!("{:05}", choices.below(KEYS)).into_bytes();
    let mut batch = WriteBatch::new();
    if choices.chance(10) {
        batch.delete(&key).unwrap();
        model.remove(&key);
    } else {
        let len = [20, 80, 100, 110, 1500][usize::try_from(choices.below(5)).unwrap()];
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

/// Whether `snapshot` has the pairs of `model`, from either end.
fn shows(snapshot: &dyn Snapshot, model: &Model) {
    let mut up = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    for pair in model {
        let found = up.next().unwrap();
        assert_eq!(found.as_ref().map(|(key, value)| (key, value)), Some(pair));
    }
    assert_eq!(up.next().unwrap(), None);
    let mut down = snapshot.scan(&KeyRange::all(), Direction::Down).unwrap();
    for pair in model.iter().rev() {
        let found = down.next().unwrap();
        assert_eq!(found.as_ref().map(|(key, value)| (key, value)), Some(pair));
    }
    for (key, value) in model {
        assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
    }
    let keys: Vec<_> = model.keys().map(Vec::as_slice).collect();
    let found = snapshot.get_many(&keys).unwrap();
    assert!(
        found
            .iter()
            .map(Option::as_ref)
            .eq(model.values().map(Some))
    );
}

/// The version on a machine's device, after everything in it was verified.
fn verified(machine: &Machine) -> Version {
    let device: Arc<dyn Device> = Arc::<argosy_device::MemoryDevice>::clone(&machine.device);
    let store = Store::open_read_only(device).unwrap();
    let region = InspectedRegion::read(&store, &store.regions()[0], &machine.settings);
    let version = region.version.clone().unwrap();
    let (checked, problems, _) =
        verify_region(&version, &LeftWindows::default(), &machine.settings);
    assert_eq!(problems, []);
    assert_eq!(checked.medium_segments, version.medium_log().len() as u64);
    let owners = owners(&[region]);
    assert_eq!(verify_owners(&owners, store.total()), []);
    let medium = owners.values().flatten();
    let medium = medium.filter(|owner| matches!(owner, Owner::Medium(..)));
    assert_eq!(medium.count(), version.medium_log().len());
    version
}

#[test]
fn values_go_apart_and_come_back_in_place() {
    for (seed, settings) in (1..).zip(modes()) {
        let mut machine = Machine::new(settings.clone(), SEGMENTS, seed);
        let mut choices = Choices::new(seed);
        let mut model = Model::new();
        let engine = machine.open();
        for _ in 0..9000 {
            write(&mut machine, &engine, &mut choices, &mut model);
        }
        shows(&*engine.snapshot(), &model);
        // Edits that are under way count on one side alone.
        let agree = || {
            let stats = engine.stats();
            stats.medium.segments == stats.medium.freed + stats.medium.log_segments as u64
        };
        for _ in 0..1000 {
            if !agree() {
                machine.step(&engine);
            }
        }
        let stats = engine.stats();
        assert!(stats.levels.len() >= 3, "{stats:#?}");
        assert!(
            stats.medium.segments > 20 && stats.medium.written > 500,
            "{stats:#?}"
        );
        assert!(stats.medium.placed > 200, "{stats:#?}");
        assert!(stats.medium.freed > 10, "{stats:#?}");
        assert!(agree(), "{stats:#?}");
        machine.close(engine);
        let version = verified(&machine);
        assert!(!version.medium_log().is_empty(), "{version}");
        // Every value of the last level is in place, and so is none that is not medium.
        let last = version.levels().last().unwrap();
        let mut pointed = last.entries().map(|entry| entry.segment.medium_bytes);
        assert!(pointed.all(|bytes| bytes == 0), "{version}");
        let engine = machine.open();
        machine.assert_no_leak(&engine);
        shows(&*engine.snapshot(), &model);
        machine.end(engine, Crash::Kill);
    }
}

/// A value is written to the device once in the medium log and then, whatever the levels between do, in
/// place: the same history costs less than with values in all levels.
#[test]
fn the_levels_between_rewrite_pointers_only() {
    let written = |percent: u32| {
        let settings = deep(Compaction::Partial, AddressMode::Logical).with(|of| {
            of.values.medium_log_percent = percent;
            // Both are to come as far with as many steps.
            of.space.floor_bytes = Some(1 << 30);
            of.levels.l1_runs_max = 64;
            of.levels.growth_factor = 4;
            of.memtables.count_max = 8;
        });
        let mut machine = Machine::new(settings, SEGMENTS, 5);
        let mut choices = Choices::new(5);
        let mut model = Model::new();
        let engine = machine.open();
        for _ in 0..12_000 {
            write(&mut machine, &engine, &mut choices, &mut model);
        }
        shows(&*engine.snapshot(), &model);
        let stats = engine.stats();
        assert_eq!(percent > 0, stats.medium.segments > 0, "{stats:#?}");
        stats.work.write_bytes + stats.work.read_bytes
    };
    let (apart, within) = (written(200), written(0));
    assert!(apart < within, "{apart} bytes with, {within} without");
}

/// Whatever is written, the medium log stays about as long as it may be.
#[test]
fn the_medium_log_has_a_bound() {
    for (seed, settings) in (7..).zip(modes()) {
        let settings = settings.with(|of| {
            of.values.medium_log_percent = 1;
            of.levels.l1_runs = 1;
            of.levels.growth_factor = 4;
        });
        // Leaf segments of a memtable, each with a medium segment beside it, of two flushes.
        let begun = 4 * (settings.memtables.bytes / settings.layout.segment_bytes + 2) as u64;
        let mut machine = Machine::new(settings.clone(), SEGMENTS, seed);
        let mut choices = Choices::new(seed);
        let mut model = Model::new();
        let engine = machine.open();
        let mut longest = 0;
        for _ in 0..9000 {
            write(&mut machine, &engine, &mut choices, &mut model);
            let stats = engine.stats();
            let levels: u64 = stats.levels.iter().map(|level| level.bytes).sum();
            let floor =
                (settings.levels.l1_runs + settings.memtables.count_max) * settings.memtables.bytes;
            let bound = (levels / 100 + floor as u64) / settings.layout.segment_bytes as u64;
            let segments = stats.medium.log_segments as u64;
            assert!(segments <= bound + begun, "{segments} of {bound}");
            longest = longest.max(segments);
        }
        assert!(longest > 0, "there was one");
        shows(&*engine.snapshot(), &model);
    }
}

/// Whoever reads values in the medium log triggers merges that put them in place; whoever does not, does not.
#[test]
fn reads_trigger_putting_values_in_place() {
    for (seed, settings) in (21..).zip(modes()) {
        let settings = settings.with(|of| {
            of.values.medium_log_percent = 1000;
            of.space.amplification_max = 1000;
        });
        let mut machine = Machine::new(settings.clone(), SEGMENTS, seed);
        let mut choices = Choices::new(seed);
        let mut model = Model::new();
        let engine = machine.open();
        while engine.stats().medium.log_segments < 3 {
            write(&mut machine, &engine, &mut choices, &mut model);
        }
        for _ in 0..2000 {
            machine.step(&engine);
        }
        let before = engine.stats();
        assert!(before.medium.log_segments > 0, "at rest: {before:#?}");
        let levels: u64 = before.levels.iter().map(|level| level.bytes).sum();
        let segments = (before.medium.log_segments * settings.layout.segment_bytes) as u64;
        let price = (levels + segments) / 1024;
        let mut looks = 0;
        let mut rounds = 0;
        while engine.stats().medium.log_segments > 0 {
            for key in model.keys() {
                engine.get(key).unwrap();
                machine.step(&engine);
            }
            looks += model.len() as u64;
            rounds += 1;
            assert!(
                rounds < 2000,
                "{looks} gets of {price}: {:#?}",
                engine.stats()
            );
        }
        assert!(looks >= price, "{looks} gets of {price}");
        assert!(engine.stats().medium.placed > before.medium.placed);
        shows(&*engine.snapshot(), &model);
    }
}

/// A snapshot keeps the values that it sees, whatever is merged meanwhile.
#[test]
fn a_snapshot_keeps_its_values() {
    for (seed, settings) in (11..).zip(modes()) {
        let mut machine = Machine::new(settings, SEGMENTS, seed);
        let mut choices = Choices::new(seed);
        let mut model = Model::new();
        let engine = machine.open();
        for _ in 0..4000 {
            write(&mut machine, &engine, &mut choices, &mut model);
        }
        let (snapshot, then) = (engine.snapshot(), model.clone());
        let before = engine.stats();
        for _ in 0..9000 {
            write(&mut machine, &engine, &mut choices, &mut model);
        }
        let freed = engine.stats().medium.freed - before.medium.freed;
        assert!(freed > before.medium.log_segments as u64, "{freed}");
        shows(&*snapshot, &then);
        drop(snapshot);
        shows(&*engine.snapshot(), &model);
        machine.close(engine);
        let engine = machine.open();
        machine.assert_no_leak(&engine);
    }
}

/// A region goes over from one placement to another and back: what is in the medium log is read all the same,
/// and goes in its time.
#[test]
fn the_placement_may_change() {
    let mut machine = Machine::new(
        deep(Compaction::Partial, AddressMode::Rewrite),
        SEGMENTS,
        17,
    );
    let mut choices = Choices::new(17);
    let mut model = Model::new();
    for opening in 0..8 {
        machine.settings.values.medium_log_percent = [50, 0][opening % 2];
        let engine = machine.open();
        machine.assert_no_leak(&engine);
        shows(&*engine.snapshot(), &model);
        for _ in 0..2500 {
            write(&mut machine, &engine, &mut choices, &mut model);
        }
        let stats = engine.stats();
        assert_eq!(stats.medium.segments > 0, opening % 2 == 0, "{stats:#?}");
        shows(&*engine.snapshot(), &model);
        machine.end(engine, Crash::Kill);
    }
}

/// The size of a leaf, and that from which on pairs are large, may change from one opening to the next: what is
/// there is read as it was made, and merged into what is made now.
#[test]
fn sizes_of_leaves_and_of_large_pairs_may_change() {
    for (seed, settings) in (1..).zip(modes()) {
        let mut machine = Machine::new(settings, SEGMENTS, seed);
        let mut choices = Choices::new(seed);
        let mut model = Model::new();
        for (node_bytes, large_bytes) in [(512, 1000), (8192, 2000), (1024, 300), (4096, 1000)] {
            machine.settings.layout.node_bytes = node_bytes;
            machine.settings.values.large_bytes = large_bytes;
            let engine = machine.open();
            shows(&*engine.snapshot(), &model);
            for _ in 0..3000 {
                write(&mut machine, &engine, &mut choices, &mut model);
            }
            shows(&*engine.snapshot(), &model);
            machine.settle(&engine);
            shows(&*engine.snapshot(), &model);
            machine.end(engine, Crash::Kill);
        }
        let engine = machine.open();
        shows(&*engine.snapshot(), &model);
        machine.assert_no_leak(&engine);
        machine.end(engine, Crash::Kill);
    }
}
