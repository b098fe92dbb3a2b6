//! The protocol of mailboxes, in every order that the memory model allows: nothing lies unread while the owner
//! sleeps.
//!
//! `mailbox/post.rs` is compiled here once more, over the lock and the flag of the model checker `loom` instead of the
//! standard library's, and with a bell that loom can wait for. An owner that sleeps although there is post is
//! woken by nobody, and loom says so.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "some of the source's parts serve others, and lints look at them where they live"
)]

#[path = "../src/mailbox"]
mod mailbox {
    pub(crate) mod post;

    /// The twin of `src/mailbox/sync.rs`.
    pub(crate) mod sync {
        use std::io;
        use std::os::fd::{AsFd, BorrowedFd};

        use loom::sync::Condvar;
        pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
        pub(crate) use loom::sync::{Mutex, MutexGuard};
        pub(crate) use std::sync::PoisonError;

        /// An eventfd that one waits for by a condition.
        #[derive(Debug)]
        pub(crate) struct Eventfd {
            rung: Mutex<bool>,
            heard: Condvar,
        }

        impl Eventfd {
            pub(crate) fn new() -> io::Result<Self> {
                Ok(Self {
                    rung: Mutex::new(false),
                    heard: Condvar::new(),
                })
            }

            pub(crate) fn ring(&self) {
                let mut rung = self.lock();
                *rung = true;
                self.heard.notify_all();
            }

            pub(crate) fn silence(&self) {
                *self.lock() = false;
            }

            /// As epoll: until it is readable.
            pub(crate) fn wait(&self) {
                let mut rung = self.lock();
                while !*rung {
                    rung = self.heard.wait(rung).expect("nobody panics with it");
                }
            }

            fn lock(&self) -> MutexGuard<'_, bool> {
                self.rung.lock().expect("nobody panics with it")
            }
        }

        impl AsFd for Eventfd {
            fn as_fd(&self) -> BorrowedFd<'_> {
                unreachable!("it is waited for by `wait`")
            }
        }
    }
}

mod service {
    pub(crate) use argosy_server::service::{ReplySink, Response};
}

use loom::sync::Arc;
use mailbox::post::{Mailbox, Post};
use service::{ReplySink, Response};

/// An owner takes its post, and sleeps while there is none, until it has `answers` answers and was told to stop.
fn everything_is_read(answers: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mailbox = Arc::new(Mailbox::<()>::new().expect("it is made"));
        for token in 0..answers {
            let mailbox = Arc::clone(&mailbox);
            loom::thread::spawn(move || mailbox.deliver(token, Response::Value(None)));
        }
        let stopper = Arc::clone(&mailbox);
        loom::thread::spawn(move || stopper.stop());
        let (mut read, mut stopped) = (0, false);
        loop {
            let mut post = Post::default();
            mailbox.take(&mut post);
            read += post.answers.len() as u64;
            stopped |= post.stop;
            if read == answers && stopped {
                break;
            }
            let sleeps = mailbox.may_sleep();
            if sleeps {
                mailbox.bell().wait();
            }
            mailbox.awake(sleeps);
        }
    });
}

#[test]
fn an_owner_that_goes_to_sleep_hears_that_it_is_to_stop() {
    everything_is_read(0);
}

#[test]
fn an_owner_that_goes_to_sleep_finds_what_two_bring() {
    everything_is_read(1);
}
