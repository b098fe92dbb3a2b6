//! How either side of a connection sleeps, and misses nothing that the other has laid for it.
//!
//! Both write before they read, with full fences between; so of two that pass each other at least one sees
//! what the other has written:
//!
//! ```text
//! server                                  client
//! 1. asleep := 1 in every memory          a. lay the request
//! 2. full fence                           b. full fence
//! 3. a request, or post? then go on       c. asleep? then ring the bell
//! 4. sleep until the bell or a socket
//!
//! client                                  server
//! 1. parked += 1, seen := rings           a. answer
//! 2. full fence                           b. full fence
//! 3. an answer? then go on                c. parked? then rings += 1, and wake who sleeps
//! 4. sleep while rings == seen
//! 5. parked -= 1
//! ```
//!
//! The words lie in the connection's memory. How one sleeps, and is woken, is handed in.

use super::sync::{AtomicU32, Ordering, fence};

/// Whether requests were laid for which the server has not been rung. One thread of a client rings for all:
/// once for many requests, since a server that is woken for the first of them takes the processor from
/// whoever lays the others.
#[derive(Debug, Default)]
pub struct Unrung {
    /// How many were laid; wraps.
    laid: AtomicU32,
    /// For how many of them somebody rings.
    rung: AtomicU32,
}

impl Unrung {
    /// A request was laid. `laid` counts them, and lies under the lock under which they are.
    #[inline]
    pub fn add(&self, laid: &mut u32) {
        *laid = laid.wrapping_add(1);
        self.laid.store(*laid, Ordering::Release);
    }

    /// Whether this thread has to look whether the server sleeps. Where it has not, another does, and sees
    /// what was laid.
    #[inline]
    #[must_use]
    pub fn take(&self) -> bool {
        let laid = self.laid.load(Ordering::Acquire);
        // Asked for each answer that is waited for, and mostly there is nothing: loads cost less.
        self.rung.load(Ordering::Relaxed) != laid && self.rung.swap(laid, Ordering::Relaxed) != laid
    }
}

/// The word in which a server says to one client whether it sleeps: see [`ASLEEP_AT`](super::ASLEEP_AT).
#[derive(Clone, Copy, Debug)]
pub struct Asleep<'a>(pub &'a AtomicU32);

impl Asleep<'_> {
    /// For the server: says to `all` clients that it sleeps. `false` where `has_next` finds a request
    /// that one of them has laid meanwhile: then it must not.
    #[must_use]
    pub fn may_sleep<'a>(
        all: impl Iterator<Item = Asleep<'a>>,
        has_next: impl FnOnce() -> bool,
    ) -> bool {
        for client in all {
            client.0.store(1, Ordering::SeqCst);
        }
        // Pairs with the fence in `has_to_be_rung`.
        fence(Ordering::SeqCst);
        !has_next()
    }

    /// For the server: it does not sleep any more.
    #[inline]
    pub fn awake(self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// For a client that has laid a request: whether the server has to be rung to see it.
    #[inline]
    #[must_use]
    pub fn has_to_be_rung(self) -> bool {
        // Pairs with the fence in `may_sleep`.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst) != 0
    }
}

/// The words by which threads of a client sleep until there are answers: see [`PARKED_AT`](super::PARKED_AT)
/// and [`RINGS_AT`](super::RINGS_AT).
#[derive(Clone, Copy, Debug)]
pub struct Parking<'a> {
    /// How many threads sleep, or are about to.
    pub parked: &'a AtomicU32,
    /// Counts wake-ups, and wraps.
    pub rings: &'a AtomicU32,
}

impl Parking<'_> {
    /// For a client: calls `sleep`, which sleeps while `rings` is the count that it is given, unless
    /// `has_answer` finds one.
    pub fn sleep(self, has_answer: impl FnOnce() -> bool, sleep: impl FnOnce(u32)) {
        self.parked.fetch_add(1, Ordering::SeqCst);
        let seen = self.rings.load(Ordering::SeqCst);
        // Pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        if !has_answer() {
            sleep(seen);
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }

    /// For a server that has answered: calls `wake`, which wakes whoever sleeps on `rings`, if somebody may.
    #[inline]
    pub fn wake(self, wake: impl FnOnce()) {
        // Pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::SeqCst) != 0 {
            self.rings.fetch_add(1, Ordering::SeqCst);
            wake();
        }
    }
}
