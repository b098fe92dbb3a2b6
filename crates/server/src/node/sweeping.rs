//! Removes parts of long values that no head names, in the regions that this server is the primary of.

use std::time::Duration;

use argosy_base::Instant;

use super::World;
use super::region::{Region, engine_of};
use crate::activity::Activity;

/// Looks at some parts if that is due. Returns how long there are no other ones to look at.
pub(super) fn step(region: &Region, now: Instant, world: &World) -> Option<Duration> {
    /// After which it is tried again where parts could not be read.
    const AFTER_ERROR: Duration = Duration::from_secs(10);
    let engine = engine_of(region)?;
    let _span = world.ledger.during(Activity::Other);
    let mut sweeper = region.sweeper();
    let before = sweeper.stats().swept;
    let store = &world.store;
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
