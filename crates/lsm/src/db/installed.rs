//! The version that is installed: what readers are shown of the levels.

use std::sync::Arc;

use argosy_base::Lsn;

use crate::damage::Damages;
use crate::version::Version;

/// See the module documentation.
pub(super) struct Installed {
    pub(super) version: Arc<Version>,
    /// The highest LSN that has left the memtables.
    pub(super) levels_lsn: Lsn,
    /// See [`ReadView::expired_lsn`](crate::read::ReadView).
    pub(super) expired_lsn: Lsn,
    /// How many edits brought pairs into the levels that no memtable had.
    pub(super) bulk_loads: u64,
    /// What of the region is damaged: runs that merges cannot take down do not count.
    damages: Arc<Damages>,
}

impl Installed {
    /// The first one.
    pub(super) fn new(version: Arc<Version>, damages: Arc<Damages>) -> Self {
        Self {
            levels_lsn: Lsn(version.replay_from().0.saturating_sub(1)),
            version,
            expired_lsn: Lsn(0),
            bulk_loads: 0,
            damages,
        }
    }

    /// Sorted runs in L1.
    pub(super) fn l1_runs(&self) -> usize {
        self.damages.l1_runs(&self.version)
    }

    /// Lets go of the version: `nothing` takes its place.
    pub(super) fn end(&mut self, nothing: Arc<Version>) {
        self.version = nothing;
        self.levels_lsn = Lsn(0);
        self.expired_lsn = Lsn(0);
    }

    /// Puts `version` in its place, and returns what was there. The record with the LSN `told` tells the region's time.
    pub(super) fn replace(&mut self, version: Arc<Version>, told: Lsn) -> Arc<Version> {
        let before = std::mem::replace(&mut self.version, version);
        if self.version.time() > before.time() {
            self.expired_lsn = told;
        }
        before
    }
}
