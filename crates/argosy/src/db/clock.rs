//! The system's clock, for a store in a program that has no other.

use std::time::Duration;

use argosy_base::{Clock, Instant, Moment};
use rustix::time::{ClockId, clock_gettime};

/// The kernel's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        let nanos = u64::try_from(read(ClockId::Monotonic).as_nanos());
        Instant::from_nanos(nanos.expect("a machine does not run for 584 years"))
    }

    fn wall(&self) -> Moment {
        let millis = u64::try_from(read(ClockId::Realtime).as_millis());
        Moment(millis.expect("millions of years"))
    }

    fn thread_cpu(&self) -> Duration {
        read(ClockId::ThreadCPUTime)
    }
}

fn read(id: ClockId) -> Duration {
    Duration::try_from(clock_gettime(id)).expect("these clocks do not go below zero")
}
