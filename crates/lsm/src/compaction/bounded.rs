//! A sorted run, and a [`Levels`] of such, as [picking](mod@super::pick) sees it. A choice reads only the part of a run
//! that it asks for.
//!
//! Sums over a whole run, such as its bytes and whether it holds tombstones, are kept with the run ([`Run`]); parts
//! are found by search. So the cost of a choice does not depend on the length of the run. Exceptions: a run with
//! keys that merges pass over, and the searches whose documentation says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use argosy_base::{KeyRange, SegmentNumber};

use super::plan::live_bytes;
use crate::damage::Shut;
use crate::names::Form;
use crate::version::{BOUNDS_MAX, LevelEntry, Run};

/// A segment of a level within one of its bounds, as far as picking is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Bounded<'a> {
    /// The keys that it stands for.
    pub range: &'a KeyRange,
    /// Its bytes; of a segment with several bounds, its share of them.
    pub bytes: u64,
    /// How many bounds its segment has in the run, its own among them.
    pub siblings: u32,
    /// How old it is: its number, since numbers only rise.
    pub number: u64,
    /// Whether it holds tombstones, which only a merge can drop.
    pub tombstones: bool,
    /// Whether it is part of a tree, which cannot be moved in parts.
    pub in_tree: bool,
    /// Bytes of pairs that it points to in the medium log.
    pub medium: u64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct BoundedRun<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Run(&'a Run),
    Parts(Vec<Part<'a>>),
}

/// A part of such a segment.
#[derive(Clone, Debug)]
struct Part<'a> {
    range: KeyRange,
    /// What [`BoundedRun::live`] answers.
    live: u64,
    /// All else that it has.
    bounded: Bounded<'a>,
}

/// The sorted runs of a level, oldest first, each sorted by range.
pub(crate) type Runs<'a> = Vec<BoundedRun<'a>>;

/// All levels of a version; the first is L1.
#[derive(Clone, Debug, Default)]
pub struct Levels<'a> {
    /// L1, L2, …
    pub levels: Vec<Runs<'a>>,
}

impl<'a> Levels<'a> {
    /// The runs of `level`. Level 0, like any other that is not there, has none.
    #[must_use]
    pub fn runs(&self, level: u8) -> &[BoundedRun<'a>] {
        let index = usize::from(level).checked_sub(1);
        let runs = index.and_then(|index| self.levels.get(index));
        runs.map_or(&[], Vec::as_slice)
    }
}

/// Segments of a run side by side.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    /// The place of the last one.
    pub last: usize,
    /// Bytes that they have for keys for which they stand.
    pub live: u64,
    /// Segments that have all their bounds among these.
    pub freed: u64,
}

impl<'a> BoundedRun<'a> {
    /// Those of `run`, without the keys that merges pass over. Goes through all of the run where there are some.
    #[must_use]
    pub fn open(run: &'a Run, shut: &Shut) -> Self {
        let reaches = |range: &KeyRange| !run.places_overlapping(range).is_empty();
        if !shut.has_medium() && !shut.ranges().iter().any(reaches) {
            return Self(Source::Run(run));
        }
        let mut parts = Vec::with_capacity(run.segments.len());
        for entry in &run.segments {
            let mut bounded = bounded(run, entry);
            let open = shut.open_parts(bounded.range);
            if open.first() != Some(bounded.range) {
                // What is shut has bounds of its own, without which the segment stays.
                bounded = bounded_of(entry, bounded.siblings + 1);
            }
            if shut.has_medium() {
                // Which medium segments what is read points to is known only when it is.
                bounded.medium = 0;
            }
            let live = live_bytes(entry).unwrap_or(bounded.bytes);
            parts.extend(open.into_iter().map(|range| Part {
                range,
                live,
                bounded,
            }));
        }
        Self(Source::Parts(parts))
    }

    /// These, sorted by range.
    #[cfg(test)]
    pub(crate) fn given(bounded: Vec<Bounded<'a>>) -> Self {
        let part = |bounded: Bounded<'a>| Part {
            range: bounded.range.clone(),
            live: bounded.bytes,
            bounded,
        };
        Self(Source::Parts(bounded.into_iter().map(part).collect()))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.0 {
            Source::Run(run) => run.segments.len(),
            Source::Parts(parts) => parts.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at `place`, which there is.
    #[must_use]
    pub fn get(&self, place: usize) -> Bounded<'_> {
        match &self.0 {
            Source::Run(run) => bounded(run, &run.segments[place]),
            Source::Parts(parts) => parts[place].get(),
        }
    }

