//! Moves links, messages and the answers that wait for them. Engines and copies move in the
//! [background](super::background).

use std::sync::{Arc, Weak};
use std::time::Duration;

use argosy_base::codec::Malformed;
use argosy_base::{Epoch, Instant, Outcome, RegionId, ServerId};
use argosy_device::Room;
use argosy_engine::Progress;
use argosy_wire::api::{BadRequest, Request, Scratch, Sender};
use argosy_wire::message::{FetchStatus, Message};
use argosy_wire::ring::Header;

use super::Node;
use super::counters::Counted;
use super::failover::LOOK_AGAIN;
use super::link::{Admission, LinkEvent, SendError, Shipment};
use super::local::LocalRegion;
use super::peers_calls::PeersCalls;
use super::reading::Asked;
use super::region::Region;
use super::repairing;
use super::requests::PeersTasks;
use crate::activity::Activity;
use crate::service::{Begun, Failure, ReplySink, ReplyTo, Response};

/// Messages of one link that are handled before the next link has its turn.
const MESSAGES_PER_TURN: usize = 256;

/// The kind of an answer to a forwarded request.
const ANSWER_KIND: u8 = Message::Answer(&[]).kind();

impl Node {
    /// Moves links, messages and regions on. For one thread.
    pub fn step_fabric(&self, now: Instant) -> Progress {
        let context = &self.context();
        context.set_now(now);
        self.memory.trim_allocator(&self.world);
        if self.settings.mutants.stale_clock() {
            self.regions.iter().for_each(|of| of.gate().begin_step(now));
        }
        let mut made = false;
        let mut payload = Vec::new();
        let workers = self.requests.workers();
        let waited = workers.is_some_and(PeersTasks::begin_step);
        let peers: Vec<ServerId> = self.links.peers().collect();
        for peer in &peers {
            made |= self.step_link(*peer, now);
            made |= self.answer_deferred(*peer);
            for _ in 0..MESSAGES_PER_TURN {
                let Some(header) = self.link(*peer).next(&mut payload) else {
                    break;
                };
                made = true;
                self.receive(*peer, header, &payload);
            }
        }
        let lease = context.step_leases(now);
        for region in self.regions.take_active() {
            context.await_device(region);
            let local = LocalRegion::new(context, region);
            if region.holds() {
                made |= local.handle_held(&mut region.driver());
            }
            made |= local.pump();
            if PeersCalls::of(self).retry_in_memory(&local, region) {
                made |= local.pump();
            }
        }
        if let Some(workers) = workers {
            workers.end_step(waited);
        }
        made |= context.pump_dirty();
        context.sweep();
        made |= self.requests.step_lines(context);
        self.links.flush();
        self.world.ledger.settle(now);
        let next = peers.iter().map(|peer| self.link(*peer).next_step());
        let next = next.chain(lease).min();
        let mut idle_for = next.map_or(Duration::from_millis(100), |next| next.since(now));
        if self.requests.any_queueing() {
            idle_for = idle_for.min(LOOK_AGAIN);
        }
        Progress {
            made,
            idle_for: Some(idle_for.max(Duration::from_micros(100))),
            device: false,
        }
    }

    fn step_link(&self, peer: ServerId, now: Instant) -> bool {
        let mut events = Vec::new();
        let (made, session) = {
            let mut link = self.link(peer);
            (link.step(now, &mut events), link.session())
        };
        for event in events {
            match event {
                LinkEvent::Up => {
                    let node = Weak::clone(&self.me);
                    self.links.set_answerer(
                        peer,
                        Arc::new(Answerer {
                            node,
                            peer,
                            session,
                        }),
                    );
                }
                LinkEvent::Down => {
                    self.telling.counters().count(Counted::LinksLost);
                    self.links.forget_answerer(peer);
                    self.requests.link_down(peer, &self.context());
                }
            }
            self.context().lease_link(peer, event == LinkEvent::Up);
            if event == LinkEvent::Up {
                let context = &self.context();
                self.device_care.tell_room_again(peer, context);
            }
            self.tell_regions(peer, &event);
        }
        made
    }

    /// Tells every region that `peer` is a member of.
    fn tell_regions(&self, peer: ServerId, event: &LinkEvent) {
        let context = &self.context();
        for region in self.regions.iter() {
            LocalRegion::new(context, region).link_changed(peer, *event == LinkEvent::Up);
        }
    }

