//! A region's time, and by which records it is told: see the module above. Readers of the time take no lock;
//! those of the committed time take one when a record was committed since somebody asked last.

use std::collections::VecDeque;

use argosy_base::{Lsn, Moment};

use super::sync::{AtomicU64, Mutex, Ordering, PoisonError};

/// A region's time, and the record that tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToldTime {
    /// The time.
    pub(crate) time: Moment,
    /// The LSN of the record.
    pub(crate) lsn: Lsn,
}

impl ToldTime {
    /// No record tells any.
    pub(crate) const NONE: Self = Self {
        time: Moment(0),
        lsn: Lsn(0),
    };
}

/// See the module documentation.
pub(crate) struct Told {
    /// The region's time. Stored (release) behind `lsn`, so that whoever loads it (acquire) and then
    /// `lsn` waits for enough.
    now: AtomicU64,
    /// The LSN of the record that tells it.
    lsn: AtomicU64,
    /// As far as it is known to be committed.
    committed: AtomicU64,
    /// What records tell that are not known to be committed, and their LSNs. Both rise. One record is written a
    /// millisecond at most, and the log's windows have room for all of them.
    pending: Mutex<VecDeque<(Lsn, Moment)>>,
    /// The LSN of the first of these; without any, the highest that there is. Stored under the lock.
    first: AtomicU64,
}

/// No record waits.
const NONE: u64 = u64::MAX;

impl Told {
    /// The time that edits tell, and the region's.
    pub(crate) fn new(of_edits: Moment, told_time: ToldTime) -> Self {
        let ToldTime { time, lsn } = told_time;
        let told = Self {
            now: AtomicU64::new(of_edits.0),
            lsn: AtomicU64::new(lsn.0),
            committed: AtomicU64::new(of_edits.0),
            pending: Mutex::new(VecDeque::new()),
            first: AtomicU64::new(NONE),
        };
        if time > of_edits {
            told.set(time, lsn);
        }
        told
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::Acquire))
    }

    /// The LSN by which at least what [`now`](Self::now) gave before is told.
    #[inline]
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.lsn.load(Ordering::Acquire))
    }

    /// The time, and an LSN by which it is told.
    #[inline]
    pub(crate) fn now_and_lsn(&self) -> (Moment, Lsn) {
        let now = self.now();
        (now, self.lsn())
    }

    /// The record with this LSN tells this time, which is higher. By one thread at a time.
    pub(crate) fn set(&self, now: Moment, lsn: Lsn) {
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.push_back((lsn, now));
            self.first.store(pending[0].0.0, Ordering::Release);
        }
        self.lsn.store(lsn.0, Ordering::Release);
        self.now.store(now.0, Ordering::Release);
    }

    /// The time, as far as it is committed if everything up to `committed` is: whatever was told by a record up
    /// to there, even if later ones have told more since.
    pub(crate) fn as_of(&self, committed: Lsn) -> Moment {
        if self.first.load(Ordering::Acquire) <= committed.0 {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some((_, now)) = pending.pop_front_if(|(lsn, _)| *lsn <= committed) {
                self.committed.fetch_max(now.0, Ordering::AcqRel);
            }
            let first = pending.front().map_or(NONE, |(lsn, _)| lsn.0);
            self.first.store(first, Ordering::Release);
        }
        Moment(self.committed.load(Ordering::Acquire))
    }
}

impl Default for Told {
    fn default() -> Self {
        Self::new(Moment(0), ToldTime::NONE)
    }
}
