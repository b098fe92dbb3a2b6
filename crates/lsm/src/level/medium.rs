//! A segment of the medium log: values of medium pairs, in the order of their keys.
//!
//! A flush puts medium values here, one behind the other, and pointers to them into its leaves. Such a
//! segment is finished like a segment of a level, and is numbered, shipped and named by an edit in the
//! same way; it belongs to no level, and goes when no level points into it any more.
//!
//! ```text
//! 0          len + 4                                         table           len-128   len
//! +----------+----------+--- ... ---+------------------------+-------+-- ... --+--------+
//! | record 0 | record 1 |           | record of the last key | table | 0       | footer |
//! +----------+----------+--- ... ---+------------------------+-------+-- ... --+--------+
//!
//! record := crc32c: u32  value
//! ```
//!
//! Table and footer are those of a level segment ([`format`](mod@super::format)): `leaves` and `entries`
//! both count the records, `leaves_len` their bytes, and the table has the first and the last key. No
//! record crosses the end of a page of 4 KiB that could lie in one, so that whoever reads values one by
//! one can read and cache pages. Between records is zero. Records have neither keys nor lengths: the leaf
//! that points to one has both. A record's `crc32c` covers the key and the value, under the identity
//! (medium, where the record begins), so that one that is read by itself is known to be whole, to lie
//! where it was written, and to be that of the key (I2).
//! A segment that holds no pointer has the same bytes on every member, in both address modes.

use std::ops::Range;

use argosy_base::Kind;
use argosy_base::limits::BLOCK_SIZE;
use argosy_device::Buffer;

use super::builder::{BuiltSegment, with_footer};
use super::format::{FOOTER_BYTES, Footer, Table};
use super::verify::{Fault, of_error};
use crate::names::{Form, LevelError, NODE_BYTES_MIN, SegmentName};

/// Bytes of a record in front of its value.
const CRC_BYTES: usize = 4;
/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4 << 10;
const PAGE: usize = PAGE_BYTES as usize;
const _: () = assert!(PAGE.is_multiple_of(BLOCK_SIZE));

/// Bytes of the record of a value of `value_len` bytes.
#[inline]
#[must_use]
pub(crate) const fn record_len(value_len: usize) -> usize {
    CRC_BYTES + value_len
}

/// A medium segment that is being filled.
#[derive(Debug)]
pub struct MediumBuilder {
    name: SegmentName,
    out: Buffer,
    /// Bytes of the records so far.
    end: usize,
    entries: u32,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

impl MediumBuilder {
    /// An empty segment of at most `segment_bytes`, whole blocks.
    #[must_use]
    pub fn new(name: SegmentName, segment_bytes: usize) -> Self {
        Self {
            name,
            out: Buffer::zeroed(segment_bytes),
            end: 0,
            entries: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
        }
    }

