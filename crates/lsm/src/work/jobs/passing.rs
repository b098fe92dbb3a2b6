//! What jobs do about damage ([`damage`](crate::damage)).
//!
//! A merge that ends there is given up with all that it counted, so that what it would have dropped counts as before,
//! and the next merges pass over the segment: its pointers keep what they lead to. What range tombstones cut off of it
//! stays uncounted. Once a segment may be whole again all of that is tried again.

use argosy_base::KeyRange;

use crate::compaction::bounded::Levels;
use crate::compaction::plan::MergePlan;
use crate::damage::Shut;
use crate::work::site::Site;

/// The part of `range` that merges of `level` may read, around the first segment of that level in it. Level 0 stands
/// for L1, merged into itself.
pub(crate) fn open_part(shape: &Levels<'_>, level: u8, range: KeyRange, shut: &Shut) -> KeyRange {
    if shut.is_empty() {
        return range;
    }
    let firsts = [level, level + 1].into_iter().filter_map(|level| {
        let runs = shape.runs(level).iter();
        let firsts = runs.filter_map(|run| run.within(&range).next());
        firsts
            .map(|bounded| bounded.range.from.clone().max(range.from.clone()))
            .min()
    });
    let first = firsts.into_iter().next();
    first.map_or_else(|| range.clone(), |first| shut.open_around(&range, &first))
}

/// What merges pass over.
pub(crate) fn shut_in(site: &Site<'_>) -> Shut {
    match site.settings.mutants.lose_damaged() {
        true => Shut::default(),
        false => site.storage.damages().shut_in(site.storage.head()),
    }
}

/// The planted mistake `lose_damaged`: `plan` reads nothing that is damaged, and consumes it all the same.
pub(crate) fn lose_damaged(site: &Site<'_>, plan: &mut MergePlan) {
    if !site.settings.mutants.lose_damaged() {
        return;
    }
    let damaged = site.storage.damages().list();
    let is_damaged = |number| damaged.iter().any(|known| known.number == number);
    for run in &mut plan.inputs {
        run.inputs
            .retain(|input| !is_damaged(input.entry.segment.number));
    }
    plan.inputs.retain(|run| !run.inputs.is_empty());
}
