//! The history of an engine: where it was cut off, what its edits have come to, and the time that it tells.

use super::edits::EditProgress;
use super::promote::Cut;
use super::time::RegionTime;

/// See the module documentation.
pub(super) struct History {
    cut: Option<Cut>,
    edits: EditProgress,
    time: RegionTime,
}

impl History {
    /// Cut off from `cut`, if it was.
    pub(super) const fn new(cut: Option<Cut>, edits: EditProgress, time: RegionTime) -> Self {
        Self { cut, edits, time }
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
