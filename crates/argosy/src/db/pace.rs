//! The background thread of a store, and what it and the callers tell each other.
//!
//! One thread steps the engine for as long as a step makes progress. Then it sleeps:
//!
//! - for as long as the engine says, while anything may be left to do: the next flush, a merge;
//! - until somebody calls, or the next segment is scrubbed, once all that was written is durable, nothing is
//!   under way, and a whole sleep has passed in which nobody rang.
//!
//! Callers wait for it in two cases, both counted in `waiting`, so that it tells nobody where nobody
//! asks: for *room*, when the engine is busy, and for *durability*. The latter is group commit: one
//! flush is under way at a time, whoever writes meanwhile is made durable by the next one, all with one
//! sync.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use argosy_base::{Clock, Instant, Lsn};
use argosy_engine::long::Sweeper;
use argosy_engine::{BusyReason, Engine, EngineError};
use argosy_lsm::Lsm;
use argosy_lsm::excess::Excess;
use argosy_lsm::scrub::Scrubber;

use super::clock::SystemClock;

/// Longest sleep while something is under way, of the thread as of those who wait for it.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Longest sleep while nothing is, but something may come due.
const REST_MAX: Duration = Duration::from_secs(1);

/// Lets one thread sleep until another has something for it. A ring before the sleep is not lost.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            *rung = true;
            self.changed.notify_one();
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

/// What the background thread tells those who wait.
#[derive(Debug, Default)]
struct Told {
    /// Rises with everything that is told.
    generation: u64,
    /// Why there will be no more steps.
    ended: Option<EngineError>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// There is work for the background thread.
    work: Bell,
    told: Mutex<Told>,
    changed: Condvar,
    /// How many callers wait.
    waiting: AtomicUsize,
    /// The highest LSN that somebody wants to be durable, and the highest that is known to be.
    wanted: AtomicU64,
    durable: AtomicU64,
    /// The thread sleeps until somebody rings.
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
    /// Rings for the background thread.
    pub(super) fn ring(&self) {
        self.work.ring();
    }

    /// Something was written: wakes the thread, if it sleeps for long.
    #[inline]
    pub(super) fn wrote(&self) {
        // Pairs with the fence in `sleep`: either the thread sees what was written, or this sees that
        // the thread sleeps.
        fence(Ordering::SeqCst);
        self.read();
    }

    /// Something was read: as [`wrote`](Self::wrote), but where this just misses the thread, the next
    /// one wakes it.
    #[inline]
    pub(super) fn read(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Has the background thread end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
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
    pub(super) fn until_room<T, E>(
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

    /// Waits until everything up to `lsn` is durable; where the device `is_full`, no longer than `patience`.
    pub(super) fn until_durable(
        &self,
        lsn: Lsn,
        patience: Duration,
        is_full: impl Fn() -> bool,
    ) -> Result<(), EngineError> {
        if self.durable.load(Ordering::Acquire) >= lsn.0 {
            return Ok(());
        }
        let _waiting = Waiting::among(&self.waiting);
        self.wanted.fetch_max(lsn.0, Ordering::AcqRel);
        self.ring();
        let mut told = self.told();
        loop {
            if self.durable.load(Ordering::Acquire) >= lsn.0 {
                return Ok(());
            }
            if let Some(ended) = &told.ended {
                return Err(ended.clone());
            }
            let waited = self.changed.wait_timeout(told, patience.max(SLEEP_MAX));
            let (after, slept) = waited.unwrap_or_else(PoisonError::into_inner);
            told = after;
            if slept.timed_out() && is_full() {
                return Err(EngineError::Busy(BusyReason::DeviceFull));
            }
        }
    }

    /// Everything up to `lsn` is durable.
    pub(super) fn note_durable(&self, lsn: Lsn) {
        self.durable.fetch_max(lsn.0, Ordering::AcqRel);
        self.tell(|_| ());
    }

    /// Why there are no more steps, if there are none.
    pub(super) fn ended(&self) -> Option<EngineError> {
        match self.over.load(Ordering::Acquire) {
            true => self.told().ended.clone(),
            false => None,
        }
    }

    /// There are no more steps, because of `why`.
    fn tell_end(&self, why: EngineError) {
        self.tell(|told| {
            told.ended.get_or_insert(why);
        });
        self.over.store(true, Ordering::Release);
    }

    /// The engine was closed, with this end: everything up to `durable` is durable, and nothing more will
    /// be done.
    pub(super) fn end(&self, durable: Lsn, closed: &Result<(), EngineError>) {
        self.note_durable(durable);
        let why = closed.clone().err();
        self.tell_end(why.unwrap_or(EngineError::Closed("it was closed")));
    }
}

/// Tells those who wait that the thread has failed or panicked. Where it was told to stop, whoever told it
/// has the last word.
struct Ending<'a>(&'a Pace, Result<(), EngineError>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Err(why) = &self.1 {
            self.0.tell_end(why.clone());
        }
    }
}

