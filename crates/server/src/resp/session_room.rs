//! Whether a session has room for more: what bounds requests and calls under way; what ends it; and what commands
//! see of it.

use argosy_wire::resp::{Encoder, Protocol};

use super::{
    CallToken, Core, Gather, Limits, Output, PENDING_MAX, Pending, Plan, ReplyMode, SEQUENCE_MASK,
    Session,
};
use crate::meter::MeteredOutcome;
use crate::resp::command::Step;
use crate::resp::front::{Context, FrontEnd};
use crate::resp::holds::Holding;
use crate::resp::pool::Pool;
use crate::resp::slow_log::{RoundMoment, Trace};

impl Session {
    /// Ends the connection with the error `text`, and gives all memory back. `false`: there are
    /// replies on their way, among which no error can be put; close it as it is.
    pub fn evict(&mut self, text: &str) -> bool {
        let idle = self.core.replies.pending.is_empty() && self.output().is_empty();
        if idle && !self.core.closing {
            self.core.error(text);
            self.core.closing = true;
            self.input.clear();
        }
        idle
    }

    /// Puts what is kept, if that is little, into buffers of its length.
    pub(super) fn tighten(&mut self, pool: &mut Pool) {
        self.input.tighten(pool);
        self.core.output.tighten(pool);
    }

    /// Bytes that answers are expected to bring that are under way.
    pub(in crate::resp) const fn expected_bytes(&self) -> usize {
        self.core.calls.expected_bytes()
    }

    /// Whether something was received that is not carried out yet, or a reply has another part.
    #[must_use]
    pub fn has_request(&self) -> bool {
        !self.input.is_empty() || self.can_go_on()
    }

    /// Bytes that were received and are not carried out yet.
    pub(in crate::resp) fn input_bytes(&self) -> usize {
        self.input.len()
    }

    /// Whether no request is under way, so that the client has to send something.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.core.calls.in_flight == 0 && self.core.replies.pending.is_empty() && !self.can_go_on()
    }

    /// The connection is closed: gives back what only it could have used. Answers that come still are
    /// taken, and dropped.
    pub(in crate::resp) fn abandon(&mut self) {
        self.input.clear();
        self.core.output = Output::default();
        self.core.broken = true;
    }

    /// There is nothing more to do for now.
    pub(super) fn pause(&mut self, context: &Context<'_>) -> Option<(CallToken, Plan)> {
        if self.input.ended {
            let text = "ERR the request ended early (not applied)";
            self.break_off_long(context.front, text);
            self.core.closing = true;
        }
        if self.core.closing {
            self.input.clear();
        }
        None
    }

    /// Whether the request in the first `bytes` bytes of the input has to wait for one before it. Then nothing is
    /// done with it yet.
    pub(super) fn has_to_wait(&mut self, bytes: usize) -> bool {
        let core = &mut self.core;
        core.holds.waits =
            !core.holds.is_empty() && core.holds.hold_up(self.input.args_before(bytes));
        core.stalled |= core.holds.waits;
        core.holds.waits
    }

    /// Bytes of keys and values in replies that wait.
    #[cfg(test)]
    pub(in crate::resp) const fn held(&self) -> usize {
        self.core.replies.held
    }

    /// Bytes of batches that are being written.
    #[cfg(test)]
    pub(in crate::resp) const fn asked(&self) -> usize {
        self.core.calls.asked
    }

    /// Whether a request waits for one before it.
    #[cfg(test)]
    pub(in crate::resp) const fn waits(&self) -> bool {
        self.core.holds.waits
    }

    /// The call of `token`, the last that was taken, was not answered at once, and holds this up until it is.
    pub(in crate::resp) fn hold(&mut self, token: CallToken, holding: Holding, front: &FrontEnd) {
        self.core.holds.call(token.sequence(), holding);
        if self.core.clock.is_new {
            self.trace(token, front);
        }
    }

    /// Answers that come now come at `moment`.
    pub(in crate::resp) const fn tick(&mut self, moment: RoundMoment) {
        self.core.clock.moment = moment;
    }

    /// Keeps how the command of `token` began, where its first answer may come at once, and further ones later.
    pub(super) fn trace_early(&mut self, token: CallToken, front: &FrontEnd) {
        let index = self.core.index_of(token.sequence());
        let pending = self.core.replies.pending.get(index);
        if pending.is_some_and(Pending::may_go_on) {
            self.trace(token, front);
        }
    }

    /// Keeps how the command of `token`, which is the present one, began.
    fn trace(&mut self, token: CallToken, front: &FrontEnd) {
        let index = self.core.index_of(token.sequence());
        if let Some(pending) = self.core.replies.pending.get_mut(index)
            && front.operators.slow_log.is_on()
            && pending.trace.is_none()
        {
            let since = self.core.clock.moment.now;
            pending.trace = Some(Trace::new(since, self.input.args()));
        }
    }
}

