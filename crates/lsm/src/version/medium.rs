//! The medium log of a version.

use argosy_base::SegmentNumber;

use super::LevelEntry;
use super::memory::entry_bytes;
use crate::shared::Map;

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct MediumLog {
    /// Each with a value that a level segment points to.
    segments: Map<SegmentNumber, LevelEntry>,
    /// Bytes of these segments.
    bytes: u64,
    /// Bytes of memory that they take.
    memory: usize,
}

impl MediumLog {
    /// The segments, by number.
    pub(super) const fn segments(&self) -> &Map<SegmentNumber, LevelEntry> {
        &self.segments
    }

    /// Bytes of the segments.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that they take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory + self.segments.len() * size_of::<SegmentNumber>()
    }

    /// Adds a segment that is not there.
    pub(super) fn insert(&mut self, entry: LevelEntry) {
        self.memory += entry_bytes(&entry.segment);
        self.bytes += u64::from(entry.segment.len);
        self.segments.insert(entry.segment.number, entry);
    }

    /// Takes segment `number` out. Returns whether it was there.
    pub(super) fn remove(&mut self, number: SegmentNumber) -> bool {
        let Some(removed) = self.segments.remove(&number) else {
            return false;
        };
        self.memory -= entry_bytes(&removed.segment);
        self.bytes -= u64::from(removed.segment.len);
        true
    }
}
