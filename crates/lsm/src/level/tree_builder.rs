//! Builds the upper part of a tree: index nodes over finished leaf segments, bottom-up.
//!
//! ```text
//!  leaf segment finished ──▶ its leaves are children of height 1
//!                                     │ node full: into the open segment of height 1
//!  segment of height 1 finished ──▶ its nodes are children of height 2
//!                                     │ …
//!  no more leaves ──▶ height by height, what is open is closed; a single child is the root
//! ```
//!
//! There is one open node and one open segment for each height. A segment's nodes are handed to the
//! height above only when the segment is finished and has its place ([`TreeBuilder::placed`]): no
//! segment points into one that is finished after it. What waits in between is bounded by the
//! nodes of one segment for each height.

use std::collections::VecDeque;

use argosy_base::{Epoch, Kind, Pointer, RegionId, SegmentNumber};
use argosy_device::Buffer;

use super::builder::{BuiltSegment, NodePlace, SegmentGeometry, with_footer};
use super::draft::Draft;
use super::format::{FOOTER_BYTES, Footer, Table};
use super::leaf::shared_len;
use crate::names::{Entry, Form, NODE_BYTES_MIN, SegmentName, Tree};

/// The shortest beginning of `first`, the first key of a leaf, that sorts above `below`, the last
/// key of the leaf before it.
pub(super) fn separator<'k>(below: Option<&[u8]>, first: &'k [u8]) -> &'k [u8] {
    &first[..below.map_or(0, |below| shared_len(below, first)) + 1]
}

/// A finished node, and where it lies.
#[derive(Clone, Debug)]
struct Child {
    separator: Vec<u8>,
    at: Pointer,
    len: u32,
    /// The number of its segment.
    number: SegmentNumber,
}

impl Child {
    const fn entry(&self) -> Entry<'_> {
        Entry::Pointer {
            at: self.at,
            value_len: self.len,
        }
    }
}

/// An index node that is being filled.
#[derive(Debug, Default)]
struct OpenNode {
    children: Vec<Child>,
    /// The same.
    draft: Draft,
}

impl OpenNode {
    /// Adds a child, or gives it back where the node is full: two always fit.
    fn push(&mut self, child: Child, node_bytes: usize) -> Result<(), Child> {
        let grown = self.draft.with(&child.separator, &child.entry());
        if self.children.len() >= 2 && (grown.bytes() > node_bytes || grown.is_too_wide()) {
            return Err(child);
        }
        self.draft.push(&child.separator, &child.entry(), grown);
        self.children.push(child);
        Ok(())
    }

    /// Bytes that the node takes.
    fn len(&self, node_bytes: usize) -> usize {
        let least = self.draft.lengths().bytes();
        least.next_multiple_of(NODE_BYTES_MIN).max(node_bytes)
    }

    /// Writes the node into `out`, zeros, which is as long.
    fn write(&self, out: &mut [u8], name: SegmentName, offset: u32) {
        self.draft.write(out, name.identity(Kind::Index, offset));
    }
}

/// An index segment that is being filled.
#[derive(Debug)]
struct OpenSegment {
    name: SegmentName,
    out: Buffer,
    /// Where the nodes end.
    end: usize,
    nodes: Vec<NodePlace>,
    children: u32,
    last: Vec<u8>,
    /// The segments that they lie in, in order, and how many lie in each.
    homes: Vec<(SegmentNumber, u64)>,
}

impl OpenSegment {
    fn new(name: SegmentName, geometry: SegmentGeometry) -> Self {
        Self {
            name,
            out: Buffer::zeroed(geometry.segment_bytes),
            end: 0,
            nodes: vec![],
            children: 0,
            last: vec![],
            homes: vec![],
        }
    }

