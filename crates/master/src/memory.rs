//! What a planner remembers of a region: since when it waits for something. A planner that begins anew waits anew;
//! nothing here is needed to be right.
//!
//! A primary has *opened* a region when it has taken the views of a map in which it was promoted, and does not list the
//! region among those that it opens. That is known of one promotion and one incarnation, and then stays so.
//!
//! About 200 bytes a region: 800 KiB for 4096 of them.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::{Epoch, Incarnation, Instant, ServerId};
use argosy_coordinator::{EntryVersion, Region, RegionState};

use crate::cluster::Cluster;
use crate::health::Health;

/// A promotion, and the start of the promoted server under which it is to open the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tenure {
    since: Epoch,
    incarnation: Incarnation,
}

/// A primary that was chosen although others were in better health: they had no copy for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spared {
    epoch: Epoch,
    health: Health,
}

/// What is remembered of a region. See the module documentation.
#[derive(Clone, Debug)]
pub struct RegionMemory {
    epoch: Epoch,
    /// The version of the map in which this epoch was seen first, and when that was.
    version: EntryVersion,
    seen_at: Instant,
    /// Who is to open it, and since when.
    tenure: Option<Tenure>,
    tenure_from: Instant,
    opened: bool,
    /// Since when it has too few members.
    short_from: Option<Instant>,
    spared: Option<Spared>,
    /// Who was promoted and did not open in time.
    late: BTreeSet<ServerId>,
}

impl RegionMemory {
    /// Nothing is known of `region`, which is seen for the first time.
    #[must_use]
    pub fn new(region: &Region, version: EntryVersion, now: Instant) -> Self {
        Self {
            epoch: region.epoch,
            version,
            seen_at: now,
            tenure: None,
            tenure_from: now,
            opened: false,
            short_from: None,
            spared: None,
            late: BTreeSet::new(),
        }
    }

    /// Takes note of `region`, as it is in `cluster`.
    pub fn observe(
        &mut self,
        cluster: &Cluster,
        region: &Region,
        open_within: Duration,
        now: Instant,
    ) {
        if self.epoch != region.epoch {
            self.epoch = region.epoch;
            self.version = cluster.version;
            self.seen_at = now;
        }
        let live = cluster.servers.get(&region.primary);
        let tenure = live.map(|live| Tenure {
            since: region.since,
            incarnation: live.presence.incarnation,
        });
        if self.tenure != tenure {
            self.tenure = tenure;
            self.tenure_from = now;
            self.opened = false;
        }
        let opens = !cluster.has_failed(region.primary, region.id) && !cluster.refuses(region);
        if region.state != RegionState::Serving || tenure.is_none() || !opens {
            self.opened = false;
            self.tenure_from = now;
        } else if self.is_open(cluster, region) {
            self.opened = true;
            self.late.clear();
        } else if self.is_late(open_within, now) {
            self.late.insert(region.primary);
        }
    }

    fn is_open(&self, cluster: &Cluster, region: &Region) -> bool {
        let report = cluster.report(region.primary);
        report.is_some_and(|report| {
            self.version <= report.map && !report.opening.contains(&region.id)
        })
    }

    fn is_late(&self, open_within: Duration, now: Instant) -> bool {
        !self.opened && open_within <= now.since(self.tenure_from)
    }

    /// Whether its primary serves it.
    #[must_use]
    pub const fn has_opened(&self) -> bool {
        self.opened
    }

    /// Whether `server` has the view that the map has: what it reports is not older.
    #[must_use]
    pub fn has_view(&self, cluster: &Cluster, server: ServerId) -> bool {
        let report = cluster.report(server);
        report.is_some_and(|report| self.version <= report.map)
    }

    /// Until when its primary should have opened it, while it has not.
    #[must_use]
    pub fn opens_until(&self, open_within: Duration) -> Option<Instant> {
        let waits = self.tenure.is_some() && !self.opened;
        waits.then(|| self.tenure_from + open_within)
    }

    /// When it was seen first under this epoch.
    #[must_use]
    pub const fn seen_at(&self) -> Instant {
        self.seen_at
    }

    /// Whether `server` was promoted, and did not open it in time.
    #[must_use]
    pub fn was_late(&self, server: ServerId) -> bool {
        self.late.contains(&server)
    }

    /// Takes note whether it has too few members, and says since when it has.
    pub fn note_short(&mut self, is_short: bool, now: Instant) -> Option<Instant> {
        self.short_from = is_short.then(|| self.short_from.unwrap_or(now));
        self.short_from
    }

    /// Takes note that its primary of `epoch` is the best that there is, although it is in this `health`.
    pub const fn spare(&mut self, epoch: Epoch, health: Health) {
        self.spared = Some(Spared { epoch, health });
    }

    /// Whether its primary, in this `health`, was known to be no better when it was chosen.
    #[must_use]
    pub fn is_spared(&self, health: Health) -> bool {
        let spares = |spared: Spared| spared.epoch == self.epoch && health <= spared.health;
        self.spared.is_some_and(spares)
    }
}
