//! Pairs of servers that are both there, and do not hear each other: who gives way, and for how long.
//!
//! 1. Of a primary and a member that do not hear each other the member leaves the group: the primary asks for it. Two
//!    backups need not hear each other. Whom most of the others do not hear leads nothing, and is not filled
//!    ([`health`](crate::health)); of two halves, and of two servers alone, those with the higher ids.
//! 2. Who sees the others but not the coordinator has no session: what it led others lead. It stays a member where it
//!    is heard, since its copy is as good as before.
//! 3. A member that has left so is not filled before the two have heard each other for `rejoin-after`; for twice as
//!    long each further time, and for `rejoin-after-most` at most. So a pair that comes and goes costs three epochs a
//!    region (removed, filled, added) in so long a time, and fewer if it stays away.
//! 4. After it has been well for ten times as long, it is forgotten how often it happened. So is it when one of the
//!    two has started again, and when another master takes over.
//!
//! A member that leaves because it is too slow for its primary is there, too. It is held apart from it in the same way.
//!
//! Regions that the two share at one time count once. There is one entry for each pair at most.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use argosy_base::{Incarnation, Instant, ServerId};

use crate::cluster::Cluster;
use crate::settings::PlanSettings;

/// A pair is forgotten after so many times as long as it is held.
const FORGOTTEN_AFTER: u32 = 10;

/// Two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerPair {
    low: ServerId,
    high: ServerId,
}

impl ServerPair {
    /// These two, in whatever order.
    #[must_use]
    pub fn of(one: ServerId, other: ServerId) -> Self {
        Self {
            low: one.min(other),
            high: one.max(other),
        }
    }

    /// The one that is not `server`; `None` where neither is.
    #[must_use]
    pub fn other(self, server: ServerId) -> Option<ServerId> {
        match server {
            of if of == self.low => Some(self.high),
            of if of == self.high => Some(self.low),
            _ => None,
        }
    }

    /// The starts of both; `None` while one is not there.
    fn starts(self, cluster: &Cluster) -> Option<[Incarnation; 2]> {
        let start = |id| Some(cluster.servers.get(&id)?.presence.incarnation);
        Some([start(self.low)?, start(self.high)?])
    }
}

/// What is remembered of a pair.
#[derive(Clone, Copy, Debug)]
struct Parting {
    starts: [Incarnation; 2],
    /// How often it was.
    times: u32,
    /// When the two were known not to hear each other last.
    last: Instant,
}

impl Parting {
    /// For how long the two are kept apart.
    fn hold(&self, settings: &PlanSettings) -> Duration {
        let factor = 1_u32
            .checked_shl(self.times.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let hold = settings.rejoin_after.saturating_mul(factor.max(1));
        hold.min(settings.rejoin_after_most)
    }
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Apart(BTreeMap<ServerPair, Parting>);

impl Apart {
    /// Nothing is known of any pair.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether nothing is remembered of any pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes note of who says that it does not reach whom.
    pub fn observe(&mut self, cluster: &Cluster, settings: &PlanSettings, now: Instant) {
        self.0.retain(|pair, parting| {
            let starts = pair.starts(cluster);
            if starts.is_none() || cluster.are_apart(pair.low, pair.high) {
                parting.last = now;
            }
            let long = parting.hold(settings).saturating_mul(FORGOTTEN_AFTER);
            starts.is_none_or(|starts| starts == parting.starts) && now.since(parting.last) < long
        });
    }

    /// These pairs have parted: one has left the other's groups.
    pub fn part(
        &mut self,
        cluster: &Cluster,
        pairs: BTreeSet<ServerPair>,
        settings: &PlanSettings,
        now: Instant,
    ) {
        for pair in pairs {
            let Some(starts) = pair.starts(cluster) else {
                continue;
            };
            let parting = self.0.entry(pair).or_insert(Parting {
                starts,
                times: 0,
                last: now,
            });
            // While they are held, further regions are of the same parting.
            if parting.times == 0 || parting.last + parting.hold(settings) <= now {
                parting.times = parting.times.saturating_add(1);
            }
            parting.last = now;
        }
    }

    /// Who is kept apart, and until when, if all is well from now on.
    #[must_use]
    pub fn held(&self, settings: &PlanSettings, now: Instant) -> BTreeMap<ServerPair, Instant> {
        let pairs = self.0.iter();
        let pairs = pairs.map(|(pair, parting)| (*pair, parting.last + parting.hold(settings)));
        pairs.filter(|(_, until)| now < *until).collect()
    }
}

#[cfg(test)]
#[path = "apart_tests.rs"]
mod tests;
