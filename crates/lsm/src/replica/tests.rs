//! A replica behind a real primary: an engine whose observer is the test, which copies windows,
//! carries segments and edits, and breaks things in between.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of the tests are small"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{
    AddressMode, ClientId, Epoch, Instant, KeyRange, LogId, Lsn, Remedy, RequestName, SegmentPart,
    ServerId,
};
use argosy_device::{Buffer, Crash, Device, FormatOptions, MemoryDevice, StoreSettings};
use argosy_engine::source::{LogPlace, Next, Piece};
use argosy_engine::{
    Checkpoint, EditNotice, EngineError, LogEnd, Observer, Pin, PinnedCheckpoint, SealedSegment,
    Source as _, Store as _, WriteBatch, WriteOptions,
};

use super::*;
use crate::Service;
use crate::addresses::has_pointers;
use crate::cache::NodeCache;
use crate::db::Lsm;
use crate::duplicates::REQUESTS_MAX;
use crate::level::SegmentReader;
use crate::names::logs::{LARGE_LOG, LOGS, RECOVERY_LOG};
use crate::settings::{Compaction, Mutants, Placement};
use crate::version::outgoing::translate_out;

const REGION: RegionId = RegionId(5);
const EPOCH: Epoch = Epoch(1);

/// The first bytes of a segment, up to `to`.
const fn front(number: SegmentNumber, to: u32) -> SegmentPart {
    SegmentPart {
        number,
        from: 0,
        to,
    }
}

fn settings() -> Settings {
    Settings::tiny().with(|of| {
        of.memtables.bytes = 8 << 10;
        of.memtables.log_bytes = 64 << 10;
        of.layout.window_bytes = 8 << 10;
        of.layout.window_slots = 8;
        of.levels.l1_runs_max = 6;
    })
}

/// The same with pointers that hold places, and enough values in the large log.
fn in_places() -> Settings {
    settings().with(|of| {
        of.layout.addresses = AddressMode::Rewrite;
        of.values.large_bytes = 200;
    })
}

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A machine with a device whose requests complete when the test says so, and window memory.
struct Machine {
    device: Arc<MemoryDevice>,
    slots: Slots,
    /// Its replicas build their own levels, as this server.
    builds: Option<ServerId>,
    /// How it compacts, where that is not as the settings say.
    compaction: Option<Compaction>,
}

fn fresh_slots(settings: &Settings) -> Slots {
    let geometry = settings.layout.log_geometry();
    let slot = || Arc::new(SharedMemory::anonymous(geometry.slot_bytes()));
    [(); 2].map(|()| (0..geometry.slots()).map(|_| slot()).collect())
}

impl Machine {
    fn new(seed: u64) -> Self {
        let device = MemoryDevice::eager(512 * SEGMENT_SIZE as u64, seed);
        let options = FormatOptions {
            device_id: 1,
            cluster_id: 1,
            server: ServerId(1),
            created_by: "test".to_owned(),
        };
        Store::format(&device, &options).unwrap();
        let device = Arc::new(device.lazy());
        let slots = Slots::default();
        Self {
            device,
            slots,
            builds: None,
            compaction: None,
        }
    }

    /// Opens the region as a replica; the old windows survived if `survived`.
    fn open(&mut self, settings: &Settings, survived: bool) -> Result<Replica, ReplicaError> {
        let settings = &settings.clone().with(|of| {
            of.levels.compaction = self.compaction.unwrap_or(of.levels.compaction);
        });
        let old = std::mem::replace(&mut self.slots, fresh_slots(settings));
        let survivors = match survived {
            true => old.map(|slots| slots.into_iter().map(Some).collect()),
            false => ReplicaSurvivors::default(),
        };
        let device: Arc<dyn Device> = self.device.clone();
        let store = Store::open(device, &StoreSettings::default())?;
        let known = !store.regions().is_empty();
        if !known {
            store.finish_recovery();
        }
        let mut replica = Replica::open(&store, REGION, self.slots.clone(), &survivors, settings)?;
        if known {
            store.finish_recovery();
        }
        if let Some(server) = self.builds {
            replica.build_levels(server)?;
        }
        Ok(replica)
    }

    /// What `kind` of crash would leave of it now.
    fn crashed(&self, kind: Crash, seed: u64) -> Self {
        Self {
            device: Arc::new(self.device.crash_clone(kind, seed)),
            slots: self.slots.clone(),
            builds: self.builds,
            compaction: self.compaction,
        }
    }
}

enum Heard {
    Flush(FlushRange),
    Segment(SealedSegment),
    Edit(EditNotice),
}

impl Heard {
    /// The highest segment number that it shows to be in use.
    fn number(&self) -> SegmentNumber {
        let edit = match self {
            Self::Flush(_) => return SegmentNumber(0),
            Self::Segment(segment) => return segment.number,
            Self::Edit(edit) => Edit::decode(&edit.bytes).unwrap(),
        };
        let logs = edit.logs.added.iter().map(|log| log.number);
        logs.max().unwrap_or_default()
    }
}

