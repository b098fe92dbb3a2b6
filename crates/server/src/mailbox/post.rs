//! How other threads reach a front end's thread: late answers, new connections, and the order to stop
//! go into its mailbox, and a bell (an eventfd in its epoll set) wakes it if it sleeps.
//!
//! The bell is rung only for a sleeper. Who posts, posts first and then looks whether the thread
//! sleeps; who goes to sleep, says so first and then looks for post. Whatever the order, one of the
//! two sees the other, so nothing lies unread while the thread sleeps.

use std::io;

use super::sync::{AtomicBool, Eventfd, Mutex, MutexGuard, Ordering, PoisonError};
use crate::service::{ReplySink, Response};

/// What lies in a mailbox.
#[derive(Debug)]
pub(crate) struct Post<A> {
    /// Late answers with their tokens. Bounded by the calls in flight of the thread's sessions.
    pub answers: Vec<(u64, Response)>,
    /// New connections. Bounded by the most connections there may be.
    pub arrivals: Vec<A>,
    /// Finish what has been received, and end.
    pub stop: bool,
    /// Something that the owner waits for has happened elsewhere: it has to look.
    pub nudged: bool,
}

impl<A> Default for Post<A> {
    fn default() -> Self {
        Self {
            answers: Vec::new(),
            arrivals: Vec::new(),
            stop: false,
            nudged: false,
        }
    }
}

impl<A> Post<A> {
    const fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.arrivals.is_empty() && !self.stop && !self.nudged
    }
}

/// The mailbox of one thread, which is handed arrivals of type `A`.
#[derive(Debug)]
pub(crate) struct Mailbox<A> {
    post: Mutex<Post<A>>,
    /// The owner waits in epoll, or is about to.
    asleep: AtomicBool,
    bell: Eventfd,
}

impl<A> Mailbox<A> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            post: Mutex::new(Post::default()),
            asleep: AtomicBool::new(false),
            bell: Eventfd::new()?,
        })
    }

    /// What becomes readable when the owner is to wake.
    pub(crate) const fn bell(&self) -> &Eventfd {
        &self.bell
    }

    pub(crate) fn hand(&self, arrival: A) {
        self.lock().arrivals.push(arrival);
        self.wake();
    }

    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.wake();
    }

    /// Takes all post, leaving `empty`, whose memory is used again, in its place.
    pub(crate) fn take(&self, empty: &mut Post<A>) {
        debug_assert!(empty.is_empty(), "post is not thrown away");
        std::mem::swap(&mut *self.lock(), empty);
    }

    /// Says that the owner goes to sleep. `false`: there is post, and it must not.
    pub(crate) fn may_sleep(&self) -> bool {
        // Sequentially consistent, as in `wake`: see the module's description. Everywhere an exchange, since the
        // model checker knows of no order between those and plain stores.
        self.asleep.swap(true, Ordering::SeqCst);
        if self.lock().is_empty() {
            return true;
        }
        self.asleep.swap(false, Ordering::SeqCst);
        false
    }

    /// The owner is awake again; `rung`, if by the bell.
    pub(crate) fn awake(&self, rung: bool) {
        self.asleep.swap(false, Ordering::SeqCst);
        if rung {
            self.bell.silence();
        }
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Post<A>> {
        // A panic aborts the process; in tests the post is consistent after every line above.
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Send> ReplySink for Mailbox<A> {
    fn deliver(&self, token: u64, response: Response) {
        self.lock().answers.push((token, response));
        self.wake();
    }

    /// Has the owner look at what it waits for.
    fn nudge(&self) {
        self.lock().nudged = true;
        self.wake();
    }
}
