//! A job of the redo log: its parts, and how far the map is with what it has to do.
//!
//! [`standing`] is a pure function of a decision and of what the map has: nobody has to be asked how far a job came.

use std::collections::BTreeMap;
use std::fmt;

use argosy_base::{Epoch, RegionId, ServerId};

use crate::contract::SessionId;
use crate::region::{Region, RegionState};

/// Longest remark of a job, in bytes. What is longer is cut.
pub const REMARK_BYTES_MAX: usize = 200;

/// Names a job. Never used twice in a cluster: the transaction that writes a job takes its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

/// What a job is for. DO NOT CHANGE THE VALUES: they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum JobKind {
    /// Another server serves what this one served.
    Promote = 1,
    /// The server leaves groups.
    Remove = 2,
    /// The server is filled, and becomes a member.
    Fill = 3,
    /// A person has ordered that the region opens with the highest copy that is left. The server is its primary.
    Recover = 4,
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Promote, Self::Remove, Self::Fill, Self::Recover];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Remove => "remove",
            Self::Fill => "fill",
            Self::Recover => "recover",
        }
    }
}

/// How far a job is. DO NOT CHANGE THE VALUES: they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum JobState {
    /// Nothing was done yet.
    Planned = 1,
    /// Something was, and there is more to do.
    Acting = 2,
    /// It has come to pass.
    Done = 3,
    /// It cannot be done.
    Failed = 4,
    /// It is not wanted any more.
    Cancelled = 5,
}

impl JobState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Planned,
        Self::Acting,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Acting => "acting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether there is more to do.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Planned | Self::Acting)
    }
}

/// How far a job is with one of its regions. DO NOT CHANGE THE VALUES: they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RegionStage {
    /// There is something to do.
    Open = 1,
    /// It has come to pass.
    Done = 2,
    /// The group has changed otherwise, or the cause is gone.
    Dropped = 3,
}

impl RegionStage {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Open, Self::Done, Self::Dropped];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Dropped => "dropped",
        }
    }
}

/// A region of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRegion {
    /// The region's epoch when it was decided.
    pub epoch: Epoch,
    /// How far the job is with it.
    pub stage: RegionStage,
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedoJob {
    /// Its name.
    pub id: JobId,
    /// What it is for.
    pub kind: JobKind,
    /// How far it is.
    pub state: JobState,
    /// The server that it is about.
    pub server: ServerId,
    /// The session of the master that carries it out; `None` before one does.
    pub actor: Option<SessionId>,
    /// How many masters have taken it up, one after the other, or again after a retry.
    pub attempts: u32,
    /// Its regions.
    pub regions: BTreeMap<RegionId, JobRegion>,
    /// Why it ended as it did, or what was wrong last.
    pub remark: String,
}

impl RedoJob {
    /// Ends or begins it, with a remark, which is cut where it is too long.
    pub fn turn(&mut self, state: JobState, remark: &str) {
        let mut end = remark.len().min(REMARK_BYTES_MAX);
        while !remark.is_char_boundary(end) {
            end -= 1;
        }
        self.state = state;
        remark[..end].clone_into(&mut self.remark);
    }

    /// Its regions in that stage.
    pub fn regions_in(&self, stage: RegionStage) -> impl Iterator<Item = RegionId> + '_ {
        let regions = self.regions.iter();
        let regions = regions.filter(move |(_, region)| region.stage == stage);
        regions.map(|(id, _)| *id)
    }
}

/// One thing to do: a job's, for one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deed {
    /// What.
    pub kind: JobKind,
    /// About whom.
    pub server: ServerId,
    /// In which region.
    pub region: RegionId,
}

/// How far the map is with a deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeedStanding {
    /// Nothing was done, and the region's epoch is that of the decision.
    Planned,
    /// It was begun.
    Begun,
    /// It has come to pass.
    Done,
    /// It was not begun, and the group is another one.
    Overtaken,
}

/// How far the map is with what was decided under `epoch` about `server`, where `region` is what the map has.
#[must_use]
pub fn standing(
    kind: JobKind,
    server: ServerId,
    epoch: Epoch,
    region: Option<&Region>,
) -> DeedStanding {
    let Some(region) = region else {
        return DeedStanding::Overtaken;
    };
    let otherwise = match region.epoch == epoch {
        true => DeedStanding::Planned,
        false => DeedStanding::Overtaken,
    };
    let is_member = region.members.contains(&server);
    match kind {
        JobKind::Promote | JobKind::Recover if epoch < region.since => DeedStanding::Done,
        JobKind::Promote | JobKind::Recover if region.state == RegionState::Recovering => {
            DeedStanding::Begun
        }
        // What is ordered is ordered for any epoch of that primary.
        JobKind::Recover => DeedStanding::Planned,
        JobKind::Promote => otherwise,
        JobKind::Remove if !is_member => DeedStanding::Done,
        JobKind::Fill if is_member => DeedStanding::Done,
        JobKind::Fill if region.filling.contains(&server) => DeedStanding::Begun,
        JobKind::Remove | JobKind::Fill => otherwise,
    }
}
