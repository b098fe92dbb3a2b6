//! Who is promoted: a pure function of a region's entry and of what its members report under its epoch. It is `Promote`
//! of the model.
//!
//! 1. The *voters* are the members of the last epoch that opened: the members, or, where the promoted server reports
//!    that it never opened the region, the members before that promotion. It never opened if the last cut of its copy
//!    is of an earlier epoch, and the copy is not partial.
//! 2. If voters have whole copies, any of them may be chosen: each holds all that was revealed. It is the one that is
//!    in best health, leads the fewest regions, and has the lowest id.
//! 3. Otherwise, and only when all voters have reported, the highest copy that is not partial is chosen, by (epoch of
//!    the last cut, edit, LSN). It may be one that was being filled, or a former member's.
//! 4. Members are the voters that reported a copy which is not partial, and who was chosen. Voters that reported a
//!    partial copy are filled.
//!
//! A partial copy is never promoted.
//!
//! By order of a person ([`PromotionRule::WHAT_IS_LEFT`]) 3. holds as soon as one member has reported, and there may be
//! fewer members than `min-copies`.

use std::collections::BTreeMap;

use argosy_base::{Epoch, ServerId};
use argosy_coordinator::{CopyReport, CopyStatus, PromotionClaim, Region, RegionState};

use crate::health::Health;
use crate::settings::Mutants;

/// What members report of their copies, all under the region's epoch.
pub type CopyReports = BTreeMap<ServerId, CopyReport>;

/// Which of several servers is preferred: the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Preference {
    /// How fit it is.
    pub health: Health,
    /// How many regions it leads.
    pub leads: usize,
    /// Its name.
    pub id: ServerId,
}

/// What is demanded of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotionRule {
    /// Fewest members.
    min_copies: usize,
    /// Where no voter is whole all of them have to have reported; otherwise one member.
    needs_all: bool,
}

impl PromotionRule {
    /// What a person may order: what the others had is given up.
    pub const WHAT_IS_LEFT: Self = Self {
        min_copies: 1,
        needs_all: false,
    };

    /// What holds without an order.
    #[must_use]
    pub const fn usual(min_copies: usize) -> Self {
        Self {
            min_copies,
            needs_all: true,
        }
    }

    /// Whether enough have reported, where no voter is whole.
    fn suffices(self, region: &Region, voters: &[ServerId], reports: &CopyReports) -> bool {
        let has_reported = |id: &ServerId| reports.contains_key(id);
        match self.needs_all {
            true => voters.iter().all(has_reported),
            false => region.members.iter().any(has_reported),
        }
    }
}

/// The members of the last epoch that opened, as far as the reports show.
#[must_use]
pub fn voters<'a>(region: &'a Region, reports: &CopyReports, mutants: Mutants) -> &'a [ServerId] {
    let never_opened = reports
        .get(&region.primary)
        .is_some_and(|copy| copy.cut < region.since && copy.status != CopyStatus::Partial);
    match never_opened && !mutants.drop_early() {
        true => &region.last,
        false => &region.members,
    }
}

/// The region's next entry, with a primary; `None` while nobody may be promoted.
#[must_use]
pub fn promote(
    region: &Region,
    reports: &CopyReports,
    rule: PromotionRule,
    preference: impl Fn(ServerId) -> Preference,
    mutants: Mutants,
) -> Option<Region> {
    let epoch = Epoch(region.epoch.0.checked_add(1)?);
    let voters = voters(region, reports, mutants);
    let suffices = rule.suffices(region, voters, reports);
    let chosen = choose(voters, reports, suffices, preference, mutants)?;
    let copy = reports.get(&chosen)?;
    let is_fit = |copy: &&CopyReport| copy.status != CopyStatus::Partial;
    let is_member = |id: &ServerId| *id == chosen || reports.get(id).filter(is_fit).is_some();
    let mut members: Vec<ServerId> = voters.iter().copied().filter(is_member).collect();
    if !members.contains(&chosen) {
        members.push(chosen);
    }
    if members.len() < rule.min_copies {
        return None;
    }
    let mut filling = region.filling.clone();
    filling.extend(voters.iter().filter(|id| reports.contains_key(id)));
    filling.sort_unstable();
    filling.dedup();
    filling.retain(|id| !members.contains(id));
    Some(Region {
        epoch,
        state: RegionState::Serving,
        primary: chosen,
        filling,
        since: epoch,
        last: voters.to_vec(),
        claim: Some(PromotionClaim {
            status: match copy.status {
                CopyStatus::Cut => CopyStatus::Cut,
                CopyStatus::Whole | CopyStatus::Partial => CopyStatus::Whole,
            },
            cut: copy.cut,
            edit: copy.edit,
            lsn: copy.lsn,
            member: voters.contains(&chosen),
        }),
        members,
        id: region.id,
        range: region.range.clone(),
    })
}

/// Who is promoted. See the module documentation.
fn choose(
    voters: &[ServerId],
    reports: &CopyReports,
    suffices: bool,
    preference: impl Fn(ServerId) -> Preference,
    mutants: Mutants,
) -> Option<ServerId> {
    let is_whole = |status| match status {
        CopyStatus::Whole => true,
        CopyStatus::Cut => false,
        CopyStatus::Partial => mutants.promote_partial(),
    };
    let has_whole = |id: &ServerId| reports.get(id).is_some_and(|copy| is_whole(copy.status));
    let wholes = voters.iter().copied().filter(has_whole);
    if let Some(best) = wholes.min_by_key(|id| preference(*id)) {
        return Some(best);
    }
    if !suffices && !mutants.open_without_all() {
        return None;
    }
    let height = |copy: &CopyReport| match mutants.lsn_over_epoch() {
        true => (Epoch(0), copy.lsn.0, 0),
        false => (copy.cut, copy.edit.0, copy.lsn.0),
    };
    let rest = reports
        .iter()
        .filter(|(_, copy)| copy.status != CopyStatus::Partial);
    let rank =
        |(id, copy): &(&ServerId, &CopyReport)| (height(copy), std::cmp::Reverse(preference(**id)));
    rest.max_by_key(rank).map(|(id, _)| *id)
}
