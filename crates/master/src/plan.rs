//! The plan: what was read goes in, the next region map comes out. Pure: the caller's clock is a parameter.
//!
//! A step looks at each region once, and lets it go one step at most:
//!
//! - A region that is served is *raised* when its primary refuses to open it, or when another member is in better
//!   [health](crate::health): the primary is lost, has stopped, is about to, has lost its store, or does not open the
//!   region in time. Where nobody is in better health, to wait is as good. Otherwise its [group](crate::groups) may
//!   change.
//! - A region that is recovering gets a primary by [`promotion`](crate::promotion). For that it waits until all members
//!   that are there have reported, but no longer than `report-within`: who has not reported by then is left out. First
//!   only those count that are well; then those, too, that are about to stop; then those that others cannot reach.
//!
//! What [jobs](crate::redo) of an earlier master have planned and not begun is done, too, if its cause still is
//! there: the
//! primary is lost, and one need not wait until that is certain; or the group still lacks the server that was to be
//! filled. If the cause is gone, it is *moot*. What a person has cancelled is not done under this epoch.
//!
//! By order of a person a region opens with what is left: the highest copy that is reported, although not all voters
//! have, and however few members remain. One member has to have reported: it grants no lease to the primary before, so
//! that one does not serve any more.
//!
//! All steps together are one new map: all regions of a server that fails, and all regions that can be decided at one
//! time. The [errand](crate::redo) cuts it to what one transaction may have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{Epoch, Instant, RegionId, ServerId};
use argosy_coordinator::{CopyStatus, Deed, JobKind, JobState, Region, RegionState};

use crate::apart::{Apart, ServerPair};
use crate::cluster::Cluster;
use crate::groups::{Fillable, GroupChange, RegionCounts, Regrouped, is_missing, lacking};
use crate::health::{Health, suspected};
use crate::memory::RegionMemory;
use crate::promotion::{CopyReports, Preference, PromotionRule, promote, voters};
use crate::redo::Orders;

use crate::settings::{MapBounds, Mutants, PlanSettings};
use crate::steps::{GroupStep, MasterPlan, Moot, RaiseReason};

/// See the module documentation.
#[derive(Debug)]
pub struct Planner {
    settings: PlanSettings,
    mutants: Mutants,
    began: Instant,
    /// Servers that were there at some time.
    seen: BTreeSet<ServerId>,
    /// Servers that say that they leave, and since when.
    leaving: BTreeMap<ServerId, Instant>,
    /// Servers of the map that are not there, and since when.
    absent: BTreeMap<ServerId, Instant>,
    apart: Apart,
    regions: BTreeMap<RegionId, RegionMemory>,
}

impl Planner {
    /// A planner that knows nothing, and begins now.
    #[must_use]
    pub const fn new(settings: PlanSettings, mutants: Mutants, now: Instant) -> Self {
        Self {
            settings,
            mutants,
            began: now,
            seen: BTreeSet::new(),
            leaving: BTreeMap::new(),
            absent: BTreeMap::new(),
            apart: Apart::new(),
            regions: BTreeMap::new(),
        }
    }

    /// How the map is cut, and how much of it one change may write.
    #[must_use]
    pub const fn bounds(&self) -> MapBounds {
        self.settings.map
    }

    /// These servers are there: when they are not any more, they are lost.
    pub fn see(&mut self, servers: impl IntoIterator<Item = ServerId>) {
        self.seen.extend(servers);
    }

    fn note_leaving(&mut self, cluster: &Cluster, now: Instant) {
        let servers = cluster.servers.iter();
        let leaving = servers.filter(|(_, live)| live.presence.leaving);
        let leaving: BTreeSet<ServerId> = leaving.map(|(id, _)| *id).collect();
        self.leaving.retain(|id, _| leaving.contains(id));
        for id in leaving {
            self.leaving.entry(id).or_insert(now);
        }
    }

    fn note_absent(&mut self, cluster: &Cluster, now: Instant) {
        let is_there = |id: &ServerId| cluster.servers.contains_key(id);
        let map = &cluster.map;
        let is_absent = |id: &ServerId| !is_there(id) && map.server(*id).is_some();
        self.absent.retain(|id, _| is_absent(id));
        let all = map.servers().iter().map(|server| server.id);
        for id in all.filter(is_absent) {
            self.absent.entry(id).or_insert(now);
        }
    }

