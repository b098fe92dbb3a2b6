//! What the catalog says that the copy is certain to hold.

use argosy_base::Standing;
use argosy_device::{CatalogChange, DeviceError};
use argosy_engine::catalog::with_standing;

use crate::manifest::Manifest;
use crate::shape::Shape;

/// How far the catalog is with saying what the copy is.
#[derive(Default)]
enum StandingChange {
    /// It says so, or need not.
    #[default]
    Done,
    /// Its entry is changed once the manifest is idle: the manifest changes the entry, too.
    Wanted,
    /// Its entry is being changed.
    Begun(CatalogChange),
}

/// What the copy is certain to hold, and whether the catalog says so.
pub(super) struct CatalogStanding {
    standing: Standing,
    change: StandingChange,
}

impl CatalogStanding {
    /// The catalog says `standing`.
    pub(super) const fn of(standing: Standing) -> Self {
        Self {
            standing,
            change: StandingChange::Done,
        }
    }

    /// What the copy is certain to hold.
    pub(super) const fn get(&self) -> Standing {
        self.standing
    }

    /// The copy is certain to hold this from now on. Later steps make that durable.
    pub(super) fn change_to(&mut self, standing: Standing) {
        if self.standing != standing {
            self.standing = standing;
            self.change = StandingChange::Wanted;
        }
    }

    /// Goes on with the change of the entry, without waiting; `shape` is the other half of its word.
    pub(super) fn step(
        &mut self,
        manifest: &mut Manifest,
        shape: Shape,
    ) -> Result<(), DeviceError> {
        match &self.change {
            StandingChange::Wanted if manifest.is_idle() => {
                let word = with_standing(shape.to_word(), self.standing);
                self.change = StandingChange::Begun(manifest.change_shape(word));
            }
            StandingChange::Begun(change) => {
                if let Some(result) = change.poll() {
                    self.change = match result {
                        Ok(()) => StandingChange::Done,
                        Err(_) => StandingChange::Wanted,
                    };
                    result?;
                }
            }
            StandingChange::Done | StandingChange::Wanted => {}
        }
        Ok(())
    }

    /// Blocks until a change that was begun is durable. Returns whether the catalog says what the copy is: not where
    /// the change could not be begun yet, or has failed.
    pub(super) fn wait(&mut self) -> Result<bool, DeviceError> {
        match &self.change {
            StandingChange::Begun(change) => {
                let result = change.wait();
                self.change = match result {
                    Ok(()) => StandingChange::Done,
                    Err(_) => StandingChange::Wanted,
                };
                result.map(|()| true)
            }
            StandingChange::Done => Ok(true),
            StandingChange::Wanted => Ok(false),
        }
    }
}
