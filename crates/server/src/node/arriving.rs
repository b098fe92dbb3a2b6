//! Finished segments that a primary ships, on their way into a backup's copy.
//!
//! The bytes lie in a landing slot, which the primary gets back when they are stored. They are
//! copied, checked against the checksum that came with them, and written. Where pointers inside
//! segments hold places ([`AddressMode::Rewrite`]) they hold the primary's: they are rewritten in
//! between, and the CPU of that is accounted for by itself.
//!
//! A primary that finds no room gives up what it was building, and tells nobody. So what no edit has
//! named for [`KEPT`] goes: on a full device it would be in the way of what frees space. An edit that
//! comes later fetches what it names.

use std::collections::BTreeMap;
use std::time::Duration;

use argosy_base::{AddressMode, DeviceSegment, Instant, SegmentNumber, ServerId};
use argosy_device::Buffer;
use argosy_engine::CopyError;
use argosy_wire::message::Message;

use super::assembling::Arriving;
use super::context::Context;
use super::failing::Failed;
use super::follower::{Follower, Postponed};
use super::link::SHIP_SLOTS;

/// How long a segment that has arrived waits for its edit while nothing else arrives.
const KEPT: Duration = Duration::from_secs(1);

/// What a message says of a segment that was shipped.
pub(super) struct Shipped {
    pub(super) segment: SegmentNumber,
    pub(super) len: u32,
    pub(super) checksum: u32,
    /// Where the primary has it.
    pub(super) place: DeviceSegment,
}

/// Segments that the primary has shipped.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Ship slots whose segments are being written, to be given back when they are.
    pub(super) storing: BTreeMap<SegmentNumber, u8>,
    /// Since when nothing has become of segments that have arrived.
    pub(super) rest: Option<Instant>,
}

impl Follower {
    /// What takes space, and what waits for it, in words for a report.
    pub(crate) fn space_in_words(&self) -> String {
        let waits = self.postponed.iter().map(|postponed| match postponed {
            Postponed::Apply(seq) => format!("edit {seq}"),
            Postponed::Put(_, part, _) => format!("{}", part.number),
        });
        format!(
            "{}; being written {:?}; waiting for room {:?}; edits {:?}; {:?}",
            self.copy.replica.space_in_words(),
            self.arrivals.storing.keys(),
            waits.collect::<Vec<_>>(),
            self.edits.kept.keys(),
            self.machine
        )
    }

    /// Bytes of edits that have arrived and are not applied, and of the one that arrives.
    pub(super) fn unapplied_bytes(&self) -> usize {
        let kept: usize = self.edits.kept.values().map(|kept| kept.bytes.len()).sum();
        kept + self.edits.arriving.as_ref().map_or(0, Arriving::bytes)
    }

    /// A segment was shipped: its bytes lie in the primary's slot.
    pub(super) fn shipped(
        &mut self,
        from: ServerId,
        shipped: &Shipped,
        slot: u8,
        context: &Context<'_>,
    ) {
        let len = shipped.len as usize;
        if slot >= SHIP_SLOTS || len > context.slot_bytes() {
            return context.reset_link(from, "a shipment names no slot");
        }
        self.arrivals.rest = None;
        let bytes = Buffer::from_slice(context.link(from).read_slot(slot, len));
        match self.copy.take_shipped(shipped, bytes, context) {
            Ok(()) => {
                self.arrivals.storing.insert(shipped.segment, slot);
            }
            Err(CopyError::Damaged { .. }) => {
                context.reset_link(from, "a shipped segment is damaged");
            }
            Err(error) => {
                // It is fetched later if it is still needed; a full device may have room by then.
                tracing::warn!(region = self.copy.region.0, %error, "a shipped segment was not stored");
                context.send(from, self.copy.region, &Message::Stored { slot });
            }
        }
    }

    /// Gives up what has arrived and was not named for long.
    pub(super) fn forget_arrivals(&mut self, now: Instant) {
        let named_soon = self.machine.is_behind() || self.edits.arriving.is_some();
        if named_soon || self.adoption.is_some() || !self.copy.replica.holds_unnamed() {
            self.arrivals.rest = None;
            return;
        }
        let since = *self.arrivals.rest.get_or_insert(now);
        if now.since(since) >= KEPT {
            self.arrivals.rest = None;
            self.copy.replica.forget_unnamed();
        }
    }

    /// The primary's pointers name something else than this copy's: nothing of it can be taken.
    pub(super) fn refuse_addresses(
        &mut self,
        primary: ServerId,
        attempt: u64,
        theirs: AddressMode,
        context: &Context<'_>,
    ) {
        let own = self.copy.replica.addresses();
        let why = format!(
            "{primary}, the primary, has address mode {theirs}, and this server {own}: all members \
             of a cluster have the same"
        );
        self.fail(&why, context);
        let failed = Failed {
            attempt,
            damaged: false,
            why: &why,
        };
        failed.tell(primary, self.copy.region, context);
    }
}
