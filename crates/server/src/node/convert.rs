//! The same facts in the words of the engine, of the pure machines, and of the wire.

use argosy_base::{Epoch, Identity, Kind, LogKind, RegionId, SegmentNumber};
use argosy_lsm::replica::ReplicaEvent;
use argosy_replication::{FlushRange, LogPosition, Position};
use argosy_wire::message;

use crate::activity::Activity;

/// An engine's flush, for the machine.
pub(crate) fn flush_range(range: &argosy_engine::FlushRange) -> FlushRange {
    FlushRange {
        log: range.log,
        ordinal: range.ordinal,
        segment: range.segment,
        from: range.from,
        to: range.to,
    }
}

/// The machine's flush, for the engine.
pub(crate) fn engine_range(range: &FlushRange) -> argosy_engine::FlushRange {
    argosy_engine::FlushRange {
        log: range.log,
        ordinal: range.ordinal,
        segment: range.segment,
        from: range.from,
        to: range.to,
    }
}

/// A flush that came over the wire.
pub(crate) fn received_range(range: &message::Range) -> FlushRange {
    FlushRange {
        log: range.log,
        ordinal: range.ordinal,
        segment: range.segment,
        from: range.from,
        to: range.to,
    }
}

/// A position that came over the wire.
pub(crate) fn received_position(position: &message::Position) -> Position {
    let mut logs = [None; LogKind::ALL.len()];
    for log in LogKind::ALL {
        logs[log.index()] = position.logs[log.index()].map(|at| LogPosition {
            log,
            ordinal: at.ordinal,
            segment: at.segment,
            end: at.end,
            flushed: at.flushed,
        });
    }
    Position {
        edit: position.edit,
        lsn: position.lsn,
        logs,
    }
}

/// A position for the wire.
pub(crate) fn position_to_send(position: &Position) -> message::Position {
    let logs = position.logs.map(|log| {
        log.map(|at| message::LogEnd {
            ordinal: at.ordinal,
            segment: at.segment,
            end: at.end,
            flushed: at.flushed,
        })
    });
    message::Position {
        edit: position.edit,
        lsn: position.lsn,
        logs,
    }
}

/// A replica's position, for the machine.
pub(crate) fn position(at: &argosy_lsm::replica::Position) -> Position {
    let logs = at.logs.map(|log| {
        log.map(|at| LogPosition {
            log: at.log,
            ordinal: at.ordinal,
            segment: at.segment,
            end: at.end,
            flushed: at.flushed,
        })
    });
    Position {
        edit: at.edit,
        lsn: at.lsn,
        logs,
    }
}

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
pub(crate) fn activity_of(events: &[ReplicaEvent]) -> Activity {
    let of_log = |event: &ReplicaEvent| {
        matches!(
            event,
            ReplicaEvent::Flushed(_) | ReplicaEvent::FlushRefused(_)
        )
    };
    if events.iter().all(of_log) {
        Activity::LogReplication
    } else {
        Activity::IndexShipping
    }
}
