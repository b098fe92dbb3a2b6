//! From a choice to a plan: which segments a compaction reads, and what its edit takes away.
//!
//! A plan is made from one version and stays right while that version ages: a flush only puts a run
//! on top, and there is one compaction at a time. Steps:
//!
//! 1. [`shape`] shows a version to [`pick`](super::pick::pick).
//! 2. [`MergePlan::new`] collects the segments of the chosen part, and what is left of each segment that
//!    is only partly consumed.
//! 3. [`MergePlan::take_away`] writes the removals and new bounds into the edit that adds the outputs.
//!
//! Invariant: what a segment stands for after the edit is what it stood for before, without the
//! part. Nothing is lost between new bounds and the outputs, and no key is in both.

use std::collections::BTreeSet;

use argosy_base::KeyRange;

use super::bounded::{BoundedRun, Levels};
use super::policy::At;
use crate::damage::Shut;
use crate::edit::{Edit, LevelSegment, Place, RunId};
use crate::names::Form;
use crate::read::sources::{Input, RunInput};
use crate::version::{LevelEntry, Run, Version};

/// Most segments of a run that [`MergePlan::gather`] reads: bounds the edit.
const GATHERED_MAX: usize = 32;

/// A version's levels, as picking sees them: without what merges pass over. Where that is something, the places
/// of segments and runs are not the version's.
#[must_use]
pub fn shape<'v>(version: &'v Version, shut: &Shut) -> Levels<'v> {
    let levels = version.levels().iter().map(|level| {
        let runs = level.runs.iter().map(|run| BoundedRun::open(run, shut));
        runs.filter(|run| shut.is_empty() || !run.is_empty())
            .collect()
    });
    Levels {
        levels: levels.collect(),
    }
}

/// Whether `entry` does not stand for all keys of its segment: as edits since the opening tell, or its index, where
/// that is in memory.
pub(crate) fn is_cut(entry: &LevelEntry) -> bool {
    let reader = entry.stored.pinned_reader();
    let range = &entry.segment.range;
    let reaches_out = reader.is_some_and(|reader| {
        !range.contains(reader.first_key()) || !range.contains(reader.last_key())
    });
    entry.stored.is_cut() || reaches_out
}

/// Bytes of the leaves that may have keys for which `entry` stands, if its index is in memory.
pub(super) fn live_bytes(entry: &LevelEntry) -> Option<u64> {
    let reader = entry.stored.pinned_reader()?;
    let (all, own) = (reader.leaves(), reader.leaves_in(&entry.segment.range));
    Some(u64::from(entry.segment.len) * own as u64 / all.max(1) as u64)
}

/// What a merge of a part reads and consumes.
#[derive(Debug)]
pub struct MergePlan {
    /// The level into which it merges, and the run of it.
    pub target: u8,
    /// The run of that level.
    pub run: RunId,
    /// Its inputs, run by run, the newest run first.
    pub inputs: Vec<RunInput>,
    /// Segments that are consumed whole.
    removed: Vec<Place>,
    /// What is left of the others, all bounds of a segment together.
    bounds: Vec<(Place, KeyRange)>,
}

impl MergePlan {
    /// The plan of merging `range` of `level` into the level below.
    #[must_use]
    pub fn new(version: &Version, level: u8, range: &KeyRange) -> Self {
        let mut plan = Self {
            target: level + 1,
            run: RunId(0),
            inputs: Vec::new(),
            removed: Vec::new(),
            bounds: Vec::new(),
        };
        for number in [level, level + 1] {
            let runs = version.level(number).map_or(&[][..], |level| &level.runs);
            for run in runs.iter().rev() {
                plan.consume(number, run, range);
            }
        }
        plan
    }

    /// The plan of making one run of what several runs of L1 hold above something that merges pass over, so that
    /// they do not become ever more: where at least `runs_min` hold keys that are shut. At most
    /// `GATHERED_MAX` segments of each are read.
    #[must_use]
    pub fn gather(version: &Version, shut: &Shut, runs_min: usize) -> Option<(Self, KeyRange)> {
        let runs = version.level(1).map_or(&[][..], |level| &level.runs);
        shut.ranges().iter().find_map(|range| {
            let above = runs.iter().rposition(|run| shut.damages(run, range));
            let above = &runs[above.map_or(0, |at| at + 1)..];
            let holds = |run: &&Run| run.overlapping(range).next().is_some();
            let above: Vec<_> = above.iter().filter(holds).collect();
            if above.len() < runs_min.max(2) {
                return None;
            }
            let mut rest = range.clone();
            while !rest.is_empty() {
                let part = gathered_part(&above, &rest);
                let plan = Self::within_l1(&above, &part);
                if plan.inputs.len() > 1 {
                    return Some((plan, part));
                }
                rest.from = part.to?;
            }
            None
        })
    }

    /// The plan of making one run of what the runs of L1 hold of `range`.
    #[must_use]
    pub(crate) fn pack_l1(version: &Version, range: &KeyRange) -> Self {
        let runs = version.level(1).map_or(&[][..], |level| &level.runs);
        let holds = |run: &&Run| run.overlapping(range).next().is_some();
        let holding: Vec<_> = runs.iter().filter(holds).collect();
        Self::within_l1(&holding, range)
    }

