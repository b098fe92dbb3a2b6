//! What a seed decides before a run begins: the cluster, its settings, the load, and what goes
//! wrong when.
//!
//! A run is a row of *episodes*. Each begins with some load on a cluster that is mostly well; then
//! its *events* happen, each so long after the episode's begin, while the load goes on; at its end
//! everything is mended. Three kinds of world:
//!
//! - *Replicated*: every region on all three servers. Whatever may fail short of all members'
//!   losing power before they are whole again.
//! - *Single, killed*: every region on one server. Processes are killed, memory survives, nothing
//!   may be lost.
//! - *Single, without power*: as before, but the power fails, too; a region then holds a prefix.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{AddressMode, DurabilityMode};
use argosy_device::OpKind;
use argosy_engine::conformance::toy;
use argosy_engine::long::SweepPace;
use argosy_engine::scrub::Pace as ScrubPace;
use argosy_fabric::SimSettings;

use crate::asks::Mix;
use crate::clock::{ServerClock, SimClock};
use crate::damaging::Damage;
use crate::engine::{Compaction, Settings};
use crate::failover::{self, Failover, Trouble};
use crate::many::Many;
use crate::random::Random;
use crate::small::Small;
use crate::{alone, damaging, failing, lone, slow, small, spoiling, windows, wire};

mod drawn;

use drawn::{KIB, RING_BYTES, engine, fabric, failover_wait, scrub, sweep, with_medium_pairs};

/// Servers of every run, but for those in which groups change.
pub(crate) const SERVERS: usize = 3;

/// The kind of world; see the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorldKind {
    /// Every region on all servers.
    Replicated,
    /// Every region on one server, which may be killed.
    Killed,
    /// Every region on one server, which may lose power.
    Powerless,
}

/// Something that goes wrong, or is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The process of a server ends now.
    Kill(usize),
    /// It ends in the middle of what it does, after so many effects.
    KillAfter(usize, u64),
    /// These servers lose power together: a bit for each.
    Power(u8),
    /// A server is stopped as it should be.
    Close(usize),
    /// The same, once others have its regions (see `leaving.rs`).
    Leave(usize),
    /// A server is started; it may die again after so many effects.
    Start(usize, Option<u64>),
    /// Nothing gets from the first to the second.
    Cut(usize, usize),
    /// Undoes it.
    Heal(usize, usize),
    /// A server does nothing for a while.
    Stop(usize),
    /// The same, from inside a step on: after so many looks at its clock (see `cluster::halting`).
    Halt(usize, u64),
    /// It goes on.
    Resume(usize),
    /// A server's device does nothing for a while.
    Stall(usize),
    /// It goes on.
    Unstall(usize),
    /// After so many more requests of a kind, one of a server's device fails (see `failing.rs`).
    Fail(usize, OpKind, u64),
    /// A server's copy of a region fails by itself, all else being well (see `alone.rs`).
    FailCopy(usize, usize),
    /// So many times, from now on, a server gets no shared memory (see `alone.rs`).
    Scarce(usize, u64),
    /// A server's device finds no room beneath.
    Full(usize),
    /// It has room again.
    Room(usize),
    /// Something else lies on a server's device than what was written (see `damaging.rs`).
    Damage(usize, Damage),
    /// A server is killed, and can open none of its copies until the episode ends; the others lose power, unless
    /// that is all (see `spoiling.rs`).
    Spoil(usize, bool),
    /// A server's device is lost for good, and an empty one put in its place.
    Replace(usize),
    /// The devices of all others are, in one moment (see `lone.rs`).
    Lone(usize),
    /// The same, and it loses power in that moment.
    LonePowerless(usize),
    /// A server's device goes on in so many of 100 moments (see `slow.rs`).
    Slow(usize, usize),
    /// In so many of 1000 writes to another server a bit flips (see `wire.rs`).
    Flip(u32),
    /// Something goes wrong between a server and the coordinator (see `failover.rs`).
    Coordinator(usize, Trouble),
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Episode {
    /// Operations before anything happens.
    pub calm_ops: usize,
    /// What happens, by when.
    pub events: Vec<(Duration, Event)>,
    /// Whether the next episode begins only when every region is whole again.
    pub wait: bool,
    /// So many epochs of a region, at most, while its events happen; `None`: any number.
    pub epochs_max: Option<u32>,
}