/// Writes down what the primary tells.
#[derive(Default)]
struct Recorder(Mutex<(Vec<Heard>, Lsn, [Option<LogEnd>; 2])>);

impl Observer for Recorder {
    fn appended(&self, end: LogEnd, last: Lsn) {
        let (_, lsn, ends) = &mut *self.0.lock().unwrap();
        *lsn = last;
        ends[end.log.index()] = Some(end);
    }

    fn flush(&self, range: FlushRange) {
        self.0.lock().unwrap().0.push(Heard::Flush(range));
    }

    fn segment_built(&self, segment: &SealedSegment) -> bool {
        self.0
            .lock()
            .unwrap()
            .0
            .push(Heard::Segment(segment.clone()));
        true
    }

    fn edit_committed(&self, edit: &EditNotice) {
        self.0.lock().unwrap().0.push(Heard::Edit(edit.clone()));
    }
}

/// A primary, its backup, and the wire between them.
struct Pair {
    settings: Settings,
    random: Random,
    primary_machine: Machine,
    primary: Lsm,
    epoch: Epoch,
    recorder: Arc<Recorder>,
    backup_machine: Machine,
    backup: Replica,
    /// The backup gets records and flushes.
    live: bool,
    /// The backup's device does nothing.
    stands_still: bool,
    /// Edits that the backup has not been given, encoded, and the one under way.
    edits: VecDeque<(EditSeq, Arc<[u8]>)>,
    applying: Option<EditSeq>,
    /// Flushes that the backup has not acknowledged.
    flushes: Vec<FlushRange>,
    /// What the backup has in its windows.
    shipped: Lsn,
    /// What the backup, alive, has told the primary to be durable.
    told: Lsn,
    /// How many flushes the backup has acknowledged.
    flushed: u64,
    applied: EditSeq,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The highest segment number that a primary has used.
    given_out: SegmentNumber,
    /// What each batch did, by its first and last LSN.
    history: Vec<(Lsn, Lsn, crashes::Ops)>,
    /// What becomes of the backup in crashes at every request, where that is tried.
    forks: Option<crashes::Forks>,
    now: u64,
    /// Bytes that were fetched, not shipped.
    fetched: u64,
    /// Shipments that could not be rewritten.
    unplaced: u64,
}

impl Pair {
    fn new(seed: u64, settings: Settings) -> Self {
        Self::with_backup(seed, settings, None)
    }

    /// The backup builds its own levels if it is said as which server.
    fn with_backup(seed: u64, settings: Settings, builds: Option<ServerId>) -> Self {
        // Trees are shipped in the same way as segments that stand alone.
        let compaction = match seed % 3 {
            2 => Compaction::WholeLevel,
            _ => Compaction::Partial,
        };
        let settings = settings.with(|of| of.levels.compaction = compaction);
        let mut primary_machine = Machine::new(seed);
        let replica = primary_machine.open(&settings, false).unwrap();
        let recorder = Arc::new(Recorder::default());
        let cache = Arc::new(NodeCache::new(settings.cache_bytes));
        let service = Service {
            epoch: EPOCH,
            observer: Some(Arc::<Recorder>::clone(&recorder)),
            ..Service::default()
        };
        let primary = Lsm::promote(replica, &cache, service).unwrap();
        let mut backup_machine = Machine {
            builds,
            ..Machine::new(seed + 1)
        };
        let backup = backup_machine.open(&settings, false).unwrap();
        let mut pair = Self {
            settings,
            random: Random::new(seed),
            primary_machine,
            primary,
            epoch: EPOCH,
            recorder,
            backup_machine,
            backup,
            live: false,
            stands_still: false,
            edits: VecDeque::new(),
            applying: None,
            flushes: Vec::new(),
            shipped: Lsn(0),
            told: Lsn(0),
            flushed: 0,
            applied: EditSeq(0),
            model: BTreeMap::new(),
            given_out: SegmentNumber(0),
            history: Vec::new(),
            forks: None,
            now: 0,
            fetched: 0,
            unplaced: 0,
        };
        pair.catch_up();
        pair
    }

    /// Has the backup fetch what it lacks of `edit`, a checkpoint of what is pinned.
    fn fetch_missing(&mut self, edit: &[u8], pin: &Pin) {
        for part in self.backup.missing(edit).unwrap() {
            let read = self.primary.read(part, std::slice::from_ref(pin));
            let bytes = Arc::new(read.expect("the pin has it").unwrap());
            self.fetched += bytes.len() as u64;
            self.backup
                .put_part(part.number, part.from, &bytes)
                .unwrap();
        }
    }

