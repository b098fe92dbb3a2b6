//! The requests of this server's clients that other servers carry out: those that are with a server, and those that
//! wait for a primary, in a [line](super::line) for each region. How they get there is said in
//! [failover](super::failover).
//!
//! When a link breaks, all calls that travel on it are lost. The outcome of a lost write is unknown: it fails. A lost
//! read goes back to its line, and is sent again: the peer has forgotten the first request, which changed nothing. The
//! second request may return a write that was sent after the first.
//!
//! A server that is stopped keeps its link for a while, and answers nothing. Once it is quiet, and its region has been
//! raised or promoted since, nobody will learn what became of a write there: it fails as *unknown* before its deadline.
//! While its server is heard its answer is waited for, whatever the region map says: that knows better.
//!
//! All of it is bounded: the number of calls, the bytes that are kept of those that are with a server, so that they can
//! be sent again, and the bytes of those that wait. Reads and writes share these bytes, and neither takes the last
//! quarter from the other: a flood of writes does not have reads refused, or lost with their link, nor the other way
//! round.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Epoch, Instant, Outcome, ServerId};

use super::line::{Call, Line};
use crate::service::{Failure, ReplyTo, Response};

/// Calls at most, with other servers or waiting.
pub(super) const CALLS_MAX: usize = 1 << 16;
/// Bytes of calls that are with other servers and are kept to be sent again, at most. What comes beyond it is lost with
/// its link, and is not sent again when it is refused.
pub(super) const KEPT_BYTES_MAX: usize = 4 << 20;
/// Bytes of calls that wait for a primary, at most.
pub(super) const WAITING_BYTES_MAX: usize = 8 << 20;
/// Characters that are kept of why a call was refused, at most.
const REFUSAL_CHARS_MAX: usize = 200;

/// A call that is with a server.
struct PendingCall {
    /// The server that it went to.
    peer: ServerId,
    /// The epoch under which it was sent.
    epoch: Epoch,
    call: Call,
}

impl PendingCall {
    const fn sent(&self) -> Sent {
        Sent {
            peer: self.peer,
            epoch: self.epoch,
            place: self.call.place,
        }
    }
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// The server that it went to.
    pub(super) peer: ServerId,
    /// The epoch under which it was sent.
    pub(super) epoch: Epoch,
    /// The place of its region in the map.
    pub(super) place: usize,
}

/// What became of a call that another server has answered.
pub(super) enum Ended {
    /// Nobody waits for it.
    Unknown,
    /// It was refused, and waits in the line of its region again.
    Returned(Returned),
    /// It is answered.
    Answered,
}

/// A call that waits again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returned {
    pub(super) number: u64,
    pub(super) place: usize,
    pub(super) write: bool,
}

/// Bytes of reads and of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BytesKept {
    reads: usize,
    writes: usize,
}

impl BytesKept {
    const fn all(self) -> usize {
        self.reads + self.writes
    }

    const fn of(&mut self, write: bool) -> &mut usize {
        match write {
            true => &mut self.writes,
            false => &mut self.reads,
        }
    }

    /// Takes `bytes` for a write, or for a read, where there may be `max` of both. False where there is no room.
    fn take(&mut self, write: bool, bytes: usize, max: usize) -> bool {
        let all = self.all() + bytes;
        let own = self.of(write);
        let fits = all <= max && *own + bytes <= max / 4 * 3;
        if fits {
            *own += bytes;
        }
        fits
    }

    /// The same, whether or not there is room.
    fn add(&mut self, write: bool, bytes: usize) {
        *self.of(write) += bytes;
    }

    fn give_back(&mut self, write: bool, bytes: usize) {
        *self.of(write) -= bytes;
    }
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Calls {
    pending: BTreeMap<u64, PendingCall>,
    last: u64,
    kept: BytesKept,
    /// By the place of the region. Those alone of which something is to be remembered.
    lines: BTreeMap<usize, Line>,
    /// Calls in lines, and their bytes.
    waiting: usize,
    waiting_bytes: BytesKept,
}

impl Calls {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.waiting
    }

