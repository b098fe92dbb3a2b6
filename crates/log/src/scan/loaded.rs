//! The window that a scan reads, and what of it the device lacks.

use super::super::segment::{BLOCK_BYTES, SegmentPosition};
use super::Unflushed;
use crate::chain::LogSegment;

/// The window being read.
pub(super) struct Loaded {
    pub(super) segment: LogSegment,
    /// Its first byte in the segment.
    pub(super) start: u32,
    pub(super) device: Vec<u8>,
    /// The slot's bytes, where it holds this window.
    pub(super) memory: Option<Memory>,
}

pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    /// See [`Image`].
    pub(super) image: Vec<u8>,
    /// See [`Image`].
    pub(super) missing: Option<u32>,
}

/// A window as it should be on the device.
pub(super) struct Image {
    pub(super) segment: LogSegment,
    pub(super) start: u32,
    /// The first byte that is another on the device.
    pub(super) missing: u32,
    pub(super) bytes: Vec<u8>,
}

impl Image {
    /// The blocks from the first that the device lacks, up to `end` if that lies in the window.
    pub(super) fn up_to(mut self, end: SegmentPosition) -> Option<Unflushed> {
        if (self.segment.ordinal, self.missing) >= (end.ordinal, end.offset) {
            return None;
        }
        let from = self.missing / BLOCK_BYTES * BLOCK_BYTES;
        if self.segment.ordinal == end.ordinal {
            let valid = (end.offset - self.start) as usize;
            if valid < self.bytes.len() {
                self.bytes[valid..].fill(0);
                self.bytes
                    .truncate(valid.next_multiple_of(BLOCK_BYTES as usize));
            }
        }
        Some(Unflushed {
            segment: self.segment,
            from,
            bytes: self.bytes.split_off((from - self.start) as usize),
        })
    }
}

impl Loaded {
    pub(super) fn end(&self) -> u32 {
        self.start + u32::try_from(self.device.len()).expect("a window")
    }

    pub(super) fn range(&self, range: std::ops::Range<u32>) -> std::ops::Range<usize> {
        (range.start - self.start) as usize..(range.end - self.start) as usize
    }

    pub(super) fn bytes(&self, in_memory: bool, range: std::ops::Range<u32>) -> &[u8] {
        let range = self.range(range);
        match &self.memory {
            Some(memory) if in_memory => &memory.bytes[range],
            _ => &self.device[range],
        }
    }
}
