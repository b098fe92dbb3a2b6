//! The kernel's clocks, for whoever is an outer shell: all else is handed a [`Clock`].

use std::time::Duration;

use argosy_base::{Clock, Instant, Moment};
use rustix::time::{ClockId, clock_gettime};

/// The clocks of the machine and of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// CPU time that all threads of this process have used.
    #[must_use]
    pub fn process_cpu(self) -> Duration {
        read(ClockId::ProcessCPUTime)
    }
}

impl Clock for SystemClock {
    /// `CLOCK_BOOTTIME` counts the time that the machine is suspended, so a lease expires during a suspend, too. On
    /// `CLOCK_MONOTONIC` a server that wakes up would still count on an expired lease.
    #[inline]
    fn now(&self) -> Instant {
        let nanos = u64::try_from(read(ClockId::Boottime).as_nanos());
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

#[inline]
fn read(id: ClockId) -> Duration {
    Duration::try_from(clock_gettime(id)).expect("these clocks do not go below zero")
}
