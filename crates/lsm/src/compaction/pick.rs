//! Which part of which level is compacted next, and [why](Why): a pure function from the shape of a version to what is
//! [picked](Picked).
//!
//! 1. The reasons are gone through in their [order](Why::ORDER). The first that finds a part decides.
//! 2. Every level has a *score*: how full it is, in hundredths. L1 counts its sorted runs, since
//!    each of them costs a read, and is full when reads trigger a merge; the levels below count
//!    bytes against a target that grows by the growth factor from level to level. Below 100
//!    everywhere, no level is full.
//! 3. In a level the part begins with the oldest segment (in L1: with the first segment
//!    of the oldest run) and takes its neighbours to the right until the input reaches
//!    `part_bytes`. Parts thereby walk through a level from left to right, and what a part trimmed
//!    is the beginning of the next one.
//! 4. The part is widened to the bounds of the segments that it overlaps below, so that those are
//!    consumed whole and only the upper level is trimmed.
//! 5. Segments that overlap nothing are moved instead: only the manifest changes.
//! 6. What points into the medium log is merged from the lowest level but one if that has any: into the last level,
//!    where values are in place.
//! 7. Neighbours are packed only where the level above has none of their key range. L1 is the last that is packed:
//!    several runs of it become one.
//! 8. Pointers in the parts that range deletions cut off are counted by `work/jobs/counting.rs`.
//!
//! Invariants: the range of a merge cuts no segment of the lower level, and in L1 it means all
//! runs (a part of L1 is one key range of *all* its runs), so that below a key there are only older
//! bindings of it.

use std::collections::BTreeSet;

use argosy_base::KeyRange;

use super::bounded::{BoundedRun, Levels};
use super::pack::packed_l1;
use super::policy::{Aim, At, Choice, Picked, Policy};
use super::why::Why;
use crate::edit::LEVELS_MAX;
use crate::version::BOUNDS_MAX;

/// Most segments that one move takes down: bounds the edit.
const MOVES_MAX: usize = 64;

/// Chooses. `None`: no level asks for anything. See the module documentation.
#[must_use]
pub fn pick(shape: &Levels<'_>, policy: &Policy) -> Option<Picked> {
    let picked = |why| choose(why, shape, policy).map(|choice| Picked { why, choice });
    Why::ORDER.into_iter().find_map(picked)
}

/// What is done for `why`, if that is there.
fn choose(why: Why, shape: &Levels<'_>, policy: &Policy) -> Option<Choice> {
    let down = |level| taken_down(shape, policy, level);
    let merge = |(level, range)| Choice::Merge { level, range };
    match why {
        Why::Damage => policy.gather.clone().map(Choice::within_l1),
        Why::NoRoom => packed_first(shape, policy),
        Why::Full => fullest(shape, policy).map(down),
        Why::Shadowed => wasteful(shape, policy).map(down),
        Why::Medium => drained(shape, policy).map(merge),
        Why::Lower => lowered(shape, policy).map(merge),
        Why::Short => packed(shape, policy).map(merge),
        Why::Cut => loose(shape, policy).map(merge),
    }
}

/// The level from which something goes down for `why`, if that is there. For the others parts of levels are merged.
pub(super) fn level_for(why: Why, shape: &Levels<'_>, policy: &Policy) -> Option<u8> {
    match why {
        Why::Damage | Why::NoRoom | Why::Short => None,
        Why::Full => fullest(shape, policy),
        Why::Shadowed => wasteful(shape, policy),
        Why::Medium => drained(shape, policy).map(|(level, _)| level),
        Why::Lower => lowered(shape, policy).map(|(level, _)| level),
        Why::Cut => loose(shape, policy).map(|(level, _)| level),
    }
}

/// The next part of `level`, or its segments that can be moved.
fn taken_down(shape: &Levels<'_>, policy: &Policy, level: u8) -> Choice {
    match moves(shape, policy, level) {
        segments if segments.is_empty() => {
            let range = part(shape, policy, level);
            Choice::Merge {
                level,
                range: narrowed(shape, level, range, policy.part.segments_max),
            }
        }
        segments => Choice::Move { level, segments },
    }
}