    /// One message of `peer`. What cannot be understood resets the link.
    fn receive(&self, peer: ServerId, header: Header, payload: &[u8]) {
        let message = match Message::decode(header.kind, payload) {
            Ok(message) => message,
            Err(error) => return self.bad_message(peer, header, &error),
        };
        self.world.ledger.turn_to(activity_of(&message));
        match message {
            Message::Answer(answer) => match Response::decode(answer) {
                Ok(response) => {
                    let context = &self.context();
                    self.requests
                        .answered(peer, header.request, response, context);
                }
                Err(error) => self.bad_message(peer, header, &error),
            },
            Message::Call(call) => match self.admit(peer, header, payload) {
                Admission::Now if self.answer_call(peer, header, call) => {}
                Admission::Now => self.link(peer).put_call_back(header, payload),
                Admission::Later => {}
                Admission::Refused => self.refuse_call(peer, header.request),
            },
            Message::Stored { attempt, slot } => {
                let shipment = Shipment::of(header, attempt);
                self.link(peer).ship_slot_freed(slot, shipment);
            }
            Message::Room { free, reserve } => {
                let room = Room { free, reserve };
                self.device_care.heard_room(peer, room, &self.context());
            }
            Message::Lease(message) => self.context().take_lease_message(peer, &message),
            message => self.receive_for_region(peer, header, &message, payload),
        }
    }

    fn bad_message(&self, peer: ServerId, header: Header, error: &Malformed) {
        tracing::error!(peer = peer.0, kind = header.kind, %error, "bad message");
        self.link(peer).reset("a message makes no sense");
    }

    fn admit(&self, peer: ServerId, header: Header, payload: &[u8]) -> Admission {
        self.link(peer).admit(header, payload)
    }

    fn next_deferred(&self, peer: ServerId) -> Option<(Header, Vec<u8>)> {
        self.link(peer).next_deferred()
    }

    /// Carries out the calls of `peer` that waited until it had read earlier answers, or workers had room.
    fn answer_deferred(&self, peer: ServerId) -> bool {
        let mut made = false;
        while let Some((header, payload)) = self.next_deferred(peer) {
            if let Ok(Message::Call(call)) = Message::decode(header.kind, &payload) {
                self.world.ledger.turn_to(Activity::Request);
                if !self.answer_call(peer, header, call) {
                    self.link(peer).put_call_back(header, &payload);
                    return made;
                }
            }
            made = true;
        }
        made
    }

    fn refuse_call(&self, peer: ServerId, request: u64) {
        if let Some(sink) = self.links.answerer(peer) {
            let what = format!("too many requests of {peer} wait at {}; retry", self.id);
            let outcome = Outcome::NotApplied;
            let error = Failure::Busy { what, outcome };
            sink.deliver(request, Response::Failed(error));
        }
    }

    /// Carries out a call of `peer`. False where nothing was done, since workers have no room for it.
    pub(super) fn answer_call(&self, peer: ServerId, header: Header, call: &[u8]) -> bool {
        let Some(sink) = self.links.answerer(peer) else {
            return true;
        };
        let mut scratch = Scratch::default();
        let request = match Request::decode(call, Sender::Server, &mut scratch) {
            Ok(request) => request,
            Err(BadRequest::Malformed(error)) => {
                self.bad_message(peer, header, &error);
                return true;
            }
            Err(BadRequest::Limit(error)) => {
                let error = Failure::Invalid(error.to_string());
                sink.deliver(header.request, Response::Failed(error));
                return true;
            }
        };
        let reply = ReplyTo::new(&sink, header.request);
        let begun = match self.regions.get(header.region) {
            Some(region) if self.serves(region, header.epoch) => {
                match self.settings.mutants.passes_early(region, request) {
                    Some(response) => Some(Begun::Answered(response)),
                    None => PeersCalls::of(self).call(region, request, reply.clone()),
                }
            }
            _ => Some(Begun::Answered(self.wrong_region(header.region))),
        };
        if let Some(Begun::Answered(response)) = begun {
            reply.send(response);
            return true;
        }
        begun.is_some()
    }

    /// Whether a call of `epoch` is for this server.
    fn serves(&self, region: &Region, epoch: Epoch) -> bool {
        match self.settings.mutants.answer_old_epoch() {
            true => true,
            false => region.is_served_by(self.id, epoch),
        }
    }

    fn wrong_region(&self, region: RegionId) -> Response {
        let what = format!("{} is not the primary of {region}; retry", self.id);
        let outcome = Outcome::NotApplied;
        Response::Failed(Failure::Unavailable { what, outcome })
    }

    /// Gives back what a message that is not taken holds of the link, which outlasts changes of regions: landing slots.
    fn decline(&self, peer: ServerId, header: Header, message: &Message<'_>) {
        if self.settings.mutants.keep_declined() {
            return;
        }
        let answer = match *message {
            Message::Ship { attempt, slot, .. } => Message::Stored { attempt, slot },
            Message::Fetch { slot, .. } => Message::Fetched {
                slot,
                status: FetchStatus::Gone,
                len: 0,
                checksum: 0,
            },
            Message::Fetched { slot, .. } => return self.link(peer).free_fetch_slot(slot),
            _ => return,
        };
        let kind = answer.kind();
        let header = Header { kind, ..header };
        self.context().send_under(peer, header, &answer);
    }

