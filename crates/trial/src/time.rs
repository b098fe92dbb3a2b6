//! The clock of a trial, and how its threads wait: until a moment, or until the trial is over.

use std::time::Duration;

use argosy_base::{Clock, Instant};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

/// The machine's monotonic clock. All clients of a trial are threads of one process and share it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> Instant {
        let since = Duration::try_from(clock_gettime(ClockId::Monotonic));
        let nanos = since.map(|since| u64::try_from(since.as_nanos()));
        Instant::from_nanos(nanos.expect("not below zero").expect("584 years"))
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

/// Whether the load is over, which threads look at while they wait.
#[derive(Debug, Default)]
pub(crate) struct End {
    over: Mutex<bool>,
    bell: Condvar,
}

impl End {
    /// Has all that wait go on.
    pub(crate) fn come(&self) {
        *self.over.lock() = true;
        self.bell.notify_all();
    }

    /// Waits until `moment`. False where the end came first, or has come.
    pub(crate) fn wait_until(&self, moment: Instant) -> bool {
        let mut over = self.over.lock();
        loop {
            let left = moment.since(Monotonic.now());
            if *over || left.is_zero() {
                return !*over;
            }
            self.bell.wait_for(&mut over, left);
        }
    }
}
