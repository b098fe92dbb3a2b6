//! The writing end of one log on the primary.
//!
//! Positions are counted through the whole chain: byte `offset` of the segment with `ordinal` is
//! byte `ordinal * S + offset` of the log, so that windows, too, follow each other at whole
//! multiples of `W`. What lies behind the end of a segment that was sealed early is skipped.
//!
//! ```text
//!            done           taken            range_from    at        entered        free_end
//! -----------+--------------+----------------+-------------+---------+--------------+----
//!  flushed    handed out to  closed ranges,   open range:   rest of   windows that   no
//!  everywhere be flushed     not taken yet    records       window    are free       room
//! ```
//!
//! 1. A record goes to `at`. If it does not fit before `entered`, the end of the window, a closing mark goes there,
//!    the rest of the window is zeroed, the open range is closed there, and the next window is entered. A rest
//!    that is too short for the mark is less than a block. So whole blocks of zeros without a closing mark in front
//!    of them are not padding: a device has lost what was written there.
//! 2. Entering a window takes its slot over, which is allowed once the window that had it is
//!    *done* (`free_end`): until then the window keeps bytes that would be lost if a sync failed. In
//!    the first window of a segment the segment's header comes first. The next segment must have been
//!    provided by then.
//! 3. The first record of a range follows a mark with the durable LSN, if there is one.
//! 4. [`take_flush`](LogWriter::take_flush) hands out closed ranges in order; with `force` it closes
//!    the open one at the next block. A range never crosses the end of a window.
//! 5. A range is done when this device and every member have made it durable.
//! 6. Where a log goes idle, and where it is asked for, a mark is appended by itself
//!    ([`append_mark`](LogWriter::append_mark)): without it nothing on the device would say that the last
//!    flush happened, and a damaged record of that flush would look like a torn end.
//!
//! 7. A log that is settled may *rest* ([`rest`](LogWriter::rest)): its windows give their memory back. Before the
//!    next record it has to be woken ([`wake`](LogWriter::wake)), and continues where it was, in a window that holds
//!    nothing in front of that.
//!
//! Invariants: `done <= range_from <= at <= entered <= free_end`; bytes below `range_from` never
//! change (what a flush wrote is not written again); a record lies in one window.

mod marks;
mod ranges;
mod rest;

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{FlushRange, Kind, Lsn, Pointer, SegmentNumber};
use argosy_engine::LogEnd;

use self::ranges::Ranges;
use super::probe::{Bounds, Cursor, Probe};
use super::record::{Record, RecordKind};
use super::segment::{BLOCK_BYTES, Writer, encode_segment_header, identity};
use super::windows::LogWindows;
use crate::Mutants;
use crate::chain::{LogPoint, LogSegment};

/// Why records cannot be appended. Nothing of them was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// A window has to be flushed everywhere first, or a segment to be provided. Try again.
    #[error("the log windows are full")]
    Full,
    /// All windows together are too small for the group: it will never fit.
    #[error("the group is too large for the log windows")]
    TooLarge,
}

/// See the module documentation.
pub struct LogWriter {
    windows: Arc<LogWindows>,
    writer: Writer,
    /// What is provided and not full yet. The front is being written, or is the next to be.
    segments: VecDeque<LogSegment>,
    cursor: Cursor,
    /// The segment that was entered last.
    current: Option<LogSegment>,
    written: WrittenLog,
    ranges: Ranges,
    /// The first LSN of the group that is being appended.
    group_first: Option<Lsn>,
    /// Segments that have ended and were not asked for yet.
    sealed: VecDeque<LogPoint>,
    durable: Lsn,
    scratch: Vec<u8>,
    mutants: Mutants,
}

/// What was written of a log.
#[derive(Default)]
struct WrittenLog {
    /// Behind the last record, without marks and padding behind it.
    record_end: u64,
    /// Behind the last byte, padding included.
    end: u64,
    /// How much, with headers and padding.
    bytes: u64,
    /// The last record's LSN; 0 before the first.
    last_lsn: Lsn,
    /// What the last mark says; 0 before the first.
    last_mark: Lsn,
}

impl LogWriter {
    /// A writer without a segment: provide one before the first append.
    #[must_use]
    pub fn new(windows: Arc<LogWindows>, writer: Writer) -> Self {
        Self {
            windows,
            writer,
            segments: VecDeque::new(),
            cursor: Cursor {
                at: 0,
                entered: 0,
                fresh: true,
            },
            current: None,
            written: WrittenLog::default(),
            ranges: Ranges::default(),
            group_first: None,
            sealed: VecDeque::new(),
            durable: Lsn(0),
            scratch: Vec::new(),
            mutants: Mutants::default(),
        }
    }

