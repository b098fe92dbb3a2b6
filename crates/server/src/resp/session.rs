//! One connection as a pure state machine: bytes in, calls out; answers in, bytes out. It does no
//! I/O and reads no clock, so the same bytes and answers always give the same replies.
//!
//! In steps, for whoever drives it:
//!
//! 1. While [`Session::wants_input`], give it what was read: [`Session::receive`].
//! 2. Take calls until there are none: [`Session::next_call`]. Each is made, and its answer is given
//!    to [`Session::answer`] under the call's token: at once, or later, in any order.
//! 3. Write [`Session::output`], and say how much of it: [`Session::wrote`].
//! 4. After answers or writes, take calls again: there was perhaps no room for them before.
//! 5. When [`Session::is_finished`], close the connection.
//!
//! Invariants:
//!
//! - Replies are written in the order of the requests, each once, whole.
//! - What is held is bounded ([`Limits`]): a session without room takes no calls and no input, and
//!   makes room by writing replies; with nothing in flight and nothing to write it has room.
//! - A request that cannot be read is answered with one error, after the replies before it, and
//!   ends the connection.

use argosy_wire::api::{Plan, Scratch};
use argosy_wire::resp::Step as Parsed;

use self::long::{Intake, Took};
use self::state::{Calls, Client, Output, Present, Replies, SlowClock};
use super::command::{self, Step, Turn};
use super::front::{Context, FrontEnd, Limits};
use super::holds::Holds;
use super::input::Input;
use super::pool::Pool;
use super::reply::{After, Gather, Pending, response_bytes};
use super::slow_log::RoundMoment;
use crate::meter::MeteredOutcome;
use crate::service::{Request, Response};

/// Bits of a [`CallToken`]. It numbers the command, which has one call under way at a time.
const SEQUENCE_BITS: u32 = 24;
const SEQUENCE_MASK: u32 = (1 << SEQUENCE_BITS) - 1;

/// Most replies that wait for their turn.
const PENDING_MAX: usize = 4096;
const _: () = assert!(PENDING_MAX < (1 << SEQUENCE_BITS) / 2);

/// Replies that an idle session keeps places for.
const IDLE_PENDING: usize = 32;

/// Names a call within its session. The upper bits are zero, for the driver's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallToken(u64);

impl CallToken {
    /// Bits that a token may use.
    pub const BITS: u32 = SEQUENCE_BITS;

    /// The token as a number below 2^[`BITS`](Self::BITS).
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token that [`get`](Self::get) gave as `raw`.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    const fn new(sequence: u32) -> Self {
        Self((sequence & SEQUENCE_MASK) as u64)
    }

    fn sequence(self) -> u32 {
        u32::try_from(self.0).expect("a token has 24 bits")
    }
}

/// A request to the server, and the token under which the session wants its answer.
#[derive(Debug)]
pub struct Call<'a> {
    /// To be given to [`Session::answer`].
    pub token: CallToken,
    /// The command, by its place among those that are counted.
    pub(super) command: u16,
    /// What is asked.
    pub request: Request<'a>,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    input: Input,
    core: Core,
    /// A long value that is being taken in.
    intake: Option<Intake>,
}

/// What commands see of the session: everything but its input.
#[derive(Debug)]
pub(super) struct Core {
    /// The connection's number.
    pub(super) id: u64,
    pub(super) client: Client,
    limits: Limits,
    output: Output,
    replies: Replies,
    calls: Calls,
    /// What requests wait for.
    holds: Holds,
    pub(super) present: Present,
    /// No further request is read; the connection ends when everything is written.
    pub(super) closing: bool,
    /// A reply cannot be written to its end.
    broken: bool,
    /// There was a request, but no room for its call.
    stalled: bool,
    /// What the log of slow commands goes by.
    clock: SlowClock,
}

/// Which replies a client wants, as told by `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// Not that to the next command.
    SkipNext,
    /// Not that to the present command.
    Skip,
}

impl Session {
    /// The connection number `id`, to a client that has sent nothing yet.
    #[must_use]
    pub fn new(id: u64, limits: Limits) -> Self {
        assert!(limits.in_flight_max > 0, "a session makes calls");
        Self {
            input: Input::default(),
            core: Core::new(id, limits),
            intake: None,
        }
    }

