//! Everything in one level, because somebody asked for it: the memtables are flushed although they are
//! not full, and levels are merged although they are not, as long as that may drop anything
//! ([`Policy::reclaim`](crate::compaction::policy::Policy::reclaim)). What is written meanwhile is merged,
//! too, as far as it has left the memtables.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Lsm;
use crate::work::jobs::{Jobs, Wish};

/// How often it was asked for, and up to which time it is done.
#[derive(Debug, Default)]
pub(super) struct Asked {
    asked: AtomicU64,
    done: AtomicU64,
}

/// What the background has done about it.
#[derive(Debug, Default)]
pub(super) struct FullCompaction {
    /// The last request whose pairs have left the active memtable.
    flushed: u64,
}

impl Asked {
    /// Asks for it. Returns the number of this request: those of an engine rise.
    pub(super) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether the request of this number is done.
    pub(super) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Whether any request is not done.
    pub(super) fn is_pending(&self) -> bool {
        self.done.load(Ordering::Acquire) < self.asked.load(Ordering::Acquire)
    }
}

impl FullCompaction {
    /// Begins, or ends, what was asked for. `committing`: an edit is on its way. Returns whether it did.
    pub(super) fn step(&mut self, lsm: &Lsm, jobs: &mut Jobs, committing: bool) -> bool {
        let asked = lsm.asked.asked.load(Ordering::Acquire);
        if self.flushed == asked && lsm.asked.done.load(Ordering::Acquire) == asked {
            return false;
        }
        jobs.wish(Wish::OneLevel, true);
        if self.flushed < asked {
            // What was written before it was asked for has to leave the active memtable.
            let frozen = lsm.freeze_now() || !lsm.lock().holds_entries();
            if frozen {
                self.flushed = asked;
            }
            return frozen;
        }
        let done = jobs.is_idle() && lsm.lock().frozen_count() == 0 && !committing;
        if done {
            jobs.wish(Wish::OneLevel, false);
            lsm.asked.done.store(asked, Ordering::Release);
        }
        done
    }
}
