//! Copies whose manifests cannot be read: what a cluster sets aside and fills anew, and when it must not.
//!
//! A server is killed, and when it is back, it can open none of its copies. Two things may happen beside:
//!
//! - *Nothing*: the other members are whole, and fill the copies anew without anybody's help.
//! - *The others lose power* at the same moment. What was acknowledged last may be in the copies that cannot be opened
//!   alone. Their regions have to stay closed until the end of the episode, when the damage is undone.

use crate::plan::{Event, Plan, SERVERS, WorldKind};
use crate::random::Random;

/// Of 100 seeds with backups, how many have such an episode.
const SEEDS_PERCENT: usize = 50;
/// Of 100 of them, in how many the others lose power.
const POWER_PERCENT: usize = 50;

/// The plan, with copies that cannot be opened where the seed says so.
pub(crate) fn with_spoilt_copies(mut plan: Plan, random: &mut Random) -> Plan {
    let others = plan.devices.small.is_some() || plan.devices.fails;
    if plan.kind != WorldKind::Replicated || others || !random.chance(SEEDS_PERCENT) {
        return plan;
    }
    let episode = random.below(plan.episodes.len());
    let episode = &mut plan.episodes[episode];
    episode.events.clear();
    let (server, at) = (random.below(SERVERS), random.micros(0, 60_000));
    let alone = !random.chance(POWER_PERCENT);
    episode.events.push((at, Event::Spoil(server, alone)));
    let mut back = at;
    let first = random.below(SERVERS);
    for server in 0..SERVERS {
        back += random.micros(0, 40_000);
        let server = (first + server) % SERVERS;
        episode.events.push((back, Event::Start(server, None)));
    }
    // Time in which regions open that should not.
    back += random.micros(50_000, 400_000);
    episode.events.push((back, Event::Resume(first)));
    plan
}
