//! What the modules of this crate say to each other: which logs a region has, what a key is bound to, what a level
//! segment is called and what form it has, and why it could not be read.
//!
//! This is the lowest floor: it knows no other module. Reading order: [`logs`], [`entry`], [`form`].

pub(crate) mod entry;
pub(crate) mod form;
pub mod logs;

use argosy_base::{Epoch, Identity, Kind, RegionId, SegmentNumber};
use argosy_device::DeviceError;
use argosy_engine::EngineError;

pub use entry::{Entry, Lasting, OwnedEntry};
pub use form::{Form, Tree};
pub(crate) use form::{LEAF_BYTES_MAX, NODE_BYTES_MIN, can_be_node};

/// Which segment: its number, and the region and the epoch that wrote it. Part of the identity of
/// every byte in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The region that wrote it.
    pub region: RegionId,
    /// Its logical number in that region.
    pub number: SegmentNumber,
    /// The epoch in which it was written.
    pub epoch: Epoch,
}

impl SegmentName {
    /// The identity of what begins at byte `offset` of this segment.
    #[inline]
    #[must_use]
    pub const fn identity(self, kind: Kind, offset: u32) -> Identity {
        Identity {
            kind,
            region: self.region,
            segment: self.number,
            epoch: self.epoch,
            offset,
        }
    }

    /// The checksum of the whole segment, as version edits and shipments state it. `bytes` are all
    /// bytes of the segment, in whole blocks.
    #[must_use]
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        self.identity(Kind::Segment, 0).checksum(bytes)
    }

    /// The error that says that byte `offset` of this segment is not what it should be.
    #[must_use]
    pub const fn corrupt(self, offset: u32, what: &'static str) -> LevelError {
        LevelError::Corrupt {
            segment: self.number,
            offset,
            what,
        }
    }
}

/// Why a level segment could not be read. Variants differ in what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LevelError {
    /// The bytes are not those that were written. Fetch the segment from another member.
    #[error("{segment}, byte {offset}: {what}")]
    Corrupt {
        /// The damaged segment.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The segment was written by a version of Argosy that this one does not know. Upgrade.
    #[error("{segment} has format {version}; this version reads format {known}")]
    UnknownVersion {
        /// The segment.
        segment: SegmentNumber,
        /// Its format.
        version: u32,
        /// The format that this version of Argosy reads.
        known: u32,
    },
    /// The device failed; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It would take the device, which the caller does not want. Ask within reach of the device.
    #[error("not in memory")]
    NotInMemory,
}

impl From<LevelError> for EngineError {
    fn from(error: LevelError) -> Self {
        match error {
            LevelError::Corrupt {
                segment,
                offset,
                what,
            } => Self::Corrupt {
                segment,
                offset,
                what,
            },
            LevelError::Device(error) => Self::Device(error),
            LevelError::NotInMemory => Self::NotInMemory,
            unknown @ LevelError::UnknownVersion { .. } => Self::Device(DeviceError::Unusable {
                path: "level segment".to_owned(),
                what: unknown.to_string(),
            }),
        }
    }
}
