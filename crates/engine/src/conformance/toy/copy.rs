//! The passive copy of a region of the toy.
//!
//! Bytes of the log are looked at when the copy is opened or detached, or has applied a checkpoint: what the history
//! has of them is made durable and put into the fresh windows. In between they are only flushed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{
    EditSeq, FlushRange, LogPosition, PerLog, Position, RegionId, Remedy, SegmentNumber,
    SegmentPart, Standing,
};
use argosy_device::{Buffer, Purpose};
use argosy_memory::SharedMemory;

use super::disk::{Disk, Log, damaged};
use super::edit::{ImagePart, RingSegment, ToyEdit};
use super::ring::{LOG, Slots};
use super::store::ToyStore;
use super::stored::ToyStored;
use crate::set_aside::SetAside;
use crate::{
    Checkpoint, CopyError, CopyEvent, Follower, LogSlots, NotPromoted, Promoted, Service, Stored,
    Windows,
};

/// Most flushes that wait for the edit that adds their segment.
const FLUSHES_MAX: usize = 64;

#[expect(clippy::cast_possible_truncation, reason = "4096 fits")]
const BLOCK: u32 = BLOCK_SIZE as u32;

/// See the module documentation.
pub(super) struct ToyCopy {
    pub(super) disk: Disk,
    pub(super) slots: Vec<Arc<SharedMemory>>,
    log: Log,
    /// Bytes of log segments that are durable here, in whole blocks.
    durable: BTreeMap<SegmentNumber, u32>,
    /// What `missing` was asked about last, and the parts of its image that came.
    examined: ToyEdit,
    arrived: Vec<ImagePart>,
    /// Parts of logs that arrived before the parts in front of them.
    ahead: Vec<SegmentPart>,
    flushes: VecDeque<FlushRange>,
    events: Vec<CopyEvent>,
}

impl ToyCopy {
    /// The copy on `disk`, which finds the end of its log in `left`.
    pub(super) fn new(disk: Disk, windows: Windows, left: &Slots) -> Result<Self, CopyError> {
        let mut copy = Self {
            slots: disk.settings.slots_of(windows),
            disk,
            log: Log::default(),
            durable: BTreeMap::new(),
            examined: ToyEdit::default(),
            arrived: Vec::new(),
            ahead: Vec::new(),
            flushes: VecDeque::new(),
            events: Vec::new(),
        };
        copy.look(left)?;
        Ok(copy)
    }

    /// Finds where the history ends in `left` and on the device, makes it durable, and puts it into the windows.
    fn look(&mut self, left: &Slots) -> Result<(), CopyError> {
        // Somebody may still write to them: one copy decides.
        let private = |memory: &Arc<SharedMemory>| Arc::new(memory.private_copy());
        let private = left.0.iter().map(|left| left.as_ref().map(private));
        self.log = self.disk.read_log(&Slots(private.collect()), |_| ())?;
        let before = std::mem::take(&mut self.durable);
        self.ahead.clear();
        let (last, windows) = (self.last_log().copied(), self.windows_here());
        for segment in &self.disk.edit.logs {
            let bytes = &self.log.found[&segment.number];
            if bytes.is_empty() {
                continue;
            }
            self.disk.table[&segment.number].write(0, bytes)?;
            // Padding that was flushed or fetched is no part of the history, and durable all the same.
            let known = before.get(&segment.number).copied().unwrap_or(0);
            let durable = match last == Some(*segment) {
                true => (len(bytes).max(segment.needed) / BLOCK * BLOCK).max(known),
                false => self.disk.settings.segment_bytes(),
            };
            self.durable.insert(segment.number, durable);
            windows.begin(self.disk.region, segment, bytes);
        }
        self.disk.sync()?;
        Ok(())
    }

    fn windows_here(&self) -> Slots {
        Slots(self.slots.iter().cloned().map(Some).collect())
    }

    /// The segment in which the history ends.
    fn last_log(&self) -> Option<&RingSegment> {
        let mut logs = self.disk.edit.logs.iter().rev();
        logs.find(|segment| self.found(segment.number) > 0)
    }

    /// How far the history was found to reach in segment `number`.
    fn found(&self, number: SegmentNumber) -> u32 {
        self.log.found.get(&number).map_or(0, |bytes| len(bytes))
    }

    fn durable(&self, number: SegmentNumber) -> u32 {
        self.durable.get(&number).copied().unwrap_or(0)
    }

    /// How far the history was found to reach in segment `number`, or it is durable.
    fn held(&self, number: SegmentNumber) -> u32 {
        self.found(number).max(self.durable(number))
    }

