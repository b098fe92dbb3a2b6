//! A sorted run, as [picking](super::pick) sees it: nothing of it is copied or gone through that is not asked for.
//!
//! What a choice needs of all of a run, such as its bytes or whether it holds tombstones, is kept with the run
//! ([`Run`]); a part of it is found by search. So a choice costs work by the part that it finds, however long the
//! run is.

use std::collections::BTreeSet;
use std::ops::Range;

use argosy_base::{KeyRange, SegmentNumber};

use super::plan::live_bytes;
use crate::level::Form;
use crate::version::{LevelEntry, Run};

/// Pieces of a segment at which it is merged, although its level is not full.
pub(crate) const PIECES_MAX: u32 = 16;

/// One segment of a level, as far as picking is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
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
    #[cfg(test)]
    Given(Vec<Piece<'a>>),
}

impl<'a> Pieces<'a> {
    /// Those of `run`.
    #[must_use]
    pub const fn of(run: &'a Run) -> Self {
        Self(Source::Run(run))
    }

    /// These, sorted by range.
    #[cfg(test)]
    pub(crate) const fn given(pieces: Vec<Piece<'a>>) -> Self {
        Self(Source::Given(pieces))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.0 {
            Source::Run(run) => run.segments.len(),
            #[cfg(test)]
            Source::Given(pieces) => pieces.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at `place`, which there is.
    #[must_use]
    pub fn get(&self, place: usize) -> Piece<'a> {
        match &self.0 {
            Source::Run(run) => piece(run, &run.segments[place]),
            #[cfg(test)]
            Source::Given(pieces) => pieces[place],
        }
    }

    /// How many bytes of the one at `place` have keys for which it stands, as far as that is known.
    #[must_use]
    pub fn live(&self, place: usize) -> u64 {
        let known = match &self.0 {
            Source::Run(run) => live_bytes(&run.segments[place]),
            #[cfg(test)]
            Source::Given(_) => None,
        };
        known.unwrap_or_else(|| self.get(place).bytes)
    }

    /// Those at `places`.
    pub fn range(&self, places: Range<usize>) -> impl Iterator<Item = Piece<'a>> {
        places.map(|place| self.get(place))
    }

    /// The places of those that have keys in `range`.
    #[must_use]
    pub fn overlapping(&self, range: &KeyRange) -> Range<usize> {
        match &self.0 {
            Source::Run(run) => run.places_overlapping(range),
            #[cfg(test)]
            Source::Given(pieces) => {
                let first = pieces.partition_point(|piece| ends_before(piece.range, &range.from));
                let to = range.to.as_ref();
                let begins = |piece: &Piece<'_>| to.is_none_or(|to| piece.range.from < *to);
                first..pieces.partition_point(begins).max(first)
            }
        }
    }

    /// Those that have keys in `range`.
    pub fn within(&self, range: &KeyRange) -> impl Iterator<Item = Piece<'a>> {
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
            #[cfg(test)]
            Source::Given(pieces) => (0..pieces.len()).min_by_key(|place| pieces[*place].number),
        }
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Source::Run(run) => run.pairs_bytes(),
            #[cfg(test)]
            Source::Given(pieces) => pieces.iter().map(|piece| piece.bytes).sum(),
        }
    }

    /// Whether one holds tombstones.
    #[must_use]
    pub fn holds_tombstones(&self) -> bool {
        match &self.0 {
            Source::Run(run) => run.holds_tombstones(),
            #[cfg(test)]
            Source::Given(pieces) => pieces.iter().any(|piece| piece.tombstones),
        }
    }

    /// Whether one points into the medium log.
    #[must_use]
    pub fn points_to_medium(&self) -> bool {
        match &self.0 {
            Source::Run(run) => run.points_to_medium(),
            #[cfg(test)]
            Source::Given(pieces) => pieces.iter().any(|piece| piece.medium > 0),
        }
    }

    /// The first place of one that points into the medium log. Goes through those before it, where there is one.
    #[must_use]
    pub fn first_to_medium(&self) -> Option<usize> {
        let mut places = 0..self.len();
        let found = self.points_to_medium();
        found.then(|| places.find(|place| self.get(*place).medium > 0))?
    }

    /// The first place of one that begins at `key` or behind it, and is in `sparse` or one of too many pieces of its
    /// segment.
    #[must_use]
    pub fn first_loose(&self, key: &[u8], sparse: &BTreeSet<SegmentNumber>) -> Option<usize> {
        match &self.0 {
            Source::Run(run) => {
                let numbers = sparse.iter().copied().chain(run.crumbled());
                let first = numbers.filter_map(|number| {
                    let places = run.places_of(number);
                    let mut behind = places
                        .filter(|place| run.segments[*place].segment.range.from.as_slice() >= key);
                    behind.next()
                });
                first.min()
            }
            #[cfg(test)]
            Source::Given(pieces) => {
                let is_loose = |piece: &Piece<'_>| {
                    piece.siblings >= PIECES_MAX || sparse.contains(&SegmentNumber(piece.number))
                };
                let begins = |piece: &Piece<'_>| piece.range.from.as_slice() >= key;
                let mut all = pieces.iter();
                all.position(|piece| begins(piece) && is_loose(piece))
            }
        }
    }
}

/// The piece of `run` that `entry` is.
fn piece<'a>(run: &Run, entry: &'a LevelEntry) -> Piece<'a> {
    let segment = &entry.segment;
    let siblings = run.pieces_count(segment.number);
    let siblings = u32::try_from(siblings).unwrap_or(u32::MAX);
    Piece {
        range: &segment.range,
        bytes: u64::from(segment.len.div_ceil(siblings)),
        siblings,
        number: segment.number.get(),
        tombstones: segment.tombstones > 0,
        in_tree: segment.form == Form::Leaves,
        medium: segment.medium_bytes.div_ceil(siblings.into()),
    }
}

#[cfg(test)]
fn ends_before(range: &KeyRange, key: &[u8]) -> bool {
    range.to.as_ref().is_some_and(|to| to.as_slice() <= key)
}
