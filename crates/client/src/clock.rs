//! The clocks of the system, for clients that are given no other.

use std::time::Duration;

use argosy_base::{Clock, Instant};
use rustix::time::{ClockId, clock_gettime};

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(nanos(ClockId::Monotonic))
    }

    fn thread_cpu(&self) -> Duration {
        Duration::from_nanos(nanos(ClockId::ThreadCPUTime))
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
