//! Tests of the store: see [`super`].

use std::sync::Arc;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{DeviceSegment, Incarnation, Instant, RegionId};

use super::background::{FREED_KEPT, IDLE, STEP_MAX};
use super::*;
use crate::catalog::CATALOG_BYTES_MAX;
use crate::testing::TempDir;
use crate::{Crash, FileDevice, FileSettings, MemoryDevice};

const SEGMENTS: u64 = 16;

fn device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::eager(SEGMENTS * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).unwrap();
    Arc::new(device)
}

fn open(device: &Arc<MemoryDevice>) -> Arc<Store> {
    Store::open(device.clone(), &StoreSettings::default()).unwrap()
}

fn recovered(device: &Arc<MemoryDevice>) -> Arc<Store> {
    let store = open(device);
    store.finish_recovery();
    store
}

fn entry(region: u32, manifest: &[&SegmentHandle], word: u64) -> RegionEntry {
    RegionEntry {
        region: RegionId(region),
        manifest: manifest.iter().map(|h| h.segment()).collect(),
        words: [word, 0],
    }
}

#[test]
fn each_opening_takes_the_next_incarnation() {
    let device = device();
    for n in 1..5 {
        assert_eq!(open(&device).incarnation(), Incarnation(n));
    }
}

#[test]
fn a_store_is_not_made_twice() {
    let device = device();
    assert!(Store::is_formatted(&*device).unwrap());
    let error = Store::format(&*device, &FormatOptions::default()).unwrap_err();
    assert!(matches!(error, DeviceError::Unusable { .. }), "{error}");
}

#[test]
fn an_empty_device_holds_no_store() {
    for len in [0, SEGMENT_SIZE, 4 * SEGMENT_SIZE] {
        let device = Arc::new(MemoryDevice::eager(len as u64, 1));
        assert!(!Store::is_formatted(&*device).unwrap());
        let opened = Store::open(device, &StoreSettings::default());
        assert!(matches!(opened.err(), Some(DeviceError::Unusable { .. })));
    }
}

#[test]
fn the_catalog_survives_and_keeps_its_manifests() {
    let device = device();
    let store = recovered(&device);
    let (one, two) = (
        store.allocate(Purpose::Write).unwrap(),
        store.allocate(Purpose::Write).unwrap(),
    );
    let wanted = entry(7, &[&one, &two], 42);
    store.set_region(wanted.clone()).wait().unwrap();
    drop((one, two, store));

    let store = recovered(&device);
    assert_eq!(store.regions(), std::slice::from_ref(&wanted));
    assert_eq!(store.used(), 3, "segment 0 and the manifest");
    // Nobody is given a segment of the manifest.
    while let Ok(handle) = store.allocate(Purpose::Write) {
        assert!(!wanted.manifest.contains(&handle.segment()));
        std::mem::forget(handle);
    }
}

#[test]
fn a_replaced_manifest_is_free_once_the_change_has_ended() {
    let device = device();
    let store = recovered(&device);
    let old = store.allocate(Purpose::Write).unwrap();
    let old_segment = old.segment();
    store.set_region(entry(1, &[&old], 0)).wait().unwrap();
    drop(old);
    assert_eq!(store.references(old_segment), 1, "the catalog's");
    let new = store.allocate(Purpose::Write).unwrap();
    store.set_region(entry(1, &[&new], 0)).wait().unwrap();
    assert_eq!(store.references(old_segment), 0);
    assert_eq!(store.references(new.segment()), 2);
    store.remove_region(RegionId(1)).wait().unwrap();
    assert_eq!(store.references(new.segment()), 1);
    assert_eq!(store.regions(), []);
}

#[test]
fn a_segment_is_free_when_its_last_handle_is_dropped() {
    let device = device();
    let store = recovered(&device);
    let handle = store.allocate(Purpose::Write).unwrap();
    let segment = handle.segment();
    let data = Arc::new(Buffer::from_slice(&[7; BLOCK_SIZE]));
    let ticket = store.submit_write(segment, 0, data, 0..BLOCK_SIZE);
    store.wait(&ticket).unwrap();
    let other = handle.clone();
    drop(handle);
    assert_eq!(store.used(), 2);
    drop(other);
    assert_eq!(store.used(), 1);
    let next = store.allocate(Purpose::Write).unwrap();
    assert_ne!(next.segment(), segment, "its space is still to go back");
    assert_eq!(device.counters().discards, 0);
    // Where nothing else is free it goes back at once.
    let mut taken = Vec::new();
    while let Ok(handle) = store.allocate(Purpose::Write) {
        taken.push(handle);
    }
    assert_eq!(taken.last().map(SegmentHandle::segment), Some(segment));
    assert_eq!(device.counters().discards, 1);
    let mut read = [9; BLOCK_SIZE];
    store
        .device()
        .read(u64::from(segment.0) * SEGMENT_SIZE as u64, &mut read)
        .unwrap();
    assert_eq!(read, [0; BLOCK_SIZE]);
}

