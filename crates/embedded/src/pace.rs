//! What the threads of a store and the callers tell each other: the background thread ([`stepper`](super::stepper)),
//! and the one that makes logs durable ([`logs`](super::logs)).
//!
//! Callers ring for the threads, which sleep while there is nothing to do, and wait for them in two cases,
//! both counted in `waiting`, so that they tell nobody where nobody asks: for *room*, when the engine is busy,
//! and for *durability*. The latter is group commit, by the thread of the logs alone: one flush is under way at a
//! time, whoever writes meanwhile is made durable by the next one, all with one sync. Who asks for a flush of
//! everything waits for the mark behind it, too.

use std::time::Duration;

use argosy_base::{Clock, Lsn};
use argosy_engine::{BusyReason, EngineError};

use super::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, PoisonError,
    SystemClock, fence,
};

/// Longest sleep while something is under way, of the thread as of those who wait for it.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(50);

/// So many turns in a row find nothing to do where nothing is left.
const RESTS_MIN: u64 = 2;

/// Lets one thread sleep until another has something for it. A ring before the sleep is not lost.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    /// Whoever sleeps here waits for the device, too.
    at_device: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            *rung = true;
            self.changed.notify_one();
        }
    }

    /// The device has done something. Rings for who waits for that.
    fn device_done(&self) {
        // Pairs with the fence in `await_device`: either the thread sees what the device has done, or this sees that
        // the thread waits for it.
        fence(Ordering::SeqCst);
        if self.at_device.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// From now on the device rings, or does not. To be called in front of a look at what it has done.
    fn await_device(&self, awaits: bool) {
        self.at_device.store(awaits, Ordering::Relaxed);
        if awaits {
            fence(Ordering::SeqCst);
        }
    }

    /// Whether somebody rang within `timeout`.
    fn wait(&self, timeout: Duration) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(rung, timeout, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut rung)
    }

    /// Returns when somebody rang.
    fn wait_long(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(rung, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// What the threads tell those who wait.
#[derive(Debug, Default)]
struct Told {
    /// Rises with everything that is told.
    generation: u64,
    /// Why there will be no more steps.
    ended: Option<EngineError>,
}

/// How far something has come that callers wait for.
#[derive(Debug, Default)]
struct Reached {
    /// The highest LSN that somebody wants it to reach.
    wanted: AtomicU64,
    /// The highest that it is known to have reached.
    lsn: AtomicU64,
}

/// A place that something is to reach.
#[derive(Clone, Copy)]
struct Goal<'a> {
    of: &'a Reached,
    lsn: Lsn,
}

impl Goal<'_> {
    fn is_reached(self) -> bool {
        self.of.lsn() >= self.lsn.0
    }
}

impl Reached {
    const fn goal(&self, lsn: Lsn) -> Goal<'_> {
        Goal { of: self, lsn }
    }

    fn lsn(&self) -> u64 {
        self.lsn.load(Ordering::Acquire)
    }

    fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// There is work for the background thread.
    work: Bell,
    /// There is work for the thread of the logs.
    log_work: Bell,
    told: Mutex<Told>,
    changed: Condvar,
    /// How many callers wait.
    waiting: AtomicUsize,
    /// The highest LSN that is durable.
    durable: Reached,
    /// The highest LSN that is durable and that a mark on the device declares durable.
    marked: Reached,
    /// How many turns of the background thread in a row have found nothing to do.
    rests: AtomicU64,
    /// The background thread sleeps until somebody rings.
    asleep: AtomicBool,
    stopping: AtomicBool,
    /// There will be no more steps.
    over: AtomicBool,
}

