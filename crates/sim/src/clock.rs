//! The simulated clock: it stands still until the run moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Instant, Moment};

use crate::cluster::halting::Halt;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct SimClock(AtomicU64);

impl SimClock {
    /// Moves the clock on by `span`.
    pub(crate) fn advance(&self, span: Duration) {
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

/// The clock of one server. What it shows on the wall is wrong by so much; where groups change, it drifts.
#[derive(Debug)]
pub(crate) struct ServerClock {
    common: Arc<SimClock>,
    /// Milliseconds since 1970 at the run's beginning, as it takes them to be.
    began: AtomicU64,
    /// How far ahead it is, in nanoseconds, and how many millionths it gains.
    ahead: u64,
    gains: i32,
    /// Where the server's steps may be stopped.
    halt: Arc<Halt>,
}

/// When runs begin.
pub(crate) const BEGAN: Moment = Moment(1_000_000);

impl ServerClock {
    /// A clock that is right.
    #[must_use]
    pub(crate) fn new(common: Arc<SimClock>) -> Self {
        Self {
            halt: Arc::default(),
            common,
            began: AtomicU64::new(BEGAN.0),
            ahead: 0,
            gains: 0,
        }
    }

    /// The same, ahead by so much, and gaining so many millionths.
    #[must_use]
    pub(crate) fn drifting(self, ahead: Duration, gains: i32) -> Self {
        Self {
            ahead: u64::try_from(ahead.as_nanos()).expect("a span of a run"),
            gains,
            ..self
        }
    }

    /// Where the steps may be stopped of the server that looks at it.
    pub(crate) const fn halt(&self) -> &Arc<Halt> {
        &self.halt
    }

    /// Sets it, so that the run would have begun at `began`.
    pub(crate) fn set(&self, began: Moment) {
        self.began.store(began.0, Ordering::Relaxed);
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Instant {
        let common = self.common.now().as_nanos();
        let gained = u128::from(common) * u128::from(self.gains.unsigned_abs()) / 1_000_000;
        let gained = u64::try_from(gained).expect("less than the time itself");
        let own = match self.gains < 0 {
            true => common - gained,
            false => common + gained,
        };
        let now = Instant::from_nanos(self.ahead + own);
        self.halt.looked_at();
        now
    }

    fn wall(&self) -> Moment {
        let began = Moment(self.began.load(Ordering::Relaxed));
        began.after(self.common.now().as_nanos() / 1_000_000)
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}
