//! Clusters whose groups change: a master moves regions away from servers that are lost, and fills the places that
//! they leave (the profile `failover`).
//!
//! There are four servers, and three copies of each region. Each server has a
//! [`Membership`](argosy_server::membership) and a [`Master`](argosy_master::Master) over one coordinator
//! (`cluster::coordination`), and a clock of its own, which drifts. What goes wrong is what does in the usual seeds,
//! and with the coordinator: a server does not reach it, its answers come late, requests and answers are lost. Beside
//! the load pairs are bulk-loaded, snapshots kept open, and ranges removed.
//!
//! A server loses power, or its device, only where each region keeps a copy elsewhere that is whole and counts (rule 9
//! of `docs/model`): so whatever was acknowledged has to be there, always.
//!
//! In almost half of the episodes a server is *left behind*: it does not reach the coordinator, so that others take
//! its regions over and it does not hear of that. It goes on, with its links or without, or is stopped, between two
//! steps or inside of one (`cluster::halting`), until long after. What clients ask of it then is in
//! [`moved`](crate::moved). In a tenth a server that has lost power is *alone* for a while: it must not open what
//! others have more of.

use std::time::Duration;

use argosy_base::AddressMode;
use argosy_master::{MapBounds, MasterTimes, PlanSettings};
use argosy_server::membership::MembershipTimes;
use argosy_server::node::LeaseSettings;

use crate::plan::{DevicePlan, Episode, Event, OPS_MIN, Plan, WorldKind};
use crate::random::Random;
use crate::small;

/// Servers of such a cluster.
pub(crate) const SERVERS: usize = 4;
/// Copies of each region.
pub(crate) const COPIES: usize = 3;
/// How many millionths a clock gains or loses, at most: as in a machine, and so many that leases which do not reckon
/// with it overlap for long.
const DRIFTS_PPM: [u32; 2] = [1000, 50_000];
/// Looks at its clock after which a server is stopped inside a step, at most.
const LOOKS_MAX: usize = 8;

/// Whether backups build their own levels where pointers hold places, too, in some seeds. Such a copy is overtaken
/// whenever it was filled, while clients write and its primary has no members (seed 15): seeds take minutes.
const BUILDS_IN_PLACES: bool = false;
/// Whether devices are small in some seeds, and fill.
const SMALL_DEVICES: bool = false;

/// How patient everybody is, and how clocks drift.
#[derive(Clone, Debug)]
pub(crate) struct Failover {
    /// When servers say what they have to say.
    pub membership: MembershipTimes,
    /// When masters do something.
    pub master: MasterTimes,
    /// When a group is changed.
    pub plan: PlanSettings,
    /// How long a member may be away before its primary asks that the group goes on without it.
    pub remove_after: Duration,
    /// The leases of servers.
    pub leases: LeaseSettings,
    /// How far ahead each server's clock is, and how many millionths it gains.
    pub clocks: Vec<(Duration, i32)>,
    /// Of 100 servers that were promoted, how many are struck at once.
    pub strike_percent: usize,
}

/// What goes wrong between a server and the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It does not reach it.
    CutOff,
    /// It reaches it again.
    Connect,
    /// Each request takes so long.
    Delay(Duration),
    /// So many requests do not arrive.
    LoseRequests(u32),
    /// So many answers do not arrive.
    LoseReplies(u32),
}

/// What a server loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its memory: its copies are cut.
    Power,
    /// Its device, too: its copies are partial.
    Device,
}

impl Failover {
    fn drawn(random: &mut Random) -> Self {
        let session_timeout = random.micros(100_000, 600_000);
        let drift_ppm = random.pick(&DRIFTS_PPM);
        let clocks = (0..SERVERS).map(|_| {
            let ppm = random.between(0, 2 * drift_ppm as usize);
            let ppm = i32::try_from(ppm).expect("a small number") - drift_ppm.cast_signed();
            (random.micros(0, 2_000_000), ppm)
        });
        Self {
            clocks: clocks.collect(),
            membership: MembershipTimes {
                session_timeout,
                read_every: random.micros(50_000, 500_000),
                look_every: random.micros(2_000, 25_000),
                poll_every: random.micros(500, 5_000),
            },
            master: MasterTimes {
                session_timeout,
                read_every: random.micros(50_000, 500_000),
                poll_every: random.micros(500, 5_000),
            },
            plan: PlanSettings {
                leave_after: session_timeout / 10,
                min_copies: random.between(1, 2),
                report_within: random.micros(50_000, 500_000),
                open_within: random.micros(500_000, 3_000_000),
                replace_after: random.micros(20_000, 1_500_000),
                absent_after: random.micros(200_000, 1_000_000),
                rejoin_after: session_timeout / 8,
                rejoin_after_most: 2 * session_timeout,
                map: MAP_BOUNDS,
            },
            remove_after: random.micros(30_000, 600_000),
            leases: LeaseSettings::new(lease(random), drift_ppm).expect("within the bounds"),
            strike_percent: random.pick(&[0, 10, 30]),
        }
    }

