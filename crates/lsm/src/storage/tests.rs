//! A region's storage on a device that crashes: whatever the instant, one side of an edit is found,
//! with all of its data, and no segment is lost or owned twice.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of the tests are small"
)]

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{EditSeq, Instant, KeyRange, Lsn, ServerId};
use argosy_device::io::OpKind;
use argosy_device::{Buffer, Crash, Device, FormatOptions, MemoryDevice, Purpose, StoreSettings};

use super::*;
use crate::edit::{LevelSegment, LogPoint, LogSegment, Place, RunId};
use crate::manifest::tests::{damage_last_append, overwrite_free};
use crate::names::logs::RECOVERY_LOG;
use crate::settings::Mutants;

const REGION: RegionId = RegionId(3);
const SEGMENTS: u64 = 64;

fn settings() -> Settings {
    Settings::small().with(|of| {
        of.layout.segment_bytes = 4 * BLOCK_SIZE;
        of.layout.window_bytes = 2 * BLOCK_SIZE;
        of.levels.number_block = 16;
    })
}

fn format(device: &MemoryDevice) {
    let options = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(1),
        created_by: "test".to_owned(),
    };
    Store::format(device, &options).unwrap();
}

/// A region on a device, with requests that complete when the test says so.
struct Rig {
    device: Arc<MemoryDevice>,
    storage: Storage,
}

impl Rig {
    /// A new region.
    fn create(seed: u64, settings: &Settings) -> Self {
        let device = MemoryDevice::new(SEGMENTS * SEGMENT_SIZE as u64, seed);
        format(&device);
        let device = Arc::new(device);
        let store = Store::open(
            Arc::<MemoryDevice>::clone(&device),
            &StoreSettings::default(),
        );
        let store = store.unwrap();
        store.finish_recovery();
        let storage = Storage::create(&store, REGION, settings).unwrap();
        Self { device, storage }
    }

    /// The region that `device` holds.
    fn open(device: MemoryDevice, settings: &Settings) -> Result<Self, StorageError> {
        let device = Arc::new(device);
        let store = Store::open(
            Arc::<MemoryDevice>::clone(&device),
            &StoreSettings::default(),
        )?;
        let storage = Storage::open(&store, &store.regions()[0], settings)?;
        store.finish_recovery();
        Ok(Self { device, storage })
    }

    /// Segments in use that neither the store itself nor this region needs.
    fn leaked(&self) -> i64 {
        let own = 1 + self.storage.device_segments();
        i64::from(self.storage.store().used()) - own as i64
    }

    /// What is durable from the very beginning, and reserves numbers.
    fn first_edit(&mut self) -> Edit {
        let mut edit = self.storage.next_edit(Epoch(1));
        self.storage.raise_mark(&mut edit);
        edit
    }

    fn commit_numbers(&mut self) {
        let edit = self.first_edit();
        let mark = edit.numbers.mark.unwrap();
        self.storage.commit(&edit).unwrap();
        self.settle();
        self.storage.mark_recorded(mark);
    }

    fn settle(&mut self) -> Vec<Committed> {
        self.storage.settle().unwrap()
    }

    /// A segment full of its own number, on its way to the device.
    fn build(&mut self, from: u64) -> LevelSegment {
        let number = self
            .storage
            .allocate_number()
            .expect("numbers were reserved");
        let stored = self.storage.allocate(number, Purpose::Write).unwrap();
        let bytes = Arc::new(Buffer::from_slice(&pattern(number)));
        let _ = stored.write(0, bytes, 0..BLOCK_SIZE);
        LevelSegment {
            form: crate::names::Form::SelfContained,
            number,
            epoch: Epoch(1),
            len: BLOCK_SIZE as u32,
            checksum: 1,
            entries: 1,
            tombstones: 0,
            range: KeyRange::new(key(from), Some(key(from + 1))),
            large_bytes: 0,
            medium_bytes: 0,
        }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:03}").into_bytes()
}

fn pattern(number: SegmentNumber) -> Vec<u8> {
    number.0.to_le_bytes().repeat(BLOCK_SIZE / 8)
}

