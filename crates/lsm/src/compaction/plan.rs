//! From a choice to a plan: which segments a compaction reads, and what its edit takes away.
//!
//! A plan is made from one version and stays right while that version ages: a flush only puts a run
//! on top, and there is one compaction at a time. Steps:
//!
//! 1. [`shape`] shows a version to [`pick`](super::pick::pick).
//! 2. [`Plan::new`] collects the pieces of the chosen part, and what is left of each segment that
//!    is only partly consumed.
//! 3. [`Plan::take_away`] writes the removals and clips into the edit that adds the outputs.
//!
//! Invariant: what a segment stands for after the edit is what it stood for before, without the
//! part. Nothing is lost between a clip and the outputs, and no key is in both.

use argosy_base::KeyRange;

use super::pick::{At, Piece, Shape};
use crate::edit::{Edit, LevelSegment, Place, RunId};
use crate::version::{LevelEntry, Run, Version};

/// A version's levels, as picking sees them.
#[must_use]
pub fn shape(version: &Version) -> Shape<'_> {
    let piece = |entry: &LevelEntry| -> (u64, bool) {
        let LevelSegment {
            len, tombstones, ..
        } = *entry.segment;
        (u64::from(len), tombstones > 0)
    };
    let levels = version
        .levels()
        .iter()
        .map(|level| {
            let runs = level.runs.iter();
            runs.map(|run| {
                let segments = run.segments.iter();
                segments
                    .map(|entry| {
                        let (bytes, tombstones) = piece(entry);
                        Piece {
                            range: &entry.segment.range,
                            bytes,
                            number: entry.segment.number.get(),
                            tombstones,
                        }
                    })
                    .collect()
            })
            .collect()
        })
        .collect();
    Shape { levels }
}

/// A piece of a run that a merge reads.
#[derive(Clone, Debug)]
pub struct Input {
    /// The segment.
    pub entry: LevelEntry,
    /// The keys of it that are read.
    pub range: KeyRange,
}

/// What a merge of a part reads and consumes.
#[derive(Debug)]
pub struct Plan {
    /// The level into which it merges.
    pub target: u8,
    /// Its inputs, run by run, the newest run first, each in key order. None is empty.
    pub inputs: Vec<Vec<Input>>,
    /// Segments that are consumed whole.
    removed: Vec<Place>,
    /// What is left of the others, all pieces of a segment together.
    clipped: Vec<(Place, KeyRange)>,
}

impl Plan {
    /// The plan of merging `range` of `level` into the level below.
    #[must_use]
    pub fn new(version: &Version, level: u8, range: &KeyRange) -> Self {
        let mut plan = Self {
            target: level + 1,
            inputs: Vec::new(),
            removed: Vec::new(),
            clipped: Vec::new(),
        };
        for number in [level, level + 1] {
            let runs = version.level(number).map_or(&[][..], |level| &level.runs);
            for run in runs.iter().rev() {
                plan.consume(number, run, range);
            }
        }
        plan
    }

    fn consume(&mut self, level: u8, run: &Run, range: &KeyRange) {
        let touched = run.overlapping(range);
        if touched.is_empty() {
            return;
        }
        self.inputs.push(
            touched
                .iter()
                .map(|entry| Input {
                    entry: entry.clone(),
                    range: entry.segment.range.intersection(range),
                })
                .collect(),
        );
        let mut previous = None;
        for entry in touched {
            let number = entry.segment.number;
            // The pieces of a segment are neighbours.
            if previous.replace(number) == Some(number) {
                continue;
            }
            let place = Place {
                level,
                run: run.id,
                number,
            };
            let left: Vec<_> = pieces(run, entry)
                .flat_map(|piece| without(&piece.segment.range, range))
                .collect();
            if left.is_empty() {
                self.removed.push(place);
            } else {
                self.clipped
                    .extend(left.into_iter().map(|range| (place, range)));
            }
        }
    }

    /// Bytes of the segments that are read from.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let inputs = self.inputs.iter().flatten();
        inputs.map(|input| u64::from(input.entry.segment.len)).sum()
    }

    /// Segments that the edit takes away with all their pieces, for their references.
    pub fn removed<'v>(&self, version: &'v Version) -> impl Iterator<Item = &'v LevelSegment> {
        self.removed.iter().filter_map(|place| {
            let runs = &version.level(place.level)?.runs;
            let run = runs.iter().find(|run| run.id == place.run)?;
            let mut segments = run.segments.iter();
            let entry = segments.find(|entry| entry.segment.number == place.number)?;
            Some(&*entry.segment)
        })
    }

    /// Writes removals and clips into `edit`.
    pub fn take_away(&self, edit: &mut Edit) {
        edit.removed.extend_from_slice(&self.removed);
        edit.clipped.extend_from_slice(&self.clipped);
    }
}

/// Writes into `edit` that `segments` of `level`, as [`shape`] numbered them, go down by one.
pub fn move_down(version: &Version, level: u8, segments: &[At], edit: &mut Edit) {
    let runs = &version.level(level).expect("it was picked").runs;
    for at in segments {
        let run = &runs[at.run];
        let segment = &run.segments[at.piece].segment;
        edit.removed.push(Place {
            level,
            run: run.id,
            number: segment.number,
        });
        let moved = LevelSegment::clone(segment);
        edit.added.push((level + 1, RunId(0), moved));
    }
}

/// All pieces of the segment of `entry` in its run.
fn pieces<'a>(run: &'a Run, entry: &LevelEntry) -> impl Iterator<Item = &'a LevelEntry> {
    let number = entry.segment.number;
    run.segments
        .iter()
        .filter(move |other| other.segment.number == number)
}

/// What is left of `range` without `part`: nothing, one range, or two.
fn without(range: &KeyRange, part: &KeyRange) -> Vec<KeyRange> {
    if !range.overlaps(part) {
        return vec![range.clone()];
    }
    let below = KeyRange::new(range.from.clone(), Some(part.from.clone()));
    let above = part
        .to
        .clone()
        .map(|from| KeyRange::new(from, range.to.clone()));
    let left = [Some(below), above].into_iter().flatten();
    left.filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: &str) -> KeyRange {
        KeyRange::new(from, (!to.is_empty()).then(|| to.into()))
    }

    #[test]
    fn what_is_left_is_the_rest() {
        let cases = [
            (range("b", "f"), range("a", "g"), vec![]),
            (range("b", "f"), range("b", "f"), vec![]),
            (range("b", "f"), range("a", "c"), vec![range("c", "f")]),
            (range("b", "f"), range("e", ""), vec![range("b", "e")]),
            (range("b", ""), range("", "c"), vec![range("c", "")]),
            (
                range("b", "f"),
                range("c", "d"),
                vec![range("b", "c"), range("d", "f")],
            ),
            (range("b", "f"), range("f", "g"), vec![range("b", "f")]),
            (range("b", ""), range("c", ""), vec![range("b", "c")]),
        ];
        for (whole, part, left) in cases {
            assert_eq!(without(&whole, &part), left, "{whole} without {part}");
        }
    }
}
