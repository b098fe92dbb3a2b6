//! The toy as a store that serves.
//!
//! A write goes to the log's window and to the map, under one lock, and is done. The map as of the commit LSN is kept
//! beside it, for snapshots. The rest is done in [steps](super::background).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use argosy_base::{Clock, EditSeq, Epoch, Instant, Lsn, Moment};
use argosy_device::Waker;

use super::Toy;
use super::background::Background;
use super::disk::{Disk, Table};
use super::edit::ToyEdit;
use super::map::Map;
use super::record::{Group, Record};
use super::ring::Ring;
use super::snapshot::ToySnapshot;
use super::stored::ToyStored;
use super::write;
use crate::batch::check_key;
use crate::stats::Stats;
use crate::{
    BatchError, BusyReason, EngineError, Found, Marks, Observer, Progress, Reach, Snapshot, Store,
    Stored, WaitFor, Wanted, WriteBatch, WriteOptions, Written,
};

const PANICKED: &str = "no holder of the lock panics";

/// See the module documentation.
pub(super) struct ToyStore {
    pub(super) toy: Toy,
    pub(super) epoch: Epoch,
    pub(super) observer: Option<Arc<dyn Observer>>,
    clock: Option<Arc<dyn Clock>>,
    waker: Option<Waker>,
    pub(super) marks: Arc<Marks>,
    closed: AtomicBool,
    /// Locked before the state. Only a step holds it for long.
    background: Mutex<Background>,
    state: Mutex<State>,
}

/// What changes with every write.
pub(super) struct State {
    /// Everything that was appended, and everything that is committed.
    pub(super) all: Map,
    pub(super) committed: Map,
    /// Groups that are not committed.
    waiting: VecDeque<Group>,
    pub(super) ring: Ring,
    /// The last edit, and its segments.
    pub(super) edit: Arc<ToyEdit>,
    pub(super) table: Table,
    /// Every other member has applied the edits up to this one.
    pub(super) everywhere: EditSeq,
    /// What the last image takes the place of, until its edit is everywhere.
    pub(super) replaced: Option<Replaced>,
    /// A write found no room.
    pub(super) wants_room: bool,
    flush_asked: bool,
    pub(super) stats: Stats,
}

/// What an image took the place of.
pub(super) struct Replaced {
    pub(super) seq: EditSeq,
    pub(super) ordinal: u64,
    pub(super) upto: Lsn,
}

/// What a copy hands to the store that it becomes.
pub(super) struct Begun {
    pub(super) toy: Toy,
    pub(super) disk: Disk,
    pub(super) map: Map,
    pub(super) ring: Ring,
}

impl ToyStore {
    /// The store of a copy whose last edit is the cut.
    pub(super) fn new(begun: Begun, service: crate::Service) -> Self {
        let Begun {
            toy,
            disk,
            map,
            mut ring,
        } = begun;
        let last = map.last;
        service.marks.set_last(last);
        service.marks.raise_committed(last);
        let edit = disk.edit.clone();
        ring.extend(&edit.logs);
        let alone = service.observer.is_none();
        if alone {
            ring.use_all();
        }
        let state = State {
            committed: map.clone(),
            all: map,
            waiting: VecDeque::new(),
            ring,
            everywhere: if alone { edit.seq } else { EditSeq(0) },
            table: disk.table.clone(),
            replaced: None,
            wants_room: false,
            flush_asked: false,
            stats: Stats::default(),
            edit: Arc::new(edit.clone()),
        };
        Self {
            toy,
            epoch: service.epoch,
            observer: service.observer,
            clock: service.clock,
            waker: service.waker,
            marks: service.marks,
            closed: AtomicBool::new(false),
            background: Mutex::new(Background::new(disk)),
            state: Mutex::new(state),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(PANICKED)
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    /// What the clock on the wall shows.
    pub(super) fn wall(&self) -> Moment {
        self.clock.as_ref().map_or(Moment(0), |clock| clock.wall())
    }

    pub(super) fn check_open(&self) -> Result<(), EngineError> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(EngineError::Closed("it was closed")),
            false => Ok(()),
        }
    }

