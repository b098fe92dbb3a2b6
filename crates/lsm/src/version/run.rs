//! Levels and their runs.

use std::ops::Range;
use std::sync::Arc;

use argosy_base::range::Starts;
use argosy_base::{KeyRange, SegmentNumber};

use super::memory::entry_bytes;
use super::{LevelEntry, RunTree};
use crate::edit::{LevelSegment, RunId};
use crate::names::Form;
use crate::shared::{Entry, Iter, List, Map};

/// Bounds of a segment at which it is merged, although its level is not full.
pub(crate) const BOUNDS_MAX: u32 = 16;

impl Entry for LevelEntry {
    type Key = Arc<LevelSegment>;
    type Aid = Starts;

    fn key(&self) -> &Arc<LevelSegment> {
        &self.segment
    }

    fn aid<'k>(keys: impl Iterator<Item = &'k Arc<LevelSegment>> + Clone) -> Starts {
        Starts::new(keys.map(|segment| &*segment.range.from))
    }
}

/// A segment within one of its bounds, to be found by the segment's number.
#[derive(Clone, Debug)]
struct Numbered(Arc<LevelSegment>);

impl Entry for Numbered {
    type Key = Arc<LevelSegment>;
    type Aid = ();

    fn key(&self) -> &Arc<LevelSegment> {
        &self.0
    }

    fn aid<'k>(_: impl Iterator<Item = &'k Arc<LevelSegment>> + Clone) {}
}

/// Level segments in key order, without overlap; never empty.
///
/// A run that was built whole is a tree: its segments hold leaves, and the index over them is in
/// segments beside them. A part of it may have been consumed since, and self-contained segments may
/// stand between what is left.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// In key order; all that have pairs.
    pub segments: List<LevelEntry>,
    /// The tree over those of them that are leaf segments of one. There is one as long as there
    /// are such segments.
    pub tree: Option<Arc<RunTree>>,
    /// The same entries by number, and those of a segment by range.
    numbers: List<Numbered>,
    /// How many of them are leaf segments of the tree.
    leaves: usize,
    /// Bytes of all segments with pairs, each counted once.
    bytes: u64,
    /// Bytes of memory that its entries take.
    memory: usize,
    /// How many entries are of segments with tombstones.
    tombstoned: usize,
    /// How many are of segments that point into the medium log.
    to_medium: usize,
    /// Segments with so many bounds that they are to be merged.
    crumbled: Map<SegmentNumber, ()>,
}

impl Run {
    /// A run that has nothing yet.
    pub(super) fn empty(id: RunId) -> Self {
        Self {
            id,
            segments: List::new(),
            tree: None,
            numbers: List::new(),
            leaves: 0,
            bytes: 0,
            memory: 0,
            tombstoned: 0,
            to_medium: 0,
            crumbled: Map::default(),
        }
    }