/// What the background thread does beside stepping the engine.
pub(super) struct Chores {
    pub(super) scrubber: Arc<Mutex<Scrubber>>,
    /// Held while parts of long values are removed.
    pub(super) sweeping: Arc<RwLock<()>>,
    /// Has the cache give way to what is resident, which the other tells.
    pub(super) memory: Option<(Excess, Resident)>,
}

/// Says how many bytes of memory a store has.
#[derive(Clone)]
pub(super) struct Resident(pub(super) Arc<dyn Fn() -> u64 + Send + Sync>);

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resident")
    }
}

/// The background thread: steps `engine` until it is told to stop, or a step fails.
pub(super) fn background(engine: &Lsm, pace: &Pace, chores: &Chores) {
    let panicked = EngineError::Closed("the background thread panicked");
    let mut ending = Ending(pace, Err(panicked));
    let mut stepper = Stepper {
        engine,
        pace,
        chores,
        sweeper: Sweeper::default(),
        asked: Lsn(0),
        quiet: false,
        looked: SystemClock.now(),
    };
    ending.1 = stepper.run();
}

struct Stepper<'a> {
    engine: &'a Lsm,
    pace: &'a Pace,
    chores: &'a Chores,
    sweeper: Sweeper,
    /// The last flush that was asked for covers everything up to here.
    asked: Lsn,
    /// A whole sleep has passed in which nobody rang.
    quiet: bool,
    /// When it was last looked what is resident.
    looked: Instant,
}

impl Stepper<'_> {
    fn run(&mut self) -> Result<(), EngineError> {
        while !self.pace.stopping.load(Ordering::Acquire) {
            self.begin_flush();
            let now = SystemClock.now();
            let progress = self.engine.step(now)?;
            self.end_flush();
            self.look_at_memory(now);
            if progress.made {
                self.quiet = false;
                if self.pace.waiting.load(Ordering::SeqCst) > 0 {
                    self.pace.tell(|_| ());
                }
                continue;
            }
            let most = match self.engine.background_pending() {
                0 => REST_MAX,
                _ => SLEEP_MAX,
            };
            let chore_in = match (self.scrub(), self.sweep()) {
                (Some(scrub), Some(sweep)) => Some(scrub.min(sweep)),
                (scrub, sweep) => scrub.or(sweep),
            };
            self.sleep(progress.idle_for.unwrap_or(most).min(most), chore_in);
        }
        Ok(())
    }

    fn durable(&self) -> u64 {
        self.pace.durable.load(Ordering::Acquire)
    }

    /// Begins a flush of what somebody waits for, unless one is under way: what is written while one
    /// is goes with the next.
    fn begin_flush(&mut self) {
        let durable = self.durable();
        if self.pace.wanted.load(Ordering::Acquire) > durable && self.asked.0 <= durable {
            self.asked = self.engine.last_lsn();
            self.engine.flush_now();
        }
    }

    fn end_flush(&self) {
        if self.pace.wanted.load(Ordering::Acquire) <= self.durable() {
            return;
        }
        let durable = self.engine.durable_lsn();
        if durable.0 > self.durable() {
            self.pace.note_durable(durable);
        }
    }

    fn look_at_memory(&mut self, now: Instant) {
        if let Some((excess, resident)) = &self.chores.memory
            && now >= self.looked + Excess::EVERY
        {
            self.looked = now;
            excess.look((resident.0)());
        }
    }

    /// Reads the next segment if it is due, and says how long no other one is.
    fn scrub(&self) -> Option<Duration> {
        let scrubber = self.chores.scrubber.lock();
        let mut scrubber = scrubber.unwrap_or_else(PoisonError::into_inner);
        let (version, settings) = (self.engine.version(), self.engine.settings());
        // What is found is kept where whoever asks finds it.
        let (_, idle) = scrubber.step(&version, settings, SystemClock.now());
        idle
    }

    /// Looks at some long values' parts if that is due, and says how long no other ones are.
    fn sweep(&mut self) -> Option<Duration> {
        // Who keeps it away may wait for room, which this thread makes.
        let _alone = match self.chores.sweeping.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(REST_MAX),
        };
        // What cannot be read is told to who wants to read it.
        let stepped = self.sweeper.step(self.engine, SystemClock.now());
        stepped.unwrap_or(Some(REST_MAX))
    }

    fn sleep(&mut self, timeout: Duration, chore_in: Option<Duration>) {
        let timeout = chore_in.map_or(timeout, |chore| timeout.min(chore));
        if !self.quiet || !self.is_settled() {
            self.quiet = !self.pace.work.wait(timeout);
            return;
        }
        self.pace.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wrote`.
        fence(Ordering::SeqCst);
        if self.is_settled() {
            match chore_in {
                None => self.pace.work.wait_long(),
                Some(chore) => {
                    self.pace.work.wait(chore);
                }
            }
        }
        self.pace.asleep.store(false, Ordering::Relaxed);
        self.quiet = false;
    }

    /// Whether nothing is left to do, whatever time passes.
    fn is_settled(&self) -> bool {
        self.engine.background_pending() == 0 && self.engine.durable_lsn() >= self.engine.last_lsn()
    }
}