#[test]
fn a_segment_that_is_being_written_is_not_free() {
    let device = device();
    let slow = Arc::new(device.crash_clone(Crash::Kill, 1).lazy());
    let store = recovered(&slow);
    let handle = store.allocate(Purpose::Write).unwrap();
    let segment = handle.segment();
    let data = Arc::new(Buffer::zeroed(BLOCK_SIZE));
    let ticket = store.submit_write(segment, 0, data, 0..BLOCK_SIZE);
    drop(handle);
    assert_ne!(store.allocate(Purpose::Write).unwrap().segment(), segment);
    slow.run_all();
    assert!(ticket.poll().is_some());
    let taken: Vec<_> = std::iter::from_fn(|| store.allocate(Purpose::Write).ok()).collect();
    assert!(taken.iter().any(|handle| handle.segment() == segment));
}

#[test]
fn a_full_device_says_so_and_goes_on_when_space_is_freed() {
    let device = device();
    let settings = StoreSettings {
        reserve_segments: 2,
    };
    let store = Store::open(device, &settings).unwrap();
    store.finish_recovery();
    let mut taken: Vec<_> = (0..SEGMENTS - 3)
        .map(|_| store.allocate(Purpose::Write).unwrap())
        .collect();
    let error = store.allocate(Purpose::Write).unwrap_err();
    assert!(
        matches!(
            error,
            DeviceError::Full {
                used: 14,
                total: 16
            }
        ),
        "{error}"
    );
    let essential = [
        store.allocate(Purpose::Metadata).unwrap(),
        store.allocate(Purpose::Metadata).unwrap(),
    ];
    assert!(store.allocate(Purpose::Metadata).is_err());
    taken.truncate(10);
    drop(essential);
    assert!(store.allocate(Purpose::Write).is_ok());
}

#[test]
fn what_a_manifest_claims_has_to_exist() {
    let device = device();
    let store = open(&device);
    for segment in [0, 16, u32::MAX] {
        let error = store.claim(DeviceSegment(segment)).unwrap_err();
        assert!(matches!(error, DeviceError::Corrupt { .. }));
    }
    let first = store.claim(DeviceSegment(3)).unwrap();
    let _second = store.claim(DeviceSegment(3)).unwrap();
    assert_eq!(store.references(DeviceSegment(3)), 2);
    drop(first);
    store.finish_recovery();
    assert_eq!(store.used(), 2);
}

/// The catalog that a store opens with, as (word of region 1, word of region 2).
fn words(device: MemoryDevice) -> (u64, u64) {
    let store = open(&Arc::new(device));
    let regions = store.regions();
    let word = |id| {
        regions
            .iter()
            .find(|r| r.region == RegionId(id))
            .map_or(0, |r| r.words[0])
    };
    (word(1), word(2))
}

#[test]
fn a_crash_at_any_step_leaves_the_old_catalog_or_the_new() {
    let device = Arc::new(device().crash_clone(Crash::Kill, 1).lazy());
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    store.set_region(entry(1, &[&segment], 1)).wait().unwrap();
    store.set_region(entry(2, &[&segment], 1)).wait().unwrap();

    let mut seen = std::collections::BTreeSet::new();
    let change = store.set_region(entry(1, &[&segment], 2));
    // Asked for while a round is under way: part of the next one.
    let later = store.set_region(entry(2, &[&segment], 2));
    let mut steps = 0;
    loop {
        for seed in 0..64 {
            for kind in [Crash::Kill, Crash::PowerLoss] {
                let found = words(device.crash_clone(kind, seed));
                assert!(matches!(found, (1, 1) | (2, 1) | (2, 2)), "{found:?}");
                seen.insert(found);
                if change.poll().is_some() {
                    assert_eq!(found.0, 2, "what was reported durable is");
                }
                if later.poll().is_some() {
                    assert_eq!(found.1, 2);
                }
                if steps == 2 {
                    assert_eq!(found, (2, 1), "the first sync is the commit point");
                }
            }
        }
        if !device.run_one() {
            break;
        }
        steps += 1;
        let _ = (change.poll(), later.poll());
    }
    assert_eq!(steps, 8, "two rounds of two writes and two syncs");
    assert_eq!(seen.len(), 3);
    assert!(later.poll().unwrap().is_ok());
}

