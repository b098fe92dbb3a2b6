//! Opening a region: from the reports of its members to a primary that is open, and what is done about copies that
//! are damaged.
//!
//! **Comparing copies.** The number of an edit names the epoch of the last cut, so later edits are those of later cuts.
//! LSNs compare only among copies with the same cut: those of an earlier cut may be of writes that were never
//! acknowledged, and of another history from some point on. Such a copy is not adopted, however long its log is, and
//! need not be refilled either: it is offered the checkpoint, and fetches the difference. Only a copy of the same or a
//! later cut that is ahead is of another history altogether.
//!
//! **Adopting.** What a member has reported is adopted once at most, so that it ends. Own edits only rise by it, and
//! LSNs rise under the same edit. A member that is ahead of a copy that was brought to it has another history.

use alloc::vec::Vec;

use argosy_base::{EditSeq, Position, ServerId, Standing};

use super::member::{Member, Phase, Report};
use super::{Action, Primary, State};

/// What a primary knows of its own copy before the region is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCopy {
    /// It stands at this position.
    Opened {
        /// Where it stands.
        position: Position,
        /// What it is certain to hold.
        standing: Standing,
    },
    /// It is too damaged to be used, and can be refilled.
    Damaged,
}

impl OwnCopy {
    /// `None`: it is damaged.
    pub(super) const fn standing(self) -> Option<Standing> {
        match self {
            Self::Opened { standing, .. } => Some(standing),
            Self::Damaged => None,
        }
    }

    pub(super) fn position(self) -> Position {
        match self {
            Self::Opened { position, .. } => position,
            Self::Damaged => Position::default(),
        }
    }
}

/// What the opening of a region needs to know of a copy.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// Whose; `None`: the primary's own.
    of: Option<ServerId>,
    position: Position,
    standing: Standing,
}

/// What all reports say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    /// A member has yet to report.
    Incomplete,
    /// What was acknowledged last may be in none of the copies that were reported.
    WholeWanted,
    /// The own copy is too damaged to be used, or was put back, and another copy is whole.
    OwnUnusable,
    /// The member with a later version than the own one, or else the one with more of the log.
    Further(Option<ServerId>),
}

impl Primary {
    /// Opens the region once every member has reported that can: adopts what is higher than its own, or
    /// is promoted where nothing is.
    pub(super) fn open(&mut self, actions: &mut Vec<Action>) {
        assert_eq!(self.state, State::Opening, "a region opens once");
        match self.reports() {
            Reports::Incomplete | Reports::WholeWanted => {}
            Reports::OwnUnusable => {
                self.state = State::Refilling;
                actions.push(Action::RefillOwn);
            }
            Reports::Further(Some(from)) if self.is_adopted(from) => {
                self.take_for_other(from);
                self.open(actions);
            }
            Reports::Further(Some(from)) => {
                self.state = State::Adopting(from);
                actions.push(Action::Adopt { from });
            }
            Reports::Further(None) => {
                self.state = State::Promoting;
                actions.push(Action::Promote);
            }
        }
    }

    /// What the members have reported. Those whose copies are damaged cannot.
    fn reports(&self) -> Reports {
        let own = self.own_standing.map(|standing| Copy {
            of: None,
            position: self.own,
            standing,
        });
        let mut copies: Vec<Copy> = own.into_iter().collect();
        let mut in_doubt = own.is_none();
        // Of members that have the same, the one is asked first that failed least often.
        let mut members: Vec<_> = self.members.counted().collect();
        members.sort_by_key(|(_, member)| member.failures);
        for (id, member) in members {
            match member.phase {
                Phase::Reported(report) => copies.push(Copy {
                    of: Some(id),
                    position: report.position,
                    standing: report.standing,
                }),
                Phase::Damaged => in_doubt = true,
                _ => return Reports::Incomplete,
            }
        }
        let any = |standing: Standing| copies.iter().any(|copy| copy.standing == standing);
        let any_whole = any(Standing::Whole);
        // One that was put back may be of another history than the rest, unless the own copy was made from it.
        let is_other = |copy: &Copy| {
            let adopted = copy.of.is_some() && copy.of == self.adopted_from;
            copy.standing == Standing::PutBack && !adopted
        };
        let filled = copies.iter().filter(|copy| !copy.position.is_empty());
        in_doubt |= copies.iter().any(is_other) && filled.count() > 1;
        in_doubt |= any(Standing::BegunAnew) || any(Standing::Filling);
        if in_doubt && !any_whole && !self.mutants.take_partial() {
            return Reports::WholeWanted;
        }
        let is_usable = own.is_some_and(|own| !any_whole || own.standing != Standing::PutBack);
        if !is_usable {
            return Reports::OwnUnusable;
        }
        copies.retain(|copy| !any_whole || copy.standing != Standing::PutBack);
        Reports::Further(furthest(&copies, self.mutants.lsn_over_epoch()))
    }