    /// Those from `first` on, of `most` segments, or two.
    #[must_use]
    pub fn neighbours(&self, first: usize, most: usize) -> Neighbours {
        let mut missing: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut last, mut live) = (first, 0);
        for place in first..self.len() {
            let bounded = self.get(place);
            if missing.len() == most.max(2) && !missing.contains_key(&bounded.number) {
                break;
            }
            let missing = missing.entry(bounded.number).or_insert(bounded.siblings);
            *missing = missing.saturating_sub(1);
            (last, live) = (place, live + self.live(place));
        }
        let freed = missing.values().filter(|missing| **missing == 0).count() as u64;
        Neighbours { last, live, freed }
    }

    /// How many segments have all their bounds in `range`.
    #[must_use]
    pub(crate) fn freed_without(&self, range: &KeyRange) -> usize {
        let ends = |bounded: &Bounded<'_>| match (&range.to, &bounded.range.to) {
            (Some(to), Some(end)) => end <= to,
            (to, _) => to.is_none(),
        };
        let bounded = self.within(range);
        let inside = bounded.filter(|bounded| bounded.range.from >= range.from && ends(bounded));
        let mut missing: BTreeMap<u64, u32> = BTreeMap::new();
        for bounded in inside {
            let missing = missing.entry(bounded.number).or_insert(bounded.siblings);
            *missing = missing.saturating_sub(1);
        }
        missing.values().filter(|missing| **missing == 0).count()
    }

    /// How many bytes of the one at `place` have keys for which it stands, as far as that is known.
    #[must_use]
    pub fn live(&self, place: usize) -> u64 {
        match &self.0 {
            Source::Run(run) => {
                let live = live_bytes(&run.segments[place]);
                live.unwrap_or_else(|| self.get(place).bytes)
            }
            Source::Parts(parts) => parts[place].live,
        }
    }

    /// Those at `places`.
    pub fn range(&self, places: Range<usize>) -> impl Iterator<Item = Bounded<'_>> {
        places.map(|place| self.get(place))
    }

    /// The places of those that have keys in `range`.
    #[must_use]
    pub fn overlapping(&self, range: &KeyRange) -> Range<usize> {
        match &self.0 {
            Source::Run(run) => run.places_overlapping(range),
            Source::Parts(parts) => {
                let first = parts.partition_point(|part| ends_before(&part.range, &range.from));
                let to = range.to.as_ref();
                let begins = |part: &Part<'_>| to.is_none_or(|to| part.range.from < *to);
                first..parts.partition_point(begins).max(first)
            }
        }
    }

    /// Those that have keys in `range`.
    pub fn within(&self, range: &KeyRange) -> impl Iterator<Item = Bounded<'_>> {
        self.range(self.overlapping(range))
    }

    /// The first place of one that does not end before `key`, if there is one.
    #[must_use]
    pub fn first_behind(&self, key: &[u8]) -> Option<usize> {
        let range = KeyRange::new(key, None);
        let found = self.overlapping(&range);
        (!found.is_empty()).then_some(found.start)
    }

    /// The first place of the one with the lowest number.
    #[must_use]
    pub fn oldest(&self) -> Option<usize> {
        match &self.0 {
            Source::Run(run) => run.place_of_first(run.oldest()?.segment.number),
            Source::Parts(parts) => {
                (0..parts.len()).min_by_key(|place| parts[*place].bounded.number)
            }
        }
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Source::Run(run) => run.pairs_bytes(),
            Source::Parts(parts) => parts.iter().map(|part| part.bounded.bytes).sum(),
        }
    }

    /// Whether one holds tombstones.
    #[must_use]
    pub(crate) fn holds_tombstones(&self) -> bool {
        match &self.0 {
            Source::Run(run) => run.holds_tombstones(),
            Source::Parts(parts) => parts.iter().any(|part| part.bounded.tombstones),
        }
    }

    /// Whether one points into the medium log.
    #[must_use]
    pub(crate) fn points_to_medium(&self) -> bool {
        match &self.0 {
            Source::Run(run) => run.points_to_medium(),
            Source::Parts(parts) => parts.iter().any(|part| part.bounded.medium > 0),
        }
    }

    /// The first place of one that points into the medium log. Goes through those before it, where there is one.
    #[must_use]
    pub(crate) fn first_to_medium(&self) -> Option<usize> {
        let mut places = 0..self.len();
        let found = self.points_to_medium();
        found.then(|| places.find(|place| self.get(*place).medium > 0))?
    }

    /// The first place of one that begins at `key` or behind it, and is in `sparse` or one of at least `bounds_min` of
    /// its segment. Goes through them where `bounds_min` is below `BOUNDS_MAX`, or some keys are passed over.
    #[must_use]
    pub(crate) fn first_loose(
        &self,
        key: &[u8],
        bounds_min: u32,
        sparse: &BTreeSet<SegmentNumber>,
    ) -> Option<usize> {
        let begins = |range: &KeyRange| range.from.as_slice() >= key;
        if let Source::Run(run) = &self.0
            && bounds_min >= BOUNDS_MAX
        {
            let numbers = sparse.iter().copied().chain(run.crumbled());
            let firsts = numbers.filter_map(|number| {
                let mut places = run.places_of(number);
                places.find(|place| begins(&run.segments[*place].segment.range))
            });
            return firsts.min();
        }
        let is_loose = |bounded: &Bounded<'_>| {
            bounded.siblings >= bounds_min || sparse.contains(&SegmentNumber(bounded.number))
        };
        let mut all = self.range(0..self.len());
        all.position(|bounded| begins(bounded.range) && is_loose(&bounded))
    }
}

impl Part<'_> {
    const fn get(&self) -> Bounded<'_> {
        Bounded {
            range: &self.range,
            ..self.bounded
        }
    }
}

/// What `entry` of `run` is.
fn bounded<'a>(run: &Run, entry: &'a LevelEntry) -> Bounded<'a> {
    let siblings = run.bounds_count(entry.segment.number);
    bounded_of(entry, u32::try_from(siblings).unwrap_or(u32::MAX))
}

/// What `entry` is within one of the `siblings` bounds of its segment, which share its bytes.
fn bounded_of(entry: &LevelEntry, siblings: u32) -> Bounded<'_> {
    let segment = &entry.segment;
    Bounded {
        range: &segment.range,
        bytes: u64::from(segment.len.div_ceil(siblings)),
        siblings,
        number: segment.number.get(),
        tombstones: segment.tombstones > 0,
        in_tree: segment.form == Form::Leaves,
        medium: segment.medium_bytes.div_ceil(siblings.into()),
    }
}

fn ends_before(range: &KeyRange, key: &[u8]) -> bool {
    range.to.as_ref().is_some_and(|to| to.as_slice() <= key)
}
