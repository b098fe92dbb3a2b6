//! The state of a serving engine that others read all the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argosy_base::Lsn;

/// State of a serving engine that others read without calling it. The engine alone writes it.
///
/// A write has raised the last LSN before it returns, and [`commit`](crate::Store::commit) the commit LSN. An engine
/// without an observer has raised both.
#[derive(Debug, Default)]
pub struct Marks {
    last: AtomicU64,
    committed: AtomicU64,
    full: AtomicBool,
}

impl Marks {
    /// The highest LSN appended. What it covers is visible to whoever has read it here.
    #[inline]
    #[must_use]
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.last.load(Ordering::Acquire))
    }

    /// The commit LSN; never above the last.
    #[inline]
    #[must_use]
    pub fn committed_lsn(&self) -> Lsn {
        Lsn(self.committed.load(Ordering::Acquire))
    }

    /// Whether writes of new data are refused because a device of the region is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Sets the highest LSN appended.
    #[inline]
    pub fn set_last(&self, lsn: Lsn) {
        self.last.store(lsn.0, Ordering::Release);
    }

    /// Sets the commit LSN, where nobody else raises it.
    #[inline]
    pub fn set_committed(&self, lsn: Lsn) {
        self.committed.store(lsn.0, Ordering::Release);
    }

    /// Raises the commit LSN to `lsn`. Returns what it was.
    pub fn raise_committed(&self, lsn: Lsn) -> Lsn {
        Lsn(self.committed.fetch_max(lsn.0, Ordering::AcqRel))
    }

    /// Sets whether a device of the region is full.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Release);
    }
}
