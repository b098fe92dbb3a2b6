//! Damage of stored data: its kinds, where it was found, and which keys it concerns.

use std::fmt;

use argosy_base::{DeviceSegment, KeyRange, RegionId, SegmentNumber};

/// Most key ranges that one [`Damage`] lists.
pub const RANGES_MAX: usize = 16;

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The bytes differ from those that were written.
    Damaged,
    /// The bytes are intact, but they are an older version or belong to something else.
    Stale,
    /// There is nothing where data should be.
    Missing,
    /// Two owners refer to the same device segment.
    DoublyOwned,
    /// A reference or a count disagrees with what it refers to.
    Reference,
    /// The device fails to read the bytes.
    Unreadable,
}

impl ProblemKind {
    /// The name that programs see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Stale => "stale",
            Self::Missing => "missing",
            Self::DoublyOwned => "doubly-owned",
            Self::Reference => "reference",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A damaged part of a segment, and the keys that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The kind of damage.
    pub kind: ProblemKind,
    /// The region.
    pub region: RegionId,
    /// Part of the region, such as "L2", "medium log" or "large log".
    pub part: String,
    /// The segment.
    pub number: SegmentNumber,
    /// Where it lies on the device.
    pub place: DeviceSegment,
    /// Offset of the damage in the segment, in bytes.
    pub offset: u32,
    /// What is wrong.
    pub what: String,
    /// Ranges that contain every key stored in the damaged part, and every key whose value is stored there. They may
    /// contain other keys, too. At most [`RANGES_MAX`].
    pub keys: Vec<KeyRange>,
    /// Number of further ranges, which are not listed.
    pub more_keys: usize,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, part, .. } = self;
        write!(f, "{}: {region}, {part}, {}", self.kind.name(), self.number)?;
        write!(
            f,
            ", at {}, byte {}: {}",
            self.place, self.offset, self.what
        )?;
        for (place, range) in self.keys.iter().enumerate() {
            let lead = if place == 0 {
                "; concerns keys in"
            } else {
                ","
            };
            write!(f, "{lead} {range}")?;
        }
        match self.more_keys {
            0 => Ok(()),
            more => write!(f, ", and {more} more ranges"),
        }
    }
}

/// A segment that cannot be read in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSegment {
    /// The segment.
    pub number: SegmentNumber,
    /// Where it lies on the device.
    pub place: DeviceSegment,
    /// What was found, and where in it.
    pub what: String,
}

impl fmt::Display for DamagedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            place,
            what,
        } = self;
        write!(f, "{number}, at {place}, is damaged: {what}")
    }
}

/// A log segment whose count of pointers is wrong: the levels hold other pointers than were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscount {
    /// The segment, of the large or the medium log.
    pub number: SegmentNumber,
    /// Bytes of keys and values that pointers lead to, as they were counted.
    pub counted: u64,
    /// Bytes of keys and values that pointers in the leaves lead to.
    pub found: u64,
}
