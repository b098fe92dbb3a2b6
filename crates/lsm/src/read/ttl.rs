//! What has expired for a scan, by the region's time and by the clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argosy_base::{Lsn, Moment};

use crate::names::Entry;

/// Makes a moment that the clock has reached part of the history: the LSN of the record that tells it, if
/// there was room for one.
pub(crate) type TellTime = Box<dyn Fn(Moment) -> Option<Lsn> + Send + Sync>;

/// By which time a scan goes.
#[derive(Default)]
pub struct ScanTime {
    /// The region's: what has expired by it is not shown.
    pub now: Moment,
    /// What the clock shows, if it is further.
    pub wall: Moment,
    /// Something was met that has expired by the clock.
    pub overdue: AtomicBool,
    /// How the region's time goes on when that is met: then it is not shown. Without, it is.
    pub(crate) tell: Option<TellTime>,
    /// The highest LSN that told the time.
    pub(crate) told: AtomicU64,
}

impl ScanTime {
    /// What `entry` is by this time, without its expiry.
    #[inline]
    pub(crate) fn shown<'e>(&self, entry: Entry<'e>) -> Entry<'e> {
        match self.hides(&entry) {
            true => Entry::Tombstone,
            false => entry.lasting(),
        }
    }

    /// Whether `entry` is not there any more.
    #[inline]
    pub(crate) fn hides(&self, entry: &Entry<'_>) -> bool {
        entry.expiry().is_some_and(|expiry| self.is_past(expiry))
    }

    /// Whether what expires then is not there any more.
    pub(crate) fn is_past(&self, expiry: Moment) -> bool {
        if expiry <= self.now {
            return true;
        }
        if expiry > self.wall {
            return false;
        }
        self.overdue.store(true, Ordering::Relaxed);
        let told = self.tell.as_ref().and_then(|tell| tell(expiry));
        if let Some(lsn) = told {
            self.told.fetch_max(lsn.0, Ordering::AcqRel);
        }
        told.is_some()
    }
}
