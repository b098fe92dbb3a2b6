//! The papers' compaction: all of a level and all of the one below it become one new tree. A pure
//! policy, as [`pick`] is.
//!
//! 1. The level is chosen as `pick` does, without the reasons for which nothing goes down.
//! 2. A level that consists of one run goes down as it is where nothing is below it: only the manifest
//!    changes. (Tombstones are not moved to the bottom, where a merge drops them, and pointers into the
//!    medium log are not, where it puts values in place.)
//! 3. Otherwise everything of both levels is merged.
//! 4. What is merged stays until the new tree is committed, so that takes as much space again. Where
//!    the device has not so much, and where it is full, parts are merged as `pick` says: into
//!    self-contained segments, which take no index segments beside them. The next merge of the whole
//!    level makes them a tree again.
//!
//! Invariant: as for parts, below a key there are only older bindings of it.

use argosy_base::KeyRange;

use super::bounded::{BoundedRun, Levels};
use super::pick::{level_for, pick};
use super::policy::{At, Choice, Picked, Policy};
use super::target::RunShape;
use super::why::Why;
use crate::settings::Compaction;

impl Compaction {
    /// Chooses what is merged next.
    pub(crate) fn pick(self, shape: &Levels<'_>, policy: &Policy) -> Option<Picked> {
        match self {
            // Where merges pass over something, they do so in parts.
            Self::WholeLevel if policy.nothing_shut => pick_whole(shape, policy),
            Self::Partial | Self::WholeLevel => pick(shape, policy),
        }
    }

    /// What is made of a run, as a whole where a tree `fits`.
    pub(crate) const fn shape(self, fits: bool) -> RunShape {
        match self {
            Self::WholeLevel if fits => RunShape::Tree,
            Self::Partial | Self::WholeLevel => RunShape::SelfContained,
        }
    }
}

impl RunShape {
    /// Index segments beside so many segments with pairs, at most.
    pub(crate) const fn index_segments(self, leaves: usize) -> usize {
        match self {
            Self::SelfContained => 0,
            Self::Tree => index_segments(leaves),
        }
    }
}

/// Chooses. See the module documentation.
#[must_use]
pub(crate) fn pick_whole(shape: &Levels<'_>, policy: &Policy) -> Option<Picked> {
    let level = |why| Some((why, level_for(why, shape, policy)?));
    let chosen = Why::ORDER.into_iter().find_map(level);
    let Some((why, level)) = chosen.filter(|_| policy.part.whole_segments_max > 0) else {
        return pick(shape, policy);
    };
    let runs = |level: u8| shape.levels.get(usize::from(level) - 1);
    let count = |level: u8| {
        runs(level)
            .into_iter()
            .flatten()
            .map(BoundedRun::len)
            .sum::<usize>()
    };
    let segments = count(level) + count(level + 1);
    if let Some([run]) = runs(level).map(Vec::as_slice)
        && count(level + 1) == 0
        && may_sink(shape, level, run)
    {
        let all = (0..run.len()).map(|place| At { run: 0, place });
        let segments = all.collect();
        let choice = Choice::Move { level, segments };
        return Some(Picked { why, choice });
    }
    if segments + index_segments(segments) > policy.part.whole_segments_max {
        return pick(shape, policy);
    }
    let range = KeyRange::all();
    let choice = Choice::Merge { level, range };
    Some(Picked { why, choice })
}

/// Whether a run of `level` may go where nothing is: a merge would drop no tombstone of it, and put no
/// medium value in place.
fn may_sink(shape: &Levels<'_>, level: u8, run: &BoundedRun<'_>) -> bool {
    let deeper = shape.levels.get(usize::from(level) + 1..).unwrap_or(&[]);
    let bottom = deeper.iter().flatten().all(BoundedRun::is_empty);
    !bottom || !(run.holds_tombstones() || run.points_to_medium())
}

/// Index segments that a tree over so many leaf segments has, at most, where keys are not longer than a
/// few separators to a node.
#[must_use]
pub(crate) const fn index_segments(leaves: usize) -> usize {
    leaves / 16 + 3
}
