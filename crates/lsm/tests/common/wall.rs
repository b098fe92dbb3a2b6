//! A clock on the wall that is set by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Instant, Moment};

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Wall(AtomicU64);

impl Wall {
    pub(crate) fn set(&self, moment: u64) {
        self.0.store(moment, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clock for Wall {
    fn now(&self) -> Instant {
        Instant::default()
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> Moment {
        Moment(self.get())
    }
}
