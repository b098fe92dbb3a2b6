//! Reads every copy of a region now and then, so that what nobody asks for is known to be whole, or not.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_lsm::Version;
use argosy_lsm::scrub::{Damage, Pace};

use super::Node;
use super::region::{Driver, Region, engine_of};
use crate::activity::Activity;
use crate::report::status::ScrubStatus;

/// The pace of each region of server `id`, so that all together keep to `pace`.
pub(super) fn pace_of_each(pace: Pace, map: &ClusterMap, id: ServerId) -> Pace {
    let regions = map.regions().iter();
    let mine = regions.filter(|region| region.members.contains(&id));
    let count = u64::try_from(mine.count()).unwrap_or(u64::MAX);
    Pace {
        bytes_per_second_max: (pace.bytes_per_second_max / count.max(1)).max(1),
        ..pace
    }
}

impl Node {
    /// Reads the next segment of this copy if it is due. Returns how long there is no other one to read.
    pub(super) fn scrub(&self, region: &Region, now: Instant) -> Option<Duration> {
        let left = region.scrubber().idle(now)?;
        if !left.is_zero() {
            return Some(left);
        }
        let version = version_of(region)?;
        let _span = self.world.ledger.during(Activity::Other);
        let mut scrubber = region.scrubber();
        let (found, idle) = scrubber.step(&version, &self.settings.engine, now);
        drop(scrubber);
        for damage in &found {
            tracing::error!(region = region.id.0, "{}", self.advice(region, damage));
        }
        idle
    }

    /// What was found, and what can be done about it.
    fn advice(&self, region: &Region, damage: &Damage) -> String {
        let members = self.map.region(region.id).map_or(1, |of| of.members.len());
        let next = match members {
            1 => {
                "no other server has a copy: stop the server, and make a new device of what is whole with \
                 `argosy inspect repair`"
            }
            _ => {
                "other members have copies: stop this server, remove its device and its shared memory, and \
                 start it again: it fetches everything from them"
            }
        };
        format!("scrubbing found damage: {damage}; {next}")
    }

    /// What scrubbing has done, over all regions.
    #[must_use]
    pub fn scrub_status(&self) -> ScrubStatus {
        let mut status = ScrubStatus {
            period_seconds: self.settings.scrub.period.as_secs_f64(),
            ..ScrubStatus::default()
        };
        for region in self.regions.values() {
            let scrubber = region.scrubber();
            let stats = scrubber.stats();
            status.bytes_total += stats.bytes;
            status.segments_total += stats.segments;
            status.passes_total += stats.passes;
            let damages = scrubber.damages().iter();
            status
                .damages
                .extend(damages.map(|damage| damage.to_string()));
        }
        status
    }
}

/// What this copy consists of now.
fn version_of(region: &Region) -> Option<Arc<Version>> {
    if let Some(engine) = engine_of(region) {
        return Some(engine.version());
    }
    match &*region.driver() {
        Driver::Backup(copy) => Some(Arc::clone(copy.replica().version())),
        Driver::Primary(_) | Driver::AtDevice(_) | Driver::Failed(_) => None,
    }
}
