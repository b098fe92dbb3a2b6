//! Ranges of keys out of all runs of a version: which segments go, and what is left of others.
//!
//! ```text
//! ranges              [------)      [--)        of a memtable that becomes a run: older runs have nothing
//! run     |-----|-----|-----|-----|-----|       there that may be seen again
//! after   |-----|---|          |--|-|  |-|
//! ```
//!
//! Nothing is read and nothing is written: a segment all of whose keys are in the ranges goes, and the
//! others stand for what is left of theirs, with several bounds if need be, as where a merge consumed a part
//! ([`plan`](super::plan)). So a level never has to know of a range, nor does a reader of it; and the
//! space of what went is free with the edit. Where a segment points into logs, what is cut off of it stays
//! until its pointers are counted ([`uncounted`](super::uncounted)).
//!
//! An edit names all bounds of each segment that it cuts, those of earlier cuts included, so it grows with each flush
//! that cuts the same segments. If its bounds take more than [`CUT_BYTES_MAX`], the flush waits until merges have made
//! fewer bounds and runs. At the end of that each level is one run of segments with one range. The bounds of a
//! memtable's ranges take little more than one batch, 1 MiB, and an edit names each of them twice a run: a few MiB.
//!
//! Invariants: what the version binds outside of the ranges stays, and nothing inside does. Whoever made a
//! plan from an earlier version must not commit it afterwards: it would bring back what it has read.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{KeyRange, SegmentNumber};

use super::plan::index_places;
use crate::edit::{Edit, LevelSegment, Place, RunId, UNCOUNTED};
use crate::memtable::range_tombstones::{bound_bytes, left_of};
use crate::names::Form;
use crate::read::passing_reader;
use crate::version::{Run, Version};

/// Bytes of bounds that an edit names before merges make them fewer: an eighth of the longest edit that another
/// member takes.
pub(crate) const CUT_BYTES_MAX: usize = 8 << 20;

/// Most segments that are known to be worth a merge since ranges of their keys were removed.
const SPARSE_MAX: usize = 1024;

/// Most of them that are looked at for one memtable.
const SPARSE_STEP: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// Segments that go.
    removed: Vec<Place>,
    /// Parts that are cut off, with pointers that nobody has counted.
    uncounted: Vec<LevelSegment>,
    /// What is left of the others, all bounds of a segment together.
    bounds: Vec<(Place, KeyRange)>,
    /// Index segments of trees that go.
    index: Vec<Place>,
}

impl Cut {
    /// That of `union`, ranges in order without overlap, out of `version`.
    #[must_use]
    pub(crate) fn new(version: &Version, union: &[KeyRange]) -> Self {
        let mut cut = Self::default();
        if !union.is_empty() {
            for (level, run) in version.runs() {
                cut.add(level, run, union);
            }
        }
        cut
    }

    fn add(&mut self, level: u8, run: &Run, union: &[KeyRange]) {
        let touched: BTreeSet<_> = union
            .iter()
            .flat_map(|range| run.overlapping(range))
            .map(|entry| entry.segment.number)
            .collect();
        if touched.is_empty() {
            return;
        }
        let before = self.removed.len();
        // Other segments may have come between the bounds of one.
        let mut trimmed: BTreeMap<_, Vec<&LevelSegment>> = BTreeMap::new();
        for number in touched {
            let own = run.entries_of(number).map(|entry| &*entry.segment);
            trimmed.insert(number, own.collect());
        }
        for entries in trimmed.values() {
            let segment = entries[0];
            let place = Place {
                level,
                run: run.id,
                number: segment.number,
            };
            let left = entries
                .iter()
                .flat_map(|entry| left_of(&entry.range, union));
            let before = self.bounds.len();
            self.bounds.extend(left.map(|range| (place, range)));
            if self.bounds.len() == before {
                self.removed.push(place);
            }
            if segment.points_into_logs() {
                let parts = entries.iter().flat_map(|entry| parts_in(entry, union));
                self.uncounted.extend(parts);
            }
        }
        let goes: BTreeSet<_> = self.removed[before..]
            .iter()
            .map(|place| place.number)
            .collect();
        let stays = |segment: &LevelSegment| {
            segment.form == Form::Leaves && !goes.contains(&segment.number)
        };
        // The index goes with the last leaves.
        if run.tree.is_some() && !run.segments.iter().any(|entry| stays(&entry.segment)) {
            self.index.extend(index_places(level, run));
        }
    }

    /// Adds to `sparse` those of the segments that stay, of whose leaves less than half may still have keys
    /// that count. Looks at a few; what cannot be read says nothing here.
    pub(crate) fn note_sparse(&self, version: &Version, sparse: &mut BTreeSet<SegmentNumber>) {
        let most = SPARSE_STEP.min(SPARSE_MAX.saturating_sub(sparse.len()));
        let same = |a: &(Place, KeyRange), b: &(Place, KeyRange)| a.0 == b.0;
        let segments = self.bounds.chunk_by(same).take(most);
        sparse.extend(segments.filter_map(|left| {
            let number = left[0].0.number;
            let entry = version.level_segment(number)?;
            let reader = passing_reader(entry, version.region()).ok()?;
            let leaves: usize = left.iter().map(|(_, range)| reader.leaves_in(range)).sum();
            (2 * leaves < reader.leaves()).then_some(number)
        }));
    }

    /// Bytes of all bounds.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        let bounds = self.bounds.iter().map(|(_, range)| range);
        let uncounted = self.uncounted.iter().map(|part| &part.range);
        bounds.chain(uncounted).map(bound_bytes).sum()
    }

    /// Writes removals and new bounds into `edit`.
    pub(crate) fn take_away(&self, edit: &mut Edit) {
        edit.removed.extend(self.removed.iter().chain(&self.index));
        edit.bounds.extend_from_slice(&self.bounds);
        let uncounted = self.uncounted.iter().cloned();
        edit.added
            .extend(uncounted.map(|part| (UNCOUNTED, RunId(0), part)));
    }
}

/// The parts of `segment` that lie in `union`.
fn parts_in(segment: &LevelSegment, union: &[KeyRange]) -> impl Iterator<Item = LevelSegment> {
    let parts = union.iter().map(|range| segment.range.intersection(range));
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(|range| LevelSegment {
        range,
        ..segment.clone()
    })
}