#[test]
fn changes_that_come_together_are_written_together() {
    let device = Arc::new(device().crash_clone(Crash::Kill, 1).lazy());
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    let changes: Vec<_> = (1..=100)
        .map(|word| store.set_region(entry(1, &[&segment], word)))
        .collect();
    let before = device.counters();
    for change in &changes {
        change.wait().unwrap();
    }
    assert_eq!(device.counters().syncs - before.syncs, 4, "two rounds");
    assert_eq!(store.regions()[0].words[0], 100);
    assert_eq!(
        store.references(segment.segment()),
        2,
        "one handle, one catalog entry"
    );
}

#[test]
fn a_failed_sync_fails_the_change_and_all_later_ones() {
    let device = device();
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    device.fail_after(crate::OpKind::Sync, 0);
    let change = store.set_region(entry(1, &[&segment], 1));
    assert!(change.wait().is_err());
    assert!(store.set_region(entry(2, &[&segment], 1)).wait().is_err());
    assert!(store.sync().poll().unwrap().is_err());
}

/// On copy-on-write file systems and under quotas, an overwrite can fail for want of space, too.
#[test]
fn a_change_without_room_beneath_goes_on_when_there_is_some() {
    let device = device();
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    device.set_full(true);
    let change = store.set_region(entry(1, &[&segment], 1));
    for _ in 0..2 {
        let error = change.wait().unwrap_err();
        assert!(error.is_full(), "who blocks is told: {error}");
    }
    assert!(change.poll().is_none(), "it is under way");
    device.set_full(false);
    store.set_region(entry(2, &[&segment], 1)).wait().unwrap();
    assert!(change.poll().unwrap().is_ok());
    drop(store);
    assert_eq!(open(&device).regions().len(), 2);
}

#[test]
fn a_catalog_without_room_refuses() {
    let device = device();
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    let mut big = entry(1, &[], 0);
    big.manifest = vec![segment.segment(); CATALOG_BYTES_MAX / 4];
    let error = store.set_region(big).wait().unwrap_err();
    assert!(matches!(error, DeviceError::CatalogFull { .. }), "{error}");
    assert_eq!(store.references(segment.segment()), 1);
    store.set_region(entry(1, &[&segment], 5)).wait().unwrap();
}

/// Every cut of a write of 512-byte sectors, of either copy of anything in segment 0.
#[test]
fn any_torn_sector_of_one_copy_is_survived() {
    let device = device();
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    for region in 1..200 {
        store
            .set_region(entry(region, &[&segment], 9))
            .wait()
            .unwrap();
    }
    drop((segment, store));
    let expected = Store::inspect(&*device).unwrap().regions;
    let places = crate::superblock::COPIES_AT.into_iter().map(|at| (at, 1));
    let slots = crate::catalog::SLOTS_AT.into_iter().map(|at| (at, 11));
    for (at, sectors) in places.chain(slots) {
        for first_lost in 0..sectors {
            let torn = device.crash_clone(Crash::Kill, 1);
            for sector in first_lost..sectors {
                torn.poke(u64::from(at + sector * 512), &[0xa5; 512]);
            }
            let torn = Arc::new(torn);
            let store = open(&torn);
            assert_eq!(store.regions(), expected, "{at} {first_lost}");
            assert_eq!(store.incarnation(), Incarnation(2));
            assert_eq!(store.findings().len(), 1, "{:?}", store.findings());
            assert_eq!(open(&torn).findings(), [""; 0], "it was repaired");
        }
    }
}

#[test]
fn two_damaged_copies_are_an_error_that_says_where() {
    for places in [crate::superblock::COPIES_AT, crate::catalog::SLOTS_AT] {
        let device = device();
        for at in places {
            device.flip_bit(u64::from(at) + 20, 3);
        }
        let error = Store::open(device, &StoreSettings::default())
            .err()
            .unwrap();
        assert!(
            matches!(error, DeviceError::Corrupt { segment: DeviceSegment(0), offset, .. }
                if offset == places[0]),
            "{error}"
        );
    }
}

/// A change that nobody polls reaches both copies of the catalog before a store is closed.
#[test]
fn changes_that_nobody_waits_for_are_finished() {
    let device = MemoryDevice::eager(SEGMENTS * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).unwrap();
    let device = Arc::new(device.lazy());
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    drop(store.set_region(entry(1, &[&segment], 5)));
    drop(store.set_region(entry(1, &[&segment], 6)));
    store.finish_changes().unwrap();
    let copies = Store::survey(&*device).unwrap();
    let same = copies.iter().all(|copy| copy.trouble.is_none());
    assert!(same, "{copies:?}");
    assert_eq!(recovered(&device).region(RegionId(1)).unwrap().words[0], 6);
}

