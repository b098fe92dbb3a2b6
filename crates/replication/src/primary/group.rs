//! The group: how copies catch up, when the region serves, and how the group changes while the primary goes on.
//!
//! **Catching up.** A copy that stands at the last edit goes live at once. Any other is offered a checkpoint, and goes
//! live when it says that it has caught up with that. Either way it then holds what its position says, and not before.
//!
//! **Serving.** A primary that is open takes writes, and shows nothing. It *serves* once every member is live and holds
//! all that the primary opened with. Otherwise a failure right after could lose what it has shown. A member whose
//! copy is known to be partial is not waited for: nobody promotes it. What is committed waits for that one, too.
//! It does not serve either before the lease is over that this server may have granted to an earlier primary.
//!
//! **Filling.** A copy that is being filled is prepared once the region serves, not before, and caught up as a member
//! is. It is sent everything, and counts for nothing: neither for what is committed, nor for what is flushed or applied
//! everywhere. Once it holds all that was committed when it went live, the driver is told, which wishes that it becomes
//! a member. It may lag behind again by then: under a steady load it always lacks what is on its way.
//!
//! **Changes.** A group has another epoch with each change, and the same promotion. A member that was removed counts
//! for nothing any more. One that is added is prepared. Whoever stays, stays as it is. One that was filled and is live
//! counts from what it holds, and is told that its copy is whole when it holds all that is committed, and has flushed
//! what was flushed everywhere without it. One that is filled from now on begins again: what its copy was told, that it
//! is whole, holds no more.

use alloc::vec::Vec;

use argosy_base::{Position, ServerId};

use super::flushing::Reached;
use super::member::{Holds, Member, MemberPart, Phase, Report, Told};
use super::members::Group;
use super::{Action, Primary, State};

