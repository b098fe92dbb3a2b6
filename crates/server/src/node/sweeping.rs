//! Removes parts of long values that no head names, in the regions that this server is the primary of.

use std::time::Duration;

use argosy_base::Instant;
use argosy_engine::long::SweepStats;
use argosy_engine::{EngineError, Reach, WriteBatch, WriteOptions, Written};

use super::Node;
use super::region::{Region, engine_of};
use super::serving::Serving;
use crate::activity::Activity;
use crate::service::KeyList;

impl Node {
    /// Looks at some parts if that is due. Returns how long there are no other ones to look at.
    pub(super) fn sweep_parts(&self, region: &Region, now: Instant) -> Option<Duration> {
        /// After which it is tried again where parts could not be read.
        const AFTER_ERROR: Duration = Duration::from_secs(10);
        let engine = engine_of(region)?;
        let _span = self.world.ledger.during(Activity::Other);
        let mut sweeper = region.sweeper();
        let before = sweeper.stats().swept;
        let store = &self.world.store;
        let mostly_used = u64::from(store.used()) * 4 >= u64::from(store.total()) * 3;
        let stepped = sweeper.step(&**engine, now, engine.is_full() || mostly_used);
        if sweeper.stats().swept > before {
            region.dirty().raise();
        }
        stepped.unwrap_or_else(|error| {
            tracing::warn!(region = region.id().0, "parts of long values: {error}");
            Some(AFTER_ERROR)
        })
    }

    /// Takes note of parts that are about to be read, so that they stay for the next ones.
    pub(super) fn note_reads(&self, region: &Region, keys: &KeyList) {
        // A reader asks for one after the other.
        if let Some(key) = keys.iter().next() {
            region.uses().reads(key, self.now());
        }
    }

    /// Writes a batch, and takes note of a part, or a head, that is in it.
    pub(super) fn write_noted(
        &self,
        region: &Region,
        engine: &Serving,
        (batch, options): (&WriteBatch, WriteOptions),
        reach: Reach,
    ) -> Result<Written, EngineError> {
        region.uses().writes(batch, self.now());
        let written = engine.write_within(batch, options, reach)?;
        region.uses().wrote(batch);
        Ok(written)
    }

    /// What sweeping has done, over all regions.
    #[must_use]
    pub fn sweep_stats(&self) -> SweepStats {
        let mut all = SweepStats::default();
        for region in self.regions.iter() {
            let stats = region.sweeper().stats();
            all.passes += stats.passes;
            all.swept += stats.swept;
            all.versions += stats.versions;
        }
        all
    }
}
