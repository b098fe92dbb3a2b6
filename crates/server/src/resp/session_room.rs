//! Whether a session has room for more: what bounds requests and calls under way; and what commands that go
//! on for long see of it.

use super::{CallToken, Core, Limits, PENDING_MAX, Pending, ReplyMode, SEQUENCE_MASK};
use crate::resp::front::FrontEnd;

impl Core {
    /// The call of `token` has a batch of `bytes`. A request has one such call under way at a time.
    pub(super) fn asked(&mut self, token: CallToken, bytes: usize) {
        let index = self.index_of(token.sequence());
        self.pending[index].asked += bytes;
        self.asked += bytes;
    }

    /// The call of `token` is about keys that are held meanwhile.
    pub(super) fn asked_for_keys(&mut self, token: CallToken) {
        let index = self.index_of(token.sequence());
        self.asked(token, self.pending[index].keys_bytes());
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

    /// There is another command.
    pub(in crate::resp) const fn begin_command(&mut self) {
        self.commands += 1;
        self.erred = false;
        self.reply_mode = match self.reply_mode {
            ReplyMode::SkipNext => ReplyMode::Skip,
            ReplyMode::Skip => ReplyMode::On,
            mode => mode,
        };
    }

    /// The reply of this command.
    pub(in crate::resp) fn pending_of(&mut self, token: CallToken) -> &mut Pending {
        let index = self.index_of(token.sequence());
        &mut self.pending[index]
    }

    /// The command of `token` makes no further call.
    pub(in crate::resp) fn let_go(&mut self, front: &FrontEnd, token: CallToken) {
        self.pending_of(token).outstanding -= 1;
        self.write_complete(front);
    }

    /// The sequence number of the first reply.
    pub(in crate::resp) const fn base_sequence(&self) -> u32 {
        self.base & SEQUENCE_MASK
    }

    /// Bytes that are to be written.
    pub(in crate::resp) const fn output_bytes(&self) -> usize {
        self.output.len() - self.written
    }

    pub(in crate::resp) const fn limits(&self) -> &Limits {
        &self.limits
    }
}
