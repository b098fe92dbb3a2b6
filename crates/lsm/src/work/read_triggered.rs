//! Read-triggered merges, which are due once reads have spent enough: of L1, and of what points into the medium log.
//!
//! Each sorted run of L1 costs a get a look at a filter, and a scan a leaf. To merge the runs costs
//! bytes, which are read, written and shipped. Merged early, they are merged often; merged late, reads
//! do more. So reads trigger merges: what they spent on L1's runs, but one, is counted in bytes that could have
//! been merged instead, and once that is what the merge will cost, it is done
//! ([`score`](crate::compaction::pick::score)). As with skis that are rented until the rent has come
//! to their price, that costs at most twice what it would for someone who knows the future. Where
//! nothing reads, [`l1_runs`](crate::LevelSettings::l1_runs) run up; and up to a third more as long as L2 holds
//! more than four times what L1 does, since a merge writes all of L2 again. (Runs are short where memtables are
//! frozen for the bytes of their logs.) L1 is merged in parts, and each part makes the runs shorter. So that a merge
//! does not stop halfway for that, the number is not raised again before L1 has fewer than `l1_runs`.
//!
//! A value in the medium log costs a second look, in the cache or, at 32 times its price, at the device. Those looks
//! trigger the merges that put all values in place that are in the medium log then, in the same way.

use std::sync::atomic::Ordering;

use argosy_base::SegmentNumber;

use crate::compaction::bounded::Levels;
use crate::compaction::pick::l1_runs_worth_merging;
use crate::edit::RunId;
use crate::read::FilterCounts;
use crate::settings::Settings;
use crate::version::Version;

/// Bytes that are merged in the time of one look at a filter that is not in the processor's cache.
const LOOK_BYTES: u64 = 32;
/// Looks at filters in the time that a leaf takes which holds nothing of use. One that has to come from the
/// device counts with its bytes, too.
const LEAF_LOOKS: u64 = 16;

/// Bytes that are merged in the time of a look at a medium value that is in the cache.
const VALUE_BYTES: u64 = 256;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadTriggered {
    /// Looks until now, at filters of all levels.
    looks: u64,
    /// Bytes that reads have spent since L1 was last merged.
    bytes: u64,
    /// What a merge costs, while L1 rests because reads have not spent enough.
    price: Option<u64>,
    /// It is triggered, up to the run of this number.
    upto: Option<RunId>,
    /// L1 had as many runs as start a merge, and has not had fewer than `l1_runs` since.
    is_merging: bool,
    values: SpentOnValues,
}

/// What reads have spent on values that are not in place.
#[derive(Debug, Default)]
struct SpentOnValues {
    /// Looks until now.
    looks: u64,
    /// Bytes that reads have spent since the last time.
    bytes: u64,
    /// It is triggered, up to the medium segment of this number.
    upto: Option<SegmentNumber>,
}

impl SpentOnValues {
    /// Takes note of all `looks` until now; `ends` are the first and the last segment of the medium log,
    /// and putting its values in place costs `price`. Returns whether that is triggered from now on.
    fn note(
        &mut self,
        looks: u64,
        ends: Option<(SegmentNumber, SegmentNumber)>,
        price: impl Fn() -> u64,
    ) -> bool {
        let new = looks.saturating_sub(self.looks);
        self.looks = looks;
        let Some((first, last)) = ends else {
            (self.upto, self.bytes) = (None, 0);
            return false;
        };
        if self.upto.is_some_and(|upto| first > upto) {
            (self.upto, self.bytes) = (None, 0);
        }
        if self.upto.is_some() || new == 0 {
            return false;
        }
        self.bytes = self.bytes.saturating_add(new.saturating_mul(VALUE_BYTES));
        let due = self.bytes >= price();
        self.upto = due.then_some(last);
        due
    }
}

impl ReadTriggered {
    /// Whether L1 is to be merged.
    pub(crate) const fn is_due(&self) -> bool {
        self.upto.is_some()
    }

    /// How many sorted runs L1 must have for a merge to start or go on.
    pub(crate) fn runs_due(&mut self, shape: &Levels<'_>, settings: &Settings) -> usize {
        let count = shape.levels.first().map_or(0, Vec::len);
        let worth = l1_runs_worth_merging(shape).unwrap_or(0);
        let worth = usize::try_from(worth).unwrap_or(usize::MAX);
        let awaited = worth.clamp(
            settings.levels.l1_runs,
            settings.levels.l1_runs_awaited_max(),
        );
        self.runs_due_of(count, settings.levels.l1_runs, awaited)
    }

    /// The same where L1 has `count` runs: `awaited` for a merge to start, `least` for it to go on.
    fn runs_due_of(&mut self, count: usize, least: usize, awaited: usize) -> usize {
        self.is_merging &= count >= least;
        self.is_merging |= count >= awaited;
        match self.is_merging {
            true => least,
            false => awaited,
        }
    }

    /// Whether parts of L1 are being merged because it has many runs.
    pub(crate) const fn is_merging(&self) -> bool {
        self.is_merging
    }

    /// Whether values are to be put in place.
    pub(crate) const fn values_are_due(&self) -> bool {
        self.values.upto.is_some()
    }