    /// Writes `node` behind the others, or returns `false` where there is no room for it.
    fn add(&mut self, node: &OpenNode, node_bytes: usize) -> bool {
        let len = node.len(node_bytes);
        let (first, last) = match node.children.as_slice() {
            [first, .., last] => (first, last),
            [only] => (only, only),
            [] => unreachable!("no node is empty"),
        };
        let lowest = self
            .nodes
            .first()
            .map_or(&first.separator, |n| &n.separator);
        let homes = self.homes.len() + node.children.len();
        let table = Table::len_max(lowest.len(), last.separator.len(), homes);
        if self.end + len + table + FOOTER_BYTES > self.out.len() {
            return false;
        }
        let offset = narrow(self.end);
        node.write(&mut self.out[self.end..self.end + len], self.name, offset);
        self.end += len;
        self.nodes.push(NodePlace {
            separator: first.separator.clone(),
            offset,
            len: narrow(len),
        });
        self.children += narrow(node.children.len());
        for child in &node.children {
            match self.homes.last_mut() {
                Some((number, count)) if *number == child.number => *count += 1,
                _ => self.homes.push((child.number, 1)),
            }
        }
        self.last.clone_from(&last.separator);
        true
    }

    fn finish(mut self, height: u8, geometry: SegmentGeometry) -> BuiltSegment {
        let first_key = self.nodes[0].separator.clone();
        let table = Table {
            first_key,
            last_key: self.last,
            log_refs: self.homes,
        };
        let encoded = table.encode(self.name, narrow(self.end));
        let table_end = self.end + encoded.len();
        self.out[self.end..table_end].copy_from_slice(&encoded);
        let footer = Footer {
            form: Form::Index(height),
            node_bytes: narrow(geometry.node_bytes),
            leaves: narrow(self.nodes.len()),
            entries: self.children,
            tombstones: 0,
            index_len: 0,
            filter_len: 0,
            table_len: narrow(encoded.len()),
            leaves_len: narrow(self.end),
        };
        let bytes = with_footer(self.out, table_end, &footer, self.name);
        BuiltSegment {
            name: self.name,
            form: footer.form,
            checksum: self.name.checksum(&bytes),
            bytes,
            entries: 0,
            tombstones: 0,
            first_key: table.first_key,
            last_key: table.last_key,
            large_bytes: 0,
            medium_bytes: 0,
            log_refs: vec![],
            nodes: self.nodes,
        }
    }
}

#[derive(Debug, Default)]
struct Height {
    node: OpenNode,
    segment: Option<OpenSegment>,
    /// Children that came so far.
    children: u64,
}

/// What a step of a tree's builder needs or has.
#[derive(Debug)]
pub(crate) enum TreeStep {
    /// Nothing is left to be done with what was given.
    Idle,
    /// Something was done; there may be more.
    Progress,
    /// A segment number is needed to go on.
    NeedsNumber,
    /// A segment is finished. Place it, and say so, before the next step.
    Finished(BuiltSegment),
}

/// The index over a run that is being built.
#[derive(Debug)]
pub(crate) struct TreeBuilder {
    region: RegionId,
    epoch: Epoch,
    geometry: SegmentGeometry,
    /// Height 1 first.
    heights: Vec<Height>,
    /// Nodes that are not taken yet, and the height that takes them.
    waiting: VecDeque<(usize, Child)>,
    /// The leaves have ended; the heights below this one (0: height 1) are closed.
    closing: Option<usize>,
    root: Option<Tree>,
}

impl TreeBuilder {
    /// A tree without leaves.
    #[must_use]
    pub(crate) const fn new(region: RegionId, epoch: Epoch, geometry: SegmentGeometry) -> Self {
        Self {
            region,
            epoch,
            geometry,
            heights: vec![],
            waiting: VecDeque::new(),
            closing: None,
            root: None,
        }
    }

    /// Segment `number`, of leaves or one that a step finished, has its place: pointers to its nodes
    /// have `high_bits`, the number, or where pointers hold places, its place. Segments of one height
    /// come in rising order of their numbers.
    pub(crate) fn placed(
        &mut self,
        form: Form,
        number: SegmentNumber,
        high_bits: SegmentNumber,
        nodes: Vec<NodePlace>,
    ) {
        let taker = match form {
            Form::Index(height) => usize::from(height),
            Form::Leaves | Form::SelfContained | Form::Medium => 0,
        };
        self.waiting.extend(nodes.into_iter().map(|node| {
            let child = Child {
                separator: node.separator,
                at: Pointer::new(high_bits, node.offset),
                len: node.len,
                number,
            };
            (taker, child)
        }));
    }

