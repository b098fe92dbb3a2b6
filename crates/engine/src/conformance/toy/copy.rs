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

use super::Toy;
use super::background::complete_chain;
use super::disk::{Disk, Log};
use super::edit::{ImagePart, RingSegment, ToyEdit};
use super::ring::{self, HEADER_BYTES, LOG, Ring};
use super::store::{Begun, ToyStore};
use super::stored::ToyStored;
use crate::set_aside::SetAside;
use crate::{
    Checkpoint, CopyError, CopyEvent, Follower, LogSlots, NotPromoted, Promoted, Service, Stored,
    Windows,
};

/// What a part that is missing belongs to.
#[derive(Clone, Copy)]
enum Expected {
    Image(ImagePart),
    Log(RingSegment),
}

/// See the module documentation.
pub(super) struct ToyCopy {
    toy: Toy,
    disk: Disk,
    slots: Vec<Arc<SharedMemory>>,
    log: Log,
    /// Bytes of log segments that are durable here, in whole blocks.
    durable: BTreeMap<SegmentNumber, u32>,
    /// What `missing` has named.
    expected: BTreeMap<SegmentNumber, Expected>,
    /// What came of it.
    arrived: BTreeMap<SegmentNumber, ImagePart>,
    flushes: VecDeque<FlushRange>,
    events: Vec<CopyEvent>,
}

impl ToyCopy {
    /// The copy on `disk`, which finds the end of its log in `left`.
    pub(super) fn new(
        toy: Toy,
        disk: Disk,
        windows: Windows,
        left: &[Option<Arc<SharedMemory>>],
    ) -> Result<Self, CopyError> {
        let mut copy = Self {
            slots: toy.slots_of(windows),
            toy,
            disk,
            log: Log::default(),
            durable: BTreeMap::new(),
            expected: BTreeMap::new(),
            arrived: BTreeMap::new(),
            flushes: VecDeque::new(),
            events: Vec::new(),
        };
        copy.look(left)?;
        Ok(copy)
    }

    /// Finds where the history ends in `left` and on the device, makes it durable, and puts it into the windows.
    fn look(&mut self, left: &[Option<Arc<SharedMemory>>]) -> Result<(), CopyError> {
        // Somebody may still write to them: one copy decides.
        let private = |memory: &Arc<SharedMemory>| {
            let copy = SharedMemory::anonymous(memory.len());
            copy.write(0, &memory.peek(0, memory.len()));
            Arc::new(copy)
        };
        let left: Vec<_> = left.iter().map(|left| left.as_ref().map(private)).collect();
        self.log = self.disk.read_log(&left, |_| ())?;
        let last = self.log.ends.iter().rposition(|end| end.end > 0);
        let before = std::mem::take(&mut self.durable);
        for (index, segment) in self.disk.edit.logs.iter().enumerate() {
            let end = &self.log.ends[index];
            if end.end == 0 {
                continue;
            }
            let mut bytes = end.bytes.clone();
            bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
            self.disk.table[&segment.number].write(0, &bytes)?;
            // Padding that was flushed or fetched is no part of the history, and durable all the same.
            let known = before.get(&segment.number).copied().unwrap_or(0);
            let durable = match Some(index) == last {
                true => (end.end.max(segment.needed) / BLOCK * BLOCK).max(known),
                false => self.disk.window_bytes,
            };
            self.durable.insert(segment.number, durable);
            let slot = ring::slot_of(segment.ordinal, self.slots.len()).expect("there are slots");
            self.slots[slot].write(0, &ring::header(self.disk.region, segment));
            self.slots[slot].write(HEADER_BYTES, &bytes);
        }
        self.disk.sync()?;
        Ok(())
    }

    fn survivors(&self) -> Vec<Option<Arc<SharedMemory>>> {
        self.slots.iter().cloned().map(Some).collect()
    }

    /// How far the history was found to reach in segment `number`, or it is durable.
    fn held(&self, number: SegmentNumber) -> u32 {
        let durable = self.durable.get(&number).copied().unwrap_or(0);
        let logs = self.disk.edit.logs.iter().zip(&self.log.ends);
        let mut of_number = logs.filter(|(log, _)| log.number == number);
        of_number.next().map_or(0, |(_, end)| end.end).max(durable)
    }

