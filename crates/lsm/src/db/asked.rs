//! Everything in one level, because somebody asked for it: the memtables are flushed although they are
//! not full, and levels are merged although they are not, as long as that may drop anything
//! ([`Policy::reclaim`](crate::compaction::pick::Policy::reclaim)). What is written meanwhile is merged,
//! too, as far as it has left the memtables.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Lsm;
use super::background::Background;

/// What was asked for and is not done.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The active memtable is to be frozen.
    freeze: AtomicBool,
    /// Levels are to be merged.
    merge: AtomicBool,
}

impl Lsm {
    /// Has the next steps merge everything into one level.
    pub fn compact_now(&self) {
        self.asked.freeze.store(true, Ordering::Release);
        self.asked.merge.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether what [`compact_now`](Self::compact_now) asked for is not done yet.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.asked.merge.load(Ordering::Acquire)
    }
}

impl Background {
    /// Begins, or ends, what was asked for. Returns whether it did.
    pub(super) fn merge_as_asked(&mut self, lsm: &Lsm) -> bool {
        let asked = &lsm.asked;
        if !asked.merge.load(Ordering::Acquire) {
            return false;
        }
        if asked.freeze.load(Ordering::Acquire) {
            // Where nothing waits and nothing was frozen, there was nothing to be frozen.
            let frozen = lsm.freeze_now() || lsm.lock().frozen_count() == 0;
            if frozen {
                asked.freeze.store(false, Ordering::Release);
            }
            self.jobs.merge_all(true);
            return frozen;
        }
        self.jobs.merge_all(true);
        let done = self.jobs.is_idle()
            && lsm.lock().frozen_count() == 0
            && !self.is_committing(|_| true)
            && !asked.freeze.load(Ordering::Acquire);
        if done {
            self.jobs.merge_all(false);
            asked.merge.store(false, Ordering::Release);
        }
        done
    }
}