#[test]
fn a_shortened_device_is_refused() {
    let long = device();
    let short = MemoryDevice::eager(8 * SEGMENT_SIZE as u64, 1);
    let mut segment = vec![0; SEGMENT_SIZE];
    long.read(0, &mut segment).unwrap();
    for (block, bytes) in segment.chunks(BLOCK_SIZE).enumerate() {
        if bytes.iter().any(|b| *b != 0) {
            short.poke((block * BLOCK_SIZE) as u64, bytes);
        }
    }
    let error = Store::open(Arc::new(short), &StoreSettings::default())
        .err()
        .unwrap();
    assert!(matches!(error, DeviceError::Unusable { .. }), "{error}");
}

#[test]
fn a_dump_reads_well() {
    let device = device();
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    store.set_region(entry(1, &[&segment], 5)).wait().unwrap();
    let text = store.dump().to_string();
    for line in [
        "opened 1 times",
        "segments 2 used of 16",
        "catalog generation 2",
        "  region 1: manifest 1, words 5 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
    }
}

/// Random use of handles and crashes, against a model of who refers to what.
#[test]
fn references_agree_with_a_model() {
    let mut rng = crate::rng::Rng::new(11);
    let device = device();
    let store = recovered(&device);
    let mut held: Vec<SegmentHandle> = Vec::new();
    let mut full = 0;
    for _ in 0..20_000 {
        match rng.below(3) {
            0 => match store.allocate(Purpose::Write) {
                Ok(handle) => {
                    let fresh = held.iter().all(|h| h.segment() != handle.segment());
                    assert!(fresh, "{handle:?} was free");
                    held.push(handle);
                }
                Err(_) => full += 1,
            },
            1 if !held.is_empty() => {
                let handle = held[rng.below(held.len())].clone();
                held.push(handle);
            }
            _ if !held.is_empty() => drop(held.swap_remove(rng.below(held.len()))),
            _ => {}
        }
        let mut model = std::collections::BTreeMap::<DeviceSegment, u32>::new();
        for handle in &held {
            *model.entry(handle.segment()).or_default() += 1;
        }
        assert_eq!(store.used() as usize, 1 + model.len());
        for n in 1..store.total() {
            let segment = DeviceSegment(n);
            let expected = model.get(&segment).copied().unwrap_or(0);
            assert_eq!(store.references(segment), expected, "{segment}");
        }
    }
    assert!(full > 100, "the test reaches a full device: {full}");
}

/// Whatever bytes lie in segment 0: an error or a store, never a panic.
#[test]
fn random_damage_of_segment_0_does_not_panic() {
    let mut rng = crate::rng::Rng::new(5);
    let device = device();
    let store = recovered(&device);
    let segment = store.allocate(Purpose::Write).unwrap();
    store.set_region(entry(1, &[&segment], 5)).wait().unwrap();
    drop((segment, store));
    let (mut good, mut bad) = (0, 0);
    for _ in 0..2_000 {
        let damaged = device.crash_clone(Crash::Kill, 1);
        for _ in 0..1 + rng.below(6) {
            let places = [crate::superblock::COPIES_AT, crate::catalog::SLOTS_AT];
            let at = places[rng.below(2)][rng.below(2)];
            let bytes = rng.next().to_le_bytes();
            let len = 1 + rng.below(8);
            damaged.poke(u64::from(at) + rng.below(80) as u64, &bytes[..len]);
        }
        match Store::open(Arc::new(damaged), &StoreSettings::default()) {
            Ok(store) => {
                assert_eq!(store.regions()[0].words[0], 5);
                good += 1;
            }
            Err(_) => bad += 1,
        }
    }
    assert!(good > 100 && bad > 100, "{good} {bad}");
}

/// A store in a file, and what of that takes room.
struct Sparse {
    dir: TempDir,
    store: Arc<Store>,
}

impl Sparse {
    /// So many segments as go back in one and a half steps, beside those that are kept.
    const COUNT: usize = FREED_KEPT + 3 * STEP_MAX / 2;

    fn device(dir: &TempDir) -> Arc<dyn Device> {
        let bytes = (Self::COUNT as u64 + 100) * SEGMENT_SIZE as u64;
        let settings = FileSettings::default();
        let device = FileDevice::open_or_create(&dir.join("device"), bytes, &settings);
        Arc::new(device.unwrap())
    }

