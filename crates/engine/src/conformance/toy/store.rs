//! The toy as a store that serves.
//!
//! A write goes to the log's window and to the map, under one lock, and is done. The map as of the commit LSN is kept
//! beside it, for snapshots. A step makes closed ranges of the log durable. When half of the chain is used, it makes an
//! *image* of the map:
//!
//! 1. The segment that is written is sealed. The map as of then is what the image will have.
//! 2. Once all of it is committed, the image is written, and an edit that names it in place of the log so far, and new
//!    log segments.
//! 3. The new log segments are used once the edit is everywhere: only then every member can make sense of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use argosy_base::{Clock, EditSeq, Epoch, Instant, Lsn, Moment, SegmentNumber};
use argosy_device::{DeviceError, Purpose, Waker};

use super::Toy;
use super::disk::{Disk, Table};
use super::edit::{Edit, LogSegment};
use super::map::Map;
use super::record::{Group, Record};
use super::ring::{Ring, Whose};
use super::snapshot::ToySnapshot;
use super::stored::ToyStored;
use super::write;
use crate::batch::check_key;
use crate::stats::Stats;
use crate::{
    BatchError, BusyReason, EditNotice, EngineError, Found, Marks, Observer, Progress, Reach,
    Snapshot, Store, Stored, WaitFor, Wanted, WriteBatch, WriteOptions, Written,
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

/// What steps work with.
struct Background {
    disk: Disk,
    image: Option<ImageToCome>,
    /// Edits that the observer was not told of.
    untold: VecDeque<Arc<[u8]>>,
    next_flush: Option<Instant>,
}

/// An image that is not made yet.
struct ImageToCome {
    map: Map,
    /// It replaces the segments in front of this one.
    ordinal: u64,
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
    pub(super) edit: Arc<Edit>,
    pub(super) table: Table,
    /// Every other member has applied the edits up to this one.
    pub(super) everywhere: EditSeq,
    /// The edits that brought images, until they are everywhere: what each replaces.
    replaced: Option<Replaced>,
    /// A write found no room.
    wants_room: bool,
    flush_asked: bool,
    stats: Stats,
}

/// What an image took the place of.
struct Replaced {
    seq: EditSeq,
    ordinal: u64,
    upto: Lsn,
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
        let background = Background {
            disk,
            image: None,
            untold: VecDeque::from([edit.encode().into()]),
            next_flush: None,
        };
        Self {
            toy,
            epoch: service.epoch,
            observer: service.observer,
            clock: service.clock,
            waker: service.waker,
            marks: service.marks,
            closed: AtomicBool::new(false),
            background: Mutex::new(background),
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
    fn tell_appended(&self, state: &mut State) {
        let ranges = state.ring.untold();
        let Some(observer) = &self.observer else {
            return;
        };
        if let Some(end) = state.ring.end() {
            observer.appended(end, state.all.last);
        }
        ranges.into_iter().for_each(|range| observer.flush(range));
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
        let mut made = background.tell(self);
        let asked = std::mem::take(&mut self.state().flush_asked);
        let due = *background
            .next_flush
            .get_or_insert(now + self.toy.flush_interval);
        if asked || now >= due {
            background.next_flush = Some(now + self.toy.flush_interval);
            let mut state = self.state();
            let last = state.all.last;
            if state.ring.close_open(last) {
                self.tell_appended(&mut state);
            }
        }
        made |= background.flush(self)?;
        made |= background.step_image(self)?;
        let open = self.state().ring.has_open();
        Ok(Progress {
            made,
            idle_for: open.then(|| due.since(now).max(Duration::from_millis(1))),
            device: false,
        })
    }

    fn background_pending(&self) -> usize {
        let state = self.state();
        let image = self.background.try_lock().map_or(1, |background| {
            usize::from(background.image.is_some()) + background.untold.len()
        });
        state.waiting.len() + image
    }

    fn flush_now(&self) {
        self.state().flush_asked = true;
        self.wake();
    }

    fn stats(&self) -> Stats {
        let state = self.state();
        Stats {
            memtable_bytes: state.all.bytes(),
            memtable_entries: state.all.entries(),
            log_segments: state.edit.logs.len(),
            ..state.stats.clone()
        }
    }

    fn stored(&self) -> Arc<dyn Stored> {
        let state = self.state();
        let edit = Edit::clone(&state.edit);
        Arc::new(ToyStored::new(self.toy.region, edit, state.table.clone()))
    }

    fn close(&self) -> Result<(), EngineError> {
        let background = self.background.lock().expect(PANICKED);
        {
            let mut state = self.state();
            self.closed.store(true, Ordering::Release);
            let last = state.all.last;
            state.ring.close_open(last);
            self.tell_appended(&mut state);
        }
        background.flush(self)?;
        Ok(())
    }
}

impl Background {
    /// Tells the observer of edits.
    fn tell(&mut self, store: &ToyStore) -> bool {
        let mut any = false;
        while let Some(bytes) = self.untold.pop_front() {
            any = true;
            if let Some(observer) = &store.observer {
                observer.edit_committed(&EditNotice {
                    seq: Edit::decode(&bytes).map_or(EditSeq(0), |edit| edit.seq),
                    bytes,
                    log_places: Arc::new([]),
                });
            }
        }
        any
    }

    /// Makes closed ranges durable.
    fn flush(&self, store: &ToyStore) -> Result<bool, DeviceError> {
        let (ranges, table) = {
            let mut state = store.state();
            (state.ring.take_ranges(), state.table.clone())
        };
        let Some((last, _)) = ranges.last() else {
            return Ok(false);
        };
        let mut bytes_written = 0;
        for (range, bytes) in &ranges {
            bytes_written += bytes.len() as u64;
            // An image has what is not in the chain any more.
            if let Some(stored) = table.get(&range.segment) {
                stored.write(range.from, bytes)?;
            }
        }
        self.disk.sync()?;
        let mut state = store.state();
        let whose = match store.observer {
            Some(_) => Whose::Here,
            None => Whose::All,
        };
        state.ring.note(last.ordinal, last.to, whose);
        state.stats.log_write_bytes += bytes_written;
        state.stats.recovery_log_write_bytes += bytes_written;
        Ok(true)
    }

    /// Begins an image where it is time, and makes it once all of it is committed.
    fn step_image(&mut self, store: &ToyStore) -> Result<bool, DeviceError> {
        if self.image.is_none() {
            let mut state = store.state();
            let is_due = state.ring.spare() <= store.toy.windows / 2 || state.wants_room;
            let has_more = state.all.last > state.edit.last;
            if !is_due || !has_more || state.everywhere < state.edit.seq {
                return Ok(false);
            }
            let last = state.all.last;
            let ordinal = state.ring.seal_current(last);
            store.tell_appended(&mut state);
            state.wants_room = false;
            self.image = Some(ImageToCome {
                map: state.all.clone(),
                ordinal,
            });
        }
        let Some(image) = self
            .image
            .take_if(|image| image.map.last <= store.marks.committed_lsn())
        else {
            return Ok(false);
        };
        match self.make(store, &image) {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => {
                self.image = Some(image);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn make(&mut self, store: &ToyStore, image: &ImageToCome) -> Result<(), DeviceError> {
        let before = store.state().edit.clone();
        let mut edit = Edit {
            seq: before.seq.next(),
            epoch: store.epoch,
            checkpoint: false,
            last: image.map.last,
            time: image.map.time,
            next_number: before.next_number,
            ..Edit::default()
        };
        let written = self.disk.write_image(
            &image.map,
            store.epoch,
            store.toy.part_bytes,
            &mut edit.next_number,
        )?;
        edit.image_bytes = written.bytes;
        edit.image = written.parts;
        let kept = before
            .logs
            .iter()
            .filter(|log| log.ordinal >= image.ordinal);
        edit.logs = kept.copied().collect();
        let new = complete_chain(&mut self.disk, &mut edit, image.ordinal, store.toy.windows)?;
        self.disk.commit(edit.clone())?;
        let mut state = store.state();
        state.stats.edits += 1;
        state.stats.flushes += 1;
        state.stats.segment_write_bytes += edit.image_bytes;
        state.ring.drop_before(image.ordinal);
        state.ring.extend(&new);
        let (upto, time) = (image.map.last, image.map.time);
        state.all.forget_removed(upto, time);
        state.committed.forget_removed(upto, time);
        state.table = self.disk.table.clone();
        state.replaced = Some(Replaced {
            seq: edit.seq,
            ordinal: image.ordinal,
            upto,
        });
        self.untold.push_back(edit.encode().into());
        let seq = edit.seq;
        state.edit = Arc::new(edit);
        if store.observer.is_none() {
            state.applied_everywhere(seq);
        } else if store.toy.mutants.use_early() {
            state.ring.use_all();
        }
        drop(state);
        self.tell(store);
        Ok(())
    }
}

/// Completes the chain of `edit` to `count` segments, of which the first has `ordinal`. Returns those that are new.
pub(super) fn complete_chain(
    disk: &mut Disk,
    edit: &mut Edit,
    ordinal: u64,
    count: usize,
) -> Result<Vec<LogSegment>, DeviceError> {
    let mut new = Vec::new();
    while edit.logs.len() < count {
        let segment = LogSegment {
            ordinal: edit.logs.last().map_or(ordinal, |last| last.ordinal + 1),
            number: next_number(&mut edit.next_number),
            epoch: edit.epoch,
            needed: 0,
        };
        disk.allocate(segment.number, Purpose::Log)?;
        edit.logs.push(segment);
        new.push(segment);
    }
    Ok(new)
}

fn next_number(next: &mut SegmentNumber) -> SegmentNumber {
    let number = *next;
    *next = next.next();
    number
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
