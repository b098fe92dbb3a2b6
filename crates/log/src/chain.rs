//! A log as a chain of segments: what edits say of it.

use argosy_base::{BLOCK_SIZE, Epoch, LogId, Lsn, SegmentNumber};

/// A segment of a log's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSegment {
    /// The log.
    pub log: LogId,
    /// Its place in the chain: 0, 1, 2, … for each log, without gaps.
    pub ordinal: u64,
    /// Its logical number.
    pub number: SegmentNumber,
    /// The epoch that writes it.
    pub epoch: Epoch,
    /// The LSN that its records count from; none of them is below.
    pub base_lsn: Lsn,
    /// Where it was sealed: the byte behind its last record. `None`: it is the tail.
    pub end: Option<u32>,
}

impl AsRef<Self> for LogSegment {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A position in a log: byte `to` of segment `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPoint {
    /// The log.
    pub log: LogId,
    /// The segment in it.
    pub number: SegmentNumber,
    /// The byte.
    pub to: u32,
}

impl LogPoint {
    /// The same point in a checkpoint for another member. There a point in whole blocks may lie within a record. This
    /// one does not, so in whole blocks it is stated as one byte less.
    #[must_use]
    pub const fn for_checkpoint(self) -> Self {
        let to = match self.is_in_blocks() {
            true => self.to.saturating_sub(1),
            false => self.to,
        };
        Self { to, ..self }
    }

    /// Whether whole blocks lie in front of it.
    #[must_use]
    pub const fn is_in_blocks(&self) -> bool {
        (self.to as usize).is_multiple_of(BLOCK_SIZE)
    }
}
