//! Why a copy did not do what it was asked.

use std::error::Error;
use std::sync::Arc;

use argosy_base::{EditSeq, Remedy, SegmentNumber};
use argosy_device::{DeviceError, OpKind};
use argosy_memory::MemoryError;

use crate::EngineError;

/// Why a copy did not do what it was asked. There is a variant for each case that a server treats in a way of its own.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The device failed or is full; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no memory for log windows, or it cannot be used; see the error's own remedy.
    #[error(transparent)]
    Windows(#[from] MemoryError),
    /// This copy does not hold the segment up to that byte. The member that asked needs a newer checkpoint.
    #[error("{number} is not here up to byte {to}")]
    Gone {
        /// The segment.
        number: SegmentNumber,
        /// Byte behind the last that was asked for.
        to: u32,
    },
    /// The segment points into another one whose place is not known here. Fetch it once an edit names it.
    #[error("{number} points into {to}, whose place is not known")]
    Unplaced {
        /// The segment.
        number: SegmentNumber,
        /// The other one.
        to: SegmentNumber,
    },
    /// The bytes that came are not those that were announced. Ask for them again.
    #[error("{number}: what arrived is not what was sent ({what})")]
    Damaged {
        /// The segment.
        number: SegmentNumber,
        /// What does not match.
        what: &'static str,
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
    /// The request contradicts what this copy knows. The sender is at fault.
    #[error("{number}: {what}")]
    Refused {
        /// The segment that it is about.
        number: SegmentNumber,
        /// What does not fit.
        what: &'static str,
    },
    /// Another version of Argosy wrote the copy, so it is not known what belongs to it: nothing on the device may be
    /// freed. The text says which version.
    #[error("{0}")]
    OtherVersion(String),
    /// Any other error of the engine.
    #[error("{error}")]
    Engine {
        /// What the caller does next.
        remedy: Remedy,
        /// The engine's own error.
        error: Arc<dyn Error + Send + Sync>,
    },
}

impl From<EngineError> for CopyError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Device(error) => Self::Device(error),
            error => Self::Engine {
                remedy: error.remedy(),
                error: Arc::new(error),
            },
        }
    }
}

impl CopyError {
    /// What the caller does next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Device(error) => error.remedy(),
            Self::Windows(error) => error.remedy(),
            Self::Damaged { .. } | Self::Missing { .. } | Self::Unplaced { .. } => Remedy::Retry,
            Self::Gone { .. } | Self::Refused { .. } | Self::OtherVersion(_) => Remedy::Correct,
            Self::Engine { remedy, .. } => *remedy,
        }
    }

    /// Whether the device, or the file system of the windows, has no room for now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Device(error) => error.is_full(),
            Self::Windows(error) => error.is_full(),
            _ => false,
        }
    }

    /// Whether stored data is damaged on a device that works otherwise.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        let unreadable = matches!(
            self,
            Self::Device(DeviceError::Io {
                op: OpKind::Read,
                ..
            })
        );
        self.remedy() == Remedy::Repair || unreadable
    }
}