    /// Bytes of those that are with other servers and are kept.
    pub(super) const fn kept_bytes(&self) -> usize {
        self.kept.all()
    }

    /// Bytes of those that wait.
    pub(super) const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.all()
    }

    /// Regions with calls that wait, or that are being sent after they did.
    pub(super) fn queueing(&self) -> usize {
        self.lines
            .values()
            .filter(|line| line.is_queueing())
            .count()
    }

    /// Their places.
    pub(super) fn queueing_places(&self) -> Vec<usize> {
        let lines = self.lines.iter();
        let queueing = lines.filter(|(_, line)| line.is_queueing());
        queueing.map(|(place, _)| *place).collect()
    }

    /// Whether what comes for the region in `place` has to wait behind others.
    pub(super) fn is_queueing(&self, place: usize) -> bool {
        self.lines.get(&place).is_some_and(Line::is_queueing)
    }

    /// The number of the next call.
    pub(super) const fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Has `call` wait at its place in the line of its region. Gives it back where too much waits.
    pub(super) fn put(&mut self, call: Call) -> Result<(), Box<Call>> {
        let (write, bytes) = (call.write, call.bytes());
        if self.len() >= CALLS_MAX || !self.waiting_bytes.take(write, bytes, WAITING_BYTES_MAX) {
            return Err(Box::new(call));
        }
        self.waiting += 1;
        self.line(call.place).put(call);
        Ok(())
    }

    /// Notes that `call` is about to be sent to `peer` under `epoch`. Gives it back where there are too many.
    pub(super) fn begin(
        &mut self,
        peer: ServerId,
        epoch: Epoch,
        call: Call,
    ) -> Result<(), Box<Call>> {
        if self.len() >= CALLS_MAX {
            return Err(Box::new(call));
        }
        self.line(call.place).goes(call.number);
        self.keep(peer, epoch, call);
        Ok(())
    }

    /// The next call of the region in `place`, to be sent under `epoch`: [`sent`](Self::sent),
    /// [`put_back`](Self::put_back) or [`carried_out`](Self::carried_out) follows.
    pub(super) fn take(&mut self, place: usize, epoch: Epoch, now: Instant) -> Option<Call> {
        let call = self.lines.get_mut(&place)?.take(epoch, now)?;
        self.left_line(&call);
        Some(call)
    }

    /// What was taken is about to be sent to `peer` under `epoch`.
    pub(super) fn sent(&mut self, peer: ServerId, epoch: Epoch, call: Call) {
        self.keep(peer, epoch, call);
    }

    /// Call `number` of the region in `place`, which was taken, has been sent: the next one may follow.
    pub(super) fn follows(&mut self, place: usize, number: u64) {
        if let Some(line) = self.lines.get_mut(&place) {
            line.sent(number);
        }
        self.forget_line(place);
    }

    /// What was taken waits again.
    pub(super) fn put_back(&mut self, call: Call) {
        self.waiting += 1;
        self.waiting_bytes.add(call.write, call.bytes());
        self.line(call.place).put_back(call);
    }

    /// Call `number` of the region in `place` was done, or may have been. Refused writes that came before it go to
    /// `due`, as not applied.
    fn done(&mut self, place: usize, number: u64, due: &mut Vec<(ReplyTo, Response)>) {
        let mut late = Vec::new();
        self.line(place).done(number, &mut late);
        self.forget_line(place);
        for call in late {
            self.left_line(&call);
            due.push(refusal_of(call));
        }
    }

    /// Call `number` was carried out here, under `epoch`.
    pub(super) fn carried_out(
        &mut self,
        place: usize,
        number: u64,
        epoch: Epoch,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        self.line(place).prove(epoch);
        self.done(place, number, due);
    }

    /// Nobody waits for call `number` any more.
    fn forget(&mut self, place: usize, number: u64) {
        self.line(place).forget(number);
        self.forget_line(place);
    }

    /// Takes call `number` back, which was not sent after all. `None` where nobody waits for it any more.
    pub(super) fn take_back(&mut self, number: u64) -> Option<Call> {
        let call = self.unkeep(number)?.call;
        self.forget(call.place, number);
        Some(call)
    }

    /// The answer to call `number` of `peer` has come: `why` it was refused, if it was. The call goes back to its line,
    /// where that is right; otherwise who waited for it goes to `due` with `response`.
    pub(super) fn end(
        &mut self,
        answer: Answer,
        now: Instant,
        due: &mut Vec<(ReplyTo, Response)>,
    ) -> Ended {
        let Answer {
            peer,
            number,
            response,
            any_order,
        } = answer;
        if self.pending.get(&number).is_none_or(|of| of.peer != peer) {
            return Ended::Unknown;
        }
        let PendingCall { epoch, call, .. } = self.unkeep(number).expect("it is there");
        let place = call.place;
        let Some(why) = refused(&response) else {
            self.line(place).prove(epoch);
            self.done(place, number, due);
            due.push((call.reply, response));
            return Ended::Answered;
        };
        let line = self.line(place);
        line.refused(number, epoch, now);
        let overtaken = call.write && line.was_overtaken(number) && !any_order;
        let returns = !call.payload.is_empty() && now < call.until && !overtaken;
        let (reply, write) = (call.reply.clone(), call.write);
        let returned = returns
            && self
                .put(Call {
                    refused: Some(why.chars().take(REFUSAL_CHARS_MAX).collect()),
                    ..call
                })
                .is_ok();
        self.forget_line(place);
        if !returned {
            due.push((reply, response));
            return Ended::Answered;
        }
        Ended::Returned(Returned {
            number,
            place,
            write,
        })
    }

    /// The link to `peer` is down. Reads that are kept wait again. All else fails; the outcome of a write is unknown.
    /// Planted by `again`: a write waits again, too.
    pub(super) fn link_down(
        &mut self,
        peer: ServerId,
        again: bool,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        let why = "was lost while it worked on this";
        for number in self.numbers(|of| of.peer == peer) {
            self.lose(number, why, again, due);
        }
    }

    /// The region map is another one; `primary_of` says whom it names, by the place of the region. Reads that are with
    /// another server than that wait again. Writes to a region of which this server, `me`, is the primary now are sent
    /// no more if they are refused.
    pub(super) fn map_changed(
        &mut self,
        me: ServerId,
        primary_of: impl Fn(usize) -> ServerId,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        let reads = |of: &PendingCall| !of.call.write && !of.call.payload.is_empty();
        for number in self.numbers(|of| reads(of) && primary_of(of.call.place) != of.peer) {
            self.lose(number, "is its primary no more", false, due);
        }
        for number in self.numbers(|of| of.call.write && primary_of(of.call.place) == me) {
            if let Some(mut pending) = self.unkeep(number) {
                pending.call.payload = Arc::default();
                self.pending.insert(number, pending);
            }
        }
    }

    /// Fails what was sent to servers that lead its region no more and answer nothing, as `is_lost` says: the outcome
    /// of a write is unknown. Reads that are kept wait again when the map changes.
    pub(super) fn lost(
        &mut self,
        is_lost: impl Fn(&Sent) -> bool,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        let returns = |call: &Call| !call.write && !call.payload.is_empty();
        for number in self.numbers(|of| !returns(&of.call) && is_lost(&of.sent())) {
            let pending = self.unkeep(number).expect("it is there");
            self.fail(pending, "does not answer, and is its primary no more", due);
        }
    }

    /// Fails the calls that are with servers and whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, due: &mut Vec<(ReplyTo, Response)>) {
        for number in self.numbers(|of| of.call.deadline <= now) {
            let pending = self.unkeep(number).expect("it is there");
            self.fail(pending, "did not answer in time", due);
        }
    }

    /// Gives up calls of the region in `place` that wait, and for which `over` holds.
    pub(super) fn give_up(
        &mut self,
        place: usize,
        over: impl Fn(&Call) -> bool,
        given_up: &mut Vec<Call>,
    ) {
        let before = given_up.len();
        if let Some(line) = self.lines.get_mut(&place) {
            line.give_up(over, given_up);
        }
        for call in &given_up[before..] {
            self.left_line(call);
        }
        self.forget_line(place);
    }

    fn numbers(&self, which: impl Fn(&PendingCall) -> bool) -> Vec<u64> {
        let calls = self.pending.iter();
        let those = calls.filter(|(_, call)| which(call));
        those.map(|(number, _)| *number).collect()
    }

    /// Call `number` will get no answer from its server.
    fn lose(&mut self, number: u64, why: &str, again: bool, due: &mut Vec<(ReplyTo, Response)>) {
        let pending = self.unkeep(number).expect("it is there");
        if pending.call.write && !again || pending.call.payload.is_empty() {
            return self.fail(pending, why, due);
        }
        let PendingCall { peer, epoch, call } = pending;
        self.line(call.place).forget(number);
        if let Err(call) = self.put(call) {
            let call = *call;
            self.fail(PendingCall { peer, epoch, call }, why, due);
        }
    }

    fn fail(&mut self, pending: PendingCall, why: &str, due: &mut Vec<(ReplyTo, Response)>) {
        let PendingCall { peer, call, .. } = pending;
        let outcome = match call.write {
            true => Outcome::Unknown,
            false => Outcome::NotApplied,
        };
        match call.write {
            true => self.done(call.place, call.number, due),
            false => self.forget(call.place, call.number),
        }
        let what = format!("{peer}, the region's primary, {why}; retry");
        let error = Failure::Unavailable { what, outcome };
        due.push((call.reply, Response::Failed(error)));
    }

    fn keep(&mut self, peer: ServerId, epoch: Epoch, mut call: Call) {
        if !self
            .kept
            .take(call.write, call.payload.len(), KEPT_BYTES_MAX)
        {
            call.payload = Arc::default();
        }
        let number = call.number;
        let pending = PendingCall { peer, epoch, call };
        self.pending.insert(number, pending);
    }

    fn unkeep(&mut self, number: u64) -> Option<PendingCall> {
        let pending = self.pending.remove(&number)?;
        let call = &pending.call;
        self.kept.give_back(call.write, call.payload.len());
        Some(pending)
    }

    fn line(&mut self, place: usize) -> &mut Line {
        self.lines.entry(place).or_default()
    }

    fn forget_line(&mut self, place: usize) {
        if self.lines.get(&place).is_some_and(Line::is_over) {
            self.lines.remove(&place);
        }
    }

    fn left_line(&mut self, call: &Call) {
        self.waiting -= 1;
        self.waiting_bytes.give_back(call.write, call.bytes());
    }
}

/// What a server has answered.
pub(super) struct Answer {
    pub(super) peer: ServerId,
    /// The number of the call.
    pub(super) number: u64,
    pub(super) response: Response,
    /// Planted: a write that was refused is sent again whatever was done meanwhile.
    pub(super) any_order: bool,
}

/// Why nothing was done, where that may be otherwise at another time, or at another server.
fn refused(response: &Response) -> Option<&str> {
    match response {
        Response::Failed(Failure::Unavailable { what, outcome }) => {
            (*outcome == Outcome::NotApplied).then_some(&**what)
        }
        _ => None,
    }
}

/// Who waits for `call`, and what it was refused for.
pub(super) fn refusal_of(call: Call) -> (ReplyTo, Response) {
    let what = call.refused.map_or_else(String::new, String::from);
    let outcome = Outcome::NotApplied;
    let error = Failure::Unavailable { what, outcome };
    (call.reply, Response::Failed(error))
}