    /// No level asks for a compaction; one of L1 would cost `price`, if it has several runs.
    pub(crate) const fn rests(&mut self, price: Option<u64>) {
        self.price = price;
    }

    /// Looks what reads have spent, as `filters` counted it, of the levels of `head`. Returns whether a merge that was
    /// not due is due from now on.
    pub(crate) fn look(
        &mut self,
        filters: &FilterCounts,
        head: &Version,
        segment_bytes: usize,
    ) -> bool {
        let l1 = head.level(1).map_or(&[][..], |level| &level.runs);
        let ends = l1.first().zip(l1.last());
        let ends = ends.map(|(oldest, newest)| (oldest.id, newest.id));
        let all = head.runs().count();
        let runs_due = self.note(filters.looks(), ends, l1.len(), all);
        let medium = head.medium_log();
        let first = medium.keys().next().copied();
        let last = medium.keys().next_back().copied();
        let looks = filters.followed.load(Ordering::Relaxed);
        let values_due = self.values.note(looks, first.zip(last), || {
            let levels = head.levels().iter().map(|level| level.bytes());
            let segments = medium.len() * segment_bytes;
            levels.sum::<u64>() + segments as u64
        });
        runs_due || values_due
    }

    /// Takes note of all `looks` until now, while L1 has `count` runs of `all`; `ends` are the oldest
    /// and the newest of them. Returns whether L1 rests and should not.
    fn note(&mut self, looks: u64, ends: Option<(RunId, RunId)>, count: usize, all: usize) -> bool {
        let new = looks.saturating_sub(self.looks);
        self.looks = looks;
        let Some((oldest, newest)) = ends.filter(|_| count > 1) else {
            (self.upto, self.bytes) = (None, 0);
            return false;
        };
        if let Some(upto) = self.upto {
            // Those that came meanwhile have to be triggered anew.
            if oldest > upto {
                (self.upto, self.bytes) = (None, 0);
            }
            return false;
        }
        let in_l1 = new.saturating_mul(count as u64 - 1) / all as u64;
        self.bytes = self.bytes.saturating_add(in_l1.saturating_mul(LOOK_BYTES));
        let due = self.price.is_some_and(|price| self.bytes >= price);
        if due {
            self.upto = Some(newest);
            self.price = None;
        }
        due
    }
}

impl FilterCounts {
    /// A number that rises with everything that may trigger a merge.
    pub(crate) fn all(&self) -> u64 {
        self.looks() + self.followed.load(Ordering::Relaxed)
    }

    /// Everything that reads did in runs which did not have what they sought.
    fn looks(&self) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        let leaves = self.misled.load(Relaxed) + self.entered.load(Relaxed);
        let fetched = self.fetched_bytes.load(Relaxed) / LOOK_BYTES;
        self.spared.load(Relaxed) + leaves * LEAF_LOOKS + fetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_trigger_the_merge_that_spares_them() {
        let ends = |oldest, newest| Some((RunId(oldest), RunId(newest)));
        let mut reads = ReadTriggered::default();
        assert!(
            !reads.note(1000, ends(4, 4), 1, 3),
            "one run is as few as can be"
        );
        assert_eq!(reads.bytes, 0);
        reads.rests(Some(20_000));
        assert!(!reads.note(1400, ends(4, 6), 3, 4));
        assert_eq!(reads.bytes, 400 * 2 / 4 * LOOK_BYTES);
        assert!(reads.note(2400, ends(4, 6), 3, 4), "they have spent enough");
        assert!(!reads.note(9000, ends(4, 7), 4, 5) && reads.is_due());
        assert!(
            !reads.note(9000, ends(6, 7), 2, 4) && reads.is_due(),
            "a run is left"
        );
        assert!(
            !reads.note(9000, ends(7, 7), 1, 3) && !reads.is_due(),
            "it is merged"
        );
        assert_eq!(reads.bytes, 0);
    }

    /// Each merged part makes the runs shorter, which raises the number that is awaited.
    #[test]
    fn a_merge_that_has_begun_goes_on_until_the_runs_have_become_few() {
        let mut reads = ReadTriggered::default();
        let mut due = |count, awaited| reads.runs_due_of(count, 12, awaited);
        assert_eq!([due(12, 14), due(13, 14)], [14, 14]);
        assert_eq!([due(14, 14), due(14, 16), due(13, 16)], [12, 12, 12]);
        assert_eq!([due(1, 12), due(12, 16)], [12, 16]);
    }

    #[test]
    fn looks_at_values_trigger_putting_them_in_place() {
        let ends = |first, last| Some((SegmentNumber(first), SegmentNumber(last)));
        let mut reads = SpentOnValues::default();
        let price = || 100 * VALUE_BYTES;
        assert!(
            !reads.note(500, None, price),
            "nothing is in the medium log"
        );
        assert!(!reads.note(560, ends(3, 7), price));
        assert!(reads.note(600, ends(3, 8), price), "that was all");
        assert!(!reads.note(900, ends(3, 9), price) && reads.upto.is_some());
        assert!(!reads.note(900, ends(8, 12), price) && reads.upto.is_some());
        assert!(!reads.note(950, ends(9, 12), price) && reads.upto.is_none());
        assert!(reads.note(1001, ends(9, 12), price), "it begins anew");
    }
}
