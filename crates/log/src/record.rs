//! Log records: their bytes.
//!
//! ```text
//! record := kind: u8  crc: u32  lsn  key_len  value_len  [expiry: u64]  [client: u64  seq]
//!           key: [u8; key_len]  value: [u8; value_len]
//!
//! 0      1             5
//! +------+-------------+-----+---------+-----------+----------+------------+-----+-------+
//! | kind | crc32c      | lsn | key_len | value_len | [expiry] | [client ..]| key | value |
//! +------+-------------+-----+---------+-----------+----------+------------+-----+-------+
//!
//! kind, bits 0-2:  0 pad, 1 put, 2 delete, 3 mark, 4 time, 5 delete range, 6 closing mark
//!       bit 3 (0x08) more:   the group goes on with the next LSN
//!       bit 4 (0x10) expiry: the pair expires
//!       bit 5 (0x20) client: the group is a client's request of this sequence number; in its first record
//!       bit 6 (0x40) chunk:  the value goes on in the next LSN's record of the same log
//!       bit 7 is zero
//! ```
//!
//! What has no width is a variable-length integer of [`argosy_base::codec`]. `lsn` counts from the
//! segment's base LSN. The checksum covers the record without the checksum, under the identity
//! (`Kind::LogRecord`, region, segment, epoch, offset of the record). In front of a small pair
//! stand at most 12 bytes: kind 1, checksum 4, LSN up to 4, key length 1 or 2, value length 1.
//!
//! - A *put* binds a key to a value. A value in *chunks* is a run of puts with consecutive LSNs: all
//!   but the last have `chunk` (and `more`), all but the first have no key.
//! - A *delete* has no value.
//! - A *mark* has no LSN of its own, no key and no value, and no flags: its `lsn`, an absolute number,
//!   says that this LSN and all below were durable when it was written. A range that is flushed begins with
//!   one, and a clean end puts one behind the log, at a block's or segment's start, in the device alone.
//! - A *closing mark* is a mark that also says that its window holds nothing behind it: zeros up to the end of the
//!   window are padding. Whole blocks of zeros without one in front of them stand behind the end of the log, or
//!   where a device has lost a write.
//! - A *time* has an LSN, and an expiry that is none: from here on the region's time is not below it. It
//!   has no key and no value, and is a group by itself.
//! - A *delete range* removes all keys from its key on and below its value, which is a key, too, or the
//!   successor of one; where it has no value, all keys from its key on. It may be cut into chunks.
//! - A *pad* is a zero byte and no record: what follows, up to the end of its block, is zero. Where it is not, a record
//!   was damaged.

use argosy_base::codec::{Reader, put_varint, varint_len};
use argosy_base::limits::{BLOCK_SIZE, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{ClientId, Identity, Lsn, RequestName};

const KIND_MASK: u8 = 0x07;
const MORE: u8 = 0x08;
const EXPIRY: u8 = 0x10;
const CLIENT: u8 = 0x20;
const CHUNK: u8 = 0x40;
const RESERVED: u8 = 0x80;

/// Where the checksum lies in a record.
const CRC: std::ops::Range<usize> = 1..5;
/// Most bytes of a variable-length integer.
const VARINT_BYTES_MAX: usize = 10;

/// Most bytes in front of a record's key: kind and checksum, LSN, the two lengths, and the options.
pub const HEADER_BYTES_MAX: usize = CRC.end
    + VARINT_BYTES_MAX
    + varint_len(KEY_BYTES_MAX as u64)
    + varint_len(VALUE_BYTES_MAX as u64)
    + 8
    + 8
    + VARINT_BYTES_MAX;

/// What a record does. DO NOT CHANGE THE VALUES: they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// Binds a key to a value, or continues a value.
    Put = 1,
    /// Removes a key.
    Delete = 2,
    /// Tells how far the history was durable.
    Mark = 3,
    /// Tells the region's time.
    Time = 4,
    /// Removes a range of keys.
    DeleteRange = 5,
    /// A mark behind which its window holds nothing.
    ClosingMark = 6,
}

impl RecordKind {
    /// Whether it tells how far the history was durable, and is no part of the history.
    #[inline]
    #[must_use]
    pub const fn is_mark(self) -> bool {
        matches!(self, Self::Mark | Self::ClosingMark)
    }
}

/// A record, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it does.
    pub kind: RecordKind,
    /// Its LSN; of a mark: the LSN that it declares durable.
    pub lsn: Lsn,
    /// The group goes on with the next LSN.
    pub more: bool,
    /// The value goes on with the next LSN.
    pub chunk: bool,
    /// When the pair expires, in milliseconds of the region's time.
    pub expiry: Option<u64>,
    /// Whose request it is, so that it is recognised when it is sent again.
    pub request: Option<RequestName>,
    /// The key; empty in a mark and where a value is continued.
    pub key: &'a [u8],
    /// The value, or the part of it.
    pub value: &'a [u8],
}