    /// Appends `records`, makes them visible, and tells the observer. Returns the last LSN.
    ///
    /// # Errors
    /// Where the log has no room; nothing was appended.
    pub(super) fn append(
        &self,
        state: &mut State,
        records: Vec<Record>,
    ) -> Result<Lsn, EngineError> {
        let group = Group {
            first: state.all.last.next(),
            records,
        };
        let encoded = group.encode();
        match state.ring.fits(encoded.len()) {
            Ok(true) => {}
            Ok(false) => {
                state.wants_room = true;
                self.wake();
                return Err(EngineError::Busy(BusyReason::LogWindows));
            }
            Err(_) => return Err(BatchError::TooManyBytes.into()),
        }
        let last = group.last();
        state.ring.append(&group, &encoded);
        state.all.apply(&group);
        self.marks.set_last(last);
        state.waiting.push_back(group);
        if self.observer.is_none() {
            self.commit_in(state, last);
        }
        self.tell_appended(state);
        // The step that flushes it is due an interval from now.
        self.wake();
        Ok(last)
    }

    /// Tells the observer how far the log is written, and what has to be flushed.
    pub(super) fn tell_appended(&self, state: &mut State) {
        let ranges = state.ring.untold();
        let Some(observer) = &self.observer else {
            return;
        };
        if let Some(end) = state.ring.end() {
            observer.appended(end, state.all.last);
        }
        ranges.into_iter().for_each(|range| observer.flush(range));
    }

    /// Closes the open range of the log, to be flushed.
    pub(super) fn close_open(&self) {
        let mut state = self.state();
        let last = state.all.last;
        if state.ring.close_open(last) {
            self.tell_appended(&mut state);
        }
    }

    /// Whether somebody has asked for a flush since this was asked last.
    pub(super) fn take_flush_asked(&self) -> bool {
        std::mem::take(&mut self.state().flush_asked)
    }

    fn commit_in(&self, state: &mut State, lsn: Lsn) {
        assert!(
            lsn <= state.all.last,
            "what was not written is not committed"
        );
        while let Some(group) = state.waiting.pop_front_if(|group| group.last() <= lsn) {
            state.committed.apply(&group);
        }
        self.marks.raise_committed(lsn);
    }

    /// Where the region's time is below `least`, makes it `now`. Returns whether it is there.
    pub(super) fn tell_time(
        &self,
        state: &mut State,
        least: Moment,
        now: Moment,
    ) -> Result<(), EngineError> {
        match state.all.time >= least {
            true => Ok(()),
            false => self
                .append(state, vec![Record::Time(now.max(least))])
                .map(drop),
        }
    }

    /// What `keys` are bound to by the clock, as of one moment. Where the clock is further than the region's time and
    /// one has expired by it, the region's time is made the same first, if there is room.
    fn look(&self, keys: &[&[u8]]) -> Result<Vec<Found>, EngineError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let mut state = self.state();
        let wall = self.wall();
        let expired = |key: &&[u8]| state.all.seen(key).expiry.is_some_and(|at| at <= wall);
        if keys.iter().any(expired) && self.check_open().is_ok() {
            let _ = self.tell_time(&mut state, wall, wall);
        }
        let found = keys.iter().map(|key| {
            let seen = state.all.seen(key);
            Found {
                value: seen.value.map(|value| value.to_vec()),
                wait: WaitFor::committed(seen.lsn),
                version: seen.lsn,
                expiry: seen.expiry,
            }
        });
        Ok(found.collect())
    }
}

