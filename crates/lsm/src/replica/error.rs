//! Why a replica did not do what it was asked, and what its caller does next.

use std::sync::Arc;

use argosy_base::{LogId, RegionId, Remedy, SegmentNumber};
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
    /// What every engine's copies may answer; see the error's own remedy.
    #[error(transparent)]
    Copy(#[from] CopyError),
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
}

impl From<DeviceError> for ReplicaError {
    fn from(error: DeviceError) -> Self {
        Self::Storage(StorageError::Device(error))
    }
}

impl From<MemoryError> for ReplicaError {
    fn from(error: MemoryError) -> Self {
        Self::Copy(CopyError::Windows(error))
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
            ReplicaError::Copy(error) => error,
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
            Self::Copy(error) => error.remedy(),
            Self::CorruptLog { .. } | Self::CorruptLevel(_) | Self::DamagedWindow { .. } => {
                Remedy::Repair
            }
        }
    }
}
