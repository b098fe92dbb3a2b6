//! What makes the logs durable, apart from all other work: a merge that is under way holds up no write that waits for
//! the device.
//!
//! Full windows, and every `flush_interval` what is filled of the present ones, go to the device ([`LogFlusher`]).
//! Where each write is to be synced, what is filled goes there as soon as what went before is done: together. A
//! log that was flushed and does not go on for an interval ends in a mark that says so; whoever asks for it has it at
//! once. Much later the windows rest ([`resting`](super::resting)).
//!
//! It is done by whoever calls [`step_logs`](argosy_engine::Store::step_logs), beside whoever calls
//! [`step`](argosy_engine::Store::step); as long as nobody does, by the latter. Its lock is taken behind that of the
//! background, and in front of the writer's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use argosy_base::{FlushRange, Instant, Lsn};
use argosy_device::Store;
use argosy_engine::{EngineError, Progress};

use super::Lsm;
use super::logflush::{DurableEnds, LogFlusher};
use super::resting::Quiet;
use super::write::{Appender, mark_as_asked};
use crate::names::logs::RECOVERY_LOG;
use crate::work::stats::Counts;

const PANICKED: &str = "a step of the logs panicked";

/// See the module documentation.
pub(super) struct LogWork {
    state: Mutex<State>,
    durable: Arc<DurableEnds>,
    store: Arc<Store>,
    /// Somebody calls `step_logs`.
    is_apart: AtomicBool,
    /// A flush of a memtable waits for log bytes.
    is_awaited: AtomicBool,
    /// All that was appended is to be flushed.
    flush_asked: AtomicBool,
    /// Somebody waits until a mark says that everything up to this LSN is durable.
    mark_asked: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    flusher: LogFlusher,
    next_flush: Option<Instant>,
    quiet: Quiet,
}

impl LogWork {
    /// That of an engine on `store`.
    pub(super) fn new(store: &Arc<Store>) -> Self {
        let state = State::default();
        Self {
            durable: state.flusher.durable(),
            state: Mutex::new(state),
            store: Arc::clone(store),
            is_apart: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            flush_asked: AtomicBool::new(false),
            mark_asked: AtomicU64::new(0),
        }
    }

    /// Up to where the logs are durable, now and later.
    pub(super) fn durable(&self) -> &DurableEnds {
        &self.durable
    }

    /// From now on `step` leaves the logs to `step_logs`.
    pub(super) fn take_apart(&self) {
        self.is_apart.store(true, Ordering::Relaxed);
    }

    /// Whether the device is written still.
    pub(super) fn check_device(&self) -> Result<(), EngineError> {
        match self.store.failure() {
            None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    /// Whether a flush of a memtable waits for log bytes. Returns whether it begins to.
    pub(super) fn set_awaited(&self, is_awaited: bool) -> bool {
        !self.is_awaited.swap(is_awaited, Ordering::AcqRel) && is_awaited
    }

    fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire)
    }

    /// Has the next step flush all that was appended.
    pub(super) fn ask_flush(&self) {
        self.flush_asked.store(true, Ordering::Release);
    }

    /// Somebody waits until a mark says that everything up to `lsn` is durable.
    pub(super) fn ask_mark(&self, lsn: Lsn) {
        self.mark_asked.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Up to which LSN somebody waits for a mark.
    pub(super) fn mark_asked(&self) -> Lsn {
        Lsn(self.mark_asked.load(Ordering::Acquire))
    }

    /// A step, if nobody else does it.
    pub(super) fn step_if_together(
        &self,
        lsm: &Lsm,
        now: Instant,
    ) -> Result<Progress, EngineError> {
        match self.is_apart.load(Ordering::Relaxed) {
            true => Ok(Progress::default()),
            false => self.step(lsm, now),
        }
    }

    /// A step. Nothing where another thread is at it.
    pub(super) fn step(&self, lsm: &Lsm, now: Instant) -> Result<Progress, EngineError> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => {
                return Ok(Progress {
                    idle_for: Some(lsm.settings.logs.flush_interval),
                    ..Progress::default()
                });
            }
            Err(TryLockError::Poisoned(_)) => return Err(EngineError::Closed(PANICKED)),
        };
        // Whoever ends the engine waits for this lock afterwards: nothing is written behind that.
        lsm.check_open()?;
        let asked = self.flush_asked.swap(false, Ordering::AcqRel) || self.is_awaited();
        let made = state.step(lsm, &self.store, asked, now)?;
        let due = state.next_flush.filter(|_| !lsm.windows.are_at_rest());
        let due = due.map(|at| at.since(now));
        Ok(Progress {
            made,
            device: state.flusher.is_busy(),
            idle_for: due.map(|due| due.max(Duration::from_millis(1))),
        })
    }

    /// Makes everything durable that has been appended, and waits for it.
    pub(super) fn flush_blocking(&self, lsm: &Lsm) -> Result<(), EngineError> {
        let mut state = self.lock()?;
        Appender::of(lsm).force_flushes();
        state.submit(lsm);
        let done = state.flusher.wait(&self.store)?;
        flushed(lsm, &done);
        Ok(())
    }

    /// Waits until the device has done what was begun, of an engine that is closed: nothing comes behind it.
    pub(super) fn drain(&self) -> Result<(), EngineError> {
        self.lock()?.flusher.wait(&self.store)?;
        Ok(())
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, EngineError> {
        let state = self.state.lock();
        state.map_err(|_| EngineError::Closed(PANICKED))
    }
}