    /// How many millionths a clock gains or loses, at most.
    pub(crate) fn drift_ppm(&self) -> u32 {
        self.leases.terms.drift_ppm()
    }

    /// Until others have taken over what a lost server served, by and large.
    pub(crate) fn taken_over(&self) -> Duration {
        let settled = self.remove_after + self.membership.read_every + self.master.read_every;
        self.membership.session_timeout * 2 + self.leases.terms.promise() + settled
    }
}

/// A few regions lie in several shards, and not all of them are changed at one time.
const MAP_BOUNDS: MapBounds = MapBounds {
    shard_bytes: 120,
    change_bytes: 120,
};

/// In some seeds leases end before anybody misses a server, in others long after.
fn lease(random: &mut Random) -> Duration {
    match random.chance(50) {
        true => random.micros(10_000, 400_000),
        false => random.micros(300_000, 1_500_000),
    }
}

/// The plan of `seed`, in a cluster whose groups change.
pub(crate) fn of_failover(seed: u64) -> Plan {
    let mut plan = Plan::beginning(seed);
    let mut random = Random::new(seed, 80);
    plan.kind = WorldKind::Replicated;
    plan.groups.builds &= BUILDS_IN_PLACES || plan.engine.layout.addresses == AddressMode::Logical;
    plan.load.direct_percent = random.between(20, 90);
    plan.devices = DevicePlan::default();
    let failover = Failover::drawn(&mut random);
    plan.episodes = episodes(&failover, &mut random);
    let calm: usize = plan.episodes.iter().map(|episode| episode.calm_ops).sum();
    plan.load.last_ops = OPS_MIN.saturating_sub(calm).max(200);
    plan.groups.changes = Some(failover);
    match SMALL_DEVICES {
        true => small::with_small_devices(plan, &mut Random::new(seed, 94)),
        false => plan,
    }
}

fn episodes(failover: &Failover, random: &mut Random) -> Vec<Episode> {
    let count = random.between(3, 6);
    let episodes = (0..count).map(|_| {
        let mut events = match random.below(20) {
            0..9 => left_behind(failover, random),
            9..11 => alone(failover, random),
            _ => lost(failover, random),
        };
        if random.chance(30) {
            events.extend(cuts(random));
        }
        if random.chance(60) {
            for _ in 0..random.between(1, 3) {
                events.extend(trouble(random));
            }
        }
        if random.chance(40) {
            let (server, from) = (random.below(SERVERS), random.micros(0, 400_000));
            events.push((from, Event::Stop(server)));
            events.push((from + random.micros(500, 3_000_000), Event::Resume(server)));
        }
        if random.chance(15) {
            let (server, from) = (random.below(SERVERS), random.micros(0, 50_000));
            events.push((from, Event::Stall(server)));
            events.push((from + random.micros(1_000, 300_000), Event::Unstall(server)));
        }
        restart(failover, &mut events, random);
        events.sort_by_key(|(at, _)| *at);
        Episode {
            calm_ops: random.between(40, 420),
            events,
            wait: random.chance(60),
            epochs_max: None,
        }
    });
    episodes.collect()
}

/// A server does not hear of what becomes of its regions: see the module documentation.
fn left_behind(failover: &Failover, random: &mut Random) -> Vec<(Duration, Event)> {
    let (server, from) = (random.below(SERVERS), random.micros(0, 100_000));
    let span = failover.taken_over() + random.micros(0, 1_500_000);
    let trouble = |server, what| Event::Coordinator(server, what);
    let mut events = vec![
        (from, trouble(server, Trouble::CutOff)),
        (from + span, trouble(server, Trouble::Connect)),
    ];
    // Somebody else does not hear of it, either, and passes on what it is asked.
    if random.chance(40) {
        let other = (server + random.between(1, SERVERS - 1)) % SERVERS;
        let until = from + span + random.micros(0, 50_000);
        events.push((from, trouble(other, Trouble::CutOff)));
        events.push((until, trouble(other, Trouble::Connect)));
    }
    let at = from + random.micros(0, 300_000);
    // It goes on before it hears of anything, or after.
    let until = (from + span + random.micros(0, 50_000)).saturating_sub(Duration::from_millis(40));
    match random.below(10) {
        0..4 => {}
        4 => {
            for other in (0..SERVERS).filter(|other| *other != server) {
                events.push((at, Event::Cut(server, other)));
                events.push((at, Event::Cut(other, server)));
                events.push((until, Event::Heal(server, other)));
                events.push((until, Event::Heal(other, server)));
            }
        }
        5 | 6 => {
            events.push((at, Event::Stop(server)));
            events.push((until, Event::Resume(server)));
        }
        _ => {
            let looks = random.between(0, LOOKS_MAX) as u64;
            events.push((at, Event::Halt(server, looks)));
            events.push((until, Event::Resume(server)));
        }
    }
    // A member that has promised it something is started anew.
    if random.chance(25) {
        let other = (server + random.between(1, SERVERS - 1)) % SERVERS;
        let killed = at + random.micros(0, 200_000);
        events.push((killed, Event::Kill(other)));
        events.push((killed + random.micros(0, 30_000), Event::Start(other, None)));
    }
    events
}

