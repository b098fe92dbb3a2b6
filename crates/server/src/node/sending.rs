//! What a primary tells its backups, as messages.

use argosy_base::{EditSeq, RegionId, ServerId};
use argosy_replication::FlushRange;
use argosy_wire::message::{Message, Range};

use super::context::Context;

/// Bytes of a checkpoint in one message.
const OFFER_PART_BYTES: usize = 64 << 10;

/// Sends a checkpoint edit in parts.
pub(crate) fn send_checkpoint(
    region: RegionId,
    to: ServerId,
    attempt: u64,
    (seq, bytes): (EditSeq, &[u8]),
    context: &Context<'_>,
) {
    let parts = bytes.len().div_ceil(OFFER_PART_BYTES) as u64;
    for (part, bytes) in (0..).zip(bytes.chunks(OFFER_PART_BYTES)) {
        context.send(
            to,
            region,
            &Message::Offer {
                attempt,
                seq,
                part,
                parts,
                bytes,
            },
        );
    }
}

pub(crate) fn to_wire(range: FlushRange) -> Range {
    let FlushRange {
        log,
        ordinal,
        segment,
        from,
        to,
    } = range;
    Range {
        log,
        ordinal,
        segment,
        from,
        to,
    }
}