impl State {
    /// A step; `asked`: all that was appended is to be flushed.
    fn step(
        &mut self,
        lsm: &Lsm,
        store: &Store,
        asked: bool,
        now: Instant,
    ) -> Result<bool, EngineError> {
        let interval = lsm.settings.logs.flush_interval;
        let due = *self.next_flush.get_or_insert(now + interval);
        let mut made = false;
        let yields = lsm.windows.are_to_rest();
        if lsm.settings.logs.sync && !self.flusher.is_busy() {
            made |= Appender::of(lsm).force_flushes();
        }
        if asked || yields || now >= due {
            made |= Appender::of(lsm).force_flushes();
            let is_idle = (yields || now >= due) && !made;
            made |= is_idle && Appender::of(lsm).mark_idle();
            made |= is_idle && !made && self.rests(lsm, now);
            self.next_flush = Some(now + interval);
        }
        made |= mark_as_asked(lsm);
        made |= self.submit(lsm);
        let (done, moved) = self.flusher.step(store)?;
        if flushed(lsm, &done) {
            lsm.wake();
        }
        Ok(made || moved)
    }

    /// Has the windows rest if the logs did not go on for long enough. Returns whether they begin to.
    fn rests(&mut self, lsm: &Lsm, now: Instant) -> bool {
        let mut writer = lsm.lock();
        let is_over = self
            .quiet
            .lasts(writer.logs.bytes(), now, lsm.settings.logs.rest_after);
        (is_over || lsm.windows.are_to_rest()) && lsm.windows.rest(&mut writer)
    }

    /// Has all ranges written that are to be flushed. Returns whether there are any.
    fn submit(&mut self, lsm: &Lsm) -> bool {
        let mut any = false;
        loop {
            let (range, windows) = {
                let mut writer = lsm.lock();
                let Some(range) = writer.next_flush() else {
                    return any;
                };
                (range, Arc::clone(writer.logs.log(range.log).windows()))
            };
            // Taken behind the range: a version is shown before the writer is given the log segments in it.
            let version = lsm.shown.version();
            let cache = &lsm.reading.cache;
            let bytes = self.flusher.submit(range, &windows, &version, cache);
            Counts::add(&lsm.counts.logs.write_bytes, bytes);
            if range.log == RECOVERY_LOG {
                Counts::add(&lsm.counts.logs.recovery_write_bytes, bytes);
            }
            any = true;
        }
    }
}

/// Has the writer know that `done` is durable here. Returns whether the background may have waited for that: a segment
/// may be sealed, or a memtable's flush ends.
fn flushed(lsm: &Lsm, done: &[FlushRange]) -> bool {
    if done.is_empty() {
        return false;
    }
    let mut writer = lsm.lock();
    for range in done {
        let log = writer.logs.log_mut(range.log);
        log.flushed_locally(range.segment, range.to);
        if lsm.serving.is_alone() {
            log.flushed_everywhere(range.segment, range.to);
        }
    }
    writer.note_durable();
    if lsm.serving.is_alone() && lsm.settings.logs.sync {
        let durable = writer.logs.durable(writer.last());
        lsm.shown.marks().raise_committed(durable);
    }
    let has_ended = writer.ended().next().is_some();
    has_ended || lsm.steps.logs().is_awaited()
}
