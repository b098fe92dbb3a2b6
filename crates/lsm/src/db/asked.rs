//! Everything in one level, because somebody asked for it: the memtables are flushed although they are
//! not full, and levels are merged although they are not, as long as that may drop anything
//! ([`Policy::reclaim`](crate::compaction::policy::Policy::reclaim)). What is written meanwhile is merged,
//! too, as far as it has left the memtables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{EditSeq, Lsn};

use super::Lsm;
use crate::read::snapshot::LsmSnapshot;
use crate::read::{ReadView, ScanTime};
use crate::version::Version;
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

impl Lsm {
    /// The version that readers see now.
    #[must_use]
    pub fn version(&self) -> Arc<Version> {
        Arc::clone(&self.view.load().version)
    }

    /// Has the next steps merge everything into one level. Returns the number of this request: those of an
    /// engine rise.
    pub fn compact_now(&self) -> u64 {
        let before = self.asked.asked.fetch_add(1, Ordering::AcqRel);
        self.wake();
        before + 1
    }

    /// The edit with which the [request](Self::compact_now) of this number was done, or a later one; `None`
    /// where it is not done yet.
    #[must_use]
    pub fn compacted(&self, number: u64) -> Option<EditSeq> {
        let done = self.asked.done.load(Ordering::Acquire) >= number;
        done.then(|| self.edit())
    }

    /// The last edit that may be relied on: every member has it, and none can lose it unseen. Before that its log
    /// segments and numbers are not used, and nobody is told that what it alone says is durable.
    pub(super) fn usable_edits(&self) -> EditSeq {
        let everywhere = self.edits_everywhere.load(Ordering::Acquire);
        let witnessed = self.edits_witnessed.load(Ordering::Acquire);
        EditSeq(everywhere.min(witnessed))
    }

    /// Whether every member is known to have applied `edit`, and all before.
    #[must_use]
    pub fn is_everywhere(&self, edit: EditSeq) -> bool {
        edit.0 <= self.edits_everywhere.load(Ordering::Acquire)
    }

    /// Whether what [`compact_now`](Self::compact_now) asked for is not done yet.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.asked.done.load(Ordering::Acquire) < self.asked.asked.load(Ordering::Acquire)
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
            expired_lsn: Lsn(0),
            ingests: 0,
        };
        let time = ScanTime {
            now: version.time(),
            ..ScanTime::default()
        };
        LsmSnapshot::new(Arc::new(view), lsn, Arc::clone(&self.reading), time)
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