impl Store for ToyStore {
    fn get_within(&self, key: &[u8], _reach: Reach) -> Result<Found, EngineError> {
        let found = self.look(&[key])?;
        Ok(found.into_iter().next().expect("one was asked for"))
    }

    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
        _reach: Reach,
    ) -> Result<Vec<Found>, EngineError> {
        let mut found = self.look(keys)?;
        let lens = found
            .iter()
            .map(|one| one.value.as_ref().map_or(0, Vec::len));
        found.truncate(wanted_of(wanted, lens));
        if wanted == Wanted::Presence {
            for one in &mut found {
                one.value = one.value.take().map(|_| Vec::new());
            }
        }
        Ok(found)
    }

    fn write_within(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        _reach: Reach,
    ) -> Result<Written, EngineError> {
        let mut state = self.state();
        self.check_open()?;
        write::write(self, &mut state, batch, options)
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        if self.observer.is_none() {
            self.advance_ttl_clock();
        }
        let map = match self.toy.mutants.show_uncommitted() {
            true => self.state().all.clone(),
            false => self.state().committed.clone(),
        };
        let lsn = map.last;
        Box::new(ToySnapshot::new(map, lsn, self.wall()))
    }

    fn snapshot_of_all(&self) -> Box<dyn Snapshot> {
        let map = self.state().all.clone();
        let lsn = map.last;
        Box::new(ToySnapshot::new(map, lsn, self.wall()))
    }

    fn count_estimate(&self) -> u64 {
        self.state().all.entries() as u64
    }

    fn last_lsn(&self) -> Lsn {
        self.marks.last_lsn()
    }

    fn committed_lsn(&self) -> Lsn {
        self.marks.committed_lsn()
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
        match state.all.time {
            Moment(0) => false,
            time if time >= wall => true,
            _ => self.check_open().is_ok() && self.tell_time(&mut state, wall, wall).is_ok(),
        }
    }

    fn step(&self, now: Instant) -> Result<Progress, EngineError> {
        self.check_open()?;
        let Ok(mut background) = self.background.try_lock() else {
            return Ok(Progress::default());
        };
        let (made, due) = background.step(self, now)?;
        let open = self.state().ring.has_open();
        Ok(Progress {
            made,
            idle_for: open.then(|| due.since(now).max(Duration::from_millis(1))),
            device: false,
        })
    }

    fn background_pending(&self) -> usize {
        let state = self.state();
        let background = self.background.try_lock();
        let image = background.map_or(1, |background| background.pending());
        state.waiting.len() + image
    }

    fn flush_now(&self) {
        self.state().flush_asked = true;
        self.wake();
    }

    fn stats(&self) -> Stats {
        let state = self.state();
        let mut stats = state.stats.clone();
        stats.memtables.bytes = state.all.bytes();
        stats.memtables.entries = state.all.entries();
        stats.log_work.segments = state.edit.logs.len();
        stats
    }

    fn stored(&self) -> Arc<dyn Stored> {
        let state = self.state();
        let edit = ToyEdit::clone(&state.edit);
        Arc::new(ToyStored::new(self.toy.region, edit, state.table.clone()))
    }

    fn close(&self) -> Result<(), EngineError> {
        let background = self.background.lock().expect(PANICKED);
        self.closed.store(true, Ordering::Release);
        self.close_open();
        background.flush(self)?;
        Ok(())
    }
}

impl State {
    /// Every other member has applied the edits up to `seq`.
    pub(super) fn applied_everywhere(&mut self, seq: EditSeq) {
        self.everywhere = self.everywhere.max(seq);
        if let Some(replaced) = self.replaced.take_if(|replaced| replaced.seq <= seq) {
            self.ring.note_image(replaced.ordinal, replaced.upto);
        }
        if self.everywhere >= self.edit.seq {
            self.ring.use_all();
        }
    }
}

/// How many of values of these lengths are `wanted`.
pub(super) fn wanted_of(wanted: Wanted, lens: impl Iterator<Item = usize>) -> usize {
    let Wanted::Values(bytes) = wanted else {
        return usize::MAX;
    };
    let before = lens.scan(0, |sum: &mut usize, len| {
        let before = *sum;
        *sum += len;
        Some(before)
    });
    let taken = before.take_while(|before| *before < bytes).count();
    taken.max(1)
}
