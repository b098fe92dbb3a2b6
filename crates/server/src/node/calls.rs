//! Calls that were forwarded to other servers and wait for their answers.
//!
//! When a link breaks, all calls that travel on it are lost. The outcome of a lost write is unknown, so it fails.
//! A lost read is sent again when the link opens, if its deadline has not passed: the peer has forgotten the first
//! request, which changed nothing. The second request may return a write that was sent after the first.

use std::collections::BTreeMap;

use argosy_base::{Instant, Outcome, ServerId};
use argosy_coordinator::Region;
use argosy_wire::message::Message;
use argosy_wire::ring::Header;

use super::context::Context;
use super::link::SendError;
use super::requests::Requests;
use crate::service::{Failure, ReplyTo, Request, Response};

/// The kind of a forwarded request.
const CALL_KIND: u8 = Message::Call(&[]).kind();
/// Calls under way to other servers, at most.
pub(super) const CALLS_MAX: usize = 1 << 16;
/// Bytes of reads that are kept to be sent again, at most. Reads beyond it are lost with their link.
pub(super) const KEPT_BYTES_MAX: usize = 4 << 20;

/// A call, and who waits for its answer.
struct Asked {
    /// The server that it goes to.
    peer: ServerId,
    /// Where the answer goes.
    reply: ReplyTo,
    /// When it is given up.
    deadline: Instant,
    /// Whether it may change something.
    write: bool,
}

/// A call as it travels.
#[derive(Clone)]
struct Kept {
    header: Header,
    payload: Box<[u8]>,
}

struct PendingCall {
    asked: Asked,
    /// A copy of the call, which is sent again if the link breaks.
    kept: Option<Kept>,
}

impl PendingCall {
    fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.payload.len())
    }
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Calls {
    pending: BTreeMap<u64, PendingCall>,
    last: u64,
    kept_bytes: usize,
}

impl Calls {
    /// How many are under way.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Bytes of those that are kept to be sent again.
    pub(super) const fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Registers a call, and gives `header` the number that its answer will repeat. Returns whether
    /// there was room.
    fn begin(&mut self, asked: Asked, header: &mut Header, payload: &[u8]) -> bool {
        if self.pending.len() >= CALLS_MAX {
            return false;
        }
        self.last += 1;
        header.request = self.last;
        let keeps = !asked.write && self.kept_bytes + payload.len() <= KEPT_BYTES_MAX;
        let pending = PendingCall {
            asked,
            kept: keeps.then(|| Kept {
                header: *header,
                payload: payload.into(),
            }),
        };
        self.kept_bytes += pending.kept_bytes();
        self.pending.insert(self.last, pending);
        true
    }

    /// Whether call `number` is sent again when the link to its peer opens.
    fn keeps(&self, number: u64) -> bool {
        let call = self.pending.get(&number);
        call.is_some_and(|call| call.kept.is_some())
    }

    /// Where the answer to call `number` of `peer` goes; `None` where nobody waits for it any more.
    pub(crate) fn end(&mut self, peer: ServerId, number: u64) -> Option<ReplyTo> {
        match self.pending.get(&number) {
            Some(call) if call.asked.peer == peer => {
                self.kept_bytes -= call.kept_bytes();
                self.pending.remove(&number).map(|call| call.asked.reply)
            }
            _ => None,
        }
    }

    /// Fails every call for which `lost` holds. The error says `what` happened to the server.
    fn give_up(
        &mut self,
        what: &str,
        lost: impl Fn(&PendingCall) -> bool,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        for (_, call) in self.pending.extract_if(.., |_, call| lost(call)) {
            self.kept_bytes -= call.kept_bytes();
            let asked = call.asked;
            let outcome = if asked.write {
                Outcome::Unknown
            } else {
                Outcome::NotApplied
            };
            let what = format!("{}, the region's primary, {what}; retry", asked.peer);
            let error = Failure::Unavailable { what, outcome };
            due.push((asked.reply, Response::Failed(error)));
        }
    }

    /// Fails the calls to `peer` that are not kept, because its link is down.
    pub(crate) fn link_down(&mut self, peer: ServerId, due: &mut Vec<(ReplyTo, Response)>) {
        self.give_up(
            "was lost while it worked on this",
            |call| call.asked.peer == peer && call.kept.is_none(),
            due,
        );
    }