    /// Offers a checkpoint to the backup and brings it to life again.
    fn catch_up(&mut self) {
        self.listen();
        self.live = false;
        self.edits.clear();
        let PinnedCheckpoint { checkpoint, pin } = self.primary.checkpoint();
        let Checkpoint { seq, bytes } = checkpoint;
        while !self.backup.storage.is_idle() {
            // An edit under way cannot be taken back.
            while self.run_backup_request() {}
            self.backup.step().unwrap();
        }
        self.applying = None;
        self.backup.learn_places(&self.primary.places());
        self.fetch_missing(&bytes, &pin);
        assert_eq!(self.backup.missing(&bytes).unwrap(), []);
        assert_eq!(self.backup.submit_edit(&bytes).unwrap(), seq);
        let applied = CopyEvent::EditApplied(seq);
        while !self.backup.step().unwrap().contains(&applied) {
            assert!(self.run_backup_request(), "something is under way");
        }
        self.applied = seq;
        self.primary.edit_applied_everywhere(seq);
        self.live = true;
        self.ship();
        let position = self.backup.position();
        for range in std::mem::take(&mut self.flushes) {
            let at = position.logs.get(range.log).unwrap();
            if (range.ordinal, range.to) <= (at.ordinal, at.flushed) {
                self.acknowledge(range);
            } else {
                self.flushes.push(range);
                self.backup.flush(range);
            }
        }
    }

