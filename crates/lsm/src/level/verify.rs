//! Checks a whole level segment, with an index or of a tree, and goes on where something is wrong:
//! for tools that say what is damaged and where.
//!
//! What is not the segment's own may be of another one, which lay there before: a *stale* block.
//! Its checksum tells, since it was made under the other segment's name.

use std::collections::BTreeMap;
use std::ops::Range;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{Epoch, Kind, Pointer, RegionId, SegmentNumber};
use argosy_device::Buffer;

use super::SegmentReader;
use super::format::{FOOTER_BYTES, Footer, Table};
use super::leaf::{self, Leaf};
use super::tree::IndexNode;
use crate::filter::KeyHash;
use crate::names::{Entry, Form, Lasting, LevelError, NODE_BYTES_MIN, SegmentName};

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
    /// Bytes of keys and values behind its pointers, by log segment; by 0 what `visit` did not know.
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
    let mut counted = Counted::default();
    for (index, span) in spans(&reader, bytes).into_iter().enumerate() {
        let node = bytes.get(span.start as usize..span.end as usize);
        let leaf = match reader.form() {
            Form::SelfContained => reader.read_leaf(index, bytes),
            _ => Leaf::parse(node.unwrap_or_default(), name, span.start),
        };
        let leaf = match leaf {
            Ok(leaf) => leaf,
            Err(error) => {
                let other = node.and_then(|node| name_of_leaf(name, node, span.start, mark));
                faults.push(match other {
                    Some(other) => stale_leaf(span.start, other),
                    None => of_error(&error, name, bytes),
                });
                continue;
            }
        };
        let wrong = counted.leaf(&leaf, &reader, &mut visit);
        faults.extend(wrong.map(|what| Fault::damaged(span.start, what)));
    }
    if !faults.is_empty() {
        return (None, faults);
    }
    let (contents, wrong) = counted.finish(&reader);
    let wrong = wrong.into_iter();
    faults.extend(wrong.map(|what| Fault::damaged(len - FOOTER, what)));
    (Some(contents), faults)
}

/// What the leaves of a segment hold so far.
#[derive(Default)]
struct Counted {
    contents: Contents,
    refs: BTreeMap<SegmentNumber, u64>,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Counted {
    /// Takes the next leaf. Returns what is wrong about its keys.
    fn leaf(
        &mut self,
        leaf: &Leaf,
        reader: &SegmentReader,
        visit: &mut impl FnMut(&[u8], Entry<'_>) -> Option<SegmentNumber>,
    ) -> Option<&'static str> {
        let mut wrong = None;
        let contents = &mut self.contents;
        contents.leaves += 1;
        if leaf.first_key() <= self.last && !self.last.is_empty() {
            wrong = Some("its first key does not follow the last key of the leaf before");
        }
        if contents.leaves == 1 {
            self.first = leaf.first_key();
        }
        self.last = leaf.last_key();
        for pair in 0..leaf.count() {
            let (key, entry) = (leaf.key(pair), leaf.entry(pair));
            contents.entries += 1;
            let leads_to = visit(&key, entry);
            match entry {
                Entry::Inline(_) | Entry::Until(_, Lasting::Inline(_)) => {}
                Entry::Tombstone => contents.tombstones += 1,
                Entry::Pointer { value_len, .. }
                | Entry::Until(_, Lasting::Pointer { value_len, .. }) => {
                    let bytes = key.len() as u64 + u64::from(value_len);
                    let number = leads_to.unwrap_or_default();
                    *self.refs.entry(number).or_default() += bytes;
                }
            }
            if !reader.may_contain(KeyHash::of(&key)) {
                wrong = Some("the filter does not know a key of the leaves");
            }
        }
        wrong
    }

    /// What the leaves held, and what the footer says otherwise.
    fn finish(mut self, reader: &SegmentReader) -> (Contents, Vec<&'static str>) {
        let mut wrong = Vec::new();
        self.contents.log_refs = self.refs.into_iter().collect();
        let Contents {
            leaves,
            entries,
            tombstones,
            ..
        } = self.contents;
        let said = (reader.entries(), reader.tombstones());
        if (entries, tombstones) != said || leaves != reader.leaves_counted() {
            wrong.push("the footer does not count what the leaves hold");
        }
        // Of what does not count nobody knows where it leads, and only some segments list.
        let known = self
            .contents
            .log_refs
            .iter()
            .all(|(number, _)| number.0 > 0);
        if known && !reader.log_refs().is_empty() && self.contents.log_refs != reader.log_refs() {
            wrong.push("the footer's references to the large log are not those of the leaves");
        }
        let ends = (self.first.as_slice(), self.last.as_slice());
        if ends != (reader.first_key(), reader.last_key()) {
            wrong.push("the footer's first and last keys are not those of the leaves");
        }
        (self.contents, wrong)
    }
}

/// A leaf, by where it begins, or why it cannot be read.
pub type FoundLeaf = (u32, Result<Leaf, LevelError>);

/// Every leaf of segment `name`, by where it begins, or why it cannot be read. Where the segment's footer
/// or index cannot be, leaves are looked for at each block, and those are left out that are none.
///
/// # Errors
/// Why footer or index cannot be read, and the leaves that were found nevertheless.
pub fn leaves_of(name: SegmentName, bytes: &Buffer) -> Result<Vec<FoundLeaf>, Vec<FoundLeaf>> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let parse = |from: u32, to: u32| {
        let node = bytes.get(from as usize..to as usize).unwrap_or_default();
        Leaf::parse(node, name, from)
    };
    match SegmentReader::open(name, len, bytes) {
        Ok(reader) => {
            let leaves = spans(&reader, bytes).into_iter().enumerate();
            Ok(leaves
                .map(|(index, span)| match reader.form() {
                    Form::SelfContained => (span.start, reader.read_leaf(index, bytes)),
                    _ => (span.start, parse(span.start, span.end)),
                })
                .collect())
        }
        Err(_) => {
            let mut found = Vec::new();
            let mut at = 0;
            while at < len {
                let node = leaf::node_len(&bytes[at as usize..]);
                let node = node.and_then(|node| u32::try_from(node).ok());
                match node.map(|node| (node, parse(at, at.saturating_add(node)))) {
                    Some((node, Ok(leaf))) => {
                        found.push((at, Ok(leaf)));
                        at += node;
                    }
                    _ => at += NODE - at % NODE,
                }
            }
            Err(found)
        }
    }
}