    /// The reported copies that were begun anew, are being filled or have another history, and the own one (`None`) if
    /// it is such a copy.
    pub fn in_doubt(&self) -> impl Iterator<Item = (Option<ServerId>, Standing)> + '_ {
        let own = self.own_standing.map(|standing| (None, standing));
        let reported = self
            .members
            .counted()
            .filter_map(|(id, member)| match member.phase {
                Phase::Reported(report) => Some((Some(id), report.standing)),
                _ => None,
            });
        let is_in_doubt = |standing| !matches!(standing, Standing::Whole | Standing::Ordinary);
        own.into_iter()
            .chain(reported)
            .filter(move |(_, standing)| is_in_doubt(*standing))
    }

    /// Whether the region stays closed because a copy is damaged, was begun anew or put back, or is being filled, and
    /// none of those that were reported is whole.
    #[must_use]
    pub fn wants_whole_copy(&self) -> bool {
        self.state == State::Opening && self.reports() == Reports::WholeWanted
    }

    /// Whether the region opens with all that was acknowledged, whoever else reports: it is open, or the own copy is
    /// whole, or one that was reported.
    #[must_use]
    pub fn has_whole_copy(&self) -> bool {
        let is_whole = |phase: Phase| match phase {
            Phase::Reported(report) => report.standing == Standing::Whole,
            _ => false,
        };
        self.is_open()
            || self.own_standing == Some(Standing::Whole)
            || self
                .members
                .counted()
                .any(|(_, member)| is_whole(member.phase))
    }

    /// Whether the own copy still has to be set aside and begun anew.
    #[must_use]
    pub fn refills_own(&self) -> bool {
        self.state == State::Refilling
    }

    pub(super) fn adopted(&mut self, position: Position, actions: &mut Vec<Action>) {
        if let State::Adopting(from) = self.state {
            self.adopted_from = Some(from);
            self.note_adopted(from, &position);
            self.own = position;
            self.committed = position.edit;
            self.state = State::Opening;
            self.open(actions);
        }
    }

    /// A copy that is still ahead after it was adopted has another history: its log goes on where the own one was cut.
    /// One of an earlier cut may well be longer.
    fn note_adopted(&mut self, from: ServerId, adopted: &Position) {
        let mistaken = self.mutants.lsn_over_epoch();
        let Some(report) = self.members.get_mut(from).and_then(Member::reported) else {
            return;
        };
        report.is_adopted = true;
        if is_ahead(&report.position, adopted, mistaken) {
            self.take_for_other(from);
        }
    }

    /// Whether the own copy was brought to what `id` has reported.
    fn is_adopted(&self, id: ServerId) -> bool {
        match self.members.get(id).map(|member| member.phase) {
            Some(Phase::Reported(report)) => report.is_adopted,
            _ => false,
        }
    }

    /// The history of `id`, which has reported, is another one.
    fn take_for_other(&mut self, id: ServerId) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        if let Some(report) = member.reported() {
            report.standing = Standing::PutBack;
        }
        member.standing = Standing::PutBack;
        member.holds_nothing();
        if self.adopted_from == Some(id) {
            self.adopted_from = None;
        }
    }

    /// The own copy is another one from now on: nothing was adopted.
    fn forget_adopted(&mut self) {
        let reports = self.members.iter_mut();
        let reports = reports.filter_map(|(_, member)| member.reported());
        reports.for_each(|report| report.is_adopted = false);
    }

    /// The own copy has turned out to be damaged before the region was open.
    pub(super) fn own_damaged(&mut self, actions: &mut Vec<Action>) {
        if self.is_open() {
            return;
        }
        self.own = Position::default();
        self.own_standing = None;
        self.forget_adopted();
        self.state = State::Opening;
        self.open(actions);
    }

    /// The own copy was begun anew.
    pub(super) fn refilled(&mut self, position: Position, actions: &mut Vec<Action>) {
        if self.state != State::Refilling {
            return;
        }
        self.own = position;
        self.committed = position.edit;
        self.own_standing = Some(Standing::BegunAnew);
        self.forget_adopted();
        self.state = State::Opening;
        self.open(actions);
    }

    pub(super) fn opened(&mut self, position: Position, actions: &mut Vec<Action>) {
        assert_eq!(
            self.state,
            State::Promoting,
            "only a promoted primary has opened"
        );
        self.state = State::Open;
        self.own = position;
        self.own_standing = Some(Standing::Whole);
        self.committed = self.committed.max(position.edit);
        self.appended = position.lsn;
        self.advance_commit(actions);
        let members = self.members.iter();
        let members: Vec<_> = members.map(|(id, member)| (id, member.phase)).collect();
        for (id, phase) in members {
            match phase {
                Phase::Reported(report) if self.adopted_from == Some(id) => {
                    self.sync(id, report, actions);
                }
                Phase::Reported(report) => self.sync_or_refill(id, report, actions),
                Phase::Damaged => self.prepare(id, actions),
                _ => {}
            }
        }
        self.serve_if_equal(actions);
        self.advance_applied(actions);
    }

    /// Begins to catch a copy up that has reported. One with another history is refilled first: it was put back, or has
    /// an edit of this or a later cut that the store here never had. Where the edits are those of an earlier cut,
    /// neither their number nor the LSNs say anything.
    pub(super) fn sync_or_refill(
        &mut self,
        id: ServerId,
        report: Report,
        actions: &mut Vec<Action>,
    ) {
        let own = self.committed.max(self.own.edit);
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let is_other = report.standing == Standing::PutBack || report.position.edit > own;
        if member.refill.asked_under == Some(member.attempt) {
            member.refill.is_wanted = false;
            if report.standing == Standing::BegunAnew {
                return self.sync(id, report, actions);
            }
            member.holds_nothing();
            return self.leave(id, Phase::Failed, actions);
        }
        member.refill.is_wanted |= is_other;
        match member.refill.is_wanted {
            true => self.prepare(id, actions),
            false => self.sync(id, report, actions),
        }
    }

    /// The member's copy has failed. What was sent under an attempt that is over is repeated under
    /// the present one.
    pub(super) fn failed(
        &mut self,
        id: ServerId,
        attempt: u64,
        damaged: bool,
        actions: &mut Vec<Action>,
    ) {
        match self.members.get(id) {
            Some(member) if member.attempt == attempt => {}
            _ => return,
        }
        if !damaged {
            return self.leave(id, Phase::Failed, actions);
        }
        self.leave(id, Phase::Damaged, actions);
        if let Some(member) = self.members.get_mut(id) {
            member.refill.is_wanted = true;
            member.holds_nothing();
        }
        match self.state {
            State::Opening => self.open(actions),
            State::Refilling | State::Adopting(_) | State::Promoting => {}
            // The own copy is whole.
            State::Open | State::Serving => {
                self.prepare(id, actions);
                self.serve_if_equal(actions);
            }
        }
    }
}

