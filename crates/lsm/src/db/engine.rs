//! An engine behind the contract of all engines: reads, writes, and what its owner asks of it.
//!
//! Reads fail where they meet [damage](crate::damage), and take note of the segment.

use std::sync::Arc;

use arc_swap::Guard;
use argosy_base::{EditSeq, Instant, Lsn, Moment};
use argosy_device::Room;
use argosy_engine::batch::check_key;
use argosy_engine::{
    Capabilities, EngineError, Follower, Found, NotDemoted, Outline, Progress, Reach, Snapshot,
    Store, Stored, WaitFor, Wanted, Windows, WriteBatch, WriteOptions, Written,
};

use super::bulk_load::{Taken, Ticket};
use super::bulk_loader::{BulkLoadError, pair_bytes_max};
use super::condition::Looked;
use super::passive::{Passive, slots_of};
use super::write::{Appender, write};
use super::{Lsm, count, stats};
use crate::names::OwnedEntry;
use crate::read::many::Keys;
use crate::read::snapshot::{LsmSnapshot, PinnedBySnapshots, pinned_by};
use crate::read::{Located, ReadView};
use crate::segments::fetch::Fetch;
use crate::stored::StoredVersion;
use crate::work::stats::Stats;

impl Store for Lsm {
    fn get_within(&self, key: &[u8], reach: Reach) -> Result<Found, EngineError> {
        check_key(key)?;
        let fetch = Fetch::within(reach);
        let look = |view: &ReadView, lsn| view.locate(key, lsn, &self.reading, fetch);
        let (view, located) = self.noting_within(reach, self.look(look))?;
        let expiry = located.entry.as_ref().and_then(|entry| entry.expiry());
        let value = match located.entry {
            Some(entry) => {
                let value = view.value(key, entry, &self.reading, fetch);
                self.noting_within(reach, value)?
            }
            None => None,
        };
        Ok(Found {
            version: view.version_of(located.lsn, value.is_some()),
            value,
            wait: WaitFor::committed(located.lsn),
            expiry,
        })
    }

    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
        reach: Reach,
    ) -> Result<Vec<Found>, EngineError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let (now, told) = self.history.time().now_and_lsn();
        let (lsn, view) = self.shown.last();
        self.reading.check_serving()?;
        let found = view.get_some(Keys { keys, wanted }, lsn, &self.reading, reach);
        let found = self.noting_within(reach, found)?.into_iter().zip(keys);
        let found = found.map(|(found, key)| {
            let (value, lsn, expiry) = match found.expiry {
                Some(expiry) if expiry <= now => (None, found.lsn.max(told), None),
                Some(expiry) if self.reached(expiry).is_some() => {
                    let found = self.get_within(key, reach)?;
                    let value = match wanted {
                        Wanted::Values(_) => found.value,
                        Wanted::Presence => found.value.map(|_| Vec::new()),
                    };
                    return Ok(Found { value, ..found });
                }
                expiry => (found.value, found.lsn, expiry),
            };
            Ok(Found {
                version: view.version_of(lsn, value.is_some()),
                value,
                wait: WaitFor::committed(lsn),
                expiry,
            })
        });
        found.collect()
    }

    fn outline(&self, key: &[u8], reach: Reach) -> Result<Outline, EngineError> {
        check_key(key)?;
        let fetch = Fetch::within(reach);
        let look = |view: &ReadView, lsn| view.locate(key, lsn, &self.reading, fetch);
        let (_, located) = self.noting_within(reach, self.look(look))?;
        Ok(located.outline())
    }

    fn write_within(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        reach: Reach,
    ) -> Result<Written, EngineError> {
        self.check_open()?;
        let looked = self.noting_within(reach, Looked::before(self, batch, options, reach))?;
        write(self, batch, options, looked)
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(self.snapshot_of_committed())
    }

    fn last_lsn(&self) -> Lsn {
        self.visible()
    }

    fn committed_lsn(&self) -> Lsn {
        self.shown.marks().committed_lsn()
    }

    fn commit(&self, lsn: Lsn) {
        assert!(
            lsn <= self.visible(),
            "what was not written is not committed"
        );
        let before = self.shown.marks().raise_committed(lsn);
        let waiting = self.shown.view().memtables.len() > 1;
        if before < lsn && waiting {
            self.wake();
        }
    }

    fn snapshot_of_all(&self) -> Box<dyn Snapshot> {
        // The LSN before the view: whatever it covers is in that. The time before the LSN: the record
        // that tells it is covered.
        let time = self.history.time().of_all();
        let lsn = self.visible();
        let snapshot = LsmSnapshot::new(
            self.shown.view_to_keep(),
            lsn,
            Arc::clone(&self.reading),
            time,
        );
        Box::new(snapshot)
    }

    fn pinned_by(&self, snapshots: &[Arc<dyn Snapshot>]) -> PinnedBySnapshots {
        pinned_by(snapshots, &self.shown.view())
    }

    fn count_estimate(&self) -> u64 {
        count::estimate(&self.shown.view(), &self.reading)
    }

    fn durable_lsn(&self) -> Lsn {
        let writer = self.lock();
        writer.logs.durable(writer.last())
    }

    fn marked_lsn(&self) -> Lsn {
        if self.settings.mutants.forget_mark() {
            return self.durable_lsn();
        }
        self.lock().marked(self.history.edits().usable())
    }

    fn edit(&self) -> EditSeq {
        self.shown.view().version.seq()
    }

    fn is_everywhere(&self, edit: EditSeq) -> bool {
        edit <= self.history.edits().everywhere()
    }

    fn time(&self) -> Moment {
        self.history.time().clock_or_time()
    }

    fn advance_ttl_clock(&self) -> bool {
        if self.history.time().now() == Moment(0) {
            return false;
        }
        let wall = self.history.time().wall();
        if wall <= self.history.time().now() {
            return true;
        }
        self.check_open().is_ok() && Appender::of(self).tell_time(wall, wall).is_ok()
    }

    fn step(&self, now: Instant) -> Result<Progress, EngineError> {
        let stepped = self
            .steps
            .with_background(|background| background.step(self, now))?;
        // Another thread is at it: what it leaves to be done is looked for afterwards.
        Ok(stepped.unwrap_or(Progress {
            idle_for: Some(self.settings.logs.flush_interval),
            ..Progress::default()
        }))
    }

    fn step_logs(&self, now: Instant) -> Result<Progress, EngineError> {
        let logs = self.steps.logs();
        logs.take_apart();
        self.check_open()?;
        // What another region has met of the same device ends this one, too.
        let whole = logs.check_device();
        let stepped = whole.and_then(|()| logs.step(self, now));
        stepped.inspect_err(|error| self.steps.note_failure(error))
    }

    fn background_pending(&self) -> usize {
        let uncommitted = usize::from(self.last_lsn() > self.committed_lsn());
        let frozen = self.shown.view().memtables.len() - 1;
        frozen + uncommitted + self.steps.pending()
    }

    fn flush_now(&self) {
        self.steps.logs().ask_flush();
        self.wake();
    }

    fn flush_and_mark(&self) {
        self.steps.logs().ask_mark(self.visible());
        self.flush_now();
    }

    fn rest_soon(&self, soon: bool) {
        self.windows.set_rest_soon(soon);
        self.wake();
    }

    fn freeze_now(&self) -> bool {
        Self::freeze_now(self)
    }

    fn compact_now(&self) -> u64 {
        let number = self.full_compaction.request();
        self.wake();
        number
    }

    fn compacted(&self, number: u64) -> Option<EditSeq> {
        self.full_compaction.is_done(number).then(|| self.edit())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            bulk_load_pair_bytes_max: Some(pair_bytes_max(&self.settings)),
        }
    }

    fn bulk_load(&self, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Ticket, BulkLoadError> {
        self.check_open()?;
        let taken = self
            .bulk_loads
            .take(pairs, &self.settings, &self.reading.cache)?;
        self.wake();
        Ok(taken)
    }

    fn bulk_loads_ended(&self) -> Vec<(Ticket, Taken)> {
        self.bulk_loads.ended(self.history.edits(), |_| true)
    }

    fn take_back(&self, ticket: Ticket) -> bool {
        self.bulk_loads.take_back(ticket)
    }

    fn set_members_room(&self, room: Option<Room>) {
        self.space.set_members(room);
        self.wake();
    }

    fn space_in_words(&self) -> String {
        let background = self.steps.background_as_it_is();
        background.map_or_else(String::new, |at| at.jobs.space_in_words())
    }

    fn stats(&self) -> Stats {
        stats::gather(self)
    }

    fn stored(&self) -> Arc<dyn Stored> {
        let damages = Arc::clone(self.damages());
        Arc::new(StoredVersion::new(self.version(), damages, &self.settings))
    }

    fn close(&self) -> Result<(), EngineError> {
        let Some(mut background) = self.steps.background_as_it_is() else {
            return Ok(());
        };
        self.steps.close("it was closed");
        background.flush_blocking(self)
    }

    fn demote(self: Arc<Self>, fresh: Windows) -> Result<Box<dyn Follower>, Box<NotDemoted>> {
        let memory = Arc::clone(self.shown.memory().server());
        let demoted = self.become_replica(slots_of(fresh));
        demoted.map(|replica| -> Box<dyn Follower> { Box::new(Passive::new(replica, memory)) })
    }
}