    /// Adds the value of `key`, which is above the last one, and tells where its record begins; or
    /// `None`, and nothing was changed, when the segment is full. An empty one takes any value of up to
    /// a quarter of a node.
    #[inline]
    #[must_use = "a value that did not fit belongs into the next segment"]
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Option<u32> {
        let record = record_len(value.len());
        let first = match self.entries {
            0 => key.len(),
            _ => self.first_key.len(),
        };
        let behind = Table::len_max(first, key.len(), 0) + FOOTER_BYTES;
        let begin = match PAGE - self.end % PAGE < record {
            true => self.end.next_multiple_of(PAGE),
            false => self.end,
        };
        if begin + record + behind > self.out.len() {
            return None;
        }
        let at = u32::try_from(begin).expect("offsets in a segment are below 2 MiB");
        let crc = checksum(self.name, at, key, value);
        let out = &mut self.out[begin..begin + record];
        out[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        out[CRC_BYTES..].copy_from_slice(value);
        self.end = begin + record;
        if self.entries == 0 {
            self.first_key.extend_from_slice(key);
        }
        self.entries += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Some(at)
    }

    /// Closes the segment.
    ///
    /// # Panics
    /// When it is empty.
    #[must_use]
    pub fn finish(mut self) -> BuiltSegment {
        assert!(self.entries > 0, "no segment is empty");
        let Self { name, end, .. } = self;
        let narrow = |value: usize| u32::try_from(value).expect("a segment has at most 2 MiB");
        let table = Table {
            first_key: self.first_key,
            last_key: self.last_key,
            log_refs: Vec::new(),
        };
        let encoded = table.encode(name, narrow(end));
        let table_end = end + encoded.len();
        self.out[end..table_end].copy_from_slice(&encoded);
        let footer = Footer {
            form: Form::Medium,
            node_bytes: narrow(NODE_BYTES_MIN),
            leaves: self.entries,
            entries: self.entries,
            tombstones: 0,
            index_len: 0,
            filter_len: 0,
            table_len: narrow(encoded.len()),
            leaves_len: narrow(end),
        };
        let bytes = with_footer(self.out, table_end, &footer, name);
        BuiltSegment {
            name,
            form: Form::Medium,
            checksum: name.checksum(&bytes),
            bytes,
            entries: self.entries,
            tombstones: 0,
            first_key: table.first_key,
            last_key: table.last_key,
            large_bytes: 0,
            medium_bytes: 0,
            log_refs: Vec::new(),
            nodes: Vec::new(),
        }
    }
}

#[inline]
fn checksum(name: SegmentName, at: u32, key: &[u8], value: &[u8]) -> u32 {
    let parts = [key, value];
    name.identity(Kind::Medium, at)
        .checksum_of(parts.into_iter())
}

/// The value of `key` in `record`, the bytes of its record, which begins at byte `at` of segment `name`.
///
/// # Errors
/// [`LevelError::Corrupt`] where they are not.
#[inline]
pub(crate) fn value_in<'r>(
    name: SegmentName,
    at: u32,
    key: &[u8],
    record: &'r [u8],
) -> Result<&'r [u8], LevelError> {
    match record.split_first_chunk::<CRC_BYTES>() {
        Some((crc, value)) if checksum(name, at, key, value).to_le_bytes() == *crc => Ok(value),
        _ => Err(name.corrupt(at, "not the medium value of this key")),
    }
}

/// The pages in which the record of a value lies, of a segment of `len` bytes: one of them, but for a record
/// that is longer.
pub(crate) fn pages(at: u32, value_len: u32, len: u32) -> Option<Range<u32>> {
    let from = at - at % PAGE_BYTES;
    let record = u32::try_from(record_len(value_len as usize)).ok()?;
    let end = at.checked_add(record)?;
    let to = end.checked_next_multiple_of(PAGE_BYTES)?.min(len);
    (end <= to).then_some(from..to)
}

/// Checks footer and table of medium segment `name`, whose bytes are `bytes`. Its values are checked by
/// the keys in the leaves that point to them. Returns how many it holds, where that is known.
#[must_use]
pub fn verify_medium_segment(name: SegmentName, bytes: &Buffer) -> (Option<u32>, Vec<Fault>) {
    match parts(name, bytes) {
        Ok(footer) => (Some(footer.entries), Vec::new()),
        Err(error) => (None, vec![of_error(&error, name, bytes)]),
    }
}

fn parts(name: SegmentName, bytes: &[u8]) -> Result<Footer, LevelError> {
    let impossible = || name.corrupt(0, "the segment has an impossible length");
    let (body, footer) = bytes
        .split_last_chunk::<FOOTER_BYTES>()
        .ok_or_else(impossible)?;
    let at = u32::try_from(body.len()).map_err(|_| impossible())?;
    let footer = Footer::parse(footer, name, at)?;
    let records = u64::from(footer.entries) * CRC_BYTES as u64;
    if footer.form != Form::Medium
        || footer.leaves != footer.entries
        || records > u64::from(footer.leaves_len)
    {
        return Err(name.corrupt(at, "not a medium segment"));
    }
    let [.., from, to] = footer
        .bounds()
        .map(|bound| usize::try_from(bound).unwrap_or(usize::MAX));
    let (table, padding) = body
        .get(from..to)
        .zip(body.get(to..))
        .ok_or_else(impossible)?;
    if padding.iter().any(|byte| *byte != 0) {
        return Err(name.corrupt(at, "a segment's padding is not zero"));
    }
    let table = Table::parse(table, name, footer.leaves_len)?;
    if !table.log_refs.is_empty() {
        return Err(name.corrupt(at, "a medium segment with pointers"));
    }
    Ok(footer)
}
