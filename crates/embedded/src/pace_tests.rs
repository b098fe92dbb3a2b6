//! How long callers wait for the background thread, by a clock of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Instant, Lsn, Moment};
use argosy_engine::{BusyReason, EngineError};

use crate::pace::Pace;

/// A clock on which a minute passes from one look at it to the next.
struct Strides(AtomicU64);

impl Clock for Strides {
    fn now(&self) -> Instant {
        const MINUTE: u64 = 60_000_000_000;
        Instant::from_nanos(self.0.fetch_add(1, Ordering::Relaxed) * MINUTE)
    }

    fn wall(&self) -> Moment {
        Moment(0)
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

/// Somebody who waits for a full device is woken all the time, by what becomes durable for others, and is told all
/// the same once an hour is over.
#[test]
fn patience_for_durability_does_not_begin_anew_at_each_wakeup() {
    const TOLD_MAX: u32 = 100_000;
    let pace = Arc::new(Pace::default());
    let done = Arc::new(AtomicBool::new(false));
    let others = std::thread::Builder::new().spawn({
        let (pace, done) = (Arc::clone(&pace), Arc::clone(&done));
        move || {
            for told in 0.. {
                if done.load(Ordering::Acquire) {
                    break;
                }
                pace.note_durable(Lsn(1));
                if told == TOLD_MAX {
                    pace.tell_end(EngineError::Closed("it was told often enough"));
                }
                std::thread::yield_now();
            }
        }
    });
    let clock = Strides(AtomicU64::new(0));
    let hour = Duration::from_secs(3600);
    let waited = pace.until_durable_by(&clock, Lsn(2), hour, || true);
    done.store(true, Ordering::Release);
    others.expect("threads").join().expect("no panic");
    let full = EngineError::Busy(BusyReason::DeviceFull);
    assert_eq!(
        waited.map_err(|error| error.to_string()),
        Err(full.to_string())
    );
    // When it began, and after each of sixty wake-ups.
    assert_eq!(clock.0.into_inner(), 61);
}