/// The fullest of the levels that are to be compacted.
fn fullest(shape: &Levels<'_>, policy: &Policy) -> Option<u8> {
    let fullest = (1..LEVELS_MAX)
        .map(|level| (score(shape, policy, level), level))
        .filter(|(score, _)| *score >= 100)
        // Of equally full levels the upper one: it is what writers and readers wait for.
        .max_by_key(|(score, level)| (*score, u8::MAX - level));
    fullest.map(|(_, level)| level)
}

/// The uppermost level that is wasteful, where space is to become free.
fn wasteful(shape: &Levels<'_>, policy: &Policy) -> Option<u8> {
    (1..LEVELS_MAX).find(|level| policy.reclaim && is_wasteful(shape, *level))
}

/// Whether merging `level` down may free space: it shadows something below, or holds tombstones.
/// Once none is wasteful, everything lies in one level and nothing in it is shadowed.
fn is_wasteful(shape: &Levels<'_>, level: u8) -> bool {
    let own = shape.runs(level);
    let holds = |runs: &[BoundedRun<'_>]| runs.iter().any(|run| !run.is_empty());
    let deeper = shape.levels.get(usize::from(level)..).unwrap_or(&[]);
    holds(own)
        && (own.iter().filter(|run| !run.is_empty()).count() > 1
            || own.iter().any(BoundedRun::holds_tombstones)
            || deeper.iter().any(|runs| holds(runs)))
}

/// A part that points into the medium log, and whose merge puts values in place, or takes their pointers
/// one level closer: of the lowest level that has one above the last, or else of the last, which is merged
/// from the level above into itself.
fn drained(shape: &Levels<'_>, policy: &Policy) -> Option<(u8, KeyRange)> {
    let most = policy.drain?;
    let last = u8::try_from(shape.levels.len()).expect("there are few levels");
    let holds = |level: &u8| shape.runs(*level).iter().any(BoundedRun::points_to_medium);
    let above = (1..last).rev().find(holds);
    let level = above.or_else(|| (1..=last).find(holds))?;
    let range = if level == last && last > 1 {
        let [run] = shape.runs(last) else {
            return None;
        };
        let at = run.first_to_medium()?;
        return fits(shape, last - 1, reach(run, at, at), most);
    } else {
        part(shape, policy, level)
    };
    let range = narrowed(shape, level, range, policy.part.segments_max);
    fits(shape, level, range, most)
}

/// A part of the level above the last, where that is asked for.
fn lowered(shape: &Levels<'_>, policy: &Policy) -> Option<(u8, KeyRange)> {
    let holds = |level: &u8| shape.runs(*level).iter().any(|run| !run.is_empty());
    let mut lowest = (1..LEVELS_MAX).rev().filter(holds);
    let (last, level) = (lowest.next()?, lowest.next()?);
    (policy.lowers && level > 1 && last == level + 1).then(|| {
        let range = part(shape, policy, level);
        (
            level,
            narrowed(shape, level, range, policy.part.segments_max),
        )
    })
}

/// All bounds of a segment of which there are too many, or of which too little is left: of the last level, merged
/// from the level above into itself. Other segments may have come between the bounds: where these are too many, some
/// bounds, and at least one.
fn loose(shape: &Levels<'_>, policy: &Policy) -> Option<(u8, KeyRange)> {
    let bounds_max = match policy.aim {
        Aim::Levels => BOUNDS_MAX,
        Aim::ShortCut => 2,
    };
    for (level, runs) in (1u8..).zip(&shape.levels) {
        let is_last = usize::from(level) == shape.levels.len();
        let upper = if is_last && level > 1 {
            level - 1
        } else {
            level
        };
        let behind = policy.behind(upper).unwrap_or_default();
        for run in runs {
            let Some(first) = run.first_loose(behind, bounds_max, &policy.sparse) else {
                continue;
            };
            let last = last_of(run, first, policy.part.segments_max);
            let (first, last) = (run.get(first).range, run.get(last).range);
            let span = KeyRange::new(first.from.clone(), last.to.clone());
            return Some(match upper == level {
                true => (level, widened(shape, level, &span)),
                false => (upper, span),
            });
        }
    }
    None
}

/// The last of the segment of which `first` is one, but of `most` segments at most, or one.
fn last_of(run: &BoundedRun<'_>, first: usize, most: usize) -> usize {
    let number = run.get(first).number;
    let mut met = BTreeSet::new();
    let near = run.range(first..run.len()).take_while(|bounded| {
        met.insert(bounded.number);
        met.len() <= most.max(1)
    });
    let own = near
        .enumerate()
        .filter(|(_, bounded)| bounded.number == number);
    first + own.last().map_or(0, |(behind, _)| behind)
}

/// The part, if a merge of it writes `most` bytes, at most.
fn fits(shape: &Levels<'_>, level: u8, range: KeyRange, most: u64) -> Option<(u8, KeyRange)> {
    (output_bytes(shape, level, &range) <= most).then_some((level, range))
}

/// Bytes that a merge of `range` from `level` into the level below would write, at most.
fn output_bytes(shape: &Levels<'_>, level: u8, range: &KeyRange) -> u64 {
    let both = [shape.runs(level), shape.runs(level + 1)];
    let bounded = both.iter().flat_map(|runs| runs.iter());
    let bounded = bounded.flat_map(|run| run.within(range));
    bounded.map(|bounded| bounded.bytes + bounded.medium).sum()
}

/// Neighbours of the lowest level that would need seven eighths of the segments that they have, at
/// most, where space is to become free: merged from the level above, which has nothing there, into their own.
fn packed(shape: &Levels<'_>, policy: &Policy) -> Option<(u8, KeyRange)> {
    if !policy.reclaim {
        return None;
    }
    let holds = |level: &u8| shape.runs(*level).iter().any(|run| !run.is_empty());
    let level = (2..=LEVELS_MAX).rev().find(holds)? - 1;
    packed_in(shape, policy, level, policy.behind(level))
}

/// Such neighbours of the lowest level that has some, from a place on; in the end a part of L1.
fn packed_first(shape: &Levels<'_>, policy: &Policy) -> Option<Choice> {
    let from = policy.packing.first.as_ref()?;
    let behind = |level: u8| (level == from.level).then_some(from.key.as_slice());
    let packed = |level| packed_in(shape, policy, level, behind(level));
    let found = (1..=from.level).rev().find_map(packed);
    let merge = |(level, range)| Choice::Merge { level, range };
    found.map(merge).or_else(|| {
        // Where merges pass over some keys, a part of L1 might be cut short, and win nothing.
        let runs = policy.nothing_shut.then(|| shape.runs(1))?;
        let (most, behind) = (policy.packing.segments - 1, behind(0).unwrap_or_default());
        packed_l1(runs, policy.packing.bytes, most, behind).map(Choice::within_l1)
    })
}

/// Such neighbours behind a key, merged from `level` into the level below.
fn packed_in(
    shape: &Levels<'_>,
    policy: &Policy,
    level: u8,
    behind: Option<&[u8]>,
) -> Option<(u8, KeyRange)> {
    let [run] = shape.runs(level + 1) else {
        return None;
    };
    if policy.packing.bytes == 0 {
        return None;
    }
    let is_alone = |range: &KeyRange| {
        let mut above = shape.runs(level).iter();
        above.all(|run| run.overlapping(range).is_empty())
    };
    let behind = behind.unwrap_or_default();
    // The device is full: all of the level is gone through.
    let firsts = (0..run.len()).filter(|first| run.get(*first).range.from.as_slice() >= behind);
    let mut won = firsts.filter_map(|first| {
        let near = run.neighbours(first, policy.packing.segments);
        let wins = near.live.div_ceil(policy.packing.bytes) * 8 <= near.freed * 7;
        wins.then(|| reach(run, first, near.last))
    });
    Some((level, won.find(is_alone)?))
}

/// How full `level` is, in hundredths of what starts a compaction.
#[must_use]
pub fn score(shape: &Levels<'_>, policy: &Policy, level: u8) -> u64 {
    let runs = shape.runs(level);
    if level == 1 {
        let by_runs = runs.len() as u64 * 100 / policy.l1.runs as u64;
        let is_wanted = policy.l1.is_read_triggered || policy.aim == Aim::ShortCut;
        let is_due = is_wanted && runs.len() > 1;
        return if is_due { by_runs.max(100) } else { by_runs };
    }
    let bytes: u64 = runs.iter().map(BoundedRun::bytes).sum();
    let target = target_bytes(policy, level);
    // Exactly at its target a level is full, not over it.
    if bytes <= target {
        (bytes.saturating_mul(100) / target.max(1)).min(99)
    } else {
        bytes.saturating_mul(100) / target.max(1)
    }
}

/// What reads have to spend before they trigger a merge of L1, in bytes: all that it and L2 hold. `None` where L1 has
/// one run, or none.
#[must_use]
pub(crate) fn l1_price(shape: &Levels<'_>) -> Option<u64> {
    let both = [shape.runs(1), shape.runs(2)];
    let all = both.iter().flat_map(|runs| runs.iter());
    (both[0].len() > 1).then(|| all.map(BoundedRun::bytes).sum())
}

/// How many runs of L1, as large as those that it has, hold a fourth of what L2 does. `None` where L1 is empty.
#[must_use]
pub(crate) fn l1_runs_worth_merging(shape: &Levels<'_>) -> Option<u64> {
    let bytes = |level| shape.runs(level).iter().map(BoundedRun::bytes).sum::<u64>();
    let count = shape.runs(1).len() as u64;
    (bytes(2) / 4 * count).checked_div(bytes(1))
}

/// Bytes that `level`, 2 or below, may hold.
#[must_use]
pub(crate) fn target_bytes(policy: &Policy, level: u8) -> u64 {
    let growth = u64::from(policy.growth.factor).saturating_pow(u32::from(level) - 1);
    policy.growth.l0_bytes.saturating_mul(growth)
}

/// Bytes of the segments that a merge of `range` from `level` into the level below would read.
#[must_use]
pub fn input_bytes(shape: &Levels<'_>, level: u8, range: &KeyRange) -> u64 {
    let both = [shape.runs(level), shape.runs(level + 1)];
    both.iter()
        .flat_map(|runs| runs.iter())
        .flat_map(|run| run.within(range))
        .map(|bounded| bounded.bytes)
        .sum()
}

/// The segments of `level` that can be moved down: nothing older is in their own level, and they
/// overlap nothing in the level below. Tombstones are not moved to where a merge would drop them, pointers
/// into the medium log not to where one would put values in place, and leaves of a tree not without it.
fn moves(shape: &Levels<'_>, policy: &Policy, level: u8) -> Vec<At> {
    let own = shape.runs(level);
    let first = own.iter().position(|run| !run.is_empty());
    let Some(run) = first.filter(|_| policy.nothing_shut) else {
        return Vec::new();
    };
    let deeper = shape.levels.get(usize::from(level) + 1..).unwrap_or(&[]);
    let bottom = deeper.iter().flatten().all(BoundedRun::is_empty);
    let mut found = Vec::new();
    // Only from the oldest run: what a segment of a newer one shadows may be in an older one. And
    // only from its front, so that what stays is merged in order.
    for index in 0..own[run].len() {
        let bounded = own[run].get(index);
        let alone = shape
            .runs(level + 1)
            .iter()
            .all(|other| other.overlapping(bounded.range).is_empty());
        // A segment whose middle was consumed is there several times, and moves only as a whole.
        let has_siblings = bounded.siblings > 1;
        if !alone
            || has_siblings
            || bounded.in_tree
            || (bottom && (bounded.tombstones || bounded.medium > 0))
            || found.len() == MOVES_MAX
        {
            break;
        }
        found.push(At { run, place: index });
    }
    found
}

/// The part of `level` that is merged next.
fn part(shape: &Levels<'_>, policy: &Policy, level: u8) -> KeyRange {
    let own = shape.runs(level);
    let run = own
        .iter()
        .find(|run| !run.is_empty())
        .expect("a level with a score has a segment");
    let behind = policy.behind(level);
    let behind = behind.and_then(|key| Some((run.first_behind(key)?, key)));
    let first = match behind {
        Some((first, _)) => first,
        None if level == 1 => 0,
        None => run.oldest().expect("the run is not empty"),
    };
    let reach = |first, last| {
        let mut range = reach(run, first, last);
        if let Some((_, key)) = behind
            && range.from.as_slice() < key
        {
            range.from = key.to_vec();
        }
        range
    };
    let mut range = reach(first, first);
    let mut last = first;
    while last + 1 < run.len() {
        let wider = reach(first, last + 1);
        if input_bytes(shape, level, &widened(shape, level, &wider)) > policy.part.bytes {
            break;
        }
        (range, last) = (wider, last + 1);
    }
    let mut range = widened(shape, level, &range);
    if level == 1 {
        // Newer runs reach a little further than the oldest one. What is little is taken along, or
        // slivers of them would stay behind as runs of their own.
        let bound = policy
            .part
            .bytes
            .max(input_bytes(shape, level, &range).saturating_mul(2));
        let mut open = Vec::new();
        let from_start = first == 0 && behind.is_none();
        if from_start {
            open.push(KeyRange::new(Vec::new(), range.to.clone()));
        }
        if last + 1 == run.len() {
            open.push(KeyRange::new(range.from.clone(), None));
            if from_start {
                open.push(KeyRange::all());
            }
        }
        for wider in open {
            if input_bytes(shape, level, &wider) <= bound {
                range = wider;
            }
        }
    }
    range
}

/// The longest beginning of `range` of which a merge reads at most `segments_max` segments; the
/// shortest that there is where even that reads more. It has some of `level`, or nothing would go
/// down, and cuts no segment below.
fn narrowed(shape: &Levels<'_>, level: u8, range: KeyRange, segments_max: usize) -> KeyRange {
    if segments(shape, level, &range) <= segments_max {
        return range;
    }
    // None of the others has an end inside, or is cut there.
    let within = |level| shape.runs(level).iter().flat_map(|run| run.within(&range));
    let below = || within(level + 1);
    let starts = within(level).chain(below());
    let starts = starts.map(|bounded| &bounded.range.from);
    let ends = below().filter_map(|bounded| bounded.range.to.as_ref());
    let inside = |at: &&Vec<u8>| range.from < **at && range.to.as_ref().is_none_or(|to| *at < to);
    let cuts_none = |at: &&Vec<u8>| {
        below().all(|bounded| {
            let ended = bounded.range.to.as_ref().is_some_and(|to| to <= *at);
            bounded.range.from >= **at || ended
        })
    };
    let mut cuts: Vec<_> = starts
        .chain(ends)
        .filter(inside)
        .filter(cuts_none)
        .collect();
    let own = shape
        .runs(level)
        .iter()
        .filter_map(|run| run.within(&range).next());
    let first = own.map(|bounded| &bounded.range.from).min();
    cuts.retain(|at| first.is_some_and(|first| first < *at));
    cuts.sort_unstable();
    cuts.dedup();
    let upto = |at: &Vec<u8>| KeyRange::new(range.from.clone(), Some(at.clone()));
    let fitting = cuts.partition_point(|at| segments(shape, level, &upto(at)) <= segments_max);
    match cuts.get(fitting.saturating_sub(1)) {
        Some(at) => upto(at),
        None => range,
    }
}

/// Segments that a merge of `range` from `level` into the level below would read, those with several bounds by
/// the bounds.
fn segments(shape: &Levels<'_>, level: u8, range: &KeyRange) -> usize {
    let both = [shape.runs(level), shape.runs(level + 1)];
    let bounded = both.iter().flat_map(|runs| runs.iter());
    let bounded = bounded.flat_map(|run| run.within(range));
    let parts: usize = bounded
        .map(|bounded| WHOLE.div_ceil(bounded.siblings as usize))
        .sum();
    parts.div_ceil(WHOLE)
}

/// What a segment counts, to be divided by its bounds.
const WHOLE: usize = 5040;

/// From the start of segment `first` of a run to the start of the one behind `last`.
fn reach(run: &BoundedRun<'_>, first: usize, last: usize) -> KeyRange {
    let to = match last + 1 < run.len() {
        true => Some(run.get(last + 1).range.from.clone()),
        false => run.get(last).range.to.clone(),
    };
    KeyRange::new(run.get(first).range.from.clone(), to)
}

/// `range`, widened to the bounds of the segments that it overlaps in the level below `level`.
fn widened(shape: &Levels<'_>, level: u8, range: &KeyRange) -> KeyRange {
    let mut wide = range.clone();
    for run in shape.runs(level + 1) {
        let below = run.overlapping(range);
        if !below.is_empty() {
            let (first, last) = (run.get(below.start), run.get(below.end - 1));
            if first.range.from < wide.from {
                wide.from.clone_from(&first.range.from);
            }
            wide.to = match (wide.to, &last.range.to) {
                (Some(to), Some(other)) => Some(to.max(other.clone())),
                _ => None,
            };
        }
    }
    wide
}

#[cfg(test)]
#[path = "pick_tests.rs"]
mod tests;
