//! Which part of L1 is packed when no merge into L2 finds room: the short segments of several runs become fewer
//! segments of one run.
//!
//! Parts begin where a segment does, or where packing continues, and end where a segment does, or with the level. The
//! first beginning at which segments can be won is taken, and there the part that wins most; of several the one that
//! writes least. What a part writes is bounded, so it finds room where little is left.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use argosy_base::KeyRange;

use super::bounded::BoundedRun;

/// What packing a part of L1 comes to.
struct Packed {
    /// The part.
    range: KeyRange,
    /// Runs that have some of it.
    runs: usize,
    /// Segments that it frees.
    freed: usize,
    /// Segments that it writes, by the bytes that are read.
    written: usize,
}

/// A part of the `runs` of L1 that begins at `behind` or later. It writes at most `most` segments of `segment_bytes`,
/// and at most seven eighths of those that it frees.
#[must_use]
pub(super) fn packed_l1(
    runs: &[BoundedRun<'_>],
    segment_bytes: u64,
    most: usize,
    behind: &[u8],
) -> Option<KeyRange> {
    if segment_bytes == 0 || runs.len() < 2 {
        return None;
    }
    let bounded = || runs.iter().flat_map(|run| run.range(0..run.len()));
    let starts = bounded().map(|bounded| bounded.range.from.as_slice().max(behind));
    let starts: BTreeSet<&[u8]> = starts.collect();
    let ends = bounded().filter_map(|bounded| bounded.range.to.as_deref());
    let ends: BTreeSet<&[u8]> = ends.collect();
    let best_from = |from: &[u8]| {
        let ends = ends.iter().filter(|end| **end > from);
        let ends = ends.map(|end| Some(end.to_vec())).chain([None]);
        let parts = ends.map(|to| Packed::of(runs, segment_bytes, KeyRange::new(from, to)));
        let fitting = parts.take_while(|part| part.written <= most);
        let winning = fitting.filter(Packed::wins);
        winning.max_by_key(|part| (part.freed - part.written, Reverse(part.written)))
    };
    let best = starts.into_iter().find_map(best_from)?;
    Some(best.range)
}

impl Packed {
    fn of(runs: &[BoundedRun<'_>], segment_bytes: u64, range: KeyRange) -> Self {
        let (mut holding, mut freed, mut live) = (0, 0, 0);
        for run in runs {
            let places = run.overlapping(&range);
            holding += usize::from(!places.is_empty());
            freed += run.freed_without(&range);
            live += places.map(|place| run.live(place)).sum::<u64>();
        }
        Self {
            range,
            runs: holding,
            freed,
            written: usize::try_from(live.div_ceil(segment_bytes)).unwrap_or(usize::MAX),
        }
    }

    fn wins(&self) -> bool {
        self.runs > 1 && self.freed > 0 && self.written * 8 <= self.freed * 7
    }
}
