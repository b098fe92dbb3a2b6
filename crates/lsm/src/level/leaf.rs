//! A leaf of a level segment.
//!
//! A leaf is filled once, in ascending key order, by [`SegmentBuilder`](super::SegmentBuilder), and
//! never changes afterwards. Slots grow up from the header, records grow down from the end; the leaf
//! is full when they would meet. A leaf takes one node (`node_bytes`); one whose first pair is larger
//! than that takes as many nodes as that pair needs.
//!
//! ```text
//! 0        4       6       8        10     16       24                                    len
//! +--------+-------+-------+--------+------+--------+--------+-------+----------+----------+
//! | crc32c | count | floor | shared | zero | slot 0 | slot 1 | 0 ... | record 1 | record 0 |
//! +--------+-------+-------+--------+------+--------+--------+-------+----------+----------+
//!
//! slot    := offset: u16  prefix: u48
//! record  := flags: u8  key_len: varint  body
//! body    := value_len: varint  key  value            where flags = 1 (inline)
//!          | value_len: varint  key  pointer: u64     where flags = 2 (pointer into a log)
//!          | key                                      where flags = 3 (tombstone)
//! ```
//!
//! Integers are little-endian. `shared` is how many bytes all keys of the leaf begin with in common
//! (those of the first and the last key); a slot's `prefix` is the six key bytes behind these, zero
//! where the key ends before, as a number whose order is the order of the keys. A search compares the
//! shared bytes once, then prefixes only, and whole keys only among equal prefixes. In `flags`, 0x10
//! (an expiry follows) and 0x20 (an LSN follows) are reserved; a set bit that is not known is refused.
//!
//! Invariants, kept by the builder and checked once when a leaf is parsed:
//!
//! - `crc32c` is the checksum under the leaf's identity of every byte behind itself.
//! - Keys rise strictly from slot to slot, and every prefix is that of its key.
//! - Records lie back to back from the end down to `floor`, and everything between the last slot and
//!   `floor` is zero: equal pairs make equal bytes.

use std::cmp::Ordering;
use std::sync::Arc;

use argosy_base::codec::{Reader, varint_len};
use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{Identity, Kind, Pointer};

use super::{Entry, LevelError, SegmentName};

/// Bytes in front of the first slot.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 8;
/// Most bytes of a leaf: the offset of every record fits a slot.
pub(super) const LEAF_BYTES_MAX: usize = 1 << 16;
/// Bytes of a pointer in a record.
const POINTER_BYTES: usize = 8;

const INLINE: u8 = 1;
const POINTER: u8 = 2;
const TOMBSTONE: u8 = 3;

const _: () = assert!(LEAF_BYTES_MAX - 1 <= u16::MAX as usize);
const _: () = assert!(HEADER_BYTES.is_multiple_of(SLOT_BYTES), "slots are aligned");
const _: () = assert!(
    KEY_BYTES_MAX < LEAF_BYTES_MAX / 2 && KEY_BYTES_MAX <= u16::MAX as usize,
    "`shared` and every key fit"
);

/// Bytes of the record of `key` and `entry`.
#[inline]
pub(super) fn record_len(key: &[u8], entry: &Entry<'_>) -> usize {
    let key_part = 1 + varint_len(key.len() as u64) + key.len();
    key_part
        + match *entry {
            Entry::Inline(value) => varint_len(value.len() as u64) + value.len(),
            Entry::Pointer { value_len, .. } => varint_len(u64::from(value_len)) + POINTER_BYTES,
            Entry::Tombstone => 0,
        }
}

/// How many bytes `a` and `b` begin with in common.
#[inline]
pub(super) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first six bytes of `bytes`, zero where it has less, as a number that sorts as they do.
#[inline]
fn prefix(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*first).swap_bytes() >> 16;
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded).swap_bytes() >> 16
}

/// Where a record's parts lie in its leaf. Offsets are below [`LEAF_BYTES_MAX`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    flags: u8,
    key_at: u32,
    /// Where the key ends and the value, if there is one in the leaf, begins.
    value_at: u32,
    end: u32,
    value_len: u32,
}

