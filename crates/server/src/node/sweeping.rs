//! Removes parts of long values that no head names, in the regions that this server is the primary of.

use std::time::Duration;

use argosy_base::Instant;
use argosy_engine::long::SweepStats;

use super::Node;
use super::region::{Region, engine_of};
use crate::activity::Activity;

impl Node {
    /// Looks at some parts if that is due. Returns how long there are no other ones to look at.
    pub(super) fn sweep_parts(&self, region: &Region, now: Instant) -> Option<Duration> {
        /// After which it is tried again where parts could not be read.
        const AFTER_ERROR: Duration = Duration::from_secs(10);
        let engine = engine_of(region)?;
        let _span = self.world.ledger.during(Activity::Other);
        let mut sweeper = region.sweeper();
        let before = sweeper.stats().swept;
        let stepped = sweeper.step(&*engine, now);
        if sweeper.stats().swept > before {
            region.mark_dirty();
        }
        stepped.unwrap_or_else(|error| {
            tracing::warn!(region = region.id.0, "parts of long values: {error}");
            Some(AFTER_ERROR)
        })
    }

    /// What sweeping has done, over all regions.
    #[must_use]
    pub fn sweep_stats(&self) -> SweepStats {
        let mut all = SweepStats::default();
        for region in self.regions.values() {
            let stats = region.sweeper().stats();
            all.passes += stats.passes;
            all.swept += stats.swept;
            all.versions += stats.versions;
        }
        all
    }
}
