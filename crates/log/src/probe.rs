//! Where a log's next records go: the same reckoning for the writer, and for whoever asks beforehand
//! whether they fit.
//!
//! 1. A record goes to the cursor if the rest of the window has room for it.
//! 2. At the end of a window the next one is entered: its slot has to be free and its segment to be
//!    provided. In front of its first record come the segment's header, where a segment begins, and
//!    a mark, where something is known to be durable.
//! 3. Behind a flush range that was closed inside of a window comes a mark, too.

use std::collections::VecDeque;

use argosy_base::Lsn;

use super::record::Record;
use super::segment::{Geometry, SEGMENT_HEADER_BYTES};
use crate::chain::LogSegment;

/// Where the next record of a log goes, in bytes counted through the whole chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) at: u64,
    /// The end of the window that was entered last. When `at` reaches it, the next one is entered.
    pub(super) entered: u64,
    /// Nothing was written to the open range yet.
    pub(super) fresh: bool,
}

/// How far a cursor may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The end of the last window whose slot is free.
    pub(super) free_end: u64,
    /// The end of the last segment that is provided.
    pub(super) provided_end: u64,
}

/// What fits at a cursor without leaving its window, or in the window that is entered there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes for records.
    pub(super) bytes: usize,
    /// The LSN from which the segment counts.
    pub(super) base: Lsn,
    /// Where the first byte goes.
    start: u64,
    /// The end of the window.
    end: u64,
}

impl Cursor {
    /// Goes to the end of the window.
    fn skip(&mut self) {
        assert!(self.at < self.entered, "an empty window is never left");
        self.at = self.entered;
        self.fresh = true;
    }
}

/// Goes where the writer would go, without writing.
#[derive(Clone)]
pub(super) struct Probe<'a> {
    pub(super) geometry: Geometry,
    /// What marks say, if that is not 0.
    pub(super) durable: Lsn,
    /// The segments that are provided, the cursor's first.
    pub(super) segments: &'a VecDeque<LogSegment>,
    pub(super) cursor: Cursor,
    pub(super) bounds: Bounds,
}

impl Probe<'_> {
    /// What fits before the end of the window, or of the next one at its end. `None`: nothing, for
    /// want of a window or a segment.
    pub(super) fn room(&self) -> Option<Room> {
        let cursor = &self.cursor;
        let enters = cursor.at == cursor.entered;
        let window = if enters {
            u64::from(self.geometry.window_bytes())
        } else {
            0
        };
        let end = cursor.entered + window;
        if end > self.bounds.free_end || end > self.bounds.provided_end {
            return None;
        }
        let mut start = cursor.at;
        if enters && start.is_multiple_of(u64::from(self.geometry.segment_bytes())) {
            start += u64::from(SEGMENT_HEADER_BYTES);
        }
        if (enters || cursor.fresh) && self.durable > Lsn(0) {
            start += Record::mark(self.durable).encoded_len(Lsn(0)) as u64;
        }
        Some(Room {
            bytes: usize::try_from(end.saturating_sub(start)).expect("less than a window"),
            base: self.base_at(cursor.at),
            start,
            end,
        })
    }

    /// Whether the next record enters a window.
    pub(super) const fn at_window_start(&self) -> bool {
        self.cursor.at == self.cursor.entered
    }

    /// Leaves the window.
    pub(super) fn skip(&mut self) {
        self.cursor.skip();
    }

    /// Behind a record of `len` bytes that fits `room`.
    pub(super) fn put(&mut self, room: &Room, len: usize) {
        assert!(len <= room.bytes, "the record fits");
        self.cursor = Cursor {
            at: room.start + len as u64,
            entered: room.end,
            fresh: false,
        };
    }

    /// The LSN from which the segment counts that has byte `at` of the log. Of a segment that is not
    /// provided yet, the last known: records there take no more than they would in that one.
    fn base_at(&self, at: u64) -> Lsn {
        let ordinal = at / u64::from(self.geometry.segment_bytes());
        let known = self.segments.iter().take_while(|s| s.ordinal <= ordinal);
        known.last().map_or(Lsn(0), |segment| segment.base_lsn)
    }
}
