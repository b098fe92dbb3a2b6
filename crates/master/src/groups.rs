//! Members that go and come: what becomes of a region that is served.
//!
//! 1. What the primary asks for under the region's epoch is done: it removes members that it cannot reach, while more
//!    than `min-copies` are left; it adds copies of which it knows that they hold all that is committed; it names
//!    servers to fill. Each is a step of the model. In one change they are one epoch: nobody could have taken a view
//!    between them.
//! 2. A member that says that it is about to stop is removed while the primary serves, does not stop, too, and was
//!    heard of by that member since then. A primary that was lost at that moment would leave a group without a whole
//!    copy.
//! 3. Where members and copies that are being filled are fewer than the map's `copies`, servers are filled, once the
//!    primary serves the region under its present epoch. First and at once those that have a copy already, since they
//!    take only the difference: they were members, and have returned. Then *spares*, which have none: those that store
//!    the fewest regions. They are filled at once where no server is [missing](is_missing), which may return with a
//!    copy, and otherwise after `replace-after`. A server that has been away for so long is missing no more.
//!
//! A copy that is being filled on a server that is lost does not count, and stays in the map: it counts again when the
//! server returns.

use std::collections::BTreeMap;

use argosy_base::{Epoch, ServerId};
use argosy_coordinator::Region;

use crate::cluster::Cluster;
use crate::settings::Mutants;

/// Changes to one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChange {
    /// Who is no member any more.
    pub remove: Vec<ServerId>,
    /// Who has become one.
    pub add: Vec<ServerId>,
    /// Who is being filled.
    pub fill: Vec<ServerId>,
}

impl GroupChange {
    /// What the primary of `region` asks for and may have. `is_well` says who may be filled.
    #[must_use]
    pub fn asked(
        cluster: &Cluster,
        region: &Region,
        min_copies: usize,
        is_well: impl Fn(ServerId) -> bool,
        mutants: Mutants,
    ) -> Self {
        let mut change = Self::default();
        if mutants.count_early() {
            change.add.clone_from(&region.filling);
        }
        let Some(wish) = cluster.wish(region) else {
            return change;
        };
        let room = region.members.len().saturating_sub(min_copies);
        let may_go = |id: &ServerId| *id != region.primary && region.members.contains(id);
        let may_fill = |id: &ServerId| !region.has(*id) && is_well(*id);
        change.remove = distinct(wish.remove.iter().copied().filter(may_go));
        // Where not all may go, those go first that are lost.
        change.remove.sort_by_key(|id| is_well(*id));
        change.remove.truncate(room);
        let may_come = |id: &ServerId| region.filling.contains(id);
        let add = wish.add.iter().copied().filter(may_come);
        change.add = distinct(add.chain(change.add));
        change.fill = distinct(wish.fill.iter().copied().filter(may_fill));
        change
    }

    /// Members that are `leaving` go, too, as long as `min_copies` are left: their primary need not miss them first.
    pub fn let_go(
        &mut self,
        region: &Region,
        min_copies: usize,
        leaving: impl Fn(ServerId) -> bool,
    ) {
        let room = region.members.len().saturating_sub(min_copies);
        let is_new = |id: &ServerId| *id != region.primary && !self.remove.contains(id);
        let members = region.members.iter().copied();
        let leaving: Vec<_> = members.filter(|id| is_new(id) && leaving(*id)).collect();
        self.remove.extend(leaving);
        self.remove.truncate(room);
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty() && self.fill.is_empty()
    }

    /// The region's next entry; `None` when its epochs are exhausted.
    #[must_use]
    pub fn apply(&self, region: &Region) -> Option<Region> {
        let mut next = region.clone();
        next.epoch = Epoch(region.epoch.0.checked_add(1)?);
        next.members.retain(|id| !self.remove.contains(id));
        next.members.extend(&self.add);
        next.filling.retain(|id| !self.add.contains(id));
        next.filling.extend(&self.fill);
        next.filling.sort_unstable();
        Some(next)
    }
}

/// How many regions each server stores, or is to store.
#[derive(Clone, Debug, Default)]
pub struct RegionCounts(BTreeMap<ServerId, usize>);

impl RegionCounts {
    /// As `cluster` has it.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        let mut stored = Self::default();
        for region in cluster.map.regions() {
            for id in region.members.iter().chain(&region.filling) {
                stored.count(*id);
            }
        }
        stored
    }

    /// One region more is on `server`.
    pub fn count(&mut self, server: ServerId) {
        *self.0.entry(server).or_default() += 1;
    }

    /// How many are on `server`.
    #[must_use]
    pub fn on(&self, server: ServerId) -> usize {
        self.0.get(&server).copied().unwrap_or_default()
    }
}

/// How many servers are lacking in the group of `region`, not counting those of whom `is_well` does not hold.
#[must_use]
pub fn lacking(cluster: &Cluster, region: &Region, is_well: impl Fn(ServerId) -> bool) -> usize {
    let copies = usize::try_from(cluster.map.copies()).unwrap_or(usize::MAX);
    let filling = region.filling.iter().filter(|id| is_well(**id)).count();
    copies.saturating_sub(region.members.len() + filling)
}

/// A change to a group: what it was, and what it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Regrouped<'a> {
    /// The region's entry as it is.
    pub before: &'a Region,
    /// The next one, as far as it is known.
    pub after: &'a Region,
}

/// Whether `server` may come to the group with a copy, but cannot be had now: it has just left the group; it is being
/// filled, and is not well; it has a copy, and is not well; or what it stores is not known, since it does not report,
/// or what it reports is not known to be `current`.
#[must_use]
pub fn is_missing(
    cluster: &Cluster,
    group: Regrouped<'_>,
    server: ServerId,
    is_well: impl Fn(ServerId) -> bool,
    current: impl Fn(ServerId) -> bool,
) -> bool {
    let Regrouped { before, after } = group;
    if after.members.contains(&server) {
        return false;
    }
    if after.filling.contains(&server) {
        return !is_well(server);
    }
    if before.has(server) || !current(server) || cluster.has_failed(server, before.id) {
        return true;
    }
    cluster.stores(server, before.id) && !is_well(server)
}

/// Servers that may be filled, best first.
#[derive(Clone, Debug)]
pub struct Fillable {
    /// Those that have a copy, and then those that store the fewest regions; as many as are lacking.
    servers: Vec<ServerId>,
    /// How many of them have a copy.
    returning: usize,
}

impl Fillable {
    /// Those for `region`. `is_free` says who may be filled at all.
    #[must_use]
    pub fn of(
        cluster: &Cluster,
        region: &Region,
        stored: &RegionCounts,
        is_free: impl Fn(ServerId) -> bool,
    ) -> Self {
        let lacks = lacking(cluster, region, &is_free);
        let all = cluster.servers.keys().copied();
        let is_known = |id: &ServerId| cluster.map.server(*id).is_some();
        let free = all.filter(|id| !region.has(*id) && is_known(id) && is_free(*id));
        let mut servers: Vec<_> = free.collect();
        let returns = |id: ServerId| cluster.stores(id, region.id);
        servers.sort_by_cached_key(|id| (!returns(*id), stored.on(*id), *id));
        servers.truncate(lacks);
        Self {
            returning: servers.iter().filter(|id| returns(**id)).count(),
            servers,
        }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[ServerId] {
        &self.servers
    }

    /// Those that have a copy.
    #[must_use]
    pub fn returning(&self) -> &[ServerId] {
        &self.servers[..self.returning]
    }
}

fn distinct(ids: impl Iterator<Item = ServerId>) -> Vec<ServerId> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
