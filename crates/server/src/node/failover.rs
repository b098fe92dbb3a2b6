//! How a request gets to the primary of its region, and what it waits for while there is none that answers.
//!
//! A request for a region of another server is sent there at once, where that can be reached. Otherwise, and where this
//! server is the primary and has not opened the region, it waits in the [line](super::line) of its region, for
//! `failover_wait` at most, until the region map names a primary that answers. It is refused as *not applied* at the
//! end of that time, or at once where waiting is of no use:
//!
//! ```text
//! the primary is …                          a read                 a write
//! open here, or reached by its link         goes there             goes there
//! this server, which opens the region       waits                  waits
//! not there: another one is looked for      waits                  waits
//! this server, whose copy has failed        refused                refused
//! silent for half a second                  waits for a sign       waits for a sign
//! behind a link that is down                waits for the link     waits, or refused in a group of one
//! silent for long, whatever its link        waits, or refused in a group of one
//! ```
//!
//! A read that waits for a link does so up to its deadline, as one does that was lost with its link. The deadline of a
//! request counts from when it came, however long it has waited.
//!
//! What was sent to a server that then falls silent is not waited for any longer than until the map has another
//! promotion of its region, or raises it to find another primary: a write is *unknown* by then, a read is sent anew.
//!
//! What another server refuses without having done anything, since it is not the primary or has not opened the region,
//! waits again, by the rules of the line. One rule is of the map: a write that was refused waits only if this server
//! was not the primary in between. Requests that are carried out here have no number, so that none of them could be
//! told from a later one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Epoch, Instant, Outcome, RegionId, ServerId};
use argosy_coordinator::{Region as MapRegion, RegionState};
use argosy_engine::Reach;
use argosy_wire::api::{Scratch, Sender};
use argosy_wire::message::Message;
use argosy_wire::ring::Header;

use super::calls::{Answer, Calls, Ended, Returned, Sent, refusal_of};
use super::context::Context;
use super::line::Call;
use super::link::SendError;
use super::local::LocalRegion;
use super::region::{Closed, send_all};
use super::requests::Requests;
use crate::service::{Begun, Failure, ReplyTo, Request, Response};

/// The kind of a forwarded request.
const CALL_KIND: u8 = Message::Call(&[]).kind();
/// Calls of one line that are sent, or carried out here, in one step.
const CALLS_PER_STEP: usize = 64;
/// How soon the thread that moves links looks again while calls wait.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Where the primary of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Here, where the region is open.
    Here,
    /// Here, where the region is not open yet.
    Opening,
    /// Nowhere: it was lost, and another one is looked for.
    Nowhere,
    /// Here, where the copy can never open.
    Failed,
    /// At the other end of a link that is open.
    Over(ServerId),
    /// There; its link is open, but it has shown no sign of life for a while. What is sent may be lost, and then nobody
    /// knows what became of it.
    Quiet(ServerId),
    /// At the other end of one that is down or about to break, and may open soon.
    Down(ServerId),
    /// There; its link is open, but it has shown no sign of life for long.
    Away(ServerId),
    /// There; its link is down, and it has shown no sign of life for long.
    Gone(ServerId),
}

impl Way {
    /// The one to the primary of `of`.
    fn to(of: &MapRegion, context: &Context<'_>) -> Self {
        if of.state != RegionState::Serving {
            return Self::Nowhere;
        }
        if of.primary == context.id {
            let Some(region) = context.region(of.id) else {
                return Self::Opening;
            };
            return match (region.is_open(), &*region.closed()) {
                (true, _) => Self::Here,
                (false, Closed::Yet(_)) => Self::Opening,
                (false, Closed::ForGood(_)) => Self::Failed,
            };
        }
        let (peer, now) = (of.primary, context.now());
        let link = context.link(peer);
        match (link.is_open(), link.is_missing(now)) {
            (true, false) if link.is_about_to_break() => Self::Down(peer),
            (true, false)
                if link.is_quiet(now) && context.settings.failover_wait > Duration::ZERO =>
            {
                Self::Quiet(peer)
            }
            (true, false) => Self::Over(peer),
            (true, true) => Self::Away(peer),
            (false, false) => Self::Down(peer),
            (false, true) => Self::Gone(peer),
        }
    }

