//! The bytes of a manifest: records, cut in fragments of whole blocks.
//!
//! ```text
//! 0         4         6       7      8            16      20       24    28         32
//! +---------+---------+-------+------+------------+-------+--------+-----+----------+---------
//! | crc32c  | version | flags | zero | generation | index | append | len | previous | payload …
//! +---------+---------+-------+------+------------+-------+--------+-----+----------+---------
//!                                         … payload, zeros up to the end of the block
//!
//! fragment := header  len bytes of a record  zeros
//! record   := fragment (first) fragment* fragment (last)    -- one fragment may be both
//! append   := record+                                       -- written in one go, then synced
//! payload  := edit: string  count  (number: varint  place: u32)*
//! flags    := 1 first | 2 last | 4 last of its append | 8 witness
//! ```
//!
//! The first [`WITNESSES_BYTES`] of the first segment of the chain are not part of appends. They are two blocks for
//! *witnesses*, written in turn, each synced after it is written. A witness is a fragment without payload whose `index`
//! says how many fragments of the generation were durable before it was written; its `append` and `previous` are 0. The
//! one with the higher index counts. They are zeros when the generation begins. Since the other is older and whole, a
//! torn witness takes nothing with it.
//!
//! Integers are little-endian. A fragment begins at a block and ends at or before the end of its
//! segment; where a record goes on in the next segment of the chain, so does its next fragment.
//! What makes a fragment the one that is looked for, and not one of an earlier life of the same
//! blocks:
//!
//! - `crc32c` covers everything behind it up to the end of the last block, with the identity
//!   (manifest, region, generation, offset in its segment);
//! - `generation` is the catalog's, `index` counts the generation's fragments, `append` its appends;
//! - `previous` is the checksum of the fragment before, 0 for the first.

use argosy_base::codec::{Malformed, Reader, put_string, put_varint, varint_len};
use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{DeviceSegment, Epoch, Identity, Kind, RegionId, SegmentNumber};

/// The format that is written, and the only one that is read.
pub(super) const VERSION: u16 = 2;
/// Bytes in front of a fragment's payload.
pub(super) const HEADER_BYTES: usize = 32;
/// Longest record: far above the versions of all but the largest stores, far below what exhausts memory. Where all keys
/// are of the longest, it is reached by 250 GiB of level segments, since a version names the keys between them.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 30;

pub(super) const FIRST: u8 = 1;
pub(super) const LAST: u8 = 2;
pub(super) const LAST_OF_APPEND: u8 = 4;
pub(super) const WITNESS: u8 = 8;

/// Witnesses of a generation.
pub(super) const WITNESSES: u32 = 2;
/// Bytes in front of the first fragment of the first segment.
pub(super) const WITNESSES_BYTES: u32 = WITNESSES * WITNESS_BYTES;
/// Bytes of one of them: a block.
pub(super) const WITNESS_BYTES: u32 = 4096;
const _: () = assert!(
    WITNESS_BYTES as usize == BLOCK_SIZE,
    "it is torn by itself alone"
);
const FLAGS: u8 = FIRST | LAST | LAST_OF_APPEND | WITNESS;

const FLAGS_AT: usize = 6;
const PREVIOUS_AT: usize = 28;

const _: () = assert!(HEADER_BYTES < BLOCK_SIZE, "a fragment has room for payload");

/// What is appended for one edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestRecord {
    /// The edit, encoded.
    pub edit: Vec<u8>,
    /// Where this member has the segments that the edit adds.
    pub places: Vec<(SegmentNumber, DeviceSegment)>,
}

impl ManifestRecord {
    /// Bytes of its payload.
    pub(crate) fn payload_len(&self) -> usize {
        let places = self.places.iter();
        let places = places.map(|(number, _)| varint_len(number.0) + size_of::<DeviceSegment>());
        let counts = [self.edit.len(), self.places.len()].map(|count| varint_len(count as u64));
        self.edit.len() + places.sum::<usize>() + counts.iter().sum::<usize>()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.edit.len() + 12 * self.places.len() + 16);
        put_string(&mut out, &self.edit);
        put_varint(&mut out, self.places.len() as u64);
        for (number, place) in &self.places {
            put_varint(&mut out, number.0);
            out.extend_from_slice(&place.0.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new("manifest record", bytes);
        let edit = from.string(bytes.len())?.to_vec();
        // Every place takes at least 5 bytes: a count beyond what is left is a lie.
        let count = from.length(from.rest().len())?;
        let mut places = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            let number = SegmentNumber(from.varint()?);
            places.push((number, DeviceSegment(from.u32()?)));
        }
        from.finish()?;
        Ok(Self { edit, places })
    }
}

