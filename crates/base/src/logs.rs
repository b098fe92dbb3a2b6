//! The logs of a region, how far a member is, and parts of a region's segments that members speak about.
//!
//! An engine says which logs its regions have. Everything else takes a log as an id, and keeps what belongs to each
//! log in a [`PerLog`].

use core::fmt;

use crate::limits::LOGS_MAX;
use crate::{EditSeq, Lsn, SegmentNumber};

/// A log of a region, by the number under which it is stored and sent: 1 to [`LOGS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(u8);

impl LogId {
    /// The log with the lowest id.
    pub const FIRST: Self = Self(1);

    /// The log with the number `raw`, or `None` if that is 0 or above [`LOGS_MAX`].
    #[must_use]
    pub const fn new(raw: u8) -> Option<Self> {
        if raw == 0 || raw as usize > LOGS_MAX {
            return None;
        }
        Some(Self(raw))
    }

    /// All ids, from the lowest to the highest.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=u8::MAX).map_while(Self::new)
    }

    /// The number under which it is stored and sent.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// A dense index, for arrays with a place for each log.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }
}

/// A value for each of some logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PerLog<T>([Option<T>; LOGS_MAX]);

impl<T> PerLog<T> {
    /// The value of `log`.
    #[must_use]
    pub const fn get(&self, log: LogId) -> Option<&T> {
        self.0[log.index()].as_ref()
    }

    /// Sets the value of `log`, and returns the one before.
    pub const fn insert(&mut self, log: LogId, value: T) -> Option<T> {
        self.0[log.index()].replace(value)
    }

    /// The logs that have a value, by rising id.
    pub fn iter(&self) -> impl Iterator<Item = (LogId, &T)> {
        LogId::all()
            .zip(&self.0)
            .filter_map(|(log, value)| Some((log, value.as_ref()?)))
    }
}

impl<T> Default for PerLog<T> {
    fn default() -> Self {
        Self([const { None }; LOGS_MAX])
    }
}

impl<T> FromIterator<(LogId, T)> for PerLog<T> {
    fn from_iter<I: IntoIterator<Item = (LogId, T)>>(values: I) -> Self {
        let mut all = Self::default();
        for (log, value) in values {
            all.insert(log, value);
        }
        all
    }
}

impl<T: fmt::Debug> fmt::Debug for PerLog<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

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
    /// The end of each log of which it has a segment.
    pub logs: PerLog<LogPosition>,
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
    pub log: LogId,
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
        let at = position.logs.get(self.log);
        at.is_some_and(|at| (self.ordinal, self.to) <= (at.ordinal, at.flushed))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dense_and_bounded() {
        let all: alloc::vec::Vec<_> = LogId::all().collect();
        assert_eq!(all.len(), LOGS_MAX);
        assert_eq!(all[0], LogId::FIRST);
        for (index, log) in all.into_iter().enumerate() {
            assert_eq!((LogId::new(log.raw()), log.index()), (Some(log), index));
        }
        let above = u8::try_from(LOGS_MAX + 1).unwrap();
        assert_eq!([0, above, u8::MAX].map(LogId::new), [None; 3]);
    }

    #[test]
    fn values_come_in_the_order_of_the_logs() {
        let [first, second, third] = [1, 2, 3].map(|raw| LogId::new(raw).unwrap());
        let mut values: PerLog<_> = [(third, 'c'), (first, 'a')].into_iter().collect();
        assert_eq!(values.get(second), None);
        assert_eq!(values.insert(third, 'd'), Some('c'));
        let all: alloc::vec::Vec<_> = values.iter().collect();
        assert_eq!(all, [(first, &'a'), (third, &'d')]);
    }
}
