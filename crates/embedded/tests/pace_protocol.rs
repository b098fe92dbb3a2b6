//! What a store's threads and its callers tell each other, in every order that the memory model
//! allows: nobody sleeps for good.
//!
//! `pace.rs` is compiled here once more, over the atomics, locks and conditions of the model checker `loom`
//! instead of the standard library's. Time does not pass here: a sleep ends when somebody ends it. Where
//! nobody does, loom says so.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "some of the source's parts serve others, and lints look at them where they live"
)]

#[path = "../src"]
mod embedded {
    pub(crate) mod pace;

    /// The twin of `src/sync.rs`.
    mod sync {
        use std::sync::LockResult;
        use std::time::Duration;

        use argosy_base::{Clock, Instant, Moment};
        pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
        pub(super) use loom::sync::{Mutex, MutexGuard};
        pub(super) use std::sync::PoisonError;

        /// A clock that stands still.
        pub(super) struct SystemClock;

        impl Clock for SystemClock {
            fn now(&self) -> Instant {
                Instant::from_nanos(0)
            }

            fn wall(&self) -> Moment {
                Moment(0)
            }

            fn thread_cpu(&self) -> Duration {
                Duration::ZERO
            }
        }

        /// A wait that never ends by itself.
        pub(super) struct Endless;

        impl Endless {
            pub(super) const fn timed_out(&self) -> bool {
                false
            }
        }

        /// Loom's, with the standard library's other ways to wait.
        #[derive(Debug, Default)]
        pub(super) struct Condvar(loom::sync::Condvar);

        impl Condvar {
            pub(super) fn notify_one(&self) {
                self.0.notify_one();
            }

            pub(super) fn notify_all(&self) {
                self.0.notify_all();
            }

            pub(super) fn wait_while<'a, T>(
                &self,
                mut guard: MutexGuard<'a, T>,
                mut condition: impl FnMut(&mut T) -> bool,
            ) -> LockResult<MutexGuard<'a, T>> {
                while condition(&mut guard) {
                    guard = self.0.wait(guard).expect("nobody panics with it");
                }
                Ok(guard)
            }

            pub(super) fn wait_timeout_while<'a, T>(
                &self,
                guard: MutexGuard<'a, T>,
                _: Duration,
                condition: impl FnMut(&mut T) -> bool,
            ) -> LockResult<(MutexGuard<'a, T>, Endless)> {
                let guard = self.wait_while(guard, condition);
                Ok((guard.expect("nobody panics with it"), Endless))
            }

            pub(super) fn wait_timeout<'a, T>(
                &self,
                guard: MutexGuard<'a, T>,
                _: Duration,
            ) -> LockResult<(MutexGuard<'a, T>, Endless)> {
                let guard = self.0.wait(guard).expect("nobody panics with it");
                Ok((guard, Endless))
            }
        }
    }
}

use std::time::Duration;

use argosy_base::Lsn;
use argosy_engine::EngineError;
use embedded::pace::Pace;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

/// Runs `test` in all orders in which threads are interrupted at most twice.
fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

/// Writes of `writers` threads find the background thread on its way to a long sleep.
fn every_write_is_seen(writers: u64) {
    model(move || {
        let pace = Arc::new(Pace::default());
        // What the engine knows of orders nothing here.
        let last = Arc::new(AtomicU64::new(0));
        for _ in 0..writers {
            let (pace, last) = (Arc::clone(&pace), Arc::clone(&last));
            loom::thread::spawn(move || {
                last.fetch_add(1, Ordering::Relaxed);
                pace.wrote();
            });
        }
        let mut durable = 0;
        while durable < writers {
            pace.sleep_long(None, || last.load(Ordering::Relaxed) == durable);
            durable = last.load(Ordering::Relaxed);
        }
    });
}

#[test]
fn a_thread_that_goes_to_sleep_sees_the_write() {
    every_write_is_seen(1);
}

#[test]
fn a_thread_that_goes_to_sleep_sees_both_writes() {
    every_write_is_seen(2);
}

/// The thread of the logs as its callers see it: makes durable what is wanted, and sleeps in between.
fn make_durable(pace: &Pace, up_to: u64) {
    while pace.durable() < up_to {
        let wanted = pace.wanted();
        if wanted > pace.durable() {
            pace.note_durable(Lsn(wanted));
        } else {
            pace.sleep_logs(None);
        }
    }
}

