//! An edit states everything that a copy consists of: an image of the map, and the log segments behind it. So an edit
//! and a checkpoint differ in one flag, and a copy may miss an edit.
//!
//! ```text
//! edit    := sealed (under the identity of a manifest), all varints:
//!            seq  epoch  checkpoint  last  time  next number  parts  logs  part[parts]  log[logs]
//! part    := number  epoch  len  checksum
//! log     := ordinal  number  epoch  needed
//! ```
//!
//! Everything up to the LSN `last` is in the image, at the region's `time`. The image is cut into parts anywhere.
//! `needed` bytes of a log have to be here before the edit is applied (I3).

use argosy_base::codec::{Malformed, Reader, put_varint};
use argosy_base::{EditSeq, Epoch, Identity, Kind, Lsn, Moment, RegionId, SegmentNumber};

use super::record::{seal, unseal};

/// A segment of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePart {
    /// The segment.
    pub number: SegmentNumber,
    /// The epoch that wrote it.
    pub epoch: Epoch,
    /// Bytes of it, in whole blocks.
    pub len: u32,
    /// Their checksum, under the identity of a segment.
    pub checksum: u32,
}

/// A segment of the log. It is as long as a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSegment {
    /// Its place in the chain.
    pub ordinal: u64,
    /// The segment.
    pub number: SegmentNumber,
    /// The epoch that writes it.
    pub epoch: Epoch,
    /// Bytes that have to be durable where the edit is.
    pub needed: u32,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToyEdit {
    /// Its place in the order of the group's edits.
    pub seq: EditSeq,
    /// The epoch that made it.
    pub epoch: Epoch,
    /// A copy begins with it: the ends of its logs are looked for anew.
    pub checkpoint: bool,
    /// The last LSN in the image.
    pub last: Lsn,
    /// The region's time in the image.
    pub time: Moment,
    /// The first segment number that was never used.
    pub next_number: SegmentNumber,
    /// Where the image is.
    pub image: Vec<ImagePart>,
    /// The log behind it.
    pub logs: Vec<RingSegment>,
}

impl ToyEdit {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = [
            self.seq.0,
            self.epoch.0.into(),
            self.checkpoint.into(),
            self.last.0,
            self.time.0,
            self.next_number.0,
            self.image.len() as u64,
            self.logs.len() as u64,
        ];
        let part = |of: &ImagePart| {
            [
                of.number.0,
                of.epoch.0.into(),
                of.len.into(),
                of.checksum.into(),
            ]
        };
        let log = |of: &RingSegment| [of.ordinal, of.number.0, of.epoch.0.into(), of.needed.into()];
        let parts = self.image.iter().flat_map(part);
        let logs = self.logs.iter().flat_map(log);
        let mut body = Vec::new();
        let numbers = head.into_iter().chain(parts).chain(logs);
        numbers.for_each(|number| put_varint(&mut body, number));
        seal(identity(), &body)
    }

    /// Reads an edit. What is behind it is not looked at.
    ///
    /// # Errors
    /// The bytes are no edit.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = Reader::new("toy edit", bytes).malformed();
        let body = unseal(identity(), bytes).ok_or(malformed)?;
        let mut from = Reader::new("toy edit", body);
        let mut edit = Self {
            seq: EditSeq(from.varint()?),
            epoch: Epoch(narrow(&mut from)?),
            checkpoint: from.varint()? != 0,
            last: Lsn(from.varint()?),
            time: Moment(from.varint()?),
            next_number: SegmentNumber(from.varint()?),
            ..Self::default()
        };
        let (parts, logs) = (from.varint()?, from.varint()?);
        for _ in 0..parts {
            edit.image.push(ImagePart {
                number: SegmentNumber(from.varint()?),
                epoch: Epoch(narrow(&mut from)?),
                len: narrow(&mut from)?,
                checksum: narrow(&mut from)?,
            });
        }
        for _ in 0..logs {
            edit.logs.push(RingSegment {
                ordinal: from.varint()?,
                number: SegmentNumber(from.varint()?),
                epoch: Epoch(narrow(&mut from)?),
                needed: narrow(&mut from)?,
            });
        }
        Ok(edit)
    }

    /// The same as a checkpoint, of a copy that holds `held` bytes of a log segment.
    #[must_use]
    pub fn to_checkpoint(&self, held: impl Fn(&RingSegment) -> u32) -> Self {
        let mut edit = self.clone();
        edit.checkpoint = true;
        edit.logs.iter_mut().for_each(|log| log.needed = held(log));
        edit
    }

    /// All segments that it names.
    pub fn numbers(&self) -> impl Iterator<Item = SegmentNumber> {
        let image = self.image.iter().map(|part| part.number);
        image.chain(self.logs.iter().map(|log| log.number))
    }

    /// The log segment of this number.
    #[must_use]
    pub fn log(&self, number: SegmentNumber) -> Option<&RingSegment> {
        self.logs.iter().find(|log| log.number == number)
    }

    /// The part of the image of this number.
    #[must_use]
    pub fn part(&self, number: SegmentNumber) -> Option<&ImagePart> {
        self.image.iter().find(|part| part.number == number)
    }
}

impl ImagePart {
    /// The part that has `bytes`.
    #[must_use]
    pub fn of(region: RegionId, number: SegmentNumber, epoch: Epoch, bytes: &[u8]) -> Self {
        let identity = Identity {
            kind: Kind::Segment,
            region,
            segment: number,
            epoch,
            offset: 0,
        };
        Self {
            number,
            epoch,
            len: u32::try_from(bytes.len()).expect("a segment is short"),
            checksum: identity.checksum(bytes),
        }
    }

    /// Whether `bytes` are those of the part.
    #[must_use]
    pub fn is_of(&self, region: RegionId, bytes: &[u8]) -> bool {
        Self::of(region, self.number, self.epoch, bytes) == *self
    }
}

const fn identity() -> Identity {
    Identity::of_server(Kind::Manifest, 0)
}

/// The next number, where it has 32 bits.
fn narrow(from: &mut Reader<'_>) -> Result<u32, Malformed> {
    u32::try_from(from.varint()?).map_err(|_| from.malformed())
}
