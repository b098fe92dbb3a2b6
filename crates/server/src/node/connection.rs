//! Memory of a peer that is connected to, or about to be: to connect is begun, and moves on step by step.
//!
//! Whoever begins it [steps](Connection::step) it at once, and then whenever the fabric has rung. It has one attempt
//! under way at most; another one takes its place, and gives it up.

use argosy_fabric::{Connecting, FabricError, RemoteMemory};

/// See the module documentation.
#[derive(Default)]
pub(super) enum Connection {
    /// There is none: it was not begun, or has failed.
    #[default]
    None,
    /// It is being made. The fabric rings when that ends.
    Connecting(Box<dyn Connecting>),
    /// It is there.
    Made(Box<dyn RemoteMemory>),
}

impl Connection {
    pub(super) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) const fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }

    /// What is written to, once it is there.
    pub(super) fn remote(&mut self) -> Option<&mut dyn RemoteMemory> {
        match self {
            Self::Made(remote) => Some(&mut **remote),
            Self::None | Self::Connecting(_) => None,
        }
    }

    /// Moves on. Returns whether it has been made just now. After a failure there is none.
    pub(super) fn step(&mut self) -> Result<bool, FabricError> {
        let Self::Connecting(connecting) = self else {
            return Ok(false);
        };
        match connecting.poll() {
            Ok(None) => Ok(false),
            Ok(Some(remote)) => {
                *self = Self::Made(remote);
                Ok(true)
            }
            Err(error) => {
                *self = Self::None;
                Err(error)
            }
        }
    }
}