/// The background thread is at a merge, and does nothing for who waits for durability: who makes the logs durable
/// sleeps until the device has done what it was asked.
#[test]
fn the_device_wakes_the_thread_of_the_logs() {
    model(|| {
        let pace = Arc::new(Pace::default());
        // What the device has done orders nothing here.
        let synced = Arc::new(AtomicU64::new(0));
        loom::thread::spawn({
            let (pace, synced) = (Arc::clone(&pace), Arc::clone(&synced));
            move || {
                synced.store(1, Ordering::Relaxed);
                pace.device_done();
            }
        });
        let caller = loom::thread::spawn({
            let pace = Arc::clone(&pace);
            move || pace.until_durable(Lsn(1), Duration::ZERO, || false)
        });
        while pace.durable() < 1 {
            pace.await_device_for_logs(true);
            let is_synced = synced.load(Ordering::Relaxed) == 1;
            if is_synced {
                pace.await_device_for_logs(false);
            }
            if is_synced && pace.wanted() > 0 {
                pace.note_durable(Lsn(1));
            } else {
                pace.sleep_logs(None);
            }
        }
        let waited = caller.join().expect("it is told");
        waited.expect("it is made durable");
    });
}

/// Both threads wait for the device.
#[test]
fn the_device_wakes_both_threads() {
    model(|| {
        let pace = Arc::new(Pace::default());
        let ended = Arc::new(AtomicU64::new(0));
        let logs = loom::thread::spawn({
            let (pace, ended) = (Arc::clone(&pace), Arc::clone(&ended));
            move || {
                pace.await_device_for_logs(true);
                while ended.load(Ordering::Relaxed) == 0 {
                    pace.sleep_logs(None);
                }
            }
        });
        loom::thread::spawn({
            let (pace, ended) = (Arc::clone(&pace), Arc::clone(&ended));
            move || {
                ended.store(1, Ordering::Relaxed);
                pace.device_done();
            }
        });
        pace.await_device(true);
        while ended.load(Ordering::Relaxed) == 0 {
            pace.sleep(Duration::MAX);
        }
        logs.join().expect("it is woken");
    });
}

/// Callers who wait, each for another LSN, are told, and what they are told is so.
#[test]
fn whoever_waits_for_durability_is_told() {
    model(|| {
        let pace = Arc::new(Pace::default());
        for lsn in [1, 2] {
            let pace = Arc::clone(&pace);
            loom::thread::spawn(move || {
                let waited = pace.until_durable(Lsn(lsn), Duration::ZERO, || false);
                waited.expect("it is made durable");
                assert!(pace.durable() >= lsn);
            });
        }
        make_durable(&pace, 2);
    });
}

/// A store is closed while somebody waits for what will not become durable any more.
#[test]
fn whoever_waits_is_told_that_it_has_ended() {
    model(|| {
        let pace = Arc::new(Pace::default());
        let caller = loom::thread::spawn({
            let pace = Arc::clone(&pace);
            move || pace.until_durable(Lsn(1), Duration::ZERO, || false)
        });
        pace.end(Lsn(0), &Ok(()));
        let waited = caller.join().expect("it is told");
        assert!(matches!(waited, Err(EngineError::Closed(_))), "{waited:?}");
        assert!(pace.ended().is_some());
    });
}

/// The threads are told to stop on their way to a long sleep.
#[test]
fn threads_that_go_to_sleep_hear_that_they_are_to_stop() {
    model(|| {
        let pace = Arc::new(Pace::default());
        loom::thread::spawn({
            let pace = Arc::clone(&pace);
            move || pace.stop()
        });
        let logs = loom::thread::spawn({
            let pace = Arc::clone(&pace);
            move || {
                while !pace.is_stopping() {
                    pace.sleep_logs(None);
                }
            }
        });
        while !pace.is_stopping() {
            pace.sleep_long(None, || true);
        }
        logs.join().expect("it hears of it");
    });
}

/// Whoever finds no room tries again once something was done.
#[test]
fn whoever_waits_for_room_is_told_of_progress() {
    model(|| {
        let pace = Arc::new(Pace::default());
        let room = Arc::new(AtomicU64::new(0));
        loom::thread::spawn({
            let (pace, room) = (Arc::clone(&pace), Arc::clone(&room));
            move || {
                let attempt = || Ok((room.load(Ordering::Relaxed) == 1).then_some(()));
                let found = pace.until_room(Duration::MAX, attempt, |ended| ended);
                assert!(matches!(found, Ok(Some(()))));
            }
        });
        // It rings before it sleeps.
        pace.sleep_long(None, || room.load(Ordering::Relaxed) == 0);
        room.store(1, Ordering::Relaxed);
        pace.note_progress();
    });
}