/// Whether every level segment of the version holds what was written to it (I3).
fn holds_its_data(version: &Version) -> bool {
    let mut entries = version.levels().iter().flat_map(|level| level.entries());
    entries.all(|entry| {
        let mut bytes = Buffer::zeroed(BLOCK_SIZE);
        entry.stored.read(0, &mut bytes).unwrap();
        bytes[..] == pattern(entry.segment.number)
    })
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One random edit: a run is added, runs are merged, logs change, or numbers are reserved.
fn random_edit(rig: &mut Rig, random: &mut Random) -> Edit {
    if rig.storage.numbers_left() < 6 {
        return rig.first_edit();
    }
    let mut edit = rig.storage.next_edit(Epoch(1));
    let head = Arc::clone(rig.storage.head());
    let runs = head.level(1).map_or(0, |level| level.runs.len());
    if random.below(5) == 0 {
        let number = rig.storage.allocate_number().unwrap();
        let _ = rig.storage.allocate(number, Purpose::Write).unwrap();
        let last = head.log(RECOVERY_LOG).last().map(|last| last.segment);
        if let Some(last) = last {
            let (log, number) = (last.log, last.number);
            edit.logs.sealed.push(LogPoint {
                log,
                number,
                to: 100,
            });
        }
        edit.logs.added.push(LogSegment {
            log: RECOVERY_LOG,
            ordinal: last.map_or(0, |last| last.ordinal + 1),
            number,
            epoch: Epoch(1),
            base_lsn: Lsn(1),
            end: None,
        });
        for old in head.log(RECOVERY_LOG).iter().rev().skip(2) {
            edit.logs.removed.push((RECOVERY_LOG, old.segment.number));
        }
    } else if runs < 4 {
        for from in 0..1 + random.below(3) {
            edit.added.push((1, RunId(edit.seq.0), rig.build(from)));
        }
    } else {
        for (level, run) in head.runs() {
            for entry in &run.segments {
                let (run, number) = (run.id, entry.segment.number);
                edit.removed.push(Place { level, run, number });
            }
        }
        for from in 0..1 + random.below(3) {
            edit.added.push((2, RunId(0), rig.build(from)));
        }
    }
    edit
}

/// Opens what a crash left, and checks it. `versions` are those that were ever the head, by edit.
fn check_crashed(
    crashed: MemoryDevice,
    committed: EditSeq,
    versions: &BTreeMap<EditSeq, String>,
) -> Result<Rig, String> {
    let rig = Rig::open(crashed, &settings()).map_err(|error| error.to_string())?;
    let version = rig.storage.current();
    if version.seq() < committed {
        return Err(format!(
            "{committed} was committed, {} is found",
            version.seq()
        ));
    }
    if versions.get(&version.seq()) != Some(&version.to_string()) {
        return Err(format!("not the version of {}:\n{version}", version.seq()));
    }
    version.check().map_err(|error| error.to_string())?;
    if !holds_its_data(version) {
        return Err(format!("data of {} is missing", version.seq()));
    }
    match rig.leaked() {
        0 => Ok(rig),
        count => Err(format!("{count} segments leaked")),
    }
}

/// Runs a random history with `settings` and crashes it in both ways after every completed
/// request. Returns the first thing that was wrong.
fn crash_everywhere(seed: u64, settings: &Settings) -> Result<(u64, u64), String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut rig = Rig::create(seed, settings);
    let mut versions = BTreeMap::new();
    let mut committed = EditSeq(0);
    let (mut crashes, mut generations) = (0, 0);
    let mut chain: Vec<_> = rig.storage.manifest.chain().collect();
    versions.insert(EditSeq(0), rig.storage.head().to_string());
    for _ in 0..30 {
        commit_some(&mut rig, &mut random, &mut versions);
        loop {
            for done in rig.storage.step().unwrap() {
                committed = done.notice.seq;
                let mark = done.version.mark();
                rig.storage.mark_recorded(mark);
                assert!(holds_its_data(&done.version));
            }
            let now: Vec<_> = rig.storage.manifest.chain().collect();
            generations += u64::from(now.first() != chain.first());
            chain = now;
            for kind in [Crash::Kill, Crash::PowerLoss] {
                crashes += 1;
                let seed = random.below(u64::MAX);
                let crashed = rig.device.crash_clone(kind, seed);
                let found = check_crashed(crashed, committed, &versions);
                let mut found = found.map_err(|what| format!("{kind:?} {seed}: {what}"))?;
                // What was found goes on: an edit, another crash, the same rules.
                if random.below(4) == 0 {
                    go_on(&mut found).map_err(|what| format!("{kind:?} {seed}, then {what}"))?;
                }
            }
            if !rig.device.run_one() {
                break;
            }
        }
        assert!(rig.storage.is_idle(), "the device has nothing left to do");
        assert_eq!(rig.leaked(), 0);
    }
    Ok((crashes, generations))
}

