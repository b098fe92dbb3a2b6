//! Where time comes from. Nothing in Argosy asks the operating system for it: whoever moves is
//! given `now`, so that a simulator can be the clock.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A moment of a monotonic clock, in nanoseconds since an origin that only this process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Later than every moment that a clock shows.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero where it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A moment as the clock on the wall tells it: milliseconds since 1970, UTC. Clocks of servers differ,
/// and may be set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment `millis` milliseconds later.
    #[must_use]
    pub const fn after(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds since `earlier`; 0 where it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A source of time. Production has one real clock a process; the simulator has its own.
pub trait Clock: Send + Sync {
    /// The present moment. Never goes backwards.
    fn now(&self) -> Instant;

    /// What the clock on the wall shows. A clock without one is at the beginning: then nothing ever
    /// expires.
    fn wall(&self) -> Moment {
        Moment(0)
    }

    /// CPU time that the calling thread has used. A simulated clock may answer zero.
    fn thread_cpu(&self) -> Duration;
}