/// The whole run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The kind of world.
    pub kind: WorldKind,
    /// What groups have, and become.
    pub groups: GroupPlan,
    /// Regions.
    pub regions: usize,
    /// Objects.
    pub objects: usize,
    /// The engine's settings.
    pub engine: Settings,
    /// Those of a toy engine, which takes the place of the engine where there are any.
    pub toy: Option<toy::Settings>,
    /// What is looked at beside what is asked.
    pub chores: ChorePlan,
    /// What servers write to each other over.
    pub links: LinkPlan,
    /// What is asked.
    pub load: LoadPlan,
    /// What goes wrong.
    pub episodes: Vec<Episode>,
    /// What is stored on.
    pub devices: DevicePlan,
    /// Servers are stepped when a step is due or something rang for them, and at no other time.
    pub when_due: bool,
}

/// What the groups of regions have, and become.
#[derive(Clone, Debug)]
pub(crate) struct GroupPlan {
    /// Backups build their own levels, instead of being sent the primary's.
    pub builds: bool,
    /// When writes are acknowledged.
    pub durability: DurabilityMode,
    /// How groups change, where they do.
    pub changes: Option<Failover>,
}

/// What servers look at by and by.
#[derive(Clone, Debug)]
pub(crate) struct ChorePlan {
    /// How often everything that is stored is read and checked.
    pub scrub: ScrubPace,
    /// How parts of values are looked for that no head names.
    pub sweep: SweepPace,
}

/// What servers write to each other over.
#[derive(Clone, Debug)]
pub(crate) struct LinkPlan {
    /// The fabric.
    pub fabric: SimSettings,
    /// Bytes of a message ring: few, so that calls and answers are longer than a message.
    pub ring_bytes: usize,
    /// Most bytes of an edit or a checkpoint in one message: few, since stores are small.
    pub part_bytes: usize,
}

/// What clients ask.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    /// Of what kinds.
    pub mix: Mix,
    /// How long a request may wait.
    pub deadline: Duration,
    /// How long, of that time, one may wait for a primary that answers.
    pub failover_wait: Duration,
    /// Operations under way, at most.
    pub in_flight_max: usize,
    /// Of 100 operations, how many go straight to the primary; all, where the world is
    /// `Powerless`.
    pub direct_percent: usize,
    /// Of 100 operations, how many concern the hottest tenth of the objects.
    pub hot_percent: usize,
    /// Of 100 values, how many are large, and of 100 of these, how many are in chunks.
    pub large_percent: usize,
    /// Operations when all is done with.
    pub last_ops: usize,
}

/// What the devices and windows are like, and what is to lie there.
#[derive(Clone, Debug, Default)]
pub(crate) struct DevicePlan {
    /// Devices that fill.
    pub small: Option<Small>,
    /// What a read of a device costs whoever waits for it.
    pub read_cost: Duration,
    /// Whether windows lie in files, which outlive a loss of power.
    pub window_files: bool,
    /// Regions of one primary whose windows have memory at one time; 0: any number.
    pub awake: usize,
    /// Whether devices fail.
    pub fails: bool,
    /// Regions of very many segments.
    pub many: Option<Many>,
}

/// One-sided writes, each as late as can be, for which a request that nothing hinders has time.
pub(crate) const LATE_WRITES: u32 = 20;

