//! How far log segments have to be here before an edit can be applied.

use std::collections::BTreeMap;

use argosy_base::SegmentNumber;

use crate::edit::{Edit, LogSegment};
use crate::version::Version;

/// A log segment that has to be here up to some byte.
pub(super) struct LogNeed {
    pub(super) segment: LogSegment,
    pub(super) to: u32,
    /// Nothing of the segment counts behind that byte.
    pub(super) ends: bool,
}

/// How far which log segments have to be here for `edit`, the next one after `head`.
pub(super) fn log_needs(edit: &Edit, head: &Version) -> BTreeMap<SegmentNumber, LogNeed> {
    let mut needs = BTreeMap::new();
    for log in &edit.logs.added {
        let need = LogNeed {
            segment: *log,
            to: log.end.unwrap_or(0),
            ends: log.end.is_some(),
        };
        needs.insert(log.number, need);
    }
    let seals = edit.logs.sealed.iter().map(|point| (point, true));
    let points = edit.logs.points.iter().map(|point| (point, false));
    for (point, ends) in seals.chain(points) {
        let known = head.log_segment(point.number);
        let known = known.filter(|_| !edit.checkpoint).map(|entry| LogNeed {
            segment: entry.segment,
            to: 0,
            ends: false,
        });
        let Some(need) = needs.remove(&point.number).or(known) else {
            // The version refuses the edit.
            continue;
        };
        let need = LogNeed {
            to: need.to.max(point.to),
            ends: need.ends || ends,
            ..need
        };
        needs.insert(point.number, need);
    }
    needs
}