impl Record {
    /// Finds the parts of the record at `at`. `None` where it is malformed or reaches past the end.
    #[inline]
    pub(super) fn decode(leaf: &[u8], at: usize) -> Option<Self> {
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
            _ => return None,
        };
        let value_at = next + key_len;
        let end = value_at + stored;
        if end > leaf.len() || leaf.len() > LEAF_BYTES_MAX || key_len == 0 {
            return None;
        }
        // All are at most LEAF_BYTES_MAX or VALUE_BYTES_MAX, far below 2^32.
        #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
        Some(Self {
            flags,
            key_at: next as u32,
            value_at: value_at as u32,
            end: end as u32,
            value_len: value_len as u32,
        })
    }

    /// The record's key in its leaf.
    #[inline]
    pub(super) fn key<'a>(&self, leaf: &'a [u8]) -> &'a [u8] {
        &leaf[self.key_at as usize..self.value_at as usize]
    }

    /// Where its pointer lies in its leaf, if it has one.
    #[inline]
    pub(super) fn pointer_range(&self) -> Option<std::ops::Range<usize>> {
        (self.flags == POINTER).then_some(self.value_at as usize..self.end as usize)
    }

    /// What the key is bound to, in its leaf.
    #[inline]
    pub(super) fn entry<'a>(&self, leaf: &'a [u8]) -> Entry<'a> {
        let stored = &leaf[self.value_at as usize..self.end as usize];
        match self.flags {
            INLINE => Entry::Inline(stored),
            POINTER => {
                let raw = stored.first_chunk().copied().unwrap_or_default();
                Entry::Pointer {
                    at: Pointer::from_raw(u64::from_le_bytes(raw)),
                    value_len: self.value_len,
                }
            }
            _ => Entry::Tombstone,
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
    let mut reader = Reader::new("leaf", leaf.get(*at..)?);
    let value = reader.length(max).ok()?;
    *at += reader.position();
    Some(value)
}