    /// Whether it is of use that `call`, for a region which has `others` than its primary, waits on, `now`.
    pub(super) fn is_waited_for(self, call: &Call, others: bool, now: Instant) -> bool {
        let in_time = now < call.until;
        let in_vain = call.deadline <= now;
        !in_vain
            && match self {
                // Its turn comes soon. One that was refused there has had it.
                Self::Here | Self::Over(_) => in_time || call.refused.is_none(),
                Self::Opening | Self::Nowhere | Self::Quiet(_) => in_time,
                Self::Failed => false,
                Self::Down(_) if !call.write => true,
                Self::Down(_) | Self::Away(_) | Self::Gone(_) => in_time && others,
            }
    }
}

/// Whether a copy of `of` may be promoted when its primary is lost.
fn has_others(of: &MapRegion) -> bool {
    of.members.len() > 1
}

impl Requests {
    /// Sends a request for the region in `place` of the map to its primary, or has it wait. Returns the answer where it
    /// is refused.
    pub(super) fn pass_on(
        &self,
        place: usize,
        request: &Request<'_>,
        reply: ReplyTo,
        context: &Context<'_>,
    ) -> Option<Response> {
        let map = context.views.map();
        let of = &map.regions()[place];
        let mut payload = Vec::new();
        request.encode(&mut payload);
        let settings = context.settings;
        let call = Call {
            number: self.calls().next_number(),
            place,
            payload: payload.into(),
            write: request.writes(),
            reply,
            until: context.now() + settings.failover_wait,
            // The primary gives the request up first, and knows better what became of it.
            deadline: context.deadline() + settings.deadline / 4,
            refused: None,
        };
        let way = Way::to(of, context);
        // Planted: it is sent all the same, so what is told of it need not be true.
        let sends = settings.mutants.refuse_what_was_sent();
        match way {
            _ if self.is_queueing(place) => self.wait(way, call, of, context),
            Way::Over(peer) => self.send_now(peer, call, of, context),
            Way::Away(peer) if sends => {
                let number = call.number;
                let refused = self.send_now(peer, call, of, context);
                refused.or_else(|| {
                    self.calls().take_back(number)?;
                    Some(refusal(way, of, context))
                })
            }
            _ => self.wait(way, call, of, context),
        }
    }

    /// Has `call` wait, where that is of use. Returns the answer where it is refused.
    fn wait(
        &self,
        way: Way,
        call: Call,
        of: &MapRegion,
        context: &Context<'_>,
    ) -> Option<Response> {
        if !way.is_waited_for(&call, has_others(of), context.now()) {
            return Some(refusal(way, of, context));
        }
        let mut calls = self.calls();
        let kept = calls.put(call);
        self.note_queueing(&calls);
        drop(calls);
        if kept.is_err() {
            let what = format!("too many requests wait for the primary of {}; retry", of.id);
            return Some(not_applied(what));
        }
        if way == Way::Here {
            context.wake(of.id);
        }
        None
    }

    /// Sends `call`, before which none waits. Returns the answer where it is refused.
    fn send_now(
        &self,
        peer: ServerId,
        call: Call,
        of: &MapRegion,
        context: &Context<'_>,
    ) -> Option<Response> {
        let (number, payload) = (call.number, Arc::clone(&call.payload));
        if self.calls().begin(peer, of.since, call).is_err() {
            return Some(not_applied(
                "too many requests are being forwarded; retry".into(),
            ));
        }
        let sent = context
            .link(peer)
            .send(header(number, of.id, of.since), &payload);
        let error = sent.err()?;
        // Where the answer was given up meanwhile, it has been delivered.
        let call = self.calls().take_back(number)?;
        match error {
            SendError::Down => {
                self.wait(Way::to(of, context), Call { payload, ..call }, of, context)
            }
            error => Some(unsent(peer, of.id, &error)),
        }
    }

    /// Whether requests for the region in `place` wait, so that what comes now waits behind them.
    #[inline]
    pub(super) fn is_queueing(&self, place: usize) -> bool {
        self.any_queueing() && self.calls().is_queueing(place)
    }

    /// Takes the answer to call `number` of `peer`.
    pub(super) fn answered(
        &self,
        peer: ServerId,
        number: u64,
        response: Response,
        context: &Context<'_>,
    ) {
        let mut due = Vec::new();
        let answer = Answer {
            peer,
            number,
            response,
            any_order: context.settings.mutants.send_after_later(),
        };
        let mut calls = self.calls();
        let ended = calls.end(answer, context.now(), &mut due);
        if let Ended::Returned(returned) = ended {
            // Whoever finds no line from here on has not seen a later map than this thread sees.
            self.note_queueing(&calls);
            if !may_return(returned, context) {
                let mut given_up = Vec::new();
                let it = |call: &Call| call.number == returned.number;
                calls.give_up(returned.place, it, &mut given_up);
                due.extend(given_up.into_iter().map(refusal_of));
                self.note_queueing(&calls);
            }
        }
        drop(calls);
        send_all(due);
    }