    /// What is to be done in `cluster`.
    ///
    /// # Panics
    /// Never: the steps of a region keep its entry valid.
    pub fn step(&mut self, cluster: &Cluster, now: Instant) -> MasterPlan {
        self.seen.extend(cluster.servers.keys());
        self.note_leaving(cluster, now);
        self.note_absent(cluster, now);
        self.apart.observe(cluster, &self.settings, now);
        let map = &cluster.map;
        self.seen.retain(|id| map.server(*id).is_some());
        self.regions.retain(|id, _| map.region(*id).is_some());
        let mut pass = Pass::new(self, cluster, now);
        let (mut changed, mut opened) = (Vec::new(), 0);
        for (place, region) in map.regions().iter().enumerate() {
            let memory = self.regions.entry(region.id);
            let memory = memory.or_insert_with(|| RegionMemory::new(region, cluster.version, now));
            memory.observe(cluster, region, self.settings.open_within, now);
            let step = match region.state {
                RegionState::Serving => pass.serving(region, memory),
                RegionState::Recovering => pass.recovering(region, memory),
            };
            changed.extend(step.map(|next| (place, next)));
            opened += usize::from(memory.has_opened());
        }
        let Pass {
            mut plan, pairs, ..
        } = pass;
        plan.is_at_rest = opened == map.regions().len()
            && plan.steps.is_empty()
            && plan.moot.is_empty()
            && plan.again.is_none()
            && !plan.is_under_way
            && self.apart.is_empty();
        if !self.mutants.rejoin_at_once() {
            self.apart.part(cluster, pairs.parted, &self.settings, now);
        }
        if !plan.steps.is_empty() {
            let mut next = map.regions().to_vec();
            for (place, region) in changed {
                next[place] = region;
            }
            let next = map.with_regions(next);
            plan.map = Some(Arc::new(next.expect("a step keeps an entry valid")));
        }
        plan
    }
}

/// Who may be filled.
struct Candidates {
    fillable: Fillable,
    /// Until when servers are missing that may return with a copy, if nothing changes; `None` where none is.
    missing: Option<Instant>,
}

/// Servers of which it is not known yet whether they are lost, and until when.
struct Awaited {
    servers: BTreeSet<ServerId>,
    until: Instant,
}

/// Pairs of servers that are there, and do not hear each other.
struct Pairs {
    /// Until when one is not filled by the other.
    held: BTreeMap<ServerPair, Instant>,
    /// Primaries, and who leaves their groups now.
    parted: BTreeSet<ServerPair>,
}

/// One pass over all regions.
struct Pass<'a> {
    cluster: &'a Cluster,
    settings: PlanSettings,
    mutants: Mutants,
    now: Instant,
    awaited: Awaited,
    suspected: BTreeSet<ServerId>,
    /// Servers that have said for long enough that they leave.
    leaving: BTreeSet<ServerId>,
    /// Servers that are not there, and until when they may return with what they store.
    absent: BTreeMap<ServerId, Instant>,
    pairs: Pairs,
    /// How many regions each server leads.
    leads: BTreeMap<ServerId, usize>,
    stored: RegionCounts,
    plan: MasterPlan,
}

impl<'a> Pass<'a> {
    fn new(planner: &Planner, cluster: &'a Cluster, now: Instant) -> Self {
        let awaited_until = planner.began + planner.settings.absent_after;
        let is_awaited = |id: &ServerId| !planner.seen.contains(id) && now < awaited_until;
        let all = cluster.map.servers().iter().map(|server| server.id);
        let mut leads = BTreeMap::new();
        for region in cluster.map.regions() {
            if region.state == RegionState::Serving {
                *leads.entry(region.primary).or_default() += 1;
            }
        }
        let mut pass = Self {
            cluster,
            settings: planner.settings,
            mutants: planner.mutants,
            now,
            awaited: Awaited {
                servers: all.filter(is_awaited).collect(),
                until: awaited_until,
            },
            suspected: suspected(&cluster.servers),
            leaving: BTreeSet::new(),
            absent: BTreeMap::new(),
            pairs: Pairs {
                held: planner.apart.held(&planner.settings, now),
                parted: BTreeSet::new(),
            },
            leads,
            stored: RegionCounts::of(cluster),
            plan: MasterPlan::default(),
        };
        pass.plan.is_under_way = !planner.leaving.is_empty();
        for (id, since) in &planner.leaving {
            let from = *since + planner.settings.leave_after;
            match from <= now {
                true => drop(pass.leaving.insert(*id)),
                false => pass.wake_at(from),
            }
        }
        let absent = planner.absent.iter();
        pass.absent = absent
            .map(|(id, since)| (*id, *since + planner.settings.replace_after))
            .collect();
        pass
    }

