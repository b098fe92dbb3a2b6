//! How far a member is, and parts of a region's segments that members speak about.

use crate::{EditSeq, LogKind, Lsn, SegmentNumber};

/// Where a copy of one log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The place in the chain of the segment in which it ends.
    pub ordinal: u64,
    /// That segment.
    pub segment: SegmentNumber,
    /// Behind its last valid byte, in bytes from the segment's start.
    pub end: u32,
    /// Behind its last byte that is durable here for certain, in whole blocks. Every earlier segment of the log is
    /// durable.
    pub flushed: u32,
}

/// How far a member is: the last edit of its version, and the ends of its logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last edit of the group that its version has.
    pub edit: EditSeq,
    /// The last LSN of its gapless history.
    pub lsn: Lsn,
    /// Where its logs end, by [`LogKind::index`]; `None` where it has no segment of that log.
    pub logs: [Option<LogPosition>; LogKind::ALL.len()],
}

impl Position {
    /// Whether there is nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (self.edit, self.lsn) == (EditSeq(0), Lsn(0))
    }
}

/// Part of a log segment that is to become durable on every member, padded equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushRange {
    /// Which log.
    pub log: LogKind,
    /// The segment's place in the chain of the log.
    pub ordinal: u64,
    /// The log segment.
    pub segment: SegmentNumber,
    /// First byte, a multiple of the block size.
    pub from: u32,
    /// Byte behind the last, a multiple of the block size.
    pub to: u32,
}

impl FlushRange {
    /// Whether a member that is at `position` has this range durable already.
    #[must_use]
    pub fn covered_by(&self, position: &Position) -> bool {
        position.logs[self.log.index()]
            .is_some_and(|at| (self.ordinal, self.to) <= (at.ordinal, at.flushed))
    }
}

/// Part of a segment, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentPart {
    /// The segment's number.
    pub number: SegmentNumber,
    /// First byte.
    pub from: u32,
    /// Byte behind the last.
    pub to: u32,
}
