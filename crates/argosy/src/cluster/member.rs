//! A server of a cluster: its process, and in which state it is.
//!
//! The kernel says the state, not a record of what was done: somebody may send signals by hand. A server whose
//! process has ended may have been started again by hand, too (`argosy server --config`); then it is no child, and
//! is known by the lock on its directory alone.

use std::path::{Path, PathBuf};

use crate::cluster::child::Child;
use crate::cluster::lock;
use crate::cluster::ports::Ports;
use crate::failure::CommandFailure;

/// A server of the cluster.
pub(crate) struct Member {
    /// Its number.
    pub(crate) id: usize,
    /// Its configuration.
    pub(crate) config: PathBuf,
    /// Where it listens.
    pub(crate) ports: Ports,
    /// Its process.
    pub(crate) child: Child,
    /// Its process has ended, and that has been told.
    pub(crate) ended: bool,
}

/// In which state a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// Its process runs.
    Running,
    /// Its process is halted by a signal (SIGSTOP).
    Stopped,
    /// Its process has ended.
    Ended,
    /// Its process has ended, and somebody has started another one that is no child.
    ByHand,
}

impl ServerState {
    pub(crate) const ALL: [Self; 4] = [Self::Running, Self::Stopped, Self::Ended, Self::ByHand];

    /// Its word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Ended => "ended",
            Self::ByHand => "by-hand",
        }
    }
}

impl Member {
    /// In which state it is now.
    pub(crate) fn state(&mut self) -> ServerState {
        match self.child.exited() {
            Some(_) if lock::held(self.dir()) => ServerState::ByHand,
            Some(_) => ServerState::Ended,
            None if self.child.is_stopped() => ServerState::Stopped,
            None => ServerState::Running,
        }
    }

    /// The process that is in `state`, if there is one and it is known.
    pub(crate) fn process(&self, state: ServerState) -> Option<u32> {
        match state {
            ServerState::Running | ServerState::Stopped => Some(self.child.pid()),
            ServerState::Ended => None,
            ServerState::ByHand => {
                let holder = lock::holder(self.dir())?;
                u32::try_from(holder.as_raw_nonzero().get()).ok()
            }
        }
    }

    /// Starts its process again, from the configuration that is there.
    ///
    /// Requires that its process has ended.
    pub(crate) fn restart(&mut self) -> Result<(), CommandFailure> {
        assert!(self.child.exited().is_some(), "one process at a time");
        self.child = Child::start(&self.config, self.log(), &[])?;
        self.ended = false;
        Ok(())
    }

    /// What it says.
    pub(crate) fn log(&self) -> PathBuf {
        self.config.with_file_name("log")
    }

    fn dir(&self) -> &Path {
        let dir = self.config.parent();
        dir.expect("a configuration lies in its server's directory")
    }
}
