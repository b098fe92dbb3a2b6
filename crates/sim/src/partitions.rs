//! Servers that are there and do not hear each other, or do not hear the coordinator, in clusters whose groups change
//! (the profile `partitions`): the plan of [`failover`](crate::failover), with episodes of their own.
//!
//! One server is down all the time, so that there is no spare in place of a member that leaves. Then in an episode:
//!
//! 1. *A pair* hears the coordinator and all others, and not each other: for long, or it comes and goes.
//! 2. *A server* hears all others and not the coordinator, for long, or by turns.
//!
//! What was acknowledged is there, as in every run. And groups come to rest: a region has no more epochs than what the
//! rules of a master come to (`master/apart.rs`), however often a pair comes and goes. Each time that it is filled
//! again costs three, and after so long a time that the pair is heard for as long as it is held apart.

use std::time::Duration;

use crate::failover::{Failover, SERVERS, Trouble, of_failover};
use crate::plan::{Episode, Event, Plan};
use crate::random::Random;

/// Epochs of a region in such an episode, of all regions the most.
pub(crate) const EPOCHS: &str = "epochs of a region in partitions";

/// How often a pair, or a server, comes and goes.
const TURNS: u32 = 10;
/// How often a pair is filled again in as many turns, at most: it is held apart for half a turn, for one, and for two.
const RETURNS_MAX: u32 = 3;
/// Pairs that part in a region whose backups build their own levels: a backup that does its primary's work besides its
/// own may be too slow for it, and leaves as one does that is not heard. Of each pair of three servers.
const PARTING_MAX: u32 = 3;
/// Epochs for each time: removed, filled, added.
const EPOCHS_PER_RETURN: u32 = 3;
/// Epochs that the server costs that is down: its regions are raised and promoted, it is removed, another one is
/// filled and added. As many when somebody else leads no more.
const EPOCHS_OF_LOSSES: u32 = 2 * 5;

/// The plan of `seed`.
pub(crate) fn of_partitions(seed: u64) -> Plan {
    let mut plan = of_failover(seed);
    let mut random = Random::new(seed, 93);
    let mut failover = plan.groups.changes.take().expect("groups change");
    let well = well(&failover);
    failover.plan.rejoin_after = well / 2;
    failover.plan.rejoin_after_most = 8 * well;
    failover.strike_percent = 0;
    let parting = if plan.groups.builds { PARTING_MAX } else { 1 };
    let count = random.between(1, 2);
    plan.episodes = (0..count)
        .map(|_| episode(&failover, parting, &mut random))
        .collect();
    plan.groups.changes = Some(failover);
    plan
}

/// Until a member has left that is not heard.
fn apart(of: &Failover) -> Duration {
    of.remove_after + 2 * (of.membership.read_every + of.master.read_every)
}

/// Until one that is heard again has been filled and added.
fn well(of: &Failover) -> Duration {
    4 * (of.membership.read_every + of.master.read_every)
}

/// An episode in which so many pairs may be `parting`.
fn episode(of: &Failover, parting: u32, random: &mut Random) -> Episode {
    let mut servers: Vec<usize> = (0..SERVERS).collect();
    random.shuffle(&mut servers);
    let (down, one, other) = (servers[0], servers[1], servers[2]);
    let mut at = random.micros(0, 100_000);
    let mut events = vec![(at, Event::Kill(down))];
    // The others have its regions, and a copy of each in its place.
    at += of.taken_over() + of.plan.replace_after + of.plan.absent_after + 2 * well(of);
    let turns = if random.chance(70) { TURNS } else { 1 };
    let pair = random.chance(70);
    for _ in 0..turns {
        let span = match turns {
            1 => 3 * (apart(of) + well(of)),
            _ if pair => apart(of),
            _ => of.taken_over(),
        };
        for (at, begins) in [(at, true), (at + span, false)] {
            match pair {
                true => events.extend(cut(one, other, begins).map(|event| (at, event))),
                false => {
                    let what = if begins {
                        Trouble::CutOff
                    } else {
                        Trouble::Connect
                    };
                    events.push((at, Event::Coordinator(one, what)));
                }
            }
        }
        at += span + well(of);
    }
    events.push((at, Event::Start(down, None)));
    Episode {
        calm_ops: random.between(40, 420),
        events,
        wait: true,
        epochs_max: Some(parting * RETURNS_MAX * EPOCHS_PER_RETURN + EPOCHS_OF_LOSSES),
    }
}

/// Nothing gets from one to the other, or everything does again.
fn cut(one: usize, other: usize, begins: bool) -> [Event; 2] {
    match begins {
        true => [Event::Cut(one, other), Event::Cut(other, one)],
        false => [Event::Heal(one, other), Event::Heal(other, one)],
    }
}
