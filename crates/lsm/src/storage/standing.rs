//! What the catalog says that the copy is certain to hold.

use argosy_base::Standing;
use argosy_device::{CatalogChange, DeviceError};
use argosy_engine::catalog::with_standing;

use super::{Committed, Storage, StorageError};
use crate::shape::Shape;

/// How far the catalog is with saying what the copy is.
#[derive(Default)]
pub(super) enum StandingChange {
    /// It says so, or need not.
    #[default]
    Done,
    /// Its entry is changed once the manifest is idle: the manifest changes the entry, too.
    Wanted,
    /// Its entry is being changed.
    Begun(CatalogChange),
}

impl Storage {
    /// What the copy is certain to hold, as its entry in the catalog says. Never [`Standing::Whole`], of which only
    /// memory can tell.
    pub(crate) const fn standing(&self) -> Standing {
        self.standing
    }

    /// Says that the copy holds everything that was acknowledged. Later steps make that durable.
    pub(crate) fn become_ordinary(&mut self) {
        if self.standing != Standing::Ordinary {
            self.standing = Standing::Ordinary;
            self.standing_change = StandingChange::Wanted;
        }
    }

    /// The same, durable on return. Blocks.
    ///
    /// # Errors
    /// As those of [`settle`](Self::settle).
    pub(crate) fn settle_standing(&mut self) -> Result<Vec<Committed>, StorageError> {
        self.become_ordinary();
        let committed = self.settle()?;
        // The manifest is idle now.
        self.step_standing()?;
        if let StandingChange::Begun(change) = std::mem::take(&mut self.standing_change) {
            change.wait()?;
        }
        Ok(committed)
    }

    /// Goes on with the change of the entry, without waiting.
    pub(super) fn step_standing(&mut self) -> Result<(), DeviceError> {
        match &self.standing_change {
            StandingChange::Wanted if self.manifest.is_idle() => {
                let word = Shape::of(&self.settings).to_word();
                let change = self
                    .manifest
                    .change_shape(with_standing(word, self.standing));
                self.standing_change = StandingChange::Begun(change);
            }
            StandingChange::Begun(change) => {
                if let Some(result) = change.poll() {
                    self.standing_change = StandingChange::Done;
                    result?;
                }
            }
            StandingChange::Done | StandingChange::Wanted => {}
        }
        Ok(())
    }
}