/// Takes a caller off the count.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn among(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Pace {
    /// Rings for both threads.
    pub(crate) fn ring(&self) {
        self.log_work.ring();
        self.work.ring();
    }

    /// Rings for the thread of the logs.
    pub(crate) fn ring_logs(&self) {
        self.log_work.ring();
    }

    /// The device has done something: rings for the threads that wait for it.
    pub(crate) fn device_done(&self) {
        self.log_work.device_done();
        self.work.device_done();
    }

    /// For the background thread: from now on the device rings for it, or does not. What it has done before has to be
    /// looked at afterwards.
    pub(crate) fn await_device(&self, awaits: bool) {
        self.work.await_device(awaits);
    }

    /// The same for the thread of the logs.
    pub(crate) fn await_device_for_logs(&self, awaits: bool) {
        self.log_work.await_device(awaits);
    }

    /// For the thread of the logs: sleeps until somebody rings, and at most for `timeout`.
    pub(crate) fn sleep_logs(&self, timeout: Option<Duration>) {
        match timeout {
            None => self.log_work.wait_long(),
            Some(timeout) => {
                self.log_work.wait(timeout);
            }
        }
    }

    /// Something was written: wakes the background thread, if it sleeps for long. The engine rings for the logs.
    #[inline]
    pub(crate) fn wrote(&self) {
        // Pairs with the fence in `sleep_long`: either the thread sees what was written, or this sees that
        // the thread sleeps.
        fence(Ordering::SeqCst);
        self.read();
    }

    /// Something was read: as [`wrote`](Self::wrote), but where this just misses the thread, the next
    /// one wakes it.
    #[inline]
    pub(crate) fn read(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.work.ring();
        }
    }

    /// For the background thread: sleeps until somebody rings, and at most for `timeout`. Whether somebody rang.
    pub(crate) fn sleep(&self, timeout: Duration) -> bool {
        self.work.wait(timeout)
    }

    /// For the background thread: sleeps until something is written or read, or somebody rings, and at most until
    /// `chore_in` has passed; not at all where something `is_settled` no more once callers know that it
    /// sleeps.
    pub(crate) fn sleep_long(&self, chore_in: Option<Duration>, is_settled: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wrote`.
        fence(Ordering::SeqCst);
        if is_settled() {
            match chore_in {
                None => self.work.wait_long(),
                Some(chore) => {
                    self.work.wait(chore);
                }
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Has the threads end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the threads are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        let mut told = self.told();
        told.generation += 1;
        change(&mut told);
        drop(told);
        self.changed.notify_all();
    }

    /// Tries again whenever something was done, for as long as `attempt` finds no room, and at most for
    /// `patience`.
    ///
    /// # Errors
    /// Those of `attempt`; why nothing more will be done, as `over` tells it, where that is so.
    pub(crate) fn until_room<T, E>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut() -> Result<Option<T>, E>,
        over: impl FnOnce(EngineError) -> E,
    ) -> Result<Option<T>, E> {
        let _waiting = Waiting::among(&self.waiting);
        let began = SystemClock.now();
        loop {
            let seen = self.told().generation;
            if let Some(done) = attempt()? {
                return Ok(Some(done));
            }
            if let Some(ended) = self.ended() {
                return Err(over(ended));
            }
            let waited = SystemClock.now() - began;
            if waited >= patience {
                return Ok(None);
            }
            self.ring();
            let told = self.told();
            let sleep = (patience - waited).min(SLEEP_MAX);
            let slept = self.changed.wait_timeout_while(told, sleep, |told| {
                told.generation == seen && told.ended.is_none()
            });
            drop(slept.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits until everything up to `lsn` is durable; where the device `is_full`, no longer than `patience`, however
    /// often something is told meanwhile.
    pub(crate) fn until_durable(
        &self,
        lsn: Lsn,
        patience: Duration,
        is_full: impl Fn() -> bool,
    ) -> Result<(), EngineError> {
        self.until_durable_by(&SystemClock, lsn, patience, is_full)
    }

    /// The same until everything up to `lsn` is durable, and the device says so.
    pub(crate) fn until_marked(
        &self,
        lsn: Lsn,
        patience: Duration,
        is_full: impl Fn() -> bool,
    ) -> Result<(), EngineError> {
        self.until_reached(&SystemClock, self.marked.goal(lsn), patience, is_full)
    }

    /// [`until_durable`](Self::until_durable), by this clock.
    pub(super) fn until_durable_by(
        &self,
        clock: &impl Clock,
        lsn: Lsn,
        patience: Duration,
        is_full: impl Fn() -> bool,
    ) -> Result<(), EngineError> {
        self.until_reached(clock, self.durable.goal(lsn), patience, is_full)
    }

    fn until_reached(
        &self,
        clock: &impl Clock,
        goal: Goal<'_>,
        patience: Duration,
        is_full: impl Fn() -> bool,
    ) -> Result<(), EngineError> {
        if goal.is_reached() {
            return Ok(());
        }
        let _waiting = Waiting::among(&self.waiting);
        // A sync that is under way ends as a rule within that.
        let patience = patience.max(SLEEP_MAX);
        let began = clock.now();
        goal.of.wanted.fetch_max(goal.lsn.0, Ordering::AcqRel);
        self.ring_logs();
        let mut told = self.told();
        loop {
            if goal.is_reached() {
                return Ok(());
            }
            if let Some(ended) = &told.ended {
                return Err(ended.clone());
            }
            let left = patience.saturating_sub(clock.now().since(began));
            if left.is_zero() && is_full() {
                return Err(EngineError::Busy(BusyReason::DeviceFull));
            }
            // Past its patience it looks now and then whether the device is full.
            let sleep = if left.is_zero() { SLEEP_MAX } else { left };
            let waited = self.changed.wait_timeout(told, sleep);
            (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Up to where somebody wants everything to be durable.
    pub(crate) fn wanted(&self) -> u64 {
        self.durable.wanted()
    }

    /// Up to where everything is known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.lsn()
    }

    /// Up to where somebody wants the device to say that everything is durable.
    pub(crate) fn wanted_mark(&self) -> u64 {
        self.marked.wanted()
    }

    /// Up to where it is known to say so.
    pub(crate) fn marked(&self) -> u64 {
        self.marked.lsn()
    }

    /// Something was done: tells those who wait, if anyone does.
    pub(crate) fn note_progress(&self) {
        self.rests.store(0, Ordering::SeqCst);
        self.tell_waiting();
    }

    /// A turn of the thread found nothing to do. Those who wait are told of the first few, and not of all that follow
    /// while it sleeps and looks again.
    pub(crate) fn note_rest(&self) {
        if self.rests.fetch_add(1, Ordering::SeqCst) < RESTS_MIN {
            self.tell_waiting();
        }
    }

    /// Counts turns that find nothing to do anew.
    pub(crate) fn begin_rest(&self) {
        self.rests.store(0, Ordering::SeqCst);
    }

    /// Whether a turn that began after [`begin_rest`](Self::begin_rest) has found nothing to do, and none since has
    /// found something.
    pub(crate) fn is_resting(&self) -> bool {
        // The first may have begun before.
        self.rests.load(Ordering::SeqCst) >= RESTS_MIN
    }

    fn tell_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.tell(|_| ());
        }
    }

    /// Everything up to `lsn` is durable.
    pub(crate) fn note_durable(&self, lsn: Lsn) {
        self.durable.lsn.fetch_max(lsn.0, Ordering::AcqRel);
        self.tell(|_| ());
    }

    /// Everything up to `lsn` is durable, and the device says so.
    pub(crate) fn note_marked(&self, lsn: Lsn) {
        self.marked.lsn.fetch_max(lsn.0, Ordering::AcqRel);
        self.note_durable(lsn);
    }

    /// Why there are no more steps, if there are none.
    pub(crate) fn ended(&self) -> Option<EngineError> {
        match self.over.load(Ordering::Acquire) {
            true => self.told().ended.clone(),
            false => None,
        }
    }

    /// There are no more steps, because of `why`.
    pub(crate) fn tell_end(&self, why: EngineError) {
        self.tell(|told| {
            told.ended.get_or_insert(why);
        });
        self.over.store(true, Ordering::Release);
    }

    /// The engine was closed, with this end: everything up to `durable` is durable, which the device says where it
    /// was closed without an error, and nothing more will be done.
    pub(crate) fn end(&self, durable: Lsn, closed: &Result<(), EngineError>) {
        match closed {
            Ok(()) => self.note_marked(durable),
            Err(_) => self.note_durable(durable),
        }
        let why = closed.clone().err();
        self.tell_end(why.unwrap_or(EngineError::Closed("it was closed")));
    }
}
