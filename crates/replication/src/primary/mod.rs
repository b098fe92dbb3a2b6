//! The primary's side of a region: opening it, catching members up, and the commit LSN.
//!
//! **Opening.** Every member reports where it stands (its last edit, its last LSN). The primary
//! adopts what is higher than its own, edit first, then log, from the member that has it; then it
//! is *promoted*: a cut edit ends the old log, and it serves. All reports have to be of the same
//! opening: a member whose link breaks reports anew, because it may have lost its memory.
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
mod member;
mod opening;
mod resting;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use argosy_base::{EditSeq, FlushRange, Lsn, Position, ServerId, Standing};

pub use event::{Action, Event};
pub use member::MemberView;
pub use opening::OwnCopy;

use self::flushing::Flushes;
use self::member::{Member, Phase, Report};
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
    /// Open.
    Serving,
}

/// A region's primary. See the module documentation.
#[derive(Clone, Debug)]
pub struct Primary {
    members: BTreeMap<ServerId, Member>,
    state: State,
    own: Position,
    /// `None` while it is too damaged to be used.
    own_standing: Option<Standing>,
    /// Whose history was adopted last.
    adopted_from: Option<ServerId>,
    commit: Lsn,
    /// The last edit that is durable here.
    committed: EditSeq,
    /// Up to here every backup has applied.
    applied: EditSeq,
    flushes: Flushes,
    mutants: Mutants,
}

impl Primary {
    /// A primary with these `backups` and its `own` copy. `actions` receives what has
    /// to be done first: with no backups, that is to open.
    #[must_use]
    pub fn new(
        backups: &[ServerId],
        own: OwnCopy,
        mutants: Mutants,
        actions: &mut Vec<Action>,
    ) -> Self {
        let position = own.position();
        let mut primary = Self {
            members: backups
                .iter()
                .map(|backup| (*backup, Member::default()))
                .collect(),
            state: State::Opening,
            own: position,
            own_standing: own.standing(),
            adopted_from: None,
            commit: Lsn(0),
            committed: position.edit,
            applied: EditSeq(0),
            flushes: Flushes::default(),
            mutants,
        };
        primary.open(actions);
        primary
    }

