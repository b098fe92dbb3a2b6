//! A leaf of a level segment.
//!
//! A leaf is filled once, in ascending key order, by [`SegmentBuilder`](super::SegmentBuilder), and
//! never changes afterwards. Slots grow up from the header, records grow down from the end; the leaf
//! is full when they and the shared bytes would meet. A leaf takes one node (`node_bytes`); one whose
//! first pair is larger than that takes as many nodes as that pair needs.
//!
//! ```text
//! 0        4       6       8        10     16       24                                            len
//! +--------+-------+-------+--------+------+--------+--------+-------+--------+----------+----------+
//! | crc32c | count | floor | shared | zero | slot 0 | slot 1 | 0 ... | common | record 1 | record 0 |
//! +--------+-------+-------+--------+------+--------+--------+-------+--------+----------+----------+
//!
//! slot    := offset: u16  prefix: u48
//! common  := [u8; shared]
//! ```
//!
//! Integers are little-endian. `shared` is how many bytes all keys of the leaf begin with in common
//! (those of the first and the last key), `common` these bytes; a slot's `prefix` is the six key bytes
//! behind them, zero where the key ends before, as a number whose order is the order of the keys. What a
//! key has behind these, its *rest*, is in its record (`level/record.rs`).
//!
//! Invariants, kept by the builder and checked once when a leaf is parsed:
//!
//! - `crc32c` is the checksum under the leaf's identity of every byte behind itself.
//! - Keys rise strictly from slot to slot; `shared` is as large as it can be.
//! - Records lie back to back from the end down to `floor`, `common` ends at `floor`, and everything
//!   between the last slot and `common` is zero: equal pairs make equal bytes.
//!
//! In memory a leaf is as it is stored, without its header: so one of 4 KiB takes that, counters and all,
//! which is what allocators are good at. A search compares the shared bytes once, then prefixes only, and
//! rests only among equal prefixes; whoever wants a key has it put together (`KeyBuffer`).

use std::cmp::Ordering;
use std::sync::Arc;

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{Identity, Kind};

use super::record::{Record, copy};
use crate::names::{Entry, LEAF_BYTES_MAX, LevelError, SegmentName};

/// Bytes in front of the first slot.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 8;
/// Bytes of a key that its slot holds.
pub(super) const PREFIX_BYTES: usize = 6;
const _: () = assert!(LEAF_BYTES_MAX - 1 <= u16::MAX as usize);
const _: () = assert!(
    2 * KEY_BYTES_MAX < LEAF_BYTES_MAX / 2 && KEY_BYTES_MAX <= u16::MAX as usize,
    "`shared` and any two keys fit"
);

/// How many bytes `a` and `b` begin with in common.
#[inline]
pub(super) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first six bytes of `bytes`, zero where it has less, as a number that sorts as they do.
#[inline]
pub(super) fn prefix(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*first).swap_bytes() >> 16;
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded).swap_bytes() >> 16
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
    /// What is stored behind the header.
    bytes: Arc<[u8]>,
    count: usize,
    /// As in the header, but counted from its end.
    floor: usize,
    shared: usize,
}

impl Leaf {
    /// Checks `bytes`, all bytes of the leaf at byte `offset` of segment `name`, and keeps a copy.
    ///
    /// # Errors
    /// [`LevelError::Corrupt`] where they are not those of a leaf that was written there.
    pub fn parse(bytes: &[u8], name: SegmentName, offset: u32) -> Result<Self, LevelError> {
        Self::parse_as(Kind::Leaf, bytes, name, offset)
    }