/// What stands at a place where a record may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A record, and how many bytes it takes.
    Record(Record<'a>, usize),
    /// Padding: the next record, if any, begins at the next block or later.
    Pad,
    /// Not a record of this place.
    Invalid,
}

impl<'a> Record<'a> {
    /// A put without options, alone in its group.
    #[must_use]
    pub const fn put(lsn: Lsn, key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            kind: RecordKind::Put,
            lsn,
            more: false,
            chunk: false,
            expiry: None,
            request: None,
            key,
            value,
        }
    }

    /// A delete without options, alone in its group.
    #[must_use]
    pub const fn delete(lsn: Lsn, key: &'a [u8]) -> Self {
        Self {
            kind: RecordKind::Delete,
            ..Self::put(lsn, key, &[])
        }
    }

    /// A delete of all keys from `from` on and below `to`, where there is one; alone in its group.
    #[must_use]
    pub const fn delete_range(lsn: Lsn, from: &'a [u8], to: Option<&'a [u8]>) -> Self {
        let to = match to {
            Some(to) => to,
            None => &[],
        };
        Self {
            kind: RecordKind::DeleteRange,
            ..Self::put(lsn, from, to)
        }
    }

    /// The region's time is `time` from here on.
    #[must_use]
    pub const fn time(lsn: Lsn, time: u64) -> Self {
        Self {
            kind: RecordKind::Time,
            expiry: Some(time),
            ..Self::put(lsn, &[], &[])
        }
    }

    /// A mark: everything up to `durable` is durable.
    #[must_use]
    pub const fn mark(durable: Lsn) -> Self {
        Self {
            kind: RecordKind::Mark,
            ..Self::put(durable, &[], &[])
        }
    }

    /// A mark behind which its window holds nothing.
    #[must_use]
    pub const fn closing_mark(durable: Lsn) -> Self {
        Self {
            kind: RecordKind::ClosingMark,
            ..Self::mark(durable)
        }
    }

    /// Bytes in front of the key in a segment that counts LSNs from `base`.
    #[inline]
    #[must_use]
    pub fn header_len(&self, base: Lsn) -> usize {
        CRC.end
            + varint_len(self.stored_lsn(base))
            + varint_len(self.key.len() as u64)
            + varint_len(self.value.len() as u64)
            + self.expiry.map_or(0, |_| 8)
            + self
                .request
                .map_or(0, |request| 8 + varint_len(request.seq))
    }

    /// Bytes of the whole record in a segment that counts LSNs from `base`.
    #[inline]
    #[must_use]
    pub fn encoded_len(&self, base: Lsn) -> usize {
        self.header_len(base) + self.key.len() + self.value.len()
    }

    /// The LSN as it is stored: marks are absolute, since what they declare may lie before `base`.
    #[inline]
    fn stored_lsn(&self, base: Lsn) -> u64 {
        if self.kind.is_mark() {
            return self.lsn.0;
        }
        assert!(self.lsn >= base, "no record lies before its segment's base");
        self.lsn.0 - base.0
    }

    /// Appends the record's bytes, as they stand at `here` in a segment that counts from `base`.
    ///
    /// # Panics
    /// When the record is none that [`decode`] accepts, or its LSN lies below `base`.
    pub fn encode(&self, here: Identity, base: Lsn, out: &mut Vec<u8>) {
        assert!(self.is_well_formed(), "only what can be read is written");
        let start = out.len();
        let kind = self.kind_byte();
        out.extend_from_slice(&[kind, 0, 0, 0, 0]);
        put_varint(out, self.stored_lsn(base));
        put_varint(out, self.key.len() as u64);
        put_varint(out, self.value.len() as u64);
        if let Some(expiry) = self.expiry {
            out.extend_from_slice(&expiry.to_le_bytes());
        }
        if let Some(request) = self.request {
            out.extend_from_slice(&request.client.0.to_le_bytes());
            put_varint(out, request.seq);
        }
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        let crc = checksum(here, kind, &out[start + CRC.end..]);
        out[start..][CRC].copy_from_slice(&crc.to_le_bytes());
    }

    fn kind_byte(&self) -> u8 {
        self.kind as u8
            | if self.more { MORE } else { 0 }
            | if self.expiry.is_some() { EXPIRY } else { 0 }
            | if self.request.is_some() { CLIENT } else { 0 }
            | if self.chunk { CHUNK } else { 0 }
    }

    /// The rules of the module documentation that are about more than one field.
    fn is_well_formed(&self) -> bool {
        let plain = !self.more && !self.chunk && self.expiry.is_none() && self.request.is_none();
        let lengths = self.key.len() <= KEY_BYTES_MAX && self.value.len() <= VALUE_BYTES_MAX;
        lengths
            && match self.kind {
                RecordKind::Put => self.more || !self.chunk,
                RecordKind::Delete => !self.chunk && !self.key.is_empty() && self.value.is_empty(),
                RecordKind::DeleteRange => {
                    let cut = self.more || !self.chunk;
                    cut && self.expiry.is_none() && self.value.len() <= KEY_BYTES_MAX + 1
                }
                RecordKind::Mark | RecordKind::ClosingMark => {
                    plain && self.key.is_empty() && self.value.is_empty()
                }
                RecordKind::Time => {
                    let alone = !self.more && !self.chunk && self.request.is_none();
                    alone && self.expiry.is_some() && self.key.is_empty() && self.value.is_empty()
                }
            }
    }
}

