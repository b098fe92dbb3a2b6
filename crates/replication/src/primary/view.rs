//! What a primary tells of its members, for whoever watches a server.

use argosy_base::{EditSeq, Lsn, ServerId, Standing};

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
    /// The reported copies that were begun anew or have another history, and the own one (`None`) if it is such a copy.
    pub fn in_doubt(&self) -> impl Iterator<Item = (Option<ServerId>, Standing)> + '_ {
        let own = self.own_standing.map(|standing| (None, standing));
        let reported = self
            .members
            .iter()
            .filter_map(|(id, member)| match member.phase {
                Phase::Reported(report) => Some((Some(*id), report.standing)),
                _ => None,
            });
        let is_in_doubt = |standing| matches!(standing, Standing::BegunAnew | Standing::PutBack);
        own.into_iter()
            .chain(reported)
            .filter(move |(_, standing)| is_in_doubt(*standing))
    }

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
