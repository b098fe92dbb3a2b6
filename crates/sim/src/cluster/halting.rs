//! Processes that are stopped inside a step: between a look at the clock and whatever follows of it.
//!
//! 1. While a stop is due, each step of the server runs on a thread of its own ([`Halt::run`]), and the run waits for
//!    it. So there is still one thread at a time that does something, and a seed decides everything.
//! 2. The server's clock tells [`Halt::looked_at`] of each look. At the one that is due the thread waits there, with
//!    the time that it has read: the step has not ended, and the run goes on with the others.
//! 3. When the process goes on, or ends, the thread does the rest of the step ([`HaltedStep::go_on`]), and the run
//!    waits for that again.
//!
//! Meanwhile nobody asks the node anything: the step may hold any of its locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use argosy_base::Instant;
use argosy_engine::Progress;
use argosy_server::node::Node;
use argosy_server::tasks::Tasks;
use parking_lot::{Condvar, Mutex};

/// What a step is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// The thread that moves links and messages.
    Fabric,
    /// That in the background.
    Background,
    /// A worker.
    Worker,
}

impl StepKind {
    /// Does the step.
    pub(super) fn run(self, node: &Node, tasks: &Tasks, now: Instant) -> Progress {
        match self {
            Self::Fabric => node.step_fabric(now),
            Self::Background => node.step_background(now),
            Self::Worker => Progress {
                made: tasks.step(node),
                ..Progress::default()
            },
        }
    }
}

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has ended; so many looks are left before one is stopped.
    Ended(u64),
    /// It runs, and is stopped at the look after so many more.
    Running(u64),
    /// It is stopped.
    Halted,
    /// It goes on.
    GoesOn,
}

/// Where the steps of one server are. See the module documentation.
#[derive(Debug)]
pub(crate) struct Halt {
    /// A step runs that may be stopped. Relaxed: the thread that asks was started, or stores it, after that.
    is_due: AtomicBool,
    place: Mutex<Place>,
    changed: Condvar,
}

/// How a step went that may be stopped.
pub(super) enum Ran {
    /// To its end. So many looks are left.
    Ended(Progress, u64),
    /// It is stopped.
    Halted(HaltedStep),
}

/// A step that is stopped. Without it, it goes on.
pub(super) struct HaltedStep {
    halt: Arc<Halt>,
    thread: Option<JoinHandle<Progress>>,
}

impl Default for Halt {
    fn default() -> Self {
        Self {
            is_due: AtomicBool::new(false),
            place: Mutex::new(Place::Ended(0)),
            changed: Condvar::new(),
        }
    }
}

impl Halt {
    /// The clock was looked at.
    pub(crate) fn looked_at(&self) {
        if !self.is_due.load(Ordering::Relaxed) {
            return;
        }
        let mut place = self.place.lock();
        match *place {
            Place::Running(0) => {
                self.is_due.store(false, Ordering::Relaxed);
                *place = Place::Halted;
                self.changed.notify_all();
                let is_halted = |place: &mut Place| *place == Place::Halted;
                self.changed.wait_while(&mut place, is_halted);
            }
            Place::Running(looks) => *place = Place::Running(looks - 1),
            Place::Ended(_) | Place::Halted | Place::GoesOn => {}
        }
    }

    /// Runs `step`, which is stopped at the look after `looks` more, if it takes so many.
    pub(super) fn run(
        self: &Arc<Self>,
        looks: u64,
        step: impl FnOnce() -> Progress + Send + 'static,
    ) -> Ran {
        *self.place.lock() = Place::Running(looks);
        self.is_due.store(true, Ordering::Relaxed);
        let ends = Ends(Arc::clone(self));
        let body = move || {
            let _ends = ends;
            step()
        };
        let thread = Builder::new().name("step".to_owned()).spawn(body);
        let step = HaltedStep {
            halt: Arc::clone(self),
            thread: Some(thread.expect("a thread can be started")),
        };
        let mut place = self.place.lock();
        let runs = |place: &mut Place| matches!(place, Place::Running(_));
        self.changed.wait_while(&mut place, runs);
        let ended = *place;
        drop(place);
        match ended {
            Place::Ended(left) => Ran::Ended(step.go_on(), left),
            _ => Ran::Halted(step),
        }
    }
}

/// Says that a step has ended, also where it panics.
struct Ends(Arc<Halt>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.is_due.store(false, Ordering::Relaxed);
        let mut place = self.0.place.lock();
        let left = match *place {
            Place::Running(left) => left,
            _ => 0,
        };
        *place = Place::Ended(left);
        self.0.changed.notify_all();
    }
}

impl HaltedStep {
    /// Has the step be done to its end.
    pub(super) fn go_on(mut self) -> Progress {
        let thread = self.thread.take().expect("it goes on once");
        self.release();
        match thread.join() {
            Ok(progress) => progress,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn release(&self) {
        let mut place = self.halt.place.lock();
        if *place == Place::Halted {
            *place = Place::GoesOn;
            self.halt.changed.notify_all();
        }
    }
}

impl Drop for HaltedStep {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.release();
            // That it panics is told there.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::Clock;

    use super::*;
    use crate::clock::{ServerClock, SimClock};

    fn looks(
        clock: &Arc<ServerClock>,
        seen: &Arc<Mutex<Vec<u64>>>,
    ) -> impl FnOnce() -> Progress + use<> {
        let (clock, seen) = (Arc::clone(clock), Arc::clone(seen));
        move || {
            for _ in 0..3 {
                let now = clock.now().as_nanos();
                seen.lock().push(now);
            }
            Progress::default()
        }
    }

    /// The look that is stopped shows the time before the stop, those behind it the time after.
    #[test]
    fn a_step_stops_at_the_look_that_is_due() {
        let common = Arc::<SimClock>::default();
        let clock = Arc::new(ServerClock::new(Arc::clone(&common)));
        let seen = Arc::<Mutex<Vec<u64>>>::default();
        let Ran::Ended(_, left) = clock.halt().run(4, looks(&clock, &seen)) else {
            panic!("it has fewer looks");
        };
        assert_eq!((left, seen.lock().len()), (1, 3));
        let Ran::Halted(step) = clock.halt().run(left, looks(&clock, &seen)) else {
            panic!("it has as many looks");
        };
        assert_eq!(*seen.lock(), [0; 4]);
        common.advance(std::time::Duration::from_nanos(7));
        assert_eq!(clock.now().as_nanos(), 7, "others look meanwhile");
        step.go_on();
        assert_eq!(*seen.lock(), [0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_step_that_is_given_up_is_done() {
        let clock = Arc::new(ServerClock::new(Arc::<SimClock>::default()));
        let seen = Arc::<Mutex<Vec<u64>>>::default();
        drop(clock.halt().run(0, looks(&clock, &seen)));
        assert_eq!(seen.lock().len(), 3);
    }
}