    /// The leaf that `bytes` are, which a builder has just made: they are not checked.
    pub(crate) fn of_built(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes[HEADER_BYTES..].into(),
            count: field(bytes, 4),
            floor: field(bytes, 6) - HEADER_BYTES,
            shared: field(bytes, 8),
        }
    }

    /// As [`parse`](Self::parse), of a node that was sealed as `kind`.
    pub(super) fn parse_as(
        kind: Kind,
        bytes: &[u8],
        name: SegmentName,
        offset: u32,
    ) -> Result<Self, LevelError> {
        let corrupt = |what| name.corrupt(offset, what);
        let stored = Stored::check(bytes, name.identity(kind, offset)).map_err(corrupt)?;
        stored.check_pairs().map_err(corrupt)?;
        Ok(Self {
            bytes: bytes[HEADER_BYTES..].into(),
            count: stored.count,
            floor: stored.floor - HEADER_BYTES,
            shared: stored.shared,
        })
    }

    /// How many pairs there are; at least one.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bytes that its clones share.
    #[inline]
    #[must_use]
    pub(crate) fn shared_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that records lie in.
    #[inline]
    pub(super) fn records(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        self.bytes[..self.count * SLOT_BYTES].as_chunks().0
    }

    /// What all keys begin with.
    #[inline]
    fn common(&self) -> &[u8] {
        &self.bytes[self.floor - self.shared..self.floor]
    }

    /// Where the parts of pair `index` lie.
    #[inline]
    pub(super) fn record(&self, index: usize) -> Record {
        let at = slot_offset(&self.slots()[index]) - HEADER_BYTES;
        Record::decode(&self.bytes, at, self.shared + PREFIX_BYTES)
            .expect("every record was checked when the leaf was parsed")
    }

    /// The key of pair `index`, which is below [`count`](Self::count).
    #[must_use]
    pub fn key(&self, index: usize) -> Vec<u8> {
        let mut key = KeyBuffer::default();
        key.enter(self, index, &self.record(index));
        key.get().to_vec()
    }

    /// What the key of pair `index`, which is below [`count`](Self::count), is bound to.
    #[must_use]
    pub fn entry(&self, index: usize) -> Entry<'_> {
        self.record(index).entry(&self.bytes)
    }

    /// The lowest key.
    #[must_use]
    pub fn first_key(&self) -> Vec<u8> {
        self.key(0)
    }

    /// The highest key.
    #[must_use]
    pub fn last_key(&self) -> Vec<u8> {
        self.key(self.count - 1)
    }

    /// How the key of pair `index` compares with `key`.
    pub(super) fn compare(&self, index: usize, key: &[u8]) -> Ordering {
        let (head, behind) = key.split_at(self.shared.min(key.len()));
        let own = slot_prefix(&self.slots()[index]);
        let common = self.common().cmp(head);
        common
            .then_with(|| own.cmp(&prefix(behind)))
            .then_with(|| self.compare_rest(index, behind))
    }

    /// How what pair `index` has behind the shared bytes compares with `behind`, which has the same prefix.
    fn compare_rest(&self, index: usize, behind: &[u8]) -> Ordering {
        let record = self.record(index);
        let own = Rest {
            len: record.key_len() - self.shared,
            bytes: record.key(&self.bytes),
        };
        own.compare(&Rest {
            len: behind.len(),
            bytes: behind.get(PREFIX_BYTES..).unwrap_or(&[]),
        })
    }

    /// What `key` is bound to here.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.search(key).ok().map(|index| self.entry(index))
    }

    /// The index of `key`, or where not present, as an error, that of the lowest key above it.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let slots = self.slots();
        let (head, behind) = key.split_at(self.shared.min(key.len()));
        match head.cmp(self.common()) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.count),
            Ordering::Equal => {}
        }
        let target = prefix(behind);
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
            match self.compare_rest(middle, behind) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

/// What a key has behind its prefix.
#[derive(Clone, Copy)]
struct Rest<'a> {
    /// How long the key is behind the shared bytes.
    len: usize,
    bytes: &'a [u8],
}

impl Rest<'_> {
    /// How two keys compare that agree up to and with their prefixes: by how long they are behind the shared
    /// bytes, as far as that is in the prefix, and then by their rests.
    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        let in_slot = |rest: &Self| rest.len.min(PREFIX_BYTES);
        let lengths = in_slot(self).cmp(&in_slot(other));
        lengths.then_with(|| self.bytes.cmp(other.bytes))
    }
}

/// Room for a key that is put together from the parts that a leaf has.
#[derive(Debug, Default)]
pub(super) struct KeyBuffer {
    /// The key, and room for a whole prefix.
    bytes: Vec<u8>,
    len: usize,
}

impl KeyBuffer {
    /// Holds the key of pair `index` of `leaf`, whose record is `record`.
    #[inline]
    pub(super) fn enter(&mut self, leaf: &Leaf, index: usize, record: &Record) {
        let shared = leaf.shared;
        if self.bytes.len() < shared + SLOT_BYTES {
            self.bytes
                .resize((shared + SLOT_BYTES).next_power_of_two(), 0);
        }
        copy(&mut self.bytes, leaf.common());
        self.step(leaf, index, record);
    }

    /// As [`enter`](Self::enter), where the key held is another one of `leaf`.
    #[inline]
    pub(super) fn step(&mut self, leaf: &Leaf, index: usize, record: &Record) {
        let shared = leaf.shared;
        self.len = record.key_len();
        if self.bytes.len() < self.len + SLOT_BYTES {
            self.bytes
                .resize((self.len + SLOT_BYTES).next_power_of_two(), 0);
        }
        let prefix = slot_prefix(&leaf.slots()[index]) << 16;
        let behind = &mut self.bytes[shared..];
        behind[..SLOT_BYTES].copy_from_slice(&prefix.swap_bytes().to_le_bytes());
        if self.len > shared + PREFIX_BYTES {
            copy(&mut behind[PREFIX_BYTES..], record.key(&leaf.bytes));
        }
    }