/// How often what became of a damaged last append.
#[derive(Default)]
struct Damaged {
    refused: u32,
    /// The edits before it were found, with all that they need.
    gone_back: u32,
}

/// Queues one to three edits, and notes the versions that they lead to.
fn commit_some(rig: &mut Rig, random: &mut Random, versions: &mut BTreeMap<EditSeq, String>) {
    for _ in 0..1 + random.below(3) {
        let edit = random_edit(rig, random);
        rig.storage.commit(&edit).unwrap();
        versions.insert(edit.seq, rig.storage.head().to_string());
    }
}

/// As [`crash_everywhere`], and the last append is damaged, and all that is free by it is overwritten.
fn damage_everywhere(seed: u64, settings: &Settings, found: &mut Damaged) -> Result<(), String> {
    let segment_bytes = segment_bytes(settings);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut rig = Rig::create(seed, settings);
    let mut versions = BTreeMap::from([(EditSeq(0), rig.storage.head().to_string())]);
    for _ in 0..30 {
        commit_some(&mut rig, &mut random, &mut versions);
        loop {
            for done in rig.storage.step().unwrap() {
                rig.storage.mark_recorded(done.version.mark());
            }
            for kind in [Crash::Kill, Crash::PowerLoss] {
                let crashed = rig.device.crash_clone(kind, random.below(u64::MAX));
                overwrite_free(&crashed, rig.storage.store(), segment_bytes);
                let crashed = Arc::new(crashed);
                if !damage_last_append(&crashed, segment_bytes, random.below(u64::MAX)) {
                    continue;
                }
                let crashed = Arc::into_inner(crashed).expect("nobody else has it");
                let least = rig.storage.witnessed();
                match check_crashed(crashed, least, &versions) {
                    Ok(_) => found.gone_back += 1,
                    Err(what) if what.contains("a record is damaged") => found.refused += 1,
                    Err(what) => return Err(format!("{kind:?}: {what}")),
                }
            }
            if !rig.device.run_one() {
                break;
            }
        }
        assert!(rig.storage.is_idle(), "the device has nothing left to do");
        assert_eq!((rig.storage.unwitnessed(), rig.leaked()), (0, 0));
    }
    Ok(())
}

/// Damage to the last append is told, or nothing depended on that append.
#[test]
fn a_damaged_last_append_takes_nothing_away() {
    let mut found = Damaged::default();
    for seed in 1..=12 {
        if let Err(what) = damage_everywhere(seed, &settings(), &mut found) {
            panic!("seed {seed}: {what}");
        }
    }
    assert!(found.refused > 1000, "{}", found.refused);
    assert!(found.gone_back > 100, "{}", found.gone_back);
}

#[test]
fn a_forgotten_witness_is_found_in_any_history() {
    let mut settings = settings();
    settings.mutants.forget_witness = true;
    let mut found = Damaged::default();
    let wrong = (1..=12).filter_map(|seed| damage_everywhere(seed, &settings, &mut found).err());
    assert!(wrong.count() > 6);
}

/// On a full device what the last append freed is room for the next one.
#[test]
fn what_an_append_freed_comes_free_on_a_full_device() {
    let mut rig = Rig::create(1, &settings());
    rig.commit_numbers();
    let mut edit = rig.storage.next_edit(Epoch(1));
    edit.added.push((1, RunId(1), rig.build(1)));
    rig.storage.commit(&edit).unwrap();
    rig.settle();
    let number = edit.added[0].2.number;
    let place = rig.storage.current().stored(number).unwrap().place();
    let mut hoard = Vec::new();
    while let Ok(handle) = rig.storage.store().allocate(Purpose::Metadata) {
        hoard.push(handle);
    }
    let mut edit = rig.storage.next_edit(Epoch(1));
    edit.removed.push(Place {
        level: 1,
        run: RunId(1),
        number,
    });
    rig.storage.commit(&edit).unwrap();
    while rig.storage.step().unwrap().is_empty() {
        rig.device.run_one();
    }
    assert_eq!(rig.storage.store().references(place), 1);
    rig.settle();
    // It is free, or the next checkpoint has taken it.
    let is_taken = rig.storage.manifest.chain().any(|taken| taken == place);
    assert!(is_taken || rig.storage.store().references(place) == 0);
}