    fn new() -> Self {
        let dir = TempDir::new();
        let device = Self::device(&dir);
        Store::format(&*device, &FormatOptions::default()).unwrap();
        let store = Store::open(device, &StoreSettings::default()).unwrap();
        store.finish_recovery();
        Self { dir, store }
    }

    fn reopen(self) -> Self {
        drop(self.store);
        let device = Self::device(&self.dir);
        let store = Store::open(device, &StoreSettings::default()).unwrap();
        store.finish_recovery();
        Self {
            dir: self.dir,
            store,
        }
    }

    /// Writes a block of as many segments.
    fn fill(&self) -> Vec<SegmentHandle> {
        let taken: Vec<_> = (0..Self::COUNT)
            .map(|_| self.store.allocate(Purpose::Write).unwrap())
            .collect();
        for handle in &taken {
            let block = Arc::new(Buffer::zeroed(BLOCK_SIZE));
            let ticket = self
                .store
                .submit_write(handle.segment(), 0, block, 0..BLOCK_SIZE);
            self.store.wait(&ticket).unwrap();
        }
        taken
    }

    fn room_taken(&self) -> u64 {
        let meta = self.dir.join("device").metadata().unwrap();
        std::os::unix::fs::MetadataExt::blocks(&meta) * 512
    }

    fn discards(&self) -> usize {
        usize::try_from(self.store.device().counters().discards).unwrap()
    }
}

/// Space goes back in the background: in batches above a mark, all of it once the store is idle.
#[test]
fn whoever_drops_a_segment_gives_no_space_back_and_an_idle_store_does() {
    let sparse = Sparse::new();
    let store = &sparse.store;
    let before = sparse.room_taken();
    let taken = sparse.fill();
    let held = sparse.room_taken();
    assert!(held >= before + (Sparse::COUNT * BLOCK_SIZE) as u64);
    let mut now = Instant::from_nanos(5);
    drop(taken);
    assert_eq!(store.used(), 1, "they are free");
    assert_eq!((sparse.discards(), sparse.room_taken()), (0, held));

    // Above the mark, a batch a step.
    for expected in [STEP_MAX, 3 * STEP_MAX / 2] {
        assert!(store.give_back_freed(now));
        assert_eq!(sparse.discards(), expected);
    }
    assert!(!store.give_back_freed(now));

    now = now + IDLE;
    let steps = std::iter::from_fn(|| store.give_back_freed(now).then_some(()));
    assert_eq!(steps.count(), FREED_KEPT / STEP_MAX);
    assert_eq!(sparse.discards(), Sparse::COUNT);
    // The file system may keep a block of its own index of the file.
    assert!(sparse.room_taken() <= before + BLOCK_SIZE as u64);
}

#[test]
fn what_keeps_its_room_at_the_end_goes_back_after_the_next_opening() {
    let sparse = Sparse::new();
    let before = sparse.room_taken();
    drop(sparse.fill());
    let sparse = sparse.reopen();
    let now = Instant::from_nanos(5);
    while sparse.store.give_back_freed(now) {}
    assert!(sparse.room_taken() > before + (FREED_KEPT * BLOCK_SIZE) as u64);
    while sparse.store.give_back_freed(now + IDLE) {}
    // Opening writes both copies of the superblock anew.
    assert!(sparse.room_taken() < before + 10 * BLOCK_SIZE as u64);
}

/// What a region may name that cannot be read is used last, and keeps its bytes until then.
#[test]
fn what_is_quarantined_is_used_last_and_goes_back_afterwards() {
    let sparse = Sparse::new();
    drop(sparse.fill());
    let sparse = sparse.reopen();
    let store = &sparse.store;
    store.quarantine();
    assert_eq!(store.quarantined(), Sparse::COUNT);
    let taken = sparse.room_taken();
    while store.give_back_freed(Instant::from_nanos(5) + IDLE) {}
    assert_eq!((sparse.discards(), sparse.room_taken()), (0, taken));

    let total = store.total() as usize;
    let other = std::iter::from_fn(|| store.allocate(Purpose::Write).ok());
    let other: Vec<_> = other.take(total - 1 - Sparse::COUNT).collect();
    assert_eq!(store.quarantined(), Sparse::COUNT, "there were others");
    let last = store.allocate(Purpose::Write).unwrap();
    assert_eq!(
        (store.quarantined(), sparse.discards()),
        (Sparse::COUNT - 1, 1)
    );
    drop((other, last));

    store.end_quarantine();
    assert_eq!(store.quarantined(), 0);
    while store.give_back_freed(Instant::from_nanos(6) + IDLE) {}
    while store.give_back_freed(Instant::from_nanos(6) + IDLE + IDLE) {}
    assert!(sparse.room_taken() < taken);
}
