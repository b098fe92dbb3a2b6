//! A copy of a region of the toy, and what it has on its device: a place for each slot of the log, and a manifest with
//! its last edit. The catalog names all of it. Everything blocks until the device is done: a toy has no time to lose.
//!
//! An edit has a manifest of its own, which is made durable before the catalog names it in place of the last one (I3).
//! What the copy has of the log is in the edit, in the places and in windows, as it came. It is looked for when the
//! copy is opened or detached, or gets a checkpoint, and the fresh windows begin with what the history has of it. In
//! between, what windows have is only flushed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{
    DeviceSegment, EditSeq, FlushRange, Identity, Kind, LogPosition, Position, RegionId, Remedy,
    SegmentNumber, Standing,
};
use argosy_device::{Buffer, DeviceError, Purpose, RegionEntry, SegmentHandle, Store};
use argosy_memory::SharedMemory;

use super::edit::ToyEdit;
use super::log::{LOG, follow, narrow, number};
use super::map::Map;
use super::store::ToyStore;
use super::{Settings, ToyStored};
use crate::catalog::{generation, id_of_set_aside, standing, with_standing};
use crate::set_aside::SetAside;
use crate::{
    Checkpoint, CopyError, CopyEvent, Follower, LogSlots, NotPromoted, Promoted, Service, Stored,
    Windows,
};

/// Most flushes that wait for the edit that adds their segment.
const FLUSHES_MAX: usize = 64;

/// The memory of windows that an earlier process left, by slot.
type Left = [Option<Arc<SharedMemory>>];

/// See the module documentation.
pub(super) struct ToyCopy {
    store: Arc<Store>,
    pub(super) region: RegionId,
    pub(super) settings: Settings,
    standing: Standing,
    generation: u64,
    pub(super) slots: Vec<Arc<SharedMemory>>,
    places: Vec<SegmentHandle>,
    manifest: Vec<SegmentHandle>,
    /// The last edit, together with the log's bytes that were found at the opening.
    pub(super) edit: ToyEdit,
    /// As of the end of that.
    pub(super) map: Map,
    flushes: VecDeque<FlushRange>,
    events: Vec<CopyEvent>,
}