/// Where the leaves lie: as the index says, or, in a segment of a tree, as they say of themselves.
fn spans(reader: &SegmentReader, bytes: &[u8]) -> Vec<Range<u32>> {
    match reader.form() {
        Form::SelfContained => (0..reader.leaves())
            .map(|index| reader.leaf_span(index))
            .collect(),
        _ => node_spans(bytes, reader.leaves_bytes(), reader.node_bytes()),
    }
}

/// Where nodes lie that follow each other up to byte `end`. One that does not tell its length is taken
/// for one of `node_bytes`.
fn node_spans(bytes: &[u8], end: u32, node_bytes: u32) -> Vec<Range<u32>> {
    let nodes = &bytes[..bytes.len().min(end as usize)];
    let mut spans = Vec::new();
    let mut at = 0;
    while at < end {
        let len = leaf::node_len(nodes.get(at as usize..).unwrap_or_default());
        let len = len.and_then(|len| u32::try_from(len).ok());
        let len = len.filter(|len| *len > 0).unwrap_or(node_bytes);
        let behind = (at + len).min(end);
        spans.push(at..behind);
        at = behind;
    }
    spans
}

/// Checks footer and every node of `name`, an index segment of a tree, whose bytes are `bytes`. What
/// its nodes lead to is another matter; but that they lead to the segments that the footer lists, as
/// far as `high_bits` knows what pointers to a segment begin with.
#[must_use]
pub fn verify_index_segment(
    name: SegmentName,
    height: u8,
    bytes: &Buffer,
    high_bits: impl Fn(SegmentNumber) -> Option<SegmentNumber>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let found = match index_footer(name, height, bytes) {
        Ok(found) => found,
        Err(error) => return vec![of_error(&error, name, bytes)],
    };
    let (footer, table) = found;
    let (mut nodes, mut children) = (0, Vec::new());
    let (mut first, mut last): (Vec<u8>, Vec<u8>) = Default::default();
    for span in node_spans(bytes, footer.leaves_len, footer.node_bytes) {
        let node = &bytes[span.start as usize..span.end as usize];
        let node = match IndexNode::parse(node, name, span.start) {
            Ok(node) => node,
            Err(error) => {
                faults.push(of_error(&error, name, bytes));
                continue;
            }
        };
        if node.separator(0) <= last && !last.is_empty() {
            let what = "its first separator does not follow the last of the node before";
            faults.push(Fault::damaged(span.start, what));
        }
        if nodes == 0 {
            first = node.separator(0);
        }
        nodes += 1;
        children.extend((0..node.count()).map(|slot| node.child(slot).at));
        last = node.separator(node.count() - 1);
    }
    let count = u32::try_from(children.len()).unwrap_or(u32::MAX);
    let counted = (nodes, count, first, last);
    let said = (
        footer.leaves,
        footer.entries,
        table.first_key,
        table.last_key,
    );
    let wrong = if counted != said {
        Some("the footer does not count what the nodes hold")
    } else if !are_listed(&children, &table.log_refs, high_bits) {
        Some("the footer's segments of children are not those that the nodes lead to")
    } else {
        None
    };
    let at = u32::try_from(bytes.len()).unwrap_or(u32::MAX) - FOOTER;
    let wrong = wrong.filter(|_| faults.is_empty());
    faults.extend(wrong.map(|what| Fault::damaged(at, what)));
    faults
}