/// Operations of a run, at least.
pub(crate) const OPS_MIN: usize = 2000;

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        let plan = small::with_small_devices(Self::beginning(seed), &mut Random::new(seed, 10));
        plan.with_troubles(seed)
    }

    /// The plan of `seed`, without what the seed adds to it from streams of their own.
    pub(crate) fn beginning(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let kind = match random.below(100) {
            0..70 => WorldKind::Replicated,
            70..82 => WorldKind::Killed,
            _ => WorldKind::Powerless,
        };
        let regions = random.between(1, 3);
        // From streams of their own: what a seed stood for before there were these modes it stands
        // for still.
        let addresses = AddressMode::ALL[Random::new(seed, 6).below(AddressMode::ALL.len())];
        let compaction = match Random::new(seed, 7).chance(35) {
            true => Compaction::WholeLevel,
            false => Compaction::Partial,
        };
        // Half of the seeds collect garbage as soon as there is any.
        let mut garbage = Random::new(seed, 9);
        let floor = garbage.chance(50).then_some(0);
        let engine = engine(&mut random).with(|of| {
            of.layout.addresses = addresses;
            of.levels.compaction = compaction;
            of.space.amplification_max = garbage.pick(&[100, 120, 150]);
            of.space.floor_bytes = floor;
            of.logs.rest_after = windows::rest_after(&mut Random::new(seed, 63));
        });
        let engine = with_medium_pairs(engine, &mut Random::new(seed, 11));
        let episodes = episodes(kind, &mut random);
        let calm: usize = episodes.iter().map(|episode| episode.calm_ops).sum();
        let objects = random.between(30, 220).max(4 * regions);
        let deadline = random.micros(20_000, 600_000);
        let mut fabric = fabric(&mut random);
        // In half of the seeds bytes of a process arrive long after its end.
        let mut lingering = Random::new(seed, 52);
        if lingering.chance(50) {
            fabric.linger_max = lingering.micros(1_000, 400_000);
        }
        let deadline = deadline.max(LATE_WRITES * fabric.late_max);
        Self {
            kind,
            groups: GroupPlan {
                builds: Random::new(seed, 8).chance(40),
                durability: DurabilityMode::LastWrite,
                changes: None,
            },
            regions,
            objects,
            engine,
            toy: None,
            chores: ChorePlan {
                scrub: scrub(&mut Random::new(seed, 15)),
                sweep: sweep(&mut Random::new(seed, 17)),
            },
            links: LinkPlan {
                fabric,
                ring_bytes: Random::new(seed, 41).pick(&RING_BYTES),
                part_bytes: Random::new(seed, 42).pick(&[40, 150, 600, 64 * KIB]),
            },
            load: LoadPlan {
                mix: Mix::drawn(&mut random),
                deadline,
                failover_wait: failover_wait(deadline, &mut Random::new(seed, 71)),
                in_flight_max: random.between(4, 64),
                direct_percent: direct_percent(kind, &mut random),
                hot_percent: random.between(0, 60),
                large_percent: random.pick(&[0, 5, 15, 40]),
                last_ops: OPS_MIN.saturating_sub(calm).max(200),
            },
            episodes,
            devices: DevicePlan {
                awake: usize::from(Random::new(seed, 70).chance(30)),
                window_files: kind != WorldKind::Replicated && Random::new(seed, 53).chance(40),
                ..DevicePlan::default()
            },
            when_due: false,
        }
    }

    /// Whether any server may lose power at any time.
    pub(crate) fn loses_power(&self) -> bool {
        self.kind == WorldKind::Powerless || self.groups.durability != DurabilityMode::LastWrite
    }

    /// Whether what was acknowledged last may be lost: a region then holds the first of its writes.
    pub(crate) fn loses_ends(&self) -> bool {
        self.kind == WorldKind::Powerless || self.groups.durability == DurabilityMode::LastFlush
    }

    /// Servers.
    pub(crate) const fn servers(&self) -> usize {
        match self.groups.changes {
            Some(_) => failover::SERVERS,
            None => SERVERS,
        }
    }

    /// Copies of each region, where that is replicated.
    pub(crate) const fn copies(&self) -> usize {
        match self.groups.changes {
            Some(_) => failover::COPIES,
            None => SERVERS,
        }
    }

    /// The clock of a server.
    pub(crate) fn clock(&self, server: usize, common: Arc<SimClock>) -> ServerClock {
        let clock = ServerClock::new(common);
        match &self.groups.changes {
            Some(of) => clock.drifting(of.clocks[server].0, of.clocks[server].1),
            None => clock,
        }
    }

    /// The plan, with what goes wrong in some seeds only.
    pub(crate) fn with_troubles(self, seed: u64) -> Self {
        let plan = failing::with_failing_devices(self, &mut Random::new(seed, 18));
        let plan = damaging::with_damaged_devices(plan, &mut Random::new(seed, 22));
        let plan = alone::with_failed_copies(plan, &mut Random::new(seed, 26));
        let plan = alone::with_scarce_memory(plan, &mut Random::new(seed, 25));
        let plan = spoiling::with_spoilt_copies(plan, &mut Random::new(seed, 43));
        let plan = lone::with_lone_members(plan, &mut Random::new(seed, 50));
        let plan = wire::with_bad_wires(plan, &mut Random::new(seed, 51));
        slow::with_slow_devices(plan, &mut Random::new(seed, 54))
    }
}

