//! How the threads of a trial wait: until a moment, or until the trial is over.

use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_device::SystemClock;
use parking_lot::{Condvar, Mutex};

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

    /// Waits until the next multiple of `tick`, so that all who do begin at the same time. False as of
    /// [`wait_until`](Self::wait_until).
    pub(crate) fn wait_for_tick(&self, tick: Duration) -> bool {
        let tick = u64::try_from(tick.as_nanos()).expect("it is short");
        let now = SystemClock.now().as_nanos();
        self.wait_until(Instant::from_nanos((now / tick + 1) * tick))
    }

    /// Waits until `moment`. False where the end came first, or has come.
    pub(crate) fn wait_until(&self, moment: Instant) -> bool {
        let mut over = self.over.lock();
        loop {
            let left = moment.since(SystemClock.now());
            if *over || left.is_zero() {
                return !*over;
            }
            self.bell.wait_for(&mut over, left);
        }
    }
}
