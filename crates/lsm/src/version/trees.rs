//! The trees of runs that were built whole: how one begins, gets its index segments, and goes.
//!
//! Invariant ([`Run::is_whole`]): a run has a tree exactly as long as it has leaf segments of one, and
//! then all index segments of it, among them the root's. So whatever a reader has to go through to a
//! leaf that the version has is there, too.

use std::sync::Arc;

use argosy_base::{AddressMode, Pointer, RegionId, SegmentNumber};

use super::{Level, LevelEntry, Run};
use crate::addresses::Addressing;
use crate::edit::RunId;
use crate::level::tree::TreeSegments;
use crate::names::{Form, SegmentName, Tree};
use crate::segments::StoredSegment;
use crate::segments::fetch::{Fetch, Fetched};

/// The upper part of a run's tree.
#[derive(Clone, Debug)]
pub struct RunTree {
    /// The region, part of the identity of its segments.
    pub region: RegionId,
    /// What pointers inside its segments name.
    pub addresses: AddressMode,
    /// Where it begins.
    pub tree: Tree,
    /// Its index segments, by number.
    pub index: Vec<LevelEntry>,
}

impl RunTree {
    fn place(&self, number: SegmentNumber) -> Result<usize, usize> {
        self.index
            .binary_search_by_key(&number, |entry| entry.segment.number)
    }

    /// The high bits of pointers to `stored`, a segment of the tree.
    #[must_use]
    pub(crate) fn high_bits_of(&self, stored: &StoredSegment) -> SegmentNumber {
        self.addresses.high_bits(stored)
    }

    /// The index segment `number`, if it belongs to the tree.
    #[must_use]
    pub(crate) fn index_segment(&self, number: SegmentNumber) -> Option<&LevelEntry> {
        self.place(number).ok().map(|at| &self.index[at])
    }
}

impl TreeSegments for RunTree {
    type Bytes<'s> = Fetched<'s>;

    fn tree(&self) -> Tree {
        self.tree
    }

    fn high_bits(&self, number: SegmentNumber) -> Option<SegmentNumber> {
        let entry = self.index_segment(number)?;
        Some(self.high_bits_of(&entry.stored))
    }

    fn index(&self, at: Pointer, height: u8) -> Option<(SegmentName, u32, Fetched<'_>)> {
        self.index_within(at, height, Fetch::Device)
    }
}

impl RunTree {
    /// [`index`](TreeSegments::index), whose bytes are come by as `fetch` says.
    pub(crate) fn index_within<'s>(
        &'s self,
        at: Pointer,
        height: u8,
        fetch: Fetch<'s>,
    ) -> Option<(SegmentName, u32, Fetched<'s>)> {
        // A tree has few index segments: one for some hundred megabytes of leaves.
        let found = (self.addresses).find(at.segment(), &self.index, |entry| &entry.stored);
        let LevelEntry {
            segment, stored, ..
        } = found?;
        let name = SegmentName {
            region: self.region,
            number: segment.number,
            epoch: segment.epoch,
        };
        (segment.form == Form::Index(height)).then_some((
            name,
            segment.len,
            Fetched { stored, fetch },
        ))
    }
}

impl Run {
    /// The index segments of its tree, where it has one.
    #[must_use]
    pub fn index(&self) -> &[LevelEntry] {
        self.tree.as_ref().map_or(&[], |tree| &tree.index)
    }

    /// All its segments: those with pairs, in key order, then index segments.
    pub fn entries(&self) -> impl Iterator<Item = &LevelEntry> {
        self.segments.iter().chain(self.index())
    }

    /// Whether the tree and what it leads to belong together. See the module documentation.
    pub(super) fn is_whole(&self) -> bool {
        let Some(of) = &self.tree else {
            return !self.has_leaves();
        };
        let Tree { root, len, height } = of.tree;
        let heights = of.index.iter().map(|entry| entry.segment.form);
        let fit = heights.clone().all(|form| match form {
            Form::Index(own) => own >= 1 && own <= height,
            _ => false,
        });
        let holds_root = match height {
            0 => self.entries_of(root.segment()).next(),
            _ => of.index_segment(root.segment()),
        };
        let is_there = holds_root.is_some_and(|entry| {
            let form = match height {
                0 => Form::Leaves,
                height => Form::Index(height),
            };
            entry.segment.form == form && root.offset() + len <= entry.segment.len
        });
        self.has_leaves() && fit && is_there
    }

    /// Lets the tree go with its last leaf segment. Before, `index` segments were in it.
    ///
    /// # Errors
    /// When an index segment would be left without leaves, or a tree without part of its index.
    pub(super) fn drop_tree(&mut self, index: usize) -> Result<(), &'static str> {
        match (self.has_leaves(), self.index().len()) {
            (false, 0) => {
                self.tree = None;
                Ok(())
            }
            (false, _) => Err("the index of a tree stays without its leaves"),
            (true, left) if left == index => Ok(()),
            (true, _) => Err("the leaves of a tree stay without their index"),
        }
    }
}

impl Level {
    pub(super) fn run_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.id == id)
    }

    /// The run `id`, which is made where there is none.
    pub(super) fn run_or_new(&mut self, id: RunId) -> &mut Run {
        let at = self.runs.partition_point(|run| run.id < id);
        if self.runs.get(at).is_none_or(|run| run.id != id) {
            self.runs.insert(at, Run::empty(id));
        }
        &mut self.runs[at]
    }

    /// Takes index segment `number` out of the tree of a run, if it is there.
    pub(super) fn take_index(&mut self, run: RunId, number: SegmentNumber) -> bool {
        let tree = self.run_mut(run).and_then(|run| run.tree.as_mut());
        let found = tree.as_deref().and_then(|tree| tree.place(number).ok());
        if let (Some(tree), Some(at)) = (tree, found) {
            Arc::make_mut(tree).index.remove(at);
        }
        found.is_some()
    }

    /// Begins a tree in a run that has none.
    pub(super) fn begin_tree(&mut self, run: RunId, tree: RunTree) -> Result<(), &'static str> {
        let run = self.run_or_new(run);
        if run.tree.is_some() {
            return Err("a run has a tree already");
        }
        run.tree = Some(Arc::new(tree));
        Ok(())
    }

    /// Puts an index segment into the tree of its run.
    pub(super) fn insert_index(
        &mut self,
        run: RunId,
        entry: LevelEntry,
    ) -> Result<(), &'static str> {
        let tree = self.run_mut(run).and_then(|run| run.tree.as_mut());
        let tree = Arc::make_mut(tree.ok_or("an index segment without its tree")?);
        match tree.place(entry.segment.number) {
            Ok(_) => Err("an index segment is there already"),
            Err(at) => {
                tree.index.insert(at, entry);
                Ok(())
            }
        }
    }
}
