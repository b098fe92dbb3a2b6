//! What is looked after in a region's copy: that it can be read, and that no parts of long values are left over.

use std::sync::Arc;

use argosy_engine::long::{SweepPace, Sweeper, Uses};
use argosy_engine::scrub::{Pace as ScrubPace, Scrubber};
use parking_lot::{Mutex, MutexGuard};

use super::super::repairing::Repairing;

/// See the module documentation.
pub(super) struct RegionCare {
    scrubber: Mutex<Scrubber>,
    repairing: Mutex<Repairing>,
    /// Of parts of long values.
    sweeper: Mutex<Sweeper>,
    /// Who is at which of them.
    uses: Arc<Uses>,
}

impl RegionCare {
    /// At this pace.
    pub(super) fn new(scrub: ScrubPace, sweep: SweepPace) -> Self {
        let uses: Arc<Uses> = Arc::default();
        Self {
            scrubber: Mutex::new(Scrubber::new(scrub)),
            repairing: Mutex::default(),
            sweeper: Mutex::new(Sweeper::new(sweep, Arc::clone(&uses))),
            uses,
        }
    }

    /// What reads the copy now and then.
    pub(super) fn scrubber(&self) -> MutexGuard<'_, Scrubber> {
        self.scrubber.lock()
    }

    /// What repairs the copy.
    pub(super) fn repairing(&self) -> MutexGuard<'_, Repairing> {
        self.repairing.lock()
    }

    /// What removes parts of long values.
    pub(super) fn sweeper(&self) -> MutexGuard<'_, Sweeper> {
        self.sweeper.lock()
    }

    /// Who is at which parts of long values.
    pub(super) fn uses(&self) -> &Arc<Uses> {
        &self.uses
    }
}
