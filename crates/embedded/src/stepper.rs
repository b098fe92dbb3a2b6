//! The background thread of a store.
//!
//! It steps the engine for as long as a step makes progress; the logs are made durable by another
//! ([`logs`](super::logs)). Between two steps it reads a segment for the scrubber
//! when one is due, whether the engine has more to do or not: by time, no more than the scrubber's rate. When nothing
//! is left it sleeps:
//!
//! - for as long as the engine says, while anything may be left to do: the next flush, a merge;
//! - until somebody calls, or the next segment is scrubbed, once all that was written is durable, the device says so
//!   (the logs end in marks), nothing is under way, and a whole sleep has passed in which nobody rang.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_device::{Store, SystemClock};
use argosy_engine::long::{SweepPace, Sweeper, Uses};
use argosy_engine::scrub::Scrubber;
use argosy_engine::{EngineError, Excess, Store as _};
use argosy_lsm::Lsm;
use parking_lot::{Mutex, RwLock};

use crate::pace::{Pace, SLEEP_MAX};

/// Longest sleep while nothing is under way, but something may come due.
const REST_MAX: Duration = Duration::from_secs(1);

/// Tells those who wait that a thread has failed or panicked. Where it was told to stop, whoever told it
/// has the last word.
pub(crate) struct Ending<'a>(&'a Pace, Result<(), EngineError>);

impl<'a> Ending<'a> {
    /// That of a thread which has `panicked`, unless there is [another](Self::is).
    pub(crate) const fn new(pace: &'a Pace, panicked: EngineError) -> Self {
        Self(pace, Err(panicked))
    }

    /// The thread has ended so.
    pub(crate) fn is(&mut self, ended: Result<(), EngineError>) {
        self.1 = ended;
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Err(why) = &self.1 {
            self.0.tell_end(why.clone());
        }
    }
}

/// What the background thread does beside stepping the engine.
pub(crate) struct Chores {
    pub(crate) scrubber: Arc<Mutex<Scrubber>>,
    /// Held while parts of long values are removed.
    pub(crate) sweeping: Arc<RwLock<()>>,
    /// Versions of long values that are being written, and keys of which one was replaced.
    pub(crate) uses: Arc<Uses>,
    pub(crate) store: Arc<Store>,
    /// Has the cache give way to what is resident, which the other tells.
    pub(crate) memory: Option<(Excess, Resident)>,
}

/// Says how many bytes of memory a store has.
#[derive(Clone)]
pub(crate) struct Resident(pub(crate) Arc<dyn Fn() -> u64 + Send + Sync>);

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resident")
    }
}

/// Runs the background thread: steps `engine` until `pace` stops it, or a step fails.
pub(crate) fn background(engine: &Lsm, pace: &Pace, chores: &Chores) {
    let panicked = EngineError::Closed("the background thread panicked");
    let mut ending = Ending::new(pace, panicked);
    ending.is(Stepper::new(engine, pace, chores, SystemClock.now()).run());
}

/// Whether a quarter of the device is left, or less.
fn is_mostly_used(store: &Store) -> bool {
    u64::from(store.used()) * 4 >= u64::from(store.total()) * 3
}

/// How long the thread has nothing to do.
struct Rest {
    /// For the engine.
    timeout: Duration,
    /// For the chores.
    chore_in: Option<Duration>,
}

struct Stepper<'a> {
    engine: &'a Lsm,
    pace: &'a Pace,
    chores: &'a Chores,
    sweeper: Sweeper,
    /// A whole sleep has passed in which nobody rang.
    quiet: bool,
    /// When it was last looked what is resident, and where the device is.
    looked: Instant,
}

impl<'a> Stepper<'a> {
    fn new(engine: &'a Lsm, pace: &'a Pace, chores: &'a Chores, now: Instant) -> Self {
        Self {
            engine,
            pace,
            chores,
            sweeper: Sweeper::new(SweepPace::alone(), Arc::clone(&chores.uses)),
            quiet: false,
            looked: now,
        }
    }

    fn run(&mut self) -> Result<(), EngineError> {
        while !self.pace.is_stopping() {
            if let Some(rest) = self.turn(SystemClock.now())? {
                self.pace.note_rest();
                self.sleep(rest.timeout, rest.chore_in);
            }
        }
        Ok(())
    }

    /// One step of the engine, and of the chores that are due. Returns how long there is nothing to do, if there
    /// is not.
    fn turn(&mut self, now: Instant) -> Result<Option<Rest>, EngineError> {
        self.pace.await_device(true);
        let progress = self.engine.step(now)?;
        self.look_around(now);
        // Not only when the engine rests: one that is written all the time never does.
        let scrub_in = self.scrub(now);
        // Writers of long values may wait for the space of what they replace.
        let sweep_in = self.sweep();
        if progress.made | self.chores.store.give_back_freed(now) {
            self.quiet = false;
            self.pace.note_progress();
            if self.pace.wanted_mark() > self.pace.marked() {
                // A mark counts once the edit is committed that names its segment.
                self.pace.ring_logs();
            }
            return Ok(None);
        }
        self.pace.await_device(progress.device);
        let most = match self.engine.background_pending() {
            0 => REST_MAX,
            _ => SLEEP_MAX,
        };
        let chore_in = match (scrub_in, sweep_in) {
            (Some(scrub), Some(sweep)) => Some(scrub.min(sweep)),
            (scrub, sweep) => scrub.or(sweep),
        };
        Ok(Some(Rest {
            timeout: progress.idle_for.unwrap_or(most).min(most),
            chore_in,
        }))
    }

    /// Now and then looks whether the device is still in its place, and what is resident.
    fn look_around(&mut self, now: Instant) {
        if now < self.looked + Excess::EVERY {
            return;
        }
        self.looked = now;
        self.chores.store.look_for_place();
        if let Some((excess, resident)) = &self.chores.memory {
            excess.look((resident.0)());
        }
    }

    /// Reads the next segment if it is due, and says how long no other one is.
    fn scrub(&self, now: Instant) -> Option<Duration> {
        let mut scrubber = self.chores.scrubber.lock();
        let left = scrubber.idle(now)?;
        if !left.is_zero() {
            return Some(left);
        }
        // The scrubber keeps what it finds.
        let (_, idle) = scrubber.step(&*self.engine.stored(), now);
        idle
    }

    /// Looks at some long values' parts if that is due, and says how long no other ones are.
    fn sweep(&mut self) -> Option<Duration> {
        // Who keeps it away may wait for room, which this thread makes.
        let Some(_alone) = self.chores.sweeping.try_write() else {
            return Some(REST_MAX);
        };
        let short = self.engine.is_full() || is_mostly_used(&self.chores.store);
        // What cannot be read is told to who wants to read it.
        let stepped = self.sweeper.step(self.engine, SystemClock.now(), short);
        stepped.unwrap_or(Some(REST_MAX))
    }

    fn sleep(&mut self, timeout: Duration, chore_in: Option<Duration>) {
        let timeout = chore_in.map_or(timeout, |chore| timeout.min(chore));
        if !self.quiet || !self.is_settled() {
            self.quiet = !self.pace.sleep(timeout);
            return;
        }
        self.pace.sleep_long(chore_in, || self.is_settled());
        self.quiet = false;
    }

    /// Whether nothing is left to do, whatever time passes.
    fn is_settled(&self) -> bool {
        self.engine.background_pending() == 0 && self.engine.marked_lsn() >= self.engine.last_lsn()
    }
}

#[cfg(test)]
#[path = "stepper_tests.rs"]
pub(crate) mod tests;
