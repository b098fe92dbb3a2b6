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
use crate::version::{LevelEntry, PIECES_MAX, Run};

/// One segment of a level, as far as picking is concerned.
#[derive(Clone, Copy, Debug)]
pub struct MergePiece<'a> {
    /// The keys that it stands for.
    pub range: &'a KeyRange,
    /// Its bytes; of a segment in several pieces, its share of them.
    pub bytes: u64,
    /// How many pieces of its segment there are in the run, itself among them.
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
pub struct Pieces<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Run(&'a Run),
    Parts(Vec<Part<'a>>),
}

/// A part of a piece.
#[derive(Clone, Debug)]
struct Part<'a> {
    range: KeyRange,
    /// What [`Pieces::live`] answers.
    live: u64,
    /// All else that it has.
    piece: MergePiece<'a>,
}

/// The sorted runs of a level, oldest first, each sorted by range.
pub(crate) type Runs<'a> = Vec<Pieces<'a>>;

/// All levels of a version; the first is L1.
#[derive(Clone, Debug, Default)]
pub struct Levels<'a> {
    /// L1, L2, …
    pub levels: Vec<Runs<'a>>,
}

impl<'a> Levels<'a> {
    /// The runs of `level`. Level 0, like any other that is not there, has none.
    #[must_use]
    pub fn runs(&self, level: u8) -> &[Pieces<'a>] {
        let index = usize::from(level).checked_sub(1);
        let runs = index.and_then(|index| self.levels.get(index));
        runs.map_or(&[], Vec::as_slice)
    }
}

/// Pieces of a run side by side.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    /// The place of the last one.
    pub last: usize,
    /// Bytes that they have for keys for which they stand.
    pub live: u64,
    /// Segments that have all their pieces among these.
    pub freed: u64,
}

impl<'a> Pieces<'a> {
    /// Those of `run`, without the keys that merges pass over. Goes through all of the run where there are some.
    #[must_use]
    pub fn open(run: &'a Run, shut: &Shut) -> Self {
        let reaches = |range: &KeyRange| !run.places_overlapping(range).is_empty();
        if !shut.has_medium() && !shut.ranges().iter().any(reaches) {
            return Self(Source::Run(run));
        }
        let mut parts = Vec::with_capacity(run.segments.len());
        for entry in &run.segments {
            let mut piece = piece(run, entry);
            let open = shut.open_parts(piece.range);
            if open.first() != Some(piece.range) {
                // What is shut is one more piece, without which the segment stays.
                piece = piece_of(entry, piece.siblings + 1);
            }
            if shut.has_medium() {
                // Which medium segments what is read points to is known only when it is.
                piece.medium = 0;
            }
            let live = live_bytes(entry).unwrap_or(piece.bytes);
            parts.extend(open.into_iter().map(|range| Part { range, live, piece }));
        }
        Self(Source::Parts(parts))
    }