    /// Whether the region is open.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.state == State::Serving
    }

    /// The commit LSN.
    #[must_use]
    pub const fn commit(&self) -> Lsn {
        self.commit
    }

    /// Whether `member` is sent finished segments as they are built.
    #[must_use]
    pub fn takes_segments(&self, member: ServerId) -> bool {
        self.members
            .get(&member)
            .is_some_and(|m| matches!(m.phase, Phase::Syncing | Phase::Live))
    }

    /// The attempt under which `member` is spoken to at present.
    #[must_use]
    pub fn attempt(&self, member: ServerId) -> u64 {
        self.members.get(&member).map_or(0, |m| m.attempt)
    }

    /// Whether what `member` says under `attempt` is of the present one.
    #[must_use]
    pub fn speaks_under(&self, member: ServerId, attempt: u64) -> bool {
        let member = self.members.get(&member);
        member.is_some_and(|member| member.attempt == attempt)
    }

    /// The backups that are not live, or do not yet hold what the region opened with and what was
    /// committed since, in order. While there is one, losing all others loses data.
    pub fn absent(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.members
            .iter()
            .filter(|(_, member)| !self.is_whole(member))
            .map(|(id, _)| *id)
    }

    /// All backups, by their names.
    pub fn members(&self) -> impl Iterator<Item = MemberView> + '_ {
        self.members.iter().map(|(id, member)| member.view(*id))
    }

    /// Whether the member holds everything that was ever acknowledged, and takes part in what will be.
    fn is_whole(&self, member: &Member) -> bool {
        member.phase == Phase::Live && member.held >= self.commit.max(self.own.lsn)
    }

    /// Tells the member that its copy is whole, once under an attempt, if it is.
    fn tell_whole(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        let is_news = |member: &Member| !member.told_whole && self.is_whole(member);
        if !self.members.get(&id).is_some_and(is_news) {
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.told_whole = true;
            actions.push(Action::TellWhole {
                member: id,
                attempt: member.attempt,
            });
        }
    }

    /// One step. Events that name a server outside the group, or an attempt that is over, change
    /// nothing: they were sent before the sender knew better.
    pub fn step(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::LinkUp { member } => self.link_up(member, actions),
            Event::LinkDown { member } => self.link_down(member, actions),
            Event::Report {
                member,
                attempt,
                position,
                standing,
            } => {
                let report = Report { position, standing };
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
            Event::Wanted { member } => self.wanted(member, actions),
            Event::Awake { member, attempt } => self.awake(member, attempt, actions),
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
        let serves = self.state == State::Serving;
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let refill = member.refill.is_wanted && serves;
        member.phase = Phase::Prepared;
        member.rest = Rest::Fresh;
        member.attempt += 1;
        member.told_whole = false;
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

    /// The member has all edits, but not the bytes of the log that are durable here: a checkpoint
    /// tells it which, and where to have them.
    fn too_far_behind(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        if let Some(member) = self.members.get_mut(&id)
            && member.phase == Phase::Live
        {
            member.lacks_log = true;
            self.link_up(id, actions);
        }
    }

    /// A checkpoint is applied only while nobody writes to the member's windows, since their
    /// contents are then found anew: a live member begins again.
    fn checkpoint_wanted(&mut self, id: ServerId, attempt: u64, actions: &mut Vec<Action>) {
        match self.members.get(&id) {
            Some(member) if member.attempt == attempt => match member.phase {
                Phase::Syncing => actions.push(Action::Offer {
                    member: id,
                    attempt,
                }),
                Phase::Live => self.link_up(id, actions),
                Phase::Down
                | Phase::Prepared
                | Phase::Reported(_)
                | Phase::Failed
                | Phase::Damaged => {}
            },
            _ => {}
        }
    }

    fn link_down(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        self.leave(id, Phase::Down, actions);
    }

    /// The member can be spoken to no more: it is down, or has failed.
    fn leave(&mut self, id: ServerId, phase: Phase, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if member.phase == Phase::Down || member.phase == phase {
            return;
        }
        member.phase = phase;
        member.ships.under_way.clear();
        member.flushes.clear();
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
            State::Opening | State::Adopting(_) | State::Promoting | State::Serving => {}
        }
    }

    fn report(&mut self, id: ServerId, attempt: u64, report: Report, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if member.phase != Phase::Prepared || member.attempt != attempt {
            return;
        }
        let at = report.position;
        member.phase = Phase::Reported(report);
        // Nothing of what it reports counts before it has caught up.
        member.holds_nothing();
        if self.mutants.trust_report() && report.standing != Standing::PutBack {
            (member.held, member.applied) = (at.lsn, at.edit);
        }
        // What it has counts for the opening.
        member.refill.is_wanted &= matches!(self.state, State::Promoting | State::Serving);
        self.flushes.forget_lost(id, &at);
        match self.state {
            State::Opening => self.open(actions),
            State::Refilling | State::Adopting(_) | State::Promoting => {}
            State::Serving => self.sync_or_refill(id, report, actions),
        }
    }

    /// Begins to catch a member up that has reported.
    fn sync(&mut self, id: ServerId, report: Report, actions: &mut Vec<Action>) {
        let member = self
            .members
            .get_mut(&id)
            .expect("the caller found it in the group");
        let position = report.position;
        let attempt = member.attempt;
        member.phase = Phase::Syncing;
        let whole = position.edit == self.committed && !member.lacks_log;
        if whole && !self.lacks_flushed(&position) {
            self.caught_up(id, attempt, position, actions);
        } else {
            actions.push(Action::Offer {
                member: id,
                attempt,
            });
        }
    }

    /// Whether a member at `at` lacks log bytes that every backup had durable once.
    fn lacks_flushed(&self, at: &Position) -> bool {
        !self.mutants.lacks_nothing() && self.flushes.are_lacked_at(at)
    }

    fn caught_up(&mut self, id: ServerId, attempt: u64, at: Position, actions: &mut Vec<Action>) {
        let lacks = self.lacks_flushed(&at);
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if member.phase != Phase::Syncing || member.attempt != attempt {
            return;
        }
        if lacks {
            actions.push(Action::Offer {
                member: id,
                attempt,
            });
            return;
        }
        member.phase = Phase::Live;
        member.lacks_log = false;
        member.held = at.lsn;
        member.applied = member.applied.max(at.edit);
        // What it has counts for the opening.
        member.refill.is_wanted &= matches!(self.state, State::Promoting | State::Serving);
        actions.push(Action::Attach {
            member: id,
            attempt,
            position: at,
        });
        // The first ship of the attachment covers whatever the member lacks of these ranges.
        let next_ship = member.ships.begun + 1;
        let (done, open) = self.flushes.split_at(id, &at);
        let again = open.into_iter().map(|range| (next_ship, range));
        member.flushes.extend(again);
        for range in done {
            self.flushed(id, range, actions);
        }
        self.advance_commit(actions);
        self.tell_whole(id, actions);
        // It may have applied an edit and lost the link before it could say so.
        self.advance_applied(actions);
    }

    fn shipped(&mut self, id: ServerId, ship: u64, last: Lsn) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if member.phase != Phase::Live {
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
    }

    fn written(&mut self, id: ServerId, ship: u64, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if member.phase != Phase::Live {
            return;
        }
        if let Some(last) = member.ships.complete(ship) {
            member.held = member.held.max(last);
        }
        let attempt = member.attempt;
        while let Some((needs, range)) = member.flushes.front().copied() {
            if needs > member.ships.complete {
                break;
            }
            member.flushes.pop_front();
            actions.push(Action::SendFlush {
                member: id,
                attempt,
                range,
            });
        }
        self.advance_commit(actions);
        self.tell_whole(id, actions);
    }

    fn flush(&mut self, range: FlushRange, actions: &mut Vec<Action>) {
        if self.members.is_empty() {
            return actions.push(flushed_everywhere(&range));
        }
        self.flushes.begin(range);
        let members = self.members.values_mut();
        for member in members.filter(|member| member.phase == Phase::Live) {
            member.flushes.push_back((member.ships.begun + 1, range));
        }
    }

    fn flushed(&mut self, id: ServerId, range: FlushRange, actions: &mut Vec<Action>) {
        if !self.members.contains_key(&id) {
            return;
        }
        self.flushes.done_at(id, &range);
        while let Some(done) = self.flushes.finish_next(self.members.len()) {
            actions.push(flushed_everywhere(&done));
        }
    }

    /// I4: what every backup's memory holds is committed. Whether it does is known while it is live.
    fn advance_commit(&mut self, actions: &mut Vec<Action>) {
        let all = !self.mutants.commit_live_only();
        let is_live = |member: &Member| member.phase == Phase::Live;
        let trusted = self.mutants.trust_report();
        let members = self.members.values();
        let held = members.filter(|member| all || is_live(member));
        let held = held.map(|member| match trusted || is_live(member) {
            true => member.held,
            false => Lsn(0),
        });
        let everywhere = if self.mutants.acknowledge_early() {
            held.max()
        } else {
            held.min()
        };
        if let Some(lsn) = everywhere {
            self.raise_commit(lsn, actions);
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
        for (id, member) in &self.members {
            if matches!(member.phase, Phase::Syncing | Phase::Live) {
                actions.push(Action::SendEdit {
                    member: *id,
                    attempt: member.attempt,
                    seq,
                });
            }
        }
        self.advance_applied(actions);
    }

    fn edit_applied(&mut self, id: ServerId, seq: EditSeq, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if seq > member.applied {
            member.applied = seq;
            self.advance_applied(actions);
        }
    }

    fn advance_applied(&mut self, actions: &mut Vec<Action>) {
        let everywhere = self
            .members
            .values()
            .map(|member| member.applied)
            .min()
            .unwrap_or(self.committed);
        if self.is_serving() && everywhere > self.applied {
            self.applied = everywhere;
            actions.push(Action::AppliedEverywhere { seq: everywhere });
        }
    }
}

/// Says that every backup has `range` durable.
const fn flushed_everywhere(range: &FlushRange) -> Action {
    Action::FlushedEverywhere {
        log: range.log,
        segment: range.segment,
        to: range.to,
    }
}
