//! Devices that fail while a process has them, and file systems beneath them that are full for a while.
//!
//! - A *write* or *sync* fails: nothing is written to the device any more until the process is started
//!   anew, and what was not synced may be gone by then, as after a loss of power; but windows are there.
//!   With several copies that server counts as one that has lost something, so one member is always whole.
//! - A *read* fails, once. Whoever needed it is told, and a region whose merge or backup needed it takes no
//!   writes until the process is started anew.
//! - There is *no room* for what is not stored yet: writes wait, until there is some again. A region that has
//!   to be opened meanwhile cannot be, and stays closed until its server is started anew.
//!
//! So nothing that was acknowledged may be lost, also where there is a single copy; reads of what can be
//! read go on, and every request is answered. A world of single copies without power is left out: it is
//! judged by the order in which writes were handed over, and a failed device refuses those of which it
//! cannot say whether they are there.

use argosy_device::OpKind;

use crate::plan::{Episode, Event, Plan, SERVERS, WorldKind};
use crate::random::Random;

/// Of 100 seeds, how many have devices that fail; of 100 whose backups build levels, of which there are fewer, how
/// many; of 100 of their episodes, how many have one; and of 100 of these, in how many nothing else goes wrong.
const SEEDS_PERCENT: usize = 35;
const BUILDING_PERCENT: usize = 70;
const EPISODES_PERCENT: usize = 65;
const ALONE_PERCENT: usize = 60;

/// The plan, with devices that fail where the seed says so.
pub(crate) fn with_failing_devices(mut plan: Plan, random: &mut Random) -> Plan {
    let percent = match plan.groups.builds {
        true => BUILDING_PERCENT,
        false => SEEDS_PERCENT,
    };
    if plan.kind == WorldKind::Powerless || !random.chance(percent) {
        return plan;
    }
    for episode in &mut plan.episodes {
        if random.chance(EPISODES_PERCENT) {
            fail(episode, random);
        }
    }
    plan.devices.fails = true;
    plan
}

/// Has one or two devices fail in an episode.
fn fail(episode: &mut Episode, random: &mut Random) {
    if random.chance(ALONE_PERCENT) {
        episode.events.clear();
    }
    for _ in 0..random.between(1, 2) {
        let server = random.below(SERVERS);
        let from = random.micros(0, 60_000);
        let event = match random.below(4) {
            0 => Event::Full(server),
            1 => Event::Fail(server, OpKind::Read, random.below(30) as u64),
            2 => Event::Fail(server, OpKind::Write, random.below(30) as u64),
            _ => Event::Fail(server, OpKind::Sync, random.below(10) as u64),
        };
        episode.events.push((from, event));
        let until = from + random.micros(20_000, 400_000);
        episode.events.push((until, Event::Room(server)));
    }
    episode.events.sort_by_key(|(at, _)| *at);
}

/// How a device failed, as it is counted.
#[must_use]
pub(crate) fn name_of(op: OpKind) -> &'static str {
    match op {
        OpKind::Sync => "syncs that failed",
        OpKind::Read => "reads that failed",
        OpKind::Write | OpKind::Open => "writes that failed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// How long, at least, an episode goes on behind the last failure.
    const GOES_ON: Duration = Duration::from_millis(20);

    #[test]
    fn an_episode_goes_on_behind_a_failure() {
        let mut failures = 0;
        for seed in 0..200 {
            let plan = Plan::new(seed);
            for episode in plan.episodes {
                let last = episode.events.last().expect("something happens").0;
                let fails = |event: &Event| matches!(event, Event::Fail(..) | Event::Full(_));
                for (at, _) in episode.events.iter().filter(|(_, event)| fails(event)) {
                    assert!(plan.devices.fails && last >= *at + GOES_ON, "seed {seed}");
                    failures += 1;
                }
            }
        }
        assert!(failures > 100, "{failures}");
    }
}