impl Core {
    /// One apart from any connection, to begin a command of a transaction with.
    pub(in crate::resp) fn apart(protocol: Protocol) -> Self {
        let mut core = Self::new(0, Limits::default());
        core.client.protocol = protocol;
        core
    }

    /// What was replied, and how.
    pub(in crate::resp) fn into_reply(self) -> (Vec<u8>, MeteredOutcome) {
        let outcome = match self.present.erred {
            true => MeteredOutcome::Invalid,
            false => MeteredOutcome::Ok,
        };
        (self.output.bytes, outcome)
    }

    /// Replies to the present command with what is ready.
    pub(in crate::resp) fn reply_encoded(&mut self, bytes: Vec<u8>) -> Step {
        if self.is_muted() {
            return Step::Replied;
        }
        if self.replies.pending.is_empty() {
            self.output.bytes.extend_from_slice(&bytes);
        } else {
            let pending = Pending::new(Gather::Encoded(bytes), self.client.protocol, false);
            self.replies.held += pending.held;
            self.replies.pending.push_back(pending);
        }
        Step::Replied
    }

    /// Replies to the present command on the spot, in its turn.
    pub(in crate::resp) fn reply(&mut self, write: impl FnOnce(&mut Encoder<'_>)) -> Step {
        if self.is_muted() {
            return Step::Replied;
        }
        if self.replies.pending.is_empty() {
            write(&mut Encoder::new(
                &mut self.output.bytes,
                self.client.protocol,
            ));
        } else {
            let mut bytes = Vec::new();
            write(&mut Encoder::new(&mut bytes, self.client.protocol));
            return self.reply_encoded(bytes);
        }
        Step::Replied
    }

    /// Replies to the present command with an error.
    pub(in crate::resp) fn error(&mut self, text: &str) -> Step {
        self.present.erred = true;
        self.reply(|out| out.error(text))
    }

    pub(super) fn is_muted(&self) -> bool {
        matches!(self.client.reply_mode, ReplyMode::Off | ReplyMode::Skip)
    }

    /// The call of `token` has a batch of `bytes`. A request has one such call under way at a time.
    pub(super) fn asked(&mut self, token: CallToken, bytes: usize) {
        let index = self.index_of(token.sequence());
        self.replies.pending[index].asked += bytes;
        self.calls.asked += bytes;
    }

    /// The call of `token` is about keys that are held meanwhile.
    pub(super) fn asked_for_keys(&mut self, token: CallToken) {
        let index = self.index_of(token.sequence());
        self.asked(token, self.replies.pending[index].keys_bytes());
    }

    /// Whether another request may be begun.
    pub(super) fn has_room(&self) -> bool {
        let kept = self.output.len() + self.replies.held;
        let idle = kept == 0 && self.replies.pending.is_empty();
        let bytes = kept.saturating_add(self.calls.expected_bytes());
        idle || (self.calls.in_flight < self.limits.in_flight_max
            && self.replies.pending.len() < PENDING_MAX
            && self.calls.asked < self.limits.asked_bytes_max
            && bytes < self.limits.output_bytes_max)
    }

    /// Whether the command at `index` of the queue may make another call. The first of the queue
    /// has room for one whole reply, so that there is always one that goes on.
    pub(super) fn has_room_at(&self, index: usize) -> bool {
        let first_alone = index == 0 && self.calls.in_flight == 0;
        first_alone
            || self.calls.in_flight < self.limits.in_flight_max && {
                let bound = self.limits.output_bytes_max
                    + if index == 0 {
                        self.limits.reply_bytes_max
                    } else {
                        0
                    };
                let kept = self.output.len() + self.replies.held;
                kept.saturating_add(self.calls.expected_bytes()) < bound
            }
    }

    /// There is another command.
    pub(in crate::resp) const fn begin_command(&mut self) {
        self.present.count += 1;
        self.present.erred = false;
        self.client.reply_mode = match self.client.reply_mode {
            ReplyMode::SkipNext => ReplyMode::Skip,
            ReplyMode::Skip => ReplyMode::On,
            mode => mode,
        };
    }

    /// The reply of this command.
    pub(in crate::resp) fn pending_of(&mut self, token: CallToken) -> &mut Pending {
        let index = self.index_of(token.sequence());
        &mut self.replies.pending[index]
    }

    /// The command of `token` makes no further call.
    pub(in crate::resp) fn let_go(&mut self, front: &FrontEnd, token: CallToken) {
        self.pending_of(token).outstanding -= 1;
        self.write_complete(front);
    }

    /// The sequence number of the first reply.
    pub(in crate::resp) const fn base_sequence(&self) -> u32 {
        self.replies.base & SEQUENCE_MASK
    }

    /// Bytes that are to be written.
    pub(in crate::resp) const fn output_bytes(&self) -> usize {
        self.output.len()
    }

    pub(in crate::resp) const fn limits(&self) -> &Limits {
        &self.limits
    }
}
