//! One member that is left alone: the devices of all others are lost for good in one moment.
//!
//! While every region is whole, each member has all that was acknowledged: in its windows, or on its device. So
//! one that is left alone holds all of it, whatever its device was doing at that moment. It is left alone in the
//! calm; while its device does nothing, so that only its windows have the latest; and shortly after it has come
//! back from a kill or a loss of power, with a log that ended in front of what the others had durable.
//!
//! Where writes are synced, it loses power in that moment, too: its device alone holds all that was acknowledged.

use std::time::Duration;

use crate::plan::{Episode, Event, Plan, SERVERS, WorldKind};
use crate::random::Random;

/// What a member keeps that is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// Its process ends as usual, if it does.
    Memory,
    /// What was synced, and nothing else.
    Device,
}

/// Of 100 seeds with backups, how many leave a member alone; of 100 of their episodes, how many do.
const SEEDS_PERCENT: usize = 30;
const EPISODES_PERCENT: usize = 50;
/// Of 100 seeds in which writes are synced, how many leave a device alone.
const DEVICES_PERCENT: usize = 50;

/// The plan, with members that are left alone where the seed says so.
pub(crate) fn with_lone_members(mut plan: Plan, random: &mut Random) -> Plan {
    // Small devices have no room for what a member that lost its own is sent.
    let small = plan.devices.small.is_some();
    if plan.kind != WorldKind::Replicated || small || !random.chance(SEEDS_PERCENT) {
        return plan;
    }
    if random.chance(50) {
        plan.engine.levels.number_block = 16;
    }
    for episode in &mut plan.episodes {
        if random.chance(EPISODES_PERCENT) {
            leave_alone(episode, random);
        }
    }
    plan
}

/// The plan in which writes are synced, with members that are left with their device alone: it has everything.
pub(crate) fn with_lone_devices(mut plan: Plan, random: &mut Random) -> Plan {
    if plan.kind != WorldKind::Replicated || !random.chance(DEVICES_PERCENT) {
        return plan;
    }
    for _ in 0..random.between(1, 2) {
        let at = random.between(0, plan.episodes.len());
        plan.episodes.insert(at, lone_device(random));
    }
    plan
}

/// One server keeps its device, which is slower than the others, and nothing else is left.
fn lone_device(random: &mut Random) -> Episode {
    let (server, from) = (random.below(SERVERS), random.micros(0, 20_000));
    let at = from + random.micros(5_000, 150_000);
    let mut events = vec![
        (from, Event::Slow(server, random.pick(&[1, 5, 20]))),
        (at, Event::LonePowerless(server)),
        (at, Event::Slow(server, 100)),
    ];
    for who in 0..SERVERS {
        let back = at + random.micros(0, 100_000);
        events.push((back, Event::Start(who, None)));
    }
    events.sort_by_key(|(at, _): &(Duration, Event)| *at);
    Episode {
        calm_ops: random.between(40, 420),
        events,
        wait: true,
        epochs_max: None,
    }
}

/// Leaves one server alone in an episode in which nothing else goes wrong.
fn leave_alone(episode: &mut Episode, random: &mut Random) {
    let server = random.below(SERVERS);
    let mut events = Vec::new();
    let mut at = random.micros(0, 20_000);
    match random.below(4) {
        0 => {}
        1 => {
            events.push((at, Event::Stall(server)));
            at += random.micros(1_000, 120_000);
        }
        more => {
            let ends = if more == 2 {
                Event::Power(1 << server)
            } else {
                Event::Kill(server)
            };
            events.push((at, ends));
            at += random.micros(0, 60_000);
            events.push((at, Event::Start(server, None)));
            at += random.micros(5_000, 300_000);
        }
    }
    events.push((at, Event::Lone(server)));
    if random.chance(30) {
        at += random.micros(0, 30_000);
        events.push((at, Event::Kill(server)));
    }
    events.push((at, Event::Unstall(server)));
    for who in 0..SERVERS {
        let back = at + random.micros(0, 100_000);
        events.push((back, Event::Start(who, None)));
    }
    events.sort_by_key(|(at, _): &(Duration, Event)| *at);
    episode.events = events;
}
