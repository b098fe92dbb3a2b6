//! Repairs: a damaged segment is written again with the bytes of another member.

use std::any::Any;
use std::sync::Arc;

use argosy_base::SegmentNumber;
use argosy_device::{DeviceError, Ticket};

use crate::stored::Stored;

/// A segment that is being written again.
pub struct Repair {
    number: SegmentNumber,
    written: Ticket,
    /// Keeps the place.
    _kept: Arc<dyn Any + Send + Sync>,
}

impl Repair {
    /// The repair of segment `number` by the write `written`. `kept` is held until it is over.
    #[must_use]
    pub fn new(number: SegmentNumber, written: Ticket, kept: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            number,
            written,
            _kept: kept,
        }
    }

    /// The segment.
    #[must_use]
    pub const fn number(&self) -> SegmentNumber {
        self.number
    }

    /// Whether it is done to `copy`, as that is now; `None` while it is being written. Blocks for reads of the device
    /// when it is.
    ///
    /// # Errors
    /// [`RepairError::StillDamaged`]; the device's.
    pub fn poll(&self, copy: &dyn Stored) -> Option<Result<(), RepairError>> {
        Some(match self.written.poll()? {
            Ok(()) => copy.end_repair(self.number),
            Err(error) => Err(error.into()),
        })
    }
}

/// Why a segment was not repaired.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RepairError {
    /// The bytes received are not those of the segment. Ask another member.
    #[error("what came for {number} is not what was written: {what}")]
    Wrong {
        /// The segment.
        number: SegmentNumber,
        /// What is wrong.
        what: String,
    },
    /// It was written again and is still damaged. Replace the device.
    #[error("{number} was written again and is damaged still: {what}")]
    StillDamaged {
        /// The segment.
        number: SegmentNumber,
        /// What is wrong.
        what: String,
    },
    /// The device failed; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
