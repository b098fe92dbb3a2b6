//! Devices that take their time: for whoever waits for a read or a sync, and for what is under way.
//!
//! - Where a *read* costs time, the clock of the whole run moves while somebody reads, and so does whoever else
//!   waits: what is read on a thread that others wait for shows in what they wait. Three servers share that clock, so
//!   deadlines are longer there, parts of long values are looked for less often, and devices are neither small nor do
//!   they fail: those read a lot.
//! - A *slow* device goes on in few of many moments, and is not asked to stop. Nothing is lost, and nobody may say
//!   that it has failed.

use std::time::Duration;

use crate::plan::{Episode, Event, Plan, SERVERS};
use crate::random::Random;

/// Of 100 seeds, in how many reads cost time.
const COSTLY_PERCENT: usize = 25;
/// Reads, at most, for which a request that nothing else hinders waits.
const READS_MAX: u32 = 10_000;
/// Reads of a step, at most.
const STEP_READS: u32 = 500;
/// So many reads go by, at least, from one look for parts of long values to the next: four steps of each server.
const SWEEP_READS: u32 = 12 * STEP_READS;
/// Of 100 seeds, how many have slow devices; of 100 of their episodes, how many have one.
const SEEDS_PERCENT: usize = 25;
const EPISODES_PERCENT: usize = 50;

/// The plan, with devices that take their time where the seed says so.
pub(crate) fn with_slow_devices(mut plan: Plan, random: &mut Random) -> Plan {
    let busy = plan.devices.small.is_some() || plan.devices.fails;
    if random.chance(COSTLY_PERCENT) && !busy {
        plan.devices.read_cost = random.micros(10, 200);
        plan.load.deadline = plan.load.deadline.max(READS_MAX * plan.devices.read_cost);
        plan.chores.sweep.every = plan
            .chores
            .sweep
            .every
            .max(SWEEP_READS * plan.devices.read_cost);
    }
    if random.chance(SEEDS_PERCENT) {
        for episode in &mut plan.episodes {
            if random.chance(EPISODES_PERCENT) {
                slow_down(episode, random);
            }
        }
    }
    plan
}

/// Has a device be slow in an episode for a while.
fn slow_down(episode: &mut Episode, random: &mut Random) {
    let (server, percent) = (random.below(SERVERS), random.pick(&[1, 3, 10]));
    let from: Duration = random.micros(0, 20_000);
    let until = from + random.micros(20_000, 600_000);
    episode.events.push((from, Event::Slow(server, percent)));
    episode.events.push((until, Event::Slow(server, 100)));
    episode.events.sort_by_key(|(at, _)| *at);
}
