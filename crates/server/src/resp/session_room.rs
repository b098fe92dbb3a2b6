//! Whether a session has room for more: what bounds requests and calls under way.

use super::{CallToken, Core, PENDING_MAX};

impl Core {
    /// The call of `token` has a batch of `bytes`. A request makes one such call.
    pub(super) fn asked(&mut self, token: CallToken, bytes: usize) {
        let index = self.index_of(token.sequence());
        self.pending[index].asked = bytes;
        self.asked += bytes;
    }

    /// Whether another request may be begun.
    pub(super) fn has_room(&self) -> bool {
        let kept = self.output.len() - self.written + self.held;
        let idle = kept == 0 && self.pending.is_empty();
        let bytes = kept.saturating_add(self.in_flight.saturating_mul(self.reserve));
        idle || (self.in_flight < self.limits.in_flight_max
            && self.pending.len() < PENDING_MAX
            && self.asked < self.limits.asked_bytes_max
            && bytes < self.limits.output_bytes_max)
    }

    /// Whether the command at `index` of the queue may make another call. The first of the queue
    /// has room for one whole reply, so that there is always one that goes on.
    pub(super) fn has_room_at(&self, index: usize) -> bool {
        let first_alone = index == 0 && self.in_flight == 0;
        first_alone
            || self.in_flight < self.limits.in_flight_max && {
                let bound = self.limits.output_bytes_max
                    + if index == 0 {
                        self.limits.reply_bytes_max
                    } else {
                        0
                    };
                let kept = self.output.len() - self.written + self.held;
                kept.saturating_add(self.in_flight.saturating_mul(self.reserve)) < bound
            }
    }
}
