//! As what an engine serves its region: alone, or in front of other members.

use std::sync::Arc;

use argosy_base::Epoch;
use argosy_engine::Observer;

/// See the module documentation.
pub(super) struct Serving {
    epoch: Epoch,
    observer: Option<Arc<dyn Observer>>,
}

impl Serving {
    /// In `epoch`; `observer` keeps the other copies, if there are any.
    pub(super) const fn new(epoch: Epoch, observer: Option<Arc<dyn Observer>>) -> Self {
        Self { epoch, observer }
    }

    /// The epoch in which the engine writes.
    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Nobody else has a copy.
    #[inline]
    pub(super) const fn is_alone(&self) -> bool {
        self.observer.is_none()
    }

    /// Who keeps the other copies, if there are any.
    #[inline]
    pub(super) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }
}