    /// The segment that stands for `key`, if any does.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<&LevelEntry> {
        let entry = self.segments.find(|starts, segments| {
            starts.index_of(key, |place| &*segments.get(place).range.from)
        })?;
        entry.segment.range.contains(key).then_some(entry)
    }

    /// The segments that stand for some key of `range`, in key order.
    #[must_use]
    pub fn overlapping(&self, range: &KeyRange) -> Iter<'_, LevelEntry> {
        self.segments.range(self.places_overlapping(range))
    }

    /// The places in `segments` of [`overlapping`](Self::overlapping).
    #[must_use]
    pub(crate) fn places_overlapping(&self, range: &KeyRange) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let ends_before = |segment: &Arc<LevelSegment>| {
            let to = segment.range.to.as_ref();
            to.is_some_and(|to| *to <= range.from)
        };
        let begins_inside = |segment: &Arc<LevelSegment>| {
            let from = &segment.range.from;
            range.to.as_ref().is_none_or(|to| from < to)
        };
        let first = self.segments.partition_point(ends_before);
        let behind = self.segments.partition_point(begins_inside);
        first..behind.max(first)
    }

    /// The places in `numbers` of the entries of segment `number`.
    fn named(&self, number: SegmentNumber) -> Range<usize> {
        let first = self.numbers.partition_point(|other| other.number < number);
        let behind = self.numbers.partition_point(|other| other.number <= number);
        first..behind
    }

    /// The place in `segments` of `segment`, which is one of the run's.
    fn place_of(&self, segment: &LevelSegment) -> usize {
        let from = &segment.range.from;
        let first = self
            .segments
            .partition_point(|other| other.range.from < *from);
        // While an edit is applied that does not fit, others may begin there, too.
        let mut others = first..self.segments.len();
        let found = others.find(|at| self.segments[*at].segment.number == segment.number);
        found.expect("both lists have the same entries")
    }

    /// How many bounds segment `number` has here.
    #[must_use]
    pub(crate) fn bounds_count(&self, number: SegmentNumber) -> usize {
        self.named(number).len()
    }

    /// The entries of segment `number`, one for each of its bounds, in key order.
    pub fn entries_of(&self, number: SegmentNumber) -> impl Iterator<Item = &LevelEntry> {
        let named = self.numbers.range(self.named(number));
        named.map(|entry| &self.segments[self.place_of(&entry.0)])
    }

    /// The place in `segments` of the first entry of segment `number`.
    #[must_use]
    pub(crate) fn place_of_first(&self, number: SegmentNumber) -> Option<usize> {
        let first = self.numbers.range(self.named(number)).next()?;
        Some(self.place_of(&first.0))
    }

    /// The first entry of the segment with the lowest number, of those with pairs.
    #[must_use]
    pub fn oldest(&self) -> Option<&LevelEntry> {
        let oldest = self.numbers.first()?;
        Some(&self.segments[self.place_of(&oldest.0)])
    }

    /// Segment `number`, index segments of the tree among them: its first entry.
    #[must_use]
    pub fn entry(&self, number: SegmentNumber) -> Option<&LevelEntry> {
        let entry = self.entries_of(number).next();
        entry.or_else(|| self.tree.as_ref()?.index_segment(number))
    }

    /// Its segments, those with several bounds once: where the first of these are.
    pub(crate) fn whole_segments(&self) -> impl Iterator<Item = &LevelEntry> {
        let is_first = |entry: &&LevelEntry| {
            let number = entry.segment.number;
            let first = self.numbers.partition_point(|other| other.number < number);
            self.numbers
                .get(first)
                .is_some_and(|first| Arc::ptr_eq(&first.0, &entry.segment))
        };
        self.segments.iter().filter(is_first).chain(self.index())
    }

    /// The places in `segments` of the entries of segment `number`, which rise.
    pub(crate) fn places_of(&self, number: SegmentNumber) -> impl Iterator<Item = usize> {
        let named = self.numbers.range(self.named(number));
        named.map(|entry| self.place_of(&entry.0))
    }

    /// Segments with `BOUNDS_MAX` bounds or more.
    pub(crate) fn crumbled(&self) -> impl Iterator<Item = SegmentNumber> {
        self.crumbled.keys().copied()
    }

    /// Whether one of its segments has tombstones.
    #[must_use]
    pub(crate) const fn holds_tombstones(&self) -> bool {
        self.tombstoned > 0
    }

    /// Whether one of its segments points into the medium log.
    #[must_use]
    pub(crate) const fn points_to_medium(&self) -> bool {
        self.to_medium > 0
    }

    /// Bytes of its segments with pairs.
    #[must_use]
    pub(crate) const fn pairs_bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of all its segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let index = self.index().iter();
        self.bytes + index.map(|entry| u64::from(entry.segment.len)).sum::<u64>()
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        let index = self.index().iter();
        let index: usize = index.map(|entry| entry_bytes(&entry.segment)).sum();
        self.memory + index
    }

    /// Whether it has leaf segments of a tree.
    pub(super) const fn has_leaves(&self) -> bool {
        self.leaves > 0
    }

    /// Puts `entry`, which has pairs, where its range belongs. Where it overlaps a neighbour, the number of the
    /// later one is returned.
    pub(super) fn put(&mut self, entry: LevelEntry) -> Option<SegmentNumber> {
        let segment = Arc::clone(&entry.segment);
        let from = &segment.range.from;
        let at = self
            .segments
            .partition_point(|other| other.range.from < *from);
        let before = at
            .checked_sub(1)
            .and_then(|before| self.segments.get(before));
        let behind = self.segments.get(at);
        let overlaps = |first: &LevelSegment, second: &LevelSegment| {
            let end = first.range.to.as_ref();
            end.is_none_or(|end| *end > second.range.from)
        };
        let overlap = match (before, behind) {
            (Some(before), _) if overlaps(&before.segment, &segment) => Some(segment.number),
            (_, Some(behind)) if overlaps(&segment, &behind.segment) => Some(behind.segment.number),
            _ => None,
        };
        self.segments.insert(at, entry);
        if self.named(segment.number).is_empty() {
            self.bytes += u64::from(segment.len);
        }
        self.leaves += usize::from(segment.form == Form::Leaves);
        self.memory += entry_bytes(&segment);
        self.tombstoned += usize::from(segment.tombstones > 0);
        self.to_medium += usize::from(segment.medium_bytes > 0);
        let number = segment.number;
        let named = self.numbers.partition_point(|other| {
            (other.number, &other.range.from) < (segment.number, &segment.range.from)
        });
        self.numbers.insert(named, Numbered(segment));
        if self.bounds_count(number) >= BOUNDS_MAX as usize {
            self.crumbled.insert(number, ());
        }
        overlap
    }

    /// Takes the entries of segment `number` out.
    pub(super) fn take(&mut self, number: SegmentNumber) -> Vec<LevelEntry> {
        let named = self.named(number);
        let mut taken = Vec::with_capacity(named.len());
        for _ in named.clone() {
            let named = self.numbers.remove(named.start);
            let entry = self.segments.remove(self.place_of(&named.0));
            self.leaves -= usize::from(entry.segment.form == Form::Leaves);
            self.memory -= entry_bytes(&entry.segment);
            self.tombstoned -= usize::from(entry.segment.tombstones > 0);
            self.to_medium -= usize::from(entry.segment.medium_bytes > 0);
            taken.push(entry);
        }
        self.crumbled.remove(&number);
        let len = taken.first().map_or(0, |entry| entry.segment.len);
        self.bytes -= u64::from(len);
        taken
    }

    /// Whether what is kept beside the entries is what they say.
    pub(super) fn is_counted(&self) -> bool {
        let mut segments: Vec<_> = self.segments.iter().map(|entry| &entry.segment).collect();
        let leaves = segments
            .iter()
            .filter(|segment| segment.form == Form::Leaves);
        let leaves = leaves.count();
        let memory: usize = segments.iter().map(|segment| entry_bytes(segment)).sum();
        segments.sort_by_key(|segment| (segment.number, &segment.range.from));
        let mut numbers = self.numbers.iter().map(|segment| &segment.0);
        let named = numbers.len() == segments.len()
            && segments.iter().all(|segment| {
                let number = numbers.next();
                number.is_some_and(|number| Arc::ptr_eq(number, segment))
            });
        let tombstoned = segments
            .iter()
            .filter(|segment| segment.tombstones > 0)
            .count();
        let to_medium = segments
            .iter()
            .filter(|segment| segment.medium_bytes > 0)
            .count();
        segments.dedup_by_key(|segment| segment.number);
        let many = |segment: &&&Arc<LevelSegment>| {
            self.bounds_count(segment.number) >= BOUNDS_MAX as usize
        };
        let crumbled = segments.iter().filter(many).map(|segment| segment.number);
        let crumbles = crumbled.eq(self.crumbled());
        let bytes: u64 = segments.iter().map(|segment| u64::from(segment.len)).sum();
        let kinds = (tombstoned, to_medium) == (self.tombstoned, self.to_medium);
        named
            && crumbles
            && kinds
            && (leaves, bytes, memory) == (self.leaves, self.bytes, self.memory)
    }
}

/// A level: several runs in L1, newest last; at most one below.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// Oldest first.
    pub runs: Vec<Run>,
}

impl Level {
    /// Bytes of all its segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }

    /// All its segments, run by run, index segments of trees among them.
    pub fn entries(&self) -> impl Iterator<Item = &LevelEntry> {
        self.runs.iter().flat_map(Run::entries)
    }
}