    /// Makes the windows' bytes of `range` durable, and what is in front of it. `None`: the segment is not known yet.
    fn flush_range(&mut self, range: &FlushRange) -> Result<Option<CopyEvent>, CopyError> {
        let Some(segment) = self.disk.edit.log(range.segment).copied() else {
            let newest = self.disk.edit.logs.last();
            // An image has what was in an older one.
            let is_old = newest.is_some_and(|newest| newest.ordinal >= range.ordinal);
            return Ok(is_old.then_some(CopyEvent::Flushed(*range)));
        };
        let durable = self.durable.get(&segment.number).copied().unwrap_or(0);
        if durable < range.to {
            let (region, window_bytes) = (self.disk.region, self.disk.window_bytes);
            let window = ring::found(&self.survivors(), region, &segment, window_bytes);
            let bytes = window
                .as_ref()
                .and_then(|window| window.get(durable as usize..range.to as usize));
            let Some(bytes) = bytes else {
                return Ok(Some(CopyEvent::FlushRefused(*range)));
            };
            if !self.toy.mutants.flush_nothing() {
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

    fn has_image_part(&self, part: &ImagePart) -> bool {
        self.disk.edit.image.contains(part) || self.arrived.get(&part.number) == Some(part)
    }

    /// Reads the image and the log, and makes a store of them.
    fn promoted(mut self, service: Service) -> Result<Promoted, CopyError> {
        let mut map = self.disk.read_image()?;
        map.mutants = self.toy.mutants;
        let log = self
            .disk
            .read_log(&self.survivors(), |group| map.apply(group))?;
        if log.last < self.log.last {
            return Err(CopyError::Damaged {
                number: SegmentNumber(0),
                what: "the log, which was whole when the copy was opened",
            });
        }
        self.become_ordinary();
        let before = &self.disk.edit;
        let mut edit = ToyEdit {
            seq: before.seq.next(),
            epoch: service.epoch.max(before.epoch),
            checkpoint: false,
            last: map.last,
            time: map.time,
            next_number: before.next_number,
            ..ToyEdit::default()
        };
        let first = before.logs.last().map_or(0, |last| last.ordinal + 1);
        let image =
            self.disk
                .write_image(&map, edit.epoch, self.toy.part_bytes, &mut edit.next_number)?;
        (edit.image_bytes, edit.image) = (image.bytes, image.parts);
        complete_chain(&mut self.disk, &mut edit, first, self.toy.windows)?;
        self.disk.commit(edit)?;
        let ring = Ring::new(
            self.disk.region,
            self.toy.window_bytes,
            self.slots,
            map.last,
        );
        map.forget_removed(map.last, map.time);
        let begun = Begun {
            toy: self.toy,
            disk: self.disk,
            map,
            ring,
        };
        let store = Arc::new(ToyStore::new(begun, service));
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
        let edit = &self.disk.edit;
        let last = self.log.ends.iter().rposition(|end| end.end > 0);
        let at = edit.logs.get(last.unwrap_or(0)).map(|segment| LogPosition {
            ordinal: segment.ordinal,
            segment: segment.number,
            end: self.held(segment.number),
            flushed: self.durable.get(&segment.number).copied().unwrap_or(0),
        });
        let logs: PerLog<LogPosition> = at.into_iter().map(|at| (LOG, at)).collect();
        Position {
            edit: edit.seq,
            lsn: self.log.last,
            logs,
        }
    }

    fn windows(&self) -> Windows {
        vec![LogSlots {
            log: LOG,
            slots: self.slots.clone(),
        }]
    }

    fn detach(&mut self, fresh: Windows) -> Result<Position, CopyError> {
        self.events.clear();
        self.flushes.clear();
        let left = self.survivors();
        self.slots = self.toy.slots_of(fresh);
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
        let edit = Self::decoded(edit)?;
        let image = edit.image.into_iter();
        let image = image.filter(|part| !self.has_image_part(part));
        let image = image.filter(|_| !self.toy.mutants.apply_unfetched());
        let image = image.map(|part| (part.number, part.len, Expected::Image(part)));
        let logs = edit.logs.into_iter();
        let logs = logs.filter(|log| log.needed > self.held(log.number));
        let logs = logs.map(|log| {
            let to = log.needed.next_multiple_of(BLOCK);
            (log.number, to, Expected::Log(log))
        });
        let mut parts = Vec::new();
        let mut expected = BTreeMap::new();
        for (number, to, what) in image.chain(logs) {
            expected.insert(number, what);
            let from = 0;
            parts.push(SegmentPart { number, from, to });
        }
        self.expected = expected;
        Ok(parts)
    }

    fn put_part(
        &mut self,
        number: SegmentNumber,
        from: u32,
        bytes: &Arc<Buffer>,
    ) -> Result<(), CopyError> {
        let refused = |what| CopyError::Refused { number, what };
        let expected = self.expected.get(&number).copied();
        match expected.ok_or(refused("this part was not asked for"))? {
            Expected::Image(part) => {
                if from != 0 || !part.is_of(self.disk.region, bytes) {
                    let what = "the checksum of a part of the image";
                    return Err(CopyError::Damaged { number, what });
                }
                self.disk
                    .allocate(number, Purpose::Flush)?
                    .write(0, bytes)?;
                self.arrived.insert(number, part);
            }
            Expected::Log(segment) => {
                let to = from.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                let held = self.durable.get(&number).copied().unwrap_or(0);
                if from > held || to > self.disk.window_bytes {
                    return Err(refused("not the part that comes next"));
                }
                let stored = match self.disk.table.get(&segment.number) {
                    Some(stored) => Arc::clone(stored),
                    None => self.disk.allocate(number, Purpose::Log)?,
                };
                stored.write(from, bytes)?;
                self.durable.insert(number, held.max(to));
            }
        }
        Ok(())
    }

    fn submit(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        let missing = self.missing(edit)?;
        let edit = Self::decoded(edit)?;
        if let Some(part) = missing.first() {
            return Err(CopyError::Missing {
                edit: edit.seq,
                number: part.number,
                to: part.to,
            });
        }
        for number in edit.numbers() {
            // The image is here.
            if !self.disk.table.contains_key(&number) {
                self.disk.allocate(number, Purpose::Log)?;
            }
        }
        let (seq, is_checkpoint) = (edit.seq, edit.checkpoint);
        let logs = std::mem::take(&mut self.log.ends);
        let before = self.disk.edit.logs.clone();
        self.disk.commit(edit)?;
        self.arrived.clear();
        // What was found of the segments that stay.
        let mut found: BTreeMap<_, _> = before.iter().map(|log| log.number).zip(logs).collect();
        let logs = self.disk.edit.logs.iter();
        self.log.ends = logs
            .map(|log| found.remove(&log.number).unwrap_or_default())
            .collect();
        self.log.last = self.log.last.max(self.disk.edit.last);
        let named = &self.disk.edit;
        self.durable
            .retain(|number, _| named.log(*number).is_some());
        if is_checkpoint {
            self.look(&self.survivors())?;
        }
        self.events.push(CopyEvent::EditApplied(seq));
        Ok(seq)
    }

    fn submit_adopted(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        self.submit(edit)
    }

    fn checkpoint(&self) -> Checkpoint {
        let mut edit = ToyEdit {
            checkpoint: true,
            ..self.disk.edit.clone()
        };
        for log in &mut edit.logs {
            log.needed = self.held(log.number);
        }
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
        let mut own = ToyEdit {
            checkpoint: true,
            ..self.disk.edit.clone()
        };
        for log in &mut own.logs {
            let needed = edit.log(log.number).map_or(0, |log| log.needed);
            log.needed = needed.max(self.held(log.number));
        }
        Ok(own.encode())
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
        let (edit, table) = (self.disk.edit.clone(), self.disk.table.clone());
        Arc::new(ToyStored::new(self.disk.region, edit, table))
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

/// Most flushes that wait for the edit that adds their segment.
const FLUSHES_MAX: usize = 64;

#[expect(clippy::cast_possible_truncation, reason = "4096 fits")]
const BLOCK: u32 = BLOCK_SIZE as u32;
