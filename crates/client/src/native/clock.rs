//! The clock of a client that is given no other.

use std::time::Duration;

use argosy_base::{Clock, Instant, Moment};
use rustix::time::{ClockId, clock_gettime};

/// The machine's monotonic clock, and its time of day, with which the ids of clients begin. No key expires here, and no
/// CPU time is counted.
#[derive(Debug)]
pub(super) struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> Instant {
        let since = Duration::try_from(clock_gettime(ClockId::Monotonic));
        let nanos = since.map(|since| u64::try_from(since.as_nanos()));
        Instant::from_nanos(nanos.expect("not below zero").expect("584 years"))
    }

    fn wall(&self) -> Moment {
        let since = Duration::try_from(clock_gettime(ClockId::Realtime));
        let millis = since.map(|since| u64::try_from(since.as_millis()).unwrap_or_default());
        Moment(millis.unwrap_or_default())
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}
