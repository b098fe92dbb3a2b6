//! The filter of a level segment: tells of most keys that are not there, without reading a leaf.
//!
//! A Bloom filter whose probes for one key all fall into one cache line of 512 bits, so that asking
//! costs one cache miss, with seven probes.
//!
//! How many bits a key has depends on where its segment is made for, since a lookup asks one filter of each
//! run, and what they let pass adds up. The last level holds most keys and has one run: it gets the fewest
//! bits, and the runs of L1, of which there are many and which are small, the most. (That is how Monkey
//! divides memory among filters.) So of lookups for keys that are not there, less than 1 % read a leaf:
//!
//! | segments of | bits a key | of absent keys pass |
//! |---|---|---|
//! | runs of L1 | 22 | 0.02 % of each of up to 24 |
//! | levels between | 16 | 0.1 % of each |
//! | the last level | 12 | 0.4 % |
//!
//! A segment that is moved down keeps what it has.
//!
//! ```text
//! filter := crc32c: u32  lines: u16  bits: u16  line[lines]
//! line   := [u64; 8]
//! ```
//!
//! Integers are little-endian; `crc32c` is the checksum under the filter's identity of every byte
//! behind itself. There are as many lines as `bits` for each key of the segment need, and at least one.
//! A key's line is `(h >> 32) * lines >> 32` where `h` is its XXH3 (64 bits, seed 0).
//! Its probes are seven numbers of nine bits each: the upper 63 bits of `h * 0x9e3779b97f4a7c15`, the
//! lowest first. Probe `p` is bit `p % 64` of word `p / 64` of the line.

use argosy_base::{Identity, SEGMENT_SIZE};
use xxhash_rust::xxh3::xxh3_64;

/// Bits that each key sets.
const PROBES: u32 = 7;
/// So many of them are tried before the others: with 12 bits a key, nine in ten keys that are not there fail one of
/// these, with 22 all but two in a hundred.
const FIRST_PROBES: u32 = 3;
/// Bits of one line, and bits of a probe that name one of them.
const LINE_BITS: usize = 512;
const PROBE_BITS: u32 = LINE_BITS.trailing_zeros();
/// Words of one line.
const LINE_WORDS: usize = LINE_BITS / 64;
const LINE_BYTES: usize = LINE_BITS / 8;
/// Bytes in front of the first line.
const HEADER_BYTES: usize = 8;
/// An odd number without structure (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const _: () = assert!(LINE_BITS == 0x1ff + 1, "a probe is nine bits");
const _: () = assert!(
    SEGMENT_SIZE / LINE_BYTES < 1 << 16,
    "the lines of a filter, which is part of a segment, are counted by a u16"
);
const _: () = assert!(
    PROBES * PROBE_BITS <= u64::BITS,
    "all probes come from one word"
);

/// How many bits each key adds to a filter's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitsPerKey(u16);

impl BitsPerKey {
    /// Of the runs of L1.
    pub const FIRST: Self = Self(22);
    /// Of levels between the first and the last.
    pub(crate) const BETWEEN: Self = Self(16);
    /// Of the last level.
    pub const LAST: Self = Self(12);
    /// More than any filter has.
    const MAX: u16 = 64;

    /// Those of a segment that is made for `level` where `deepest` is the deepest that has segments.
    #[must_use]
    pub const fn of(level: u8, deepest: u8) -> Self {
        match level {
            0 | 1 => Self::FIRST,
            level if level < deepest => Self::BETWEEN,
            _ => Self::LAST,
        }
    }

    const fn get(self) -> usize {
        self.0 as usize
    }
}

/// A key as filters see it. Compute it once for all segments that may hold the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The hash of `key`.
    #[inline]
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// The line of `lines`, and the bits in it from the lowest probe on.
    #[inline]
    fn place(self, lines: usize) -> (usize, u64) {
        let line = ((self.0 >> 32) * lines as u64) >> 32;
        let probes = self.0.wrapping_mul(SPREAD) >> (u64::BITS - PROBES * PROBE_BITS);
        (line as usize, probes)
    }
}

/// The bit of a line that a probe stands for.
#[inline]
fn bit(probes: u64, probe: u32) -> usize {
    usize::from((probes >> (probe * PROBE_BITS) & 0x1ff) as u16)
}

