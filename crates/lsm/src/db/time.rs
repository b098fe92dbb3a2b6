//! The region's time, by which pairs expire.
//!
//! Clocks of servers differ, are set back, and stop while a server is down. What a client was told must
//! not depend on that: a pair that was found to be gone does not come back. So the time by which
//! anything was found to be gone is part of the history:
//!
//! 1. The *region's time* is the highest moment that a record of the recovery log tells
//!    ([`RecordKind::Time`](argosy_log::RecordKind)), or an edit ([`EditNumbers::time`](crate::edit::EditNumbers)). It
//!    begins at 0, when nothing expires yet.
//! 2. Whoever comes upon a pair whose expiry the region's time has not reached, but the clock has,
//!    appends a record with what the clock shows, and only then takes the pair for gone. The answer
//!    waits until that record is committed, like any other that reveals something (I5). So the clock is
//!    asked only where there is something to expire, and at most one record is written a millisecond.
//! 3. Where there is no room for the record the time stands still: the pair is there a little longer.
//! 4. Merges make a tombstone of what has expired by the *committed* time. An edit that ends the need for
//!    log records, and one that was made by a time, tells the time.
//!
//! Whoever takes over has all that was committed, and with it the time: a clock that is behind makes
//! time stand still until it has caught up, and never brings a pair back. A pair may be seen later than
//! its expiry; never earlier than some primary's clock had reached it.
//!
//! Spans are counted from the higher of clock and region's time. Pairs in memtables and levels keep their
//! moment; that they have expired changes nothing but how they are read.

mod sync;
mod told;

use std::sync::{Arc, OnceLock};

use argosy_base::{Clock, Lsn, Moment};

use crate::read::ScanTime;
use told::Told;
pub(super) use told::ToldTime;

/// See the module documentation.
#[derive(Default)]
pub(super) struct RegionTime {
    clock: OnceLock<Arc<dyn Clock>>,
    told: Told,
}

impl RegionTime {
    /// The time that edits tell, and the region's.
    pub(super) fn new(of_edits: Moment, told: ToldTime) -> Self {
        Self {
            clock: OnceLock::new(),
            told: Told::new(of_edits, told),
        }
    }

    /// Sets the clock, once.
    pub(super) fn set_clock(&self, clock: Arc<dyn Clock>) {
        let set = self.clock.set(clock);
        assert!(set.is_ok(), "a region has one clock");
    }

    /// What the clock shows.
    pub(super) fn wall(&self) -> Moment {
        self.clock.get().map_or(Moment(0), |clock| clock.wall())
    }

    /// The region's time.
    #[inline]
    pub(super) fn now(&self) -> Moment {
        self.told.now()
    }

    /// What the clock shows, or the region's time if that is higher.
    pub(super) fn clock_or_time(&self) -> Moment {
        self.told.now().max(self.wall())
    }

    /// The region's time, as far as it is committed if everything up to `committed` is.
    pub(super) fn as_of(&self, committed: Lsn) -> Moment {
        self.told.as_of(committed)
    }

    /// The LSN of the record that tells at least what [`now`](Self::now) gave before.
    #[inline]
    pub(super) fn lsn(&self) -> Lsn {
        self.told.lsn()
    }

    /// The region's time, and an LSN by which it is told. What is looked up afterwards, and expired by this
    /// time, was gone when it was looked up.
    #[inline]
    pub(super) fn now_and_lsn(&self) -> (Moment, Lsn) {
        self.told.now_and_lsn()
    }

    /// The record with this LSN tells this time, which is higher. Under the writer lock.
    pub(super) fn set(&self, now: Moment, lsn: Lsn) {
        self.told.set(now, lsn);
    }

    /// The time of a scan that sees everything. To be asked for before what is seen.
    pub(super) fn of_all(&self) -> ScanTime {
        let now = self.told.now();
        ScanTime {
            now,
            wall: self.wall(),
            ..ScanTime::default()
        }
    }

    /// The time of a scan that sees what `committed` covers.
    pub(super) fn of_scan(&self, committed: Lsn) -> ScanTime {
        let now = self.told.as_of(committed);
        let wall = match now {
            Moment(0) if self.told.now() == Moment(0) => now,
            _ => self.wall(),
        };
        ScanTime {
            now,
            wall,
            ..ScanTime::default()
        }
    }
}

/// The region's time at an opening: the later one of what edits and the log tell. The record that told the time of the
/// edits may have left the log. Then its LSN is not known, and `last`, the highest LSN that was found, stands for it.
pub(super) fn told_at_opening(of_edits: Moment, of_logs: ToldTime, last: Lsn) -> ToldTime {
    match of_logs.time >= of_edits {
        true => of_logs,
        false => ToldTime {
            time: of_edits,
            lsn: last,
        },
    }
}
