//! Finished segments that a primary ships, on their way into a backup's copy.
//!
//! The bytes lie in a landing slot, which the primary gets back when they are stored. They are
//! copied, checked against the checksum that came with them, and written. Where pointers inside
//! segments hold places ([`Rewrite`](argosy_base::AddressMode::Rewrite)) they hold the primary's: they are
//! rewritten in between, and the CPU of that is accounted for by itself.
//!
//! A primary that finds no room gives up what it was building, and tells nobody. So what no edit has
//! named for [`KEPT`] goes: on a full device it would be in the way of what frees space. An edit that
//! comes later fetches what it names.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use argosy_base::{DeviceSegment, Instant, SegmentNumber};
use argosy_device::Buffer;
use argosy_engine::CopyError;
use argosy_wire::message::Message;

use super::context::Context;
use super::link::SHIP_SLOTS;
use super::local_copy::LocalCopy;

/// How long a segment that has arrived waits for its edit while nothing else arrives.
const KEPT: Duration = Duration::from_secs(1);

/// What a message says of a segment that was shipped.
pub(super) struct Shipped {
    pub(super) segment: SegmentNumber,
    pub(super) len: u32,
    pub(super) checksum: u32,
    /// Where the primary has it.
    pub(super) place: DeviceSegment,
    /// Where the bytes lie.
    pub(super) landed: Landed,
}

/// Where a shipped segment lies until it is stored, and under which attempt it was shipped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) attempt: u64,
    pub(super) slot: u8,
}

impl Landed {
    /// What gives the slot back to whoever has shipped there.
    pub(super) const fn stored(self) -> Message<'static> {
        let Self { attempt, slot } = self;
        Message::Stored { attempt, slot }
    }
}

impl Shipped {
    /// What `message` ships, if it ships a segment.
    pub(super) const fn of(message: &Message<'_>) -> Option<Self> {
        let Message::Ship {
            attempt,
            segment,
            len,
            checksum,
            slot,
            place,
        } = *message
        else {
            return None;
        };
        Some(Self {
            segment,
            len,
            checksum,
            place,
            landed: Landed { attempt, slot },
        })
    }
}

/// Segments that the primary has shipped.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Segments that are being written, and their slots, to be given back when they are.
    storing: BTreeMap<SegmentNumber, Landed>,
    /// Since when nothing has become of segments that have arrived.
    rest: Option<Instant>,
}

impl Arrivals {
    /// Segments that are being written.
    pub(super) fn storing(&self) -> usize {
        self.storing.len()
    }

    /// The same, for a report.
    pub(super) fn storing_in_words(&self) -> impl Debug {
        self.storing.keys()
    }

    /// Whether something has arrived of which nothing has become yet.
    pub(super) const fn has_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// A segment was shipped: its bytes lie in the primary's slot.
    ///
    /// # Errors
    /// What does not fit, in words: the link to the primary is to begin anew.
    pub(super) fn take(
        &mut self,
        shipped: &Shipped,
        copy: &mut LocalCopy,
        context: &Context<'_>,
    ) -> Result<(), &'static str> {
        let Shipped {
            landed, segment, ..
        } = *shipped;
        let (slot, len) = (landed.slot, shipped.len as usize);
        if slot >= SHIP_SLOTS || len > context.slot_bytes() {
            return Err("a shipment names no slot");
        }
        self.rest = None;
        let bytes = Buffer::from_slice(context.link(copy.primary).read_slot(slot, len));
        match copy.take_shipped(shipped, bytes, context) {
            Ok(()) => {
                self.storing.insert(segment, landed);
            }
            Err(CopyError::Damaged { .. }) => return Err("a shipped segment is damaged"),
            Err(error) => {
                // It is fetched later if it is still needed; a full device may have room by then.
                tracing::warn!(region = copy.region.0, %error, "a shipped segment was not stored");
                copy.tell(&landed.stored(), context);
            }
        }
        Ok(())
    }

    /// A segment is stored: the primary gets its slot back.
    pub(super) fn stored(
        &mut self,
        segment: SegmentNumber,
        copy: &LocalCopy,
        context: &Context<'_>,
    ) {
        if let Some(landed) = self.storing.remove(&segment) {
            copy.tell(&landed.stored(), context);
        }
    }

    /// An edit is applied. A segment that is part of the version is stored, whether or not that was told.
    pub(super) fn applied(&mut self, copy: &LocalCopy, context: &Context<'_>) {
        let version = copy.replica.stored();
        let stored = self
            .storing
            .extract_if(.., |number, _| version.holds(*number));
        for (_, landed) in stored {
            copy.tell(&landed.stored(), context);
        }
    }

    /// Gives all slots back.
    pub(super) fn give_back(&mut self, copy: &LocalCopy, context: &Context<'_>) {
        for (_, landed) in std::mem::take(&mut self.storing) {
            copy.tell(&landed.stored(), context);
        }
    }

    /// The link to the primary is gone, and its slots with it.
    pub(super) fn link_down(&mut self) {
        self.storing.clear();
    }

    /// Something may soon name what has arrived: it is not given up before it has rested anew.
    pub(super) fn end_rest(&mut self) {
        self.rest = None;
    }

    /// Gives up what has arrived and was not named for long.
    pub(super) fn forget_unnamed(&mut self, now: Instant, copy: &mut LocalCopy) {
        if !copy.replica.holds_unnamed() {
            self.rest = None;
            return;
        }
        let since = *self.rest.get_or_insert(now);
        if now.since(since) >= KEPT {
            self.rest = None;
            copy.replica.forget_unnamed();
        }
    }
}
