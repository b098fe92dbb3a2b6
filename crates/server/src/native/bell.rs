//! The bell of one client: an eventfd that it rings when it has laid a request and its thread sleeps.
//!
//! The client holds the same open file, and may do with it whatever it likes: make it block, fill it, or empty it
//! while others look. So nobody here reads it or writes to it. Its thread's epoll set tells of each ring as it comes
//! (edge-triggered), whatever the count is. A client that spoils its bell misses its own wakings alone: no two clients
//! share one, and what wakes the thread from inside is its mailbox's bell, which no client is given.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ClientBell {
    file: OwnedFd,
    /// The set that watches it.
    watched_by: Option<Arc<OwnedFd>>,
}

impl ClientBell {
    /// One that nobody watches yet.
    pub(super) fn new() -> io::Result<Self> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            file,
            watched_by: None,
        })
    }

    /// What the client is given.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Has `set` tell of each ring as `event`, until this is dropped.
    pub(super) fn watch(&mut self, set: &Arc<OwnedFd>, event: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(set, &self.file, epoll::EventData::new_u64(event), flags)?;
        self.watched_by = Some(Arc::clone(set));
        Ok(())
    }
}

impl Drop for ClientBell {
    fn drop(&mut self) {
        // Closing it would not do: the client holds the file, too.
        if let Some(set) = &self.watched_by {
            let _ = epoll::delete(set, &self.file);
        }
    }
}