    /// A message about a region, between its members.
    fn receive_for_region(
        &self,
        peer: ServerId,
        header: Header,
        message: &Message<'_>,
        payload: &[u8],
    ) {
        let Some(region) = self.regions.get(header.region) else {
            return self.decline(peer, header, message);
        };
        let view = region.view();
        if !view.is_led || view.since != header.epoch {
            tracing::debug!(
                peer = peer.0,
                region = region.id().0,
                epoch = header.epoch.0,
                "another epoch"
            );
            return self.decline(peer, header, message);
        }
        if !view.concerns(peer) && (header.epoch < view.epoch || *message == Message::Seated) {
            // It was one when it said that, or knows already that it becomes one.
            return self.decline(peer, header, message);
        }
        if !view.concerns(peer) {
            return self
                .link(peer)
                .reset("it speaks of a region that it is no member of");
        }
        self.world.ledger.at(region.place());
        region.active().raise();
        let context = &self.context();
        context.await_device(region);
        let local = &LocalRegion::new(context, region);
        if let Message::Compacted { upto } = *message {
            let maintained = region.maintained();
            return maintained.backup_has_compacted(local, peer, upto);
        }
        if repairing::take(local, peer, message) {
            return;
        }
        if let Message::Fetch {
            segment,
            from,
            to,
            slot,
        } = *message
        {
            let asked = Asked {
                region: region.id(),
                segment,
                from,
                to,
                slot,
            };
            return self.device_care.fetches().push(peer, asked, context);
        }
        local.message_came(peer, header, message, payload);
    }
}

/// What a thread is at that handles `message`.
const fn activity_of(message: &Message<'_>) -> Activity {
    match message {
        Message::Call(_) | Message::Answer(_) => Activity::Request,
        Message::Flush { .. }
        | Message::Flushed { .. }
        | Message::Rest { .. }
        | Message::Wake { .. }
        | Message::Awake { .. } => Activity::LogReplication,
        Message::Compact { .. } | Message::Compacted { .. } => Activity::Compaction,
        Message::Prepare { .. }
        | Message::Report { .. }
        | Message::Adopt
        | Message::Seated
        | Message::Commit { .. }
        | Message::Failed { .. }
        | Message::Whole { .. }
        | Message::Room { .. }
        | Message::Lease(_) => Activity::Other,
        Message::CaughtUp { .. }
        | Message::Offer { .. }
        | Message::Edit { .. }
        | Message::More { .. }
        | Message::MoreWanted { .. }
        | Message::Applied { .. }
        | Message::CheckpointWanted { .. }
        | Message::Ship { .. }
        | Message::Places { .. }
        | Message::Stored { .. }
        | Message::Fetch { .. }
        | Message::Fetched { .. } => Activity::IndexShipping,
    }
}

/// In place of `response`, for which there is no room.
fn no_room(server: ServerId, response: &Response) -> Response {
    let what = format!("too many long answers of {server} wait to be read; retry");
    unanswered(what, response)
}

/// In place of `response`, which no link carries.
fn too_long(error: &SendError, response: &Response) -> Response {
    let what = format!("the answer cannot be sent: {error}; ask for less at a time");
    unanswered(what, response)
}

fn unanswered(what: String, response: &Response) -> Response {
    let outcome = match response.tells_of_effect() {
        true => Outcome::Unknown,
        false => Outcome::NotApplied,
    };
    Response::Failed(Failure::Unavailable { what, outcome })
}

/// Sends answers back to the peer that forwarded the calls, on the link that they came by.
struct Answerer {
    node: Weak<Node>,
    peer: ServerId,
    session: u32,
}

impl ReplySink for Answerer {
    fn deliver(&self, token: u64, response: Response) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let mut payload = Vec::new();
        response.encode(&mut payload);
        let header = Header {
            kind: ANSWER_KIND,
            region: RegionId(0),
            epoch: Epoch(0),
            request: token,
        };
        let mut link = node.link(self.peer);
        // A call of an earlier link was given up when that link broke, and its number may be taken.
        if link.session() != self.session {
            return;
        }
        let instead = match link.send(header, &payload) {
            Ok(()) | Err(SendError::Down) => return,
            // There is room for short answers when there is none for long ones.
            Err(SendError::Full) => no_room(node.id, &response),
            Err(error @ SendError::TooLong { .. }) => too_long(&error, &response),
        };
        payload.clear();
        instead.encode(&mut payload);
        if link.send(header, &payload) == Err(SendError::Full) {
            link.reset("an answer cannot be sent");
        }
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
