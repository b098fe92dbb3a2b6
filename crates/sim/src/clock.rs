//! The simulated clock: it stands still until the run moves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Instant};

/// See the module documentation.
#[derive(Debug, Default)]
pub struct SimClock(AtomicU64);

impl SimClock {
    /// Moves the clock on by `span`.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).expect("a span of a run");
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}