impl Lsm {
    /// What `look` finds in the view and up to the LSN that it is given, without a pair that has expired.
    /// Where the region's time has to go on for that, it is looked up again: a pair that was renewed
    /// meanwhile is there. An answer that nothing is there has an LSN below that of any later write.
    #[inline]
    fn look(
        &self,
        look: impl Fn(&ReadView, Lsn) -> Result<Located, EngineError>,
    ) -> Result<(Guard<Arc<ReadView>>, Located), EngineError> {
        loop {
            let (now, told) = self.history.time().now_and_lsn();
            let (lsn, view) = self.shown.last();
            self.reading.check_serving()?;
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
        if expiry <= self.history.time().now() {
            return Some(self.history.time().lsn());
        }
        if self.history.time().wall() < expiry || self.check_open().is_err() {
            return None;
        }
        let mut appender = Appender::of(self);
        let now = self.history.time().wall();
        appender.tell_time(expiry, now).ok()
    }

    /// Takes note of damage that a read within `reach` met. One that keeps to memory leaves that to the read that
    /// follows it: whatever is wrong there, it is [not in memory](EngineError::NotInMemory).
    #[inline]
    fn noting_within<T>(
        &self,
        reach: Reach,
        read: Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match read {
            Ok(read) => Ok(read),
            Err(EngineError::NotServing) => Err(EngineError::NotServing),
            Err(_) if reach == Reach::Memory => Err(EngineError::NotInMemory),
            failed => {
                let damages = &self.reading.damages;
                damages.noting(&self.shown.view().version, failed)
            }
        }
    }
}
