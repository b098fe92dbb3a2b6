//! The primary's side of a region: opening it, catching members up, and the commit LSN.
//!
//! **Opening.** Every member reports where it stands (its last edit, its last LSN). The primary
//! adopts what is higher than its own, edit first, then log, from the member that has it; then it
//! is *promoted*: a cut edit ends the old log, and the region is open. All reports have to be of the same
//! opening: a member whose link breaks reports anew, because it may have lost its memory. Writes are taken from then
//! on. They wait, and nothing is shown, until the members are equal and the region *serves*. It does not serve either
//! while an earlier primary may still answer ([`Primary::wait_for_lease`]).
//!
//! **Damaged copies.** A copy is *whole* while it is certain to hold everything that was acknowledged: it
//! held it once, and its memory has survived since. A copy that is too damaged to be used is *refilled*, the
//! primary's own too: it is set aside and begun anew, empty, and fetches what the others have. That is safe
//! only while another copy is whole. So with a damaged copy the region opens once all other members have
//! reported and one copy is whole, and waits otherwise.
//!
//! **A member's life**, as the primary sees it:
//!
//! ```text
//!              link up              report              (region open)
//!   Down ───────────────▶ Prepared ─────────▶ Reported ───────────────▶ Syncing ───▶ Live
//!    ▲                                                     offer            caught up   │
//!    └────────────────────────── link down, from anywhere ──────────────────────────────┘
//!
//!   anywhere but Down ──▶ Failed, Damaged (the member says that its copy has failed) ──▶ Down, Prepared
//! ```
//!
//! *Failed*: the member has revoked its windows and follows no more. Nothing is sent to it, and
//! nothing that it does not hold is committed, until it reports again: a process that is started
//! anew on that member does, when it is prepared over a new link. *Damaged*: likewise, and the member can
//! refill its copy. It is asked to once the region is open.
//!
//! A copy that is *being filled* has the same life, once the region serves; nobody waits for it.
//!
//! A live member that wants a checkpoint, because what an edit names is gone, is prepared anew.
//!
//! *Prepared*: it was asked to revoke its windows and to report. *Syncing*: it was offered a
//! checkpoint, fetches what it lacks, and gets every later edit behind the checkpoint. *Live*: it
//! also gets every record, one-sided, and its flushes. While nothing is written it *rests*.
//!
//! **Ships.** The driver writes records in numbered *ships*: one for everything that was appended
//! since the last, in every log. A ship is complete at a member when all its writes are. Ships of
//! one member may complete in any order; a prefix of ships counts.
//!
//! **Reading order**: `event.rs`, `member.rs` with `members.rs`, this file, `opening.rs`, `group.rs`, `flushing.rs`,
//! `resting.rs`.
//!
//! Invariants, asserted here:
//!
//! - I4: the commit LSN is the highest that *every* backup's memory holds; it never goes back. A backup holds what
//!   it has caught up with under this primary, while it is live, and never what it reports: its report may be of
//!   another history, or of memory that is gone. Likewise an edit is applied everywhere when every backup has
//!   applied it under this primary.
//! - A flush is sent to a member only when the member's memory holds all bytes of its range.
//! - A live member's log is durable wherever the flushes that it is still to be sent do not reach.
//! - Edits are sent in order and without a gap behind the checkpoint or report they start from.

mod event;
mod flushing;
mod group;
mod member;
mod members;
mod opening;
mod resting;

use alloc::vec::Vec;

use argosy_base::{EditSeq, FlushRange, LogId, Lsn, Position, ServerId, Standing};

pub use event::{Action, Event};
pub use member::{MemberPart, MemberView};
pub use members::Group;
pub use opening::OwnCopy;

use self::flushing::{Flushes, Reached};
use self::member::{Phase, Report, Told};
use self::members::Members;
use self::opening::has_cut_of;
use self::resting::Rest;
use crate::mode::Mutants;