/// Whether `children` are as many of each segment as `listed` says, in its order. Pointers to one
/// segment begin alike, whatever they begin with.
fn are_listed(
    children: &[Pointer],
    listed: &[(SegmentNumber, u64)],
    high_bits: impl Fn(SegmentNumber) -> Option<SegmentNumber>,
) -> bool {
    let mut left = children;
    for (number, count) in listed {
        let taken = usize::try_from(*count).ok();
        let taken = taken.and_then(|count| left.split_at_checked(count));
        let Some(([first, others @ ..], behind)) = taken else {
            return false;
        };
        let begin = first.segment();
        let alike = others.iter().all(|at| at.segment() == begin);
        if !alike || high_bits(*number).is_some_and(|high| high != begin) {
            return false;
        }
        left = behind;
    }
    left.is_empty()
}

/// What pointers to children begin with in `own`, by what they begin with in `other`: two forms of `name`, an index
/// segment of nodes of `height`. Only nodes that are whole in both tell.
#[must_use]
pub(crate) fn paired_children(
    name: SegmentName,
    height: u8,
    own: &[u8],
    other: &[u8],
) -> BTreeMap<SegmentNumber, SegmentNumber> {
    let mut paired = BTreeMap::new();
    let Ok((footer, _)) = index_footer(name, height, other) else {
        return paired;
    };
    for span in node_spans(other, footer.leaves_len, footer.node_bytes) {
        let parse = |bytes: &[u8]| {
            let node = bytes.get(span.start as usize..span.end as usize);
            IndexNode::parse(node?, name, span.start).ok()
        };
        if let (Some(own), Some(other)) = (parse(own), parse(other)) {
            let slots = 0..own.count().min(other.count());
            let begins = |node: &IndexNode, slot| node.child(slot).at.segment();
            paired.extend(slots.map(|slot| (begins(&other, slot), begins(&own, slot))));
        }
    }
    paired
}

/// The footer of an index segment of nodes of `height`.
fn index_footer(
    name: SegmentName,
    height: u8,
    bytes: &[u8],
) -> Result<(Footer, Table), LevelError> {
    let impossible = || name.corrupt(0, "the segment has an impossible length");
    let (body, footer) = bytes
        .split_last_chunk::<FOOTER_BYTES>()
        .filter(|_| bytes.len() <= SEGMENT_SIZE)
        .ok_or_else(impossible)?;
    let at = u32::try_from(body.len()).map_err(|_| impossible())?;
    let footer = Footer::parse(footer, name, at)?;
    if footer.form != Form::Index(height) {
        return Err(name.corrupt(at, "not an index segment of this height"));
    }
    let [.., table_at, end] = footer
        .bounds()
        .map(|at| usize::try_from(at).unwrap_or(usize::MAX));
    let parts = body.get(table_at..end).zip(body.get(end..));
    let (table, padding) = parts.ok_or_else(impossible)?;
    if padding.iter().any(|byte| *byte != 0) {
        return Err(name.corrupt(at, "a segment's padding is not zero"));
    }
    let table = Table::parse(
        table,
        name,
        u32::try_from(table_at).map_err(|_| impossible())?,
    )?;
    Ok((footer, table))
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
/// Leaves begin at multiples of this.
const NODE: u32 = 512;
const _: () = assert!(NODE as usize == NODE_BYTES_MIN);
const _: () = assert!(FOOTER as usize == FOOTER_BYTES && SEGMENT_SIZE < 1 << 31);

pub(super) fn of_error(error: &LevelError, name: SegmentName, bytes: &[u8]) -> Fault {
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
