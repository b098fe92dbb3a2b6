//! What a primary tells of its members, for whoever watches a server.

use argosy_base::{EditSeq, Lsn, ServerId};

use super::{Phase, Primary};

/// One backup, as its primary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Who.
    pub id: ServerId,
    /// `down`, `prepared`, `reported`, `syncing`, `live`, `failed` or `damaged`; see the module of the primary.
    pub state: &'static str,
    /// Its memory holds everything up to here.
    pub held: Lsn,
    /// The last edit that it said it has applied.
    pub applied: EditSeq,
}

impl Primary {
    /// All backups, by their names.
    pub fn members(&self) -> impl Iterator<Item = MemberView> + '_ {
        self.members.iter().map(|(id, member)| MemberView {
            id: *id,
            state: match member.phase {
                Phase::Down => "down",
                Phase::Prepared => "prepared",
                Phase::Reported(_) => "reported",
                Phase::Syncing => "syncing",
                Phase::Live => "live",
                Phase::Failed => "failed",
                Phase::Damaged => "damaged",
            },
            held: member.held,
            applied: member.applied,
        })
    }
}
