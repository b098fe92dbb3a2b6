//! Why a replica did not do what it was asked, and what its caller does next.

use std::sync::Arc;

use argosy_base::{EditSeq, LogId, RegionId, Remedy, SegmentNumber};
use argosy_device::DeviceError;
use argosy_engine::CopyError;
use argosy_log::RecoverError;
use argosy_log::behind::Behind;
use argosy_memory::MemoryError;

use crate::manifest::ManifestError;
use crate::names::LevelError;
use crate::names::logs::log_name;
use crate::storage::StorageError;

/// Why a replica did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicaError {
    /// The storage beneath; see the error's own remedy.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no memory for log windows, or it cannot be used; see the error's own remedy.
    #[error(transparent)]
    Windows(#[from] MemoryError),
    /// Durable log records are damaged. Give this copy up, or fetch the segment.
    #[error("{}, {segment}, byte {offset}: {what}", log_name(*.log))]
    CorruptLog {
        /// The log.
        log: LogId,
        /// The segment.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// What a killed process left in its windows is damaged in front of records that are whole: what is
    /// missing was acknowledged. Nothing was changed. Give up what lies behind
    /// ([`Settings::accept_loss`](crate::Settings::accept_loss)), or salvage.
    #[error(
        "{region}: a log window is damaged: {} is missing, and {} records from there on are whole, the first \
         at byte {} of {}",
        .behind.missing, .behind.records, .behind.offset, .behind.number
    )]
    DamagedWindow {
        /// The region.
        region: RegionId,
        /// What is missing, and what tells.
        behind: Behind,
    },
    /// A level segment is damaged here. Fetch it from another member.
    #[error(transparent)]
    CorruptLevel(#[from] LevelError),
    /// The bytes that came are not those that were announced. Ask for them again.
    #[error("{number}: what arrived is not what was sent ({what})")]
    Damaged {
        /// The segment.
        number: SegmentNumber,
        /// What does not match.
        what: &'static str,
    },
    /// The segment points into another one of which it is not known here where the sender has it, or
    /// that is not held here. Fetch it once an edit names it.
    #[error("{number} points into {to}, whose place is not known")]
    Unplaced {
        /// The segment.
        number: SegmentNumber,
        /// The other one; of a node of a tree that was shipped, what the pointer says.
        to: SegmentNumber,
    },
    /// The edit names a segment, or log bytes, that are not held here. Examine it again.
    #[error("{edit} names {number}, which is not held up to byte {to}")]
    Missing {
        /// The edit.
        edit: EditSeq,
        /// The segment.
        number: SegmentNumber,
        /// Byte behind the last that it needs.
        to: u32,
    },
    /// This copy does not hold the segment up to that byte. The member that asked needs a newer checkpoint.
    #[error("{number} is not here up to byte {to}")]
    Gone {
        /// The segment.
        number: SegmentNumber,
        /// Byte behind the last that was asked for.
        to: u32,
    },
    /// The request contradicts what this replica knows. The sender is at fault.
    #[error("{number}: {what}")]
    Refused {
        /// The segment that it is about.
        number: SegmentNumber,
        /// What does not fit.
        what: &'static str,
    },
}

impl From<DeviceError> for ReplicaError {
    fn from(error: DeviceError) -> Self {
        Self::Storage(StorageError::Device(error))
    }
}

impl From<RecoverError<DeviceError>> for ReplicaError {
    fn from(error: RecoverError<DeviceError>) -> Self {
        match error {
            RecoverError::Read { source, .. } => source.into(),
            RecoverError::Corrupt {
                log,
                segment,
                offset,
                what,
                ..
            } => Self::CorruptLog {
                log,
                segment,
                offset,
                what,
            },
        }
    }
}

impl From<ReplicaError> for CopyError {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Storage(StorageError::Device(error)) => Self::Device(error),
            ReplicaError::Storage(StorageError::Manifest(
                error @ ManifestError::UnknownVersion { .. },
            )) => Self::OtherVersion(error.to_string()),
            ReplicaError::Windows(error) => Self::Windows(error),
            ReplicaError::Damaged { number, what } => Self::Damaged { number, what },
            ReplicaError::Unplaced { number, to } => Self::Unplaced { number, to },
            ReplicaError::Missing { edit, number, to } => Self::Missing { edit, number, to },
            ReplicaError::Gone { number, to } => Self::Gone { number, to },
            ReplicaError::Refused { number, what } => Self::Refused { number, what },
            error @ (ReplicaError::Storage(_)
            | ReplicaError::CorruptLog { .. }
            | ReplicaError::DamagedWindow { .. }
            | ReplicaError::CorruptLevel(_)) => Self::Engine {
                remedy: error.remedy(),
                error: Arc::new(error),
            },
        }
    }
}

impl ReplicaError {
    /// What the caller does next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Storage(error) => error.remedy(),
            Self::Windows(error) => error.remedy(),
            Self::CorruptLog { .. } | Self::CorruptLevel(_) | Self::DamagedWindow { .. } => {
                Remedy::Repair
            }
            Self::Damaged { .. } | Self::Missing { .. } | Self::Unplaced { .. } => Remedy::Retry,
            Self::Gone { .. } | Self::Refused { .. } => Remedy::Correct,
        }
    }
}
