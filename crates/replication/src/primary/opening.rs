//! Opening a region: from the reports of its members to a primary that serves, and what is done about copies that
//! are damaged.

use alloc::vec::Vec;

use argosy_base::ServerId;

use super::{Action, Phase, Primary, Report, State};
use crate::position::Position;

/// What a primary knows of its own copy before the region is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCopy {
    /// It stands at this position.
    Opened {
        /// Where it stands.
        position: Position,
        /// It is certain to hold everything that was acknowledged.
        whole: bool,
    },
    /// It is too damaged to be used, and can be refilled.
    Damaged,
}

impl OwnCopy {
    pub(super) fn position(self) -> Position {
        match self {
            Self::Opened { position, .. } => position,
            Self::Damaged => Position::default(),
        }
    }
}

/// The same, while the region opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnState {
    Whole,
    /// It may lack what was acknowledged.
    Short,
    Damaged,
}

impl OwnState {
    pub(super) const fn of(own: OwnCopy) -> Self {
        match own {
            OwnCopy::Opened { whole: true, .. } => Self::Whole,
            OwnCopy::Opened { whole: false, .. } => Self::Short,
            OwnCopy::Damaged => Self::Damaged,
        }
    }
}

/// What all reports say together.
#[derive(Clone, Copy, Debug)]
struct Reports {
    /// Some copy is certain to hold everything that was acknowledged.
    any_whole: bool,
    /// Some copy is damaged.
    any_damaged: bool,
    /// The member with a later version than the own one, or else the one with more of the log.
    further: Option<ServerId>,
}

impl Primary {
    /// Opens the region once every member has reported that can: adopts what is higher than its own, or
    /// is promoted where nothing is.
    pub(super) fn open(&mut self, actions: &mut Vec<Action>) {
        assert_eq!(self.state, State::Opening, "a region opens once");
        let Some(reports) = self.reports() else {
            return;
        };
        if reports.any_damaged && !reports.any_whole && !self.mutants.take_partial() {
            return;
        }
        if self.own_state == OwnState::Damaged {
            self.state = State::Refilling;
            actions.push(Action::RefillOwn);
            return;
        }
        match reports.further {
            Some(from) => {
                self.state = State::Adopting(from);
                actions.push(Action::Adopt { from });
            }
            None => {
                self.state = State::Promoting;
                actions.push(Action::Promote);
            }
        }
    }

    /// What the members have reported; `None` while one has yet to. Those whose copies are damaged cannot.
    fn reports(&self) -> Option<Reports> {
        let mut any_whole = self.own_state == OwnState::Whole;
        let mut any_damaged = self.own_state == OwnState::Damaged;
        let mut best_edit = (self.own.edit, None);
        let mut best_lsn = (self.own.lsn, None);
        // Of members that have the same, the one is asked first that failed least often.
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_key(|(_, member)| member.failures);
        for (id, member) in members {
            let at = match member.phase {
                Phase::Reported(Report { position, whole }) => {
                    any_whole |= whole;
                    position
                }
                Phase::Damaged => {
                    any_damaged = true;
                    continue;
                }
                _ => return None,
            };
            if at.edit > best_edit.0 {
                best_edit = (at.edit, Some(*id));
            }
            if at.lsn > best_lsn.0 {
                best_lsn = (at.lsn, Some(*id));
            }
        }
        Some(Reports {
            any_whole,
            any_damaged,
            further: best_edit.1.or(best_lsn.1),
        })
    }

    /// Whether the region stays closed because a copy is damaged, and none of those that were reported is whole.
    #[must_use]
    pub fn wants_whole_copy(&self) -> bool {
        self.state == State::Opening
            && self
                .reports()
                .is_some_and(|reports| reports.any_damaged && !reports.any_whole)
    }

    pub(super) fn adopted(&mut self, position: Position, actions: &mut Vec<Action>) {
        if let State::Adopting(_) = self.state {
            self.own = position;
            self.committed = position.edit;
            self.state = State::Opening;
            self.open(actions);
        }
    }

    /// The own copy has turned out to be damaged before the region was open.
    pub(super) fn own_damaged(&mut self, actions: &mut Vec<Action>) {
        if self.state == State::Serving {
            return;
        }
        self.own = Position::default();
        self.own_state = OwnState::Damaged;
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
        self.own_state = OwnState::Short;
        self.state = State::Opening;
        self.open(actions);
    }

    pub(super) fn opened(&mut self, position: Position, actions: &mut Vec<Action>) {
        assert_eq!(
            self.state,
            State::Promoting,
            "only a promoted primary has opened"
        );
        self.state = State::Serving;
        self.own = position;
        self.own_state = OwnState::Whole;
        self.committed = self.committed.max(position.edit);
        if self.members.is_empty() {
            self.raise_commit(position.lsn, actions);
        }
        let members: Vec<_> = self.members.iter().map(|(id, m)| (*id, m.phase)).collect();
        for (id, phase) in members {
            match phase {
                Phase::Reported(_) => self.sync(id, actions),
                Phase::Damaged => self.prepare(id, true, actions),
                _ => {}
            }
        }
        self.advance_applied(actions);
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
        match self.members.get(&id) {
            Some(member) if member.attempt == attempt => {}
            _ => return,
        }
        if !damaged {
            return self.leave(id, Phase::Failed, actions);
        }
        self.leave(id, Phase::Damaged, actions);
        match self.state {
            State::Opening => self.open(actions),
            State::Refilling | State::Adopting(_) | State::Promoting => {}
            // The own copy is whole.
            State::Serving => self.prepare(id, true, actions),
        }
    }
}