impl Primary {
    /// Begins to catch a member up that has reported.
    pub(super) fn sync(&mut self, id: ServerId, report: Report, actions: &mut Vec<Action>) {
        let member = self
            .members
            .get_mut(id)
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

    pub(super) fn caught_up(
        &mut self,
        id: ServerId,
        attempt: u64,
        at: Position,
        actions: &mut Vec<Action>,
    ) {
        let lacks = self.lacks_flushed(&at);
        let Some(member) = self.members.get_mut(id) else {
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
        member.holds = Holds {
            lsn: at.lsn,
            edit: member.holds.edit.max(at.edit),
            goal: self.commit,
        };
        // What it has counts for the opening.
        member.refill.is_wanted &=
            matches!(self.state, State::Promoting | State::Open | State::Serving);
        actions.push(Action::Attach {
            member: id,
            attempt,
            position: at,
        });
        // The first ship of the attachment covers whatever the member lacks of these ranges.
        let when = Reached {
            ship: member.ships.begun + 1,
            edit: self.applied,
        };
        let flushes = self.flushes.split_at(id, &at);
        for range in flushes.asked {
            member.owed.push(range, when);
        }
        for range in flushes.done {
            self.flushes.done_at(id, &range);
        }
        self.finish_flushes(actions);
        self.advance_commit(actions);
        self.serve_if_equal(actions);
        self.tell_caught_up(id, actions);
        // It may have applied an edit and lost the link before it could say so.
        self.advance_applied(actions);
    }

    /// The member has all edits, but not the bytes of the log that are durable here: a checkpoint
    /// tells it which, and where to have them.
    pub(super) fn too_far_behind(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        if let Some(member) = self.members.get_mut(id)
            && member.is_live()
        {
            member.lacks_log = true;
            self.link_up(id, actions);
        }
    }

    /// A checkpoint is applied only while nobody writes to the member's windows, since their
    /// contents are then found anew: a live member begins again.
    pub(super) fn checkpoint_wanted(
        &mut self,
        id: ServerId,
        attempt: u64,
        actions: &mut Vec<Action>,
    ) {
        match self.members.get(id) {
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

    /// Whether the own log is cut, and the region takes writes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Serving)
    }

    /// The group has changed.
    pub(super) fn regroup(&mut self, group: &Group, actions: &mut Vec<Action>) {
        let parts = group.parts();
        for id in self.members.ids() {
            if !parts.contains_key(&id) {
                self.leave(id, Phase::Down, actions);
                self.members.remove(id);
                self.flushes.forget(id);
            }
        }
        for (id, part) in parts {
            if self.give_part(id, part, actions) {
                self.prepare(id, actions);
            }
        }
        if self.state == State::Opening {
            return self.open(actions);
        }
        self.finish_flushes(actions);
        self.advance_commit(actions);
        self.advance_applied(actions);
        self.serve_if_equal(actions);
        for id in self.members.ids() {
            self.tell_caught_up(id, actions);
        }
    }

    /// From now on the copy of `id` has this part. Returns whether it has to be prepared.
    fn give_part(&mut self, id: ServerId, part: MemberPart, actions: &mut Vec<Action>) -> bool {
        let Some(member) = self.members.get_mut(id) else {
            self.members.add(id, part);
            return true;
        };
        match (member.part, part) {
            (MemberPart::Member, MemberPart::Member) => false,
            (MemberPart::Filling, MemberPart::Filling) => {
                // A wish is one of its epoch.
                member.told = Told::Nothing;
                false
            }
            (MemberPart::Filling, MemberPart::Member) => {
                member.part = part;
                member.phase == Phase::Down
            }
            (MemberPart::Member, MemberPart::Filling) => {
                // While it is down, nothing opens without the members that are still to be added.
                self.leave(id, Phase::Down, actions);
                if let Some(member) = self.members.get_mut(id) {
                    member.part = part;
                }
                true
            }
        }
    }

    /// Whether a copy of this part may be prepared.
    pub(super) fn prepares(&self, part: MemberPart) -> bool {
        match part {
            MemberPart::Member => true,
            MemberPart::Filling => {
                self.state == State::Serving || self.mutants.fill_before_serving()
            }
        }
    }

    /// Serves, once all members are equal.
    pub(super) fn serve_if_equal(&mut self, actions: &mut Vec<Action>) {
        if self.state != State::Open || self.waits_for_lease {
            return;
        }
        let is_equal = |member: &Member| member.has(self.own.lsn) || member.is_partial();
        let all = self.members.counted().all(|(_, member)| is_equal(member));
        if !(all || self.mutants.serve_before_equal()) {
            return;
        }
        self.state = State::Serving;
        actions.push(Action::Serve);
        for id in self.members.ids() {
            self.tell_caught_up(id, actions);
        }
        let waits = |member: &Member| member.is_filling() && member.phase == Phase::Down;
        let waiting = self.members.iter().filter(|(_, member)| waits(member));
        let waiting: Vec<_> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            self.prepare(id, actions);
        }
    }

    /// Whether the member holds everything that was ever acknowledged, and takes part in what will be.
    pub(super) fn is_whole(&self, member: &Member) -> bool {
        member.has(self.commit.max(self.own.lsn)) || self.counts_early(member)
    }

    /// Whether the member is still to flush something that counts as durable everywhere: it was flushed while the copy
    /// was being filled. Marks speak of that, and of a member's copy they are believed once it is whole.
    fn owes_durable(&self, member: &Member) -> bool {
        let mut owed = member.owed.ranges();
        owed.any(|range| !self.flushes.is_under_way(range))
    }

    /// Whether the copy, which is being filled, may become a member.
    fn is_filled(&self, member: &Member) -> bool {
        member.has(member.holds.goal) || self.counts_early(member)
    }

    /// A planted mistake.
    fn counts_early(&self, member: &Member) -> bool {
        member.is_live() && self.mutants.count_early()
    }

    /// Tells a member that its copy is whole, or the driver that one is filled: once under an attempt, and once the
    /// region serves.
    pub(super) fn tell_caught_up(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        let Some(member) = self.members.get(id) else {
            return;
        };
        let attempt = member.attempt;
        let (told, action) = match member.part {
            _ if self.state != State::Serving => return,
            MemberPart::Member if self.is_whole(member) && !self.owes_durable(member) => (
                Told::Whole,
                Action::TellWhole {
                    member: id,
                    attempt,
                },
            ),
            MemberPart::Filling if self.is_filled(member) => {
                (Told::Filled, Action::Filled { member: id })
            }
            MemberPart::Member | MemberPart::Filling => return,
        };
        if member.told == told {
            return;
        }
        if let Some(member) = self.members.get_mut(id) {
            member.told = told;
            actions.push(action);
        }
    }
}
