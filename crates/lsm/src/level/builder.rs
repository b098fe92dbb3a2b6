//! Fills a level segment from pairs in ascending key order.
//!
//! Pairs gather in a draft, which is written to its place in the segment's buffer when the next pair
//! does not fit; a segment is full when that pair could not be followed by the index, the filter and
//! the footer any more; the caller then finishes this segment and adds the pair to the next one. What
//! comes out depends on the pairs only: equal pairs make equal bytes, on every member.
//!
//! A segment of a tree is filled in the same way, without an index: where its leaves lie is told to the
//! [`TreeBuilder`](super::tree_builder::TreeBuilder), which puts nodes over them.

use std::collections::BTreeMap;
use std::ops::Range;

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{BLOCK_SIZE, Kind, SEGMENT_SIZE, SegmentNumber};
use argosy_device::Buffer;

use super::draft::{Draft, Lengths};
use super::format::{self, FOOTER_BYTES, Footer, Table};
use super::index::{CHILD_BYTES_MAX, IndexBuilder};
use super::tree_builder::separator;
use crate::filter::{self, BitsPerKey, Filter, KeyHash};
use crate::names::{Entry, Form, LEAF_BYTES_MAX, SegmentName};

/// A segment that is finished and will never change.
#[derive(Debug)]
pub struct BuiltSegment {
    /// Which segment it is.
    pub name: SegmentName,
    /// What it is.
    pub form: Form,
    /// All its bytes, in whole blocks.
    pub bytes: Buffer,
    /// The checksum of all its bytes: [`SegmentName::checksum`].
    pub checksum: u32,
    /// How many pairs and tombstones it holds.
    pub entries: u32,
    /// How many of these are tombstones.
    pub tombstones: u32,
    /// Its lowest key.
    pub first_key: Vec<u8>,
    /// Its highest key.
    pub last_key: Vec<u8>,
    /// Bytes of keys and values in the large log that it points to, as far as its maker counted them.
    pub large_bytes: u64,
    /// Bytes of keys and values in the medium log that it points to, as far as its maker counted them.
    pub medium_bytes: u64,
    /// Where it [lists](SegmentBuilder::listing) them: the log segments that it points into, in ascending
    /// order, each with the bytes of the keys and values whose pointers lead there.
    pub log_refs: Vec<(SegmentNumber, u64)>,
    /// Of a segment of a tree: its nodes, for the height above.
    pub nodes: Vec<NodePlace>,
}

/// A finished node of a tree's segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Not above any key below the node, and above all keys before it.
    pub separator: Vec<u8>,
    /// Where it begins in its segment.
    pub offset: u32,
    /// Its bytes.
    pub len: u32,
}

/// Sizes of a segment and its nodes; the same on all members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentGeometry {
    /// Bytes of a node; a power of two from 512 to 32 KiB.
    pub node_bytes: usize,
    /// Most bytes of the segment; whole blocks, from [`format::segment_bytes_min`] to
    /// [`SEGMENT_SIZE`].
    pub segment_bytes: usize,
}

/// A segment that is being filled.
#[derive(Debug)]
pub struct SegmentBuilder {
    name: SegmentName,
    geometry: SegmentGeometry,
    out: Buffer,
    /// Where the leaf goes that is being filled; empty before the first pair.
    leaf: Range<usize>,
    draft: Draft,
    first_key: Vec<u8>,
    leaves: Leaves,
    hashes: Vec<KeyHash>,
    filter_bits: BitsPerKey,
    tombstones: u32,
    /// By the high bits of pointers, where they are listed.
    log_refs: Option<BTreeMap<SegmentNumber, u64>>,
}

/// What is known of the leaves so far.
#[derive(Debug)]
enum Leaves {
    /// The segment gets an index over them.
    Indexed(IndexBuilder),
    /// They are leaves of a tree.
    Tree {
        /// The last key of the segment before.
        below: Option<Vec<u8>>,
        nodes: Vec<NodePlace>,
    },
}

impl Default for Leaves {
    fn default() -> Self {
        Self::Indexed(IndexBuilder::default())
    }
}

impl Leaves {
    /// Bytes of the index.
    fn index_len(&self) -> usize {
        match self {
            Self::Indexed(index) => index.len(),
            Self::Tree { .. } => 0,
        }
    }

    /// Most bytes by which one more leaf makes the index longer.
    const fn child_bytes_max(&self) -> usize {
        match self {
            Self::Indexed(_) => CHILD_BYTES_MAX,
            Self::Tree { .. } => 0,
        }
    }
}

impl SegmentBuilder {
    /// An empty leaf segment of a tree. `below` is the last key of the leaf segment before it, if
    /// there is one.
    ///
    /// # Panics
    /// When the geometry is outside its bounds.
    #[must_use]
    pub(crate) fn of_tree(
        name: SegmentName,
        geometry: SegmentGeometry,
        below: Option<Vec<u8>>,
    ) -> Self {
        let leaves = Leaves::Tree {
            below,
            nodes: vec![],
        };
        Self {
            leaves,
            ..Self::new(name, geometry)
        }
    }

