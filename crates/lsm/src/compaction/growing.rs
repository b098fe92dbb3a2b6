//! The tree that a build makes of its segments: the index over the finished ones with pairs.

use std::collections::BTreeMap;

use argosy_base::{Pointer, SegmentNumber};

use crate::level::BuiltSegment;
use crate::level::tree_builder::{TreeBuilder, TreeStep};
use crate::names::{Form, Tree};

/// See the module documentation.
pub(super) struct GrowingTree {
    index: TreeBuilder,
    /// The numbers of its segments, by the high bits of pointers to them.
    numbers: BTreeMap<SegmentNumber, SegmentNumber>,
    /// The last key of the last segment with pairs.
    last_key: Option<Vec<u8>>,
}

impl GrowingTree {
    /// One without segments.
    pub(super) const fn new(index: TreeBuilder) -> Self {
        Self {
            index,
            numbers: BTreeMap::new(),
            last_key: None,
        }
    }

    /// No segment with pairs comes any more.
    pub(super) fn end(&mut self) {
        self.index.end();
    }

    /// Goes on with the index. `allocate` gives it segment numbers.
    pub(super) fn step(&mut self, allocate: impl FnMut() -> Option<SegmentNumber>) -> TreeStep {
        self.index.step(allocate)
    }

    /// Whether all of the index is finished.
    pub(super) fn is_done(&self) -> bool {
        self.index.is_done()
    }

    /// Where it begins, once all of it has its place. `None` where there is no pair.
    pub(super) fn root(&self) -> Option<Tree> {
        let tree = self.index.root()?;
        let number = *self.numbers.get(&tree.root.segment())?;
        let root = Pointer::new(number, tree.root.offset());
        Some(Tree { root, ..tree })
    }

    /// The last key of the last segment with pairs that has its place.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.last_key.as_deref()
    }

    /// Takes the nodes of `built`, which has its place: pointers to it have these high bits.
    pub(super) fn placed(&mut self, built: &mut BuiltSegment, high_bits: SegmentNumber) {
        let number = built.name.number;
        let nodes = std::mem::take(&mut built.nodes);
        self.numbers.insert(high_bits, number);
        self.index.placed(built.form, number, high_bits, nodes);
        if built.form == Form::Leaves {
            self.last_key = Some(built.last_key.clone());
        }
    }
}
