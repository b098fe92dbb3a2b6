//! The toy as a store that serves, and as other members copy it.
//!
//! A write goes to the log's window and to the map, under one lock, and is done. The map as of the commit LSN is kept
//! beside it, for snapshots. The rest is done in steps: ranges of the log become durable, and an image takes the place
//! of half of the log.
//!
//! 1. The image is one of the map as of the commit LSN, in place of the log segments that have no more than that.
//! 2. An edit has it, and where the log behind it begins.
//! 3. What the log gains by that is used once the edit is everywhere: only then every member can make sense of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::{
    EditSeq, FlushRange, Instant, KeyRange, LogId, Lsn, Moment, SegmentNumber, WriteBatch,
};
use argosy_device::DeviceError;
use parking_lot::{Mutex, MutexGuard};

use super::copy::ToyCopy;
use super::edit::ToyEdit;
use super::log::{LOG, Logged, SEAL_BYTES, Tail, behind, seal};
use super::map::{Entry, Map};
use super::snapshot::ToySnapshot;
use crate::batch::check_key;
use crate::deciding::{Answer, Beside, BoundKey, Dependent, SeenNow};
use crate::source::{LogPlace, Next, Piece};
use crate::stats::Stats;
use crate::{
    BatchError, BusyReason, Checkpoint, CopyError, EditNotice, EngineError, Follower, Found,
    NotDemoted, Pin, PinnedCheckpoint, Progress, Reach, Service, Snapshot, Source, Store, Stored,
    WaitFor, Wanted, Windows, WriteOptions, Written, first_wanted,
};

/// Behind every byte of a log: nobody else has to have it durable.
const NO_BOUND: LogPlace = LogPlace {
    ordinal: u64::MAX,
    offset: u32::MAX,
};

/// See the module documentation.
pub(super) struct ToyStore {
    service: Service,
    state: Mutex<State>,
    /// Snapshots and scans show nothing any more.
    ended: Arc<AtomicBool>,
}

/// What a batch is told of a key on which it was computed.
fn now_of(entry: &Entry) -> SeenNow {
    SeenNow {
        bound: entry.exists(),
        version: entry.lsn,
        lsn: entry.lsn,
    }
}

/// What a store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// It was closed: it takes no writes.
    Closed,
    /// It has become a copy: its own one is empty.
    Demoted,
}

struct State {
    /// Its map has everything that was appended.
    copy: ToyCopy,
    /// Everything that is committed.
    committed: Map,
    /// Groups that are not committed.
    waiting: VecDeque<Logged>,
    tail: Tail,
    /// The last LSN in the image of the last edit.
    imaged: Lsn,
    /// The observer was told of that edit.
    told: bool,
    /// Every other member has applied the edits up to this one.
    everywhere: EditSeq,
    /// When the open range is closed.
    flush_due: Option<Instant>,
    stage: Stage,
    /// Images that were made.
    images: u64,
}