    /// The key.
    #[inline]
    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({} pairs, {} bytes)", self.count, self.bytes.len())
    }
}

/// How many slots `leaf` says it has.
pub(super) fn slot_count(leaf: &[u8]) -> usize {
    field(leaf, 4)
}

/// The record of slot `index` of `leaf`, if there is such a slot and it leads to one.
pub(super) fn record_at(leaf: &[u8], index: usize) -> Option<Record> {
    let slot = leaf.get(HEADER_BYTES + index * SLOT_BYTES..)?;
    let at = slot.first_chunk().map(slot_offset)?;
    Record::decode(leaf, at, field(leaf, 8) + PREFIX_BYTES)
}

/// Bytes of the leaf with which `bytes` begins: record 0 ends where the leaf does. Nothing is
/// checked but that it lies within `bytes`.
pub(super) fn node_len(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(LEAF_BYTES_MAX)];
    let len = record_at(bytes, 0)?.end();
    (len >= HEADER_BYTES + SLOT_BYTES).then_some(len)
}

/// The two bytes at `at` as a number; 0 where there are none.
#[inline]
fn field(leaf: &[u8], at: usize) -> usize {
    let bytes = leaf.get(at..at + 2).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| usize::from(u16::from_le_bytes(*bytes)))
}

/// A leaf as it was stored, whose checksum and header are right.
struct Stored<'a> {
    bytes: &'a [u8],
    count: usize,
    floor: usize,
    shared: usize,
}

impl<'a> Stored<'a> {
    fn check(bytes: &'a [u8], identity: Identity) -> Result<Self, &'static str> {
        if bytes.len() < HEADER_BYTES + SLOT_BYTES || bytes.len() > LEAF_BYTES_MAX {
            return Err("a leaf of an impossible length");
        }
        if identity.checksum(&bytes[4..]).to_le_bytes() != bytes[..4] {
            return Err("a leaf's checksum does not match");
        }
        let [count, floor, shared] = [4, 6, 8].map(|at| field(bytes, at));
        let slots_end = HEADER_BYTES + count * SLOT_BYTES;
        if count == 0 || slots_end + shared > floor || floor > bytes.len() {
            return Err("a leaf's slots and records overlap");
        }
        let free = bytes[10..HEADER_BYTES]
            .iter()
            .chain(&bytes[slots_end..floor - shared]);
        if free.copied().any(|byte| byte != 0) {
            return Err("a leaf's free space is not zero");
        }
        Ok(Self {
            bytes,
            count,
            floor,
            shared,
        })
    }

    /// Checks that records tile the leaf from its end down to `floor`, and that keys and slots rise.
    fn check_pairs(&self) -> Result<(), &'static str> {
        let slots = &self.bytes[HEADER_BYTES..][..self.count * SLOT_BYTES];
        let slots = slots.as_chunks::<SLOT_BYTES>().0;
        let mut end = self.bytes.len();
        let mut below: Option<(u64, Rest<'_>)> = None;
        for slot in slots {
            let (at, own) = (slot_offset(slot), slot_prefix(slot));
            let record = Record::decode(self.bytes, at, self.shared + PREFIX_BYTES)
                .ok_or("a leaf's record is malformed")?;
            if record.end() != end || at < self.floor {
                return Err("a leaf's records do not lie back to back");
            }
            end = at;
            let behind = record.key_len().checked_sub(self.shared);
            let behind = behind.ok_or("a leaf's key is shorter than what all have in common")?;
            if own << 16 << (8 * behind.min(PREFIX_BYTES)) != 0 {
                return Err("a leaf's slot does not belong to its record");
            }
            let rest = Rest {
                len: behind,
                bytes: record.key(self.bytes),
            };
            let key = (own, rest);
            let rises = below.is_none_or(|(prefix, below)| {
                let prefixes = prefix.cmp(&own);
                prefixes.then_with(|| below.compare(&rest)) == Ordering::Less
            });
            if !rises {
                return Err("a leaf's keys do not rise");
            }
            below = Some(key);
        }
        if end != self.floor || !self.shares_no_more(slots) {
            return Err("a leaf's header does not match its records");
        }
        Ok(())
    }

    /// Whether the first and the last key go on differently behind the shared bytes.
    fn shares_no_more(&self, slots: &[[u8; SLOT_BYTES]]) -> bool {
        let first = record_at(self.bytes, 0).is_some_and(|record| record.key_len() == self.shared);
        let begins = |slot: &[u8; SLOT_BYTES]| slot_prefix(slot) >> 40;
        match slots {
            [first, .., last] if begins(first) != begins(last) => true,
            _ => first,
        }
    }
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
