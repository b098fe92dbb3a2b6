//! Making ranges of the windows durable.
//!
//! 1. A range is copied from the window that holds it and its write is begun; if the segment is
//!    not known yet, it waits for the edit that adds it.
//! 2. When the writes of some ranges have ended, one sync is begun for all of them.
//! 3. When that has ended they are told as flushed, in the order in which they were asked for, and,
//!    where this member builds its own levels, once their records are in memtables.

use std::sync::Arc;

use argosy_base::FlushRange;
use argosy_device::Buffer;
use argosy_engine::{CopyError, CopyEvent};
use argosy_log::WindowName;
use argosy_log::segment::{WINDOW_HEADER_BYTES, decode_window_header};
use argosy_memory::SharedMemory;

use super::edits::one_segment;
use super::fill::Fill;
use super::logs::Logs;
use super::{FLUSHES_MAX, ReplicaError, block_up};
use crate::edit::LogSegment;
use crate::names::logs::has_log;
use crate::segments::StoredSegment;
use crate::storage::Storage;

/// A flush whose bytes are on their way.
pub(super) struct Flight {
    pub(super) range: FlushRange,
    pub(super) segment: LogSegment,
    pub(super) stored: Arc<StoredSegment>,
    /// Its records are in memtables, where this member has any.
    pub(super) fed: bool,
    /// The last sync that was begun covers it.
    syncing: bool,
    /// It has ended.
    durable: bool,
}

impl Logs {
    /// See [`Replica::flush`](super::Replica::flush).
    pub(super) fn flush(
        &mut self,
        range: FlushRange,
        storage: &Storage,
        events: &mut Vec<CopyEvent>,
    ) {
        if !has_log(range.log) {
            events.push(CopyEvent::FlushRefused(range));
            return;
        }
        if !self.waiting.is_empty() || !self.start_flush(&range, storage, events) {
            if self.waiting.len() < FLUSHES_MAX {
                self.waiting.push_back(range);
            } else {
                events.push(CopyEvent::FlushRefused(range));
            }
        }
    }

