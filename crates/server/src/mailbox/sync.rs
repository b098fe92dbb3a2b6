//! What mailboxes are made of: a lock, a flag, and an eventfd. The twin of this file, over a model checker, is in
//! `tests/mailbox_protocol.rs`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};

/// An eventfd: readable from the first ring on until it is silenced.
#[derive(Debug)]
pub(crate) struct Eventfd(OwnedFd);

impl Eventfd {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    pub(super) fn ring(&self) {
        // Any count but zero rings the bell.
        const ONE: [u8; 8] = 1u64.to_le_bytes();
        // Fails only where the count is at its limit, and then the bell rings already.
        let _ = rustix::io::write(&self.0, &ONE);
    }

    pub(super) fn silence(&self) {
        let mut count = [0; 8];
        // Nothing to read is fine: the bell has been silenced before.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Eventfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
