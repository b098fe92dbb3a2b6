//! A region's entry of the region map: its keys, who stores them, and why it is this server that serves them.
//!
//! The names are those of `docs/model/Group.tla`. What holds of the entry of a valid map:
//!
//! - `epoch` and `since` are at least 1, and `since` is not above `epoch`;
//! - `members` are distinct servers of the map, and the primary is one of them;
//! - `filling` are distinct servers of the map, and none is a member;
//! - `last` are distinct servers of the map, and there is one;
//! - there is a `claim` where somebody was promoted, which is where `since` is above 1, and it is of a copy that may be
//!   promoted: not of a partial one.

use std::collections::BTreeSet;
use std::fmt;

use argosy_base::{EditSeq, Epoch, KeyRange, Lsn, RegionId, ServerId};
use serde::{Deserialize, Serialize};

/// So many servers are compared with each other without being sorted.
const FEW: usize = 16;

/// A range of keys, and who stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name; not 0.
    pub id: RegionId,
    /// Its keys.
    pub range: KeyRange,
    /// The number of this configuration; at least 1.
    pub epoch: Epoch,
    /// Whether it has a primary that may serve it.
    pub state: RegionState,
    /// Who serves it, or was the last who might; one of `members`.
    pub primary: ServerId,
    /// All that store it, the primary too.
    pub members: Vec<ServerId>,
    /// Those who are to become members, and are being filled. Nobody waits for them.
    pub filling: Vec<ServerId>,
    /// The epoch of the last promotion.
    pub since: Epoch,
    /// The members before that promotion. They count again if the promoted server never opened the region.
    pub last: Vec<ServerId>,
    /// The report for which the primary was chosen; `None` for the first primary.
    pub claim: Option<PromotionClaim>,
}

/// Whether a region has a primary that may serve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionState {
    /// It has one.
    #[default]
    Serving,
    /// Nobody may serve it. Its members revoke all grants, and report what they have.
    Recovering,
}

/// What is certain of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyStatus {
    /// It holds all that its epoch acknowledged.
    Whole,
    /// Its windows are lost: it holds a prefix, up to its durable mark at least.
    Cut,
    /// Nothing: it was wiped, or replaced, or is being filled.
    Partial,
}

/// The report for which a primary was chosen. It opens the region only if its copy still is that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotionClaim {
    /// Whole or cut.
    pub status: CopyStatus,
    /// The epoch of its last cut.
    pub cut: Epoch,
    /// Its last edit.
    pub edit: EditSeq,
    /// The end of its logs.
    pub lsn: Lsn,
    /// Whether it was a member of the last epoch that served.
    pub member: bool,
}

impl Region {
    /// A region of a new cluster, which `primary` serves, one of `members`.
    #[must_use]
    pub fn first(id: RegionId, range: KeyRange, primary: ServerId, members: Vec<ServerId>) -> Self {
        Self {
            id,
            range,
            epoch: Epoch(1),
            state: RegionState::Serving,
            primary,
            filling: Vec::new(),
            since: Epoch(1),
            last: members.clone(),
            members,
            claim: None,
        }
    }

    /// The members without the primary.
    pub fn backups(&self) -> impl Iterator<Item = ServerId> + '_ {
        let primary = self.primary;
        self.members
            .iter()
            .copied()
            .filter(move |id| *id != primary)
    }

    /// Whether `server` stores it, or is being filled.
    #[must_use]
    pub fn has(&self, server: ServerId) -> bool {
        self.members.contains(&server) || self.filling.contains(&server)
    }

    /// Whether it fits a map whose servers are `known`.
    ///
    /// # Errors
    /// What rule of the module documentation it breaks.
    pub(crate) fn check(&self, known: impl Fn(ServerId) -> bool) -> Result<(), &'static str> {
        let are_distinct = |ids: &[ServerId]| match ids.len() <= FEW {
            true => (1..ids.len()).all(|nth| !ids[..nth].contains(&ids[nth])),
            false => ids.iter().collect::<BTreeSet<_>>().len() == ids.len(),
        };
        let are_known = |ids: &[ServerId]| ids.iter().all(|id| known(*id));
        let claimed = self.claim.map(|claim| claim.status);
        let rules = [
            (are_distinct(&self.members), "a server is a member twice"),
            (
                are_known(&self.members),
                "a member is no server of this cluster",
            ),
            (
                self.members.contains(&self.primary),
                "the primary is not a member",
            ),
            (self.epoch > Epoch(0), "epochs begin at 1"),
            (
                are_distinct(&self.filling),
                "a server is being filled twice",
            ),
            (
                are_known(&self.filling),
                "a copy is being filled that is on no server of this cluster",
            ),
            (
                !self.filling.iter().any(|id| self.members.contains(id)),
                "a member is being filled",
            ),
            (
                (Epoch(1)..=self.epoch).contains(&self.since),
                "the last promotion was in no epoch up to this one",
            ),
            (are_distinct(&self.last), "a server was a member twice"),
            (
                are_known(&self.last),
                "a former member is no server of this cluster",
            ),
            (
                !self.last.is_empty(),
                "before the last promotion there was no member",
            ),
            (
                claimed.is_some() == (self.since > Epoch(1)),
                "who was promoted has a claim, and nobody else",
            ),
            (
                claimed != Some(CopyStatus::Partial),
                "a partial copy was promoted",
            ),
        ];
        let broken = rules.into_iter().find(|(holds, _)| !holds);
        broken.map_or(Ok(()), |(_, what)| Err(what))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |ids: &[ServerId]| {
            let names: Vec<_> = ids.iter().map(|id| id.0.to_string()).collect();
            names.join(" ")
        };
        let (id, range, epoch) = (self.id, &self.range, self.epoch);
        let backups: Vec<_> = self.backups().collect();
        write!(f, "{id} {range} {epoch}: primary {}", self.primary.0)?;
        write!(f, ", backups {}", names(&backups))?;
        if !self.filling.is_empty() {
            write!(f, ", filling {}", names(&self.filling))?;
        }
        match self.state {
            RegionState::Serving => Ok(()),
            RegionState::Recovering => f.write_str(", recovering"),
        }
    }
}
