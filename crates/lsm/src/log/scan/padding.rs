//! Padding that stands where a device has lost a write.
//!
//! What a device has lost reads as zeros, as padding does. A writer leaves a window only for a record that does not
//! fit its rest, and never one that is empty. So there is no padding
//!
//! 1. from the start of a window to its end, with a record behind it in the segment;
//! 2. from the start of a block to the end of its window, in front of a record that would have fit;
//! 3. from the start of a block, with a record behind it in the window.

use std::ops::Range;

/// Most bytes that a writer keeps for what stands in front of a record.
const IN_FRONT_MAX: u32 = 64;

/// The padding at which a scan is, and what padding has told it.
pub(super) struct Padding {
    /// Whole blocks that were passed over since the last record.
    blocks: Range<u32>,
    /// Where a write was lost first.
    pub(super) lost: Option<u32>,
    /// The end of the last record, mark or segment header that was read.
    pub(super) behind: u32,
}

impl Padding {
    pub(super) const NONE: Self = Self {
        blocks: 0..0,
        lost: None,
        behind: 0,
    };

    /// Blocks are passed over.
    pub(super) fn goes_on(&mut self, blocks: Range<u32>) {
        match self.blocks.end == blocks.start {
            true => self.blocks.end = blocks.end,
            false => self.blocks = blocks,
        }
    }

    /// The padding from here on stands for what was lost.
    pub(super) fn is_lost(&mut self, from: u32) {
        self.lost.get_or_insert(from);
    }

    /// A record of `len` bytes stands behind it, in the same segment.
    pub(super) fn ends_at_record(&mut self, len: u32, window: u32) {
        let blocks = std::mem::take(&mut self.blocks);
        let bytes = blocks.end - blocks.start;
        let first = blocks.start.next_multiple_of(window);
        if bytes >= len + IN_FRONT_MAX {
            self.is_lost(blocks.start);
        } else if first + window <= blocks.end {
            self.is_lost(first);
        }
    }

    /// It goes to the end of its segment.
    pub(super) fn ends(&mut self) {
        self.blocks = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 16 << 10;

    fn found(blocks: &[Range<u32>], len: u32) -> Option<u32> {
        let mut padding = Padding::NONE;
        for blocks in blocks {
            padding.goes_on(blocks.clone());
        }
        padding.ends_at_record(len, WINDOW);
        padding.lost
    }

    #[test]
    fn padding_that_no_writer_leaves_is_found() {
        let rest = (8 << 10)..WINDOW;
        assert_eq!(found(&[], 30), None);
        assert_eq!(
            found(std::slice::from_ref(&rest), 8 << 10),
            None,
            "it did not fit"
        );
        assert_eq!(found(std::slice::from_ref(&rest), 30), Some(8 << 10));
        let next = WINDOW..2 * WINDOW;
        assert_eq!(found(std::slice::from_ref(&next), WINDOW), Some(WINDOW));
        assert_eq!(found(&[rest.clone(), next], 16 << 10), Some(8 << 10));

        let mut padding = Padding::NONE;
        padding.goes_on(rest);
        padding.ends();
        padding.ends_at_record(30, WINDOW);
        assert_eq!(padding.lost, None, "the segment ended there");
    }
}
