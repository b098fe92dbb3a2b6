//! Reads fail where they meet [damage](crate::damage), and take note of the segment.

use std::sync::Arc;

use argosy_engine::{EngineError, Reach};

use super::Lsm;
use crate::damage::Damages;

impl Lsm {
    /// What of the region was found damaged here, by reads, merges and a scrub.
    #[must_use]
    pub fn damages(&self) -> &Arc<Damages> {
        &self.reading.damages
    }

    /// Takes note of damage that a read within `reach` met. One that keeps to memory leaves that to the read that
    /// follows it: whatever is wrong there, it is [not in memory](EngineError::NotInMemory).
    pub(super) fn noting_within<T>(
        &self,
        reach: Reach,
        read: Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match reach {
            Reach::Device => self.noting(read),
            Reach::Memory => read.map_err(|_| EngineError::NotInMemory),
        }
    }

    /// Takes note of damage that a read met.
    pub(super) fn noting<T>(&self, read: Result<T, EngineError>) -> Result<T, EngineError> {
        match read {
            Ok(read) => Ok(read),
            failed => {
                let damages = &self.reading.damages;
                damages.noting(&self.view.load().version, failed)
            }
        }
    }
}