    /// The calls that are kept for `peer`, oldest first.
    fn kept_for(&self, peer: ServerId) -> Vec<Kept> {
        let calls = self.pending.values();
        calls
            .filter(|call| call.asked.peer == peer)
            .filter_map(|call| call.kept.clone())
            .collect()
    }

    /// Fails all calls to `peer`, whose link stays down.
    fn cannot_be_reached(&mut self, peer: ServerId, due: &mut Vec<(ReplyTo, Response)>) {
        self.give_up("cannot be reached", |call| call.asked.peer == peer, due);
    }

    /// Fails the calls whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant, due: &mut Vec<(ReplyTo, Response)>) {
        self.give_up(
            "did not answer in time",
            |call| call.asked.deadline <= now,
            due,
        );
    }
}

impl Requests {
    /// Sends a request to the primary of a region, which is another server.
    pub(super) fn forward(
        &self,
        region: &Region,
        request: &Request<'_>,
        reply: ReplyTo,
        context: &Context<'_>,
    ) -> Option<Response> {
        let primary = region.primary;
        let refuse = |what: String| {
            let outcome = Outcome::NotApplied;
            Some(Response::Failed(Failure::Unavailable { what, outcome }))
        };
        let away = context.link(primary).is_away(context.now());
        // Planted: it is sent all the same, so what is told of it need not be true.
        let sends = context.settings.mutants.refuse_what_was_sent();
        let refusal = || {
            refuse(format!(
                "{primary}, the primary of {}, shows no sign of life; retry when it is back",
                region.id
            ))
        };
        if away && !sends {
            return refusal();
        }
        let asked = Asked {
            peer: primary,
            reply,
            // The primary gives the request up first, and knows better what became of it.
            deadline: context.deadline() + context.settings.deadline / 4,
            write: request.writes(),
        };
        let mut payload = Vec::new();
        request.encode(&mut payload);
        let mut header = Header {
            kind: CALL_KIND,
            region: region.id,
            epoch: region.since,
            request: 0,
        };
        if !self.calls().begin(asked, &mut header, &payload) {
            return refuse("too many requests are being forwarded; retry".into());
        }
        let number = header.request;
        let sent = context.link(primary).send(header, &payload);
        match sent {
            Ok(()) if away => {
                self.calls().end(primary, number);
                refusal()
            }
            Ok(()) => None,
            Err(SendError::Down) if self.waits_for_link(primary, number, context) => None,
            Err(error) => {
                // Where the answer was given up meanwhile, it has been delivered.
                self.calls().end(primary, number)?;
                refuse(match error {
                    SendError::Down => format!(
                        "{primary}, the primary of {}, cannot be reached; retry when it is back",
                        region.id
                    ),
                    SendError::Full => format!("{primary} does not keep up; retry"),
                    SendError::TooLong { .. } => format!(
                        "it cannot be forwarded to {primary}, the primary of {}: {error}; send less at a time",
                        region.id
                    ),
                })
            }
        }
    }

    /// Whether call `number` is kept for `peer`, whose link may open again soon.
    fn waits_for_link(&self, peer: ServerId, number: u64, context: &Context<'_>) -> bool {
        let gone = context.link(peer).is_gone(context.now());
        !gone && self.calls().keeps(number)
    }

    /// Sends the calls that are kept for `peer` again, because its link has opened.
    pub(super) fn send_again(&self, peer: ServerId, context: &Context<'_>) {
        let kept = self.calls().kept_for(peer);
        for Kept { header, payload } in kept {
            if let Err(error) = context.link(peer).send(header, &payload) {
                tracing::debug!(peer = peer.0, %error, "a read cannot be sent again");
            }
        }
    }

    /// Fails the calls whose deadline has passed, and those to a peer that has been gone for long.
    pub(super) fn expire_calls(
        &self,
        now: Instant,
        due: &mut Vec<(ReplyTo, Response)>,
        context: &Context<'_>,
    ) {
        let gone = |peer: &ServerId| context.link(*peer).is_gone(now);
        let gone: Vec<ServerId> = context.links.peers().filter(gone).collect();
        let mut calls = self.calls();
        for peer in gone {
            calls.cannot_be_reached(peer, due);
        }
        calls.expire(now, due);
    }
}