    /// Makes the windows' bytes of `range` durable, and what is in front of it. `None`: the segment is not known yet.
    fn flush_range(&mut self, range: &FlushRange) -> Result<Option<CopyEvent>, CopyError> {
        let Some(segment) = self.disk.edit.log(range.segment).copied() else {
            let newest = self.disk.edit.logs.last();
            // An image has what was in an older one.
            let is_old = newest.is_some_and(|newest| newest.ordinal >= range.ordinal);
            return Ok(is_old.then_some(CopyEvent::Flushed(*range)));
        };
        let durable = self.durable(segment.number);
        if durable < range.to {
            let window = self.windows_here().found(self.disk.region, &segment);
            let to_write = durable as usize..range.to as usize;
            let Some(bytes) = window.as_ref().and_then(|window| window.get(to_write)) else {
                return Ok(Some(CopyEvent::FlushRefused(*range)));
            };
            if !self.disk.settings.mutants.flush_nothing() {
                self.disk.table[&segment.number].write(durable, bytes)?;
                self.disk.sync()?;
            }
            self.durable.insert(segment.number, range.to);
        }
        Ok(Some(CopyEvent::Flushed(*range)))
    }

    fn decoded(bytes: &[u8]) -> Result<ToyEdit, CopyError> {
        ToyEdit::decode(bytes).map_err(|error| CopyError::Engine {
            remedy: Remedy::Correct,
            error: Arc::new(error),
        })
    }

    /// Reads the image and the log, and makes a store of them.
    fn promoted(mut self, service: Service) -> Result<Promoted, CopyError> {
        let mut map = self.disk.read_image()?;
        map.mutants = self.disk.settings.mutants;
        let windows = self.windows_here();
        let log = self.disk.read_log(&windows, |group| map.apply(group))?;
        if log.last < self.log.last {
            return Err(damaged("the log, which was whole when the copy was opened"));
        }
        self.become_ordinary();
        let logs = &self.disk.edit.logs;
        let first = logs.last().map_or(0, |last| last.ordinal + 1);
        let epoch = service.epoch.max(self.disk.edit.epoch);
        self.disk.renew(&map, first, epoch)?;
        map.forget_removed(map.last, map.time);
        let store = Arc::new(ToyStore::new(self, map, service));
        Ok(Promoted {
            store: Arc::<ToyStore>::clone(&store),
            source: Some(store),
            cut: None,
        })
    }
}

impl Follower for ToyCopy {
    fn region(&self) -> RegionId {
        self.disk.region
    }

    fn standing(&self) -> Standing {
        self.disk.standing
    }

    fn become_ordinary(&mut self) {
        if self.disk.standing != Standing::Ordinary {
            self.disk.standing = Standing::Ordinary;
            // Where it fails, the next opening finds the copy as it was.
            let _ = self.disk.enter();
        }
    }

    fn edit(&self) -> EditSeq {
        self.disk.edit.seq
    }