    fn health(&self, server: ServerId, region: &Region, memory: &RegionMemory) -> Health {
        match self.cluster.servers.get(&server) {
            None => Health::Absent,
            Some(_) if self.cluster.has_failed(server, region.id) => Health::Failed,
            Some(_) if self.suspected.contains(&server) => Health::Suspected,
            Some(_) if self.leaving.contains(&server) => Health::Leaving,
            Some(_) if memory.was_late(server) => Health::Late,
            Some(_) => Health::Well,
        }
    }

    /// There may be more to do at `at`.
    fn wake_at(&mut self, at: Instant) {
        if self.now < at {
            let again = self.plan.again.unwrap_or(at);
            self.plan.again = Some(again.min(at));
        }
    }

    /// What a job had to do about `server` in `region` comes to nothing.
    fn moot(&mut self, kind: JobKind, server: ServerId, region: &Region, remark: &'static str) {
        self.plan.moot.push(Moot {
            deed: Deed {
                kind,
                server,
                region: region.id,
            },
            state: match kind {
                JobKind::Recover => JobState::Failed,
                _ => JobState::Cancelled,
            },
            remark,
        });
    }

    fn is_held(&self, kind: JobKind, server: ServerId, region: &Region) -> bool {
        self.cluster.jobs.is_held(kind, server, region)
    }

    /// Whether `server` may be filled: nobody has cancelled it, and its primary has heard it for long enough.
    fn may_fill(&self, server: ServerId, region: &Region) -> bool {
        let pair = ServerPair::of(region.primary, server);
        !self.pairs.held.contains_key(&pair) && !self.is_held(JobKind::Fill, server, region)
    }

    /// Takes note of members that leave the group although they are there: their primary does not hear them.
    fn note_parted(&mut self, region: &Region, memory: &RegionMemory, change: &GroupChange) {
        for server in &change.remove {
            if self.health(*server, region, memory) <= Health::Late {
                self.pairs
                    .parted
                    .insert(ServerPair::of(region.primary, *server));
            }
        }
        let until = self.pairs.held.iter().filter_map(|(pair, until)| {
            let other = pair.other(region.primary)?;
            (!region.has(other)).then_some(*until)
        });
        let until: Option<Instant> = until.min();
        until.into_iter().for_each(|until| self.wake_at(until));
    }

    fn serving(&mut self, region: &Region, memory: &mut RegionMemory) -> Option<Region> {
        let orders = Orders::of(&self.cluster.jobs, region);
        if let Some(reason) = self.reason_to_raise(region, memory, &orders)
            && !self.is_held(JobKind::Promote, region.primary, region)
            && let Some(epoch) = region.epoch.0.checked_add(1)
        {
            let (id, primary) = (region.id, region.primary);
            self.plan.steps.push(GroupStep::Raise {
                region: id,
                primary,
                reason,
            });
            if let Some(leads) = self.leads.get_mut(&primary) {
                *leads = leads.saturating_sub(1);
            }
            return Some(Region {
                epoch: Epoch(epoch),
                state: RegionState::Recovering,
                ..region.clone()
            });
        }
        if let Some(until) = memory.opens_until(self.settings.open_within) {
            self.wake_at(until);
        }
        self.regroup(region, memory, &orders)
    }