    /// The plan of merging `range` of some runs of L1 into the oldest of them, which is the first: no other run
    /// between them holds any of it.
    fn within_l1(runs: &[&Run], range: &KeyRange) -> Self {
        let mut plan = Self {
            target: 1,
            run: runs[0].id,
            inputs: Vec::new(),
            removed: Vec::new(),
            bounds: Vec::new(),
        };
        for run in runs.iter().rev() {
            plan.consume(1, run, range);
        }
        plan
    }

    fn consume(&mut self, level: u8, run: &Run, range: &KeyRange) {
        let touched = run.overlapping(range);
        if touched.len() == 0 {
            return;
        }
        let inputs = touched.clone().map(|entry| Input {
            entry: entry.clone(),
            range: entry.segment.range.intersection(range),
        });
        self.inputs.push(RunInput {
            inputs: inputs.collect(),
            tree: run.tree.clone(),
        });
        let removed_before = self.removed.len();
        let mut seen = BTreeSet::new();
        for entry in touched {
            let number = entry.segment.number;
            if !seen.insert(number) {
                continue;
            }
            let place = Place {
                level,
                run: run.id,
                number,
            };
            let left: Vec<_> = run
                .entries_of(number)
                .flat_map(|entry| without(&entry.segment.range, range))
                .collect();
            if left.is_empty() {
                self.removed.push(place);
            } else {
                self.bounds
                    .extend(left.into_iter().map(|range| (place, range)));
            }
        }
        let removed: BTreeSet<_> = self.removed[removed_before..]
            .iter()
            .map(|place| place.number)
            .collect();
        let goes = |entry: &LevelEntry| {
            entry.segment.form != Form::Leaves || removed.contains(&entry.segment.number)
        };
        // The index goes with the last leaves.
        if run.tree.is_some() && run.segments.iter().all(goes) {
            self.removed.extend(index_places(level, run));
        }
    }

    /// Bytes of the segments that are read from.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let inputs = self.inputs.iter().flat_map(|run| &run.inputs);
        inputs.map(|input| u64::from(input.entry.segment.len)).sum()
    }

    /// The keys from the first to the last of what is read.
    #[must_use]
    pub fn keys(&self) -> KeyRange {
        let inputs = self.inputs.iter().flat_map(|run| &run.inputs);
        let from = inputs.clone().map(|input| &input.range.from).min();
        let open = inputs.clone().any(|input| input.range.to.is_none());
        let to = inputs.filter_map(|input| input.range.to.as_ref()).max();
        KeyRange {
            from: from.cloned().unwrap_or_default(),
            to: to.filter(|_| !open).cloned(),
        }
    }

    /// Bytes of pairs that they point to in the medium log, within bounds or not.
    #[must_use]
    pub fn medium_bytes(&self) -> u64 {
        let inputs = self.inputs.iter().flat_map(|run| &run.inputs);
        inputs.map(|input| input.entry.segment.medium_bytes).sum()
    }

    /// Whether what it reads may point into medium segments that are shut.
    #[must_use]
    pub(crate) fn points_into(&self, shut: &Shut) -> bool {
        shut.has_medium() && self.medium_bytes() > 0
    }

    /// Writes removals and new bounds into `edit`.
    pub(crate) fn take_away(&self, edit: &mut Edit) {
        edit.removed.extend_from_slice(&self.removed);
        edit.bounds.extend_from_slice(&self.bounds);
    }
}

/// The longest beginning of `range` in which each of `runs` has at most [`GATHERED_MAX`] segments.
fn gathered_part(runs: &[&Run], range: &KeyRange) -> KeyRange {
    let mut part = range.clone();
    for run in runs {
        if let Some(next) = run.overlapping(range).nth(GATHERED_MAX) {
            let from = next.segment.range.from.clone();
            part.to = Some(
                part.to
                    .map_or_else(|| from.clone(), |to| to.min(from.clone())),
            );
        }
    }
    part
}

/// The places of the index segments of `run`.
pub(super) fn index_places(level: u8, run: &Run) -> impl Iterator<Item = Place> {
    run.index().iter().map(move |entry| Place {
        level,
        run: run.id,
        number: entry.segment.number,
    })
}

/// Writes into `edit` that `segments` of `level`, as [`shape`] numbered them, go down by one. Where
/// leaf segments of a tree are among them, they are all of a run, and the tree goes with them.
pub(crate) fn move_down(version: &Version, level: u8, segments: &[At], edit: &mut Edit) {
    let runs = &version.level(level).expect("it was picked").runs;
    let mut tree_of = None;
    let mut seen = BTreeSet::new();
    for at in segments {
        let run = &runs[at.run];
        let segment = &run.segments[at.place].segment;
        let place = Place {
            level,
            run: run.id,
            number: segment.number,
        };
        // The bounds of a segment go together.
        if seen.insert(place) {
            edit.removed.push(place);
        }
        let moved = LevelSegment::clone(segment);
        edit.added.push((level + 1, RunId(0), moved));
        if segment.form == Form::Leaves {
            tree_of = Some(run);
        }
    }
    if let Some(run) = tree_of {
        let to = (level + 1, RunId(0));
        edit.removed.extend(index_places(level, run));
        let index = run.index().iter().map(|entry| &*entry.segment);
        edit.added
            .extend(index.map(|segment| (to.0, to.1, segment.clone())));
        edit.trees
            .extend(run.tree.iter().map(|tree| (to.0, to.1, tree.tree)));
    }
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