/// Where the order in which one copy is handed its writes has to be known, all are.
fn direct_percent(kind: WorldKind, random: &mut Random) -> usize {
    match kind {
        WorldKind::Powerless => 100,
        WorldKind::Replicated | WorldKind::Killed => random.between(20, 90),
    }
}

// --- What goes wrong ---

fn episodes(kind: WorldKind, random: &mut Random) -> Vec<Episode> {
    let count = random.between(3, 7);
    let mut episodes = Vec::new();
    for _ in 0..count {
        let mut events = match kind {
            WorldKind::Replicated => replicated_events(random),
            WorldKind::Killed => kills(random, SERVERS),
            WorldKind::Powerless => {
                let who = 1 + random.below(7);
                let mut events = vec![(Duration::ZERO, Event::Power(to_bits(who)))];
                if random.chance(40) {
                    events = kills(random, SERVERS);
                }
                events
            }
        };
        if random.chance(20) {
            let (server, from) = (random.below(SERVERS), random.micros(0, 50_000));
            events.push((from, Event::Stall(server)));
            events.push((from + random.micros(1_000, 300_000), Event::Unstall(server)));
        }
        restart(&mut events, random);
        events.sort_by_key(|(at, _)| *at);
        episodes.push(Episode {
            calm_ops: random.between(40, 420),
            events,
            wait: random.chance(70),
            epochs_max: None,
        });
    }
    episodes
}

/// All servers lose power at once, under some load.
pub(crate) fn all_without_power(random: &mut Random) -> Episode {
    let mut events = vec![(random.micros(0, 30_000), Event::Power(all_but(SERVERS)))];
    restart(&mut events, random);
    Episode {
        calm_ops: random.between(40, 420),
        events,
        wait: random.chance(70),
        epochs_max: None,
    }
}

fn to_bits(who: usize) -> u8 {
    u8::try_from(who).expect("three bits")
}