/// A position in a generation, and what the fragment there continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    generation: u64,
    /// Index in the chain of the segment.
    pub(super) segment: usize,
    /// Byte in the segment, a whole block.
    pub(super) offset: u32,
    /// Of the next fragment.
    pub(super) index: u32,
    /// Of the next append.
    pub(super) append: u32,
    /// Checksum of the fragment before.
    pub(super) previous: u32,
}

impl Cursor {
    /// The beginning of a generation.
    pub(super) const fn new(generation: u64) -> Self {
        Self {
            generation,
            segment: 0,
            offset: WITNESSES_BYTES,
            index: 0,
            append: 0,
            previous: 0,
        }
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of the chain in front of the cursor.
    pub(super) const fn bytes(&self, segment_bytes: u32) -> u64 {
        self.segment as u64 * segment_bytes as u64 + self.offset as u64
    }
}

/// The identity of the fragment at `offset` of a segment of the chain.
pub(super) fn identity(region: RegionId, generation: u64, offset: u32) -> Identity {
    Identity {
        kind: Kind::Manifest,
        region,
        segment: SegmentNumber(generation),
        epoch: Epoch(0),
        offset,
    }
}

/// Bytes of one segment of the chain that belong to one append.
pub(super) struct Part {
    /// Index of the segment in the chain.
    pub(super) segment: usize,
    /// Where in the segment.
    pub(super) offset: u32,
    /// Whole blocks.
    pub(super) bytes: Vec<u8>,
}

/// Cuts the records of one append into fragments.
pub(super) struct Writer {
    region: RegionId,
    segment_bytes: u32,
    /// Behind the last fragment.
    cursor: Cursor,
    /// Not sealed yet: checksums wait for the last flag.
    fragments: Vec<Part>,
}

impl Writer {
    /// Begins an append at `cursor`.
    pub(super) const fn new(region: RegionId, cursor: Cursor, segment_bytes: u32) -> Self {
        Self {
            region,
            segment_bytes,
            cursor,
            fragments: Vec::new(),
        }
    }

    /// Adds a record.
    pub(super) fn put(&mut self, record: &ManifestRecord) {
        let payload = record.encode();
        debug_assert_eq!(payload.len(), record.payload_len());
        let mut rest = payload.as_slice();
        let mut flags = FIRST;
        loop {
            if self.cursor.offset >= self.segment_bytes {
                self.cursor.segment += 1;
                self.cursor.offset = 0;
            }
            let room = (self.segment_bytes - self.cursor.offset) as usize - HEADER_BYTES;
            let (now, later) = rest.split_at(rest.len().min(room));
            if later.is_empty() {
                self.put_fragment(flags | LAST, now);
                return;
            }
            self.put_fragment(flags, now);
            rest = later;
            flags = 0;
        }
    }

    fn put_fragment(&mut self, flags: u8, payload: &[u8]) {
        let len = u32::try_from(payload.len()).expect("at most a segment");
        let at = &self.cursor;
        let words = [at.index, at.append, len, 0];
        let bytes = unsealed(flags, at.generation, words, payload);
        let blocks = u32::try_from(bytes.len()).expect("at most a segment");
        self.fragments.push(Part {
            segment: self.cursor.segment,
            offset: self.cursor.offset,
            bytes,
        });
        self.cursor.offset += blocks;
        self.cursor.index += 1;
    }

    /// How many segments the chain needs for what was put.
    pub(super) const fn segments(&self) -> usize {
        self.cursor.segment + 1
    }

    /// Seals the append: what to write, at most one part for each segment of the chain, and where
    /// the next append begins.
    pub(super) fn finish(mut self) -> (Vec<Part>, Cursor) {
        let last = self.fragments.last_mut().expect("an append has records");
        last.bytes[FLAGS_AT] |= LAST_OF_APPEND;
        let mut parts: Vec<Part> = Vec::new();
        for mut fragment in self.fragments {
            let previous = self.cursor.previous.to_le_bytes();
            fragment.bytes[PREVIOUS_AT..HEADER_BYTES].copy_from_slice(&previous);
            self.cursor.previous = seal(self.region, self.cursor.generation, &mut fragment);
            match parts.last_mut() {
                Some(part) if part.segment == fragment.segment => {
                    part.bytes.extend_from_slice(&fragment.bytes);
                }
                _ => parts.push(fragment),
            }
        }
        self.cursor.append += 1;
        (parts, self.cursor)
    }
}

/// The bytes of a fragment, in whole blocks, without its checksum.
fn unsealed(flags: u8, generation: u64, words: [u32; 4], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + BLOCK_SIZE);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[flags, 0]);
    bytes.extend_from_slice(&generation.to_le_bytes());
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    debug_assert_eq!(bytes.len(), HEADER_BYTES);
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
    bytes
}