    /// Plants mistakes, from now on.
    #[must_use]
    pub fn with_mutants(mut self, mutants: Mutants) -> Self {
        self.mutants = mutants;
        self
    }

    /// The windows, for readers and for flushes.
    #[must_use]
    pub const fn windows(&self) -> &Arc<LogWindows> {
        &self.windows
    }

    /// Bytes that can be written before a window has to be flushed or a segment provided. Headers,
    /// marks and padding take their part; whether a group fits, [`LogGroup`](super::LogGroup) finds out.
    #[must_use]
    pub fn room(&self) -> usize {
        let bounds = self.bounds();
        let end = bounds.free_end.min(bounds.provided_end);
        usize::try_from(end.saturating_sub(self.cursor.at)).unwrap_or(usize::MAX)
    }

    /// Whether the next segment of the chain should be provided: the ones there are end before the
    /// windows do, or `ahead` bytes from here.
    #[must_use]
    pub fn wants_segment(&self, ahead: u64) -> bool {
        let slots = self.windows.geometry().slots() as u64;
        let windows = slots * u64::from(self.windows.geometry().window_bytes());
        self.bounds().provided_end < self.cursor.at + windows.max(ahead)
    }

    /// Whether there is less than a window left to write to, in all segments that are provided.
    #[must_use]
    pub fn is_at_its_end(&self) -> bool {
        let window = u64::from(self.windows.geometry().window_bytes());
        self.bounds().provided_end < self.cursor.at + window
    }

