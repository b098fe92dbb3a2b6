//! The granter's side of a lease: what it has promised, and when it is free.
//!
//! 1. A request of the present session is answered in one step. From that moment, on its own clock, the granter
//!    takes part in no other primary's epoch until the promise has run out.
//! 2. A promise that is handed back is over at once: the holder has given up before it said so.
//! 3. When the server obeys a higher epoch of a region whose primary may be the holder, that is a numbered
//!    *rise* of the session. Later answers name it. The *wait* for the region is for the promises before it.
//!    Rise 1 is everything that was obeyed before the session began.
//!
//! **Starting anew.** Promises are not stored. A server that starts is free only after the longest promise,
//! counted from its start. What a clean stop saves:
//!
//! - A clean stop of the *holder* gives up, then hands back: the granter need not wait. Nothing is recorded. Its next
//!   start asks for leases as every start does. If the message is lost, the promise runs out by itself.
//! - A clean stop of the *granter* ends its answers first ([`Granter::stop`]). When it then owes nothing to any peer,
//!   because all has been handed back or has run out, that may be recorded, and the next start does not wait. If
//!   it cannot wait for that it records nothing. The record is good for one start: it must be gone from the device
//!   before the first answer. What is still owed is not recorded: another boot has another clock.
//!
//! Invariants:
//!
//! - A promise never ends earlier than it said, but by being handed back.
//! - `former` can not be handed back: nobody is left who could, or it is not known who.
//! - A rise is named by every answer that is made after it.

use core::time::Duration;

use argosy_base::{Incarnation, Instant};

use super::{HandBack, LeaseAnswer, LeaseRequest, LeaseTerms, LinkSession, Mutants};

/// The rise that stands for everything that was obeyed before a session began.
pub const FIRST_RISE: u64 = 1;

/// How the server stopped the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// It had recorded that it owed nothing and would answer no more.
    Clean,
    /// There is no such record.
    Other,
}

/// What was promised to one incarnation of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise {
    to: Incarnation,
    /// The last request that was answered.
    number: u64,
    /// It is over after this moment.
    until: Instant,
}

/// What whoever opens a region has to wait for: see [`Granter::obeyed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    session: Option<LinkSession>,
    rise: u64,
    former: Option<Instant>,
    promise: Option<Promise>,
}

impl Wait {
    /// The number under which the holder is told, in the present session. 0 without a session.
    #[must_use]
    pub const fn rise(&self) -> u64 {
        self.rise
    }

    /// The wait is over after this moment, at the latest. `None` where there is nothing to wait for.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.former.max(self.promise.map(|promise| promise.until))
    }
}

/// Whether requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// They are, in this session; `None` while the link is down.
    Answering(Option<LinkSession>),
    /// Never again.
    Stopping,
}

/// The granter's side. See the module documentation.
#[derive(Clone, Debug)]
pub struct Granter {
    terms: LeaseTerms,
    state: State,
    /// Promises of an earlier start, and to earlier starts of the holder, are over after this moment.
    former: Option<Instant>,
    promise: Option<Promise>,
    /// The newest hand-back of the newest incarnation that sent one.
    returned: Option<HandBack>,
    /// The last rise of this session.
    rise: u64,
    /// The holder has taken the views up to this rise of this session.
    confirmed: u64,
    mutants: Mutants,
}

impl Granter {
    /// A granter on a server that was started at `start`, for one peer. It may be made later than at the start.
    ///
    /// Requires: `terms` are those of the earlier start, or longer.
    #[must_use]
    pub fn restarted(terms: LeaseTerms, last: LastStop, start: Instant, mutants: Mutants) -> Self {
        let mut granter = Self {
            terms,
            state: State::Answering(None),
            former: None,
            promise: None,
            returned: None,
            rise: 0,
            confirmed: 0,
            mutants,
        };
        if last == LastStop::Other && !mutants.forget_promises() {
            granter.former = Some(start + granter.promise_span());
        }
        granter
    }

    /// The link is up. The driver tells the holder which epochs it has obeyed so far, as [`FIRST_RISE`].
    pub fn link_up(&mut self, session: LinkSession) {
        if self.state == State::Stopping {
            return;
        }
        self.state = State::Answering(Some(session));
        self.rise = FIRST_RISE;
        self.confirmed = 0;
        if let Some(promise) = self.promise.take_if(|it| it.to != session.incarnation) {
            self.former = self.former.max(Some(promise.until));
        }
    }

