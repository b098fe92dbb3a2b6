//! Parts of several stored segments, read in one submission.

use std::ops::Range;
use std::sync::Arc;

use argosy_base::{BLOCK_SIZE, SegmentNumber};
use argosy_device::{Buffer, DeviceError};

use crate::segments::StoredSegment;

/// Collects what is wanted, and reads it at once.
#[derive(Debug, Default)]
pub(crate) struct Together {
    wanted: Vec<Wanted>,
    /// Bytes of all that is wanted, in whole blocks.
    len: usize,
    bytes: Option<Buffer>,
}

#[derive(Debug)]
struct Wanted {
    stored: Arc<StoredSegment>,
    /// The bytes of the segment that are read: whole blocks.
    blocks: Range<u32>,
    /// Where these are in the buffer.
    at: usize,
    result: Result<(), DeviceError>,
}

impl Together {
    /// Also wants `bytes` of `stored`, of any alignment. Returns what it is called.
    pub(crate) fn want(&mut self, stored: &Arc<StoredSegment>, bytes: Range<u32>) -> usize {
        let block = u32::try_from(BLOCK_SIZE).expect("a block is small");
        let blocks = bytes.start / block * block..bytes.end.next_multiple_of(block);
        let at = self.len;
        self.len += blocks.len();
        self.wanted.push(Wanted {
            stored: Arc::clone(stored),
            blocks,
            at,
            result: Ok(()),
        });
        self.wanted.len() - 1
    }

    /// Reads all that is wanted. Blocks the calling thread.
    pub(crate) fn read(&mut self) {
        let Some(first) = self.wanted.first() else {
            return;
        };
        let store = Arc::clone(first.stored.store());
        // Of few lengths, so that one which was used before fits.
        let mut bytes = Buffer::for_reading(self.len.next_power_of_two());
        let mut rest: &mut [u8] = &mut bytes;
        let reads = self.wanted.iter().map(|wanted| {
            let (own, behind) = std::mem::take(&mut rest).split_at_mut(wanted.blocks.len());
            rest = behind;
            (wanted.stored.place(), wanted.blocks.start, own)
        });
        let results = store.read_together(reads);
        for (wanted, result) in self.wanted.iter_mut().zip(results) {
            wanted.result = result;
        }
        self.bytes = Some(bytes);
    }

    /// The bytes from `offset` on of the segment of part `part`, if they were read with it.
    pub(crate) fn part(&self, part: usize, offset: u32, len: usize) -> Option<Part<'_>> {
        let wanted = self.wanted.get(part)?;
        let start = offset.checked_sub(wanted.blocks.start)? as usize;
        if start + len > wanted.blocks.len() {
            return None;
        }
        let at = wanted.at + start;
        let bytes = &self.bytes.as_deref()?[at..at + len];
        Some(Part {
            segment: wanted.stored.number(),
            bytes: wanted.result.as_ref().map(|()| bytes),
        })
    }
}

/// Bytes that were read.
pub(crate) struct Part<'a> {
    /// Of which segment.
    pub(crate) segment: SegmentNumber,
    /// The bytes, or why there are none.
    pub(crate) bytes: Result<&'a [u8], &'a DeviceError>,
}
