//! What a member does about dead values that builds its own levels and serves nobody.

use std::sync::Arc;

use argosy_base::{EditSeq, RegionId};
use argosy_device::DeviceError;
use argosy_engine::EngineError;
use argosy_log::sweep::begins_inside_value;
use argosy_log::value::reach;

use super::census::{Census, Pressure};
use super::jobs::{Jobs, Wish};
use super::shadowed::ShadowEstimate;
use super::truncation::unknown_beginning;
use crate::edit::LogSegment;
use crate::segments::StoredSegment;
use crate::settings::Settings;
use crate::storage::Storage;

/// Has levels merged where much of what they point to may be overwritten above, and finds out which log segments are
/// free.
#[derive(Default)]
pub(crate) struct Watch {
    pressure: Pressure,
    seen: Option<EditSeq>,
}

impl Watch {
    /// Looks at the version, if it is another one. Returns whether there is more to be looked at.
    ///
    /// # Errors
    /// The device's, but for a read that failed.
    pub(crate) fn look(&mut self, storage: &Storage, jobs: &mut Jobs) -> Result<bool, EngineError> {
        let version = storage.current();
        if self.seen == Some(version.seq()) {
            return Ok(false);
        }
        let settings = storage.settings();
        if let Some(segment) =
            unknown_beginning(version, reach(settings.layout.segment_bytes), &jobs.lasts)
        {
            let stored = version.stored(segment.number);
            let stored = stored.expect("the version names it");
            let read = look_at_beginning(version.region(), settings, &segment, stored);
            jobs.note_beginning(storage, version, segment.number, read)?;
            return Ok(true);
        }
        self.seen = Some(version.seq());
        // Nobody reads here: no filter is in memory that could be asked.
        let shadowed = ShadowEstimate::default().shadowed(version);
        let census = Census {
            // Segments go with the edits of those who serve.
            evacuates: false,
            ..Census::of(version, &jobs.lasts, shadowed, Arc::default(), settings)
        };
        let goal = self.pressure.goal(&census, 0, settings);
        jobs.wish(Wish::Garbage, goal > 0 && census.is_vague());
        Ok(false)
    }
}

/// Whether `segment` begins with the rest of a value.
pub(crate) fn look_at_beginning(
    region: RegionId,
    settings: &Settings,
    segment: &LogSegment,
    stored: &StoredSegment,
) -> Result<bool, DeviceError> {
    let mut read = |_: &LogSegment, offset: u32, out: &mut [u8]| stored.read_nearest(offset, out);
    begins_inside_value(region, settings.layout.log_geometry(), segment, &mut read)
}
