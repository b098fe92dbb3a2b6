//! What of a store is damaged, as far as anybody has found out.
//!
//! The store has no other copy to repair itself from. It reports what it cannot read and serves everything else.
//! `argosy inspect repair` makes a new store of what is whole.

pub use argosy_engine::damage::{Damage, DamagedSegment};

use argosy_engine::Store as _;

use crate::Db;

impl Db {
    /// What [scrubbing](crate::Builder::scrub_period) has found to be damaged since the store was opened, with the
    /// keys that it concerns. Reads of them fail; all others are as they were.
    #[must_use]
    pub fn damages(&self) -> Vec<Damage> {
        let copy = self.shared.engine.stored();
        let scrubber = self.shared.scrubber();
        scrubber.damages_in(&*copy).cloned().collect()
    }

    /// Segments that reads, merges and scrubs have found damaged since the store was opened: reads of them fail, and
    /// merges pass over their keys. At most [`DAMAGES_MAX`](argosy_lsm::damage::DAMAGES_MAX).
    #[must_use]
    pub fn damaged_segments(&self) -> Vec<DamagedSegment> {
        self.shared.engine.stored().damaged()
    }
}