/// A server loses power, and is there again long before all others, which were killed.
fn alone(failover: &Failover, random: &mut Random) -> Vec<(Duration, Event)> {
    let server = random.below(SERVERS);
    let mut events = vec![(Duration::ZERO, Event::Power(1 << server))];
    for other in (0..SERVERS).filter(|other| *other != server) {
        events.push((random.micros(0, 3_000), Event::Kill(other)));
    }
    let back = random.micros(4_000, 60_000);
    events.push((back, Event::Start(server, None)));
    let others = back + failover.taken_over() + failover.plan.absent_after;
    events.push((others, Event::Start((server + 1) % SERVERS, None)));
    events
}

/// Some servers are lost, one after the other or together.
fn lost(failover: &Failover, random: &mut Random) -> Vec<(Duration, Event)> {
    let mut servers: Vec<usize> = (0..SERVERS).collect();
    random.shuffle(&mut servers);
    let count = random.weighted(&[1, 5, 5, 2, 1]);
    // Until others have noticed, and gone on without it.
    let noticed = failover.membership.session_timeout * 2;
    let span = random.pick(&[0, 20_000, 200_000, 1_000_000]);
    let mut events = Vec::new();
    for server in servers.into_iter().take(count) {
        let at = random.micros(0, span);
        events.push((at, loss(server, random)));
        // It comes back while others go.
        if random.chance(40) {
            let back = at + random.micros(0, usize::try_from(noticed.as_micros()).unwrap_or(0));
            events.push((back, Event::Start(server, None)));
            if random.chance(40) {
                events.push((back + random.micros(0, 300_000), loss(server, random)));
            }
        }
    }
    events
}

fn loss(server: usize, random: &mut Random) -> Event {
    match random.below(20) {
        0 => Event::Close(server),
        1..=3 => Event::Leave(server),
        4 | 5 => Event::Kill(server),
        6..=10 => Event::KillAfter(server, random.between(0, 60) as u64),
        11..=16 => Event::Power(1 << server),
        17 => Event::Replace(server),
        _ => {
            let other = (server + random.between(1, SERVERS - 1)) % SERVERS;
            Event::Power(1 << server | 1 << other)
        }
    }
}

/// A link is cut, in one direction or both, for a while.
fn cuts(random: &mut Random) -> Vec<(Duration, Event)> {
    let (a, step) = (random.below(SERVERS), random.between(1, SERVERS - 1));
    let b = (a + step) % SERVERS;
    let (from, span) = (random.micros(0, 300_000), random.micros(200, 4_000_000));
    let mut directions = vec![(a, b)];
    if random.chance(60) {
        directions.push((b, a));
    }
    let events = directions
        .into_iter()
        .flat_map(|(a, b)| [(from, Event::Cut(a, b)), (from + span, Event::Heal(a, b))]);
    events.collect()
}

/// Something goes wrong between servers and the coordinator.
fn trouble(random: &mut Random) -> Vec<(Duration, Event)> {
    let (server, from) = (random.below(SERVERS), random.micros(0, 1_000_000));
    let event = |what| Event::Coordinator(server, what);
    match random.below(4) {
        0 => {
            let span = random.micros(100, 2_000_000);
            vec![
                (from, event(Trouble::CutOff)),
                (from + span, event(Trouble::Connect)),
            ]
        }
        1 => {
            let delay = Trouble::Delay(random.micros(0, 60_000));
            vec![(from, event(delay))]
        }
        2 => {
            let count = u32::try_from(random.between(1, 4)).expect("a few");
            vec![(from, event(Trouble::LoseRequests(count)))]
        }
        _ => {
            let count = u32::try_from(random.between(1, 4)).expect("a few");
            vec![(from, event(Trouble::LoseReplies(count)))]
        }
    }
}

/// Starts every server again that may be down, in any order, some of them several times, at once or after their regions
/// have moved.
fn restart(failover: &Failover, events: &mut Vec<(Duration, Event)>, random: &mut Random) {
    let last = events.iter().map(|(at, _)| *at).max().unwrap_or_default();
    let patience = failover.membership.session_timeout + failover.plan.replace_after;
    let longest = usize::try_from(patience.as_micros()).unwrap_or(0) * random.pick(&[0, 1, 2]);
    for server in 0..SERVERS {
        let mut at = last + random.micros(0, longest);
        while random.chance(20) {
            events.push((at, Event::Start(server, Some(random.between(0, 40) as u64))));
            at += random.micros(0, 50_000);
        }
        events.push((at, Event::Start(server, None)));
    }
}