    /// The link to `peer` is down: what travelled on it is lost.
    pub(super) fn link_down(&self, peer: ServerId, context: &Context<'_>) {
        let mut due = Vec::new();
        let again = context.settings.mutants.send_lost_again();
        let mut calls = self.calls();
        calls.link_down(peer, again, &mut due);
        self.note_queueing(&calls);
        drop(calls);
        send_all(due);
    }

    /// The region map is another one: what is read at a server that is no longer the primary is read elsewhere. Called
    /// behind each replacement, by one thread at a time.
    pub(super) fn map_changed(&self, context: &Context<'_>) {
        let mut due = Vec::new();
        let map = context.views.map();
        let primary_of = |place: usize| map.regions()[place].primary;
        let mut calls = self.calls();
        calls.map_changed(context.id, primary_of, &mut due);
        self.note_queueing(&calls);
        drop(calls);
        self.give_up_lost(&mut due, context);
        send_all(due);
    }

    /// Sends what waits and can be sent. For the thread that moves links. Returns whether anything was.
    pub(super) fn step_lines(&self, context: &Context<'_>) -> bool {
        if !self.any_queueing() {
            return false;
        }
        let places = self.calls().queueing_places();
        let mut made = false;
        for place in places {
            let map = context.views.map();
            let of = &map.regions()[place];
            match Way::to(of, context) {
                Way::Over(peer) => {
                    let mut left = CALLS_PER_STEP;
                    while left > 0 && self.send_next(peer, place, of, context) {
                        left -= 1;
                        made = true;
                    }
                }
                Way::Here => context.wake(of.id),
                _ => {}
            }
        }
        self.note_queueing(&self.calls());
        made
    }

    /// Sends the first call of a line. Returns whether there may be another one.
    fn send_next(
        &self,
        peer: ServerId,
        place: usize,
        of: &MapRegion,
        context: &Context<'_>,
    ) -> bool {
        let (number, payload) = {
            let mut calls = self.calls();
            let Some(call) = calls.take(place, of.since, context.now()) else {
                return false;
            };
            let sent = (call.number, Arc::clone(&call.payload));
            calls.sent(peer, of.since, call);
            sent
        };
        let sent = context
            .link(peer)
            .send(header(number, of.id, of.since), &payload);
        let mut calls = self.calls();
        let Err(error) = sent else {
            calls.follows(place, number);
            return true;
        };
        let Some(call) = calls.take_back(number) else {
            calls.follows(place, number);
            return false;
        };
        let call = Call { payload, ..call };
        match error {
            SendError::Down | SendError::Full => {
                calls.put_back(call);
                false
            }
            SendError::TooLong { .. } => {
                drop(calls);
                call.reply.send(unsent(peer, of.id, &error));
                true
            }
        }
    }

    /// Carries out what waits for a region that is open here. May block for the device. Returns whether anything was.
    pub(super) fn serve_line(&self, local: &LocalRegion<'_>) -> bool {
        if !self.any_queueing() {
            return false;
        }
        let context = local.context;
        let map = context.views.map();
        let regions = map.regions();
        let Some(place) = map.place_of(local.region.id()) else {
            return false;
        };
        let mut made = false;
        for _ in 0..CALLS_PER_STEP {
            let of = &regions[place];
            if Way::to(of, context) != Way::Here || !self.serve_next(local, place, of.since) {
                break;
            }
            made = true;
        }
        self.note_queueing(&self.calls());
        made
    }

