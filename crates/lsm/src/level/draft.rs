//! A leaf, or an index node of a tree, that is being filled.
//!
//! How much of each key its record needs is known only once the last key is: pairs wait as whole
//! records, and what they will take is counted as they come.

use std::cmp::Ordering;

use argosy_base::Identity;
use argosy_base::range::wide_head;

use super::leaf::{HEADER_BYTES, PREFIX_BYTES, SLOT_BYTES, prefix, shared_len};
use super::record::{copy, record_len, write_record};
use crate::names::{Entry, LEAF_BYTES_MAX};

/// Where a pair waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: u32,
    key_at: u32,
    key_len: u32,
}

/// The lengths of a leaf's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    count: usize,
    /// What all keys begin with.
    shared: usize,
    /// The records, as they will be.
    records: usize,
    /// The records with whole keys, as they wait.
    whole: usize,
}

/// Most bytes of a leaf's records with whole keys: keys that share much take little in a leaf, and as much
/// as any while they wait.
const WHOLE_BYTES_MAX: usize = LEAF_BYTES_MAX;

impl Lengths {
    /// Bytes of such a leaf, without free space.
    #[inline]
    pub(super) const fn bytes(&self) -> usize {
        HEADER_BYTES + self.count * SLOT_BYTES + self.shared + self.records
    }

    /// Whether its pairs would take too many bytes while they wait.
    #[inline]
    pub(super) const fn is_too_wide(&self) -> bool {
        self.whole > WHOLE_BYTES_MAX
    }
}

/// The pairs of a leaf that is not written yet.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Whole records, in ascending order, and room.
    staged: Vec<u8>,
    pairs: Vec<Waiting>,
    lengths: Lengths,
    /// Heads of the first key and of the last.
    first: u128,
    last: u128,
}

/// Bytes that a head stands for.
const HEAD_BYTES: usize = 16;

impl Draft {
    /// Whether `key` is above all keys so far.
    #[inline]
    pub(super) fn is_below(&self, key: &[u8]) -> bool {
        match self.last.cmp(&wide_head(key)) {
            Ordering::Less => true,
            Ordering::Equal => self.last_key() < key,
            Ordering::Greater => false,
        }
    }

    /// Whether `key` begins with what all keys so far do.
    #[inline]
    fn is_like(&self, first: &[u8], key: &[u8]) -> bool {
        let shared = first.len();
        if shared == 0 || shared > HEAD_BYTES || key.len() < shared {
            return key.starts_with(first);
        }
        (self.first ^ wide_head(key)) >> (8 * (HEAD_BYTES - shared)) == 0
    }

    /// How long the leaf is.
    #[inline]
    pub(super) const fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// How long a leaf of this one pair is.
    pub(super) fn alone(key: &[u8], entry: &Entry<'_>) -> Lengths {
        let whole = record_len(key, entry);
        Lengths {
            count: 1,
            shared: key.len(),
            records: whole - key.len(),
            whole,
        }
    }

    /// How long the leaf is with one more pair, whose key is above all others.
    #[inline]
    pub(super) fn with(&self, key: &[u8], entry: &Entry<'_>) -> Lengths {
        let Some(first) = self.pairs.first() else {
            return Self::alone(key, entry);
        };
        let Lengths { count, shared, .. } = self.lengths;
        let whole = self.lengths.whole + record_len(key, entry);
        let first = &self.staged[first.key_at as usize..][..shared];
        if self.is_like(first, key) {
            let kept = record_len(key, entry) - key.len().min(shared + PREFIX_BYTES);
            let records = self.lengths.records + kept;
            return Lengths {
                count: count + 1,
                shared,
                records,
                whole,
            };
        }
        let shared = shared_len(first, key);
        let cut = |len: usize| len.min(shared + PREFIX_BYTES);
        let cuts = self.pairs.iter().map(|pair| cut(pair.key_len as usize));
        Lengths {
            count: count + 1,
            shared,
            records: whole - cuts.sum::<usize>() - cut(key.len()),
            whole,
        }
    }

    /// Adds a pair; the leaf is then as long as [`with`](Self::with) said.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], entry: &Entry<'_>, lengths: Lengths) {
        debug_assert_eq!(lengths, self.with(key, entry));
        let at = self.lengths.whole;
        if self.staged.len() < lengths.whole {
            self.staged.resize(lengths.whole.next_power_of_two(), 0);
        }
        let key_at = at + write_record(&mut self.staged[at..lengths.whole], key, entry);
        self.pairs.push(Waiting {
            at: narrow(at),
            key_at: narrow(key_at),
            key_len: narrow(key.len()),
        });
        self.lengths = lengths;
        self.last = wide_head(key);
        if lengths.count == 1 {
            self.first = self.last;
        }
    }

    /// The highest key; empty before the first pair.
    #[inline]
    pub(super) fn last_key(&self) -> &[u8] {
        self.pairs.last().map_or(&[], |pair| self.key(pair))
    }

    #[inline]
    fn key(&self, pair: &Waiting) -> &[u8] {
        &self.staged[pair.key_at as usize..][..pair.key_len as usize]
    }

    /// Forgets all pairs.
    pub(super) fn clear(&mut self) {
        self.pairs.clear();
        self.lengths = Lengths::default();
        self.last = 0;
    }

    /// Writes the leaf into `out`, zeros, which has room for it.
    pub(super) fn write(&self, out: &mut [u8], identity: Identity) {
        let Lengths {
            count,
            shared,
            records,
            whole,
        } = self.lengths;
        assert!(
            count > 0 && self.lengths.bytes() <= out.len() && out.len() <= LEAF_BYTES_MAX,
            "a leaf holds pairs, and has room for them"
        );
        let floor = out.len() - records;
        let common = &self.key(&self.pairs[0])[..shared];
        out[floor - shared..floor].copy_from_slice(common);
        let mut at = floor;
        let mut end = whole;
        for (slot, pair) in self.pairs.iter().enumerate().rev() {
            let (head, key_at) = (pair.at as usize, pair.key_at as usize);
            let key_len = pair.key_len as usize;
            let word = prefix(&self.key(pair)[shared..]) << 16 | at as u64;
            let slot = HEADER_BYTES + slot * SLOT_BYTES;
            out[slot..slot + SLOT_BYTES].copy_from_slice(&word.to_le_bytes());
            copy(&mut out[at..], &self.staged[head..key_at]);
            at += key_at - head;
            let rest = key_at + key_len.min(shared + PREFIX_BYTES);
            copy(&mut out[at..], &self.staged[rest..end]);
            at += end - rest;
            end = head;
        }
        debug_assert_eq!(at, out.len(), "the lengths are those of the records");
        out[4..6].copy_from_slice(&short(count).to_le_bytes());
        out[6..8].copy_from_slice(&short(floor).to_le_bytes());
        out[8..10].copy_from_slice(&short(shared).to_le_bytes());
        let crc = identity.checksum(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("a leaf is far shorter than 4 GiB")
}

fn short(value: usize) -> u16 {
    u16::try_from(value).expect("counts and offsets in a leaf are below 64 Ki")
}
