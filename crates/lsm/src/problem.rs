//! What can be wrong with what is stored, and what to do about it.

use std::fmt;

use argosy_base::{DeviceSegment, RegionId, SegmentNumber};

/// The medium log, as part of a region.
pub const MEDIUM_LOG: &str = "medium log";

/// How something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The bytes are not those that were written.
    Damaged,
    /// The bytes are whole, but of another time or of something else.
    Stale,
    /// Nothing is there.
    Missing,
    /// Two refer to one device segment.
    DoublyOwned,
    /// What refers and what is referred to, or counted, do not agree.
    Reference,
    /// The device does not give the bytes.
    Unreadable,
}

impl ProblemKind {
    /// Its name for programs.
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

/// Something wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How.
    pub kind: ProblemKind,
    /// What it is part of, such as "manifest" or "L2".
    pub part: String,
    /// The region; `None` where it concerns the whole device.
    pub region: Option<RegionId>,
    /// The segment's number.
    pub number: Option<SegmentNumber>,
    /// Where the segment lies on the device.
    pub place: Option<DeviceSegment>,
    /// The byte in it.
    pub offset: u32,
    /// What is wrong.
    pub what: String,
}

impl Problem {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match (self.kind, self.part.as_str()) {
            (_, "superblock" | "catalog") => {
                "start the server: it rewrites this copy from the other one"
            }
            (ProblemKind::Unreadable, _) => "look at the device and the system's log",
            (ProblemKind::DoublyOwned, _) => {
                "do not start this server: replace its device, and let it fetch everything from \
                 the other members"
            }
            (_, "log windows") => {
                "put the windows back as they were, copy what is whole with `argosy inspect repair`, or \
                 open the store with `Builder::accept_loss`: what is missing is lost then, and all that was \
                 written behind it"
            }
            (_, "manifest") => {
                "unless the machine lost power at that moment, replace this server's device, and \
                 let it fetch the region from the other members"
            }
            _ => "replace this server's device, and let it fetch the region from another member",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind.name())?;
        if let Some(region) = self.region {
            write!(f, "{region}, ")?;
        }
        f.write_str(&self.part)?;
        if let Some(number) = self.number {
            write!(f, ", {number}")?;
        }
        if let Some(place) = self.place {
            write!(f, ", at {place}, byte {}", self.offset)?;
        }
        write!(f, ": {}", self.what)
    }
}
