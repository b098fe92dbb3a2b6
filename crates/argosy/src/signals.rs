//! SIGINT and SIGTERM as something to wait for.
//!
//! The first signal becomes readable on a pipe; a second one ends the process at once, with 128
//! plus its number. That is safe at any moment: what was acknowledged is in logs that outlive the
//! process.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// Both signals.
pub(crate) struct Signals {
    pipe: UnixStream,
}

impl Signals {
    /// Begins to catch them.
    pub(crate) fn catch() -> std::io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let seen = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds `seen` still false.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen))?;
            flag::register(signal, Arc::clone(&seen))?;
            low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self { pipe: read })
    }

    /// Waits until a signal has come.
    pub(crate) fn wait(&self) -> std::io::Result<()> {
        while !self.wait_or(&[], None)? {}
        Ok(())
    }

    /// Waits for a signal, for one of `others` to become readable, or for `timeout`. Returns whether a
    /// signal came.
    pub(crate) fn wait_or(
        &self,
        others: &[BorrowedFd<'_>],
        timeout: Option<Timespec>,
    ) -> std::io::Result<bool> {
        let fds = std::iter::once(self.pipe.as_fd()).chain(others.iter().copied());
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let signal = !fds[0].revents().is_empty();
        if signal {
            (&self.pipe).read_exact(&mut [0])?;
        }
        Ok(signal)
    }
}
