//! Devices on which something else lies than what was written: bits flip, and writes land at another place.
//!
//! Nobody is told. The server goes on, as primary of some regions and backup of others, and is killed and
//! loses power like any other; while it does, another server may lose its device for good, and take what
//! the damaged one has for its own. Whoever meets the damage has to name it: a read fails, a merge passes
//! over it, a copy is not opened, a device is refused. No answer is ever wrong.
//!
//! At the end of the episode an operator does what `docs/operations.md` says: the damaged device is
//! *replaced* by an empty one, and its copies are made anew from the other members. Until then that server
//! counts as one that has lost what it had, so one member is always whole. Whoever began with nothing beside a
//! damaged member may have its damage, and is replaced, too. Where there is one copy, nothing is damaged.
//!
//! Where only levels are damaged, and the other members have the same segments, nothing is replaced: the members have
//! to repair it by themselves, and all has to be right then.

use crate::plan::{Episode, Event, Plan, SERVERS, WorldKind};
use crate::random::Random;

/// Of 100 seeds with backups, how many have damaged devices; of 100 of their episodes, how
/// many have one; and of 100 of these, in how many nothing else goes wrong.
const SEEDS_PERCENT: usize = 35;
const EPISODES_PERCENT: usize = 50;
const ALONE_PERCENT: usize = 50;
/// Of 100 episodes with a damaged device, how many have damaged levels only.
const LEVELS_PERCENT: usize = 40;

/// What happens to a device without anybody's noticing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// So many bits flip, anywhere in what is stored.
    Flip(usize),
    /// After so many more writes, one lands where something else is stored, and not where it should.
    Misdirect(u64),
    /// So many bits flip, in segments of levels that all other members have, too: they repair it, and nobody replaces
    /// the device.
    Levels(usize),
    /// So many bytes in a row have a bit flipped, in a window of a log (see `rotting.rs`).
    Window(usize),
}

/// The plan, with devices that are damaged where the seed says so.
pub(crate) fn with_damaged_devices(mut plan: Plan, random: &mut Random) -> Plan {
    if plan.kind != WorldKind::Replicated || !random.chance(SEEDS_PERCENT) {
        return plan;
    }
    for episode in &mut plan.episodes {
        if random.chance(EPISODES_PERCENT) {
            damage(episode, random);
        }
    }
    plan
}

/// Damages a device in an episode, and has it used.
fn damage(episode: &mut Episode, random: &mut Random) {
    if random.chance(ALONE_PERCENT) {
        episode.events.clear();
    }
    let server = random.below(SERVERS);
    let levels = random.chance(LEVELS_PERCENT);
    let from = random.micros(0, 30_000);
    for _ in 0..random.between(1, 3) {
        let damage = match (levels, random.chance(50)) {
            (true, _) => Damage::Levels(random.pick(&[1, 1, 2, 4, 16])),
            (false, true) => Damage::Flip(random.pick(&[1, 1, 2, 4, 16])),
            (false, false) => Damage::Misdirect(random.below(12) as u64),
        };
        let at = from + random.micros(0, 20_000);
        episode.events.push((at, Event::Damage(server, damage)));
    }
    let then = from + random.micros(5_000, 80_000);
    let other = (server + random.between(1, SERVERS - 1)) % SERVERS;
    let event = match random.below(5) {
        0 => Event::Kill(server),
        1 => Event::Power(1 << server),
        2 | 3 => Event::Replace(other),
        _ => Event::Power(1 << other),
    };
    episode.events.push((then, event));
    let back = then + random.micros(0, 60_000);
    for who in [server, other] {
        episode.events.push((back, Event::Start(who, None)));
    }
    episode.events.sort_by_key(|(at, _)| *at);
}
