//! The index of a level segment: which leaf holds which keys.
//!
//! ```text
//! index  := crc32c: u32  count: u32  child[count]
//! child  := nodes: varint  form: u8  separator: [u8; form & 0x7f]
//! ```
//!
//! Children stand in the order of their leaves, which lie back to back from the segment's beginning;
//! `nodes` is how many nodes the child's leaf takes. The first child has an empty separator. The
//! separator of every other is the shortest beginning of its leaf's first key that sorts above the
//! last key of the leaf before. Where that would take more than 64 bytes, it is the first 64 bytes,
//! which both these keys begin with: the child is *tied* to the one before (0x80 in `form`), and
//! only the leaves can tell between the two.
//!
//! `crc32c` is the checksum under the index's identity of every byte behind itself.

use std::ops::Range;

use argosy_base::codec::{Malformed, Reader, put_varint};
use argosy_base::range::Starts;
use argosy_base::{Identity, SEGMENT_SIZE};

use super::leaf::{Leaf, shared_len};
use crate::names::LEAF_BYTES_MAX;

/// Longest separator, in bytes.
pub(super) const SEPARATOR_BYTES_MAX: usize = 64;
/// Bytes in front of the first child.
const HEADER_BYTES: usize = 8;
/// Most bytes that one more child can take.
pub(super) const CHILD_BYTES_MAX: usize = 2 + 1 + SEPARATOR_BYTES_MAX;
const TIED: u8 = 0x80;

const _: () = assert!(
    LEAF_BYTES_MAX / 512 <= 1 << 14,
    "`nodes` takes at most two bytes"
);
const _: () = assert!(SEPARATOR_BYTES_MAX < TIED as usize);

/// Collects the children while the leaves are filled.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    children: Vec<u8>,
    count: u32,
}

impl IndexBuilder {
    /// Adds the next leaf: how many nodes it takes, its first key, and the last key of the leaf
    /// before it, which the first leaf does not have.
    pub(super) fn push(&mut self, nodes: usize, below: Option<&[u8]>, first: &[u8]) {
        let (separator, tied) = below.map_or((&first[..0], 0), |below| {
            let differs = shared_len(below, first);
            if differs < SEPARATOR_BYTES_MAX {
                (&first[..=differs], 0)
            } else {
                (&first[..SEPARATOR_BYTES_MAX], TIED)
            }
        });
        put_varint(&mut self.children, nodes as u64);
        let len = u8::try_from(separator.len()).expect("a separator has at most 64 bytes");
        self.children.push(len | tied);
        self.children.extend_from_slice(separator);
        self.count += 1;
    }

    /// How many leaves there are.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the encoded index.
    pub(super) fn len(&self) -> usize {
        HEADER_BYTES + self.children.len()
    }

    /// Writes the index into `out`, which is exactly as long.
    pub(super) fn write(&self, out: &mut [u8], identity: Identity) {
        out[4..8].copy_from_slice(&self.count.to_le_bytes());
        out[HEADER_BYTES..].copy_from_slice(&self.children);
        let crc = identity.checksum(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A parsed index, in memory. The default is that of a segment of a tree: none.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Where leaf `i` begins in the segment, and behind the last, where the leaves end.
    starts: Vec<u32>,
    /// Separators back to back; that of leaf `i` ends at `ends[i]`.
    text: Vec<u8>,
    ends: Vec<u32>,
    tied: Vec<bool>,
    /// The separators, to be searched.
    keys: Starts,
}

impl Index {
    /// Checks and decodes an index over leaves of nodes of `node_bytes`.
    pub(super) fn parse(
        bytes: &[u8],
        identity: Identity,
        node_bytes: usize,
    ) -> Result<Self, &'static str> {
        let malformed = "a segment's index is malformed";
        let Some((crc, covered)) = bytes.split_first_chunk::<4>() else {
            return Err(malformed);
        };
        if identity.checksum(covered).to_le_bytes() != *crc {
            return Err("a segment's index does not match its checksum");
        }
        let mut index = Self {
            starts: vec![0],
            text: vec![],
            ends: vec![],
            tied: vec![],
            keys: Starts::default(),
        };
        let mut reader = Reader::new("index", covered);
        index
            .children(&mut reader, node_bytes)
            .map_err(|_| malformed)?;
        index.keys = Starts::new((0..index.count()).map(|leaf| index.separator(leaf)));
        Ok(index)
    }

    fn children(&mut self, reader: &mut Reader<'_>, node_bytes: usize) -> Result<(), Malformed> {
        let count = reader.u32()?;
        if count == 0 {
            return Err(reader.malformed());
        }
        let mut at = 0usize;
        for index in 0..count {
            at += reader.length(LEAF_BYTES_MAX / node_bytes)? * node_bytes;
            let form = reader.u8()?;
            let (len, tied) = (usize::from(form & !TIED), form & TIED != 0);
            let separator = reader.take(len)?;
            let before = self
                .ends
                .len()
                .checked_sub(1)
                .map(|last| self.separator(last));
            let rises = match before {
                None => len == 0 && !tied,
                Some(before) if tied => len == SEPARATOR_BYTES_MAX && before <= separator,
                Some(before) => before < separator,
            };
            let start = u32::try_from(at).ok().filter(|_| at <= SEGMENT_SIZE);
            let known = self.starts[index as usize];
            let (Some(start), true, true) = (start, rises, len <= SEPARATOR_BYTES_MAX) else {
                return Err(reader.malformed());
            };
            if start == known {
                return Err(reader.malformed());
            }
            self.text.extend_from_slice(separator);
            let end = u32::try_from(self.text.len()).map_err(|_| reader.malformed())?;
            self.ends.push(end);
            self.tied.push(tied);
            self.starts.push(start);
        }
        reader.finish()
    }

    /// How many leaves there are; at least one.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Where the leaves end in the segment.
    pub(super) fn leaves_end(&self) -> u32 {
        self.starts[self.count()]
    }

    /// The bytes of leaf `leaf` in the segment.
    #[inline]
    pub(super) fn span(&self, leaf: usize) -> Range<u32> {
        self.starts[leaf]..self.starts[leaf + 1]
    }

    fn separator(&self, leaf: usize) -> &[u8] {
        let from = leaf.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[from as usize..self.ends[leaf] as usize]
    }

    /// Bytes that the index keeps in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.starts.capacity() * 4
            + self.text.capacity()
            + self.ends.capacity() * 4
            + self.tied.capacity()
            + self.keys.memory_bytes()
    }

    /// The leaves, first and last, among which is the one that holds `key` if any does. Mostly one;
    /// of several, it is the last whose first key is not above `key`, or else the first of them.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> (usize, usize) {
        let last = self.keys.index_of(key, |leaf| self.separator(leaf));
        let mut first = last;
        while self.tied[first] && key.starts_with(self.separator(first)) {
            first -= 1;
        }
        (first, last)
    }

    /// Whether `leaf` can be the leaf at `index`: its keys lie between the separators.
    pub(super) fn admits(&self, index: usize, leaf: &Leaf) -> bool {
        let above = index + 1;
        let below_next = || {
            let (next, last) = (self.separator(above), leaf.last_key());
            if self.tied[above] {
                last.starts_with(next)
            } else {
                last.as_slice() < next
            }
        };
        leaf.first_key().starts_with(self.separator(index))
            && (above == self.count() || below_next())
    }

    /// Whether only the leaves tell where the keys of leaf `index - 1` end and its own begin.
    pub(super) fn is_tied(&self, index: usize) -> bool {
        self.tied[index]
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
