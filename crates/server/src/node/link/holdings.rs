//! What a link holds of what could grow.

use super::Open;
use super::deferred::{CALL_BYTES_MAX, CALLS_MAX};
use super::queue::BACKLOG_BYTES_MAX;
use crate::node::holdings::Holding;
use argosy_wire::message::LONG_BYTES_MAX;

/// Of one link, or of several together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holdings {
    messages: usize,
    calls: usize,
    call_bytes: usize,
    slots: usize,
}

impl Holdings {
    /// Of an open link with so many bytes of `messages`.
    pub(super) fn of_open(open: &Open, messages: usize) -> Self {
        let (calls, call_bytes) = open.deferred.held();
        let ships = open.ships.iter().flatten().count();
        let slots = ships + open.fetches_busy.count_ones() as usize;
        Self {
            messages,
            calls,
            call_bytes,
            slots,
        }
    }

    /// Of a link that is down, with so many bytes of `messages`.
    pub(super) fn of_closed(messages: usize) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.calls += other.calls;
        self.call_bytes += other.call_bytes;
        self.slots += other.slots;
    }

    /// What they are, where there are so many links.
    pub(crate) fn of_links(self, links: usize) -> [Holding; 4] {
        // A vector that grows has up to twice what is in it.
        let messages = 2 * BACKLOG_BYTES_MAX + 2 * LONG_BYTES_MAX;
        let slots = usize::from(super::SHIP_SLOTS + super::FETCH_SLOTS);
        [
            ("bytes of messages that wait", self.messages, messages),
            ("calls of peers that wait", self.calls, CALLS_MAX),
            (
                "bytes of calls of peers that wait",
                self.call_bytes,
                CALL_BYTES_MAX,
            ),
            ("landing slots that are in use", self.slots, slots),
        ]
        .map(|(what, held, most)| Holding::passing(what, held, links * most))
    }
}
