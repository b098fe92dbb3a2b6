//! What a node needs to tell of itself.

use std::sync::{Arc, OnceLock};

use argosy_base::Instant;
use parking_lot::{Mutex, MutexGuard};

use super::counters::Counters;
use super::watch::Watch;
use crate::native;

/// See the module documentation.
pub(super) struct Telling {
    opened: Instant,
    counters: Counters,
    /// What the log was told of troubles.
    watch: Mutex<Watch>,
    /// The front end of native clients.
    native: OnceLock<Arc<native::Front>>,
}

impl Telling {
    /// That of a node that was opened at this moment.
    pub(super) fn new(opened: Instant) -> Self {
        Self {
            opened,
            counters: Counters::default(),
            watch: Mutex::default(),
            native: OnceLock::new(),
        }
    }

    /// When the node was opened.
    pub(super) const fn opened(&self) -> Instant {
        self.opened
    }

    /// What the node counts.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the log was told of troubles. Taken alone.
    pub(super) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock()
    }

    /// From now on `front` is told of.
    pub(super) fn set_native(&self, front: Arc<native::Front>) {
        // There is one front end, and it is started once.
        let _ = self.native.set(front);
    }

    /// The front end of native clients, if there is one.
    pub(super) fn native(&self) -> Option<&Arc<native::Front>> {
        self.native.get()
    }
}