const fn lines_for(keys: usize, bits: BitsPerKey) -> usize {
    let lines = (keys * bits.get()).div_ceil(LINE_BITS);
    if lines == 0 { 1 } else { lines }
}

/// Bytes of the encoded filter of `keys` keys with so many `bits` each.
#[inline]
#[must_use]
pub const fn encoded_len(keys: usize, bits: BitsPerKey) -> usize {
    HEADER_BYTES + lines_for(keys, bits) * LINE_BYTES
}

/// A line of a filter, which is one of the processor's cache, too.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

/// A filter in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Filter {
    bits: BitsPerKey,
    lines: Vec<Line>,
}

impl Filter {
    /// The filter of the keys with these hashes.
    #[must_use]
    pub fn build(hashes: &[KeyHash], bits: BitsPerKey) -> Self {
        let mut lines = vec![Line::default(); lines_for(hashes.len(), bits)];
        for hash in hashes {
            let (line, probes) = hash.place(lines.len());
            let line = &mut lines[line].0;
            for probe in 0..PROBES {
                let bit = bit(probes, probe);
                line[bit / 64] |= 1 << (bit % 64);
            }
        }
        Self { bits, lines }
    }

    /// Whether it is as long as one of so many keys.
    #[must_use]
    pub fn is_of(&self, keys: usize) -> bool {
        self.lines.len() == lines_for(keys, self.bits)
    }

    /// Whether the key may be among those that the filter was built of. A key that is among them
    /// always may.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, key: KeyHash) -> bool {
        let (line, probes) = key.place(self.lines.len());
        let line = &self.lines[line].0;
        let are_set = |from, to| {
            let set = (from..to).map(|probe| {
                let bit = bit(probes, probe);
                line[bit / 64] >> (bit % 64)
            });
            set.fold(1, |all, set| all & set) != 0
        };
        // Which probe is the first that fails cannot be predicted; that one of the first fails can, where the key is
        // not there, and the others are spared.
        are_set(0, FIRST_PROBES) && are_set(FIRST_PROBES, PROBES)
    }

    /// Bytes that the filter keeps in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lines.capacity() * LINE_BYTES
    }

    /// Bytes of the encoded filter.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEADER_BYTES + self.lines.len() * LINE_BYTES
    }

    /// Writes the filter into `out`, which has [`encoded_len`](Self::encoded_len) bytes.
    pub fn encode(&self, out: &mut [u8], identity: Identity) {
        assert_eq!(out.len(), self.encoded_len(), "room for exactly the filter");
        let lines = u16::try_from(self.lines.len()).expect("a filter is smaller than a segment");
        out[4..6].copy_from_slice(&lines.to_le_bytes());
        out[6..HEADER_BYTES].copy_from_slice(&self.bits.0.to_le_bytes());
        let words = self.lines.iter().flat_map(|line| &line.0);
        for (out, word) in out[HEADER_BYTES..].chunks_exact_mut(8).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        let crc = identity.checksum(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Checks and decodes a filter.
    ///
    /// # Errors
    /// What is wrong, where the bytes are not those of a filter under this identity.
    pub fn parse(bytes: &[u8], identity: Identity) -> Result<Self, &'static str> {
        let malformed = "a segment's filter is malformed";
        let (crc, covered) = bytes.split_first_chunk::<4>().ok_or(malformed)?;
        if identity.checksum(covered).to_le_bytes() != *crc {
            return Err("a segment's filter does not match its checksum");
        }
        let (count, rest) = covered.split_first_chunk::<2>().ok_or(malformed)?;
        let (bits, lines) = rest.split_first_chunk::<2>().ok_or(malformed)?;
        let (count, bits) = (u16::from_le_bytes(*count), u16::from_le_bytes(*bits));
        let (words, rest) = lines.as_chunks::<8>();
        let whole = rest.is_empty() && words.len() == usize::from(count) * LINE_WORDS;
        if !whole || count == 0 || bits == 0 || bits > BitsPerKey::MAX {
            return Err(malformed);
        }
        let lines = words
            .as_chunks::<LINE_WORDS>()
            .0
            .iter()
            .map(|line| Line(line.map(u64::from_le_bytes)))
            .collect();
        let bits = BitsPerKey(bits);
        Ok(Self { bits, lines })
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} lines, {:?})", self.lines.len(), self.bits)
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
