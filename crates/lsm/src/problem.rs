//! What can be wrong with what is stored, and what to do about it.

use std::fmt;

use argosy_base::{DeviceSegment, RegionId, SegmentNumber};
pub use argosy_engine::damage::ProblemKind;

/// The medium log, as part of a region.
pub const MEDIUM_LOG: &str = "medium log";

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