    /// The byte of the log at which the next record goes, or behind which: it rises with every append.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.cursor.at
    }

    /// Bytes written since this writer was made: records, headers and padding.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.written.bytes
    }

    /// Whether a segment is provided that has room left.
    #[must_use]
    pub fn has_segment(&self) -> bool {
        self.cursor.at < self.bounds().provided_end
    }

    /// Adds the next segment of the chain. The edit that adds it must be durable, or recovery would
    /// not find what is written to it.
    ///
    /// # Panics
    /// When it is another log's, or does not follow the last one.
    pub fn provide_segment(&mut self, segment: LogSegment) {
        assert_eq!(segment.log, self.windows.log(), "each log has its chain");
        let start = segment.ordinal * self.segment_bytes();
        if self.current.is_none() && self.segments.is_empty() {
            self.cursor.at = start;
            self.cursor.entered = start;
            self.written.record_end = start;
            self.ranges.begin(start);
        }
        assert_eq!(start, self.bounds().provided_end, "a chain has no gap");
        self.segments.push_back(segment);
    }

    /// Appends one record, alone or as part of a group for which there is room.
    ///
    /// # Errors
    /// When there is no room; nothing was written then.
    ///
    /// # Panics
    /// When the record is longer than an empty window: a caller cuts values into chunks.
    pub fn append(&mut self, record: &Record<'_>) -> Result<Pointer, NoRoom> {
        let mut probe = self.probe();
        let mut room = probe.room().ok_or(NoRoom::Full)?;
        if record.encoded_len(room.base) > room.bytes && !probe.at_window_start() {
            probe.skip();
            room = probe.room().ok_or(NoRoom::Full)?;
        }
        assert!(
            record.encoded_len(room.base) <= room.bytes,
            "a record fits an empty window"
        );
        if !self.at_window_start() && probe.at_window_start() {
            self.skip();
        }
        Ok(self.put(record))
    }

    /// Everything up to `lsn` is durable on every member: the marks to come say so.
    pub fn set_durable(&mut self, lsn: Lsn) {
        assert!(self.durable <= lsn, "what is durable stays so");
        self.durable = lsn;
    }

    /// The next range that has to be made durable: full windows first, then, with `force`, what is
    /// filled of the present one, padded to a whole block.
    pub fn take_flush(&mut self, force: bool) -> Option<FlushRange> {
        if force && self.ranges.are_all_taken() {
            self.close_range_at_block();
        }
        self.ranges.take()
    }

    /// This device has made everything below byte `to` of `segment` durable. A segment that this
    /// writer has no open range of is ignored.
    pub fn flushed_locally(&mut self, segment: SegmentNumber, to: u32) {
        self.ranges.flush_locally(segment, to);
    }

    /// Every other member has, too.
    pub fn flushed_everywhere(&mut self, segment: SegmentNumber, to: u32) {
        self.ranges.flush_everywhere(segment, to);
    }

    /// The first LSN that was appended and is not durable on every member; or, where that is inside
    /// a group, the first LSN of the group.
    #[must_use]
    pub fn first_unflushed(&self) -> Option<Lsn> {
        self.ranges.first_unflushed()
    }

    /// Ends the segment that is being written behind its last record. What remains of it to be
    /// flushed is there to be taken, and so is its end ([`take_sealed`](Self::take_sealed)). Does
    /// nothing where no segment has been begun since the last one ended.
    pub fn seal(&mut self) {
        let Some(current) = self.current.filter(|current| self.is_open(current)) else {
            return;
        };
        self.close_range_at_block();
        self.end_segment(&current);
    }

    /// The next segment that has ended, by being full or by [`seal`](Self::seal), in order.
    pub fn take_sealed(&mut self) -> Option<LogPoint> {
        self.sealed.pop_front()
    }

    /// How far the log is written, padding included. `None` before the first append.
    #[must_use]
    pub fn end(&self) -> Option<LogEnd> {
        let current = self.current?;
        Some(LogEnd {
            log: current.log,
            ordinal: current.ordinal,
            segment: current.number,
            end: self.offset_in(&current, self.written.end),
        })
    }

    /// Up to which byte `segment` of this log is durable on this device; whole blocks.
    #[must_use]
    pub fn flushed_here(&self, segment: &LogSegment) -> u32 {
        let size = self.windows.geometry().segment_bytes();
        let start = segment.ordinal * u64::from(size);
        let into = self.ranges.flushed_locally().saturating_sub(start);
        u32::try_from(into).map_or(size, |into| into.min(size))
    }

    /// Whether what the other members have durable is durable on this device, too.
    #[must_use]
    pub const fn keeps_up(&self) -> bool {
        self.ranges.keep_up()
    }

    /// A copy of the cursor, to find out what fits.
    pub(super) fn probe(&self) -> Probe<'_> {
        Probe {
            geometry: self.windows.geometry(),
            durable: self.durable,
            segments: &self.segments,
            cursor: self.cursor,
            bounds: self.bounds(),
        }
    }

    /// The same, once everything that was appended is flushed and segments are plenty; with marks that
    /// are as long as they can become.
    pub(super) fn probe_when_flushed(&self) -> Probe<'_> {
        let window = u64::from(self.windows.geometry().window_bytes());
        let mut cursor = self.cursor;
        if cursor.at != self.ranges.open_from() {
            cursor.at = cursor.at.next_multiple_of(u64::from(BLOCK_BYTES));
            cursor.fresh = true;
        }
        let bounds = Bounds {
            free_end: cursor.at / window * window + self.windows_bytes(),
            provided_end: u64::MAX,
        };
        Probe {
            durable: Lsn(u64::MAX),
            cursor,
            bounds,
            ..self.probe()
        }
    }

    /// The records to come are of the group that begins with `first`, or each of its own. What is
    /// durable is counted in whole groups, because a group that is cut is gone as a whole.
    pub(super) const fn set_group(&mut self, first: Option<Lsn>) {
        self.group_first = first;
    }

    /// Leaves the window: says so, pads it, and closes its range.
    pub(super) fn skip(&mut self) {
        let current = self.current.expect("a window has been entered");
        assert!(!self.at_window_start(), "an empty window is never left");
        let end = self.cursor.entered;
        let mark = Record::closing_mark(self.durable);
        if self.cursor.at + mark.encoded_len(current.base_lsn) as u64 <= end {
            self.write_record(&current, &mark);
        }
        self.pad_to(&current, end);
        self.close_range(&current, end);
    }

    /// Writes a record that fits the window, or the next one where this one is full.
    pub(super) fn put(&mut self, record: &Record<'_>) -> Pointer {
        if self.at_window_start() {
            self.enter();
        }
        let current = self.current.expect("a window has been entered");
        if self.cursor.fresh && self.durable > Lsn(0) {
            self.write_record(&current, &Record::mark(self.durable));
        }
        self.ranges.hold(self.group_first.unwrap_or(record.lsn));
        self.write_record(&current, record)
    }

    /// Whether the next record enters a window.
    #[inline]
    pub(super) const fn at_window_start(&self) -> bool {
        self.cursor.at == self.cursor.entered
    }

    /// Takes over the slot of the window at the cursor, and begins a segment where one begins.
    fn enter(&mut self) {
        let starts_segment = self.cursor.at.is_multiple_of(self.segment_bytes());
        if starts_segment && let Some(full) = self.current.filter(|full| self.is_open(full)) {
            self.close_range(&full, self.cursor.at);
            self.end_segment(&full);
        }
        if let Some(current) = self.current.filter(|_| !starts_segment) {
            self.close_range(&current, self.cursor.at);
        }
        assert!(
            self.probe().room().is_some(),
            "there was room for what is written"
        );
        let segment = *self.segments.front().expect("it was provided");
        let from = self.offset_in(&segment, self.cursor.at);
        self.windows.enter(&segment, from, self.writer);
        self.current = Some(segment);
        self.cursor.entered += u64::from(self.windows.geometry().window_bytes());
        self.cursor.fresh = true;
        if starts_segment {
            let header = encode_segment_header(self.windows.region(), &segment);
            self.windows.write(&segment, 0, &header);
            self.cursor.at += header.len() as u64;
            self.written.bytes += header.len() as u64;
            self.written.record_end = self.cursor.at;
        }
    }

    fn write_record(&mut self, segment: &LogSegment, record: &Record<'_>) -> Pointer {
        let offset = self.offset_in(segment, self.cursor.at);
        let here = identity(Kind::LogRecord, self.windows.region(), segment, offset);
        self.scratch.clear();
        record.encode(here, segment.base_lsn, &mut self.scratch);
        self.windows.write(segment, offset, &self.scratch);
        self.cursor.at += self.scratch.len() as u64;
        self.written.bytes += self.scratch.len() as u64;
        assert!(self.cursor.at <= self.cursor.entered, "the record fits");
        self.cursor.fresh = false;
        match record.kind {
            RecordKind::Mark => {
                self.written.last_mark = record.lsn;
                self.ranges.hold_mark(record.lsn);
            }
            // Recovery looks for marks where blocks begin: it may not find this one.
            RecordKind::ClosingMark => {}
            // A segment ends behind its last record: a mark behind that is for as long as it goes on.
            _ => {
                self.written.last_lsn = record.lsn;
                self.written.record_end = self.cursor.at;
            }
        }
        self.written.end = self.cursor.at;
        Pointer::new(segment.number, offset)
    }

    /// Fills up to `end` with zeros; the cursor's window has it.
    fn pad_to(&mut self, segment: &LogSegment, end: u64) {
        // A window that is full to the last byte has nothing to pad, and its end is the next one's.
        if self.cursor.at < end {
            let from = self.offset_in(segment, self.cursor.at);
            self.windows
                .pad(segment, from..self.offset_in(segment, end));
        }
        self.written.bytes += end - self.cursor.at;
        self.cursor.at = end;
        self.written.end = end;
    }

    fn close_range_at_block(&mut self) {
        if self.cursor.at == self.ranges.open_from() {
            return;
        }
        let current = self.current.expect("something was written");
        let end = self.cursor.at.next_multiple_of(u64::from(BLOCK_BYTES));
        self.pad_to(&current, end);
        self.close_range(&current, end);
    }

    /// Closes the open range at `end`, unless it is empty.
    fn close_range(&mut self, segment: &LogSegment, end: u64) {
        if end == self.ranges.open_from() {
            return;
        }
        let range = FlushRange {
            log: segment.log,
            ordinal: segment.ordinal,
            segment: segment.number,
            from: self.offset_in(segment, self.ranges.open_from()),
            to: self.offset_in(segment, end),
        };
        self.ranges.close(range, end);
        self.cursor.fresh = true;
    }

    /// The segment being written ends here; the log goes on with the next one.
    fn end_segment(&mut self, segment: &LogSegment) {
        let next = (segment.ordinal + 1) * self.segment_bytes();
        assert_eq!(
            self.ranges.open_from(),
            self.cursor.at,
            "its last range is closed"
        );
        self.segments.pop_front();
        self.sealed.push_back(LogPoint {
            log: segment.log,
            number: segment.number,
            to: self.offset_in(segment, self.written.record_end),
        });
        self.ranges.go_on_at(next);
        self.cursor = Cursor {
            at: next,
            entered: next,
            fresh: true,
        };
    }

    /// Whether `segment` is begun and has not ended.
    fn is_open(&self, segment: &LogSegment) -> bool {
        self.segments.front() == Some(segment)
    }

    fn bounds(&self) -> Bounds {
        let window = u64::from(self.windows.geometry().window_bytes());
        let done = match self.mutants.reuse_early() {
            true => self.ranges.flushed_locally(),
            false => self.ranges.done(),
        };
        let last = self.segments.back().map(|last| last.ordinal + 1);
        Bounds {
            free_end: done / window * window + self.windows_bytes(),
            provided_end: last.map_or(self.cursor.at, |next| next * self.segment_bytes()),
        }
    }

    /// Bytes of all windows.
    fn windows_bytes(&self) -> u64 {
        let geometry = self.windows.geometry();
        geometry.slots() as u64 * u64::from(geometry.window_bytes())
    }

    fn segment_bytes(&self) -> u64 {
        u64::from(self.windows.geometry().segment_bytes())
    }

    /// The place of byte `at` of the log in `segment`; its end belongs to it, too.
    #[inline]
    fn offset_in(&self, segment: &LogSegment, at: u64) -> u32 {
        let offset = at - segment.ordinal * self.segment_bytes();
        assert!(offset <= self.segment_bytes(), "a byte of the segment");
        u32::try_from(offset).expect("a segment is far smaller")
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