/// How far the region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for every member's report.
    Opening,
    /// Setting the own copy aside, to begin it anew.
    Refilling,
    /// Bringing the own copy to a member's.
    Adopting(ServerId),
    /// Cutting the log.
    Promoting,
    /// Open: waiting until all members are equal.
    Open,
    /// All members were equal.
    Serving,
}

/// A region's primary. See the module documentation.
#[derive(Clone, Debug)]
pub struct Primary {
    members: Members,
    state: State,
    own: Position,
    /// `None` while it is too damaged to be used.
    own_standing: Option<Standing>,
    /// Whose history was adopted last.
    adopted_from: Option<ServerId>,
    /// The last write that is known to be appended here.
    appended: Lsn,
    commit: Lsn,
    /// The last edit that is durable here.
    committed: EditSeq,
    /// Up to here every backup has applied.
    applied: EditSeq,
    flushes: Flushes,
    /// An earlier primary may still hold a lease.
    waits_for_lease: bool,
    mutants: Mutants,
}

impl Primary {
    /// The primary of this `group`, and its `own` copy. `actions` receives what has
    /// to be done first: with no other members, that is to open.
    #[must_use]
    pub fn new(group: &Group, own: OwnCopy, mutants: Mutants, actions: &mut Vec<Action>) -> Self {
        let position = own.position();
        let mut primary = Self {
            members: Members::new(group),
            state: State::Opening,
            own: position,
            own_standing: own.standing(),
            adopted_from: None,
            appended: position.lsn,
            commit: Lsn(0),
            committed: position.edit,
            applied: EditSeq(0),
            flushes: Flushes::default(),
            waits_for_lease: false,
            mutants,
        };
        primary.open(actions);
        primary
    }

    /// The region does not serve before [`Event::LeaseOver`]: its earlier primary may hold a lease that this server has
    /// granted. Told before the region is open.
    pub const fn wait_for_lease(&mut self) {
        self.waits_for_lease = true;
    }

    /// Whether it does not serve because of that.
    #[must_use]
    pub const fn waits_for_lease(&self) -> bool {
        self.waits_for_lease
    }