impl ToyStore {
    /// The store that `copy` becomes, whose last edit has everything.
    pub(super) fn new(mut copy: ToyCopy, service: Service) -> Self {
        copy.map.mutants = copy.settings.mutants;
        let last = copy.map.last;
        service.marks.set_last(last);
        service.marks.raise_committed(last);
        let mut state = State {
            committed: copy.map.clone(),
            waiting: VecDeque::new(),
            tail: Tail::new(copy.settings.window_bytes, copy.edit.first, last),
            imaged: last,
            told: false,
            everywhere: EditSeq(0),
            flush_due: None,
            stage: Stage::Serving,
            images: 0,
            copy,
        };
        if service.observer.is_none() {
            state.tail.everywhere = NO_BOUND;
            state.applied_everywhere(state.copy.edit.seq);
        }
        Self {
            service,
            state: Mutex::new(state),
            ended: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn snapshot_of(&self, map: Map) -> Box<dyn Snapshot> {
        let ended = Arc::clone(&self.ended);
        Box::new(ToySnapshot::new(map, self.wall(), ended))
    }

    fn wake(&self) {
        if let Some(waker) = &self.service.waker {
            waker();
        }
    }

    /// What the clock on the wall shows.
    fn wall(&self) -> Moment {
        let clock = self.service.clock.as_ref();
        clock.map_or(Moment(0), |clock| clock.wall())
    }

    /// Appends a group, makes it visible, and tells the observer. Returns its last LSN.
    ///
    /// # Errors
    /// Where the log has no room; nothing was appended.
    fn append(&self, state: &mut State, time: Moment, ops: WriteBatch) -> Result<Lsn, EngineError> {
        let first = state.copy.map.last.next();
        let group = Logged { first, time, ops };
        let (last, bytes) = (group.last(), group.encode());
        let len = bytes.len() + SEAL_BYTES;
        if len > state.copy.settings.window_bytes {
            return Err(BatchError::TooManyBytes.into());
        }
        let Some((at, closed)) = state.tail.append(len, last) else {
            self.wake();
            return Err(EngineError::Busy(BusyReason::LogWindows));
        };
        let identity = state.copy.identity(&state.copy.edit, at.ordinal);
        let sealed = seal(identity.at(at.offset), &bytes);
        let slot = state.copy.slot(at.ordinal);
        state.copy.slots[slot].write(at.offset as usize, &sealed);
        state.copy.map.apply(&group);
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
        if let (Some(observer), Some(end)) = (&self.service.observer, state.tail.end()) {
            observer.appended(end, state.copy.map.last);
            closed.into_iter().for_each(|range| observer.flush(range));
        }
    }

    fn commit_in(&self, state: &mut State, lsn: Lsn) {
        let written = lsn <= self.service.marks.last_lsn();
        assert!(written, "what was not written is not committed");
        while let Some(group) = state.waiting.pop_front_if(|group| group.last() <= lsn) {
            state.committed.apply(&group);
        }
        self.service.marks.raise_committed(lsn);
    }

    /// Where the region's time is below `least`, makes it `now`.
    fn tell_time(&self, state: &mut State, least: Moment, now: Moment) -> Result<(), EngineError> {
        if state.copy.map.time < least {
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
        let expiries = keys.filter_map(|key| state.copy.map.seen(key).expiry);
        match expiries.filter(|expiry| *expiry <= now).max() {
            Some(expiry) => self.tell_time(state, expiry, now),
            None => Ok(()),
        }
    }

    /// Closes the open range, and makes closed ranges durable. Returns whether there was any.
    fn flush(&self, state: &mut State, close: bool) -> Result<bool, DeviceError> {
        if close {
            let closed = state.tail.close();
            self.tell_appended(state, closed);
        }
        let ranges = state.tail.to_flush();
        for range in &ranges {
            // An image has what is not in the log any more.
            if range.ordinal >= state.copy.edit.first {
                state.copy.flush_range(range)?;
            }
            state.tail.here = behind(range);
        }
        state.tail.forget_done();
        Ok(!ranges.is_empty())
    }

    /// Tells the observer of the last edit.
    fn tell_edit(&self, state: &mut State) -> bool {
        let told = std::mem::replace(&mut state.told, true);
        if let (false, Some(observer)) = (told, &self.service.observer) {
            observer.edit_committed(&EditNotice {
                seq: state.copy.edit.seq,
                bytes: state.copy.edit.encode().into(),
                log_places: Arc::new([]),
            });
        }
        !told
    }

    /// Makes an image where it is time.
    fn renew(&self, state: &mut State) -> Result<bool, DeviceError> {
        let (edit, settings) = (&state.copy.edit, state.copy.settings);
        let first = state.tail.first_behind(state.committed.last);
        let is_due = state.tail.spare() <= settings.windows as u64 / 2;
        let is_next = state.everywhere >= edit.seq;
        if !(is_due && is_next && edit.first < first) {
            return Ok(false);
        }
        let next = ToyEdit {
            seq: edit.seq.next(),
            epoch: edit.epoch,
            first,
            image: state.committed.encode(),
            ..ToyEdit::default()
        };
        match state.copy.commit(next) {
            Err(error) if error.is_full() => return Ok(false),
            made => made?,
        }
        state.tail.written.retain(|ordinal, _| *ordinal >= first);
        state.imaged = state.committed.last;
        state.told = false;
        state.images += 1;
        if self.service.observer.is_none() {
            state.applied_everywhere(state.copy.edit.seq);
        } else if settings.mutants.use_early() {
            state.tail.usable = state.copy.behind();
        }
        Ok(self.tell_edit(state))
    }
}

impl State {
    /// Every other member has applied the edits up to `seq`.
    fn applied_everywhere(&mut self, seq: EditSeq) {
        self.everywhere = self.everywhere.max(seq);
        if self.everywhere >= self.copy.edit.seq {
            self.tail.note_image(self.copy.edit.first, self.imaged);
            self.tail.usable = self.copy.behind();
        }
    }

    fn check_open(&self) -> Result<(), EngineError> {
        match self.stage {
            Stage::Serving => Ok(()),
            Stage::Closed => Err(EngineError::Closed("it was closed")),
            Stage::Demoted => Err(EngineError::NotServing),
        }
    }

    /// Serves no more. Returns the copy, and keeps nothing of it.
    fn end(&mut self) -> ToyCopy {
        self.stage = Stage::Demoted;
        self.committed = Map::default();
        self.waiting.clear();
        let hollow = self.copy.hollow();
        std::mem::replace(&mut self.copy, hollow)
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
        if state.stage == Stage::Demoted {
            return Err(EngineError::NotServing);
        }
        if state.check_open().is_ok() {
            let _ = self.expire(&mut state, keys.iter().copied(), self.wall());
        }
        let found = keys.iter().map(|key| {
            check_key(key)?;
            let seen = state.copy.map.seen(key);
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
        state.check_open()?;
        if batch.is_void() {
            return Ok(Written::up_to(state.copy.map.last));
        }
        if batch.request().is_some() {
            return Err(EngineError::Unsupported("requests are not remembered here"));
        }
        let now = state.copy.map.time.max(self.wall());
        let mut answer = Answer::default();
        if batch.depends_on_values(options) {
            let guard = batch.guarded().map(|(key, _)| key);
            let keys = batch.ops().map(|op| op.key());
            let read = batch.seen().map(|seen| seen.key);
            let all = keys.clone().chain(guard).chain(read.clone());
            self.expire(&mut state, all, now)?;
            let map = &state.copy.map;
            let bindings = keys.map(|key| map.seen(key)).collect();
            let beside = Beside {
                guard: guard.map(|key| map.seen(key)),
                seen: read.map(|key| now_of(&map.seen(key))).collect(),
            };
            let asked = Dependent::new(batch, options, now);
            answer = asked.decide(bindings, &beside, Entry::lsn)?;
        }
        let Some(batch) = answer.comes_to(batch, now)? else {
            return Ok(answer.written(None));
        };
        if batch.is_empty() {
            let seen = answer.seen();
            return Ok(answer.written(Some(seen)));
        }
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
        let map = match state.copy.settings.mutants.show_uncommitted() {
            true => state.copy.map.clone(),
            false => state.committed.clone(),
        };
        self.snapshot_of(map)
    }

    fn snapshot_of_all(&self) -> Box<dyn Snapshot> {
        let map = self.state().copy.map.clone();
        self.snapshot_of(map)
    }

    fn count_estimate(&self) -> u64 {
        let map = self.state().copy.map.clone();
        map.bound(&KeyRange::all()).count() as u64
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
        self.state().tail.durable
    }

    fn edit(&self) -> EditSeq {
        self.state().copy.edit.seq
    }

    fn is_everywhere(&self, edit: EditSeq) -> bool {
        edit <= self.state().everywhere
    }

    fn time(&self) -> Moment {
        self.state().copy.map.time.max(self.wall())
    }

    fn advance_ttl_clock(&self) -> bool {
        let (mut state, wall) = (self.state(), self.wall());
        let time = state.copy.map.time;
        let mut tell =
            || state.check_open().is_ok() && self.tell_time(&mut state, wall, wall).is_ok();
        time > Moment(0) && (time >= wall || tell())
    }

    fn step(&self, now: Instant) -> Result<Progress, EngineError> {
        let state = &mut *self.state();
        state.check_open()?;
        let mut made = self.tell_edit(state);
        let interval = state.copy.settings.flush_interval;
        let is_due = now >= *state.flush_due.get_or_insert(now + interval);
        if is_due {
            state.flush_due = None;
        }
        made |= self.flush(state, is_due)?;
        made |= self.renew(state)?;
        let due = state.flush_due.filter(|_| state.tail.has_open());
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
        self.state().copy.stored()
    }

    fn close(&self) -> Result<(), EngineError> {
        let state = &mut *self.state();
        if state.stage == Stage::Demoted {
            return Ok(());
        }
        state.stage = Stage::Closed;
        self.flush(state, true)?;
        Ok(())
    }

    fn demote(self: Arc<Self>, fresh: Windows) -> Result<Box<dyn Follower>, Box<NotDemoted>> {
        let mut state = self.state();
        self.ended.store(true, Ordering::Release);
        let open = state.check_open().map_err(CopyError::from);
        let demoted = open.and_then(|()| {
            let mut copy = state.end();
            copy.detach(fresh)?;
            Ok(copy)
        });
        match demoted {
            Ok(copy) => Ok(Box::new(copy)),
            Err(error) => Err(Box::new(NotDemoted { error, left: None })),
        }
    }
}

impl Source for ToyStore {
    fn piece(&self, log: LogId, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next {
        let state = self.state();
        if log != LOG || from >= end {
            return Next::End;
        }
        let written = state.tail.written.get(&from.ordinal);
        let mut upto = written.map_or(0, |(upto, _)| *upto);
        if from.ordinal == end.ordinal {
            upto = upto.min(end.offset);
        }
        if from.offset >= upto {
            return Next::Skip(from.next_segment());
        }
        piece.slot = state.copy.slot(from.ordinal);
        piece.header.clear();
        piece.at = from.offset as usize;
        let len = (upto - from.offset) as usize;
        piece.bytes = state.copy.slots[piece.slot].read_vec(piece.at, len);
        piece.next = LogPlace {
            offset: upto,
            ..from
        };
        Next::Write
    }

    fn flushed_everywhere(&self, log: LogId, segment: SegmentNumber, to: u32) {
        if log == LOG {
            let tail = &mut self.state().tail;
            let ordinal = segment.0.saturating_sub(1);
            let upto = LogPlace {
                ordinal,
                offset: to,
            };
            tail.everywhere = tail.everywhere.max(upto);
            tail.forget_done();
        }
    }

    fn edit_applied_everywhere(&self, seq: EditSeq) {
        self.state().applied_everywhere(seq);
        self.wake();
    }

    fn checkpoint(&self) -> PinnedCheckpoint {
        let state = self.state();
        let copy = &state.copy;
        let logs = state.tail.written.iter().map(|(ordinal, (end, _))| {
            let window = &copy.slots[copy.slot(*ordinal)];
            (*ordinal, window.read_vec(0, *end as usize))
        });
        PinnedCheckpoint {
            checkpoint: Checkpoint {
                seq: copy.edit.seq,
                bytes: copy.checkpoint_with(logs.collect()),
            },
            pin: Pin::new(Arc::new(())),
        }
    }
}
