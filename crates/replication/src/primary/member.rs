//! What a primary knows of one backup, and tells of it to whoever watches a server.

use alloc::collections::VecDeque;

use argosy_base::{EditSeq, FlushRange, Lsn, Position, ServerId, Standing};

use super::resting::Rest;

/// How far a backup is on its way to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Down,
    Prepared,
    Reported(Report),
    Syncing,
    Live,
    /// Its copy has failed.
    Failed,
    /// Its copy has failed for damage, and can be refilled.
    Damaged,
}

/// What a member has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) position: Position,
    pub(super) standing: Standing,
}

/// What the primary knows of one backup.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    pub(super) phase: Phase,
    pub(super) attempt: u64,
    /// Its memory holds everything up to here, by what it caught up with and was sent since. Counts while it is live.
    pub(super) held: Lsn,
    pub(super) ships: Ships,
    /// Flushes that wait for a ship to complete: the ship's number and the range.
    pub(super) flushes: VecDeque<(u64, FlushRange)>,
    pub(super) rest: Rest,
    /// The last edit that it has applied under this primary.
    pub(super) applied: EditSeq,
    /// Its copy of the log ends in front of what the primary's windows hold.
    pub(super) lacks_log: bool,
    /// It was told under this attempt that its copy is whole.
    pub(super) told_whole: bool,
    pub(super) refill: Refill,
    /// How often the link to it broke while its copy was being adopted: what was asked for may be damaged there.
    pub(super) failures: u32,
}

/// The ships of records to one backup.
#[derive(Clone, Debug, Default)]
pub(super) struct Ships {
    /// Number and highest LSN. Invariant: both rise.
    pub(super) under_way: VecDeque<(u64, Lsn)>,
    /// The last that was begun.
    pub(super) begun: u64,
    /// The last that is complete.
    pub(super) complete: u64,
}

/// Whether a backup's copy is begun anew.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refill {
    /// It has to be: it was damaged, or has another history.
    pub(super) is_wanted: bool,
    /// The attempt under which the backup was asked to do that.
    pub(super) asked_under: Option<u64>,
}

/// One backup, as its primary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Who.
    pub id: ServerId,
    /// `down`, `prepared`, `reported`, `syncing`, `live`, `failed` or `damaged`; see the module of the primary.
    pub state: &'static str,
    /// Its memory holds everything up to here; when it was last live, if it is not.
    pub held: Lsn,
    /// The last edit that it has applied under this primary.
    pub applied: EditSeq,
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
    /// Nothing that it has counts: it begins to catch up, or its history is another one.
    pub(super) const fn holds_nothing(&mut self) {
        (self.held, self.applied) = (Lsn(0), EditSeq(0));
    }

    /// Backup `id`, as it is told.
    pub(super) const fn view(&self, id: ServerId) -> MemberView {
        MemberView {
            id,
            state: match self.phase {
                Phase::Down => "down",
                Phase::Prepared => "prepared",
                Phase::Reported(_) => "reported",
                Phase::Syncing => "syncing",
                Phase::Live => "live",
                Phase::Failed => "failed",
                Phase::Damaged => "damaged",
            },
            held: self.held,
            applied: self.applied,
        }
    }
}
