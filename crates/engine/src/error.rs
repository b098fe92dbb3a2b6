//! Why an engine did not do what it was asked.

use argosy_base::{Outcome, Remedy, RequestName, SegmentNumber};
use argosy_device::DeviceError;

use crate::batch::BatchError;
use crate::long::Torn;

/// Why a write cannot be taken at this moment. Nothing of it was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusyReason {
    /// The log windows are full: a flush has not been acknowledged by every member.
    #[error("the log windows are full until every member has made them durable")]
    LogWindows,
    /// L0 is full: a compaction has to retire a memtable.
    #[error("the memtables are full until one of them has been flushed")]
    Memtable,
    /// The levels hold more runs than reads can bear: compaction is behind.
    #[error("compaction is behind")]
    CompactionDebt,
    /// The region takes nearly as much space as it may, and part of it holds nothing that lives.
    #[error("garbage collection is behind")]
    SpaceDebt,
    /// The device is out of segments, but for those that are kept so that deletes and compactions
    /// can make room. Writes of new data are taken again when they have.
    #[error("the device is full; reads and deletes go on; delete keys to make room")]
    DeviceFull,
    /// Sorted pairs are being taken into the levels, where this would be written; or too many wait for it.
    #[error("sorted pairs are being bulk-loaded there")]
    BulkLoad,
}

/// Why an engine did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The request is over a limit. Correct it.
    #[error(transparent)]
    Limit(#[from] BatchError),
    /// The write was not taken. Retry after the next progress.
    #[error("not applied: {0}")]
    Busy(BusyReason),
    /// The device failed, or what it holds is damaged; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Stored bytes do not mean anything. Fetch the segment from another member.
    #[error("{segment}, byte {offset}: {what}")]
    Corrupt {
        /// The segment that is damaged.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The parts of a long value are not what was written.
    #[error(transparent)]
    Torn(#[from] Torn),
    /// It would take a read from the device, which is out of [`Reach::Memory`](crate::Reach::Memory). Nothing was
    /// done. Ask again within [`Reach::Device`](crate::Reach::Device).
    #[error("not applied: it takes the device, and the request was not to wait for that")]
    NotInMemory,
    /// The request came before, or may have, and whether it was applied is not remembered any more. Nothing was done
    /// now. A client that sent it once only knows that it was not applied, and sends it under a new name, of a client
    /// id that it takes anew.
    #[error(
        "unknown: {0} is older than what the region remembers, so whether it was applied before is not known; it was \
         not applied now"
    )]
    Forgotten(RequestName),
    /// The engine cannot do this at all. Nothing was done.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The copy has become a passive one ([`Store::demote`](crate::Store::demote)): nothing was applied, and nothing
    /// is read here any more. Another member serves the region.
    #[error("not applied: the region is not served here any more")]
    NotServing,
    /// The engine met an error that it cannot survive and takes no more writes. Reopen it.
    #[error("the region is closed to writes: {0}")]
    Closed(&'static str),
}

impl EngineError {
    /// What the caller does next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Limit(_) | Self::Unsupported(_) | Self::Forgotten(_) => Remedy::Correct,
            Self::Busy(_) | Self::NotInMemory | Self::NotServing => Remedy::Retry,
            Self::Device(error) => error.remedy(),
            Self::Corrupt { .. } | Self::Torn(_) => Remedy::Repair,
            Self::Closed(_) => Remedy::Reopen,
        }
    }

    /// What became of the write that met this error.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Limit(_)
            | Self::Busy(_)
            | Self::NotInMemory
            | Self::Unsupported(_)
            | Self::NotServing
            | Self::Closed(_) => Outcome::NotApplied,
            Self::Device(_) | Self::Corrupt { .. } | Self::Torn(_) | Self::Forgotten(_) => {
                Outcome::Unknown
            }
        }
    }
}
