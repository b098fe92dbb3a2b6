//! One pair of a leaf: how it is written, on the device and in memory.
//!
//! ```text
//! record := flags: u8  key_len: varint  body  [expiry: u64]
//! body   := value_len: varint  rest  value            where flags = 1 (inline)
//!         | value_len: varint  rest  pointer: u64     where flags = 2 (pointer into a log)
//!         | rest                                      where flags = 3 (tombstone)
//! ```
//!
//! `key_len` counts the whole key, `rest` is what of it is kept here: all of it in memory; on the
//! device what follows the first `skip` bytes, which the leaf keeps elsewhere (see
//! [`leaf`](super::leaf)), and nothing of a key that is not longer. With 0x10 in `flags` the pair, which
//! is no tombstone, expires: at `expiry`, in milliseconds of the region's time. 0x20 (an LSN) is reserved;
//! a set bit that is not known is refused.

use argosy_base::codec::{Reader, varint_len};
use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{Moment, Pointer};

use crate::names::{Entry, LEAF_BYTES_MAX};

/// Bytes of a pointer in a record.
const POINTER_BYTES: usize = 8;

pub(super) const INLINE: u8 = 1;
const POINTER: u8 = 2;
const TOMBSTONE: u8 = 3;
/// Beside one of the first two.
const EXPIRES: u8 = 0x10;
/// Bytes of an expiry.
const EXPIRY_BYTES: usize = 8;
const EXPIRING_INLINE: u8 = INLINE | EXPIRES;
const EXPIRING_POINTER: u8 = POINTER | EXPIRES;

/// Bytes of the record of `key`, with the whole of it, and `entry`.
#[inline]
pub(super) fn record_len(key: &[u8], entry: &Entry<'_>) -> usize {
    let expiry = entry.expiry().map_or(0, |_| EXPIRY_BYTES);
    let key_part = 1 + varint_len(key.len() as u64) + key.len() + expiry;
    key_part
        + match entry.lasting() {
            Entry::Inline(value) => varint_len(value.len() as u64) + value.len(),
            Entry::Pointer { value_len, .. } => varint_len(u64::from(value_len)) + POINTER_BYTES,
            Entry::Tombstone | Entry::Until(..) => 0,
        }
}

/// Where a record's parts lie in its leaf. Offsets are below [`LEAF_BYTES_MAX`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    flags: u8,
    key_len: u16,
    /// Where what is kept of the key begins, and the record's head ends.
    key_at: u32,
    /// Where the key ends and the value, if there is one in the leaf, begins.
    value_at: u32,
    end: u32,
    value_len: u32,
}

impl Record {
    /// Finds the parts of the record at `at`, which keeps what follows `skip` bytes of its key.
    /// `None` where it is malformed or reaches past the end.
    #[inline]
    pub(super) fn decode(leaf: &[u8], at: usize, skip: usize) -> Option<Self> {
        let flags = *leaf.get(at)?;
        let mut next = at + 1;
        let key_len = length(leaf, &mut next, KEY_BYTES_MAX)?;
        let (value_len, stored) = match flags {
            INLINE => {
                let len = length(leaf, &mut next, LEAF_BYTES_MAX)?;
                (len, len)
            }
            POINTER => (length(leaf, &mut next, VALUE_BYTES_MAX)?, POINTER_BYTES),
            TOMBSTONE => (0, 0),
            EXPIRING_INLINE => {
                let len = length(leaf, &mut next, LEAF_BYTES_MAX)?;
                (len, len + EXPIRY_BYTES)
            }
            EXPIRING_POINTER => (
                length(leaf, &mut next, VALUE_BYTES_MAX)?,
                POINTER_BYTES + EXPIRY_BYTES,
            ),
            _ => return None,
        };
        let value_at = next + key_len.saturating_sub(skip);
        let end = value_at + stored;
        if end > leaf.len() || leaf.len() > LEAF_BYTES_MAX || key_len == 0 {
            return None;
        }
        // All are at most LEAF_BYTES_MAX or VALUE_BYTES_MAX, far below 2^32; keys are below 2^16.
        #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
        Some(Self {
            flags,
            key_len: key_len as u16,
            key_at: next as u32,
            value_at: value_at as u32,
            end: end as u32,
            value_len: value_len as u32,
        })
    }

