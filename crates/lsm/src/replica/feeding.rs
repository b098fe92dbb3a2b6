//! Records on their way from the logs to the memtables of a backup that builds its own levels.
//!
//! What a flush names is read from its window, where it has arrived before the flush was asked for.
//! Everything else, that edits brought, is read from the device: in a window it may still be
//! arriving.

use std::sync::Arc;

use argosy_base::LogKind;
use argosy_device::Buffer;
use argosy_log::feed::Fed;
use argosy_log::segment::WINDOW_HEADER_BYTES;

use super::build::{Builder, FedTo};
use super::{Replica, ReplicaError, block_down, block_up};
use crate::edit::LogSegment;
use crate::segments::StoredSegment;

impl Replica {
    /// What takes space here beside the version, in words for a report.
    #[must_use]
    pub fn space_in_words(&self) -> String {
        let builder = self.builder.as_deref();
        let arrivals = self.arrivals.keys().copied();
        let (named, unnamed): (Vec<_>, Vec<_>) = arrivals.partition(|n| self.named.contains(n));
        format!(
            "at edit {}, {} segments; arrived and named {named:?}, not named {unnamed:?}; logs being \
             filled {:?}; pending {}; {}",
            self.storage.current().seq(),
            self.storage.current().table().len(),
            self.fills.keys(),
            self.storage.pending().count(),
            builder.map_or_else(String::new, |builder| builder.jobs.space_in_words())
        )
    }

    /// Feeds to the memtables what is here and was not fed yet, as far as there is room.
    pub(super) fn feed(&mut self) -> Result<(), ReplicaError> {
        let Some(mut builder) = self.builder.take() else {
            return Ok(());
        };
        let fed = self.feed_with(&mut builder);
        self.builder = Some(builder);
        fed
    }

    fn feed_with(&mut self, builder: &mut Builder) -> Result<(), ReplicaError> {
        let mut waits = [false; LogKind::ALL.len()];
        for index in 0..self.flights.len() {
            let flight = &self.flights[index];
            if flight.fed {
                continue;
            }
            if builder.is_full(&self.storage) {
                return Ok(());
            }
            let (segment, range) = (flight.segment, flight.range);
            waits[range.log.index()] |= builder.feed.must_wait(range.log);
            if !waits[range.log.index()] {
                let stored = Arc::clone(&flight.stored);
                let arrived = (range.from, range.to);
                self.feed_up_to(builder, &segment, &stored, arrived)?;
                self.flights[index].fed = true;
            }
        }
        while let Some(due) = builder.due.front().copied() {
            if builder.is_full(&self.storage) {
                return Ok(());
            }
            // What is gone from the logs is in the levels.
            if let Some(entry) = self.storage.head().log_segment(due.segment).cloned() {
                self.feed_up_to(builder, &entry.segment, &entry.stored, (due.to, due.to))?;
            }
            builder.due.pop_front();
        }
        Ok(())
    }

    /// Feeds what was not fed of `segment` below `to`. From `arrived` on the window has it; what
    /// is in front of that was written to the device, and may still be arriving in the window.
    fn feed_up_to(
        &self,
        builder: &mut Builder,
        segment: &LogSegment,
        stored: &StoredSegment,
        (arrived, to): (u32, u32),
    ) -> Result<(), ReplicaError> {
        let FedTo { to: mut at, last } = builder
            .fed
            .get(&segment.number)
            .copied()
            .unwrap_or_default();
        let mut last = last;
        while at < to {
            let window_end = self.geometry.window_end(self.geometry.window_index(at));
            let limit = if at < arrived { arrived } else { to };
            let end = limit.min(to).min(window_end);
            let bytes = self.log_bytes(segment, stored, (at, end), at >= arrived)?;
            let fed = Fed {
                segment,
                from: at,
                bytes: &bytes[(at - block_down(at)) as usize..(end - block_down(at)) as usize],
            };
            let tables = &mut builder.tables;
            let highest = builder
                .feed
                .feed(fed, |replayed| tables.insert(&replayed))
                .map_err(|error| ReplicaError::CorruptLog {
                    log: segment.log,
                    segment: segment.number,
                    offset: error.offset,
                    what: error.what,
                })?;
            last = last.max(highest.unwrap_or_default());
            at = end;
        }
        builder.fed.insert(segment.number, FedTo { to: at, last });
        builder.jobs.lasts.set(segment.number, last);
        Ok(())
    }

    /// A private copy of the blocks that hold bytes `from..to` of one window, from its memory if
    /// they have `arrived` there and it still holds them.
    fn log_bytes(
        &self,
        segment: &LogSegment,
        stored: &StoredSegment,
        (from, to): (u32, u32),
        arrived: bool,
    ) -> Result<Buffer, ReplicaError> {
        let start = block_down(from);
        let mut bytes = Buffer::zeroed((block_up(to) - start) as usize);
        let memory = self.window(segment, from).filter(|_| arrived);
        if let Some(memory) = memory {
            let offset = (start % self.geometry.window_bytes()) as usize;
            memory.read(WINDOW_HEADER_BYTES + offset, &mut bytes);
        } else {
            stored.wait()?;
            stored.read(start, &mut bytes)?;
        }
        Ok(bytes)
    }
}
