//! How far this member has the bytes of a log segment.

use std::sync::Arc;

use super::block_up;
use crate::edit::LogSegment;
use crate::segments::StoredSegment;
use argosy_log::Geometry;

/// How far a log segment has been filled.
pub(super) struct Fill {
    pub(super) segment: LogSegment,
    pub(super) stored: Arc<StoredSegment>,
    /// Writes of all bytes below were begun; whole blocks.
    pub(super) written: u32,
    /// Bytes below are durable for certain; whole blocks.
    pub(super) durable: u32,
    /// Bytes below are on the device, though perhaps not durable: the scan found them there, and
    /// whatever follows in the last block may be torn. Above `written`, or of no interest.
    pub(super) found: u32,
    /// Bytes below are valid, on the device or in a window.
    pub(super) end: u32,
    /// Bytes below stay as they are, padding included: a range that was flushed ends there, a point of an edit, or the
    /// last record that the scan found, which may be in a window only. 0: the log does not reach the segment, as far as
    /// is known.
    pub(super) closed: u32,
}

impl Fill {
    pub(super) const fn new(segment: LogSegment, stored: Arc<StoredSegment>) -> Self {
        Self {
            segment,
            stored,
            written: 0,
            durable: 0,
            found: 0,
            end: 0,
            closed: 0,
        }
    }

    /// All records that begin below this offset are on the device, or are being written to it. The last one may end
    /// behind it.
    pub(super) fn written_records(&self, geometry: &Geometry) -> u32 {
        // What was fetched may end within a record.
        match self.closed <= self.written.max(self.found) {
            true => self.closed,
            false => geometry.durable_records(self.written),
        }
    }

    /// Bytes below are here, and another member can have them. Where the log does not reach the segment, a fetch that
    /// broke off may have brought some that are of no use before what lies in front of them is here.
    pub(super) fn held(&self) -> u32 {
        match self.closed {
            0 => self.durable,
            _ => self.end.max(self.durable),
        }
    }

    /// Whether bytes below `to` are on the device, or on their way there.
    pub(super) const fn holds(&self, to: u32) -> bool {
        block_up(to) <= self.written || to <= self.found
    }
}