/// The manifest goes on growing, until a checkpoint fits a record again.
#[test]
fn a_version_that_fits_no_record_stops_nobody() {
    let mut rig = Rig::create(1, &settings());
    rig.storage.manifest.limit_records(300);
    for from in 0..30 {
        if from % 10 == 0 {
            rig.commit_numbers();
        }
        let mut edit = rig.storage.next_edit(Epoch(1));
        edit.added.push((1, RunId(from + 1), rig.build(from)));
        rig.storage.commit(&edit).unwrap();
        rig.settle();
    }
    let current = rig.storage.current().to_string();
    assert!(checkpoint_record(rig.storage.current()).payload_len() > 300);
    let grown = rig.storage.manifest.chain().count();
    assert!(grown > 4, "{grown}");
    let crashed = rig.device.crash_clone(Crash::PowerLoss, 1);
    let mut found = Rig::open(crashed, &settings()).unwrap();
    assert_eq!(found.storage.current().to_string(), current);
    found.commit_numbers();
    assert!(found.storage.manifest.chain().count() < grown);
    assert_eq!(found.leaked(), 0);
}

/// Commits two edits on what a crash left, and opens it again after a loss of power.
fn go_on(found: &mut Rig) -> Result<(), String> {
    let mut versions = BTreeMap::new();
    let mut last = EditSeq(0);
    found.commit_numbers();
    for from in 0..2 {
        let mut edit = found.storage.next_edit(Epoch(1));
        edit.added
            .push((1, RunId(1000 + edit.seq.0), found.build(from)));
        found.storage.commit(&edit).unwrap();
        found.settle();
        last = edit.seq;
        versions.insert(last, found.storage.current().to_string());
    }
    check_crashed(
        found.device.crash_clone(Crash::PowerLoss, 1),
        last,
        &versions,
    )
    .map(|_| ())
}

