//! Leases between pairs of servers: whether a primary may answer at this moment (I4, I5).
//!
//! A primary answers clients only while it holds a lease from every other member of its epoch. A lease is
//! between two servers, not about a region. The *holder* is a primary of regions of which the peer is a member;
//! the peer is the *granter*. Both are pure: they are handed the time and the messages.
//!
//! 1. The holder reads its clock, *then* writes a numbered request ([`Holder::ask`]).
//! 2. The granter receives it, *then* reads its clock, promises, and answers ([`Granter::answer`]). No device
//!    takes part in that.
//! 3. The holder counts the lease from what it read in 1. The newest request that was answered counts. Nothing
//!    else renews a lease: not the moment at which the answer arrived, and no completion of a one-sided write,
//!    which a process that is stopped still completes.
//! 4. A server that is to serve a region in place of the holder waits until its own promise has run out.
//!
//! **The claim.** Let two clocks each run within [`LeaseTerms::drift_ppm`] of true time. Then at no moment of true time
//! does the holder hold while the granter is free.
//!
//! *Proof.* Let `t` be the term and `d` the drift. The holder holds while its clock has gone on by less than
//! `t(1 - d)` since 1: for less than `t` of true time. The granter is free once its clock has gone on by *more* than
//! `t(1 + d)` since 2: after more than `t` of true time. And 1 is before 2, because a request cannot be received
//! before it is written. [`LeaseTerms`] rounds the first down and the second up. The holder holds strictly before,
//! and the granter is free strictly after, so a clock may cut what it shows down to nanoseconds.
//!
//! What ends a promise early ends the lease before: the holder gives up, and then says so ([`Holder::give_up`]).
//! A granter that was started anew has forgotten its promises, and is not free before the longest of them must have
//! run out ([`Granter::restarted`]).
//!
//! **Epochs that have risen.** A granter may obey a higher epoch of one region and go on to grant leases for all
//! others. Its answers name the last *rise* that it has obeyed. The holder counts no answer before it has
//! taken the views up to that rise ([`Holder::took`]). So whoever opens the region waits only for what had been
//! promised before the rise ([`Granter::obeyed`], [`Granter::is_over`]), while the pair goes on to renew its lease.
//!
//! **What belongs to whom.** A lease belongs to one *session* of the link, with the incarnation of its holder, and
//! to one term. What names another is nothing. A link that breaks ends the lease, not the promise.
//!
//! Reading order: [`terms`] (the arithmetic), [`holder`], [`granter`], [`leases`] (what the gate of a region asks).
//! The names of the planted mistakes are those of the model of groups, in which `lease` and `ask` are the holder's,
//! and `owe` the granter's.

pub mod granter;
pub mod holder;
pub mod leases;
pub mod terms;

use core::time::Duration;

use argosy_base::Incarnation;

pub use granter::{Granter, LastStop, Wait};
pub use holder::Holder;
pub use leases::Leases;
pub use terms::{LeaseTerms, TermsError};

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod scripts_tests;

/// One session of the link, as the holder names it. No two sessions of a pair have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkSession {
    /// The start of the holder's server.
    pub incarnation: Incarnation,
    /// The number that the holder gives the link. It takes a new one whenever the link breaks.
    pub number: u64,
}

/// The holder asks for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Where it was written.
    pub session: LinkSession,
    /// The request's number: each is higher than all before of this incarnation.
    pub number: u64,
    /// The term that the holder reckons with.
    pub term: Duration,
}

/// The granter promises the lease that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseAnswer {
    /// That of the request.
    pub session: LinkSession,
    /// That of the request.
    pub number: u64,
    /// That of the request.
    pub term: Duration,
    /// The last rise of an epoch that the granter had obeyed in this session.
    pub rise: u64,
}

/// The holder has given up every lease that it asked for, and sends this after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandBack {
    /// The start of the holder's server. The session does not matter: numbers are not used again.
    pub incarnation: Incarnation,
    /// The last request that is given up.
    pub through: u64,
}

argosy_base::mutants! {
    /// Mistakes that tests plant to show that the claim is checked. All off otherwise.
    pub struct Mutants {
        /// A completion of a one-sided write renews the lease.
        renew_by_completion,
        /// A lease counts from when the answer arrived.
        count_from_receipt,
        /// Clocks are taken to run alike.
        ignore_drift,
        /// A server that was started anew does not wait.
        forget_promises,
        /// An answer counts, whatever epoch has risen.
        lease_after_revoke,
        /// The granter hears that a lease is given up while the holder still has it.
        hand_back_first,
    }
}
