//! The clock of a client that is given no other.

use std::time::Duration;

use argosy_base::{Clock, Instant};
use rustix::time::{ClockId, clock_gettime};

/// The machine's monotonic clock. A client asks for nothing else: no key expires here, and no CPU time is counted.
#[derive(Debug)]
pub(super) struct Monotonic;

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
