//! A full compaction brings everything into one level, when somebody asks for it: the memtables are flushed although
//! they are not full, and levels are merged although they are not, as long as that may drop anything
//! ([`Policy::reclaim`](crate::compaction::policy::Policy::reclaim)). What is written meanwhile is merged, too, as
//! far as it has left the memtables.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Lsm;
use crate::work::jobs::{Jobs, Wish};

/// How many full compactions were requested, and up to which request they are done.
#[derive(Debug, Default)]
pub(super) struct FullCompactionRequests {
    requested: AtomicU64,
    done: AtomicU64,
}

/// What the background has done about it.
#[derive(Debug, Default)]
pub(super) struct FullCompaction {
    /// The last request whose pairs have left the active memtable.
    flushed: u64,
}

impl FullCompactionRequests {
    /// Requests one. Returns the number of this request: those of an engine rise.
    pub(super) fn request(&self) -> u64 {
        self.requested.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether the request of this number is done.
    pub(super) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Whether any request is not done.
    pub(super) fn is_pending(&self) -> bool {
        self.done.load(Ordering::Acquire) < self.requested.load(Ordering::Acquire)
    }
}

impl FullCompaction {
    /// Begins, or ends, the full compaction that was requested. `committing`: an edit is on its way. Returns whether
    /// it did.
    pub(super) fn step(&mut self, lsm: &Lsm, jobs: &mut Jobs, committing: bool) -> bool {
        let requested = lsm.full_compaction.requested.load(Ordering::Acquire);
        if self.flushed == requested
            && lsm.full_compaction.done.load(Ordering::Acquire) == requested
        {
            return false;
        }
        jobs.wish(Wish::FullCompaction, true);
        if self.flushed < requested {
            // What was written before the request has to leave the active memtable.
            let frozen = lsm.freeze_now() || !lsm.lock().holds_entries();
            if frozen {
                self.flushed = requested;
            }
            return frozen;
        }
        let done = jobs.is_idle() && lsm.lock().frozen_count() == 0 && !committing;
        if done {
            jobs.wish(Wish::FullCompaction, false);
            lsm.full_compaction.done.store(requested, Ordering::Release);
        }
        done
    }
}
