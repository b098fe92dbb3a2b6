//! The toy as a store that serves.
//!
//! A write goes to the log's window and to the map, under one lock, and is done. The map as of the commit LSN is kept
//! beside it, for snapshots. The rest is done in steps: ranges of the log become durable, and an image takes the place
//! of half of the log.
//!
//! 1. The image is one of the map as of the commit LSN, in place of the log segments that have no more than that.
//! 2. It is written, and an edit that names it, and new log segments.
//! 3. The new log segments are used once the edit is everywhere: only then every member can make sense of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::{EditSeq, FlushRange, Instant, Lsn, Moment, WriteBatch};
use argosy_device::DeviceError;
use parking_lot::{Mutex, MutexGuard};

use super::copy::ToyCopy;
use super::disk::{Disk, Table};
use super::edit::ToyEdit;
use super::map::{Entry, Map};
use super::record::{Logged, SEAL_BYTES};
use super::ring::Ring;
use super::snapshot::ToySnapshot;
use super::stored::ToyStored;
use crate::batch::check_key;
use crate::deciding::{Answer, BoundKey, Dependent};
use crate::stats::Stats;
use crate::{
    BatchError, BusyReason, EditNotice, EngineError, Found, Progress, Reach, Service, Snapshot,
    Store, Stored, WaitFor, Wanted, WriteOptions, Written, first_wanted,
};

/// See the module documentation.
pub(super) struct ToyStore {
    service: Service,
    settings: super::Settings,
    closed: AtomicBool,
    /// Locked before the state. Only a step holds it for long.
    disk: Mutex<Disk>,
    state: Mutex<State>,
}

/// What changes with every write.
pub(super) struct State {
    /// Everything that was appended, and everything that is committed.
    all: Map,
    committed: Map,
    /// Groups that are not committed.
    waiting: VecDeque<Logged>,
    pub(super) ring: Ring,
    /// The last edit, and its segments.
    pub(super) edit: ToyEdit,
    pub(super) table: Table,
    /// The observer was told of that edit.
    told: bool,
    /// Every other member has applied the edits up to this one.
    everywhere: EditSeq,
    /// When the open range is closed.
    flush_due: Option<Instant>,
    /// Images that were made.
    images: u64,
}