    fn position(&self) -> Position {
        let last = self.last_log().or(self.disk.edit.logs.first());
        let at = last.map(|segment| LogPosition {
            ordinal: segment.ordinal,
            segment: segment.number,
            end: self.held(segment.number),
            flushed: self.durable(segment.number),
        });
        let logs: PerLog<LogPosition> = at.into_iter().map(|at| (LOG, at)).collect();
        Position {
            edit: self.disk.edit.seq,
            lsn: self.log.last,
            logs,
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
        self.slots = self.disk.settings.slots_of(fresh);
        self.look(&left)?;
        Ok(self.position())
    }

    fn step(&mut self) -> Result<Vec<CopyEvent>, CopyError> {
        while let Some(range) = self.flushes.front().copied() {
            let Some(event) = self.flush_range(&range)? else {
                break;
            };
            self.flushes.pop_front();
            self.events.push(event);
        }
        Ok(std::mem::take(&mut self.events))
    }

    fn flush(&mut self, range: FlushRange) {
        match range.log == LOG && self.flushes.len() < FLUSHES_MAX {
            true => self.flushes.push_back(range),
            false => self.events.push(CopyEvent::FlushRefused(range)),
        }
    }

    fn is_idle(&self) -> bool {
        self.events.is_empty() && self.flushes.is_empty()
    }

    fn missing(&mut self, edit: &[u8]) -> Result<Vec<SegmentPart>, CopyError> {
        self.examined = Self::decoded(edit)?;
        let is_here = |part: &&ImagePart| {
            let here = self.disk.edit.image.contains(part) || self.arrived.contains(part);
            here || self.disk.settings.mutants.apply_unfetched()
        };
        let image = self.examined.image.iter().filter(|part| !is_here(part));
        let logs = self.examined.logs.iter();
        let logs = logs.filter(|log| log.needed > self.held(log.number));
        let parts = image.map(|part| (part.number, part.len));
        let parts = parts.chain(logs.map(|log| (log.number, log.needed.next_multiple_of(BLOCK))));
        let most = len_of(self.disk.settings.part_bytes);
        let parts = parts.flat_map(|(number, len)| {
            let starts = (0..len).step_by(most as usize);
            starts.map(move |from| {
                let to = len.min(from + most);
                SegmentPart { number, from, to }
            })
        });
        Ok(parts.collect())
    }

    fn put_part(
        &mut self,
        number: SegmentNumber,
        from: u32,
        bytes: &Arc<Buffer>,
    ) -> Result<(), CopyError> {
        let refused = |what| CopyError::Refused { number, what };
        if let Some(part) = self.examined.part(number).copied() {
            if from != 0 || !part.is_of(self.disk.region, bytes) {
                let what = "the checksum of a part of the image";
                return Err(CopyError::Damaged { number, what });
            }
            let stored = self.disk.allocate(number, Purpose::Flush)?;
            stored.write(0, bytes)?;
            self.arrived.push(part);
            return Ok(());
        }
        let log = self.examined.log(number);
        log.ok_or(refused("this part was not asked for"))?;
        let to = from.saturating_add(len(bytes));
        if to > self.disk.settings.segment_bytes() {
            return Err(refused("a part behind the end"));
        }
        self.stored_log(number)?.write(from, bytes)?;
        self.ahead.push(SegmentPart { number, from, to });
        self.ahead.sort_by_key(|part| part.from);
        for part in self.ahead.iter().filter(|part| part.number == number) {
            let held = self.durable.entry(number).or_default();
            if part.from <= *held {
                *held = part.to.max(*held);
            }
        }
        Ok(())
    }

    fn submit(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        let missing = self.missing(edit)?;
        let edit = self.examined.clone();
        if let Some(part) = missing.first() {
            return Err(CopyError::Missing {
                edit: edit.seq,
                number: part.number,
                to: part.to,
            });
        }
        for number in edit.numbers() {
            // The image is here.
            self.stored_log(number)?;
        }
        let (seq, is_checkpoint) = (edit.seq, edit.checkpoint);
        self.disk.commit(edit)?;
        self.arrived.clear();
        let named = &self.disk.edit;
        self.log.last = self.log.last.max(named.last);
        self.log
            .found
            .retain(|number, _| named.log(*number).is_some());
        self.durable
            .retain(|number, _| named.log(*number).is_some());
        if is_checkpoint {
            self.look(&self.windows_here())?;
        }
        self.events.push(CopyEvent::EditApplied(seq));
        Ok(seq)
    }

    fn submit_adopted(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        let seq = self.submit(edit)?;
        // What was fetched of the block in which the log ends is written again, where another member has more of it.
        self.durable.clear();
        self.look(&self.windows_here())?;
        Ok(seq)
    }

    fn checkpoint(&self) -> Checkpoint {
        let edit = self.disk.edit.to_checkpoint(|log| self.held(log.number));
        Checkpoint {
            seq: edit.seq,
            bytes: edit.encode(),
        }
    }

    fn adopt(&self, theirs: Vec<u8>) -> Result<Vec<u8>, CopyError> {
        let edit = Self::decoded(&theirs)?;
        if edit.seq >= self.disk.edit.seq {
            return Ok(theirs);
        }
        let needed = |log: &RingSegment| {
            let needed = edit.log(log.number).map_or(0, |log| log.needed);
            needed.max(self.held(log.number))
        };
        Ok(self.disk.edit.to_checkpoint(needed).encode())
    }

    fn read(&self, part: SegmentPart) -> Result<Buffer, CopyError> {
        let SegmentPart { number, from, to } = part;
        let gone = CopyError::Gone { number, to };
        let stored = self.disk.table.get(&number).ok_or(gone.clone())?;
        let len = to.checked_sub(from).ok_or(gone.clone())?;
        if self.disk.edit.log(number).is_some() && to > self.held(number).next_multiple_of(BLOCK) {
            return Err(gone);
        }
        Ok(stored.read(from, len)?)
    }

    fn stored(&self) -> Arc<dyn Stored> {
        Arc::new(ToyStored::new(&self.disk.edit, &self.disk.table))
    }

    fn promote(self: Box<Self>, service: Service) -> Result<Promoted, Box<NotPromoted>> {
        let promoted = self.promoted(service);
        promoted.map_err(|error| Box::new(NotPromoted { error, left: None }))
    }

    fn set_aside(self: Box<Self>) -> Option<SetAside> {
        let (store, region) = (Arc::clone(&self.disk.store), self.disk.region);
        let entry = store.region(region)?;
        let segments = self.disk.into_handles();
        Some(SetAside::new(store, entry, segments))
    }
}

impl ToyCopy {
    /// Segment `number`, in a place of its own if it has none yet.
    fn stored_log(&mut self, number: SegmentNumber) -> Result<Arc<super::disk::Stored>, CopyError> {
        match self.disk.table.get(&number) {
            Some(stored) => Ok(Arc::clone(stored)),
            None => Ok(self.disk.allocate(number, Purpose::Log)?),
        }
    }
}

fn len(bytes: &[u8]) -> u32 {
    len_of(bytes.len())
}

fn len_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