impl ToyCopy {
    /// A copy without anything in it.
    fn new(store: &Arc<Store>, region: RegionId, settings: Settings, windows: Windows) -> Self {
        Self {
            store: Arc::clone(store),
            region,
            settings,
            standing: match store.region(id_of_set_aside(region)) {
                Some(_) => Standing::BegunAnew,
                None => Standing::Ordinary,
            },
            generation: store.region(region).as_ref().map_or(0, generation),
            slots: settings.slots_of(windows),
            places: Vec::new(),
            manifest: Vec::new(),
            edit: ToyEdit::default(),
            map: Map::default(),
            flushes: VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// A copy without anything in it but the windows, for a store that has given this one away.
    pub(super) fn hollow(&self) -> Self {
        Self::new(&self.store, self.region, self.settings, self.windows())
    }

    /// Begins an empty copy, in place of one that the catalog may name.
    pub(super) fn create(
        store: &Arc<Store>,
        region: RegionId,
        settings: Settings,
        windows: Windows,
    ) -> Result<Self, CopyError> {
        let mut copy = Self::new(store, region, settings, windows);
        let places = (0..settings.windows).map(|_| store.allocate(Purpose::Log));
        copy.places = places.collect::<Result<_, _>>()?;
        copy.commit(ToyEdit::default())?;
        Ok(copy)
    }

    /// Opens the copy that the catalog names by `entry`, and finds the end of its log, also in `left`.
    pub(super) fn open(
        store: &Arc<Store>,
        entry: &RegionEntry,
        settings: Settings,
        windows: Windows,
        left: &Left,
    ) -> Result<Self, CopyError> {
        let mut copy = Self::new(store, entry.region, settings, windows);
        copy.standing = standing(entry.words[1]).unwrap_or_default();
        let claimed = entry.manifest.iter().map(|place| store.claim(*place));
        copy.places = claimed.collect::<Result<_, _>>()?;
        copy.manifest = copy
            .places
            .split_off(settings.windows.min(copy.places.len()));
        let mut bytes = Vec::new();
        for part in &copy.manifest {
            bytes.extend_from_slice(&copy.read_place(part, SEGMENT_SIZE)?);
        }
        copy.edit = ToyEdit::decode(&bytes).map_err(|_| CopyError::Damaged {
            number: SegmentNumber(0),
            what: "its manifest",
        })?;
        copy.look(left)?;
        Ok(copy)
    }

    /// The slot of log segment `ordinal`.
    pub(super) fn slot(&self, ordinal: u64) -> usize {
        usize::try_from(ordinal % self.slots.len() as u64).expect("a slot")
    }

    /// The ordinal behind that of the last segment of the log.
    pub(super) fn behind(&self) -> u64 {
        self.edit.first + self.slots.len() as u64
    }

    /// The identity of log segment `ordinal`.
    pub(super) fn identity(&self, edit: &ToyEdit, ordinal: u64) -> Identity {
        Identity {
            kind: Kind::LogRecord,
            region: self.region,
            segment: number(ordinal),
            epoch: edit.epoch,
            offset: 0,
        }
    }

    fn read_place(&self, place: &SegmentHandle, len: usize) -> Result<Buffer, DeviceError> {
        let mut bytes = Buffer::zeroed(len);
        self.store.read(place.segment(), 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes `bytes`, filled up to whole blocks, at byte `at`. They are not durable then.
    fn write_place(&self, place: DeviceSegment, at: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(BLOCK_SIZE));
        buffer[..bytes.len()].copy_from_slice(bytes);
        let (len, buffer) = (buffer.len(), Arc::new(buffer));
        let store = &self.store;
        store.wait(&store.submit_write(place, at, buffer, 0..len))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.store.wait(&self.store.sync())
    }

    /// Has the catalog name the copy, with its standing.
    fn enter(&self) -> Result<(), DeviceError> {
        let segments = self.places.iter().chain(&self.manifest);
        let entry = RegionEntry {
            region: self.region,
            manifest: segments.map(SegmentHandle::segment).collect(),
            words: [self.generation, with_standing(0, self.standing)],
        };
        self.store.set_region(entry).wait()
    }

    /// Makes `edit` the last one.
    pub(super) fn commit(&mut self, edit: ToyEdit) -> Result<(), DeviceError> {
        let mut manifest = Vec::new();
        for part in edit.encode().chunks(SEGMENT_SIZE) {
            let place = self.store.allocate(Purpose::Metadata)?;
            self.write_place(place.segment(), 0, part)?;
            manifest.push(place);
        }
        self.sync()?;
        // The one before is free once the catalog does not name it.
        let before = std::mem::replace(&mut self.manifest, manifest);
        self.generation += 1;
        self.enter()?;
        drop(before);
        self.edit = edit;
        Ok(())
    }

    /// Follows the log behind the image of `edit`, up to the first LSN that is missing: in `edit`, in the places and in
    /// `left`. Puts what it finds into `edit` and into the windows. Returns the map as of the end.
    fn find_end(&self, edit: &mut ToyEdit, left: &Left) -> Result<Map, CopyError> {
        let mut map = Map::decode(&edit.image).map_err(wrong)?;
        let brought = std::mem::take(&mut edit.logs);
        for ordinal in (edit.first..).take(self.places.len()) {
            let slot = self.slot(ordinal);
            let place = self.read_place(&self.places[slot], self.settings.window_bytes)?;
            let window = left.get(slot).and_then(Option::as_ref);
            // Somebody may still write to it: what is read once decides.
            let window = window.map(|memory| memory.peek(0, memory.len()));
            let brought = brought.get(&ordinal).map_or(&[][..], Vec::as_slice);
            let brought = &brought[..brought.len().min(place.len())];
            let sources = [brought, &place, window.as_deref().unwrap_or_default()];
            let mut found = follow(self.identity(edit, ordinal), &sources, &mut map);
            // What was flushed goes up to a block.
            found.resize(found.len().max(brought.len()), 0);
            self.slots[slot].write(0, &found);
            if !found.is_empty() {
                edit.logs.insert(ordinal, found);
            }
        }
        Ok(map)
    }

    /// Finds where the history ends, also in `left`, and makes it durable.
    fn look(&mut self, left: &Left) -> Result<(), CopyError> {
        let mut edit = self.edit.clone();
        self.map = self.find_end(&mut edit, left)?;
        for (ordinal, bytes) in &edit.logs {
            self.write_place(self.places[self.slot(*ordinal)].segment(), 0, bytes)?;
        }
        self.sync()?;
        self.edit = edit;
        Ok(())
    }

    fn windows_here(&self) -> Vec<Option<Arc<SharedMemory>>> {
        self.slots.iter().cloned().map(Some).collect()
    }

    /// Makes the windows' bytes of `range` durable.
    pub(super) fn flush_range(&self, range: &FlushRange) -> Result<(), DeviceError> {
        let slot = self.slot(range.ordinal);
        let len = range.to.saturating_sub(range.from) as usize;
        let bytes = self.slots[slot].read_vec(range.from as usize, len);
        self.write_place(self.places[slot].segment(), range.from, &bytes)?;
        self.sync()
    }

    /// Begins a new log behind an image of everything: the cut.
    fn begin_log(&mut self, service: &Service) -> Result<(), DeviceError> {
        let next = self.edit.seq.next();
        self.commit(ToyEdit {
            seq: next.max(EditSeq::first_of(service.since)),
            epoch: self.edit.epoch.max(service.epoch),
            first: self.behind(),
            image: self.map.encode(),
            ..ToyEdit::default()
        })
    }

    /// The last edit as a checkpoint that has `logs`.
    pub(super) fn checkpoint_with(&self, logs: BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
        let edit = ToyEdit {
            checkpoint: true,
            logs,
            ..self.edit.clone()
        };
        edit.encode()
    }

    /// What it consists of.
    pub(super) fn stored(&self) -> Arc<dyn Stored> {
        let image = Identity::of_server(Kind::Manifest, 1).checksum(&self.edit.image);
        Arc::new(ToyStored(u64::from(image)))
    }
}

fn wrong(error: argosy_base::codec::Malformed) -> CopyError {
    CopyError::Engine {
        remedy: Remedy::Correct,
        error: Arc::new(error),
    }
}

impl Follower for ToyCopy {
    fn region(&self) -> RegionId {
        self.region
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn become_ordinary(&mut self) {
        if self.standing != Standing::Ordinary {
            self.standing = Standing::Ordinary;
            // Where it fails, the next opening finds the copy as it was.
            let _ = self.enter();
        }
    }

    fn begin_filling(&mut self) -> Result<(), CopyError> {
        if self.standing == Standing::Ordinary {
            self.standing = Standing::Filling;
            self.enter()
                .inspect_err(|_| self.standing = Standing::Ordinary)?;
        }
        Ok(())
    }

    fn position(&self) -> Position {
        let last = self.edit.logs.last_key_value();
        let (ordinal, end) = last.map_or((self.edit.first, 0), |(ordinal, bytes)| {
            (*ordinal, narrow(bytes.len()))
        });
        let at = LogPosition {
            ordinal,
            segment: number(ordinal),
            end,
            flushed: end - end % narrow(BLOCK_SIZE),
        };
        Position {
            edit: self.edit.seq,
            lsn: self.map.last,
            logs: [(LOG, at)].into_iter().collect(),
        }
    }

    fn windows(&self) -> Windows {
        let slots = self.slots.clone();
        vec![LogSlots { log: LOG, slots }]
    }

    fn detach(&mut self, fresh: Windows) -> Result<Position, CopyError> {
        self.events.clear();
        self.flushes.clear();
        let left = self.windows_here();
        self.slots = self.settings.slots_of(fresh);
        self.look(&left)?;
        Ok(self.position())
    }

    fn step(&mut self) -> Result<Vec<CopyEvent>, CopyError> {
        // Of a segment behind the last one an edit will come.
        let behind = self.behind();
        while let Some(range) = self.flushes.pop_front_if(|range| range.ordinal < behind) {
            // An image has what was in an older one.
            let is_here = range.ordinal >= self.edit.first;
            if is_here && !self.settings.mutants.flush_nothing() {
                self.flush_range(&range)?;
            }
            self.events.push(CopyEvent::Flushed(range));
        }
        Ok(std::mem::take(&mut self.events))
    }

    fn flush(&mut self, range: FlushRange) {
        let FlushRange { from, to, .. } = range;
        let fits = range.log == LOG
            && from <= to
            && to as usize <= self.settings.window_bytes
            && (from as usize).is_multiple_of(BLOCK_SIZE);
        match fits && self.flushes.len() < FLUSHES_MAX {
            true => self.flushes.push_back(range),
            false => self.events.push(CopyEvent::FlushRefused(range)),
        }
    }

    fn is_idle(&self) -> bool {
        self.events.is_empty() && self.flushes.is_empty()
    }

    fn submit(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        let mut edit = ToyEdit::decode(edit).map_err(wrong)?;
        if self.settings.mutants.forget_logs() {
            edit.logs.clear();
        }
        let map = if edit.checkpoint {
            self.find_end(&mut edit, &self.windows_here())?
        } else {
            let found = self.edit.logs.iter();
            let kept = found.filter(|(ordinal, _)| **ordinal >= edit.first);
            edit.logs = kept.map(|(at, bytes)| (*at, bytes.clone())).collect();
            Map::decode(&edit.image).map_err(wrong)?
        };
        let renews = edit.checkpoint || map.last > self.map.last;
        self.commit(edit)?;
        if renews {
            self.map = map;
        }
        self.events.push(CopyEvent::EditApplied(self.edit.seq));
        Ok(self.edit.seq)
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            seq: self.edit.seq,
            bytes: self.checkpoint_with(self.edit.logs.clone()),
        }
    }

    fn adopt(&self, theirs: Vec<u8>) -> Result<Vec<u8>, CopyError> {
        let ToyEdit { seq, logs, .. } = ToyEdit::decode(&theirs).map_err(wrong)?;
        if seq >= self.edit.seq {
            return Ok(theirs);
        }
        Ok(self.checkpoint_with(logs))
    }

    fn stored(&self) -> Arc<dyn Stored> {
        self.stored()
    }

    fn promote(mut self: Box<Self>, service: Service) -> Result<Promoted, Box<NotPromoted>> {
        self.become_ordinary();
        if let Err(error) = self.begin_log(&service) {
            let error = error.into();
            return Err(Box::new(NotPromoted { error, left: None }));
        }
        let store = Arc::new(ToyStore::new(*self, service));
        Ok(Promoted {
            store: Arc::<ToyStore>::clone(&store),
            source: Some(store),
            cut: None,
        })
    }

    fn set_aside(self: Box<Self>) -> Option<SetAside> {
        let entry = self.store.region(self.region)?;
        Some(SetAside::new(Arc::clone(&self.store), entry, Vec::new()))
    }
}