    /// An empty segment.
    ///
    /// # Panics
    /// When the geometry is outside its bounds.
    #[must_use]
    pub fn new(name: SegmentName, geometry: SegmentGeometry) -> Self {
        let SegmentGeometry {
            node_bytes,
            segment_bytes,
        } = geometry;
        assert!(
            format::node_bytes_valid(node_bytes),
            "a node is a power of two from 512 bytes to 32 KiB, not {node_bytes}"
        );
        assert!(
            segment_bytes.is_multiple_of(BLOCK_SIZE)
                && segment_bytes <= SEGMENT_SIZE
                && segment_bytes >= format::segment_bytes_min(node_bytes),
            "a segment holds whole blocks and any one pair, not {segment_bytes} bytes"
        );
        Self {
            name,
            geometry,
            out: Buffer::zeroed(segment_bytes),
            leaf: 0..0,
            draft: Draft::default(),
            first_key: vec![],
            leaves: Leaves::default(),
            hashes: vec![],
            filter_bits: BitsPerKey::LAST,
            tombstones: 0,
            log_refs: None,
        }
    }

    /// The same, still empty, with a list of the log segments that it points into in its footer, or without.
    /// Where pointers hold places, other members need it: only the list names the segments.
    #[must_use]
    pub fn listing(self, listed: bool) -> Self {
        Self {
            log_refs: listed.then(BTreeMap::new),
            ..self
        }
    }

    /// The same, still empty, with so many bits of its filter for each key.
    #[must_use]
    pub(crate) fn with_filter(self, filter_bits: BitsPerKey) -> Self {
        Self {
            filter_bits,
            ..self
        }
    }

    /// Adds a pair, or returns `false` and changes nothing when the segment is full. An empty segment
    /// takes any pair whose value lies in a log, and any other of up to a quarter of a node.
    ///
    /// # Panics
    /// When `key` is empty, too long or not above the last key, or an inline value is longer than any
    /// leaf.
    #[inline]
    #[must_use = "a pair that did not fit belongs into the next segment"]
    pub fn add(&mut self, key: &[u8], entry: Entry<'_>) -> bool {
        assert!(self.draft.is_below(key), "keys rise strictly");
        assert!(key.len() <= KEY_BYTES_MAX, "keys are checked when written");
        let mut lengths = self.draft.with(key, &entry);
        let opens = lengths.bytes() > self.leaf.len() || lengths.is_too_wide();
        if opens {
            lengths = Draft::alone(key, &entry);
        }
        let leaf_bytes = if opens { self.leaf_bytes(lengths) } else { 0 };
        if !self.fits(key, &entry, leaf_bytes) {
            assert!(self.entries() > 0, "an empty segment takes any pair");
            return false;
        }
        if opens {
            self.open_leaf(key, leaf_bytes);
        }
        self.put(key, &entry, lengths);
        true
    }

    /// Bytes of a leaf that begins with these `lengths`.
    fn leaf_bytes(&self, lengths: Lengths) -> usize {
        let bytes = lengths.bytes().next_multiple_of(self.geometry.node_bytes);
        assert!(bytes <= LEAF_BYTES_MAX, "long values are kept in a log");
        bytes
    }

    /// Whether everything that has to follow the leaves still has room when the pair is added, with a
    /// new leaf of `leaf_bytes` where that is not zero.
    #[inline]
    fn fits(&self, key: &[u8], entry: &Entry<'_>, leaf_bytes: usize) -> bool {
        let child = if leaf_bytes > 0 {
            self.leaves.child_bytes_max()
        } else {
            0
        };
        let listed = self.log_refs.as_ref();
        let log_refs = listed.map_or(0, |refs| {
            refs.len() + usize::from(entry.pointer().is_some())
        });
        let first = if self.first_key.is_empty() {
            key.len()
        } else {
            self.first_key.len()
        };
        let end = self.leaf.end
            + leaf_bytes
            + self.leaves.index_len()
            + child
            + filter::encoded_len(self.hashes.len() + 1, self.filter_bits)
            + Table::len_max(first, key.len(), log_refs)
            + FOOTER_BYTES;
        end <= self.out.len()
    }

    fn open_leaf(&mut self, key: &[u8], leaf_bytes: usize) {
        self.close_leaf();
        let last = self.draft.last_key();
        let last = (!last.is_empty()).then_some(last);
        match &mut self.leaves {
            Leaves::Indexed(index) => {
                index.push(leaf_bytes / self.geometry.node_bytes, last, key);
            }
            Leaves::Tree { below, nodes } => nodes.push(NodePlace {
                separator: separator(last.or(below.as_deref()), key).to_vec(),
                offset: narrow(self.leaf.end),
                len: narrow(leaf_bytes),
            }),
        }
        self.leaf = self.leaf.end..self.leaf.end + leaf_bytes;
        self.draft.clear();
        if self.first_key.is_empty() {
            self.first_key = key.to_vec();
        }
    }