    fn reason_to_raise(
        &mut self,
        region: &Region,
        memory: &RegionMemory,
        orders: &Orders,
    ) -> Option<RaiseReason> {
        let primary = region.primary;
        if self.cluster.refuses(region) {
            return Some(RaiseReason::Refused);
        }
        let health = self.health(primary, region, memory);
        let is_ordered = orders.promote || orders.recover;
        if self.awaited.servers.contains(&primary) && !is_ordered {
            self.wake_at(self.awaited.until);
            return None;
        }
        if health == Health::Well && memory.has_opened() {
            for (kind, has) in [
                (JobKind::Promote, orders.promote),
                (JobKind::Recover, orders.recover),
            ] {
                if has {
                    self.moot(kind, primary, region, "the primary serves the region");
                }
            }
        }
        if health == Health::Well || memory.is_spared(health) {
            return None;
        }
        // Who was left out by a promotion that came to nothing may be whole; only the primary's report tells.
        let former: &[ServerId] = match !memory.has_opened() && health < Health::Absent {
            true => &region.last,
            false => &[],
        };
        let better = health.min(Health::Failed);
        let mut heirs = region.members.iter().chain(former);
        let is_better = |id: &ServerId| *id != primary && self.health(*id, region, memory) < better;
        heirs.any(is_better).then_some(RaiseReason::Unfit(health))
    }

    /// What becomes of a group whose primary stays.
    fn regroup(
        &mut self,
        region: &Region,
        memory: &mut RegionMemory,
        orders: &Orders,
    ) -> Option<Region> {
        let is_well = |id: ServerId| {
            self.health(id, region, memory) <= Health::Late
                && !self.cluster.are_apart(region.primary, id)
        };
        let min_copies = self.settings.min_copies;
        let mut change =
            GroupChange::asked(self.cluster, region, min_copies, is_well, self.mutants);
        let is_served = memory.has_opened() && memory.has_view(self.cluster, region.primary);
        let leaves = |id: ServerId| self.health(id, region, memory) == Health::Leaving;
        if is_served && !leaves(region.primary) {
            let hears = |id: ServerId| self.cluster.has_heard(id, region.primary);
            change.let_go(region, min_copies, |id| leaves(id) && hears(id));
        }
        change
            .remove
            .retain(|id| !self.is_held(JobKind::Remove, *id, region));
        change.fill.retain(|id| self.may_fill(*id, region));
        let mut after = change.apply(region)?;
        let is_short = 0 < lacking(self.cluster, region, is_well);
        if is_served {
            let may_fill =
                |id: &ServerId| is_well(*id) && !after.has(*id) && self.may_fill(*id, region);
            let ordered = orders.fill.iter().copied().filter(may_fill);
            let ordered = ordered.take(lacking(self.cluster, &after, is_well));
            change.fill.extend(ordered.collect::<Vec<_>>());
            after = change.apply(region)?;
        }
        let lacks = is_served && 0 < lacking(self.cluster, &after, is_well);
        let group = Regrouped {
            before: region,
            after: &after,
        };
        let candidates = lacks.then(|| self.candidates(group, memory, is_well));
        let from = memory.note_short(is_short, self.now);
        let mut until = from.map(|from| from + self.settings.replace_after);
        if let Some(Candidates { fillable, missing }) = candidates {
            let is_due = until.is_some_and(|until| until <= self.now);
            change.fill.extend(match missing.is_none() || is_due {
                true => fillable.all(),
                false => fillable.returning(),
            });
            until = until.map(|until| missing.map_or(until, |missing| until.min(missing)));
        }
        until.into_iter().for_each(|until| self.wake_at(until));
        if is_served {
            self.note_moot(region, orders, &change);
        }
        self.note_parted(region, memory, &change);
        if change.is_empty() {
            return None;
        }
        let next = change.apply(region)?;
        change.fill.iter().for_each(|id| self.stored.count(*id));
        let region = region.id;
        self.plan.steps.push(GroupStep::Regroup { region, change });
        Some(next)
    }

    /// What was ordered for a group whose primary serves it, and is not among what is done, has no cause any more.
    fn note_moot(&mut self, region: &Region, orders: &Orders, change: &GroupChange) {
        for (kind, ordered, done) in [
            (JobKind::Remove, &orders.remove, &change.remove),
            (JobKind::Fill, &orders.fill, &change.fill),
        ] {
            for server in ordered.iter().filter(|id| !done.contains(id)) {
                self.moot(kind, *server, region, "the cause is gone");
            }
        }
    }