#[test]
fn a_crash_at_any_instant_leaves_one_side_of_an_edit() {
    let (mut crashes, mut generations) = (0, 0);
    for seed in 1..=12 {
        match crash_everywhere(seed, &settings()) {
            Ok((some, switched)) => {
                crashes += some;
                generations += switched;
            }
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(crashes > 5000, "{crashes}");
    assert!(
        generations > 50,
        "checkpoints were crashed, too: {generations}"
    );
}

/// What a region was opened with after a kill is durable: a loss of power right then takes nothing
/// of it, although the killed process had not synced it.
#[test]
fn what_was_seen_once_stays() {
    let mut unsynced = 0;
    for seed in 1..=40 {
        let mut rig = Rig::create(seed, &settings());
        rig.commit_numbers();
        let mut edit = rig.storage.next_edit(Epoch(1));
        edit.added.push((1, RunId(1), rig.build(1)));
        rig.storage.commit(&edit).unwrap();
        while rig.storage.step().unwrap().is_empty() {
            let killed = rig.device.crash_clone(Crash::Kill, seed);
            let seen = Rig::open(killed, &settings()).unwrap();
            let after = seen.device.crash_clone(Crash::PowerLoss, seed);
            let again = Rig::open(after, &settings()).unwrap();
            let seq = seen.storage.current().seq();
            assert_eq!(again.storage.current().seq(), seq);
            unsynced += u32::from(seq == edit.seq);
            rig.device.run_one();
        }
    }
    assert!(unsynced > 0, "an edit was seen that had not been synced");
}

/// The manifest changes the entry of the catalog, too, whenever it begins its next generation. Wherever that change is
/// on its way, what the copy is said to be does not take it back.
#[test]
fn a_change_of_standing_takes_no_generation_back() {
    for wait in 0..12 {
        let mut random = Random(9);
        let mut rig = Rig::create(9, &settings());
        rig.storage.standing = CatalogStanding::of(Standing::BegunAnew);
        let mut left = wait;
        let mut ends = 0;
        while ends < 3 {
            commit_some(&mut rig, &mut random, &mut BTreeMap::new());
            loop {
                for done in rig.storage.step().unwrap() {
                    rig.storage.mark_recorded(done.version.mark());
                }
                if matches!(rig.storage.work, Work::Checkpointing) && left > 0 {
                    left -= 1;
                    if left == 0 {
                        rig.storage.become_ordinary();
                    }
                }
                if !rig.device.run_one() {
                    break;
                }
            }
            ends += u32::from(left == 0);
            if wait == 0 && ends == 1 {
                rig.storage.become_ordinary();
            }
        }
        let entry = rig.storage.store().region(REGION).unwrap();
        assert_eq!(standing(entry.words[1]), Some(Standing::Ordinary));
        let crashed = rig.device.crash_clone(Crash::PowerLoss, 9);
        let found = Rig::open(crashed, &settings()).unwrap();
        let seq = rig.storage.current().seq();
        assert_eq!(found.storage.current().seq(), seq, "after {wait} steps");
        assert_eq!(found.storage.standing(), Standing::Ordinary);
    }
}

/// Two regions on one device, crashed at any instant: none owns what the other does.
#[test]
fn no_segment_is_owned_by_two_regions() {
    const OTHER: RegionId = RegionId(4);
    let mut checks = 0;
    for seed in 1..=6 {
        let mut random = Random(seed * 77);
        let mut first = Rig::create(seed, &settings());
        let store = Arc::clone(first.storage.store());
        let mut second = Rig {
            device: Arc::clone(&first.device),
            storage: Storage::create(&store, OTHER, &settings()).unwrap(),
        };
        for _ in 0..40 {
            for rig in [&mut first, &mut second] {
                let edit = random_edit(rig, &mut random);
                rig.storage.commit(&edit).unwrap();
            }
            for _ in 0..6 {
                for rig in [&mut first, &mut second] {
                    for done in rig.storage.step().unwrap() {
                        rig.storage.mark_recorded(done.version.mark());
                    }
                    rig.device.run_one();
                }
                let kind = [Crash::Kill, Crash::PowerLoss][random.below(2) as usize];
                let device = first.device.crash_clone(kind, random.below(u64::MAX));
                let store = Store::open(Arc::new(device), &StoreSettings::default()).unwrap();
                let open = |entry| Storage::open(&store, entry, &settings()).unwrap();
                let regions: Vec<_> = store.regions().iter().map(open).collect();
                store.finish_recovery();
                let mut owned = BTreeSet::from([DeviceSegment(0)]);
                for storage in &regions {
                    assert!(holds_its_data(storage.current()));
                    let named = storage.current().table().values().map(|s| s.place());
                    for place in named.chain(storage.manifest.chain()) {
                        assert!(owned.insert(place), "{place} is owned twice");
                    }
                }
                assert_eq!(owned.len(), store.used() as usize, "a segment leaked");
                checks += 1;
            }
            first.settle();
            second.settle();
            for rig in [&mut first, &mut second] {
                let mark = rig.storage.current().mark();
                rig.storage.mark_recorded(mark);
            }
        }
    }
    assert_eq!(checks, 6 * 40 * 6);
}

/// The planted mistake is found by the test above: so the test can fail.
#[test]
fn committing_before_the_data_is_durable_is_noticed() {
    let mutants = Mutants {
        commit_before_durable: true,
        ..Mutants::default()
    };
    let planted = settings().with(|of| of.mutants = mutants);
    let found = (1..=12).find(|seed| crash_everywhere(*seed, &planted).is_err());
    assert!(found.is_some());
}

#[test]
fn a_snapshot_keeps_its_segments_unless_that_mistake_is_planted() {
    for planted in [false, true] {
        let mutants = Mutants {
            free_under_snapshot: planted,
            ..Mutants::default()
        };
        let settings = settings().with(|of| of.mutants = mutants);
        let mut rig = Rig::create(1, &settings);
        rig.commit_numbers();
        let mut edit = rig.storage.next_edit(Epoch(1));
        let built = rig.build(1);
        let number = built.number;
        edit.added.push((1, RunId(1), built));
        rig.storage.commit(&edit).unwrap();
        rig.settle();
        let snapshot = Arc::clone(rig.storage.current());
        let mut edit = rig.storage.next_edit(Epoch(1));
        let place = Place {
            level: 1,
            run: RunId(1),
            number,
        };
        edit.removed.push(place);
        rig.storage.commit(&edit).unwrap();
        rig.settle();
        // What nobody refers to is gone once the store was idle.
        for now in [0, 2_000_000_000].map(Instant::from_nanos) {
            rig.storage.store().give_back_freed(now);
        }
        assert_eq!(rig.leaked(), i64::from(!planted), "the snapshot's segment");
        assert_eq!(holds_its_data(&snapshot), !planted);
        drop(snapshot);
        assert_eq!(rig.leaked(), 0);
    }
}

/// I1: a segment is given back only when the edit that removed it is durable.
#[test]
fn a_removed_segment_stays_until_the_edit_has_its_witness() {
    let mut rig = Rig::create(1, &Settings::small());
    rig.commit_numbers();
    let mut edit = rig.storage.next_edit(Epoch(1));
    let built = rig.build(1);
    let place = Place {
        level: 1,
        run: RunId(1),
        number: built.number,
    };
    edit.added.push((1, RunId(1), built));
    rig.storage.commit(&edit).unwrap();
    rig.settle();
    let device_segment = rig.storage.segment(place.number).unwrap().place();
    let references = |rig: &Rig| rig.storage.store().references(device_segment);
    let mut edit = rig.storage.next_edit(Epoch(1));
    edit.removed.push(place);
    rig.storage.commit(&edit).unwrap();
    let mut waited = 0;
    while rig.storage.step().unwrap().is_empty() {
        assert_eq!(references(&rig), 1);
        rig.device.run_one();
        waited += 1;
    }
    assert!(waited >= 2, "a write and a sync");
    assert_eq!(
        (rig.storage.witnessed(), references(&rig)),
        (EditSeq(edit.seq.0 - 1), 1)
    );
    rig.settle();
    assert_eq!((rig.storage.witnessed(), references(&rig)), (edit.seq, 0));
}

#[test]
fn what_is_abandoned_is_free_and_its_number_is_not_used_again() {
    let mut rig = Rig::create(1, &settings());
    rig.commit_numbers();
    let first = rig.build(1).number;
    rig.device.run_all();
    assert_eq!(rig.leaked(), 0, "pending segments are accounted for");
    rig.storage.abandon(first);
    assert_eq!(rig.leaked(), 0);
    assert_eq!(rig.storage.device_segments(), 1, "the manifest alone");
    assert_ne!(rig.storage.allocate_number(), Some(first));
}

/// Numbers are used only below the recorded mark, and a reopened region starts above it.
#[test]
fn a_number_never_means_two_things() {
    let mut rig = Rig::create(1, &settings());
    assert_eq!(rig.storage.allocate_number(), None);
    rig.commit_numbers();
    let mut last = SegmentNumber(0);
    while let Some(number) = rig.storage.allocate_number() {
        assert!(number > last && number < rig.storage.current().mark());
        last = number;
    }
    rig.device.run_all();
    let crashed = rig.device.crash_clone(Crash::Kill, 1);
    let mut again = Rig::open(crashed, &settings()).unwrap();
    assert_eq!(again.storage.allocate_number(), None);
    again.commit_numbers();
    assert!(again.storage.allocate_number().unwrap() > last);
}

/// Edits that wait are committed together: one sync of data, one of the manifest, and one of its witness for all.
#[test]
fn waiting_edits_share_their_syncs() {
    let mut rig = Rig::create(1, &Settings::small());
    rig.commit_numbers();
    for from in 0..3 {
        let mut edit = rig.storage.next_edit(Epoch(1));
        edit.added.push((1, RunId(edit.seq.0), rig.build(from)));
        rig.storage.commit(&edit).unwrap();
    }
    while rig.device.run_one() {}
    let before = rig.device.counters().syncs;
    let done = rig.settle();
    assert_eq!(done.len(), 3);
    assert_eq!(rig.device.counters().syncs - before, 3);
}

#[test]
fn the_queue_is_bounded() {
    let mut rig = Rig::create(1, &settings());
    for _ in 0..QUEUE_MAX {
        let edit = rig.storage.next_edit(Epoch(1));
        rig.storage.commit(&edit).unwrap();
    }
    let edit = rig.storage.next_edit(Epoch(1));
    let refused = rig.storage.commit(&edit);
    assert!(matches!(refused, Err(StorageError::QueueFull)));
    assert_eq!(rig.settle().len(), QUEUE_MAX);
    rig.storage.commit(&edit).unwrap();
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing() {
    let mut rig = Rig::create(1, &settings());
    let mut edit = rig.storage.next_edit(Epoch(1));
    edit.seq = edit.seq.next();
    assert!(rig.storage.commit(&edit).is_err());
    assert_eq!(rig.storage.head().seq(), EditSeq(0));
    assert!(rig.storage.is_idle());
}

/// A device that fails in the midst of a commit fails it for good: a sync is not tried twice.
#[test]
fn a_failed_sync_is_final() {
    for count in 0..2 {
        let mut rig = Rig::create(1, &settings());
        rig.commit_numbers();
        let mut edit = rig.storage.next_edit(Epoch(1));
        edit.added.push((1, RunId(1), rig.build(1)));
        rig.storage.commit(&edit).unwrap();
        rig.device.fail_after(OpKind::Sync, count);
        assert!(rig.storage.settle().is_err());
        assert_eq!(rig.storage.current().seq(), EditSeq(1));
        assert!(rig.storage.step().is_err());
    }
}

/// Without room for the manifest edits wait, and go on when there is some.
#[test]
fn a_full_device_delays_edits() {
    let mut rig = Rig::create(1, &settings());
    let mut hoard = Vec::new();
    while let Ok(handle) = rig.storage.store().allocate(Purpose::Metadata) {
        hoard.push(handle);
    }
    let mut seqs = 0;
    let stuck = loop {
        let edit = rig.storage.next_edit(Epoch(1));
        rig.storage.commit(&edit).unwrap();
        match rig.storage.settle() {
            Ok(done) => seqs += done.len(),
            Err(error) => break error,
        }
        assert!(seqs < 100, "the manifest has to grow");
    };
    assert_eq!(stuck.remedy(), Remedy::Retry);
    assert!(rig.storage.step().unwrap().is_empty());
    hoard.pop();
    assert_eq!(rig.settle().len(), 1);
    assert!(seqs > 0);
}

#[test]
fn a_region_that_is_made_anew_forgets_everything() {
    let mut rig = Rig::create(1, &settings());
    rig.commit_numbers();
    let mut edit = rig.storage.next_edit(Epoch(1));
    edit.added.push((1, RunId(1), rig.build(1)));
    rig.storage.commit(&edit).unwrap();
    rig.settle();
    rig.device.run_all();
    let device = Arc::new(rig.device.crash_clone(Crash::Kill, 1));
    let store = Store::open(
        Arc::<MemoryDevice>::clone(&device),
        &StoreSettings::default(),
    );
    let store = store.unwrap();
    store.finish_recovery();
    let storage = Storage::create(&store, REGION, &settings()).unwrap();
    assert_eq!(storage.current().seq(), EditSeq(0));
    assert_eq!(store.used(), 2, "the store's own segment and a manifest");
    let mut rig = Rig { device, storage };
    rig.commit_numbers();
    let crashed = rig.device.crash_clone(Crash::PowerLoss, 1);
    let again = Rig::open(crashed, &settings()).unwrap();
    assert_eq!(again.storage.current().seq(), EditSeq(1));
    assert_eq!(again.leaked(), 0);
}

/// A storage that ends leaves everything on the device as it is.
#[test]
fn what_a_region_consists_of_outlives_its_storage() {
    let mut rig = Rig::create(1, &settings());
    rig.commit_numbers();
    let mut edit = rig.storage.next_edit(Epoch(1));
    edit.added.push((1, RunId(1), rig.build(1)));
    rig.storage.commit(&edit).unwrap();
    rig.settle();
    let Rig { device, storage } = rig;
    drop(storage);
    let again = Rig::open(device.crash_clone(Crash::Kill, 1), &settings()).unwrap();
    assert!(holds_its_data(again.storage.current()));
    assert_eq!(again.leaked(), 0);
}