    fn close_leaf(&mut self) {
        if self.leaf.is_empty() {
            return;
        }
        let at = narrow(self.leaf.start);
        let identity = self.name.identity(Kind::Leaf, at);
        self.draft.write(&mut self.out[self.leaf.clone()], identity);
    }

    /// Adds the pair to the open leaf, which is then as long as `lengths` says.
    #[inline]
    fn put(&mut self, key: &[u8], entry: &Entry<'_>, lengths: Lengths) {
        self.draft.push(key, entry, lengths);
        self.hashes.push(KeyHash::of(key));
        match entry.pointer() {
            Some((at, value_len)) => {
                if let Some(refs) = &mut self.log_refs {
                    let bytes = key.len() as u64 + u64::from(value_len);
                    *refs.entry(at.segment()).or_default() += bytes;
                }
            }
            None => self.tombstones += u32::from(*entry == Entry::Tombstone),
        }
    }

    /// How many pairs and tombstones have been added.
    #[must_use]
    pub fn entries(&self) -> u32 {
        narrow(self.hashes.len())
    }

    /// Closes the segment, whose pointers hold the numbers of log segments.
    ///
    /// # Panics
    /// When it is empty.
    #[must_use]
    pub fn finish(self) -> BuiltSegment {
        let Ok(built) = self.finish_with(Some) else {
            unreachable!("a number is a number")
        };
        built
    }

    /// Closes the segment; `number_of` tells the numbers of the log segments that the high bits of
    /// its pointers stand for.
    ///
    /// # Errors
    /// The high bits that it has no number for.
    ///
    /// # Panics
    /// When it is empty.
    pub(crate) fn finish_with(
        mut self,
        mut number_of: impl FnMut(SegmentNumber) -> Option<SegmentNumber>,
    ) -> Result<BuiltSegment, SegmentNumber> {
        let mut log_refs = BTreeMap::new();
        for (high, bytes) in self.log_refs.take().unwrap_or_default() {
            *log_refs.entry(number_of(high).ok_or(high)?).or_default() += bytes;
        }
        Ok(self.finish_named(log_refs.into_iter().collect()))
    }

    fn finish_named(mut self, log_refs: Vec<(SegmentNumber, u64)>) -> BuiltSegment {
        assert!(self.entries() > 0, "no segment is empty");
        self.close_leaf();
        let table = Table {
            first_key: std::mem::take(&mut self.first_key),
            last_key: self.draft.last_key().to_vec(),
            log_refs,
        };
        let filter = Filter::build(&self.hashes, self.filter_bits);
        let index_at = self.leaf.end;
        let index_len = self.leaves.index_len();
        let filter_at = index_at + index_len;
        let table_at = filter_at + filter.encoded_len();
        let encoded = table.encode(self.name, narrow(table_at));
        let table_end = table_at + encoded.len();
        let name = self.name;
        let (form, leaves, nodes) = match std::mem::take(&mut self.leaves) {
            Leaves::Indexed(index) => {
                let identity = name.identity(Kind::Index, narrow(index_at));
                index.write(&mut self.out[index_at..filter_at], identity);
                (Form::SelfContained, index.count(), vec![])
            }
            Leaves::Tree { nodes, .. } => (Form::Leaves, narrow(nodes.len()), nodes),
        };
        filter.encode(
            &mut self.out[filter_at..table_at],
            name.identity(Kind::Filter, narrow(filter_at)),
        );
        self.out[table_at..table_end].copy_from_slice(&encoded);
        let footer = Footer {
            form,
            node_bytes: narrow(self.geometry.node_bytes),
            leaves,
            entries: self.entries(),
            tombstones: self.tombstones,
            index_len: narrow(index_len),
            filter_len: narrow(filter.encoded_len()),
            table_len: narrow(encoded.len()),
            leaves_len: narrow(index_at),
        };
        let bytes = with_footer(self.out, table_end, &footer, name);
        BuiltSegment {
            name,
            form,
            checksum: name.checksum(&bytes),
            bytes,
            entries: footer.entries,
            tombstones: footer.tombstones,
            first_key: table.first_key,
            last_key: table.last_key,
            large_bytes: 0,
            medium_bytes: 0,
            log_refs: table.log_refs,
            nodes,
        }
    }
}

/// Puts the footer behind the first `used` bytes of `out`, in the last of as few blocks as possible.
/// Where that would save less than a part in 64, all of `out` is used instead of being copied.
pub(super) fn with_footer(out: Buffer, used: usize, footer: &Footer, name: SegmentName) -> Buffer {
    let needed = (used + FOOTER_BYTES).next_multiple_of(BLOCK_SIZE);
    assert!(needed <= out.len(), "`add` left room for what follows");
    let mut bytes = if needed < out.len() - out.len() / 64 {
        Buffer::from_slice(&out[..needed])
    } else {
        out
    };
    let at = bytes.len() - FOOTER_BYTES;
    bytes[at..].copy_from_slice(&footer.encode(name, narrow(at)));
    bytes
}

fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("offsets and lengths in a segment are below 2 MiB")
}
