//! How many commands were carried out, and how many a second lately.
//!
//! Nobody counts from second to second. Whoever asks leaves a mark: count and time. The next one is told the rate since
//! the latest mark that is a second old, or since the beginning. So a tool that asks every few seconds sees the average
//! between.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::Instant;

/// The shortest time over which a rate is told.
const LEAST: Duration = Duration::from_secs(1);

/// How many commands there were at one time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    count: u64,
}

/// The marks of those who asked last. The first is at least a second older than the second was when it was made.
#[derive(Clone, Copy, Debug)]
struct Marks {
    base: Mark,
    latest: Mark,
}

/// See the module documentation.
#[derive(Debug)]
pub struct CommandCount {
    count: AtomicU64,
    marks: Mutex<Marks>,
}

impl CommandCount {
    /// None so far, `at` the beginning.
    #[must_use]
    pub const fn new(at: Instant) -> Self {
        let mark = Mark { at, count: 0 };
        let marks = Marks {
            base: mark,
            latest: mark,
        };
        Self {
            count: AtomicU64::new(0),
            marks: Mutex::new(marks),
        }
    }

    /// So many more were carried out.
    pub fn add(&self, count: u64) {
        // Relaxed, here and below: a counter for people.
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    /// All so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many a second there were lately, `now` the present time.
    #[must_use]
    pub fn per_second(&self, now: Instant) -> u64 {
        let count = self.total();
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if LEAST <= now.since(marks.latest.at) {
            marks.base = marks.latest;
            marks.latest = Mark { at: now, count };
        }
        let millis = u64::try_from(now.since(marks.base.at).as_millis()).unwrap_or(u64::MAX);
        let more = count.saturating_sub(marks.base.count);
        more.saturating_mul(1000) / millis.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_since_somebody_asked_a_second_ago() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let commands = CommandCount::new(at(0));
        commands.add(500);
        assert_eq!(commands.per_second(at(2000)), 250);
        commands.add(3000);
        // The mark is half a second old: the one before counts.
        assert_eq!(commands.per_second(at(2500)), 1400);
        assert_eq!(commands.per_second(at(4000)), 1500);
        assert_eq!(commands.per_second(at(6000)), 0);
        assert_eq!(commands.total(), 3500);
    }
}
