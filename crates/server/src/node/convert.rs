//! Small facts about what goes over links.

use argosy_base::{Epoch, Identity, Kind, RegionId, SegmentNumber};
use argosy_engine::CopyEvent;

use crate::activity::Activity;

/// The checksum of bytes that were fetched, from byte `from` of a segment on.
pub(crate) fn fetched_checksum(
    region: RegionId,
    segment: SegmentNumber,
    from: u32,
    bytes: &[u8],
) -> u32 {
    let (kind, epoch) = (Kind::Message, Epoch(0));
    Identity {
        kind,
        region,
        segment,
        epoch,
        offset: from,
    }
    .checksum(bytes)
}

/// What a thread was at in a step of a copy that these events came of.
pub(crate) fn activity_of(events: &[CopyEvent]) -> Activity {
    let of_log =
        |event: &CopyEvent| matches!(event, CopyEvent::Flushed(_) | CopyEvent::FlushRefused(_));
    if events.iter().all(of_log) {
        Activity::LogReplication
    } else {
        Activity::IndexShipping
    }
}