    /// There are no more leaves. What is open is closed by the next steps.
    pub(crate) fn end(&mut self) {
        self.closing.get_or_insert(0);
    }

    /// Whether everything is done after [`end`](Self::end).
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty()
            && self
                .closing
                .is_some_and(|at| self.root.is_some() || at >= self.heights.len())
    }

    /// Where the tree begins, once all is done, with the high bits that were said of the root's segment;
    /// `None` of a tree without leaves.
    #[must_use]
    pub(crate) const fn root(&self) -> Option<Tree> {
        self.root
    }

    /// Takes what waits, or closes the lowest height that is open, as far as the next segment.
    /// `number` gives segments their numbers.
    pub(crate) fn step(&mut self, mut number: impl FnMut() -> Option<SegmentNumber>) -> TreeStep {
        let mut moved = false;
        while let Some((index, child)) = self.waiting.pop_front() {
            if self.heights.len() <= index {
                self.heights.resize_with(index + 1, Height::default);
            }
            let node_bytes = self.geometry.node_bytes;
            match self.heights[index].node.push(child, node_bytes) {
                Ok(()) => {
                    self.heights[index].children += 1;
                    moved = true;
                }
                Err(child) => {
                    self.waiting.push_front((index, child));
                    match self.close_node(index, &mut number) {
                        TreeStep::Progress => moved = true,
                        other => return other,
                    }
                }
            }
        }
        match self.close(&mut number) {
            TreeStep::Idle if moved => TreeStep::Progress,
            other => other,
        }
    }

    /// Puts the open node of a height into the open segment. Where that is full, it is finished, and
    /// the node stays.
    fn close_node(
        &mut self,
        index: usize,
        number: &mut impl FnMut() -> Option<SegmentNumber>,
    ) -> TreeStep {
        let geometry = self.geometry;
        let height = &mut self.heights[index];
        let segment = match &mut height.segment {
            Some(segment) => segment,
            none => {
                let Some(number) = number() else {
                    return TreeStep::NeedsNumber;
                };
                let name = SegmentName {
                    region: self.region,
                    number,
                    epoch: self.epoch,
                };
                none.insert(OpenSegment::new(name, geometry))
            }
        };
        if segment.add(&height.node, geometry.node_bytes) {
            height.node = OpenNode::default();
            return TreeStep::Progress;
        }
        assert!(segment.end > 0, "an empty segment takes any node");
        let full = height.segment.take().expect("it was there a moment ago");
        TreeStep::Finished(full.finish(narrow_height(index), geometry))
    }

    /// Closes the lowest height that is not closed yet: a single child is the root, more of them are
    /// handed up.
    fn close(&mut self, number: &mut impl FnMut() -> Option<SegmentNumber>) -> TreeStep {
        let Some(index) = self.closing else {
            return TreeStep::Idle;
        };
        if self.root.is_some() || index >= self.heights.len() {
            return TreeStep::Idle;
        }
        let height = &mut self.heights[index];
        if let ([only], 1) = (height.node.children.as_slice(), height.children) {
            self.root = Some(Tree {
                root: only.at,
                len: only.len,
                height: narrow_height(index) - 1,
            });
            return TreeStep::Progress;
        }
        if !height.node.children.is_empty() {
            return self.close_node(index, number);
        }
        let segment = height.segment.take();
        let segment = segment.expect("nodes of this height went into a segment");
        self.closing = Some(index + 1);
        TreeStep::Finished(segment.finish(narrow_height(index), self.geometry))
    }
}

/// The height whose place is `index`.
fn narrow_height(index: usize) -> u8 {
    u8::try_from(index + 1).expect("a tree has few heights")
}

fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("offsets and lengths in a segment are below 2 MiB")
}
