//! A tree over all leaves of a run, across its segments: the format of its nodes.
//!
//! A level is either made of self-contained segments, each with an index of its own, or, where it was
//! built whole, of the segments of one *tree*:
//!
//! ```text
//! height 2                       [ root ]                          index segment 17
//!                               /        \
//! height 1            [ node ]   ...      [ node ] [ node ]        index segments 9, 16
//!                     /   |   \            |   \    |   \
//! height 0        leaf  leaf  leaf  ...  leaf leaf leaf leaf       leaf segments 7, 8, 10 … 15
//! ```
//!
//! - A *leaf segment* holds leaves, a filter over their keys and a footer, and no index.
//! - An *index segment* holds index nodes of one height and a footer, and no filter.
//!
//! Both end as [`format`](super::format) says. Nodes lie back to back from the
//! segment's beginning; the height is in the footer.
//!
//! ```text
//! index node := node                    -- as a leaf, see `leaf`, but with checksum kind Index
//! record     := 2  key_len: varint  len: varint  separator  pointer: u64
//! ```
//!
//! An index node is a leaf whose keys are *separators* and which binds each to a pointer: the child
//! begins at byte `offset` of segment `segment` ([`Pointer`]), by number or by place
//! ([`addresses`](crate::addresses)), and has `len` bytes. A node takes one
//! node of the geometry or, where two separators need more, as many times 512 bytes as they need.
//!
//! The table of an index segment lists, in place of log segments, the segments that its nodes lead to,
//! in the order of their numbers, which is that of the keys, and how many children each has there: where
//! pointers hold places, that tells whose place each was, also of a segment that is long gone.
//!
//! The edit that commits a run states where its tree begins ([`Tree`]). A tree of height 0 is a single
//! leaf.
//!
//! Invariants:
//!
//! - The children of a node of height h are nodes of height h − 1, those of height 1 are leaves.
//! - A leaf's separator is the shortest beginning of its first key that sorts above the last key of the
//!   leaf before it; that of the first leaf is its first byte. An index node's separator is its
//!   first record's. So every key below a child is not below its separator, and below the next one.
//! - Every node but the last of a height has at least two children.
//! - A segment is finished before a segment with a pointer into it is (bottom-up), so whoever gets
//!   finished segments in order knows every segment that is pointed at.
//! - Segments of one tree may leave a version one by one; nothing leads to what has left, because
//!   the version says which keys each leaf segment stands for.
//!
//! A reader asks the version for the leaf segment that stands for a key, its filter, and then goes
//! down from the root. A node is read through the cache, and checked when it comes from the device:
//! under its own identity, and against the separators in its parent (I2).

use argosy_base::{BLOCK_SIZE, Kind, Pointer, SEGMENT_SIZE, SegmentNumber};
use argosy_device::Buffer;

use super::format::{BLOCK, FOOTER_BYTES};
use super::{Leaf, ReadAt};
use crate::names::{Entry, LevelError, SegmentName, Tree, can_be_node};

/// The segments of a run's tree, as a reader finds them.
pub(crate) trait TreeSegments {
    /// How a segment's bytes are read.
    type Bytes<'s>: ReadAt
    where
        Self: 's;

    /// The high bits of pointers to index segment `number`, if the tree has it: the number itself, or
    /// where pointers hold places, its place.
    fn high_bits(&self, number: SegmentNumber) -> Option<SegmentNumber> {
        Some(number)
    }

    /// Where the tree begins.
    fn tree(&self) -> Tree;

    /// The index segment that `at`, a pointer to a node of `height`, leads into: its name, its bytes
    /// in use, and how they are read.
    fn index(&self, at: Pointer, height: u8) -> Option<(SegmentName, u32, Self::Bytes<'_>)>;
}

impl<T: TreeSegments + ?Sized> TreeSegments for &T {
    type Bytes<'s>
        = T::Bytes<'s>
    where
        Self: 's;

    fn high_bits(&self, number: SegmentNumber) -> Option<SegmentNumber> {
        (**self).high_bits(number)
    }

    fn tree(&self) -> Tree {
        (**self).tree()
    }

    fn index(&self, at: Pointer, height: u8) -> Option<(SegmentName, u32, Self::Bytes<'_>)> {
        (**self).index(at, height)
    }
}

impl<T: TreeSegments + ?Sized> TreeSegments for std::sync::Arc<T> {
    type Bytes<'s>
        = T::Bytes<'s>
    where
        Self: 's;

    fn high_bits(&self, number: SegmentNumber) -> Option<SegmentNumber> {
        (**self).high_bits(number)
    }

    fn tree(&self) -> Tree {
        (**self).tree()
    }

    fn index(&self, at: Pointer, height: u8) -> Option<(SegmentName, u32, Self::Bytes<'_>)> {
        (**self).index(at, height)
    }
}

/// The leaf segment that stands for the keys that are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafHome<S> {
    /// Which it is.
    pub name: SegmentName,
    /// The high bits of pointers to it, as [`TreeSegments::high_bits`].
    pub high_bits: SegmentNumber,
    /// Its bytes in use.
    pub len: u32,
    /// How they are read.
    pub bytes: S,
}

/// A node, as its parent knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) at: Pointer,
    pub(crate) len: u32,
}

impl Child {
    /// Whether a node can lie there.
    const fn is_sound(self) -> bool {
        can_be_node(self.at, self.len)
    }

