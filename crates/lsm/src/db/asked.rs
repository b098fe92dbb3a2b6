//! Everything in one level, because somebody asked for it: the memtables are flushed although they are
//! not full, and levels are merged although they are not, as long as that may drop anything
//! ([`Policy::reclaim`](crate::compaction::pick::Policy::reclaim)). What is written meanwhile is merged,
//! too, as far as it has left the memtables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_base::Lsn;

use super::Lsm;
use super::background::Background;
use crate::read::{ReadView, ScanTime};
use crate::snapshot::LsmSnapshot;
use crate::version::Version;

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

impl Lsm {
    /// The version that is current, once everything up to `lsn` is in its levels. `None`: it is not; what has
    /// to be flushed for it is on its way.
    pub fn version_with(&self, lsn: Lsn) -> Option<Arc<Version>> {
        let writer = self.lock();
        // What is shown changes under the lock only.
        let view = self.view.load_full();
        if view.levels_lsn >= lsn {
            return Some(Arc::clone(&view.version));
        }
        let waits = writer.frozen_up_to().is_some_and(|last| last >= lsn);
        if !waits && !writer.holds_entries() {
            // What is above the levels bound nothing.
            return Some(Arc::clone(&view.version));
        }
        drop(writer);
        if !waits {
            self.freeze_now();
        }
        None
    }

    /// A view of what `version`, a pinned one, holds in its levels, at the time that edits tell.
    #[must_use]
    pub fn snapshot_of(&self, version: &Arc<Version>) -> LsmSnapshot {
        let lsn = Lsn(version.replay_from().0.saturating_sub(1));
        let view = ReadView {
            memtables: Vec::new(),
            version: Arc::clone(version),
            levels_lsn: lsn,
        };
        let time = ScanTime {
            now: version.time(),
            ..ScanTime::default()
        };
        LsmSnapshot::new(Arc::new(view), lsn, Arc::clone(&self.reading), time)
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
