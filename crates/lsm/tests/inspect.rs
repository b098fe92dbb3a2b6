//! A region of a stopped server is found whole; damage of every kind, planted one piece at a time,
//! is found and said to be where it is.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::{Machine, tiny, tiny_whole};
use argosy_base::{AddressMode, DeviceSegment, LogId, SegmentNumber};
use argosy_device::{Crash, Device, MemoryDevice, Store, StoreSettings};
use argosy_engine::conformance::Host;
use argosy_engine::{EngineError, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::edit::Edit;
use argosy_lsm::inspect::{
    Comparison, Difference, InspectedRegion, LeftWindows, Member, Problem, ProblemKind, compare,
    log_ends, owners, verify_owners, verify_region,
};
use argosy_lsm::manifest::{Manifest, ManifestRecord};
use argosy_lsm::names::logs::{LARGE_LOG, LOGS, log_name};
use argosy_lsm::{Settings, Version};

/// Writes pairs of all sizes until several levels exist, and stops.
fn loaded(seed: u64, rounds: u64) -> (Arc<MemoryDevice>, Settings) {
    // No garbage is collected: segments are many and not full.
    let settings = tiny().with(|of| of.space.floor_bytes = Some(1 << 30));
    loaded_with(settings, seed, rounds)
}

fn loaded_with(settings: Settings, seed: u64, rounds: u64) -> (Arc<MemoryDevice>, Settings) {
    let mut machine = Machine::new(settings.clone(), 128, seed);
    let engine = machine.open();
    for number in 0..rounds {
        let key = format!("{:06}", number * 7919 % 5000);
        let len = [20, 150, 400, 1500][usize::try_from(number % 4).unwrap()];
        let mut batch = WriteBatch::new();
        batch.put(key.as_bytes(), vec![b'v'; len]).unwrap();
        if number % 9 == 0 {
            batch
                .delete(format!("{:06}", number % 5000).as_bytes())
                .unwrap();
        }
        loop {
            match engine.write(&batch, WriteOptions::default()) {
                Ok(_) => break,
                Err(EngineError::Busy(_)) => {
                    machine.step(&engine);
                }
                Err(error) => panic!("{error}"),
            }
        }
        machine.step(&engine);
    }
    machine.close(engine);
    (machine.device, settings)
}

fn copy(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(device.crash_clone(Crash::Kill, 1))
}

fn store_of(device: &Arc<MemoryDevice>) -> Arc<Store> {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    Store::open_read_only(device).unwrap()
}

fn region_of(store: &Arc<Store>, settings: &Settings) -> InspectedRegion {
    InspectedRegion::read(store, &store.regions()[0], settings)
}

/// All that is wrong with a device of one region.
fn problems(device: &Arc<MemoryDevice>, settings: &Settings) -> Vec<Problem> {
    let store = store_of(device);
    let regions = [region_of(&store, settings)];
    let mut problems = verify_owners(&owners(&regions), store.total());
    let [region] = regions;
    problems.extend(region.problems);
    if let Some(version) = &region.version {
        let (checked, found, _) = verify_region(version, &LeftWindows::default(), settings);
        assert!(checked.level_segments > 0);
        problems.extend(found);
    }
    problems
}

fn version_of(device: &Arc<MemoryDevice>, settings: &Settings) -> Version {
    region_of(&store_of(device), settings).version.unwrap()
}

/// Where byte `offset` of segment `number` lies on the device.
fn on_device(version: &Version, number: SegmentNumber, offset: u32) -> u64 {
    version.stored(number).unwrap().place().start() + u64::from(offset)
}

/// Level segments, and how long they are.
fn level_segments(version: &Version) -> Vec<(SegmentNumber, u32)> {
    let runs = version.runs().flat_map(|(_, run)| run.entries());
    runs.map(|entry| (entry.segment.number, entry.segment.len))
        .collect()
}

fn sealed(version: &Version, log: LogId) -> Vec<(SegmentNumber, u32)> {
    let sealed = version.log(log).iter().map(|entry| entry.segment);
    sealed
        .filter_map(|s| Some((s.number, s.end.filter(|end| *end > 64)?)))
        .collect()
}

#[test]
fn a_whole_region_is_found_whole() {
    for addresses in AddressMode::ALL {
        for settings in [tiny(), tiny_whole()] {
            whole_is_found_whole(settings.with(|of| of.layout.addresses = addresses));
        }
    }
}

fn whole_is_found_whole(settings: Settings) {
    let (device, settings) = loaded_with(settings, 1, 6000);
    assert_eq!(problems(&device, &settings), []);
    let version = version_of(&device, &settings);
    assert!(version.levels().len() >= 2, "{version}");
    let (checked, _, notes) = verify_region(&version, &LeftWindows::default(), &settings);
    assert!(
        checked.entries > 1000 && checked.pointers > 100,
        "{checked:?}"
    );
    assert!(
        checked.records > 0 && checked.log_segments > 2,
        "{checked:?}"
    );
    // What no level has yet is counted, too: each write has an LSN of its own.
    let ends = log_ends(&version, &LeftWindows::default(), &settings).unwrap();
    let most = ends.last.0 + 1 - version.replay_from().0;
    assert!((1..=most).contains(&ends.replayed_records), "{ends:?}");
    assert_eq!((ends.unflushed_records, ends.unflushed.len()), (0, 0));
    assert_eq!(notes, Vec::<String>::new());
}

/// Every byte of a level segment is covered, and so is each record of a sealed log.
#[test]
fn a_flipped_bit_is_found_in_every_kind_of_block() {
    flipped_bits_are_found(tiny());
    flipped_bits_are_found(tiny_whole());
}

fn flipped_bits_are_found(settings: Settings) {
    let (device, settings) = loaded_with(settings, 2, 4000);
    let version = version_of(&device, &settings);
    for (number, len) in level_segments(&version) {
        // The footer's words, then index, filter and table in front of it, then leaves.
        let footer = (0..72).step_by(9).map(|at| len - 128 + at);
        let front = (0..2500).step_by(313).map(|at| len - 129 - at);
        let leaves = (0..len - 4096).step_by(6151);
        for within in footer.chain(front).chain(leaves) {
            let hurt = copy(&device);
            hurt.flip_bit(on_device(&version, number, within), within % 8);
            let found = problems(&hurt, &settings);
            let here = |p: &Problem| p.number == Some(number) && p.kind != ProblemKind::Missing;
            assert!(found.iter().any(here), "{number}, byte {within}: {found:?}");
        }
    }
    for log in LOGS {
        let sealed = sealed(&version, log);
        for (number, end) in sealed.iter().take(8) {
            for within in [3, 61, 70, end - 1] {
                let hurt = copy(&device);
                hurt.flip_bit(on_device(&version, *number, within), 2);
                let found = problems(&hurt, &settings);
                let first = found.iter().find(|p| p.number == Some(*number));
                let first = first.unwrap_or_else(|| panic!("{log:?} {number} {within}: {found:?}"));
                assert!(first.offset <= within, "{first}");
                assert_eq!(first.part, log_name(log));
            }
        }
    }
    let region = region_of(&store_of(&device), &settings);
    let chain = region.entry.manifest;
    for at in [0, 5, 9, 17, 29, 40] {
        let hurt = copy(&device);
        hurt.flip_bit(chain[0].start() + at, 1);
        let found = problems(&hurt, &settings);
        assert!(
            found.iter().any(|p| p.part == "manifest"),
            "{at}: {found:?}"
        );
    }
}

/// The last append could have been torn by a crash, and a server cuts it off: it is told anyway.
#[test]
fn damage_to_the_last_append_of_a_manifest_is_told() {
    let (device, settings) = loaded(3, 1500);
    let store = store_of(&device);
    let chain = region_of(&store, &settings).entry.manifest;
    let segment_bytes = u64::try_from(settings.layout.segment_bytes).unwrap();
    let used = |segment: &DeviceSegment| {
        let mut bytes = vec![0; settings.layout.segment_bytes];
        store.read(*segment, 0, &mut bytes).unwrap();
        bytes
            .chunks(4096)
            .take_while(|block| block.iter().any(|b| *b != 0))
            .count() as u64
    };
    let last = chain
        .iter()
        .rev()
        .find(|segment| used(segment) > 0)
        .unwrap();
    let at = last.start() + (used(last) - 1) * 4096;
    assert!(at < last.start() + segment_bytes);
    for byte in [0, 4, 6, 8, 16, 20, 24, 28, 40, 4095] {
        let hurt = copy(&device);
        hurt.flip_bit(at + byte, 0);
        let found = problems(&hurt, &settings);
        let told = found.iter().find(|p| p.part == "manifest");
        assert!(told.is_some(), "byte {byte}: {found:?}");
    }
}

#[test]
fn a_stale_block_is_found_and_said_to_be_stale() {
    let (device, settings) = loaded(4, 4000);
    let version = version_of(&device, &settings);
    let segments = level_segments(&version);
    let (victim, len) = segments[0];
    let (other, other_len) = *segments
        .iter()
        .find(|(n, l)| *n != victim && *l >= len)
        .unwrap();
    let store = store_of(&device);
    let block = |number: SegmentNumber, offset: u32, len: u32| {
        let mut bytes = vec![0; len as usize];
        let place = version.stored(number).unwrap().place();
        store.read(place, offset, &mut bytes).unwrap();
        bytes
    };

    // A leaf of another segment, at its own offset: whole, and under another name.
    let hurt = copy(&device);
    let size = u32::try_from(settings.layout.node_bytes.max(4096)).unwrap();
    hurt.poke(on_device(&version, victim, 0), &block(other, 0, size));
    let found = problems(&hurt, &settings);
    let told = found.iter().find(|p| p.number == Some(victim)).unwrap();
    assert_eq!((told.kind, told.offset), (ProblemKind::Stale, 0), "{told}");
    assert!(told.what.contains(&other.to_string()), "{told}");

    // A whole segment of another number.
    let hurt = copy(&device);
    let tail = block(other, other_len - len, len);
    hurt.poke(on_device(&version, victim, 0), &tail);
    let found = problems(&hurt, &settings);
    let told = found.iter().find(|p| p.number == Some(victim)).unwrap();
    assert!(
        matches!(told.kind, ProblemKind::Stale | ProblemKind::Damaged),
        "{told}"
    );

    // The head of another log segment.
    let logs = sealed(&version, LARGE_LOG);
    let [(first, _), (second, _), ..] = logs.as_slice() else {
        panic!("too few log segments: {version}");
    };
    let hurt = copy(&device);
    hurt.poke(on_device(&version, *first, 0), &block(*second, 0, 4096));
    let found = problems(&hurt, &settings);
    let told = found.iter().find(|p| p.number == Some(*first)).unwrap();
    assert_eq!(told.kind, ProblemKind::Stale, "{told}");
    assert!(told.what.contains(&second.to_string()), "{told}");
}

#[test]
fn a_missing_segment_is_found() {
    let (device, settings) = loaded(5, 4000);
    let version = version_of(&device, &settings);
    let level = level_segments(&version)[0].0;
    let log = sealed(&version, LARGE_LOG)[0].0;
    for number in [level, log] {
        let hurt = copy(&device);
        let zeros = vec![0; settings.layout.segment_bytes];
        hurt.poke(on_device(&version, number, 0), &zeros);
        let found = problems(&hurt, &settings);
        let told = found.iter().find(|p| p.number == Some(number)).unwrap();
        assert_eq!(told.kind, ProblemKind::Missing, "{told}");
    }
    // A place that the device does not have.
    let found = with_checkpoint(&device, &settings, |_, places| {
        places[0].1 = DeviceSegment(1 << 20);
    });
    let told = found
        .iter()
        .find(|p| p.place == Some(DeviceSegment(1 << 20)))
        .unwrap();
    assert_eq!(told.kind, ProblemKind::Missing, "{told}");
}

#[test]
fn a_segment_with_two_owners_is_found() {
    let (device, settings) = loaded(6, 3000);
    let mut twice = DeviceSegment(0);
    let found = with_checkpoint(&device, &settings, |_, places| {
        twice = places[0].1;
        places[1].1 = twice;
    });
    let told: Vec<_> = found
        .iter()
        .filter(|p| p.kind == ProblemKind::DoublyOwned)
        .collect();
    assert_eq!(told.len(), 1, "{found:?}");
    assert_eq!(told[0].place, Some(twice));
    assert!(told[0].what.starts_with("2 refer"), "{}", told[0]);
}

#[test]
fn a_wrong_count_of_references_is_found() {
    let (device, settings) = loaded(7, 3000);
    let mut victim = SegmentNumber(0);
    let found = with_checkpoint(&device, &settings, |edit, _| {
        let mut added = edit.added.iter_mut().map(|(_, _, segment)| segment);
        let segment = added.find(|s| s.large_bytes > 0).unwrap();
        victim = segment.number;
        segment.large_bytes += 1;
    });
    let told = found.iter().find(|p| p.number == Some(victim)).unwrap();
    assert_eq!(told.kind, ProblemKind::Reference, "{told}");
}

#[test]
fn pointers_that_are_counted_wrong_are_found() {
    // Fewer than there are: more than segments hold a rule excludes.
    for (added, dropped) in [(-1, 0), (0, 1)] {
        let (device, settings) = loaded(7, 3000);
        let mut victim = SegmentNumber(0);
        let found = with_checkpoint(&device, &settings, |edit, _| {
            let mut counted = edit.references.iter_mut();
            let counted = counted.find(|r| r.added > r.dropped + 1).unwrap();
            victim = counted.number;
            counted.added = counted.added.strict_add_signed(added);
            counted.dropped += dropped;
        });
        let told = found.iter().find(|p| p.part == "references");
        let told = told.unwrap_or_else(|| panic!("{found:#?}"));
        assert_eq!(told.kind, ProblemKind::Reference, "{told}");
        assert_eq!(told.number, Some(victim), "{told}");
    }
}

/// What is found when the region's manifest begins with another checkpoint.
fn with_checkpoint(
    device: &MemoryDevice,
    settings: &Settings,
    change: impl FnOnce(&mut Edit, &mut Vec<(SegmentNumber, DeviceSegment)>),
) -> Vec<Problem> {
    problems(&changed(device, settings, change), settings)
}

/// A copy whose manifest begins with another checkpoint.
fn changed(
    device: &MemoryDevice,
    settings: &Settings,
    change: impl FnOnce(&mut Edit, &mut Vec<(SegmentNumber, DeviceSegment)>),
) -> Arc<MemoryDevice> {
    let hurt = copy(device);
    let version = version_of(&hurt, settings);
    let mut edit = version.checkpoint();
    let mut places: Vec<_> = version
        .table()
        .iter()
        .map(|(number, stored)| (*number, stored.place()))
        .collect();
    change(&mut edit, &mut places);
    let device: Arc<dyn Device> = hurt.clone();
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    let entry = store.regions()[0].clone();
    let segment_bytes = u32::try_from(settings.layout.segment_bytes).unwrap();
    let (mut manifest, _) = Manifest::open(&store, &entry, segment_bytes).unwrap();
    version
        .table()
        .values()
        .for_each(|stored| store.claim(stored.place()).unwrap().keep());
    store.finish_recovery();
    let edit = edit.encode();
    manifest
        .checkpoint(&ManifestRecord { edit, places })
        .unwrap();
    manifest.wait().unwrap();
    drop(manifest);
    drop(store);
    hurt
}

/// Counts one byte less than there is of what levels point to in some log segment, which is returned.
fn miscount(edit: &mut Edit) -> SegmentNumber {
    let mut counted = edit.references.iter_mut();
    let counted = counted.find(|r| r.added > r.dropped + 1).unwrap();
    counted.added -= 1;
    counted.number
}

/// A mistake that both copies made alike is no difference between them: it is found by counting again.
#[test]
fn pointers_that_are_counted_wrong_make_copies_differ() {
    for addresses in AddressMode::ALL {
        let settings = tiny().with(|of| of.layout.addresses = addresses);
        let (device, settings) = loaded_with(settings, 9, 3000);
        for (wrong, named) in [
            ([false, false], None),
            ([true, false], Some("the first counts")),
            ([false, true], Some("the second counts")),
            ([true, true], Some("the first counts")),
        ] {
            let mut victim = None;
            let copies = wrong.map(|wrong| {
                changed(&device, &settings, |edit, _| {
                    if wrong {
                        victim = Some(miscount(edit));
                    }
                })
            });
            let compared = compared(&copies, &settings);
            assert_eq!(compared.is_err(), named.is_some(), "{addresses}: {wrong:?}");
            let (Err(found), Some(named)) = (compared, named) else {
                continue;
            };
            assert_eq!(found.part, "references", "{found}");
            assert_eq!(found.number, victim, "{found}");
            assert!(found.what.starts_with(named), "{found}");
        }
    }
}

/// What `inspect compare` says of two copies.
fn compared(
    copies: &[Arc<MemoryDevice>; 2],
    settings: &Settings,
) -> Result<Comparison, Box<Difference>> {
    let stores = copies.each_ref().map(store_of);
    let regions = stores.each_ref().map(|store| region_of(store, settings));
    let windows = LeftWindows::default();
    let member = |which: usize| Member {
        store: &stores[which],
        region: &regions[which],
        windows: &windows,
    };
    compare([member(0), member(1)], settings)
}

#[test]
fn copies_are_equal_or_differ_where_they_do() {
    let (device, settings) = loaded(8, 4000);
    let both = [copy(&device), copy(&device)];
    let compare_now = || compared(&both, &settings);
    let equal = compare_now().unwrap();
    assert!(
        equal.level_segments > 2 && equal.log_segments > 2,
        "{equal:?}"
    );
    assert_eq!(equal.at, Some(equal.edits[0]));

    let version = &version_of(&device, &settings);
    let (number, len) = level_segments(version)[1];
    both[1].flip_bit(on_device(version, number, len / 2), 3);
    let different = compare_now().unwrap_err();
    assert_eq!(
        (different.number, different.offset),
        (Some(number), Some(len / 2))
    );
    both[1].flip_bit(on_device(version, number, len / 2), 3);
    assert_eq!(compare_now().unwrap(), equal);

    let (number, _) = sealed(version, LARGE_LOG)[0];
    both[0].flip_bit(on_device(version, number, 100), 3);
    let different = compare_now().unwrap_err();
    assert_eq!(
        (different.number, different.offset),
        (Some(number), Some(100))
    );
    assert_eq!(different.part, "large log");
}