    /// The connection's number.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.core.id
    }

    /// Whether there is room for more input.
    #[inline]
    #[must_use]
    pub const fn wants_input(&self) -> bool {
        !self.core.stalled && !self.core.closing && !self.input.ended
    }

    /// Takes memory out of `pool` to work with. To be called before a round's first
    /// [`receive`](Self::receive) or [`next_call`](Self::next_call); without it, the session works
    /// with memory of its own.
    #[inline]
    pub fn borrow_buffers(&mut self, pool: &mut Pool) {
        self.input.borrow_buffer(pool);
        pool.lend(&mut self.core.output.bytes);
    }

    /// Gives memory back that holds nothing. To be called when a round is over. Where memory is
    /// `scarce`, what holds little is put into as little.
    #[inline]
    pub fn return_buffers(&mut self, pool: &mut Pool, scarce: bool) {
        self.input.return_buffer(pool);
        if self.core.output.bytes.is_empty() {
            pool.take_back(&mut self.core.output.bytes);
        }
        if scarce {
            self.tighten(pool);
        }
        if self.core.replies.pending.is_empty() {
            self.core.replies.pending.shrink_to(IDLE_PENDING);
        }
    }

    /// Takes what was read.
    ///
    /// # Panics
    /// Unless [`wants_input`](Self::wants_input).
    #[inline]
    pub fn receive(&mut self, bytes: &[u8]) {
        assert!(self.wants_input(), "input is bounded by not reading it");
        self.input.append(bytes);
    }

    /// The client will send no more. What it has sent is carried out, then the session finishes.
    pub const fn end_of_input(&mut self) {
        self.input.ended = true;
    }

    /// The next call to make, or `None` where there is no whole request, or no room for its call.
    pub fn next_call<'a>(
        &'a mut self,
        context: &Context<'_>,
        scratch: &'a mut Scratch,
    ) -> Option<Call<'a>> {
        self.core.clock.is_new = false;
        self.tick(RoundMoment::of(context));
        let (token, plan) = self.advance(context, scratch)?;
        self.core.calls.in_flight += 1;
        if let Plan::Scan(paging) = plan {
            self.core.calls.reserve = self.core.calls.reserve.max(paging.bytes_max);
        }
        match plan {
            Plan::GetMany(..) => self.core.asked_for_keys(token),
            Plan::Write(_) | Plan::Ingest => self.core.asked(token, scratch.batch.bytes()),
            _ => {}
        }
        let command = self.command_of(token);
        let request = scratch.request(plan);
        Some(Call {
            token,
            command,
            request,
        })
    }

    /// Takes the answer to the call of `token`.
    ///
    /// # Panics
    /// Where that call was never made.
    pub fn answer(&mut self, front: &FrontEnd, token: CallToken, response: Response) {
        self.core.answer(token, response);
        self.core.write_complete(front);
    }

    /// What is to be written to the client.
    #[inline]
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.core.output.rest()
    }

    /// The first `bytes` bytes of the output have been written.
    pub fn wrote(&mut self, bytes: usize) {
        self.core.output.wrote(bytes);
    }

    /// Whether a request waits that now has room: take calls again, though nothing was read.
    #[inline]
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        if self.core.broken {
            return false;
        }
        let waits = self.writes_part() || self.core.holds.waits;
        let stalled = self.core.stalled && !waits;
        stalled && self.core.has_room() || self.core.wants_part()
    }

    /// Whether the connection is to be closed.
    #[inline]
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let core = &self.core;
        core.broken || core.closing && core.replies.pending.is_empty() && self.output().is_empty()
    }

    /// Calls without an answer.
    #[inline]
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.core.calls.in_flight
    }

    /// The command whose call has this token.
    fn command_of(&self, token: CallToken) -> u16 {
        let place = self.core.index_of(token.sequence());
        let pending = self.core.replies.pending.get(place);
        pending
            .and_then(|pending| pending.command)
            .unwrap_or(command::UNKNOWN)
    }

    /// Commands carried out since this was last asked.
    #[inline]
    pub const fn take_commands(&mut self) -> u64 {
        std::mem::replace(&mut self.core.present.count, 0)
    }

    /// Bytes of memory held for input and for output, answers that wait included.
    #[must_use]
    pub fn memory_bytes(&self) -> (usize, usize) {
        (
            self.input.memory_bytes(),
            self.core.output.bytes.capacity()
                + self.core.replies.held
                + self.core.client.transaction.memory_bytes()
                + self.core.replies.pending.capacity() * size_of::<Pending>(),
        )
    }

    /// Reads and begins requests until one has a call to make.
    fn advance(
        &mut self,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Option<(CallToken, Plan)> {
        if self.core.broken {
            return None;
        }
        if let Some(call) = self.core.next_page(context, scratch) {
            return Some(call);
        }
        if self.core.holds.waits {
            return None;
        }
        loop {
            self.core.stalled = false;
            if self.core.closing || self.input.is_empty() {
                return self.pause(context);
            }
            if !self.core.has_room() {
                self.core.stalled = true;
                return None;
            }
            match self.go_on_long(scratch) {
                Took::Call(token, plan) => return Some((token, plan)),
                Took::Needs => return self.pause(context),
                Took::Waits => {
                    self.core.stalled = true;
                    return None;
                }
                Took::Went => {}
            }
            match self.input.parse() {
                Err(error) => {
                    let text = format!("ERR Protocol error: {error}");
                    if !self.break_off_long(context.front, &text) {
                        self.core.error(&text);
                    }
                    self.core.closing = true;
                }
                Ok(Parsed::Incomplete) => return self.pause(context),
                Ok(Parsed::Long { bytes, len }) => {
                    // What is not taken is parsed on.
                    self.begin_long(bytes, len, context);
                }
                Ok(Parsed::Discard { bytes }) => self.input.consume(bytes),
                Ok(Parsed::Oversized {
                    bytes,
                    request_bytes,
                    longest_bytes,
                }) => {
                    self.input.consume(bytes);
                    let text = command::oversized(request_bytes, longest_bytes);
                    if !self.break_off_long(context.front, &text) {
                        self.core.present.count += 1;
                        self.core.client.transaction.abort();
                        let meter = &context.front.meter;
                        meter.count(command::UNKNOWN, MeteredOutcome::Invalid);
                        self.core.error(&text);
                    }
                }
                Ok(Parsed::Request { bytes }) if self.intake.is_some() => {
                    self.input.consume(bytes);
                    if let Some(call) = self.end_long(context, scratch) {
                        return Some(call);
                    }
                }
                Ok(Parsed::Request { bytes }) if self.has_to_wait(bytes) => return None,
                Ok(Parsed::Request { bytes }) => {
                    if let Some(call) = self.begin(bytes, context, scratch) {
                        return Some(call);
                    }
                }
            }
        }
    }

    /// Begins the request in the first `bytes` bytes of the input.
    fn begin(
        &mut self,
        bytes: usize,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Option<(CallToken, Plan)> {
        self.core.begin_command();
        self.input.consume(bytes);
        let inline = self.input.is_inline();
        let mut turn = Turn {
            core: &mut self.core,
            args: self.input.args(),
            context,
            scratch,
        };
        match command::begin(&mut turn, inline) {
            Step::Replied => {
                let outcome = match self.core.present.erred {
                    true => MeteredOutcome::Invalid,
                    false => MeteredOutcome::Ok,
                };
                context.front.meter.count(self.core.present.number, outcome);
                None
            }
            Step::Queued | Step::Procedure(_) => None,
            Step::Call(plan, gather) => {
                let grows = matches!(gather, Gather::Grow(_));
                let alone = matches!(gather, Gather::Exec(_) | Gather::Watch(_));
                let token = self.core.push_call(gather);
                self.core.clock.is_new = true;
                self.trace_early(token, context.front);
                if grows {
                    let key = self.input.args().at(1);
                    self.core.holds.change(token.sequence(), key);
                } else if alone {
                    self.core.holds.everything(token.sequence());
                }
                Some((token, plan))
            }
        }
    }
}

impl Core {
    fn new(id: u64, limits: Limits) -> Self {
        /// So many calls may be under way before the first answer has shown how long they are.
        const FIRST_CALLS: usize = 16;
        Self {
            id,
            client: Client::default(),
            limits,
            output: Output::default(),
            replies: Replies::default(),
            calls: Calls::new(limits.output_bytes_max / FIRST_CALLS),
            holds: Holds::default(),
            present: Present::default(),
            closing: false,
            broken: false,
            stalled: false,
            clock: SlowClock::default(),
        }
    }

    /// Queues the reply of a command that makes a call.
    pub(super) fn push_call(&mut self, gather: Gather) -> CallToken {
        let sequence = self
            .replies
            .base
            .wrapping_add(position(self.replies.pending.len()));
        let mut pending = Pending::new(gather, self.client.protocol, self.is_muted());
        pending.outstanding = 1;
        pending.command = Some(self.present.number);
        self.replies.held += pending.held;
        self.replies.pending.push_back(pending);
        CallToken::new(sequence)
    }

    /// The next call of a command that wants another page.
    fn next_page(
        &mut self,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Option<(CallToken, Plan)> {
        // The earliest command first: if that has no room, none has.
        let waiting = self.replies.next_pages.iter().enumerate();
        let (place, &sequence) = waiting.min_by_key(|(_, sequence)| self.index_of(**sequence))?;
        let index = self.index_of(sequence);
        let pending = &self.replies.pending[index];
        let has_room = match (pending.goes_alone(), pending.is_long()) {
            // It is written as it comes, so it is not begun before its turn.
            (_, true) => index == 0 && self.has_room_for_part(),
            (true, _) => index == 0,
            _ => self.has_room_at(index),
        };
        if !has_room {
            return None;
        }
        self.replies.next_pages.swap_remove(place);
        let pending = &mut self.replies.pending[index];
        self.replies.held -= pending.held;
        let plan = pending.next_page(context, scratch);
        self.replies.held += pending.held;
        if plan.is_none() {
            // It has come to its end without a further call.
            pending.outstanding -= 1;
            self.holds.answered(sequence, pending.outstanding == 0);
            self.write_complete(context.front);
        }
        Some((CallToken::new(sequence), plan?))
    }

    fn index_of(&self, sequence: u32) -> usize {
        (sequence.wrapping_sub(self.replies.base) & SEQUENCE_MASK) as usize
    }

    fn answer(&mut self, token: CallToken, response: Response) {
        let sequence = token.sequence();
        let index = self.index_of(sequence);
        let bytes = response_bytes(&response);
        // The longest of late counts; it is forgotten slowly.
        self.calls.reserve = bytes.max(self.calls.reserve - self.calls.reserve / 16);
        let pending = &mut self.replies.pending[index];
        self.calls.in_flight -= 1;
        self.calls.asked -= std::mem::take(&mut pending.asked);
        pending.outstanding -= 1;
        self.replies.held -= pending.held;
        let after = pending.take(response);
        let kept_in_parts = pending.is_long() || pending.goes_alone();
        if pending.held > self.limits.reply_bytes_max && !kept_in_parts {
            let text = command::reply_too_long(self.limits.reply_bytes_max);
            pending.fail(text, MeteredOutcome::Invalid);
        } else if after == After::NextPage {
            pending.outstanding += 1;
            self.replies.next_pages.push(sequence);
        }
        if let Gather::Watch(watching) = &mut pending.gather
            && pending.outstanding == 0
        {
            self.client.transaction.watch(watching);
        }
        self.holds.answered(sequence, pending.outstanding == 0);
        self.replies.held += pending.held;
        if index == 0 {
            self.stream();
        }
    }

    /// Writes the replies whose turn it is: none behind one that cannot be written to its end.
    fn write_complete(&mut self, front: &FrontEnd) {
        while !self.broken
            && self
                .replies
                .pending
                .front()
                .is_some_and(Pending::is_complete)
            && let Some(mut pending) = self.replies.pending.pop_front()
        {
            self.replies.held -= pending.held;
            self.replies.base = self.replies.base.wrapping_add(1);
            if let Some(trace) = pending.trace.take() {
                trace.end(self.clock.moment, self.id, front);
            }
            pending.write(&mut self.output.bytes, front);
        }
    }
}

fn position(at: usize) -> u32 {
    u32::try_from(at).expect("queues and requests are bounded")
}

#[path = "session_long.rs"]
mod long;
#[path = "session_room.rs"]
mod room;
#[path = "session_state.rs"]
mod state;

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