    /// The link is gone. What was promised stays.
    pub fn link_down(&mut self) {
        if self.state != State::Stopping {
            self.state = State::Answering(None);
        }
        self.rise = 0;
        self.confirmed = 0;
    }

    /// Promises what is asked for. `None` where the request is not one of this session and this term, where a later
    /// one was answered, where it was given up, and when the server stops.
    ///
    /// Requires: `now` was read after the request had been received. A time that was read before would promise less
    /// than the holder counts.
    pub fn answer(&mut self, request: &LeaseRequest, now: Instant) -> Option<LeaseAnswer> {
        let to = request.session.incarnation;
        let answered = self.promise.map_or(0, |promise| promise.number);
        if self.state != State::Answering(Some(request.session))
            || request.term != self.terms.term()
            || request.number <= answered
            || self.is_returned(to, request.number)
        {
            return None;
        }
        self.promise = Some(Promise {
            to,
            number: request.number,
            until: now + self.promise_span(),
        });
        Some(LeaseAnswer {
            session: request.session,
            number: request.number,
            term: request.term,
            rise: self.rise,
        })
    }

    /// The holder has given up.
    pub fn handed_back(&mut self, back: HandBack) {
        let key = |back: HandBack| (back.incarnation, back.through);
        if self.returned.is_none_or(|old| key(old) < key(back)) {
            self.returned = Some(back);
        }
        let returned = |it: &mut Promise| it.to == back.incarnation && it.number <= back.through;
        self.promise.take_if(returned);
    }

    /// The server has obeyed a higher epoch of a region whose primary the peer may be: it takes part in the
    /// earlier one no more. The driver tells the holder under [`Wait::rise`]. Nobody serves the region
    /// on this server's behalf before [`Self::is_over`].
    ///
    /// Requires: from now on, no answer is made from an earlier state of this machine.
    pub fn obeyed(&mut self) -> Wait {
        let session = match self.state {
            State::Answering(session) => session,
            State::Stopping => None,
        };
        if session.is_some() {
            self.rise += 1;
        }
        Wait {
            session,
            rise: self.rise,
            former: self.former,
            promise: self.promise,
        }
    }

    /// The holder says that it has taken the views up to `rise` of `session`: it answers under no older one.
    pub fn confirmed(&mut self, session: LinkSession, rise: u64) {
        if self.state == State::Answering(Some(session)) {
            self.confirmed = self.confirmed.max(rise.min(self.rise));
        }
    }

    /// Whether no lease can be left under which the holder answers for the region of `wait`: all that was promised
    /// before has run out or was given up, or the holder has taken the view.
    #[must_use]
    pub fn is_over(&self, wait: &Wait, now: Instant) -> bool {
        let passed = |until: Instant| until < now;
        let kept = |it: &Promise| passed(it.until) || self.is_returned(it.to, it.number);
        wait.former.is_none_or(passed)
            && (self.is_taken(wait) || wait.promise.as_ref().is_none_or(kept))
    }

    /// It has promised not to take part in another primary's epoch up to this moment. `None`: nothing is promised.
    #[must_use]
    pub fn promised_until(&self) -> Option<Instant> {
        self.former.max(self.promise.map(|promise| promise.until))
    }

    /// Whether all that it promised is over.
    #[must_use]
    pub fn is_free(&self, now: Instant) -> bool {
        self.promised_until().is_none_or(|until| until < now)
    }

    /// Answers no more. [`LastStop::Clean`] may be recorded once every granter of the server says so; ask again until
    /// then.
    pub fn stop(&mut self, now: Instant) -> LastStop {
        self.state = State::Stopping;
        if self.is_free(now) {
            return LastStop::Clean;
        }
        LastStop::Other
    }

    /// Whether the holder says that it has taken the view. Another session than the wait's began after it, so there
    /// the first rise is enough. It says that for its own start only.
    fn is_taken(&self, wait: &Wait) -> bool {
        let State::Answering(Some(session)) = self.state else {
            return false;
        };
        let rise = match wait.session == Some(session) {
            true => wait.rise,
            false => FIRST_RISE,
        };
        let own = |it: Promise| it.to == session.incarnation;
        rise <= self.confirmed && wait.promise.is_none_or(own)
    }

    fn is_returned(&self, to: Incarnation, number: u64) -> bool {
        self.returned
            .is_some_and(|back| back.incarnation == to && number <= back.through)
    }

    fn promise_span(&self) -> Duration {
        if self.mutants.ignore_drift() {
            return self.terms.term();
        }
        self.terms.promise()
    }
}