    /// Carries out the first call of a line. Returns whether there may be another one.
    fn serve_next(&self, local: &LocalRegion<'_>, place: usize, epoch: Epoch) -> bool {
        let Some(call) = self.calls().take(place, epoch, local.context.now()) else {
            return false;
        };
        let reply = ReplyTo {
            deadline: Some(call.deadline),
            ..call.reply.clone()
        };
        let mut scratch = Scratch::default();
        let begun = match Request::decode(&call.payload, Sender::Server, &mut scratch) {
            Ok(request) => local.call_if_open(request, Reach::Device, reply),
            Err(error) => Ok(Begun::Answered(Response::Failed(Failure::Invalid(
                error.to_string(),
            )))),
        };
        let mut calls = self.calls();
        let Ok(begun) = begun else {
            calls.put_back(call);
            return false;
        };
        let mut due = Vec::new();
        calls.carried_out(place, call.number, epoch, &mut due);
        drop(calls);
        if let Begun::Answered(response) = begun {
            due.push((call.reply, response));
        }
        send_all(due);
        true
    }

    /// Fails what was sent to servers that are quiet, for regions that they lead no more.
    fn give_up_lost(&self, due: &mut Vec<(ReplyTo, Response)>, context: &Context<'_>) {
        let is_quiet = |peer: &ServerId| context.link(*peer).is_quiet(context.now());
        let quiet: BTreeSet<ServerId> = context.links.peers().filter(is_quiet).collect();
        if quiet.is_empty() {
            return;
        }
        let map = context.views.map();
        let is_lost = |sent: &Sent| {
            let of = &map.regions()[sent.place];
            let is_led = of.state == RegionState::Serving && of.since == sent.epoch;
            quiet.contains(&sent.peer) && !is_led
        };
        self.calls().lost(is_lost, due);
    }

    /// Fails the calls whose deadline has passed, and those for which it is of no use to wait any longer.
    pub(super) fn expire_calls(
        &self,
        now: Instant,
        due: &mut Vec<(ReplyTo, Response)>,
        context: &Context<'_>,
    ) {
        self.calls().expire(now, due);
        self.give_up_lost(due, context);
        if !self.any_queueing() {
            return;
        }
        let map = context.views.map();
        let places = self.calls().queueing_places();
        for place in places {
            let of = &map.regions()[place];
            let way = Way::to(of, context);
            let others = has_others(of);
            let over = |call: &Call| !way.is_waited_for(call, others, now);
            let mut given_up = Vec::new();
            self.calls().give_up(place, over, &mut given_up);
            for call in given_up {
                due.push(match call.refused {
                    Some(_) => refusal_of(call),
                    None => (call.reply, refusal(way, of, context)),
                });
            }
        }
        self.note_queueing(&self.calls());
    }

    /// Tells who asks for regions whether any has calls that wait.
    fn note_queueing(&self, calls: &Calls) {
        self.set_queueing(calls.queueing() > 0);
    }
}

/// Whether a call that was refused may wait again, by the map: a read may. A write may where this server is not the
/// primary, and has not been since the call was sent: then it would not be kept ([`Calls::map_changed`]).
fn may_return(returned: Returned, context: &Context<'_>) -> bool {
    let map = context.views.map();
    !returned.write || map.regions()[returned.place].primary != context.id
}

fn header(request: u64, region: RegionId, epoch: Epoch) -> Header {
    Header {
        kind: CALL_KIND,
        region,
        epoch,
        request,
    }
}

fn not_applied(what: String) -> Response {
    let outcome = Outcome::NotApplied;
    Response::Failed(Failure::Unavailable { what, outcome })
}

/// Why a call was not sent.
fn unsent(peer: ServerId, region: RegionId, error: &SendError) -> Response {
    not_applied(match error {
        SendError::Full => format!("{peer} does not keep up; retry"),
        SendError::Down | SendError::TooLong { .. } => format!(
            "it cannot be forwarded to {peer}, the primary of {region}: {error}; send less at a time"
        ),
    })
}

/// What is told who waits no longer for the primary of `of`.
fn refusal(way: Way, of: &MapRegion, context: &Context<'_>) -> Response {
    let region = of.id;
    match way {
        Way::Opening | Way::Failed => match context.region(region) {
            Some(local) => LocalRegion::new(context, local).not_open(),
            None => not_applied(format!("{region} is not open; retry")),
        },
        Way::Nowhere => not_applied(format!("{region} has no primary at the moment; retry")),
        Way::Here | Way::Over(_) => not_applied(format!(
            "{region}: earlier requests have no answer yet; retry"
        )),
        Way::Down(peer) | Way::Gone(peer) => not_applied(format!(
            "{peer}, the primary of {region}, cannot be reached; retry when it is back"
        )),
        Way::Away(peer) | Way::Quiet(peer) => not_applied(format!(
            "{peer}, the primary of {region}, shows no sign of life; retry when it is back"
        )),
    }
}
