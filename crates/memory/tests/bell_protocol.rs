//! The protocol of bells, in every order that the memory model allows: no wakeup is lost.
//!
//! `bell/words.rs` is compiled here once more, over the atomics of the model checker `loom` instead of the
//! standard library's. Where an owner sleeps although it was rung, nobody wakes it, and loom says so.

#[path = "../src/bell"]
mod bell {
    mod words;

    /// The twin of `src/bell/sync.rs`.
    mod sync {
        pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};
    }

    use loom::sync::{Condvar, Mutex};
    use sync::{AtomicU32, Ordering};
    use words::Words;

    /// A bell of which the kernel's part is a lock and a condition.
    pub(super) struct Bell {
        rings: AtomicU32,
        parked: AtomicU32,
        kernel: Mutex<()>,
        woken: Condvar,
    }

    impl Bell {
        pub(super) fn new() -> Self {
            Self {
                rings: AtomicU32::new(u32::MAX),
                parked: AtomicU32::new(0),
                kernel: Mutex::new(()),
                woken: Condvar::new(),
            }
        }

        fn words(&self) -> Words<'_> {
            Words {
                rings: &self.rings,
                parked: &self.parked,
            }
        }

        pub(super) fn rings(&self) -> u32 {
            self.words().rings()
        }

        pub(super) fn ring(&self) {
            self.words().ring(|_| {
                let kernel = self.kernel.lock().expect("nobody panics with it");
                self.woken.notify_all();
                drop(kernel);
            });
        }

        /// As a futex does it: looks and goes to sleep at once.
        pub(super) fn park(&self, seen: u32) {
            self.words().park(seen, |rings| {
                let kernel = self.kernel.lock().expect("nobody panics with it");
                if rings.load(Ordering::SeqCst) == seen {
                    drop(self.woken.wait(kernel).expect("nobody panics with it"));
                }
            });
        }
    }
}

use bell::Bell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};

/// An owner works off what `peers` peers bring, and sleeps in between.
fn no_wakeup_is_lost(peers: u32) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let bell = Arc::new(Bell::new());
        let work = Arc::new(AtomicU32::new(0));
        for _ in 0..peers {
            let (bell, work) = (Arc::clone(&bell), Arc::clone(&work));
            loom::thread::spawn(move || {
                work.fetch_add(1, Ordering::Relaxed);
                bell.ring();
            });
        }
        loop {
            let seen = bell.rings();
            if work.load(Ordering::Relaxed) == peers {
                break;
            }
            bell.park(seen);
        }
    });
}

#[test]
fn an_owner_that_goes_to_sleep_hears_the_bell() {
    no_wakeup_is_lost(1);
}

#[test]
fn an_owner_that_is_rung_by_two_misses_neither() {
    no_wakeup_is_lost(2);
}
