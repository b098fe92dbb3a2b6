//! Numbers with a meaning. Each is a type of its own, so that a segment's logical number can never
//! be used where its place on a device is meant.
//!
//! All of them are stored and sent as little-endian integers of the width given here.

use core::fmt;

use crate::limits::{BLOCK_SIZE, SEGMENT_SIZE};

/// Declares a newtype over an unsigned integer with its usual derives and accessors. Without a prefix it is shown by an
/// implementation of its own.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        number!($(#[$doc])* $name($inner));

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number itself.
            #[inline]
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number that follows this one.
            ///
            /// # Panics
            /// When the numbers are exhausted, which takes longer than any device lives.
            #[inline]
            #[must_use]
            pub const fn next(self) -> Self {
                match self.0.checked_add(1) {
                    Some(next) => Self(next),
                    None => panic!("numbers of this kind are exhausted"),
                }
            }
        }
    };
}

number!(
    /// A key range's name: the unit of placement and of failure handling.
    RegionId(u32), "region "
);
number!(
    /// A server's name within its cluster.
    ServerId(u32), "server "
);
number!(
    /// A region's own, logical name of a segment. The same on every member, never used twice.
    ///
    /// 43 bits wide, so that with a 21-bit offset it fits a [`Pointer`]. 0 names no segment.
    SegmentNumber(u64), "segment "
);
number!(
    /// A place on one device: the segment that begins at byte `n * SEGMENT_SIZE`. Segment 0 holds
    /// the superblocks and the catalog.
    DeviceSegment(u32), "device segment "
);
number!(
    /// The position of a write in a region's history. The first write has LSN 1; 0 is before all.
    Lsn(u64), "lsn "
);
number!(
    /// The number of a group's configuration. The first is 1.
    Epoch(u32), "epoch "
);
number!(
    /// The number of a server's start: each start takes a higher one.
    Incarnation(u64), "incarnation "
);
number!(
    /// The position of a version edit in a region's manifest: in the upper 32 bits the epoch of the last cut, in the
    /// lower ones a count. So of two copies that have the same edit one has not gone another way than the other, and
    /// edits compare by the epoch of the last cut first.
    ///
    /// The first edit of a region has 1. The cut with which a promoted copy begins to serve has the
    /// [first number of its epoch](Self::first_of), unless that copy is further already; every other edit follows the
    /// one before it.
    EditSeq(u64)
);

impl EditSeq {
    /// The number of the first edit behind a cut in `epoch`.
    #[must_use]
    pub const fn first_of(epoch: Epoch) -> Self {
        Self((epoch.0 as u64) << Self::COUNT_BITS | 1)
    }

    /// The epoch of the last cut; 0 where no cut has told its epoch.
    #[inline]
    #[must_use]
    pub const fn cut_epoch(self) -> Epoch {
        Epoch((self.0 >> Self::COUNT_BITS) as u32)
    }

    /// The count within that epoch.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    pub const fn count(self) -> u32 {
        self.0 as u32
    }

    /// Whether an edit of this number may be the next one of a version whose last edit is `last`: it is the next
    /// number, or the first one of a later epoch.
    #[must_use]
    pub const fn may_follow(self, last: Self) -> bool {
        let Some(next) = last.0.checked_add(1) else {
            return false;
        };
        self.0 == next || self.0 > next && self.0 == Self::first_of(self.cut_epoch()).0
    }

    /// Bits that hold the count. An epoch with more edits than that would go on with the numbers of the next epoch,
    /// still in order; it would take a century of one edit a second.
    const COUNT_BITS: u32 = 32;
}

/// `edit 2.17`, or `edit 17` while no cut has told its epoch.
impl fmt::Display for EditSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cut_epoch() {
            Epoch(0) => write!(f, "edit {}", self.0),
            epoch => write!(f, "edit {}.{}", epoch.0, self.count()),
        }
    }
}

/// Bits of a [`Pointer`] that hold the offset in a segment.
pub const OFFSET_BITS: u32 = SEGMENT_SIZE.trailing_zeros();

impl SegmentNumber {
    /// The highest number that fits a [`Pointer`].
    pub const MAX: Self = Self((1 << (u64::BITS - OFFSET_BITS)) - 1);

    /// The first number of the range from which `server` numbers segments that it builds for itself
    /// alone. All others are the group's, and mean the same on every member.
    ///
    /// Servers whose names differ by a multiple of 1024 share a range, and may not be members of
    /// one group.
    #[must_use]
    pub const fn first_own(server: ServerId) -> Self {
        let server = server.0 as u64 % (1 << Self::OWN_SERVER_BITS);
        Self(Self::OWN | server << Self::OWN_NUMBER_BITS)
    }

    /// Whether it is of such a range.
    #[inline]
    #[must_use]
    pub const fn is_own(self) -> bool {
        self.0 & Self::OWN != 0
    }

    /// Whether both are of the range of the same server.
    #[must_use]
    pub const fn shares_range(self, other: Self) -> bool {
        let (range, others) = (
            self.0 >> Self::OWN_NUMBER_BITS,
            other.0 >> Self::OWN_NUMBER_BITS,
        );
        self.is_own() && range == others
    }