/// Writes the record of `key` and `entry` into `out`, which is exactly as long, and returns where the
/// key lies in it.
#[inline]
pub(super) fn write_record(out: &mut [u8], key: &[u8], entry: &Entry<'_>) -> usize {
    let (flags, value_len) = match *entry {
        Entry::Inline(value) => (INLINE, Some(value.len() as u64)),
        Entry::Pointer { value_len, .. } => (POINTER, Some(u64::from(value_len))),
        Entry::Tombstone => (TOMBSTONE, None),
    };
    out[0] = flags;
    let mut at = write_varint(out, 1, key.len() as u64);
    if let Some(value_len) = value_len {
        at = write_varint(out, at, value_len);
    }
    let (key_out, value_out) = out[at..].split_at_mut(key.len());
    key_out.copy_from_slice(key);
    match *entry {
        Entry::Inline(value) => value_out.copy_from_slice(value),
        Entry::Pointer { at, .. } => value_out.copy_from_slice(&at.to_raw().to_le_bytes()),
        Entry::Tombstone => debug_assert!(value_out.is_empty()),
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

/// The last step of filling a leaf: `leaf` holds `count` records down to `floor`, whose slots have
/// their offsets; the prefixes, the header and the checksum are added.
pub(super) fn seal(leaf: &mut [u8], count: usize, floor: usize, identity: Identity) {
    assert!(
        count > 0 && HEADER_BYTES + count * SLOT_BYTES <= floor,
        "a sealed leaf holds pairs, and its slots end below its records"
    );
    let (slots, records) = leaf.split_at_mut(floor);
    let (slots, _) = slots[HEADER_BYTES..][..count * SLOT_BYTES].as_chunks_mut::<SLOT_BYTES>();
    let key_of = |slot: &[u8; SLOT_BYTES]| {
        let offset = slot_offset(slot) - floor;
        Record::decode(records, offset)
            .expect("the builder wrote this record")
            .key(records)
    };
    let shared = shared_len(key_of(&slots[0]), key_of(&slots[count - 1]));
    for slot in slots {
        let word = prefix(&key_of(slot)[shared..]) << 16 | slot_offset(slot) as u64;
        *slot = word.to_le_bytes();
    }
    leaf[4..6].copy_from_slice(&narrow(count).to_le_bytes());
    leaf[6..8].copy_from_slice(&narrow(floor).to_le_bytes());
    leaf[8..10].copy_from_slice(&narrow(shared).to_le_bytes());
    let crc = identity.checksum(&leaf[4..]);
    leaf[..4].copy_from_slice(&crc.to_le_bytes());
}

fn narrow(value: usize) -> u16 {
    u16::try_from(value).expect("counts and offsets in a leaf are below 64 Ki")
}

#[inline]
fn slot_offset(slot: &[u8; SLOT_BYTES]) -> usize {
    usize::from(u16::from_le_bytes([slot[0], slot[1]]))
}

#[inline]
fn slot_prefix(slot: &[u8; SLOT_BYTES]) -> u64 {
    u64::from_le_bytes(*slot) >> 16
}

/// A leaf whose checksum and bounds have been checked. Clones share the bytes.
#[derive(Clone)]
pub struct Leaf {
    bytes: Arc<[u8]>,
    count: usize,
    shared: usize,
}

impl Leaf {
    /// Checks `bytes`, all bytes of the leaf at byte `offset` of segment `name`, and takes a copy.
    ///
    /// # Errors
    /// [`LevelError::Corrupt`] where they are not those of a leaf that was written there.
    pub fn parse(bytes: &[u8], name: SegmentName, offset: u32) -> Result<Self, LevelError> {
        Self::parse_as(Kind::Leaf, bytes, name, offset)
    }

    /// As [`parse`](Self::parse), of a node that was sealed as `kind`.
    pub(super) fn parse_as(
        kind: Kind,
        bytes: &[u8],
        name: SegmentName,
        offset: u32,
    ) -> Result<Self, LevelError> {
        let (count, shared) =
            check(bytes, name.identity(kind, offset)).map_err(|what| name.corrupt(offset, what))?;
        Ok(Self {
            bytes: Arc::from(bytes),
            count,
            shared,
        })
    }

    /// How many pairs there are; at least one.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bytes that the leaf keeps in memory.
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        slots_of(&self.bytes, self.count)
    }

    /// Where the parts of pair `index` lie.
    #[inline]
    pub(super) fn record(&self, index: usize) -> Record {
        Record::decode(&self.bytes, slot_offset(&self.slots()[index]))
            .expect("every record was checked when the leaf was parsed")
    }

    /// The key of pair `index`, which is below [`count`](Self::count).
    #[must_use]
    pub fn key(&self, index: usize) -> &[u8] {
        self.record(index).key(&self.bytes)
    }

    /// What the key of pair `index`, which is below [`count`](Self::count), is bound to.
    #[must_use]
    pub fn entry(&self, index: usize) -> Entry<'_> {
        self.record(index).entry(&self.bytes)
    }

    /// The lowest key.
    #[must_use]
    pub fn first_key(&self) -> &[u8] {
        self.key(0)
    }

    /// The highest key.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        self.key(self.count - 1)
    }

    /// What `key` is bound to here.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.search(key).ok().map(|index| self.entry(index))
    }

    /// The index of `key`, or where not present, as an error, that of the lowest key above it.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let slots = self.slots();
        let common = &self.first_key()[..self.shared];
        let head = &key[..self.shared.min(key.len())];
        match head.cmp(common) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.count),
            Ordering::Equal => {}
        }
        let target = prefix(&key[self.shared..]);
        let mut low = slots.partition_point(|slot| slot_prefix(slot) < target);
        let equal = |slot: &[u8; SLOT_BYTES]| slot_prefix(slot) == target;
        // Mostly none or one: a binary search begins only where there are more.
        let mut high = low;
        while high < self.count && high - low < 4 && equal(&slots[high]) {
            high += 1;
        }
        if high - low == 4 {
            high += slots[high..].partition_point(equal);
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({} pairs, {} bytes)", self.count, self.bytes.len())
    }
}