impl ToyStore {
    /// The store that `copy`, of which `map` is the image of the last edit, becomes.
    pub(super) fn new(copy: ToyCopy, map: Map, service: Service) -> Self {
        let (disk, last) = (copy.disk, map.last);
        service.marks.set_last(last);
        service.marks.raise_committed(last);
        let alone = service.observer.is_none();
        let edit = disk.edit.clone();
        let state = State {
            committed: map.clone(),
            all: map,
            waiting: VecDeque::new(),
            ring: Ring::new(disk.region, copy.slots, &edit.logs, last, alone),
            everywhere: if alone { edit.seq } else { EditSeq(0) },
            table: disk.table.clone(),
            told: false,
            flush_due: None,
            images: 0,
            edit,
        };
        Self {
            service,
            settings: disk.settings,
            closed: AtomicBool::new(false),
            disk: Mutex::new(disk),
            state: Mutex::new(state),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.service.waker {
            waker();
        }
    }

    /// What the clock on the wall shows.
    fn wall(&self) -> Moment {
        let clock = self.service.clock.as_ref();
        clock.map_or(Moment(0), |clock| clock.wall())
    }

    fn check_open(&self) -> Result<(), EngineError> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(EngineError::Closed("it was closed")),
            false => Ok(()),
        }
    }

    /// Appends a group, makes it visible, and tells the observer. Returns its last LSN.
    ///
    /// # Errors
    /// Where the log has no room; nothing was appended.
    fn append(&self, state: &mut State, time: Moment, ops: WriteBatch) -> Result<Lsn, EngineError> {
        let first = state.all.last.next();
        let group = Logged { first, time, ops };
        let last = group.last();
        let mut bytes = Vec::new();
        group.encode(&mut bytes);
        if bytes.len() + SEAL_BYTES > self.settings.window_bytes {
            return Err(BatchError::TooManyBytes.into());
        }
        if !state.ring.fits(bytes.len() + SEAL_BYTES) {
            self.wake();
            return Err(EngineError::Busy(BusyReason::LogWindows));
        }
        let closed = state.ring.append(&bytes, last);
        state.all.apply(&group);
        state.waiting.push_back(group);
        self.service.marks.set_last(last);
        if self.service.observer.is_none() {
            self.commit_in(state, last);
        }
        self.tell_appended(state, closed);
        // The step that flushes it is due an interval from now.
        self.wake();
        Ok(last)
    }

    /// Tells the observer how far the log is written, and of a range that was `closed`.
    fn tell_appended(&self, state: &State, closed: Option<FlushRange>) {
        if let (Some(observer), Some(end)) = (&self.service.observer, state.ring.end()) {
            observer.appended(end, state.all.last);
            closed.into_iter().for_each(|range| observer.flush(range));
        }
    }

    fn commit_in(&self, state: &mut State, lsn: Lsn) {
        let written = lsn <= state.all.last;
        assert!(written, "what was not written is not committed");
        while let Some(group) = state.waiting.pop_front_if(|group| group.last() <= lsn) {
            state.committed.apply(&group);
        }
        self.service.marks.raise_committed(lsn);
    }

    /// Where the region's time is below `least`, makes it `now`.
    fn tell_time(&self, state: &mut State, least: Moment, now: Moment) -> Result<(), EngineError> {
        if state.all.time < least {
            self.append(state, now.max(least), WriteBatch::new())?;
        }
        Ok(())
    }

    /// Has the region's time pass what `keys` have expired by, as of `now`.
    fn expire<'k>(
        &self,
        state: &mut State,
        keys: impl Iterator<Item = &'k [u8]>,
        now: Moment,
    ) -> Result<(), EngineError> {
        let expiries = keys.filter_map(|key| state.all.seen(key).expiry);
        match expiries.filter(|expiry| *expiry <= now).max() {
            Some(expiry) => self.tell_time(state, expiry, now),
            None => Ok(()),
        }
    }

    /// Does all that can be done now. Returns whether there was anything.
    fn work(&self, disk: &mut Disk, now: Instant) -> Result<bool, DeviceError> {
        let mut made = self.tell_edit(disk);
        let mut state = self.state();
        let due = state
            .flush_due
            .get_or_insert(now + self.settings.flush_interval);
        if now >= *due {
            state.flush_due = None;
            let closed = state.ring.close();
            self.tell_appended(&state, closed);
        }
        drop(state);
        made |= self.flush(disk)?;
        Ok(self.renew(disk)? || made)
    }

    /// Tells the observer of the last edit.
    fn tell_edit(&self, disk: &Disk) -> bool {
        let told = std::mem::replace(&mut self.state().told, true);
        if let (false, Some(observer)) = (told, &self.service.observer) {
            observer.edit_committed(&EditNotice {
                seq: disk.edit.seq,
                bytes: disk.edit.encode().into(),
                log_places: Arc::new([]),
            });
        }
        !told
    }

    /// Makes closed ranges durable.
    fn flush(&self, disk: &Disk) -> Result<bool, DeviceError> {
        let ranges = self.state().ring.to_flush();
        let Some((last, _)) = ranges.last() else {
            return Ok(false);
        };
        for (range, bytes) in &ranges {
            // An image has what is not in the chain any more.
            if let Some(stored) = disk.table.get(&range.segment) {
                stored.write(range.from, bytes)?;
            }
        }
        disk.sync()?;
        self.state().ring.note(last.segment, last.to, true);
        Ok(true)
    }

    /// Makes an image where it is time.
    fn renew(&self, disk: &mut Disk) -> Result<bool, DeviceError> {
        let state = self.state();
        let image = state.committed.clone();
        let first = state.ring.first_behind(image.last);
        let is_due = state.ring.spare() <= self.settings.windows as u64 / 2;
        let frees = state
            .edit
            .logs
            .first()
            .is_some_and(|log| log.ordinal < first);
        let is_next = state.everywhere >= state.edit.seq;
        drop(state);
        if !(is_due && frees && is_next) {
            return Ok(false);
        }
        match disk.renew(&image, first, self.service.epoch) {
            Err(error) if error.is_full() => return Ok(false),
            made => made?,
        }
        let mut state = self.state();
        state.ring.follow(&disk.edit.logs);
        state.all.forget_removed(image.last, image.time);
        state.committed.forget_removed(image.last, image.time);
        (state.edit, state.table) = (disk.edit.clone(), disk.table.clone());
        state.told = false;
        state.images += 1;
        if self.service.observer.is_none() {
            state.applied_everywhere(disk.edit.seq);
        } else if self.settings.mutants.use_early() {
            state.ring.use_all();
        }
        drop(state);
        Ok(self.tell_edit(disk))
    }
}

