//! Records on their way from the logs to the memtables of a backup that builds its own levels.
//!
//! What a flush names is read from its window, where it has arrived before the flush was asked for.
//! Everything else, that edits brought, is read from the device: in a window it may still be
//! arriving.

use std::ops::Range;
use std::sync::Arc;

use argosy_device::Buffer;
use argosy_log::feed::Fed;
use argosy_log::segment::WINDOW_HEADER_BYTES;

use super::build::{Builder, FedTo};
use super::logs::Logs;
use super::{ReplicaError, block_down, block_up};
use crate::edit::LogSegment;
use crate::names::logs::LOGS;
use crate::segments::StoredSegment;
use crate::storage::Storage;

impl Builder {
    /// Feeds to the memtables what is here and was not fed yet, as far as there is room.
    pub(super) fn feed_from(
        &mut self,
        storage: &Storage,
        logs: &mut Logs,
    ) -> Result<(), ReplicaError> {
        let mut waits = [false; LOGS.len()];
        for index in 0..logs.flights.len() {
            let flight = &logs.flights[index];
            if flight.fed {
                continue;
            }
            if self.is_full(storage) {
                return Ok(());
            }
            let (segment, range) = (flight.segment, flight.range);
            waits[range.log.index()] |= self.feed.must_wait(range.log);
            if !waits[range.log.index()] {
                let stored = Arc::clone(&flight.stored);
                let of = Feeding {
                    segment: &segment,
                    stored: &stored,
                };
                self.feed_up_to(logs, of, range.from, range.to)?;
                logs.flights[index].fed = true;
            }
        }
        while let Some(due) = self.due.front().copied() {
            if self.is_full(storage) {
                return Ok(());
            }
            // What is gone from the logs is in the levels.
            if let Some(entry) = storage.head().log_segment(due.segment).cloned() {
                let of = Feeding {
                    segment: &entry.segment,
                    stored: &entry.stored,
                };
                self.feed_up_to(logs, of, due.to, due.to)?;
            }
            self.due.pop_front();
        }
        Ok(())
    }

    /// Feeds what was not fed of a segment below `to`. From `arrived` on the window has it; what
    /// is in front of that was written to the device, and may still be arriving in the window.
    fn feed_up_to(
        &mut self,
        logs: &Logs,
        of: Feeding<'_>,
        arrived: u32,
        to: u32,
    ) -> Result<(), ReplicaError> {
        let segment = of.segment;
        let FedTo { to: mut at, last } = self.fed.get(&segment.number).copied().unwrap_or_default();
        let mut last = last;
        while at < to {
            let window_end = logs.geometry.window_end(logs.geometry.window_index(at));
            let limit = if at < arrived { arrived } else { to };
            let end = limit.min(to).min(window_end);
            let bytes = log_bytes(logs, of, at..end, at >= arrived)?;
            let fed = Fed {
                segment,
                from: at,
                bytes: &bytes[(at - block_down(at)) as usize..(end - block_down(at)) as usize],
            };
            let tables = &mut self.tables;
            let highest = self
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
        self.fed.insert(segment.number, FedTo { to: at, last });
        self.jobs.lasts.set(segment.number, last);
        Ok(())
    }
}

/// A log segment that is fed, and where it is stored.
#[derive(Clone, Copy)]
struct Feeding<'a> {
    segment: &'a LogSegment,
    stored: &'a StoredSegment,
}

/// A private copy of the blocks that hold bytes `range` of one window, from its memory if
/// they have `arrived` there and it still holds them.
fn log_bytes(
    logs: &Logs,
    of: Feeding<'_>,
    range: Range<u32>,
    arrived: bool,
) -> Result<Buffer, ReplicaError> {
    let start = block_down(range.start);
    let mut bytes = Buffer::zeroed((block_up(range.end) - start) as usize);
    let memory = logs.window(of.segment, range.start).filter(|_| arrived);
    if let Some(memory) = memory {
        let offset = (start % logs.geometry.window_bytes()) as usize;
        memory.read(WINDOW_HEADER_BYTES + offset, &mut bytes);
    } else {
        of.stored.wait()?;
        of.stored.read(start, &mut bytes)?;
    }
    Ok(bytes)
}