#[inline]
fn slots_of(leaf: &[u8], count: usize) -> &[[u8; SLOT_BYTES]] {
    leaf[HEADER_BYTES..][..count * SLOT_BYTES]
        .as_chunks::<SLOT_BYTES>()
        .0
}

/// How many slots `leaf` says it has.
pub(super) fn slot_count(leaf: &[u8]) -> usize {
    let count = leaf.get(4..6).and_then(|bytes| bytes.first_chunk());
    count.map_or(0, |bytes| usize::from(u16::from_le_bytes(*bytes)))
}

/// Where the record of slot `index` of `leaf` begins, if there is such a slot.
pub(super) fn slot_at(leaf: &[u8], index: usize) -> Option<usize> {
    let slot = leaf.get(HEADER_BYTES + index * SLOT_BYTES..)?;
    slot.first_chunk().map(slot_offset)
}

/// Bytes of the leaf with which `bytes` begins: record 0 ends where the leaf does. Nothing is
/// checked but that it lies within `bytes`.
pub(super) fn node_len(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(LEAF_BYTES_MAX)];
    let first = Record::decode(bytes, slot_at(bytes, 0)?)?;
    let len = first.end as usize;
    (len >= HEADER_BYTES + SLOT_BYTES).then_some(len)
}

/// Checks everything that the module's documentation promises of a leaf, and returns the number of
/// its pairs and of the bytes that its keys share.
fn check(leaf: &[u8], identity: Identity) -> Result<(usize, usize), &'static str> {
    if leaf.len() < HEADER_BYTES + SLOT_BYTES || leaf.len() > LEAF_BYTES_MAX {
        return Err("a leaf of an impossible length");
    }
    if identity.checksum(&leaf[4..]).to_le_bytes() != leaf[..4] {
        return Err("a leaf's checksum does not match");
    }
    let field = |at: usize| usize::from(u16::from_le_bytes([leaf[at], leaf[at + 1]]));
    let (count, floor, shared) = (field(4), field(6), field(8));
    let slots_end = HEADER_BYTES + count * SLOT_BYTES;
    if count == 0 || slots_end > floor || floor > leaf.len() {
        return Err("a leaf's slots and records overlap");
    }
    if leaf[10..HEADER_BYTES]
        .iter()
        .chain(&leaf[slots_end..floor])
        .any(|byte| *byte != 0)
    {
        return Err("a leaf's free space is not zero");
    }
    check_records(leaf, slots_of(leaf, count), floor, shared)?;
    Ok((count, shared))
}

/// Checks that records tile the leaf from its end down to `floor`, and that keys and slots rise.
fn check_records(
    leaf: &[u8],
    slots: &[[u8; SLOT_BYTES]],
    floor: usize,
    shared: usize,
) -> Result<(), &'static str> {
    let mut end = leaf.len();
    let mut below: Option<(&[u8], u64)> = None;
    let mut first: &[u8] = &[];
    for slot in slots {
        let at = slot_offset(slot);
        let record = Record::decode(leaf, at).ok_or("a leaf's record is malformed")?;
        if record.end as usize != end || at < floor {
            return Err("a leaf's records do not lie back to back");
        }
        end = at;
        let key = record.key(leaf);
        if below.is_none() {
            first = key;
        }
        let own = slot_prefix(slot);
        if key.len() < shared || prefix(&key[shared..]) != own {
            return Err("a leaf's slot does not belong to its record");
        }
        let rises =
            below.is_none_or(|(below, prefix)| prefix < own || prefix == own && below < key);
        if !rises || key[..shared] != first[..shared] {
            return Err("a leaf's keys do not rise");
        }
        below = Some((key, own));
    }
    let last = below.map_or(first, |(key, _)| key);
    if end != floor || shared_len(first, last) != shared {
        return Err("a leaf's header does not match its records");
    }
    Ok(())
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