/// Reads what stands at the front of `bytes`, which is `here` in a segment that counts LSNs from
/// `base`. Bytes that follow the record are not looked at.
#[must_use]
pub fn decode(bytes: &[u8], here: Identity, base: Lsn) -> Decoded<'_> {
    match bytes.first() {
        None => Decoded::Invalid,
        Some(0) => match is_padding(bytes, here.offset) {
            true => Decoded::Pad,
            false => Decoded::Invalid,
        },
        Some(_) => match parse(bytes, base) {
            Some((record, len)) if crc_matches(&bytes[..len], here) => Decoded::Record(record, len),
            _ => Decoded::Invalid,
        },
    }
}

/// The record that `bytes` begin with, for those who look at every byte; see [`decode`]. No record begins with a zero,
/// and whether zeros are padding, which takes reading the rest of the block, is of no interest there.
pub(super) fn record_at(bytes: &[u8], here: Identity, base: Lsn) -> Option<(Record<'_>, usize)> {
    match bytes.first() {
        None | Some(0) => None,
        Some(_) => match decode(bytes, here, base) {
            Decoded::Record(record, len) => Some((record, len)),
            Decoded::Pad | Decoded::Invalid => None,
        },
    }
}

/// Whether `bytes`, which stand at `offset` of a segment, are zero up to the end of their block.
fn is_padding(bytes: &[u8], offset: u32) -> bool {
    const ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];
    let in_block = BLOCK_SIZE - offset as usize % BLOCK_SIZE;
    let len = bytes.len().min(in_block);
    bytes[..len] == ZEROS[..len]
}

/// Reads a record whose checksum has been verified before; see [`decode`].
pub(super) fn parse(bytes: &[u8], base: Lsn) -> Option<(Record<'_>, usize)> {
    let mut from = Reader::new("log record", bytes);
    let kind_byte = from.u8().ok()?;
    let kind = match kind_byte & KIND_MASK {
        1 => RecordKind::Put,
        2 => RecordKind::Delete,
        3 => RecordKind::Mark,
        4 => RecordKind::Time,
        5 => RecordKind::DeleteRange,
        6 => RecordKind::ClosingMark,
        _ => return None,
    };
    if kind_byte & RESERVED != 0 {
        return None;
    }
    from.u32().ok()?;
    let stored = from.varint().ok()?;
    let lsn = match kind.is_mark() {
        true => stored,
        false => base.0.checked_add(stored)?,
    };
    let key_len = from.length(KEY_BYTES_MAX).ok()?;
    let value_len = from.length(VALUE_BYTES_MAX).ok()?;
    let expiry = match kind_byte & EXPIRY {
        0 => None,
        _ => Some(from.u64().ok()?),
    };
    let request = match kind_byte & CLIENT {
        0 => None,
        _ => Some(RequestName {
            client: ClientId(from.u64().ok()?),
            seq: from.varint().ok()?,
        }),
    };
    let record = Record {
        kind,
        lsn: Lsn(lsn),
        more: kind_byte & MORE != 0,
        chunk: kind_byte & CHUNK != 0,
        expiry,
        request,
        key: from.take(key_len).ok()?,
        value: from.take(value_len).ok()?,
    };
    record.is_well_formed().then_some((record, from.position()))
}

fn crc_matches(record: &[u8], here: Identity) -> bool {
    let mut stored = [0; 4];
    stored.copy_from_slice(&record[CRC]);
    u32::from_le_bytes(stored) == checksum(here, record[0], &record[CRC.end..])
}

fn checksum(here: Identity, kind: u8, rest: &[u8]) -> u32 {
    here.checksum_of([&[kind][..], rest].into_iter())
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
