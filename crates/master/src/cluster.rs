//! What a master has read: the region map at one version, the redo log at one, who is there, and what they report.
//!
//! The parts are read one after the other, so they may be of different moments. That does no harm: a change compares
//! the versions of map and log; a report counts under one epoch; and whoever was chosen for a report opens only if it
//! still is
//! true.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Epoch, RegionId, ServerId};
use argosy_coordinator::{
    ClusterMap, CopyReport, EntryVersion, JobLog, MapShards, Presence, Region, ServerReport,
    StoredMap, Wish,
};

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The region map.
    pub map: Arc<ClusterMap>,
    /// Its version, on which a change is based.
    pub version: EntryVersion,
    /// How it is cut into shards.
    pub shards: MapShards,
    /// The redo log.
    pub jobs: JobLog,
    /// Its version.
    pub jobs_version: EntryVersion,
    /// The servers that have a session.
    pub servers: BTreeMap<ServerId, LiveServer>,
}

/// A server that has a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveServer {
    /// What it says of itself.
    pub presence: Presence,
    /// What it has said last, if it has said anything.
    pub report: Option<ServerReport>,
}

impl Cluster {
    /// The region map as it lies in the coordinator.
    #[must_use]
    pub fn stored(&self) -> StoredMap {
        StoredMap {
            version: self.version,
            map: Arc::clone(&self.map),
            shards: self.shards.clone(),
        }
    }

    /// The report of `server` in its present incarnation.
    #[must_use]
    pub fn report(&self, server: ServerId) -> Option<&ServerReport> {
        #[cfg(test)]
        looks::count();
        let live = self.servers.get(&server)?;
        let report = live.report.as_ref()?;
        (report.incarnation == live.presence.incarnation).then_some(report)
    }

    /// Whether the store of `region` has failed on `server`.
    #[must_use]
    pub fn has_failed(&self, server: ServerId, region: RegionId) -> bool {
        let report = self.report(server);
        report.is_some_and(|report| report.failed.contains(&region))
    }

    /// What `server` reports of its copy of `region`, under that epoch.
    #[must_use]
    pub fn copy(&self, server: ServerId, region: &Region) -> Option<CopyReport> {
        let copy = self.report(server)?.copies.get(&region.id)?;
        (copy.epoch == region.epoch && !self.has_failed(server, region.id)).then_some(*copy)
    }

    /// Whether `server` has a copy of `region`, whatever it is worth.
    #[must_use]
    pub fn stores(&self, server: ServerId, region: RegionId) -> bool {
        let report = self.report(server);
        report.is_some_and(|report| report.copies.contains_key(&region))
            && !self.has_failed(server, region)
    }

    /// What the primary of `region` asks for, under that epoch.
    #[must_use]
    pub fn wish(&self, region: &Region) -> Option<&Wish> {
        let wish = self.report(region.primary)?.wishes.get(&region.id)?;
        (wish.epoch == region.epoch).then_some(wish)
    }

    /// Whether the primary of `region` says that it does not open it, under that epoch.
    #[must_use]
    pub fn refuses(&self, region: &Region) -> bool {
        let refused = |report: &ServerReport| report.refused.get(&region.id).copied();
        let epoch: Option<Epoch> = self.report(region.primary).and_then(refused);
        epoch == Some(region.epoch)
    }

    /// Whether `leaver` has heard of `other` since it has said that it leaves.
    #[must_use]
    pub fn has_heard(&self, leaver: ServerId, other: ServerId) -> bool {
        let live = self.servers.get(&leaver);
        live.is_some_and(|live| live.presence.heard.contains(&other))
    }

    /// Whether one of the two says that it does not reach the other.
    #[must_use]
    pub fn are_apart(&self, a: ServerId, b: ServerId) -> bool {
        let misses = |from: ServerId, to: ServerId| {
            let live = self.servers.get(&from);
            live.is_some_and(|live| live.presence.unreachable.contains(&to))
        };
        misses(a, b) || misses(b, a)
    }
}

/// How often reports were looked at by this thread, which says how much work a plan is.
#[cfg(test)]
pub(crate) mod looks {
    use std::cell::Cell;

    std::thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        LOOKS.set(LOOKS.get() + 1);
    }

    /// How often since this was called last.
    pub(crate) fn take() -> u64 {
        LOOKS.take()
    }
}