    /// Starts the flushes that waited for an edit.
    pub(super) fn start_waiting(&mut self, storage: &Storage, events: &mut Vec<CopyEvent>) {
        while let Some(range) = self.waiting.front().copied() {
            if !self.start_flush(&range, storage, events) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Begins the writes of `range`. `false`: its segment is not known yet.
    fn start_flush(
        &mut self,
        range: &FlushRange,
        storage: &Storage,
        events: &mut Vec<CopyEvent>,
    ) -> bool {
        let head = storage.head();
        let Some(entry) = head.log_segment(range.segment).cloned() else {
            // An older segment may be gone, and with it the need to flush it.
            let newest = head.log(range.log).last();
            if newest.is_some_and(|newest| newest.segment.ordinal >= range.ordinal) {
                events.push(CopyEvent::Flushed(*range));
                return true;
            }
            return false;
        };
        match self.write_up_to(&entry.segment, range.to) {
            Ok(()) => {
                let fill = self.fills.get_mut(&range.segment);
                if let Some(fill) = fill.filter(|f| one_segment(&f.segment, &entry.segment)) {
                    fill.closed = fill.closed.max(range.to);
                }
                self.flights.push(Flight {
                    range: *range,
                    segment: entry.segment,
                    fed: !self.feeds,
                    stored: Arc::clone(&entry.stored),
                    syncing: false,
                    durable: false,
                });
            }
            Err(_) => events.push(CopyEvent::FlushRefused(*range)),
        }
        true
    }

    /// Begins to write what is in windows of `segment` below `to`, up to the end of its block, and
    /// is not on the device. Nothing for a segment that is sealed: it is complete.
    pub(super) fn write_up_to(
        &mut self,
        segment: &LogSegment,
        to: u32,
    ) -> Result<(), ReplicaError> {
        let Some(fill) = self.fills.get(&segment.number) else {
            return Ok(());
        };
        if !one_segment(&fill.segment, segment) || fill.holds(to) {
            return Ok(());
        }
        let to = block_up(to);
        let mut pieces = Vec::new();
        let mut at = fill.written;
        while at < to {
            let index = self.geometry.window_index(at);
            let end = to.min(self.geometry.window_end(index));
            pieces.push((at, self.copy_window(fill, at, end)?));
            at = end;
        }
        let fill = self.fills.get_mut(&segment.number).expect("found above");
        for (at, bytes) in pieces {
            let range = 0..bytes.len();
            let _ = fill.stored.write(at, Arc::new(bytes), range);
        }
        fill.written = fill.written.max(to);
        Ok(())
    }

    /// Whether windows hold everything of a segment from what was written up to `to`.
    pub(super) fn in_windows(&self, fill: &Fill, to: u32) -> bool {
        let first = self.geometry.window_index(fill.written);
        let last = self.geometry.window_index(to.saturating_sub(1));
        let mut starts = (first..=last).map(|index| index * self.geometry.window_bytes());
        starts.all(|start| self.window(&fill.segment, start).is_some())
    }

    /// A copy of bytes `from..to`, of one window, from its slot.
    fn copy_window(&self, fill: &Fill, from: u32, to: u32) -> Result<Buffer, ReplicaError> {
        let number = fill.segment.number;
        let Some(memory) = self.window(&fill.segment, from) else {
            let what = "the window is not in memory";
            return Err(CopyError::Refused { number, what }.into());
        };
        let window_bytes = self.geometry.window_bytes();
        let mut bytes = Buffer::zeroed((to - from) as usize);
        let at = WINDOW_HEADER_BYTES + (from % window_bytes) as usize;
        memory.read(at, &mut bytes[..(to - from) as usize]);
        Ok(bytes)
    }

    /// The memory that holds the window of `segment` in which byte `offset` lies, if one does.
    pub(super) fn window(&self, segment: &LogSegment, offset: u32) -> Option<&Arc<SharedMemory>> {
        let index = self.geometry.window_index(offset);
        let slot = self.geometry.slot(segment.ordinal, index);
        let memory = &self.windows[segment.log.index()][slot];
        let header = memory.read_vec(0, 64);
        let (name, _) = decode_window_header(&header).ok()?;
        let wanted = WindowName::new(self.region, segment, index);
        (name == wanted).then_some(memory)
    }

    /// Goes on with the flushes whose bytes are on their way.
    pub(super) fn step_flushes(
        &mut self,
        storage: &Storage,
        events: &mut Vec<CopyEvent>,
    ) -> Result<(), ReplicaError> {
        self.tell_flushed(events);
        if let Some(sync) = &self.sync {
            match sync.poll() {
                None => return Ok(()),
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(())) => self.sync_ended(events),
            }
        }
        let mut settled = false;
        for flight in self.flights.iter_mut().filter(|flight| !flight.durable) {
            match flight.stored.settled() {
                None => {}
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(())) => {
                    flight.syncing = true;
                    settled = true;
                }
            }
        }
        if settled && storage.settings().mutants.flush_unsynced() {
            self.sync_ended(events);
        } else if settled {
            self.sync = Some(storage.store().sync());
            // The device may have ended it already.
            return self.step_flushes(storage, events);
        }
        Ok(())
    }

    fn sync_ended(&mut self, events: &mut Vec<CopyEvent>) {
        self.sync = None;
        for flight in self.flights.iter_mut().filter(|flight| flight.syncing) {
            flight.durable = true;
        }
        self.tell_flushed(events);
    }

    /// Tells the flushes that are durable, in the order in which they were asked for: "flushed up
    /// to" is about everything before, too.
    fn tell_flushed(&mut self, events: &mut Vec<CopyEvent>) {
        let done = self
            .flights
            .iter()
            .take_while(|flight| flight.durable && flight.fed);
        let done = done.count();
        for flight in self.flights.drain(..done) {
            if let Some(fill) = self.fills.get_mut(&flight.range.segment) {
                fill.durable = fill.durable.max(block_up(flight.range.to));
                fill.end = fill.end.max(flight.range.to);
            }
            events.push(CopyEvent::Flushed(flight.range));
        }
    }
}
