//! The redo log in front of a plan: nothing is done to the map that is not written down before.
//!
//! 1. What another master has left is taken up, and what the map says has come to pass is taken note of.
//! 2. Each step of the plan is a deed of an open job; where there is none, one is begun. Steps for which the log has no
//!    room wait; those that give a region a primary come first.
//! 3. If the log has changed, it is written, and nothing else. Only behind that the map is set, and in the same
//!    transaction the log says how far the jobs are then. So between the two transactions there may be a job whose
//!    deed was not done, and never a deed without its job.
//! 4. One change writes a few [shards](argosy_coordinator::map_write) of the map: what is for others waits for the next
//!    one, which follows at once. So the transactions do not grow with the number of regions.
//! 5. Both transactions are made under the session that holds the election, and compare its key, the log, and the map.
//!
//! A master that dies between the two leaves open jobs. The next one has its planner do what they say
//! ([`Orders`]), and drops what has no cause any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::{RegionId, ServerId};
use argosy_coordinator::{
    ClusterMap, Deed, DeedStanding, JobKind, JobLog, Region, SessionId, ShardPlace,
};

use crate::cluster::Cluster;
use crate::settings::MapBounds;
use crate::steps::{GroupStep, MasterPlan};

/// What open jobs have to do in a region, and have not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Another server is to lead it.
    pub promote: bool,
    /// It is to open with what is left.
    pub recover: bool,
    /// Members that are to leave.
    pub remove: Vec<ServerId>,
    /// Servers that are to be filled.
    pub fill: Vec<ServerId>,
}

impl Orders {
    /// Those of `log` for `region`.
    #[must_use]
    pub fn of(log: &JobLog, region: &Region) -> Self {
        let mut orders = Self::default();
        for deed in log.deeds(region) {
            let is_planned = deed.standing == DeedStanding::Planned;
            match deed.kind {
                JobKind::Recover => orders.recover = true,
                JobKind::Promote => orders.promote |= is_planned,
                JobKind::Remove if is_planned => orders.remove.push(deed.server),
                JobKind::Fill if is_planned => orders.fill.push(deed.server),
                JobKind::Remove | JobKind::Fill => {}
            }
        }
        orders
    }
}

/// What a round comes to: what is written first, and what is done behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    /// The log as it has to be before anything is done; `None` where it is that already.
    pub note: Option<JobLog>,
    /// What is done then.
    pub act: Option<Act>,
}

/// A change of the map, and of the log with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The next map.
    pub map: Arc<ClusterMap>,
    /// The log behind it.
    pub log: JobLog,
    /// What happens.
    pub steps: Vec<GroupStep>,
}

impl Errand {
    /// What the master of session `me` does about `plan`, which was made from `cluster`, within `bounds`.
    #[must_use]
    pub fn of(cluster: &Cluster, plan: MasterPlan, bounds: MapBounds, me: SessionId) -> Self {
        let mut log = cluster.jobs.clone();
        log.take_over(me);
        for moot in &plan.moot {
            log.drop_deed(moot.deed, moot.state, moot.remark);
        }
        log.settle(&cluster.map);
        let act = plan.map.and_then(|map| {
            let mut steps = covered(&mut log, &cluster.map, plan.steps, me);
            fit(&mut steps, cluster, bounds);
            let map = only(&cluster.map, map, &steps)?;
            let mut behind = log.clone();
            for step in &steps {
                deeds(step, &cluster.map).for_each(|deed| behind.act(deed));
            }
            behind.settle(&map);
            let log = behind;
            Some(Act { map, log, steps })
        });
        let note = (log != cluster.jobs).then_some(log);
        Self { note, act }
    }
}

/// The deeds that `step` consists of, by the map that it was planned for.
fn deeds<'a>(step: &'a GroupStep, map: &ClusterMap) -> impl Iterator<Item = Deed> + 'a {
    let (region, changes) = match step {
        GroupStep::Raise { region, .. } | GroupStep::Promote { region, .. } => (*region, None),
        GroupStep::Regroup { region, change } => (*region, Some(change)),
    };
    let lost = map.region(region).filter(|_| changes.is_none());
    let lost = lost.map(|region| region.primary);
    let removed = changes.into_iter().flat_map(|change| &change.remove);
    let came = changes
        .into_iter()
        .flat_map(|change| change.add.iter().chain(&change.fill));
    let of = move |kind| {
        move |server: ServerId| Deed {
            kind,
            server,
            region,
        }
    };
    let lost = lost.into_iter().map(of(JobKind::Promote));
    let removed = removed.copied().map(of(JobKind::Remove));
    lost.chain(removed)
        .chain(came.copied().map(of(JobKind::Fill)))
}

/// Has jobs do `steps`. Returns those for which there is one.
fn covered(
    log: &mut JobLog,
    map: &ClusterMap,
    mut steps: Vec<GroupStep>,
    me: SessionId,
) -> Vec<GroupStep> {
    steps.sort_by_key(|step| matches!(step, GroupStep::Regroup { .. }));
    steps.retain(|step| {
        deeds(step, map).all(|deed| {
            let epoch = map.region(deed.region).map(|region| region.epoch);
            log.covers(deed, map) || epoch.is_some_and(|epoch| log.cover(deed, epoch, me).is_ok())
        })
    });
    steps
}

/// Leaves of `steps` those for as many shards as one change may write; at least one.
fn fit(steps: &mut Vec<GroupStep>, cluster: &Cluster, bounds: MapBounds) {
    let places: Vec<&ShardPlace> = cluster.shards.of_regions().collect();
    let (mut taken, mut bytes) = (BTreeSet::new(), 0);
    steps.retain(|step| {
        let region = cluster.map.place_of(step.region());
        // A map that is not cut is written as a whole.
        let Some(place) = region.and_then(|region| places.get(region)) else {
            return true;
        };
        if !taken.contains(&place.shard) && (taken.is_empty() || bytes < bounds.change_bytes) {
            taken.insert(place.shard);
            bytes += place.bytes;
        }
        taken.contains(&place.shard)
    });
}

/// `next` without what is not among `steps`; `None` where nothing is left.
fn only(map: &ClusterMap, next: Arc<ClusterMap>, steps: &[GroupStep]) -> Option<Arc<ClusterMap>> {
    let kept: BTreeSet<RegionId> = steps.iter().map(GroupStep::region).collect();
    let changed = map.regions().iter().zip(next.regions());
    let changed = changed.filter(|(old, new)| old != new);
    match changed.count() {
        _ if kept.is_empty() => None,
        count if count == kept.len() => Some(next),
        _ => {
            let regions = map.regions().iter().zip(next.regions());
            let regions = regions.map(|(old, new)| match kept.contains(&old.id) {
                true => new.clone(),
                false => old.clone(),
            });
            map.with_regions(regions.collect()).ok().map(Arc::new)
        }
    }
}

#[cfg(test)]
#[path = "redo_tests.rs"]
mod tests;
