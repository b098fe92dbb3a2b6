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

use super::pick::{level_for, pick};
use super::pieces::{Pieces, Shape};
use super::policy::{At, Choice, Picked, Policy};
use super::why::Why;

/// Chooses. See the module documentation.
#[must_use]
pub fn pick_whole(shape: &Shape<'_>, policy: &Policy) -> Option<Picked> {
    let level = |why| Some((why, level_for(why, shape, policy)?));
    let chosen = Why::ORDER.into_iter().find_map(level);
    let Some((why, level)) = chosen.filter(|_| policy.whole_segments_max > 0) else {
        return pick(shape, policy);
    };
    let runs = |level: u8| shape.levels.get(usize::from(level) - 1);
    let count = |level: u8| {
        runs(level)
            .into_iter()
            .flatten()
            .map(Pieces::len)
            .sum::<usize>()
    };
    let segments = count(level) + count(level + 1);
    if let Some([run]) = runs(level).map(Vec::as_slice)
        && count(level + 1) == 0
        && may_sink(shape, level, run)
    {
        let all = (0..run.len()).map(|piece| At { run: 0, piece });
        let segments = all.collect();
        let choice = Choice::Move { level, segments };
        return Some(Picked { why, choice });
    }
    if segments + index_segments(segments) > policy.whole_segments_max {
        return pick(shape, policy);
    }
    let range = KeyRange::all();
    let choice = Choice::Merge { level, range };
    Some(Picked { why, choice })
}

/// Whether a run of `level` may go where nothing is: a merge would drop no tombstone of it, and put no
/// medium value in place.
fn may_sink(shape: &Shape<'_>, level: u8, run: &Pieces<'_>) -> bool {
    let deeper = shape.levels.get(usize::from(level) + 1..).unwrap_or(&[]);
    let bottom = deeper.iter().flatten().all(Pieces::is_empty);
    !bottom || !(run.holds_tombstones() || run.points_to_medium())
}

/// Index segments that a tree over so many leaf segments has, at most, where keys are not longer than a
/// few separators to a node.
#[must_use]
pub const fn index_segments(leaves: usize) -> usize {
    leaves / 16 + 3
}