    /// Whether all members were equal once since the region is open: what is committed may be shown.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.state == State::Serving
    }

    /// The commit LSN.
    #[must_use]
    pub const fn commit(&self) -> Lsn {
        self.commit
    }

    /// The highest LSN up to which all is on its way to every backup, or there.
    #[must_use]
    pub fn issued(&self) -> Lsn {
        self.members.issued(self.appended).max(self.commit)
    }

    /// Whether the windows of `member` can be written. Where they cannot, tell [`Wanted`](Event::Wanted) and
    /// wait for [`Action::Ship`].
    #[must_use]
    pub fn is_awake(&self, member: ServerId) -> bool {
        let member = self.members.get(member);
        member.is_some_and(|member| member.rest == Rest::Awake)
    }

    /// Whether `member` is to be asked to wake once there is something to be written to its windows.
    #[must_use]
    pub fn is_asleep(&self, member: ServerId) -> bool {
        let member = self.members.get(member);
        member.is_some_and(|member| matches!(member.rest, Rest::Fresh | Rest::Resting))
    }

    /// Whether `member` is still to be sent flushes: its windows are needed for them.
    #[must_use]
    pub fn owes_flushes(&self, member: ServerId) -> bool {
        let member = self.members.get(member);
        member.is_some_and(|member| member.owed.has_unsent())
    }

    /// The first range of `log` that `member` was or will be asked to flush, and has not. Whoever writes to the windows
    /// of a copy that is being filled writes no other window over one that this range is in, although it is durable
    /// everywhere by now: nobody waits for that copy.
    #[must_use]
    pub fn unflushed(&self, member: ServerId, log: LogId) -> Option<FlushRange> {
        self.members.get(member)?.owed.first(log)
    }

    /// The ranges of `log` that `member`, which is live, was or will be asked to flush, and has not, in order.
    pub fn owed(&self, member: ServerId, log: LogId) -> impl Iterator<Item = FlushRange> + '_ {
        let member = self.members.get(member);
        member
            .into_iter()
            .flat_map(move |member| member.owed.of(log))
    }

    /// Whether `member` is sent finished segments as they are built.
    #[must_use]
    pub fn takes_segments(&self, member: ServerId) -> bool {
        self.members
            .get(member)
            .is_some_and(|m| matches!(m.phase, Phase::Syncing | Phase::Live))
    }

    /// The attempt under which `member` is spoken to at present.
    #[must_use]
    pub fn attempt(&self, member: ServerId) -> u64 {
        self.members.get(member).map_or(0, |m| m.attempt)
    }

    /// Whether what `member` says under `attempt` is of the present one.
    #[must_use]
    pub fn speaks_under(&self, member: ServerId, attempt: u64) -> bool {
        let member = self.members.get(member);
        member.is_some_and(|member| member.attempt == attempt)
    }

    /// The backups that are not live, or do not yet hold what the region opened with and what was
    /// committed since, in order. While there is one, losing all others loses data.
    pub fn absent(&self) -> impl Iterator<Item = ServerId> + '_ {
        let members = self.members.counted();
        let absent = members.filter(|(_, member)| !self.is_whole(member));
        absent.map(|(id, _)| id)
    }

    /// All backups, and the copies that are being filled, by their names.
    pub fn members(&self) -> impl Iterator<Item = MemberView> + '_ {
        let members = self.members.iter();
        members.map(|(id, member)| member.view(id, self.appended))
    }

    /// One step. Events that name a server outside the group, or an attempt that is over, change
    /// nothing: they were sent before the sender knew better.
    pub fn step(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Group { group } => self.regroup(&group, actions),
            Event::LeaseOver => {
                self.waits_for_lease = false;
                self.serve_if_equal(actions);
            }
            Event::LinkUp { member } => self.link_up(member, actions),
            Event::LinkDown { member } => self.link_down(member, actions),
            Event::Report {
                member,
                attempt,
                position,
                standing,
            } => {
                let report = Report {
                    position,
                    standing,
                    is_adopted: false,
                };
                self.report(member, attempt, report, actions);
            }
            Event::Adopted { position } => self.adopted(position, actions),
            Event::OwnDamaged => self.own_damaged(actions),
            Event::Refilled { position } => self.refilled(position, actions),
            Event::Opened { position } => self.opened(position, actions),
            Event::CaughtUp {
                member,
                attempt,
                position,
            } => {
                self.caught_up(member, attempt, position, actions);
            }
            Event::Appended { last } => self.appended(last, actions),
            Event::Shipped { member, ship, last } => self.shipped(member, ship, last),
            Event::Written { member, ship } => self.written(member, ship, actions),
            Event::Flush { range } => self.flush(range, actions),
            Event::Flushed {
                member,
                attempt,
                range,
            } => {
                if self.speaks_under(member, attempt) {
                    self.flushed(member, range, actions);
                }
            }
            Event::LogsRest => self.logs_rest(actions),
            Event::Wanted { member } => self.members.wanted(member, actions),
            Event::Awake { member, attempt } => self.members.awake(member, attempt, actions),
            Event::StoreAt { seq } => self.own.edit = self.own.edit.max(seq),
            Event::EditCommitted { seq } => self.edit_committed(seq, actions),
            Event::EditApplied {
                member,
                attempt,
                seq,
            } => {
                if self.speaks_under(member, attempt) {
                    self.edit_applied(member, seq, actions);
                }
            }
            Event::TooFarBehind { member } => self.too_far_behind(member, actions),
            Event::CheckpointWanted { member, attempt } => {
                self.checkpoint_wanted(member, attempt, actions);
            }
            Event::Failed {
                member,
                attempt,
                damaged,
            } => self.failed(member, attempt, damaged, actions),
        }
    }

    fn link_up(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        self.link_down(id, actions);
        self.prepare(id, actions);
    }

    /// Asks the member to report. Once the region is open, a copy that has to be refilled is refilled before that.
    fn prepare(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        let is_open = self.is_open();
        let part = self.members.get(id).map(|member| member.part);
        let part = part.filter(|part| self.prepares(*part));
        let Some(member) = part.and_then(|_| self.members.get_mut(id)) else {
            return;
        };
        let refill = member.refill.is_wanted && is_open;
        member.phase = Phase::Prepared;
        member.rest = Rest::Fresh;
        member.attempt += 1;
        member.told = Told::Nothing;
        member.refill.asked_under = refill.then_some(member.attempt);
        if refill {
            member.holds_nothing();
        }
        actions.push(Action::Prepare {
            member: id,
            attempt: member.attempt,
            refill,
        });
    }

    fn link_down(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        self.leave(id, Phase::Down, actions);
    }

    /// The member can be spoken to no more: it is down, or has failed.
    fn leave(&mut self, id: ServerId, phase: Phase, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if member.phase == Phase::Down || member.phase == phase {
            return;
        }
        member.phase = phase;
        member.ships.under_way.clear();
        member.owed.clear();
        actions.push(Action::Detach { member: id });
        match self.state {
            State::Adopting(from) if from == id => {
                member.failures = member.failures.saturating_add(1);
                self.state = State::Opening;
                self.open(actions);
            }
            // It may have been the one that is whole.
            State::Refilling => {
                self.state = State::Opening;
                self.open(actions);
            }
            State::Opening
            | State::Adopting(_)
            | State::Promoting
            | State::Open
            | State::Serving => {}
        }
    }

    fn report(&mut self, id: ServerId, attempt: u64, report: Report, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if member.phase != Phase::Prepared || member.attempt != attempt {
            return;
        }
        let at = report.position;
        member.phase = Phase::Reported(report);
        member.standing = report.standing;
        // Nothing of what it reports counts before it has caught up.
        member.holds_nothing();
        let is_other = report.standing == Standing::PutBack;
        if self.mutants.trust_report() && !is_other {
            (member.holds.lsn, member.holds.edit) = (at.lsn, at.edit);
        }
        // What it has counts for the opening.
        member.refill.is_wanted &=
            matches!(self.state, State::Promoting | State::Open | State::Serving);
        match has_cut_of(self.committed, &at) && !is_other {
            true => self.flushes.forget_lost(id, &at),
            false => self.flushes.forget(id),
        }
        match self.state {
            State::Opening => self.open(actions),
            State::Refilling | State::Adopting(_) | State::Promoting => {}
            State::Open | State::Serving => {
                self.sync_or_refill(id, report, actions);
                self.serve_if_equal(actions);
            }
        }
    }

    /// The own log goes up to `last` at least.
    fn appended(&mut self, last: Lsn, actions: &mut Vec<Action>) {
        self.appended = self.appended.max(last);
        self.advance_commit(actions);
    }

    fn shipped(&mut self, id: ServerId, ship: u64, last: Lsn) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if !member.is_live() {
            return;
        }
        assert!(
            ship > member.ships.begun,
            "ships of {id} are numbered in order"
        );
        let may_have = matches!(member.rest, Rest::Fresh | Rest::Awake);
        assert!(may_have, "the windows of {id} have memory");
        member.ships.begun = ship;
        member.ships.under_way.push_back((ship, last));
        self.appended = self.appended.max(last);
    }

    fn written(&mut self, id: ServerId, ship: u64, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if !member.is_live() {
            return;
        }
        if let Some(last) = member.ships.complete(ship) {
            member.holds.lsn = member.holds.lsn.max(last);
        }
        self.send_flushes(id, actions);
        self.advance_commit(actions);
        self.serve_if_equal(actions);
        self.tell_caught_up(id, actions);
    }

    fn logs_rest(&mut self, actions: &mut Vec<Action>) {
        if self.flushes.is_empty() {
            self.members.let_rest(actions);
        }
    }

    fn flush(&mut self, range: FlushRange, actions: &mut Vec<Action>) {
        self.flushes.begin(range);
        for (_, member) in self.members.iter_mut() {
            if member.is_live() {
                // The edit that declared the segment is applied everywhere.
                let when = Reached {
                    ship: member.ships.begun + 1,
                    edit: self.applied,
                };
                member.owed.push(range, when);
            }
        }
        self.finish_flushes(actions);
    }

    /// Asks a copy for the flushes that it can do by now.
    fn send_flushes(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let at = Reached {
            ship: member.ships.complete,
            edit: member.holds.edit,
        };
        while let Some(range) = member.owed.next_due(at) {
            actions.push(Action::SendFlush {
                member: id,
                attempt: member.attempt,
                range,
            });
        }
    }

    fn flushed(&mut self, id: ServerId, range: FlushRange, actions: &mut Vec<Action>) {
        let member = self.members.get_mut(id);
        if member.is_some_and(|member| member.owed.done(&range)) {
            self.flushes.done_at(id, &range);
            self.finish_flushes(actions);
            self.tell_caught_up(id, actions);
        }
    }

    /// Says what every member has durable.
    fn finish_flushes(&mut self, actions: &mut Vec<Action>) {
        let remember = self.members.has_filling();
        let (members, by_majority) = (&self.members, self.mutants.flush_by_majority());
        loop {
            let next = self
                .flushes
                .finish_next(|done| members.have_done(done, by_majority), remember);
            let Some(range) = next else {
                return;
            };
            actions.push(Action::FlushedEverywhere {
                log: range.log,
                segment: range.segment,
                to: range.to,
            });
        }
    }

    /// I4: what every backup's memory holds is committed. Whether it does is known while it is live. It may claim more
    /// than was ever written here, and is not believed.
    fn advance_commit(&mut self, actions: &mut Vec<Action>) {
        if !self.is_open() {
            return;
        }
        if self.members.are_none() {
            return self.raise_commit(self.appended, actions);
        }
        let all = !self.mutants.commit_live_only();
        let trusted = self.mutants.trust_report();
        let members = self.members.counted().map(|(_, member)| member);
        let held = members.filter(|member| all || member.is_live());
        let held = held.map(|member| match trusted || member.is_live() {
            true => member.holds.lsn,
            false => Lsn(0),
        });
        let everywhere = if self.mutants.acknowledge_early() {
            held.max()
        } else {
            held.min()
        };
        if let Some(lsn) = everywhere {
            self.raise_commit(lsn.min(self.appended), actions);
        }
    }

    fn raise_commit(&mut self, lsn: Lsn, actions: &mut Vec<Action>) {
        if lsn > self.commit {
            self.commit = lsn;
            actions.push(Action::Commit { lsn });
        }
    }

    fn edit_committed(&mut self, seq: EditSeq, actions: &mut Vec<Action>) {
        if seq <= self.committed {
            return;
        }
        self.committed = seq;
        for (id, member) in self.members.iter() {
            if matches!(member.phase, Phase::Syncing | Phase::Live) {
                actions.push(Action::SendEdit {
                    member: id,
                    attempt: member.attempt,
                    seq,
                });
            }
        }
        self.advance_applied(actions);
    }

    fn edit_applied(&mut self, id: ServerId, seq: EditSeq, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if seq > member.holds.edit {
            member.holds.edit = seq;
            self.send_flushes(id, actions);
            self.advance_applied(actions);
        }
    }

    /// What every backup has applied under this primary. What it reports says nothing: it may be of another history,
    /// and the primary lets go of what a member needs that has not applied an edit.
    fn advance_applied(&mut self, actions: &mut Vec<Action>) {
        let members = self.members.counted();
        let applied = members.map(|(_, member)| member.holds.edit).min();
        let everywhere = applied.unwrap_or(self.committed);
        if self.is_open() && everywhere > self.applied {
            self.applied = everywhere;
            actions.push(Action::AppliedEverywhere { seq: everywhere });
        }
    }
}