    /// Set in the numbers that a server gives for itself: the highest of the 43 bits. Ten bits of
    /// the server's name follow, then 32 bits of the number itself.
    const OWN: u64 = 1 << (Self::OWN_NUMBER_BITS + Self::OWN_SERVER_BITS);
    const OWN_NUMBER_BITS: u32 = 32;
    const OWN_SERVER_BITS: u32 = 10;
}

impl DeviceSegment {
    /// The byte of the device at which this segment begins.
    #[inline]
    #[must_use]
    pub const fn start(self) -> u64 {
        self.0 as u64 * SEGMENT_SIZE as u64
    }
}

/// A position inside a segment, by the segment's logical number: 43 bits of number, 21 of offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(u64);

impl Pointer {
    /// Points at byte `offset` of `segment`.
    ///
    /// # Panics
    /// When `offset` is not inside a segment, or `segment` is wider than 43 bits.
    #[inline]
    #[must_use]
    pub const fn new(segment: SegmentNumber, offset: u32) -> Self {
        assert!(
            (offset as usize) < SEGMENT_SIZE,
            "an offset lies inside its segment"
        );
        assert!(
            segment.0 <= SegmentNumber::MAX.0,
            "a segment number has 43 bits"
        );
        Self(segment.0 << OFFSET_BITS | offset as u64)
    }

    /// The segment that is pointed into.
    #[inline]
    #[must_use]
    pub const fn segment(self) -> SegmentNumber {
        SegmentNumber(self.0 >> OFFSET_BITS)
    }

    /// The byte in the segment.
    #[inline]
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the offset is in the lower half, and a segment has 2 MiB"
    )]
    pub const fn offset(self) -> u32 {
        (self.0 as u32) & (SEGMENT_SIZE as u32 - 1)
    }

    /// The pointer as it is stored.
    #[inline]
    #[must_use]
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// The pointer that was stored as `raw`. Every value is a valid pointer; whether the segment
    /// exists is for the reader to find out.
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.segment(), self.offset())
    }
}

const _: () = assert!(SEGMENT_SIZE.is_power_of_two() && SEGMENT_SIZE.is_multiple_of(BLOCK_SIZE));

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn a_pointer_keeps_its_parts() {
        let last = u32::try_from(SEGMENT_SIZE - 1).unwrap();
        let top = Pointer::new(SegmentNumber::MAX, last);
        assert_eq!(top.segment(), SegmentNumber::MAX);
        assert_eq!(top.offset() as usize, SEGMENT_SIZE - 1);
        assert_eq!(top.to_raw(), u64::MAX);
        assert_eq!(
            Pointer::from_raw(Pointer::new(SegmentNumber(7), 9).to_raw())
                .segment()
                .get(),
            7
        );
    }

    #[test]
    fn edits_compare_by_the_epoch_of_the_last_cut() {
        let (old, cut) = (EditSeq(20), EditSeq::first_of(Epoch(2)));
        assert!(old < cut && cut < EditSeq::first_of(Epoch(3)));
        assert_eq!((cut.cut_epoch(), cut.count()), (Epoch(2), 1));
        assert_eq!(cut.next().cut_epoch(), Epoch(2));
        assert_eq!(EditSeq::first_of(Epoch(0)), EditSeq(0).next());
        assert_eq!(EditSeq(u64::MAX).cut_epoch(), Epoch(u32::MAX));
        assert_eq!(old.to_string(), "edit 20");
        assert_eq!(cut.next().to_string(), "edit 2.2");
    }

    #[test]
    fn an_edit_follows_the_one_before_or_begins_an_epoch() {
        let second = EditSeq::first_of(Epoch(2));
        for (edit, last, may) in [
            (EditSeq(5), EditSeq(4), true),
            (EditSeq(6), EditSeq(4), false),
            (EditSeq(4), EditSeq(4), false),
            (EditSeq(1), EditSeq(0), true),
            (EditSeq(1), EditSeq(4), false),
            (second, EditSeq(4), true),
            (second.next(), EditSeq(4), false),
            (second.next(), second, true),
            (second, second, false),
            (second, second.next(), false),
            (EditSeq::first_of(Epoch(3)), second.next(), true),
            (EditSeq(0), EditSeq(u64::MAX), false),
        ] {
            assert_eq!(edit.may_follow(last), may, "{edit} behind {last}");
        }
    }

    #[test]
    fn own_numbers_are_apart_from_the_groups_and_each_others() {
        let (first, second) = (ServerId(0), ServerId(1));
        assert!(!SegmentNumber(u64::from(u32::MAX)).is_own());
        assert!(SegmentNumber::first_own(first).is_own());
        assert!(SegmentNumber::first_own(ServerId(1023)) < SegmentNumber::MAX);
        let next = SegmentNumber::first_own(second);
        assert_eq!(next.0 - SegmentNumber::first_own(first).0, 1 << 32);
        assert!(next.shares_range(next.next()) && !next.shares_range(SegmentNumber(next.0 - 1)));
        assert!(!SegmentNumber(1).shares_range(SegmentNumber(2)));
    }

    #[test]
    fn pointers_sort_by_segment_then_offset() {
        let low = Pointer::new(SegmentNumber(1), 2_000_000);
        let high = Pointer::new(SegmentNumber(2), 0);
        assert!(low < high);
    }
}