fn replicated_events(random: &mut Random) -> Vec<(Duration, Event)> {
    let mut events = Vec::new();
    match random.below(10) {
        0 => events.extend(kills(random, 1)),
        1 => events.extend(kills(random, 2)),
        2 => events.extend(kills(random, SERVERS)),
        3 => events.push((Duration::ZERO, Event::Power(1 << random.below(SERVERS)))),
        4 => events.push((Duration::ZERO, Event::Power(all_but(random.below(SERVERS))))),
        5 => events.extend(cuts(random)),
        6 => events.extend(stop(random, random_server)),
        // One server hears nothing for a while, then all others lose power.
        7 | 8 => {
            let lonely = random.below(SERVERS);
            let when = random.micros(500, 30_000);
            if random.chance(50) {
                for other in (0..SERVERS).filter(|other| *other != lonely) {
                    events.push((Duration::ZERO, Event::Cut(other, lonely)));
                }
            } else {
                events.push((Duration::ZERO, Event::Stop(lonely)));
            }
            events.push((when, Event::Power(all_but(lonely))));
            let healed = when + random.micros(0, 100_000);
            for other in (0..SERVERS).filter(|other| *other != lonely) {
                events.push((healed, Event::Heal(other, lonely)));
            }
            events.push((healed, Event::Resume(lonely)));
        }
        // A server comes back, and another one goes while it catches up.
        _ => {
            let (first, step) = (random.below(SERVERS), random.between(1, 2));
            let second = (first + step) % SERVERS;
            events.push((Duration::ZERO, either(random, first)));
            let back = random.micros(1_000, 100_000);
            events.push((back, Event::Start(first, None)));
            events.push((back + random.micros(0, 250_000), either(random, second)));
        }
    }
    if random.chance(25) {
        events.extend(cuts(random));
    }
    if random.chance(20) {
        events.extend(stop(random, random_server));
    }
    if random.chance(15) {
        events.push((
            random.micros(0, 200_000),
            Event::Power(1 << random.below(SERVERS)),
        ));
    }
    events
}

fn random_server(random: &mut Random) -> usize {
    random.below(SERVERS)
}

fn all_but(server: usize) -> u8 {
    to_bits(((1 << SERVERS) - 1) & !(1 << server))
}

/// A server is killed, or loses power.
fn either(random: &mut Random, server: usize) -> Event {
    if random.chance(50) {
        Event::Power(1 << server)
    } else {
        kill(random, server)
    }
}

fn kill(random: &mut Random, server: usize) -> Event {
    match random.below(10) {
        0 => Event::Close(server),
        1..4 => Event::Kill(server),
        _ => Event::KillAfter(server, random.between(0, 60) as u64),
    }
}

/// `count` servers are killed, at once or one after the other.
fn kills(random: &mut Random, count: usize) -> Vec<(Duration, Event)> {
    let mut servers: Vec<usize> = (0..SERVERS).collect();
    random.shuffle(&mut servers);
    servers.truncate(count);
    let together = random.chance(50);
    let at = |random: &mut Random| {
        if together {
            Duration::ZERO
        } else {
            random.micros(0, 50_000)
        }
    };
    servers
        .into_iter()
        .map(|server| (at(random), kill(random, server)))
        .collect()
}

/// One or two links are cut, in one direction or both, for a while.
fn cuts(random: &mut Random) -> Vec<(Duration, Event)> {
    let mut events = Vec::new();
    for _ in 0..random.between(1, 2) {
        let a = random.below(SERVERS);
        let b = (a + random.between(1, 2)) % SERVERS;
        let (from, span) = (random.micros(0, 50_000), random.micros(200, 400_000));
        let both = random.chance(50);
        let directions = if both {
            vec![(a, b), (b, a)]
        } else {
            vec![(a, b)]
        };
        for (a, b) in directions {
            events.push((from, Event::Cut(a, b)));
            events.push((from + span, Event::Heal(a, b)));
        }
    }
    events
}

/// A server does nothing for a while.
fn stop(random: &mut Random, who: impl Fn(&mut Random) -> usize) -> Vec<(Duration, Event)> {
    let server = who(random);
    let (from, span) = (random.micros(0, 50_000), random.micros(500, 1_500_000));
    vec![
        (from, Event::Stop(server)),
        (from + span, Event::Resume(server)),
    ]
}

/// Starts every server again that may be down, in any order, some of them several times.
fn restart(events: &mut Vec<(Duration, Event)>, random: &mut Random) {
    let last = events.iter().map(|(at, _)| *at).max().unwrap_or_default();
    for server in 0..SERVERS {
        let mut at = last + random.micros(0, 200_000);
        while random.chance(25) {
            events.push((at, Event::Start(server, Some(random.between(0, 40) as u64))));
            at += random.micros(0, 50_000);
        }
        events.push((at, Event::Start(server, None)));
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