    /// What is kept of the record's key.
    #[inline]
    pub(super) fn key<'a>(&self, leaf: &'a [u8]) -> &'a [u8] {
        &leaf[self.key_at as usize..self.value_at as usize]
    }

    /// Bytes of the whole key.
    #[inline]
    pub(super) const fn key_len(&self) -> usize {
        self.key_len as usize
    }

    /// Where the record ends.
    #[inline]
    pub(super) const fn end(&self) -> usize {
        self.end as usize
    }

    /// Where its pointer lies in its leaf, if it has one.
    #[inline]
    pub(super) fn pointer_range(&self) -> Option<std::ops::Range<usize>> {
        let at = self.value_at as usize;
        (self.flags & !EXPIRES == POINTER).then_some(at..at + POINTER_BYTES)
    }

    /// What the key is bound to, in its leaf.
    #[inline]
    pub(super) fn entry<'a>(&self, leaf: &'a [u8]) -> Entry<'a> {
        let stored = &leaf[self.value_at as usize..self.end as usize];
        match self.flags {
            INLINE => Entry::Inline(stored),
            POINTER => self.pointer(stored),
            TOMBSTONE => Entry::Tombstone,
            flags => {
                let (stored, expiry) = stored.split_last_chunk().unwrap_or((&[], &[0; 8]));
                let expiry = Moment(u64::from_le_bytes(*expiry));
                let lasting = match flags {
                    EXPIRING_INLINE => Entry::Inline(stored),
                    _ => self.pointer(stored),
                };
                lasting.until(Some(expiry))
            }
        }
    }

    #[inline]
    fn pointer(&self, stored: &[u8]) -> Entry<'static> {
        let raw = stored.first_chunk().copied().unwrap_or_default();
        Entry::Pointer {
            at: Pointer::from_raw(u64::from_le_bytes(raw)),
            value_len: self.value_len,
        }
    }
}

/// Reads a variable-length integer of at most `max` at `at`, and moves `at` behind it.
#[inline]
fn length(leaf: &[u8], at: &mut usize, max: usize) -> Option<usize> {
    let first = *leaf.get(*at)?;
    if first < 0x80 {
        *at += 1;
        let value = usize::from(first);
        return (value <= max).then_some(value);
    }
    let second = *leaf.get(*at + 1)?;
    if (1..0x80).contains(&second) {
        *at += 2;
        let value = usize::from(first & 0x7f) | usize::from(second) << 7;
        return (value <= max).then_some(value);
    }
    let mut reader = Reader::new("leaf", leaf.get(*at..)?);
    let value = reader.length(max).ok()?;
    *at += reader.position();
    Some(value)
}

/// Writes the record of `key`, with the whole of it, and `entry` to the front of `out`, and returns where
/// the key lies.
#[inline]
pub(super) fn write_record(out: &mut [u8], key: &[u8], entry: &Entry<'_>) -> usize {
    let (flags, value_len) = match entry.lasting() {
        Entry::Inline(value) => (INLINE, Some(value.len() as u64)),
        Entry::Pointer { value_len, .. } => (POINTER, Some(u64::from(value_len))),
        Entry::Tombstone | Entry::Until(..) => (TOMBSTONE, None),
    };
    let expiry = entry.expiry();
    out[0] = flags | expiry.map_or(0, |_| EXPIRES);
    let mut at = write_varint(out, 1, key.len() as u64);
    if let Some(value_len) = value_len {
        at = write_varint(out, at, value_len);
    }
    copy(&mut out[at..], key);
    let value_out = &mut out[at + key.len()..];
    let stored = match entry.lasting() {
        Entry::Inline(value) => {
            copy(value_out, value);
            value.len()
        }
        Entry::Pointer { at, .. } => {
            copy(value_out, &at.to_raw().to_le_bytes());
            POINTER_BYTES
        }
        Entry::Tombstone | Entry::Until(..) => 0,
    };
    if let Some(expiry) = expiry {
        copy(&mut value_out[stored..], &expiry.0.to_le_bytes());
    }
    at
}

/// Writes `value` at `at` and returns where it ends.
#[inline]
fn write_varint(out: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        out[at] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = (value & 0x7f) as u8;
    at + 1
}

/// Copies `from` to the front of `to`: short parts without a call.
#[inline]
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    let to = &mut to[..len];
    match len {
        0 => {}
        1..4 => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
        4..8 => copy_ends::<4>(to, from),
        8..16 => copy_ends::<8>(to, from),
        16..=32 => copy_ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `END` bytes, which are all where there are at most twice as many.
#[inline]
fn copy_ends<const END: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<END>(), from.last_chunk::<END>())
        && to.len() == from.len()
    {
        if let Some(to) = to.first_chunk_mut() {
            *to = *first;
        }
        if let Some(to) = to.last_chunk_mut() {
            *to = *last;
        }
    }
}
