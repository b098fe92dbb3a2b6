//! The region's time, by which pairs expire.
//!
//! Clocks of servers differ, are set back, and stop while a server is down. What a client was told must
//! not depend on that: a pair that was found to be gone does not come back. So the time by which
//! anything was found to be gone is part of the history:
//!
//! 1. The *region's time* is the highest moment that a record of the recovery log tells
//!    ([`RecordKind::Time`](argosy_log::RecordKind)), or an edit ([`Edit::time`](crate::edit::Edit)). It
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

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use arc_swap::Guard;
use argosy_base::{Clock, Lsn, Moment};
use argosy_engine::{EngineError, WriteBatch};

use super::Lsm;
use super::writer::Writer;
use crate::names::OwnedEntry;
use crate::read::{Located, ReadView, ScanTime};
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

    fn wall(&self) -> Moment {
        self.clock.get().map_or(Moment(0), |clock| clock.wall())
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

impl Lsm {
    /// By which clock pairs expire here. Set once, before anything is written; without one nothing
    /// expires that has not yet.
    pub fn set_clock(&self, clock: Arc<dyn Clock>) {
        let set = self.time.clock.set(clock);
        assert!(set.is_ok(), "a region has one clock");
    }

    /// What the clock shows, or the region's time if that is higher.
    pub(super) fn clock_or_time(&self) -> Moment {
        self.time.told.now().max(self.time.wall())
    }

    /// The region's time, as far as it is committed.
    #[must_use]
    pub fn committed_time(&self) -> Moment {
        self.time
            .told
            .as_of(Lsn(self.committed.load(Ordering::Acquire)))
    }

    /// The region's time, and an LSN by which it is told. What is looked up afterwards, and expired by this
    /// time, was gone when it was looked up.
    #[inline]
    pub(super) fn told(&self) -> (Moment, Lsn) {
        self.time.told.now_and_lsn()
    }

    /// The highest LSN that readers may see, and a view that has it.
    #[inline]
    pub(super) fn shown(&self) -> (Lsn, Guard<Arc<ReadView>>) {
        loop {
            // The LSN before the view: whatever it covers is in that.
            let lsn = self.visible();
            let view = self.view.load();
            // A key that merges have removed would have a version that covers writes that are not seen.
            if view.expired_lsn <= lsn {
                return (lsn, view);
            }
        }
    }

    /// What `look` finds in the view and up to the LSN that it is given, without a pair that has expired.
    /// Where the region's time has to go on for that, it is looked up again: a pair that was renewed
    /// meanwhile is there. An answer that nothing is there has an LSN below that of any later write.
    #[inline]
    pub(super) fn look<E>(
        &self,
        look: impl Fn(&ReadView, Lsn) -> Result<Located, E>,
    ) -> Result<(Guard<Arc<ReadView>>, Located), E> {
        loop {
            let (now, told) = self.told();
            let (lsn, view) = self.shown();
            let located = look(&view, lsn)?;
            match located.entry.as_ref().and_then(OwnedEntry::expiry) {
                Some(expiry) if expiry <= now => {
                    let gone = Located {
                        entry: None,
                        lsn: located.lsn.max(told),
                    };
                    return Ok((view, gone));
                }
                Some(expiry) if self.reached(expiry).is_some() => {}
                _ => return Ok((view, located)),
            }
        }
    }

    /// Whether the region's time has reached `expiry`: the LSN of the record that says so.
    pub(super) fn reached(&self, expiry: Moment) -> Option<Lsn> {
        if expiry <= self.time.told.now() {
            return Some(self.time.told.lsn());
        }
        if self.time.wall() < expiry || self.check_open().is_err() {
            return None;
        }
        let mut writer = self.lock();
        let now = self.time.wall();
        self.tell_time(&mut writer, (expiry, now)).ok()
    }

    /// Where the region's time is below `least`, makes it `now`, which is not below, and which the clock has
    /// reached. Returns the LSN of the record that tells it. Under the writer lock.
    pub(super) fn tell_time(
        &self,
        writer: &mut Writer,
        (least, now): (Moment, Moment),
    ) -> Result<Lsn, EngineError> {
        if writer.time() >= least {
            return Ok(self.time.told.lsn());
        }
        let now = now.max(least);
        // A memtable may be full of records of time alone.
        self.make_room(writer, &WriteBatch::new())?;
        self.append_with(writer, |writer| writer.append_time(now))?;
        self.time.told.set(now, writer.last());
        Ok(writer.last())
    }

    /// Has the region's time go on to what the clock shows, for readers who want to see it. Returns
    /// whether it is there: where nothing expires, or there is no room, it stands still.
    pub fn go_on(&self) -> bool {
        if self.time.told.now() == Moment(0) {
            return false;
        }
        let wall = self.time.wall();
        if wall <= self.time.told.now() {
            return true;
        }
        self.check_open().is_ok() && self.tell_time(&mut self.lock(), (wall, wall)).is_ok()
    }

    /// The time of a scan that sees everything. To be asked for before what is seen.
    pub(super) fn time_of_all(&self) -> ScanTime {
        let now = self.time.told.now();
        ScanTime {
            now,
            wall: self.time.wall(),
            ..ScanTime::default()
        }
    }

    /// The time of a scan that sees what `committed` covers.
    pub(super) fn scan_time(&self, committed: Lsn) -> ScanTime {
        let now = self.time.told.as_of(committed);
        let wall = match now {
            Moment(0) if self.time.told.now() == Moment(0) => now,
            _ => self.time.wall(),
        };
        ScanTime {
            now,
            wall,
            ..ScanTime::default()
        }
    }
}
