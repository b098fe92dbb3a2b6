//! How other threads reach an epoll thread: late answers, new connections, and the order to stop go
//! into its mailbox, and a bell (an eventfd in its epoll set) wakes it if it sleeps.
//!
//! The bell is rung only for a sleeper. Who posts, posts first and then looks whether the thread
//! sleeps; who goes to sleep, says so first and then looks for post. Whatever the order, one of the
//! two sees the other, so nothing lies unread while the thread sleeps.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::service::{ReplySink, Response};

/// A connection that was accepted and is handed to its thread.
#[derive(Debug)]
pub(super) struct Arrival {
    pub id: u64,
    pub stream: TcpStream,
}

/// What lies in a mailbox.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// Late answers with their tokens. Bounded by the calls in flight of the thread's sessions.
    pub answers: Vec<(u64, Response)>,
    /// New connections. Bounded by the most connections there may be.
    pub arrivals: Vec<Arrival>,
    /// Finish what has been received, and end.
    pub stop: bool,
}

impl Post {
    const fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.arrivals.is_empty() && !self.stop
    }
}

/// The mailbox of one epoll thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    post: Mutex<Post>,
    /// The owner waits in epoll, or is about to.
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            post: Mutex::new(Post::default()),
            asleep: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// What becomes readable when the owner is to wake.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn hand(&self, arrival: Arrival) {
        self.lock().arrivals.push(arrival);
        self.wake();
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.wake();
    }

    /// Takes all post, leaving `empty`, whose memory is used again, in its place.
    pub(super) fn take(&self, empty: &mut Post) {
        debug_assert!(empty.is_empty(), "post is not thrown away");
        std::mem::swap(&mut *self.lock(), empty);
    }

    /// Says that the owner goes to sleep. `false`: there is post, and it must not.
    pub(super) fn may_sleep(&self) -> bool {
        // Sequentially consistent, as in `wake`: see the module's description.
        self.asleep.store(true, Ordering::SeqCst);
        if self.lock().is_empty() {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The owner is awake again; `rung`, if by the bell.
    pub(super) fn awake(&self, rung: bool) {
        self.asleep.store(false, Ordering::SeqCst);
        if rung {
            let mut count = [0; 8];
            // Nothing to read is fine: the bell has been silenced before.
            let _ = rustix::io::read(&self.bell, &mut count);
        }
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // Any count but zero rings the bell.
            const ONE: [u8; 8] = 1u64.to_le_bytes();
            // Fails only where the count is at its limit, and then the bell rings already.
            let _ = rustix::io::write(&self.bell, &ONE);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Post> {
        // A panic aborts the process; in tests the post is consistent after every line above.
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplySink for Mailbox {
    fn deliver(&self, token: u64, response: Response) {
        self.lock().answers.push((token, response));
        self.wake();
    }
}
