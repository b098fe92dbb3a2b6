//! The leases that a server holds: what the gate of a region asks before an answer leaves.
//!
//! 1. A member of the region's epoch is named by its server. The own server needs no lease from itself.
//! 2. A set of members is held before the earliest of their leases ends ([`Leases::until`]). With no other member
//!    it is held for ever.
//! 3. A caller may keep that moment, and compare it with the clock for each answer. A renewal makes it later, so
//!    what was kept stays true. A lease that ends early makes it wrong: then [`Leases::ended`] has gone on, and
//!    whoever keeps a moment must drop it *before* the hand-back is sent.
//!
//! Invariant: the moment of a set is at most that of each of its members.

use alloc::collections::BTreeMap;

use argosy_base::{Instant, ServerId};

use super::{HandBack, Holder, LeaseAnswer, LeaseRequest, LinkSession};

/// Later than every moment that a clock shows.
pub const FOR_EVER: Instant = Instant::MAX;

/// The leases of one server, by the peers that grant them. See the module documentation.
#[derive(Clone, Debug)]
pub struct Leases {
    own: ServerId,
    holders: BTreeMap<ServerId, Holder>,
    ended: u64,
}

impl Leases {
    /// The leases of server `own`: none.
    #[must_use]
    pub const fn new(own: ServerId) -> Self {
        Self {
            own,
            holders: BTreeMap::new(),
            ended: 0,
        }
    }

    /// Adds a peer from which leases may be asked, in place of what there was for it.
    pub fn add(&mut self, peer: ServerId, holder: Holder) {
        if self.holders.insert(peer, holder).is_some() {
            self.ended += 1;
        }
    }

    /// Peer `peer` grants no leases any more.
    pub fn remove(&mut self, peer: ServerId) {
        if self.holders.remove(&peer).is_some() {
            self.ended += 1;
        }
    }

    /// The lease from `peer`.
    #[must_use]
    pub fn holder(&self, peer: ServerId) -> Option<&Holder> {
        self.holders.get(&peer)
    }

    /// The next request to `peer`, if one is due. See [`Holder::ask`].
    pub fn ask(&mut self, peer: ServerId, now: Instant) -> Option<LeaseRequest> {
        self.holders.get_mut(&peer)?.ask(now)
    }

    /// An answer of `peer`. See [`Holder::answered`].
    pub fn answered(&mut self, peer: ServerId, answer: &LeaseAnswer, now: Instant) {
        if let Some(holder) = self.holders.get_mut(&peer) {
            holder.answered(answer, now);
        }
    }

    /// The views of what `peer` told are taken. See [`Holder::took`].
    pub fn took(&mut self, peer: ServerId, session: LinkSession, rise: u64) {
        if let Some(holder) = self.holders.get_mut(&peer) {
            holder.took(session, rise);
        }
    }

    /// A one-sided write to `peer` is complete. See [`Holder::completed`].
    pub fn completed(&mut self, peer: ServerId, now: Instant) {
        if let Some(holder) = self.holders.get_mut(&peer) {
            holder.completed(now);
        }
    }

    /// The link to `peer` is up, under a new number.
    pub fn link_up(&mut self, peer: ServerId, number: u64) {
        if let Some(holder) = self.holders.get_mut(&peer) {
            holder.link_up(number);
            self.ended += 1;
        }
    }

    /// The link to `peer` is gone.
    pub fn link_down(&mut self, peer: ServerId) {
        if let Some(holder) = self.holders.get_mut(&peer) {
            holder.link_down();
            self.ended += 1;
        }
    }

    /// Gives up the lease from `peer`. See [`Holder::give_up`].
    pub fn give_up(&mut self, peer: ServerId) -> Option<HandBack> {
        let back = self.holders.get_mut(&peer)?.give_up();
        self.ended += 1;
        back
    }

    /// How often a lease may have ended before its time.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.ended
    }

    /// Leases from all `members` but the own server are held *before* this moment. `None` where one is missing.
    #[must_use]
    pub fn until(&self, members: &[ServerId]) -> Option<Instant> {
        members
            .iter()
            .filter(|member| **member != self.own)
            .try_fold(FOR_EVER, |until, member| {
                Some(until.min(self.holders.get(member)?.until()?))
            })
    }

    /// Whether leases from all `members` but the own server are held.
    ///
    /// Requires: `now` is read at the moment of answering.
    #[must_use]
    pub fn all_held(&self, members: &[ServerId], now: Instant) -> bool {
        self.until(members).is_some_and(|until| now < until)
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
