//! A region's time, and by which records it is told: see the module above. Readers take no lock.

use argosy_base::{Lsn, Moment};

use super::sync::{AtomicU64, Ordering};

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Told {
    /// The region's time. Stored (release) behind `lsn`, so that whoever loads it (acquire) and then
    /// `lsn` waits for enough.
    now: AtomicU64,
    /// The LSN of the record that tells it.
    lsn: AtomicU64,
    /// As far as it is known to be committed.
    committed: AtomicU64,
}

impl Told {
    /// The time that edits tell, and that the logs do, in a record with this LSN.
    pub(crate) fn new(of_edits: Moment, (of_logs, lsn): (Moment, Lsn)) -> Self {
        Self {
            now: AtomicU64::new(of_edits.max(of_logs).0),
            lsn: AtomicU64::new(if of_logs > of_edits { lsn.0 } else { 0 }),
            committed: AtomicU64::new(of_edits.0),
        }
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
        self.lsn.store(lsn.0, Ordering::Release);
        self.now.store(now.0, Ordering::Release);
    }

    /// The time, as far as it is committed if everything up to `committed` is.
    pub(crate) fn as_of(&self, committed: Lsn) -> Moment {
        let (now, lsn) = self.now_and_lsn();
        if lsn <= committed {
            self.committed.fetch_max(now.0, Ordering::AcqRel);
        }
        Moment(self.committed.load(Ordering::Acquire))
    }
}