    /// Hears what the primary has told since the last time.
    fn listen(&mut self) {
        let (heard, ..) = &mut *self.recorder.0.lock().unwrap();
        for heard in std::mem::take(heard) {
            self.given_out = self.given_out.max(heard.number());
            match heard {
                Heard::Flush(range) => self.flushes.push(range),
                Heard::Edit(edit) => {
                    if self.live {
                        self.backup.learn_places(&edit.log_places);
                    }
                    self.edits.push_back((edit.seq, edit.bytes));
                }
                Heard::Segment(segment) if self.live && !self.backup.builds_levels() => {
                    let (bytes, sum) = (&segment.bytes, segment.checksum);
                    // Now and then a shipment is lost, and fetched later.
                    if self.random.below(4) > 0 {
                        let (bytes, place) = (Buffer::from_slice(bytes), segment.place);
                        let mut shipment =
                            Shipment::new(segment.number, self.epoch, bytes, sum, place);
                        shipment.check(REGION).unwrap();
                        match self.backup.rewrite(&mut shipment) {
                            Ok(()) => self.backup.put(shipment).unwrap(),
                            Err(ReplicaError::Copy(CopyError::Unplaced { .. })) => {
                                self.unplaced += 1
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
                Heard::Segment(_) => {}
            }
        }
    }

    /// Copies the primary's windows into the backup's, as one-sided writes would.
    fn ship(&mut self) {
        let last = self.recorder.0.lock().unwrap().1;
        self.copy_windows(&self.backup_machine.slots);
        self.shipped = last;
        self.primary.commit(last);
        self.backup.commit(last);
    }

    fn copy_windows(&self, slots: &Slots) {
        let windows = self.primary.windows();
        for log in LOGS {
            for (slot, to) in slots[log.index()].iter().enumerate() {
                let from = windows[log.index()].memory(slot);
                let bytes = from.read_vec(0, self.settings.layout.log_geometry().slot_bytes());
                to.write(0, &bytes);
            }
        }
    }

    /// Completes one of the requests of the backup's device, if any waits.
    fn run_backup_request(&mut self) -> bool {
        self.crash_before_request();
        self.backup_machine.device.run_one()
    }

    fn acknowledge(&mut self, range: FlushRange) {
        self.flushed += 1;
        self.primary
            .flushed_everywhere(range.log, range.segment, range.to);
    }

    /// One round of everything.
    fn pump(&mut self) {
        self.now += 20_000_000;
        self.primary.step(Instant::from_nanos(self.now)).unwrap();
        for _ in 0..self.random.below(4) {
            self.primary_machine.device.run_one();
        }
        let flushes = self.flushes.len();
        self.listen();
        if !self.live {
            return;
        }
        self.ship();
        for range in &self.flushes[flushes..] {
            self.backup.flush(*range);
        }
        self.next_edit();
        for _ in 0..self.random.below(4) {
            let _ = !self.stands_still && self.run_backup_request();
        }
        self.backup.build(Instant::from_nanos(self.now)).unwrap();
        for event in self.backup.step().unwrap() {
            match event {
                CopyEvent::SegmentStored(_) => {}
                CopyEvent::EditApplied(seq) => {
                    assert_eq!(self.applying.take(), Some(seq));
                    self.applied = seq;
                    self.primary.edit_applied_everywhere(seq);
                }
                CopyEvent::Flushed(range) => {
                    self.flushes.retain(|flush| *flush != range);
                    self.acknowledge(range);
                }
                CopyEvent::FlushRefused(range) => panic!("{range:?} was refused"),
            }
        }
    }

    /// Gives the backup the next edit, with what it lacks.
    fn next_edit(&mut self) {
        if self.applying.is_some() {
            return;
        }
        let Some((seq, bytes)) = self.edits.pop_front() else {
            return;
        };
        if seq <= self.applied {
            return;
        }
        for part in self.backup.missing(&bytes).unwrap() {
            match self.primary.read(part, &[]) {
                Some(bytes) => {
                    let bytes = Arc::new(bytes.unwrap());
                    self.fetched += bytes.len() as u64;
                    match self.backup.put_part(part.number, part.from, &bytes) {
                        Err(ReplicaError::Copy(CopyError::Gone { .. })) => return self.catch_up(),
                        put => put.unwrap(),
                    }
                }
                // The primary went on: a new checkpoint is asked for.
                None => return self.catch_up(),
            }
        }
        self.backup.submit_edit(&bytes).unwrap();
        self.applying = Some(seq);
    }

    /// Writes a random batch, when there is room.
    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        let mut after = self.model.clone();
        let mut ops = crashes::Ops::new();
        for _ in 0..1 + self.random.below(3) {
            let key = format!("key{:04}", self.random.below(300)).into_bytes();
            if self.random.below(5) == 0 {
                batch.delete(&key).unwrap();
                after.remove(&key);
                ops.push((key, None));
            } else if self.random.below(30) == 0 {
                let (first, count) = (self.random.below(300), self.random.below(40));
                let name = |number: u64| format!("key{number:04}").into_bytes();
                let range = KeyRange::new(name(first), Some(name(first + count)));
                batch.delete_range(&range).unwrap();
                after.retain(|key, _| !range.contains(key));
                ops.extend((first..first + count).map(|number| (name(number), None)));
            } else {
                let len = [8, 60, 300, 1500][self.random.below(4) as usize];
                let value = vec![self.random.below(256) as u8; len];
                batch.put(&key, &value).unwrap();
                ops.push((key.clone(), Some(value.clone())));
                after.insert(key, value);
            }
        }
        batch.name(name_of(self.history.len()));
        let first = self.primary.last_lsn().next();
        match self.primary.write(&batch, WriteOptions::default()) {
            Ok(written) => {
                self.model = after;
                self.history.push((first, written.wait.lsn(), ops));
            }
            Err(EngineError::Busy(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn settle(&mut self) {
        self.primary.flush_now();
        // Values move as long as that wins something.
        let mut still = 0;
        for _ in 0..20_000 {
            self.pump();
            self.primary_machine.device.run_all();
            while self.run_backup_request() {}
            still += 1;
            if self.primary.background_pending() > 0 || !self.edits.is_empty() {
                still = 0;
            }
            if still == 400 {
                break;
            }
        }
        assert!(self.edits.is_empty() && self.applying.is_none());
        assert_eq!(self.flushes, []);
        assert!(self.backup.is_idle());
    }

    /// I6: the members' levels and logs hold equal bytes.
    fn assert_equal(&self) {
        let PinnedCheckpoint { checkpoint, pin } = self.primary.checkpoint();
        let bytes = checkpoint.bytes;
        let mut theirs = Edit::decode(&bytes).unwrap();
        theirs.logs.points.clear();
        let own = self.backup.version().checkpoint();
        assert_eq!(own.to_string(), theirs.to_string());
        let levels = own.added.iter().map(|(_, _, s)| (s.number, s.len));
        let logs = own
            .logs
            .added
            .iter()
            .filter_map(|s| Some((s.number, s.end?)));
        for (number, len) in levels.chain(logs) {
            let part = front(number, block_up(len));
            let theirs = self.primary.read(part, std::slice::from_ref(&pin));
            let own = self.backup.read(number, 0, block_up(len)).unwrap();
            let valid = len as usize;
            assert!(
                own[..valid] == theirs.unwrap().unwrap()[..valid],
                "{number}"
            );
        }
    }

    /// Ends the backup's process.
    fn crash_backup(&mut self, kind: Crash) {
        let device = self.backup_machine.device.crash(kind);
        self.backup_machine.device = Arc::new(device);
        let survived = kind == Crash::Kill;
        self.backup = self.backup_machine.open(&self.settings, survived).unwrap();
        self.live = false;
        self.applying = None;
    }

    /// Takes the backup's windows back, as after a broken link.
    fn detach_backup(&mut self) {
        let fresh = fresh_slots(&self.settings);
        self.backup_machine.slots = fresh.clone();
        let position = self.backup.detach(fresh).unwrap();
        assert_eq!(position, self.backup.position());
        self.live = false;
    }

    /// Promotes the backup in place of the primary, and reads everything from it; then once more
    /// after a crash of what was promoted.
    fn promote_backup(mut self) {
        let cache = Arc::new(NodeCache::new(self.settings.cache_bytes));
        let service = |epoch| Service {
            epoch: Epoch(epoch),
            since: Epoch(2),
            ..Service::default()
        };
        let before = self.backup.version().group_edit();
        let promoted = Lsm::promote(self.backup, &cache, service(2)).unwrap();
        assert_eq!(before.cut_epoch(), Epoch(0));
        let edit = promoted.edit();
        assert_eq!((edit.cut_epoch(), edit.count()), (Epoch(2), 2), "{edit}");
        assert_holds(&promoted, &self.model);
        assert_remembers(&promoted, &self.history);
        for kind in [Crash::Kill, Crash::PowerLoss] {
            let mut machine = self.backup_machine.crashed(kind, 1);
            let again = machine.open(&self.settings, kind == Crash::Kill).unwrap();
            let again = Lsm::promote(again, &cache, service(3)).unwrap();
            assert_holds(&again, &self.model);
            assert_remembers(&again, &self.history);
        }
        // It takes writes of its own.
        let mut batch = WriteBatch::new();
        batch.put(b"key0001", b"new").unwrap();
        let write = promoted.write(&batch, WriteOptions::default());
        assert!(write.unwrap().applied);
        self.model.insert(b"key0001".to_vec(), b"new".to_vec());
        assert_holds(&promoted, &self.model);
    }

    /// Whether every level segment of the backup's version is what its edit said.
    fn backup_is_whole(&self) -> bool {
        let version = self.backup.version();
        let mut entries = version.levels().iter().flat_map(|level| level.entries());
        entries.all(|entry| is_whole(version, entry))
    }

    /// What any loss of power at this moment leaves of the backup: at least what it has
    /// acknowledged, and nothing else in use.
    fn check_crashed(&mut self, kind: Crash) {
        let seed = self.random.below(u64::MAX);
        let mut machine = self.backup_machine.crashed(kind, seed);
        let what = format!("{kind:?} {seed}");
        let replica = machine
            .open(&self.settings, kind == Crash::Kill)
            .expect(&what);
        let version = Arc::clone(replica.version());
        assert_eq!(version.check(), Ok(()));
        assert!(version.seq() >= self.applied, "{what}");
        let position = replica.position();
        let durable = self.primary.durable_lsn();
        assert!(position.lsn >= durable, "{what}: {durable}, {position:?}");
        if kind == Crash::Kill && self.live {
            assert!(position.lsn >= self.shipped, "{what}");
        }
        let mut entries = version.levels().iter().flat_map(|level| level.entries());
        assert!(entries.all(|entry| is_whole(&version, entry)), "{what}");
        let used = replica.storage.store().used() as usize;
        assert_eq!(
            used,
            1 + replica.storage.device_segments(),
            "{what}: leaked"
        );
    }
}

fn assert_holds(engine: &Lsm, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for number in 0..300 {
        let key = format!("key{number:04}").into_bytes();
        let found = engine.get(&key).unwrap().value;
        assert_eq!(found.as_ref(), model.get(&key), "key {number}");
    }
}

/// The name of the batch at this place of the history.
fn name_of(place: usize) -> RequestName {
    let (client, seq) = (place % 3, place / 3);
    RequestName {
        client: ClientId(1 + client as u64),
        seq: 1 + seq as u64,
    }
}

/// Whatever batch comes again is recognised, or forgotten, and changes nothing.
fn assert_remembers(engine: &Lsm, history: &[(Lsn, Lsn, crashes::Ops)]) {
    let mut batch = WriteBatch::new();
    batch.put(b"key0001", b"once more").unwrap();
    let last = engine.last_lsn();
    for (place, (first, lsn, _)) in history.iter().enumerate() {
        if lsn < first {
            // It had no operation: a range without a key is none.
            continue;
        }
        batch.name(name_of(place));
        let age = (history.len() - 1 - place) / 3;
        match engine.write(&batch, WriteOptions::default()) {
            Ok(written) => {
                assert!(written.before, "batch {place} is written again");
                assert_eq!(written.wait.lsn(), *lsn, "batch {place}");
            }
            Err(EngineError::Forgotten(_)) => assert!(age >= REQUESTS_MAX, "batch {place}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(engine.last_lsn(), last);
}

fn is_whole(version: &Version, entry: &crate::version::LevelEntry) -> bool {
    let segment = &entry.segment;
    let mut bytes = Buffer::zeroed(segment.len as usize);
    entry.stored.read(0, &mut bytes).unwrap();
    let name = version.name_of(segment);
    let differs = version.addresses() == AddressMode::Rewrite && has_pointers(segment);
    if differs {
        let sound =
            segment.form.is_index() || SegmentReader::open(name, segment.len, &bytes).is_ok();
        return sound && translate_out(version, segment.number, &mut bytes).is_ok();
    }
    name.checksum(&bytes) == segment.checksum
}

#[test]
fn a_backup_follows_and_can_be_promoted() {
    for settings in [settings(), in_places()] {
        let mut pair = Pair::new(1, settings);
        for _ in 0..1500 {
            pair.write();
            pair.pump();
        }
        pair.settle();
        assert!(
            pair.primary.edit().0 > 30,
            "flushes and compactions happened"
        );
        assert!(pair.backup.version().level(2).is_some());
        pair.assert_equal();
        // Nothing is left but what the version names.
        let used = pair.backup.storage.store().used() as usize;
        assert_eq!(used, 1 + pair.backup.storage.device_segments());
        pair.promote_backup();
    }
}

/// Last-write: what was shipped survives the loss of the primary, flushed or not.
#[test]
fn what_is_in_the_windows_survives_the_primary() {
    for seed in 1..20 {
        let mut pair = Pair::new(seed, settings());
        for _ in 0..100 + 7 * seed {
            pair.write();
            pair.pump();
        }
        pair.ship();
        pair.promote_backup();
    }
}

#[test]
fn a_backup_comes_back_from_anything() {
    let (mut kills, mut losses, mut detaches) = (0, 0, 0);
    for seed in 1..40 {
        let mut pair = Pair::new(
            seed,
            if seed % 2 == 0 {
                settings()
            } else {
                in_places()
            },
        );
        for _ in 0..12 {
            for _ in 0..pair.random.below(120) {
                pair.write();
                pair.pump();
            }
            match pair.random.below(4) {
                0 => {
                    pair.crash_backup(Crash::Kill);
                    assert!(pair.backup.position().lsn >= pair.shipped, "seed {seed}");
                    kills += 1;
                }
                1 => {
                    pair.crash_backup(Crash::PowerLoss);
                    losses += 1;
                }
                2 => {
                    pair.detach_backup();
                    assert!(pair.backup.position().lsn >= pair.shipped, "seed {seed}");
                    detaches += 1;
                }
                _ => continue,
            }
            // The primary goes on for a while without it.
            for _ in 0..pair.random.below(60) {
                pair.write();
                pair.pump();
            }
            pair.catch_up();
        }
        pair.settle();
        pair.assert_equal();
        pair.promote_backup();
    }
    assert!(
        kills > 5 && losses > 5 && detaches > 5,
        "{kills} {losses} {detaches}"
    );
}

/// A primary that has lost power adopts what its backup holds: everything that was acknowledged,
/// in levels, on the device, and in windows.
#[test]
fn a_primary_adopts_a_longer_history() {
    let mut adopted = 0;
    for seed in 1..30 {
        let mut pair = Pair::new(
            seed,
            if seed % 2 == 0 {
                settings()
            } else {
                in_places()
            },
        );
        for _ in 0..60 + 13 * (seed % 20) {
            pair.write();
            pair.pump();
        }
        pair.ship();
        pair.detach_backup();
        while !pair.backup.storage.is_idle() {
            pair.backup_machine.device.run_all();
            pair.backup.step().unwrap();
        }
        pair.detach_backup();
        let theirs = pair.backup.position();
        assert!(theirs.lsn >= pair.shipped);
        let device = pair.primary_machine.device.crash(Crash::PowerLoss);
        let mut machine = Machine {
            device: Arc::new(device),
            slots: Slots::default(),
            builds: None,
            compaction: None,
        };
        let mut own = machine.open(&pair.settings, false).unwrap();
        let edit = own.adopt(pair.backup.checkpoint().bytes).unwrap();
        adopted += u32::from(own.position().lsn < theirs.lsn);
        for part in own.missing(&edit).unwrap() {
            let bytes = pair
                .backup
                .read(part.number, part.from, part.to - part.from);
            own.put_part(part.number, part.from, &Arc::new(bytes.unwrap()))
                .unwrap();
        }
        own.submit_adopted(&edit).unwrap();
        while own.step().unwrap().is_empty() {
            assert!(machine.device.run_one());
        }
        assert!(own.position().lsn >= theirs.lsn, "seed {seed}");
        pair.backup = own;
        pair.backup_machine = machine;
        pair.promote_backup();
    }
    assert!(adopted > 10, "the primary had lost something");
}

/// What one member has of the log may end in the middle of a block in which it goes on at another.
#[test]
fn an_adopted_log_goes_on_in_the_block_in_which_it_ended() {
    let mut pair = Pair::new(1, settings());
    for _ in 0..20 {
        pair.pump();
    }
    let mut machine = Machine::new(1);
    let mut own = machine.open(&pair.settings, false).unwrap();
    for number in 0..2_u8 {
        let mut batch = WriteBatch::new();
        batch.put([number], b"value").unwrap();
        let lsn = pair.primary.write(&batch, WriteOptions::default());
        let lsn = lsn.unwrap().wait.lsn();
        pair.ship();
        pair.detach_backup();
        let edit = pair.backup.checkpoint().bytes;
        for part in own.missing(&edit).unwrap() {
            let len = part.to - part.from;
            let bytes = pair.backup.read(part.number, part.from, len).unwrap();
            own.put_part(part.number, part.from, &Arc::new(bytes))
                .unwrap();
        }
        own.submit_adopted(&edit).unwrap();
        while own.step().unwrap().is_empty() {
            assert!(machine.device.run_one());
        }
        assert_eq!((own.position().lsn, pair.backup.position().lsn), (lsn, lsn));
        pair.catch_up();
    }
    assert_eq!(own.position().logs.get(RECOVERY_LOG).unwrap().ordinal, 0);
}

/// A member that comes back fetches the difference, not everything.
#[test]
fn catching_up_takes_the_difference() {
    let mut pair = Pair::new(3, settings());
    for _ in 0..1500 {
        pair.write();
        pair.pump();
    }
    pair.settle();
    let before = pair.fetched;
    pair.crash_backup(Crash::Kill);
    pair.catch_up();
    let after_kill = pair.fetched - before;
    // Of each log a block at most where it is not known whether it had been flushed, and that of the mark behind.
    assert!(after_kill <= 4 * u64::from(BLOCK), "{after_kill}");
    // One that has lost everything fetches everything.
    pair.backup_machine = Machine::new(99);
    pair.backup = pair.backup_machine.open(&pair.settings, false).unwrap();
    pair.catch_up();
    let everything = pair.fetched - before - after_kill;
    assert!(everything > 20 * u64::from(BLOCK), "{everything}");
    pair.settle();
    pair.assert_equal();
    pair.promote_backup();
}

#[test]
fn a_crash_at_any_instant_leaves_what_was_acknowledged() {
    for seed in 1..5 {
        let mut pair = Pair::new(
            seed,
            if seed % 2 == 0 {
                settings()
            } else {
                in_places()
            },
        );
        for _ in 0..400 {
            pair.write();
            pair.pump();
            for kind in [Crash::Kill, Crash::PowerLoss] {
                pair.check_crashed(kind);
            }
        }
        assert!(
            pair.applied.0 > 10 && pair.flushed > 15,
            "{} {}",
            pair.applied.0,
            pair.flushed
        );
    }
}

/// The planted mistake: the segment that never came is missed when it is read.
#[test]
fn an_edit_before_its_segment_is_noticed() {
    let mutants = Mutants {
        commit_before_arrival: true,
        ..Mutants::default()
    };
    let mut pair = Pair::new(1, settings());
    let mut backup_machine = Machine::new(2);
    let planted = settings().with(|of| of.mutants = mutants);
    pair.backup = backup_machine.open(&planted, false).unwrap();
    pair.backup_machine = backup_machine;
    pair.applied = EditSeq(0);
    pair.catch_up();
    let mut rounds = 0;
    while pair.backup_is_whole() {
        pair.write();
        pair.pump();
        rounds += 1;
        assert!(rounds < 1500, "lost shipments were never fetched");
    }
}

// --- What does not fit is refused ---

#[test]
fn bytes_that_are_not_what_was_announced_are_refused() {
    let mut machine = Machine::new(1);
    let mut replica = machine.open(&settings(), false).unwrap();
    let bytes = Arc::new(Buffer::zeroed(8192));
    let number = SegmentNumber(3);
    let copy = Buffer::from_slice(&bytes);
    let shipment = Shipment::new(number, EPOCH, copy, 1, DeviceSegment(1));
    let put = shipment.check(REGION);
    assert!(matches!(put, Err(CopyError::Damaged { .. })), "{put:?}");
    let put = replica.put_part(number, 0, &bytes);
    assert!(
        matches!(put, Err(ReplicaError::Copy(CopyError::Refused { .. }))),
        "{put:?}"
    );
    assert_eq!(replica.storage.device_segments(), 1, "the manifest alone");
    let read = replica.read(number, 0, 4096).map(|_| ());
    assert!(
        matches!(read, Err(ReplicaError::Copy(CopyError::Gone { .. }))),
        "{read:?}"
    );
}

#[test]
fn an_edit_whose_data_is_not_here_is_refused() {
    let mut pair = Pair::new(1, settings());
    let mut edit = pair.backup.storage.next_edit(EPOCH);
    let number = SegmentNumber(pair.backup.version().mark().0 - 1);
    let segment = crate::edit::LevelSegment {
        form: crate::names::Form::SelfContained,
        number,
        epoch: EPOCH,
        len: 4096,
        checksum: 1,
        entries: 1,
        tombstones: 0,
        range: argosy_base::KeyRange::all(),
        large_bytes: 0,
        medium_bytes: 0,
    };
    edit.added.push((1, crate::edit::RunId(9), segment));
    let refused = pair.backup.submit_edit(&edit.encode());
    assert!(
        matches!(refused, Err(ReplicaError::Copy(CopyError::Missing { .. }))),
        "{refused:?}"
    );
    assert!(pair.backup.is_idle());
    // Neither is one that comes too early, nor what is no edit.
    let early = Edit::new(edit.seq.next(), EPOCH);
    assert!(pair.backup.submit_edit(&early.encode()).is_err());
    assert!(pair.backup.submit_edit(b"no edit").is_err());
    assert!(
        pair.backup
            .submit_edit(&Edit::new(edit.seq, EPOCH).encode())
            .is_ok()
    );
    pair.backup_machine.device.run_all();
}

/// A flush of a window that is not there is refused, not made up.
#[test]
fn a_flush_of_what_is_not_in_memory_is_refused() {
    let mut pair = Pair::new(1, settings());
    for _ in 0..100 {
        pair.pump();
    }
    let tail = pair.backup.version().tail(LARGE_LOG).unwrap().segment;
    let range = FlushRange {
        log: LARGE_LOG,
        ordinal: tail.ordinal,
        segment: tail.number,
        from: 0,
        to: 4096,
    };
    pair.backup.flush(range);
    let events = pair.backup.step().unwrap();
    assert_eq!(events, [CopyEvent::FlushRefused(range)]);
}

/// The other side may have logs that this engine does not have.
#[test]
fn a_log_that_does_not_exist_is_refused_by_a_backup_and_ignored_by_a_primary() {
    let mut pair = Pair::new(1, settings());
    for log in LogId::all().skip(LOGS.len()) {
        let range = FlushRange {
            log,
            ordinal: 0,
            segment: SegmentNumber(1),
            from: 0,
            to: 4096,
        };
        pair.backup.flush(range);
        let events = pair.backup.step().unwrap();
        assert_eq!(events, [CopyEvent::FlushRefused(range)]);
        pair.primary
            .flushed_everywhere(log, range.segment, range.to);
        let (from, end) = (LogPlace::default(), LogPlace::default().next_segment());
        let next = pair.primary.piece(log, from, end, &mut Piece::default());
        assert_eq!(next, Next::End);
    }
    pair.write();
    pair.pump();
}

/// A log point in the middle of a block: what follows in the block may still be on its way into the
/// window, so that the block is not taken from there. Behind a seal nothing follows.
#[test]
fn a_block_is_not_taken_from_a_window_before_all_of_it_is_there() {
    let (mut pair, at) = (1..)
        .find_map(|seed| {
            let mut pair = Pair::new(seed, settings());
            for _ in 0..50 {
                pair.write();
                pair.pump();
            }
            pair.ship();
            pair.detach_backup();
            let at = *pair.backup.position().logs.get(RECOVERY_LOG)?;
            (at.end > at.flushed && at.end % 4096 > 0).then_some((pair, at))
        })
        .expect("a log ends somewhere in a block");
    let point = LogPoint {
        log: RECOVERY_LOG,
        number: at.segment,
        to: at.end,
    };
    let mut edit = Edit::new(pair.backup.position().edit.next(), EPOCH);
    edit.logs.points.push(point);
    let part = SegmentPart {
        number: at.segment,
        from: at.flushed,
        to: at.end.next_multiple_of(4096),
    };
    assert_eq!(pair.backup.missing(&edit.encode()).unwrap(), [part]);
    edit.logs.points.clear();
    edit.logs.sealed.push(point);
    assert_eq!(pair.backup.missing(&edit.encode()).unwrap(), []);
}

#[path = "places_tests.rs"]
mod places;

#[path = "closing_tests.rs"]
mod closing;

#[path = "crash_tests.rs"]
mod crashes;

#[path = "demote_tests.rs"]
mod demotions;

#[path = "early_tests.rs"]
mod early;

#[path = "filling_tests.rs"]
mod filling;

#[path = "gap_tests.rs"]
mod gap;

#[path = "held_tests.rs"]
mod held;

#[path = "medium_tests.rs"]
mod medium;

#[path = "own_tests.rs"]
mod own;

#[path = "promote_tests.rs"]
mod promotions;

#[path = "sent_tests.rs"]
mod sent;

/// What a position tells of edits is what [`CopyEvent::EditApplied`] does: damage to them is seen.
#[test]
fn a_position_tells_of_no_edit_without_a_witness() {
    let mut met = 0;
    for seed in 1..9 {
        let mut pair = Pair::new(seed, settings());
        for _ in 0..1000 {
            pair.go_on(1);
            if pair.backup.storage.unwitnessed() > 0 {
                met += 1;
                break;
            }
        }
        pair.detach_backup();
        assert_eq!(pair.backup.storage.unwitnessed(), 0, "seed {seed}");
        pair.backup.step().unwrap();
        pair.catch_up();
        pair.go_on(100);
        assert!(pair.backup_is_whole(), "seed {seed}");
    }
    assert!(met > 4, "{met}");
}