    /// Who may be filled in a group that lacks members.
    fn candidates(
        &self,
        group: Regrouped<'_>,
        memory: &RegionMemory,
        is_well: impl Fn(ServerId) -> bool,
    ) -> Candidates {
        let Self {
            cluster, stored, ..
        } = self;
        let has_left = |id| group.before.has(id) && !group.after.has(id);
        let may_fill = |id| is_well(id) && self.may_fill(id, group.before);
        let is_free = |id| may_fill(id) && !has_left(id);
        let all = cluster.map.servers().iter().map(|server| server.id);
        let has_view = |id| memory.has_view(cluster, id);
        let missing = all.filter(|id| is_missing(cluster, group, *id, may_fill, has_view));
        // What a server that is there waits for, the planner does not know.
        let until = |id: ServerId| self.absent.get(&id).copied().unwrap_or(Instant::MAX);
        Candidates {
            fillable: Fillable::of(cluster, group.after, stored, is_free),
            missing: missing.map(until).filter(|until| self.now < *until).max(),
        }
    }

    fn recovering(&mut self, region: &Region, memory: &mut RegionMemory) -> Option<Region> {
        let until = memory.seen_at() + self.settings.report_within;
        self.plan.is_under_way |= self.now < until;
        for level in [Health::Late, Health::Leaving, Health::Suspected] {
            let reports = self.reports(region, memory, level);
            let rule = PromotionRule::usual(self.settings.min_copies);
            let next = self.promoted(region, memory, &reports, rule);
            let is_whole = next
                .as_ref()
                .and_then(|next| next.claim)
                .is_some_and(|claim| claim.member && claim.status == CopyStatus::Whole);
            let voters = voters(region, &reports, self.mutants);
            // Where no voter is whole, others may have the highest copy.
            let rest = region.filling.iter().chain(&region.last);
            let rest = rest.filter(|_| !is_whole);
            let is_missing = |id: &ServerId| {
                let comes =
                    self.awaited.servers.contains(id) || self.health(*id, region, memory) <= level;
                comes && !reports.contains_key(id)
            };
            let mut expected = region.members.iter().chain(voters).chain(rest);
            if self.now < until && expected.any(is_missing) {
                self.wake_at(until);
                return None;
            }
            if let Some(next) = next {
                self.note_promotion(region, &next, memory);
                return Some(next);
            }
        }
        match Orders::of(&self.cluster.jobs, region).recover {
            true => self.recovered(region, memory),
            false => None,
        }
    }

    /// A person has ordered that `region` opens with what is left, and whoever is there has had time to report.
    fn recovered(&mut self, region: &Region, memory: &mut RegionMemory) -> Option<Region> {
        let until = memory.seen_at() + self.settings.report_within;
        if self.now < until {
            self.wake_at(until);
            return None;
        }
        let reports = self.reports(region, memory, Health::Suspected);
        let rule = PromotionRule::WHAT_IS_LEFT;
        let next = self.promoted(region, memory, &reports, rule);
        match &next {
            Some(next) => self.note_promotion(region, next, memory),
            None => self.moot(
                JobKind::Recover,
                region.primary,
                region,
                "no member has reported a copy that can open",
            ),
        }
        next
    }

    /// What servers that are at least as well as `level` report of `region`.
    fn reports(&self, region: &Region, memory: &RegionMemory, level: Health) -> CopyReports {
        let all = region
            .members
            .iter()
            .chain(&region.filling)
            .chain(&region.last);
        let is_well = |id: &&ServerId| self.health(**id, region, memory) <= level;
        let report = |id: &ServerId| Some((*id, self.cluster.copy(*id, region)?));
        all.filter(is_well).filter_map(report).collect()
    }

    fn promoted(
        &self,
        region: &Region,
        memory: &RegionMemory,
        reports: &CopyReports,
        rule: PromotionRule,
    ) -> Option<Region> {
        let preference = |id: ServerId| Preference {
            health: self.health(id, region, memory),
            leads: self.leads.get(&id).copied().unwrap_or_default(),
            id,
        };
        promote(region, reports, rule, preference, self.mutants)
    }

    fn note_promotion(&mut self, region: &Region, next: &Region, memory: &mut RegionMemory) {
        let (primary, health) = (next.primary, self.health(next.primary, region, memory));
        if health > Health::Well {
            memory.spare(next.epoch, health);
        }
        *self.leads.entry(primary).or_default() += 1;
        if let Some(claim) = next.claim {
            self.plan.steps.push(GroupStep::Promote {
                region: region.id,
                primary,
                claim,
            });
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "many_tests.rs"]
mod many;

#[cfg(test)]
#[path = "wide_tests.rs"]
mod wide;

#[cfg(test)]
#[path = "world_tests.rs"]
mod world;
