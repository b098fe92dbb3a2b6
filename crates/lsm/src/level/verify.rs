//! Checks a whole level segment, and goes on where something is wrong: for tools that say what is
//! damaged and where.
//!
//! What is not the segment's own may be of another one, which lay there before: a *stale* block.
//! Its checksum tells, since it was made under the other segment's name.

use std::collections::BTreeMap;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{Epoch, Kind, RegionId, SegmentNumber};
use argosy_device::Buffer;

use super::format::{FOOTER_BYTES, Footer};
use super::{Entry, LevelError, SegmentName, SegmentReader};
use crate::filter::KeyHash;

/// Most names that are tried to find out what a stale leaf was.
const NAMES_TRIED_MAX: u64 = 1 << 16;

/// Something wrong in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in it, in bytes.
    pub offset: u32,
    /// What is wrong.
    pub what: String,
    /// The bytes are whole, but those of another segment or of another time.
    pub stale: bool,
}

impl Fault {
    /// Bytes that are not what was written.
    #[must_use]
    pub fn damaged(offset: u32, what: impl Into<String>) -> Self {
        Self {
            offset,
            what: what.into(),
            stale: false,
        }
    }

    /// Bytes that were written as something else.
    #[must_use]
    pub fn stale(offset: u32, what: impl Into<String>) -> Self {
        Self {
            offset,
            what: what.into(),
            stale: true,
        }
    }
}

/// What a segment holds, counted pair by pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Pairs and tombstones.
    pub entries: u32,
    /// Tombstones.
    pub tombstones: u32,
    /// Leaves.
    pub leaves: u32,
    /// Bytes of keys and values behind its pointers, by log segment.
    pub log_refs: Vec<(SegmentNumber, u64)>,
}

/// Checks footer, index, filter and every leaf of segment `name`, whose bytes are `bytes`, and
/// shows `visit` every pair that can be read, which tells the log segment that a pointer leads to,
/// if there is one. `None` in place of the contents where not all of
/// them can. Numbers below `mark` may have been in use.
pub fn verify_segment(
    name: SegmentName,
    bytes: &Buffer,
    mark: SegmentNumber,
    mut visit: impl FnMut(&[u8], Entry<'_>) -> Option<SegmentNumber>,
) -> (Option<Contents>, Vec<Fault>) {
    let mut faults = Vec::new();
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let reader = match SegmentReader::open(name, len, bytes) {
        Ok(reader) => reader,
        Err(error) => {
            faults.push(of_error(&error, name, bytes));
            return (None, faults);
        }
    };
    let mut contents = Contents::default();
    let mut refs: BTreeMap<SegmentNumber, u64> = BTreeMap::new();
    let mut last: Vec<u8> = Vec::new();
    for index in 0..reader.leaves() {
        let leaf = match reader.leaf(index, bytes, None) {
            Ok(leaf) => leaf,
            Err(error) => {
                let span = reader.leaf_span(index);
                let node = bytes.get(span.start as usize..span.end as usize);
                let other = node.and_then(|node| name_of_leaf(name, node, span.start, mark));
                faults.push(match other {
                    Some(other) => stale_leaf(span.start, other),
                    None => of_error(&error, name, bytes),
                });
                continue;
            }
        };
        contents.leaves += 1;
        if leaf.first_key() <= last.as_slice() && !last.is_empty() {
            let what = "its first key does not follow the last key of the leaf before";
            faults.push(Fault::damaged(reader.leaf_start(index), what));
        }
        last.clear();
        last.extend_from_slice(leaf.last_key());
        for pair in 0..leaf.count() {
            let (key, entry) = (leaf.key(pair), leaf.entry(pair));
            contents.entries += 1;
            let leads_to = visit(key, entry);
            match entry {
                Entry::Inline(_) => {}
                Entry::Tombstone => contents.tombstones += 1,
                Entry::Pointer { value_len, .. } => {
                    let bytes = key.len() as u64 + u64::from(value_len);
                    *refs.entry(leads_to.unwrap_or_default()).or_default() += bytes;
                }
            }
            if !reader.may_contain(KeyHash::of(key)) {
                let what = "the filter does not know a key of the leaves";
                faults.push(Fault::damaged(reader.leaf_start(index), what));
            }
        }
    }
    contents.log_refs = refs.into_iter().collect();
    if !faults.is_empty() {
        return (None, faults);
    }
    let counted = (contents.entries, contents.tombstones);
    if counted != (reader.entries(), reader.tombstones()) {
        let what = "the footer does not count what the leaves hold";
        faults.push(Fault::damaged(len - FOOTER, what));
    }
    if contents.log_refs != reader.log_refs() {
        let what = "the footer's references to the large log are not those of the leaves";
        faults.push(Fault::damaged(len - FOOTER, what));
    }
    (Some(contents), faults)
}

/// Whose level segment `bytes` are, which are whole blocks, if they end as one.
#[must_use]
pub fn name_of_segment(bytes: &[u8]) -> Option<SegmentName> {
    let at = bytes.len().checked_sub(FOOTER_BYTES)?;
    let footer: &[u8; FOOTER_BYTES] = bytes.get(at..)?.first_chunk()?;
    let word = |from: usize| Some(u32::from_le_bytes(*footer.get(from..)?.first_chunk()?));
    let name = SegmentName {
        region: RegionId(word(16)?),
        epoch: Epoch(word(20)?),
        number: SegmentNumber(u64::from(word(24)?) | u64::from(word(28)?) << 32),
    };
    Footer::parse(footer, name, u32::try_from(at).ok()?).ok()?;
    Some(name)
}

const FOOTER: u32 = 128;
const _: () = assert!(FOOTER as usize == FOOTER_BYTES && SEGMENT_SIZE < 1 << 31);

fn of_error(error: &LevelError, name: SegmentName, bytes: &[u8]) -> Fault {
    match error {
        LevelError::Corrupt { offset, what, .. } => match name_of_segment(bytes) {
            Some(other) if other != name => Fault::stale(
                *offset,
                format!("what lies here is {} of {}", other.number, other.region),
            ),
            _ => Fault::damaged(*offset, *what),
        },
        other => Fault::damaged(0, other.to_string()),
    }
}

fn stale_leaf(offset: u32, other: SegmentName) -> Fault {
    let SegmentName { number, epoch, .. } = other;
    let what = format!("a leaf that was written as part of {number} in {epoch}");
    Fault::stale(offset, what)
}

/// Under which earlier name `node` would be a leaf at `offset`.
fn name_of_leaf(
    name: SegmentName,
    node: &[u8],
    offset: u32,
    mark: SegmentNumber,
) -> Option<SegmentName> {
    let (crc, covered) = node.split_first_chunk::<4>()?;
    let crc = u32::from_le_bytes(*crc);
    debug_assert!(offset as usize <= SEGMENT_SIZE && BLOCK_SIZE > FOOTER_BYTES);
    let numbers = (1..mark.0).rev().map(SegmentNumber);
    let epochs = (0..=name.epoch.0).rev().map(Epoch);
    let names = numbers.flat_map(|number| epochs.clone().map(move |epoch| (number, epoch)));
    let limit = usize::try_from(NAMES_TRIED_MAX).unwrap_or(usize::MAX);
    names
        .take(limit)
        .map(|(number, epoch)| SegmentName {
            number,
            epoch,
            ..name
        })
        .find(|other| *other != name && other.identity(Kind::Leaf, offset).checksum(covered) == crc)
}
