//! A finished segment that one member sends to another ahead of its edit.

use argosy_base::{DeviceSegment, Epoch, Identity, Kind, RegionId, SegmentNumber};
use argosy_device::Buffer;

use crate::CopyError;

/// A level segment that came from another member and is not written yet.
#[derive(Debug)]
pub struct Shipment {
    /// The segment.
    pub number: SegmentNumber,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// All its bytes.
    pub bytes: Buffer,
    /// The checksum of all its bytes as they were when the segment was built.
    pub checksum: u32,
    /// Where it lies on the device of the sender.
    pub place: DeviceSegment,
    /// The segments that its pointers lead to, and where these lie on the device of this member. Empty until the
    /// pointers are rewritten.
    pub uses: Vec<(SegmentNumber, DeviceSegment)>,
}

impl Shipment {
    /// Segment `number`, written in `epoch`. The sender has the bytes in `place`, and announced `checksum` for them.
    #[must_use]
    pub fn new(
        number: SegmentNumber,
        epoch: Epoch,
        bytes: Buffer,
        checksum: u32,
        place: DeviceSegment,
    ) -> Self {
        Self {
            number,
            epoch,
            bytes,
            checksum,
            place,
            uses: Vec::new(),
        }
    }

    /// Checks that it has the bytes that were built, as a segment of `region`.
    ///
    /// # Errors
    /// [`CopyError::Damaged`] when they do not have its checksum.
    pub fn check(&self, region: RegionId) -> Result<(), CopyError> {
        let identity = Identity {
            kind: Kind::Segment,
            region,
            segment: self.number,
            epoch: self.epoch,
            offset: 0,
        };
        if identity.checksum(&self.bytes) == self.checksum {
            return Ok(());
        }
        Err(CopyError::Damaged {
            number: self.number,
            what: "its checksum",
        })
    }
}

/// How many pointers a copy has rewritten from places of the sender to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Segments with pointers.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Pointers in these segments.
    pub pointers: u64,
}
