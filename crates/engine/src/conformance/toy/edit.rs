//! An edit states everything that a copy consists of: an image of the map, and the log segments behind it. So an edit
//! and a checkpoint differ in one flag, and a copy may miss an edit.
//!
//! ```text
//! edit    := magic: u32 = "TOYE"  version: u32 = 1  checksum: u32 (of what follows)
//!            seq: u64  epoch: u32  checkpoint: u8  last: u64  time: u64  next number: u64
//!            image bytes: u64  parts: u32  part[parts]  logs: u32  log[logs]
//! part    := number: u64  epoch: u32  len: u32  checksum: u32
//! log     := ordinal: u64  number: u64  epoch: u32  needed: u32
//! image   := pair[]                                  cut into parts anywhere, the last one filled up with zeros
//! pair    := lsn: varint  expiry: varint  key: string  value: string
//! ```
//!
//! Everything up to the LSN `last` is in the image, at the region's `time`. `needed` bytes of a log have to be here
//! before the edit is applied (I3). Expiries are as in records of the log.

use std::collections::BTreeMap;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{EditSeq, Epoch, Identity, KeyRange, Kind, Lsn, Moment, RegionId, SegmentNumber};

use super::map::{Entry, Map};

const MAGIC: u32 = u32::from_le_bytes(*b"TOYE");
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;
/// Bound of a decoded list: more than any edit has, and little memory.
const LIST_MAX: u32 = 64 << 10;

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
    /// Bytes of the image, without the zeros behind it.
    pub image_bytes: u64,
    /// Where the image is.
    pub image: Vec<ImagePart>,
    /// The log behind it.
    pub logs: Vec<RingSegment>,
}

impl ToyEdit {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.seq.0.to_le_bytes());
        body.extend_from_slice(&self.epoch.0.to_le_bytes());
        body.push(u8::from(self.checkpoint));
        body.extend_from_slice(&self.last.0.to_le_bytes());
        body.extend_from_slice(&self.time.0.to_le_bytes());
        body.extend_from_slice(&self.next_number.0.to_le_bytes());
        body.extend_from_slice(&self.image_bytes.to_le_bytes());
        put_count(&mut body, self.image.len());
        for part in &self.image {
            body.extend_from_slice(&part.number.0.to_le_bytes());
            body.extend_from_slice(&part.epoch.0.to_le_bytes());
            body.extend_from_slice(&part.len.to_le_bytes());
            body.extend_from_slice(&part.checksum.to_le_bytes());
        }
        put_count(&mut body, self.logs.len());
        for log in &self.logs {
            body.extend_from_slice(&log.ordinal.to_le_bytes());
            body.extend_from_slice(&log.number.0.to_le_bytes());
            body.extend_from_slice(&log.epoch.0.to_le_bytes());
            body.extend_from_slice(&log.needed.to_le_bytes());
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&checksum(&body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    /// Reads an edit. What is behind it is not looked at.
    ///
    /// # Errors
    /// The bytes are no edit.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new("toy edit", bytes);
        if (from.u32()?, from.u32()?) != (MAGIC, VERSION) {
            return Err(from.malformed());
        }
        let expected = from.u32()?;
        let mut edit = Self {
            seq: EditSeq(from.u64()?),
            epoch: Epoch(from.u32()?),
            checkpoint: from.u8()? != 0,
            last: Lsn(from.u64()?),
            time: Moment(from.u64()?),
            next_number: SegmentNumber(from.u64()?),
            image_bytes: from.u64()?,
            ..Self::default()
        };
        for _ in 0..count(&mut from)? {
            edit.image.push(ImagePart {
                number: SegmentNumber(from.u64()?),
                epoch: Epoch(from.u32()?),
                len: from.u32()?,
                checksum: from.u32()?,
            });
        }
        for _ in 0..count(&mut from)? {
            edit.logs.push(RingSegment {
                ordinal: from.u64()?,
                number: SegmentNumber(from.u64()?),
                epoch: Epoch(from.u32()?),
                needed: from.u32()?,
            });
        }
        match checksum(&bytes[HEADER_BYTES..from.position()]) == expected {
            true => Ok(edit),
            false => Err(from.malformed()),
        }
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
}

impl ImagePart {
    /// The checksum of `bytes`, all of the part.
    #[must_use]
    pub fn checksum_of(region: RegionId, number: SegmentNumber, epoch: Epoch, bytes: &[u8]) -> u32 {
        let identity = Identity {
            kind: Kind::Segment,
            region,
            segment: number,
            epoch,
            offset: 0,
        };
        identity.checksum(bytes)
    }

    /// Whether `bytes` are those of the part.
    #[must_use]
    pub fn is_of(&self, region: RegionId, bytes: &[u8]) -> bool {
        bytes.len() == self.len as usize
            && Self::checksum_of(region, self.number, self.epoch, bytes) == self.checksum
    }
}

/// The bytes of an image of `map`, without what has expired.
pub(super) fn encode_image(map: &Map) -> Vec<u8> {
    let mut out = Vec::new();
    let lives = |entry: &Entry| entry.expiry.is_none_or(|expiry| expiry > map.time);
    let pairs = map.bound(&KeyRange::all());
    for (key, entry) in pairs.filter(|(_, entry)| lives(entry)) {
        put_varint(&mut out, entry.lsn.0);
        put_varint(&mut out, entry.expiry.map_or(0, |moment| moment.0 + 1));
        put_string(&mut out, key);
        put_string(&mut out, entry.value.as_deref().unwrap_or_default());
    }
    out
}

/// The map of which `bytes` are the image, as of the LSN and time that `edit` states.
pub(super) fn decode_image(edit: &ToyEdit, bytes: &[u8]) -> Result<Map, Malformed> {
    let mut from = Reader::new("toy image", bytes);
    let mut pairs = BTreeMap::new();
    while !from.rest().is_empty() {
        let lsn = Lsn(from.varint()?);
        let expiry = from.varint()?.checked_sub(1).map(Moment);
        let key = from.string(KEY_BYTES_MAX)?.to_vec();
        let value = Some(from.string(VALUE_BYTES_MAX)?.into());
        pairs.insert(key, Entry { value, expiry, lsn });
    }
    Ok(Map::of(pairs, edit.last, edit.time))
}

fn checksum(body: &[u8]) -> u32 {
    Identity::of_server(Kind::Manifest, 0).checksum(body)
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("an edit is short");
    out.extend_from_slice(&count.to_le_bytes());
}

fn count(from: &mut Reader<'_>) -> Result<u32, Malformed> {
    let count = from.u32()?;
    match count <= LIST_MAX {
        true => Ok(count),
        false => Err(from.malformed()),
    }
}