    /// The error that says that what this pointer leads to is not what it should be.
    pub(crate) const fn corrupt(self, what: &'static str) -> LevelError {
        LevelError::Corrupt {
            segment: self.at.segment(),
            offset: self.at.offset(),
            what,
        }
    }
}

/// A node between root and leaves. Clones share the bytes.
#[derive(Clone, Debug)]
pub(crate) struct IndexNode(pub(crate) Leaf);

impl IndexNode {
    /// Checks `bytes`, all bytes of the node at byte `offset` of segment `name`.
    pub(crate) fn parse(bytes: &[u8], name: SegmentName, offset: u32) -> Result<Self, LevelError> {
        let node = Leaf::parse_as(Kind::Index, bytes, name, offset)?;
        let node = Self(node);
        if (0..node.count()).all(|slot| node.child(slot).is_sound()) {
            Ok(node)
        } else {
            Err(name.corrupt(offset, "an index node binds a separator to no child"))
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count()
    }

    pub(crate) fn separator(&self, slot: usize) -> Vec<u8> {
        self.0.key(slot)
    }

    pub(crate) fn child(&self, slot: usize) -> Child {
        match self.0.entry(slot) {
            Entry::Pointer { at, value_len } => Child { at, len: value_len },
            // No child is sound that has no bytes.
            _ => Child {
                at: Pointer::default(),
                len: 0,
            },
        }
    }

    /// The child below which `key` is, if it is anywhere.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        match self.0.search(key) {
            Ok(slot) => slot,
            Err(above) => above.saturating_sub(1),
        }
    }

    /// The child below which the highest key below `bound` is, if there is any.
    pub(crate) fn find_below(&self, bound: &[u8]) -> usize {
        let above = self.0.search(bound).unwrap_or_else(|above| above);
        above.saturating_sub(1)
    }

    /// Whether `leaf` can be the leaf below `slot`.
    fn admits_leaf(&self, slot: usize, leaf: &Leaf) -> bool {
        leaf.first_key().starts_with(&self.separator(slot))
            && self.ends_above(slot, &leaf.last_key())
    }

    /// Whether `node` can be the node below `slot`.
    pub(crate) fn admits_index(&self, slot: usize, node: &Self) -> bool {
        node.separator(0) == self.separator(slot)
            && self.ends_above(slot, &node.separator(node.count() - 1))
    }

    fn ends_above(&self, slot: usize, last: &[u8]) -> bool {
        slot + 1 == self.count() || self.0.compare(slot + 1, last).is_gt()
    }
}

/// The parent of a node, and which of its children the node is. The root has none.
pub(crate) type Parent<'a> = Option<(&'a IndexNode, usize)>;

/// The root of `segments`, as an index node would hold it, and its height; `home` is among its leaf
/// segments.
pub(crate) fn root<T: TreeSegments, S>(
    segments: &T,
    home: &LeafHome<S>,
) -> Result<(Child, u8), LevelError> {
    let Tree { root, len, height } = segments.tree();
    let number = root.segment();
    let high_bits = match height {
        0 => (number == home.name.number).then_some(home.high_bits),
        _ => segments.high_bits(number),
    };
    let by_number = Child { at: root, len };
    let unknown = || by_number.corrupt("a tree begins in a segment that it does not have");
    let at = Pointer::new(high_bits.ok_or_else(unknown)?, root.offset());
    Ok((Child { at, len }, height))
}

/// Whether `child` lies where the version says that its keys are.
pub(crate) fn check_home<S>(child: Child, home: &LeafHome<S>) -> Result<(), LevelError> {
    if child.at.segment() == home.high_bits {
        Ok(())
    } else {
        Err(child.corrupt("the index leads to another segment than the one that has the key"))
    }
}

/// Checks `bytes`, those of leaf `child` in segment `name`.
pub(crate) fn parse_leaf(
    bytes: &[u8],
    child: Child,
    parent: Parent<'_>,
    name: SegmentName,
) -> Result<Leaf, LevelError> {
    let leaf = Leaf::parse(bytes, name, child.at.offset())?;
    if parent.is_none_or(|(node, slot)| node.admits_leaf(slot, &leaf)) {
        Ok(leaf)
    } else {
        Err(child.corrupt("a leaf's keys are not where the index says"))
    }
}

/// Reads `len` bytes at `child` out of a segment with `end` bytes in use: the whole blocks around
/// them, and where in these they begin.
pub(crate) fn read(
    child: Child,
    len: u32,
    end: u32,
    source: &(impl ReadAt + ?Sized),
) -> Result<(Buffer, usize), LevelError> {
    let offset = child.at.offset();
    let inside = child.is_sound() && offset + len + narrow(FOOTER_BYTES) <= end;
    if !inside {
        return Err(child.corrupt("the index leads behind the end of a segment"));
    }
    let from = offset / BLOCK * BLOCK;
    let to = (offset + len).next_multiple_of(BLOCK);
    let mut bytes = Buffer::for_reading((to - from) as usize);
    source.read_at(from, &mut bytes)?;
    Ok((bytes, (offset - from) as usize))
}

const _: () = assert!(FOOTER_BYTES < BLOCK_SIZE && SEGMENT_SIZE < 1 << 31);

const fn narrow(value: usize) -> u32 {
    assert!(value <= SEGMENT_SIZE);
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let value = value as u32;
    value
}
