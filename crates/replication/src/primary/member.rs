//! What a primary knows of one other copy, and tells of it to whoever watches a server.

use alloc::collections::VecDeque;

use argosy_base::{EditSeq, Lsn, Position, ServerId, Standing};

use super::flushing::Owed;
use super::resting::Rest;

/// How far a copy is on its way to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Down,
    Prepared,
    Reported(Report),
    Syncing,
    Live,
    /// It has failed.
    Failed,
    /// It has failed for damage, and can be refilled.
    Damaged,
}

/// What a copy is to its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberPart {
    /// That of a member: what it holds counts.
    #[default]
    Member,
    /// It is being filled: it is sent everything, and nobody waits for it.
    Filling,
}

/// What a copy has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) position: Position,
    pub(super) standing: Standing,
    /// The primary's own copy was brought to it.
    pub(super) is_adopted: bool,
}

/// What the primary knows of one other copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    pub(super) part: MemberPart,
    pub(super) phase: Phase,
    pub(super) attempt: u64,
    pub(super) holds: Holds,
    pub(super) ships: Ships,
    /// Flushes that it is asked for and has not done.
    pub(super) owed: Owed,
    pub(super) rest: Rest,
    /// Its copy of the log ends in front of what the primary's windows hold.
    pub(super) lacks_log: bool,
    pub(super) told: Told,
    pub(super) refill: Refill,
    /// As it reported last.
    pub(super) standing: Standing,
    /// How often the link to it broke while its copy was being adopted: what was asked for may be damaged there.
    pub(super) failures: u32,
}

/// What a copy holds, by what it caught up with under this primary and was sent since. Counts while it is live.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds {
    /// Its memory holds everything up to here.
    pub(super) lsn: Lsn,
    /// The last edit that it has applied under this primary.
    pub(super) edit: EditSeq,
    /// What was committed when it went live.
    pub(super) goal: Lsn,
}

/// What was said of a copy under its present attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Told {
    #[default]
    Nothing,
    /// To the driver: it was filled, and may become a member.
    Filled,
    /// To the member: its copy is whole.
    Whole,
}

/// The ships of records to one copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Ships {
    /// Number and highest LSN. Invariant: both rise.
    pub(super) under_way: VecDeque<(u64, Lsn)>,
    /// The last that was begun.
    pub(super) begun: u64,
    /// The last that is complete.
    pub(super) complete: u64,
}

/// Whether a copy is begun anew.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refill {
    /// It has to be: it was damaged, or has another history.
    pub(super) is_wanted: bool,
    /// The attempt under which its server was asked to do that.
    pub(super) asked_under: Option<u64>,
}

/// One other copy, as the primary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Whose.
    pub id: ServerId,
    /// What it is to the group.
    pub part: MemberPart,
    /// `down`, `prepared`, `reported`, `syncing`, `live`, `failed` or `damaged`; see the module of the primary.
    pub state: &'static str,
    /// Its memory holds everything up to here; when it was last live, if it is not.
    pub held: Lsn,
    /// The last edit that it has applied under this primary.
    pub applied: EditSeq,
    /// How many of the writes that were appended here it does not hold.
    pub lag: u64,
}

impl Ships {
    /// All up to `ship` are complete. The highest LSN of those that were not before.
    pub(super) fn complete(&mut self, ship: u64) -> Option<Lsn> {
        let mut highest = None;
        while let Some((done, last)) = self.under_way.pop_front_if(|(number, _)| *number <= ship) {
            self.complete = done;
            highest = Some(last);
        }
        highest
    }
}

impl Member {
    /// Another copy of this part; attempts of its server count on from `attempt`.
    pub(super) fn new(part: MemberPart, attempt: u64) -> Self {
        Self {
            part,
            attempt,
            ..Self::default()
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// What it has reported, if it has done nothing else since.
    pub(super) const fn reported(&mut self) -> Option<&mut Report> {
        match &mut self.phase {
            Phase::Reported(report) => Some(report),
            _ => None,
        }
    }

    pub(super) fn is_filling(&self) -> bool {
        self.part == MemberPart::Filling
    }

    /// Up to where all is on its way to its memory, or there.
    pub(super) fn issued(&self) -> Lsn {
        let under_way = self.ships.under_way.back().map(|(_, last)| *last);
        match self.is_live() {
            true => under_way.unwrap_or_default().max(self.holds.lsn),
            false => Lsn(0),
        }
    }

    /// Whether it is live and holds everything up to `lsn`.
    pub(super) fn has(&self, lsn: Lsn) -> bool {
        self.is_live() && self.holds.lsn >= lsn
    }

    /// Whether the copy is known to be partial: damaged, begun anew, put back, being filled or refilled. Nobody
    /// promotes it.
    pub(super) fn is_partial(&self) -> bool {
        self.refill.is_wanted
            || self.refill.asked_under == Some(self.attempt)
            || !matches!(self.standing, Standing::Whole | Standing::Ordinary)
    }

    /// Nothing that it has counts: it begins to catch up, or its history is another one.
    pub(super) fn holds_nothing(&mut self) {
        self.holds = Holds::default();
    }

    /// The copy of server `id`, as it is told where writes were appended up to `last`.
    pub(super) const fn view(&self, id: ServerId, last: Lsn) -> MemberView {
        MemberView {
            id,
            part: self.part,
            state: match self.phase {
                Phase::Down => "down",
                Phase::Prepared => "prepared",
                Phase::Reported(_) => "reported",
                Phase::Syncing => "syncing",
                Phase::Live => "live",
                Phase::Failed => "failed",
                Phase::Damaged => "damaged",
            },
            held: self.holds.lsn,
            applied: self.holds.edit,
            lag: last.0.saturating_sub(self.holds.lsn.0),
        }
    }
}
