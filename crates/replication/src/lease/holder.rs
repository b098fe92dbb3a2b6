//! The holder's side of a lease: asking for it, and knowing until when it has it.
//!
//! 1. A request is due a third of a lease after the last, so that two may be lost before the lease runs out.
//!    The driver asks for as long as it wants the lease: while it is primary of a region of which the peer is a member.
//! 2. An answer counts for the request that it names, once the views up to its rise are taken. It counts from
//!    before that request was written. Requests before it are of no use any more.
//! 3. Giving up, or a link that breaks, ends the lease at once, and all that was asked for.
//!
//! Invariants:
//!
//! - `until` is one lease after the moment at which the newest request that counts was written, or `None`.
//! - At most [`ASKED_MAX`] requests are under way, each with a number above all that count or were given up.
//! - No number is used twice in an incarnation.

use alloc::collections::VecDeque;
use core::time::Duration;

use argosy_base::{Incarnation, Instant};

use super::{HandBack, LeaseAnswer, LeaseRequest, LeaseTerms, LinkSession, Mutants};

/// Requests under way at one time. They are a third of a lease apart, so that the answer to an older one
/// would bring nothing: its lease has run out.
pub const ASKED_MAX: usize = 4;

/// A request is due so many times in a lease.
const ASKS_PER_LEASE: u32 = 3;

/// A request whose answer does not count yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    /// The clock, before the request was written.
    from: Instant,
    /// The rise that its answer named, once there is one.
    rise: Option<u64>,
}

/// The holder's side. See the module documentation.
#[derive(Clone, Debug)]
pub struct Holder {
    terms: LeaseTerms,
    incarnation: Incarnation,
    /// `None` while the link is down.
    session: Option<LinkSession>,
    /// The number of the last request.
    last: u64,
    /// When the last request was due to be written. `None` where the next is due at once.
    asked_at: Option<Instant>,
    asked: VecDeque<Asked>,
    /// Views up to this rise are taken, in this session.
    taken: u64,
    /// It holds the lease before this moment.
    until: Option<Instant>,
    mutants: Mutants,
}

impl Holder {
    /// A holder without a link, on a server that was started as `incarnation`.
    #[must_use]
    pub fn new(terms: LeaseTerms, incarnation: Incarnation, mutants: Mutants) -> Self {
        Self {
            terms,
            incarnation,
            session: None,
            last: 0,
            asked_at: None,
            asked: VecDeque::with_capacity(ASKED_MAX),
            taken: 0,
            until: None,
            mutants,
        }
    }

    /// The link is up, under a number that the pair has not used before in this incarnation.
    pub fn link_up(&mut self, number: u64) {
        self.link_down();
        self.session = Some(LinkSession {
            incarnation: self.incarnation,
            number,
        });
    }

    /// The link is gone, and the lease with it.
    pub fn link_down(&mut self) {
        self.end();
        self.session = None;
        self.taken = 0;
    }

    /// The next request, if one is due.
    ///
    /// Requires: `now` was read before the request is written.
    pub fn ask(&mut self, now: Instant) -> Option<LeaseRequest> {
        let session = self.session?;
        if self.ask_at().is_some_and(|at| now < at) {
            return None;
        }
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.last += 1;
        self.asked_at = Some(now);
        self.asked.push_back(Asked {
            number: self.last,
            from: now,
            rise: None,
        });
        Some(LeaseRequest {
            session,
            number: self.last,
            term: self.terms.term(),
        })
    }

    /// When the next request is due. `None`: at once, if the link is up.
    #[must_use]
    pub fn ask_at(&self) -> Option<Instant> {
        self.asked_at
            .map(|at| at + self.lease_span() / ASKS_PER_LEASE)
    }

    /// An answer has arrived. One that names another session, incarnation or term, or a request that is not
    /// under way, is nothing. `now` plays no part.
    pub fn answered(&mut self, answer: &LeaseAnswer, now: Instant) {
        if self.session != Some(answer.session) || self.terms.term() != answer.term {
            return;
        }
        let from_receipt = self.mutants.count_from_receipt();
        for asked in &mut self.asked {
            if asked.number == answer.number {
                asked.rise = Some(answer.rise);
                if from_receipt {
                    asked.from = now;
                }
            }
        }
        self.count();
    }

    /// This server has taken the views of all rises up to `rise` that the peer has told it of in `session`.
    ///
    /// Requires: no region's gate answers under an older view any more.
    pub fn took(&mut self, session: LinkSession, rise: u64) {
        if self.session == Some(session) {
            self.taken = self.taken.max(rise);
            self.count();
        }
    }

    /// A one-sided write to the peer is complete. That renews nothing: the peer's process may be stopped.
    pub fn completed(&mut self, now: Instant) {
        if self.mutants.renew_by_completion() && self.until.is_some() {
            self.until = Some(now + self.lease_span());
        }
    }

    /// Ends the lease, and all that was asked for. It is over when this returns; what is returned is to be sent
    /// after. `None` where nothing was ever asked for, or the link is down: the promise then runs out by itself.
    pub fn give_up(&mut self) -> Option<HandBack> {
        if !self.mutants.hand_back_first() {
            self.end();
        }
        self.session?;
        (self.last > 0).then_some(HandBack {
            incarnation: self.incarnation,
            through: self.last,
        })
    }

    /// Whether it holds the lease.
    ///
    /// Requires: `now` was read after the request of the client had arrived.
    #[must_use]
    pub fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// It holds the lease *before* this moment, unless that ends early. `None` without a lease.
    #[must_use]
    pub const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// The newest request counts whose answer names no rise that is still to be taken.
    fn count(&mut self) {
        let (taken, any) = (self.taken, self.mutants.lease_after_revoke());
        let counts = |asked: &Asked| asked.rise.is_some_and(|rise| any || rise <= taken);
        let Some(newest) = self.asked.iter().rposition(counts) else {
            return;
        };
        self.until = Some(self.asked[newest].from + self.lease_span());
        self.asked.drain(..=newest);
    }

    fn end(&mut self) {
        self.until = None;
        self.asked.clear();
        self.asked_at = None;
    }

    fn lease_span(&self) -> Duration {
        if self.mutants.ignore_drift() {
            return self.terms.term();
        }
        self.terms.lease()
    }
}
