//! What reads have paid towards a merge of L1.
//!
//! Each sorted run of L1 costs a get a look at a filter, and a scan a leaf. To merge the runs costs
//! bytes, which are read, written and shipped. Merged early, they are merged often; merged late, reads
//! pay. So reads *do* pay: what they spent on L1's runs, but one, is counted in bytes that could have
//! been merged instead, and once that is what the merge will cost, it is done
//! ([`score`](crate::compaction::pick::score)). As with skis that are rented until the rent has come
//! to their price, that costs at most twice what it would for someone who knows the future. Where
//! nothing reads, [`Settings::l1_runs`](crate::Settings::l1_runs) run up.

use super::Lsm;
use super::background::Background;
use crate::edit::RunId;
use crate::read::FilterCounts;

/// Bytes that are merged in the time of one look at a filter.
const LOOK_BYTES: u64 = 16;
/// Looks at filters in the time that a leaf takes which holds nothing of use. One that has to come from the
/// device pays its bytes, too.
const LEAF_LOOKS: u64 = 32;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Paid {
    /// Looks until now, at filters of all levels.
    looks: u64,
    /// Bytes paid since L1 was last merged.
    bytes: u64,
    /// What a merge costs, while L1 rests for want of payment.
    price: Option<u64>,
    /// It is paid for, up to the run of this number.
    upto: Option<RunId>,
}

impl Paid {
    /// Whether L1 is to be merged.
    pub(super) const fn is_due(&self) -> bool {
        self.upto.is_some()
    }

    /// No level asks for a compaction; one of L1 would cost `price`, if it has several runs.
    pub(super) const fn rests(&mut self, price: Option<u64>) {
        self.price = price;
    }

    /// Takes note of all `looks` until now, while L1 has `count` runs of `all`; `ends` are the oldest
    /// and the newest of them. Returns whether L1 rests and should not.
    fn note(
        &mut self,
        looks: u64,
        ends: Option<(RunId, RunId)>,
        (count, all): (usize, usize),
    ) -> bool {
        let new = looks.saturating_sub(self.looks);
        self.looks = looks;
        let Some((oldest, newest)) = ends.filter(|_| count > 1) else {
            (self.upto, self.bytes) = (None, 0);
            return false;
        };
        if let Some(upto) = self.upto {
            // Those that came meanwhile have to be paid for.
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
    /// Everything that reads did in runs which did not have what they sought.
    fn looks(&self) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        let leaves = self.misled.load(Relaxed) + self.entered.load(Relaxed);
        let fetched = self.fetched_bytes.load(Relaxed) / LOOK_BYTES;
        self.spared.load(Relaxed) + leaves * LEAF_LOOKS + fetched
    }
}

impl Background {
    /// Looks what reads have paid.
    pub(super) fn look_for_payment(&mut self, lsm: &Lsm) {
        let head = self.storage.head();
        let l1 = head.level(1).map_or(&[][..], |level| &level.runs);
        let ends = l1.first().zip(l1.last());
        let ends = ends.map(|(oldest, newest)| (oldest.id, newest.id));
        let counts = (l1.len(), head.runs().count());
        if self
            .jobs
            .paid
            .note(lsm.reading.filters.looks(), ends, counts)
        {
            self.jobs.at_rest = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_pay_for_the_runs_that_a_merge_spares() {
        let ends = |oldest, newest| Some((RunId(oldest), RunId(newest)));
        let mut paid = Paid::default();
        assert!(
            !paid.note(1000, ends(4, 4), (1, 3)),
            "one run is as few as can be"
        );
        assert_eq!(paid.bytes, 0);
        paid.rests(Some(10_000));
        assert!(!paid.note(1400, ends(4, 6), (3, 4)));
        assert_eq!(paid.bytes, 400 * 2 / 4 * LOOK_BYTES);
        assert!(paid.note(2400, ends(4, 6), (3, 4)), "they have paid");
        assert!(!paid.note(9000, ends(4, 7), (4, 5)) && paid.is_due());
        assert!(
            !paid.note(9000, ends(6, 7), (2, 4)) && paid.is_due(),
            "a run is left"
        );
        assert!(
            !paid.note(9000, ends(7, 7), (1, 3)) && !paid.is_due(),
            "it is merged"
        );
        assert_eq!(paid.bytes, 0);
    }
}