    /// These, sorted by range.
    #[cfg(test)]
    pub(crate) fn given(pieces: Vec<MergePiece<'a>>) -> Self {
        let part = |piece: MergePiece<'a>| Part {
            range: piece.range.clone(),
            live: piece.bytes,
            piece,
        };
        Self(Source::Parts(pieces.into_iter().map(part).collect()))
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
    pub fn get(&self, place: usize) -> MergePiece<'_> {
        match &self.0 {
            Source::Run(run) => piece(run, &run.segments[place]),
            Source::Parts(parts) => parts[place].get(),
        }
    }

    /// The pieces from `first` on, of `most` segments, or two.
    #[must_use]
    pub fn neighbours(&self, first: usize, most: usize) -> Neighbours {
        let mut missing: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut last, mut live) = (first, 0);
        for place in first..self.len() {
            let piece = self.get(place);
            if missing.len() == most.max(2) && !missing.contains_key(&piece.number) {
                break;
            }
            let missing = missing.entry(piece.number).or_insert(piece.siblings);
            *missing = missing.saturating_sub(1);
            (last, live) = (place, live + self.live(place));
        }
        let freed = missing.values().filter(|missing| **missing == 0).count() as u64;
        Neighbours { last, live, freed }
    }

    /// How many segments have all their pieces in `range`.
    #[must_use]
    pub(crate) fn freed_without(&self, range: &KeyRange) -> usize {
        let ends = |piece: &MergePiece<'_>| match (&range.to, &piece.range.to) {
            (Some(to), Some(end)) => end <= to,
            (to, _) => to.is_none(),
        };
        let pieces = self.within(range);
        let inside = pieces.filter(|piece| piece.range.from >= range.from && ends(piece));
        let mut missing: BTreeMap<u64, u32> = BTreeMap::new();
        for piece in inside {
            let missing = missing.entry(piece.number).or_insert(piece.siblings);
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
    pub fn range(&self, places: Range<usize>) -> impl Iterator<Item = MergePiece<'_>> {
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
    pub fn within(&self, range: &KeyRange) -> impl Iterator<Item = MergePiece<'_>> {
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
            Source::Parts(parts) => (0..parts.len()).min_by_key(|place| parts[*place].piece.number),
        }
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Source::Run(run) => run.pairs_bytes(),
            Source::Parts(parts) => parts.iter().map(|part| part.piece.bytes).sum(),
        }
    }

    /// Whether one holds tombstones.
    #[must_use]
    pub(crate) fn holds_tombstones(&self) -> bool {
        match &self.0 {
            Source::Run(run) => run.holds_tombstones(),
            Source::Parts(parts) => parts.iter().any(|part| part.piece.tombstones),
        }
    }

    /// Whether one points into the medium log.
    #[must_use]
    pub(crate) fn points_to_medium(&self) -> bool {
        match &self.0 {
            Source::Run(run) => run.points_to_medium(),
            Source::Parts(parts) => parts.iter().any(|part| part.piece.medium > 0),
        }
    }

    /// The first place of one that points into the medium log. Goes through those before it, where there is one.
    #[must_use]
    pub(crate) fn first_to_medium(&self) -> Option<usize> {
        let mut places = 0..self.len();
        let found = self.points_to_medium();
        found.then(|| places.find(|place| self.get(*place).medium > 0))?
    }

    /// The first place of one that begins at `key` or behind it, and is in `sparse` or one of at least `pieces_min` of
    /// its segment. Goes through them where `pieces_min` is below `PIECES_MAX`, or some keys are passed over.
    #[must_use]
    pub(crate) fn first_loose(
        &self,
        key: &[u8],
        pieces_min: u32,
        sparse: &BTreeSet<SegmentNumber>,
    ) -> Option<usize> {
        let begins = |range: &KeyRange| range.from.as_slice() >= key;
        if let Source::Run(run) = &self.0
            && pieces_min >= PIECES_MAX
        {
            let numbers = sparse.iter().copied().chain(run.crumbled());
            let firsts = numbers.filter_map(|number| {
                let mut places = run.places_of(number);
                places.find(|place| begins(&run.segments[*place].segment.range))
            });
            return firsts.min();
        }
        let is_loose = |piece: &MergePiece<'_>| {
            piece.siblings >= pieces_min || sparse.contains(&SegmentNumber(piece.number))
        };
        let mut all = self.range(0..self.len());
        all.position(|piece| begins(piece.range) && is_loose(&piece))
    }
}

impl Part<'_> {
    const fn get(&self) -> MergePiece<'_> {
        MergePiece {
            range: &self.range,
            ..self.piece
        }
    }
}

/// The piece of `run` that `entry` is.
fn piece<'a>(run: &Run, entry: &'a LevelEntry) -> MergePiece<'a> {
    let siblings = run.pieces_count(entry.segment.number);
    piece_of(entry, u32::try_from(siblings).unwrap_or(u32::MAX))
}

/// One of the `siblings` pieces of its segment, which share its bytes.
fn piece_of(entry: &LevelEntry, siblings: u32) -> MergePiece<'_> {
    let segment = &entry.segment;
    MergePiece {
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