impl Store for ToyStore {
    /// Where the clock is further than the region's time and a pair has expired by it, the region's time is made the
    /// same first, if there is room.
    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
        _reach: Reach,
    ) -> Result<Vec<Found>, EngineError> {
        let mut state = self.state();
        if self.check_open().is_ok() {
            let _ = self.expire(&mut state, keys.iter().copied(), self.wall());
        }
        let found = keys.iter().map(|key| {
            check_key(key)?;
            let seen = state.all.seen(key);
            Ok(Found {
                wait: WaitFor::committed(seen.lsn),
                version: seen.lsn,
                expiry: seen.expiry,
                value: seen.into_value(),
            })
        });
        first_wanted(wanted, found, |found| &mut found.value)
    }

    fn write_within(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        _reach: Reach,
    ) -> Result<Written, EngineError> {
        let mut state = self.state();
        self.check_open()?;
        if batch.is_empty() {
            return Ok(Written::of_nothing(state.all.last));
        }
        let now = state.all.time.max(self.wall());
        let mut answer = Answer::default();
        if batch.depends_on_values(options) {
            let guard = batch.guarded().map(|(key, _)| key);
            let keys = batch.ops().map(|op| op.key());
            self.expire(&mut state, keys.clone().chain(guard), now)?;
            let seen = keys.map(|key| state.all.seen(key)).collect();
            let guard = guard.map(|key| state.all.seen(key));
            let asked = Dependent::new(batch, options, now);
            answer = asked.decide(seen, guard.as_ref(), Entry::lsn)?;
        }
        let Some(batch) = answer.comes_to(batch, now)? else {
            return Ok(answer.written(None));
        };
        if batch.expires() {
            // From here on the time matters.
            self.tell_time(&mut state, Moment(1), now)?;
        }
        let lsn = self.append(&mut state, Moment(0), batch.into_owned())?;
        Ok(answer.written(Some(lsn)))
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        if self.service.observer.is_none() {
            self.advance_ttl_clock();
        }
        let state = self.state();
        let map = match self.settings.mutants.show_uncommitted() {
            true => state.all.clone(),
            false => state.committed.clone(),
        };
        Box::new(ToySnapshot::new(map, self.wall()))
    }

    fn snapshot_of_all(&self) -> Box<dyn Snapshot> {
        Box::new(ToySnapshot::new(self.state().all.clone(), self.wall()))
    }

    fn count_estimate(&self) -> u64 {
        self.state().all.entries() as u64
    }

    fn last_lsn(&self) -> Lsn {
        self.service.marks.last_lsn()
    }

    fn committed_lsn(&self) -> Lsn {
        self.service.marks.committed_lsn()
    }

    fn commit(&self, lsn: Lsn) {
        self.commit_in(&mut self.state(), lsn);
        // An image may have waited for it.
        self.wake();
    }

    fn durable_lsn(&self) -> Lsn {
        self.state().ring.durable
    }

    fn edit(&self) -> EditSeq {
        self.state().edit.seq
    }

    fn is_everywhere(&self, edit: EditSeq) -> bool {
        edit <= self.state().everywhere
    }

    fn time(&self) -> Moment {
        self.state().all.time.max(self.wall())
    }

    fn advance_ttl_clock(&self) -> bool {
        let mut state = self.state();
        let wall = self.wall();
        state.all.time > Moment(0)
            && (state.all.time >= wall
                || self.check_open().is_ok() && self.tell_time(&mut state, wall, wall).is_ok())
    }

    fn step(&self, now: Instant) -> Result<Progress, EngineError> {
        self.check_open()?;
        let Some(mut disk) = self.disk.try_lock() else {
            return Ok(Progress::default());
        };
        let made = self.work(&mut disk, now)?;
        let state = self.state();
        let due = state.flush_due.filter(|_| state.ring.has_open());
        Ok(Progress {
            made,
            idle_for: due.map(|due| due.since(now).max(Duration::from_millis(1))),
            device: false,
        })
    }

    fn background_pending(&self) -> usize {
        let state = self.state();
        state.waiting.len() + usize::from(!state.told)
    }

    fn flush_now(&self) {
        self.state().flush_due = Some(Instant::default());
        self.wake();
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        stats.work.flushes = self.state().images;
        stats
    }

    fn stored(&self) -> Arc<dyn Stored> {
        let state = self.state();
        Arc::new(ToyStored::new(&state.edit, &state.table))
    }

    fn close(&self) -> Result<(), EngineError> {
        let disk = self.disk.lock();
        self.closed.store(true, Ordering::Release);
        let mut state = self.state();
        let closed = state.ring.close();
        self.tell_appended(&state, closed);
        drop(state);
        self.flush(&disk)?;
        Ok(())
    }
}

impl State {
    /// Every other member has applied the edits up to `seq`.
    pub(super) fn applied_everywhere(&mut self, seq: EditSeq) {
        self.everywhere = self.everywhere.max(seq);
        if self.everywhere >= self.edit.seq {
            self.ring.note_image(self.edit.last);
        }
    }
}