/// The member with the latest version, if that is later than the own one (the first of `copies`), or else, of those
/// with the same cut, with most of the log. `mistaken`: of all.
fn furthest(copies: &[Copy], mistaken: bool) -> Option<ServerId> {
    let (own, others) = copies.split_first()?;
    let mut edit = *own;
    for copy in others {
        if copy.position.edit > edit.position.edit {
            edit = *copy;
        }
    }
    let cut = cut_epoch(edit.position.edit);
    let mut lsn = *own;
    for copy in others {
        let compares = mistaken || cut_epoch(copy.position.edit) == cut;
        if compares && copy.position.lsn > lsn.position.lsn {
            lsn = *copy;
        }
    }
    edit.of.or(lsn.of)
}

/// Whether a copy at `at` has what one at `ours` cannot get from it: it is ahead, and its cut is not an earlier one.
/// `mistaken`: whatever its cut is.
fn is_ahead(at: &Position, ours: &Position, mistaken: bool) -> bool {
    let compares = mistaken || cut_epoch(at.edit) >= cut_epoch(ours.edit);
    compares && (at.edit > ours.edit || at.lsn > ours.lsn)
}

/// Whether a copy at `at` has the same cut as one whose last edit is `edit`.
pub(super) fn has_cut_of(edit: EditSeq, at: &Position) -> bool {
    cut_epoch(edit) == cut_epoch(at.edit)
}

/// The epoch of the last cut before `edit`, or of `edit` itself if it is one.
const fn cut_epoch(edit: EditSeq) -> u64 {
    edit.0 >> 32
}
