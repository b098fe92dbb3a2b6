//! Results of repairs: a damaged segment is written again with the bytes of another member.

use argosy_base::SegmentNumber;
use argosy_device::DeviceError;

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
