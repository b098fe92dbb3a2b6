//! Reads every copy of a region now and then, so that what nobody asks for is known to be whole, or not.

use std::time::Duration;

use argosy_base::{Instant, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_engine::damage::Damage;
use argosy_engine::scrub::Pace;

use super::context::Context;
use super::region::{Region, copy_of};
use crate::activity::{Activity, Ledger};
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

/// Reads the next segment of this copy if it is due. Returns how long there is no other one to read.
pub(super) fn step(region: &Region, now: Instant, ledger: &Ledger) -> Option<Duration> {
    let left = region.scrubber().idle(now)?;
    if !left.is_zero() {
        return Some(left);
    }
    let copy = copy_of(region)?;
    let _span = ledger.during(Activity::Other);
    let (found, idle) = region.scrubber().step(&*copy, now);
    for damage in &found {
        tracing::error!(region = region.id().0, "{}", advice(region, damage));
    }
    idle
}

/// What was found, and what can be done about it.
fn advice(region: &Region, damage: &Damage) -> String {
    let next = match region.view().members().len() {
        1 => {
            "no other server has a copy: stop the server, and make a new device of what is whole with \
             `argosy inspect repair`"
        }
        _ => {
            "it is fetched from another member, unless that has none like it; where it stays damaged, stop this \
             server, remove its device, and start it with --new-device: it fetches everything"
        }
    };
    format!("scrubbing found damage: {damage}; {next}")
}

/// What scrubbing has done, over all regions.
pub(super) fn status(context: &Context<'_>) -> ScrubStatus {
    let counts = context.telling.counters().counts();
    let device_care = context.device_care;
    let mut status = ScrubStatus {
        period_seconds: context.settings.scrub.period.as_secs_f64(),
        repaired_segments_total: counts.repaired_segments,
        refilled_copies_total: counts.refilled_copies,
        set_aside_regions: device_care
            .set_aside_regions()
            .iter()
            .map(|region| region.0)
            .collect(),
        set_aside_segments: device_care.set_aside_segments() as u64,
        ..ScrubStatus::default()
    };
    for region in context.regions.iter() {
        let copy = copy_of(region);
        let scrubber = region.scrubber();
        let stats = scrubber.stats();
        status.bytes_total += stats.bytes;
        status.segments_total += stats.segments;
        status.passes_total += stats.passes;
        let Some(copy) = copy else {
            continue;
        };
        status.damaged_segments += copy.damage_stats().damaged;
        let found = scrubber.damages_in(&*copy);
        status.damages.extend(found.map(ToString::to_string));
    }
    status
}
