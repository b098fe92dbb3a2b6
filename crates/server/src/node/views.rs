//! Who stores and who serves each region, as this server has heard last.
//!
//! A [`View`] is a value: it is replaced as a whole while the server runs, by one of a higher epoch, and never
//! changed. What regions there are, and which keys they have, stays as it was when the server was started.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use argosy_base::{Epoch, Position, RegionId, ServerId, Standing};
use argosy_coordinator::{
    ClusterMap, CopyStatus, PromotionClaim, Region as MapRegion, RegionState,
};

/// Who stores and who serves a region, under an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The number of this configuration of the region.
    pub(crate) epoch: Epoch,
    /// The epoch in which the primary was chosen.
    pub(crate) since: Epoch,
    /// Who serves it; one of the members. While a primary is looked for, the one before.
    pub(crate) primary: ServerId,
    /// Whether the primary serves it. Otherwise it was lost, and another one is looked for.
    pub(crate) is_led: bool,
    members: Vec<ServerId>,
    /// Who is given a copy, and is no member yet.
    filling: Vec<ServerId>,
    /// The members before the primary was chosen.
    last: Vec<ServerId>,
    /// The report for which the primary was chosen; `None` for the first one of a region.
    pub(crate) claim: Option<PromotionClaim>,
}

impl View {
    /// That of `region`.
    pub(crate) fn of(region: &MapRegion) -> Self {
        Self {
            epoch: region.epoch,
            since: region.since,
            primary: region.primary,
            is_led: region.state == RegionState::Serving,
            members: region.members.clone(),
            filling: region.filling.clone(),
            last: region.last.clone(),
            claim: region.claim,
        }
    }

    /// What `server` has to do for the region.
    pub(crate) fn part_of(&self, server: ServerId) -> Part {
        let is_asked = !self.is_led && self.last.contains(&server);
        match self.has_member(server) || self.filling.contains(&server) || is_asked {
            _ if self.is_led && self.primary == server => Part::Primary,
            true => Part::Backup,
            false => Part::Nothing,
        }
    }

    /// Whether `server` is one of the members.
    pub(crate) fn has_member(&self, server: ServerId) -> bool {
        self.members.contains(&server)
    }

    /// Whether `server` takes part: it is a member, or becomes one.
    pub(crate) fn concerns(&self, server: ServerId) -> bool {
        self.part_of(server) != Part::Nothing
    }

    /// All that store it, the primary too.
    pub(crate) fn members(&self) -> &[ServerId] {
        &self.members
    }

    /// The members but the primary.
    pub(crate) fn backups(&self) -> impl Iterator<Item = ServerId> + '_ {
        let members = self.members.iter().copied();
        members.filter(|member| *member != self.primary)
    }

    /// Who is given a copy, and is no member yet.
    pub(crate) fn filling(&self) -> &[ServerId] {
        &self.filling
    }

    /// Whether a copy that stands like that is the one for which the primary was chosen. One that has opened the region
    /// since then is.
    pub(crate) fn claim_holds(&self, standing: Standing, at: &Position) -> bool {
        let Some(claim) = self.claim else {
            return true;
        };
        if at.edit.cut_epoch() >= self.since {
            return true;
        }
        let is_whole = standing == Standing::Whole;
        match claim.status {
            CopyStatus::Whole if claim.member => is_whole,
            CopyStatus::Whole => is_whole && (at.edit, at.lsn) == (claim.edit, claim.lsn),
            CopyStatus::Cut => (at.edit, at.lsn) == (claim.edit, claim.lsn),
            CopyStatus::Partial => false,
        }
    }

    /// Whether a copy that stands there is the cut one for which the primary was chosen, and has not opened the region
    /// since.
    pub(crate) fn is_claimed(&self, at: &Position) -> bool {
        self.claim.is_some_and(|claim| {
            let is_there = (at.edit, at.lsn) == (claim.edit, claim.lsn);
            claim.status == CopyStatus::Cut && is_there
        })
    }

    /// Whether one of `one` and `other` is the primary, and the other one has a copy that follows it.
    pub(crate) fn connects(&self, one: ServerId, other: ServerId) -> bool {
        let leads = |primary, other| self.primary == primary && self.concerns(other);
        self.is_led && (leads(one, other) || leads(other, one))
    }

    /// Whether `next` follows with the primary of this one, chosen as before: it goes on where it is.
    pub(crate) fn goes_on_in(&self, next: &Self) -> bool {
        self.is_led && next.is_led && (self.primary, self.since) == (next.primary, next.since)
    }
}

/// What a server has to do for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// To serve it.
    Primary,
    /// To follow its primary, or to wait for one.
    Backup,
    /// Nothing: it is no member.
    Nothing,
}

/// Why the views were not replaced. They are as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// It differs in what stays the same while a server runs.
    #[error("the region map has {what}; servers learn of that when they are started again")]
    Fixed {
        /// In what.
        what: &'static str,
    },
    /// It is older than what is known, or contradicts it.
    #[error("the region map has {region} at {found}, but {known} is known, and is another one")]
    Stale {
        /// The region.
        region: RegionId,
        /// What the map has.
        found: Epoch,
        /// What is known.
        known: Epoch,
    },
}

/// The views of all regions of the cluster.
pub(crate) struct Views {
    map: ArcSwap<ClusterMap>,
}

impl Views {
    /// Those of `map`.
    pub(crate) fn new(map: ClusterMap) -> Self {
        Self {
            map: ArcSwap::from_pointee(map),
        }
    }

    /// The region map as it is now.
    pub(crate) fn map(&self) -> Guard<Arc<ClusterMap>> {
        self.map.load()
    }

    /// The same, to be kept.
    pub(crate) fn to_map(&self) -> Arc<ClusterMap> {
        self.map.load_full()
    }

    /// Replaces all views by those of `map`. Called by one thread at a time.
    pub(crate) fn replace(&self, map: Arc<ClusterMap>) -> Result<(), ViewError> {
        check(&self.map.load(), &map)?;
        self.map.store(map);
        Ok(())
    }
}

/// Whether `next` may follow `known`.
fn check(known: &ClusterMap, next: &ClusterMap) -> Result<(), ViewError> {
    let fixed = |is_same: bool, what| match is_same {
        true => Ok(()),
        false => Err(ViewError::Fixed { what }),
    };
    fixed(known.cluster() == next.cluster(), "another cluster's name")?;
    let ways = |map: &ClusterMap| (map.replication(), map.addresses(), map.durability());
    fixed(ways(known) == ways(next), "another way to replicate")?;
    fixed(known.servers() == next.servers(), "other servers")?;
    let (old, new) = (known.regions().iter(), next.regions().iter());
    let are_same = old.len() == new.len()
        && old
            .zip(new)
            .all(|(old, new)| (old.id, &old.range) == (new.id, &new.range));
    fixed(are_same, "other regions or ranges of keys")?;
    for (known, next) in known.regions().iter().zip(next.regions()) {
        if next.epoch < known.epoch || next.epoch == known.epoch && next != known {
            return Err(ViewError::Stale {
                region: next.id,
                found: next.epoch,
                known: known.epoch,
            });
        }
    }
    Ok(())
}
