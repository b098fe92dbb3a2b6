//! The thread that makes the logs of a store durable. It does not depend on the background thread, so no merge delays a
//! write that waits for the device.
//!
//! One flush runs at a time. The next one covers all writes that came meanwhile, so a write waits for two syncs at
//! most. With nothing left to do, the thread sleeps until the next flush is due or, when the windows rest, until the
//! next append.

use std::time::Duration;

use argosy_base::{Clock, Instant, Lsn};
use argosy_device::SystemClock;
use argosy_engine::{EngineError, Store as _};
use argosy_lsm::Lsm;

use crate::pace::{Pace, SLEEP_MAX};
use crate::stepper::Ending;

/// Runs the thread: makes the logs of `engine` durable until `pace` stops it, or a step fails.
pub(crate) fn make_durable(engine: &Lsm, pace: &Pace) {
    let panicked = EngineError::Closed("the thread of the logs panicked");
    let mut ending = Ending::new(pace, panicked);
    ending.is(LogStepper::new(engine, pace).run());
}

struct LogStepper<'a> {
    engine: &'a Lsm,
    pace: &'a Pace,
    /// The last flush that was asked for covers everything up to here.
    asked: Lsn,
    /// The same for the last one with a mark behind it.
    asked_mark: Lsn,
}

/// Nothing is to be done for so long; `None`: until somebody rings.
struct Rest(Option<Duration>);

impl<'a> LogStepper<'a> {
    const fn new(engine: &'a Lsm, pace: &'a Pace) -> Self {
        Self {
            engine,
            pace,
            asked: Lsn(0),
            asked_mark: Lsn(0),
        }
    }

    fn run(&mut self) -> Result<(), EngineError> {
        while !self.pace.is_stopping() {
            if let Some(Rest(timeout)) = self.turn(SystemClock.now())? {
                self.pace.sleep_logs(timeout);
            }
        }
        Ok(())
    }

    /// One step. Returns how long there is nothing to do, if there is not.
    fn turn(&mut self, now: Instant) -> Result<Option<Rest>, EngineError> {
        self.begin_flush();
        self.pace.await_device_for_logs(true);
        let progress = self.engine.step_logs(now)?;
        self.end_flush();
        if progress.made {
            self.pace.note_progress();
            return Ok(None);
        }
        self.pace.await_device_for_logs(progress.device);
        let most = progress.device.then_some(SLEEP_MAX);
        let timeout = match (progress.idle_for, most) {
            (Some(idle), Some(most)) => Some(idle.min(most)),
            (idle, most) => idle.or(most),
        };
        Ok(Some(Rest(timeout)))
    }

    /// Begins a flush of what somebody waits for, unless one is under way: what is written while one
    /// is goes with the next.
    fn begin_flush(&mut self) {
        let durable = self.pace.durable();
        if self.pace.wanted() > durable && self.asked.0 <= durable {
            self.asked = self.engine.last_lsn();
            self.engine.flush_now();
        }
        let marked = self.pace.marked();
        if self.pace.wanted_mark() > marked && self.asked_mark.0 <= marked {
            self.asked_mark = self.engine.last_lsn();
            self.engine.flush_and_mark();
        }
    }

    fn end_flush(&self) {
        if self.pace.wanted_mark() > self.pace.marked() {
            let marked = self.engine.marked_lsn();
            if marked.0 > self.pace.marked() {
                self.pace.note_marked(marked);
            }
        }
        if self.pace.wanted() <= self.pace.durable() {
            return;
        }
        let durable = self.engine.durable_lsn();
        if durable.0 > self.pace.durable() {
            self.pace.note_durable(durable);
        }
    }
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
