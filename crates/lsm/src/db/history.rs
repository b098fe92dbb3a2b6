//! The history of an engine: where it was cut off, what its edits have come to, and the time that it tells.

use std::sync::atomic::{AtomicBool, Ordering};

use super::edits::EditProgress;
use super::promote::Cut;
use super::time::RegionTime;

/// See the module documentation.
pub(super) struct History {
    cut: Option<Cut>,
    edits: EditProgress,
    time: RegionTime,
    /// More of the logs is kept than replay needs. Relaxed: the next step sees it.
    keeps_log: AtomicBool,
}

impl History {
    /// Cut off from `cut`, if it was.
    pub(super) const fn new(cut: Option<Cut>, edits: EditProgress, time: RegionTime) -> Self {
        Self {
            cut,
            edits,
            time,
            keeps_log: AtomicBool::new(false),
        }
    }

    /// From now on more of the logs is kept than replay needs, or not.
    pub(super) fn keep_log(&self, keep: bool) {
        self.keeps_log.store(keep, Ordering::Relaxed);
    }

    /// Whether more of the logs is kept than replay needs.
    pub(super) fn keeps_log(&self) -> bool {
        self.keeps_log.load(Ordering::Relaxed)
    }

    /// What it was cut off from when the engine was opened, if it was.
    pub(super) const fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// How far the edits have come.
    pub(super) const fn edits(&self) -> &EditProgress {
        &self.edits
    }

    /// The region's time.
    #[inline]
    pub(super) const fn time(&self) -> &RegionTime {
        &self.time
    }
}