/// Writes the checksum into `fragment`, and returns it.
fn seal(region: RegionId, generation: u64, fragment: &mut Part) -> u32 {
    let identity = identity(region, generation, fragment.offset);
    let crc = identity.checksum(&fragment.bytes[4..]);
    fragment.bytes[..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The blocks of witnesses of a generation that has none yet.
pub(super) fn no_witnesses() -> Part {
    Part {
        segment: 0,
        offset: 0,
        bytes: vec![0; WITNESSES_BYTES as usize],
    }
}

/// The witness in block `place` that all in front of `cursor` is durable.
pub(super) fn witness(region: RegionId, cursor: &Cursor, place: u32) -> Part {
    let words = [cursor.index, 0, 0, 0];
    let mut part = Part {
        segment: 0,
        offset: place * WITNESS_BYTES,
        bytes: unsealed(WITNESS, cursor.generation, words, &[]),
    };
    seal(region, cursor.generation, &mut part);
    part
}

/// A fragment whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment<'a> {
    pub(super) crc: u32,
    pub(super) version: u16,
    pub(super) flags: u8,
    pub(super) index: u32,
    pub(super) append: u32,
    pub(super) previous: u32,
    pub(super) payload: &'a [u8],
    /// Bytes that it takes, whole blocks.
    pub(super) blocks: u32,
}

impl<'a> Fragment<'a> {
    /// The fragment of `generation` that begins at `offset` of `segment`, which holds the bytes of
    /// a segment of the chain. `None` where there is none.
    pub(super) fn parse(
        region: RegionId,
        generation: u64,
        segment: &'a [u8],
        offset: u32,
    ) -> Option<Self> {
        let bytes = segment.get(offset as usize..)?;
        let mut from = Reader::new("manifest fragment", bytes);
        let crc = from.u32().ok()?;
        let version = from.u16().ok()?;
        let flags = from.u8().ok()?;
        let zero = from.u8().ok()?;
        if from.u64().ok()? != generation {
            return None;
        }
        let index = from.u32().ok()?;
        let append = from.u32().ok()?;
        let len = from.u32().ok()? as usize;
        let previous = from.u32().ok()?;
        let blocks = HEADER_BYTES.checked_add(len)?.next_multiple_of(BLOCK_SIZE);
        let covered = bytes.get(4..blocks)?;
        if identity(region, generation, offset).checksum(covered) != crc {
            return None;
        }
        // What is checked now was written by a program. One of this format sets no other bits.
        let known = flags & !FLAGS == 0 && zero == 0;
        Some(Self {
            crc,
            version: match version {
                VERSION if !known => VERSION + 1,
                version => version,
            },
            flags,
            index,
            append,
            previous,
            payload: &bytes[HEADER_BYTES..HEADER_BYTES + len],
            blocks: u32::try_from(blocks).ok()?,
        })
    }

    /// Whether what stands at `offset` of `segment` was to be the fragment at cursor `at`, though it
    /// is none: damage may have hit any one word of its header, so two of the three that tell a
    /// fragment from all others are enough. A whole fragment of an earlier life is not meant.
    pub(super) fn was_meant(
        region: RegionId,
        generation: u64,
        segment: &[u8],
        offset: u32,
        at: &Cursor,
    ) -> bool {
        let header = segment.get(offset as usize..).unwrap_or_default();
        let word = |from: usize| Some(u32::from_le_bytes(*header.get(from..)?.first_chunk()?));
        let own = header
            .get(8..)
            .and_then(|rest| Some(u64::from_le_bytes(*rest.first_chunk()?)));
        if own.is_none_or(|own| Fragment::parse(region, own, segment, offset).is_some()) {
            return false;
        }
        let agree = [
            own == Some(generation),
            word(16) == Some(at.index),
            word(PREVIOUS_AT) == Some(at.previous),
        ];
        agree.iter().filter(|agrees| **agrees).count() >= 2
    }
}
