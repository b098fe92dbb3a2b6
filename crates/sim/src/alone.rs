//! Copies that fail by themselves, and shared memory that is refused: what a cluster lives with.
//!
//! - A *copy* of one region fails while its server, its links and its other regions are well. Nothing is
//!   done about it when the episode ends: all regions of which every copy is well have to take writes,
//!   flush and merge beside it, within [`GOES_ON_WITHIN`]. Only then its server is killed and started again.
//!   These seeds have more regions than servers, so that several share a link.
//! - A server gets *no shared memory* some times in a row: when links are renewed, and when copies report.
//!   It asks again; the cluster is whole again soon after there is some.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::Lsn;
use argosy_server::node::MADE_TO_FAIL;

use crate::asks::{Ask, Target};
use crate::check::{Bound, When};
use crate::cluster::id;
use crate::load::Wrong;
use crate::objects::VALUE_BYTES_MIN;
use crate::plan::{Episode, Event, LATE_WRITES, Plan, SERVERS, WorldKind};
use crate::random::Random;
use crate::run::{Pace, Run};

/// Of 100 seeds with backups, how many have copies that fail; of 100 of their episodes, how many have one.
const SEEDS_PERCENT: usize = 25;
const EPISODES_PERCENT: usize = 60;
/// Of 100 seeds with backups, how many have scarce memory, and of 100 of their episodes, how many.
const SCARCE_SEEDS_PERCENT: usize = 40;
const SCARCE_EPISODES_PERCENT: usize = 60;

/// How long, in simulated time, a region may take for [`WRITES`] writes and a flush or merge.
const GOES_ON_WITHIN: Duration = Duration::from_secs(20);
/// LSNs that have to be committed in each region that is well.
const WRITES: u64 = 40;
/// Most bytes of a value that is written for that.
const WRITE_BYTES_MAX: usize = 100;

/// The plan, with copies that fail by themselves where the seed says so.
pub(crate) fn with_failed_copies(mut plan: Plan, random: &mut Random) -> Plan {
    let others = plan.devices.small.is_some() || plan.devices.fails;
    if plan.kind != WorldKind::Replicated || others || !random.chance(SEEDS_PERCENT) {
        return plan;
    }
    plan.regions = random.between(SERVERS + 1, 2 * SERVERS);
    plan.objects = plan.objects.max(4 * plan.regions);
    // Requests for a region that waits for its failed copy take the place of others until their deadline.
    plan.load.in_flight_max = plan.load.in_flight_max.max(32);
    let enough = (LATE_WRITES * plan.links.fabric.late_max).max(Duration::from_millis(100));
    plan.load.deadline = plan.load.deadline.min(enough);
    for episode in &mut plan.episodes {
        if random.chance(EPISODES_PERCENT) {
            fail_copies(episode, plan.regions, random);
        }
    }
    plan
}

/// The plan, with servers that get no shared memory where the seed says so.
pub(crate) fn with_scarce_memory(mut plan: Plan, random: &mut Random) -> Plan {
    if plan.kind != WorldKind::Replicated || !random.chance(SCARCE_SEEDS_PERCENT) {
        return plan;
    }
    for episode in &mut plan.episodes {
        if random.chance(SCARCE_EPISODES_PERCENT) {
            let event = Event::Scarce(random.below(SERVERS), random.between(1, 5) as u64);
            episode.events.insert(0, (Duration::ZERO, event));
        }
    }
    plan
}

/// Has a copy or two fail, and a link break, in an episode in which nothing else happens.
fn fail_copies(episode: &mut Episode, regions: usize, random: &mut Random) {
    episode.events.clear();
    for _ in 0..random.between(1, 2) {
        let (region, away) = (random.below(regions), random.between(1, SERVERS - 1));
        let server = (region + away) % SERVERS;
        let at = random.micros(0, 40_000);
        episode.events.push((at, Event::FailCopy(server, region)));
        if random.chance(40) {
            let other = (server + random.between(1, SERVERS - 1)) % SERVERS;
            let (from, span) = (random.micros(0, 80_000), random.micros(200, 400_000));
            episode.events.push((from, Event::Cut(other, server)));
            episode
                .events
                .push((from + span, Event::Heal(other, server)));
        }
    }
    episode.events.sort_by_key(|(at, _)| *at);
}

/// What is done where copies have failed.
pub(crate) struct BesideFailed<'r> {
    run: &'r mut Run,
}

impl<'r> BesideFailed<'r> {
    pub(crate) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// Where copies have failed: waits until all regions that are well have gone on beside them, and
    /// ends the processes that hold the failed ones.
    pub(crate) fn go_on(&mut self) -> Result<(), Wrong> {
        let (servers, regions) = self.failed_copies();
        if servers.is_empty() {
            return Ok(());
        }
        // Where a device is damaged, other regions may have stopped for that.
        let hurt = (0..SERVERS).any(|server| self.run.may_be_damaged(server));
        let well: Vec<usize> = (0..self.run.plan.regions)
            .filter(|region| !hurt && !regions.contains(region))
            .collect();
        let begin = self.run.cluster.now();
        let before: Vec<_> = well
            .iter()
            .map(|region| self.progress_of(*region))
            .collect();
        while self.failed_copies().0 == servers {
            let behind = well.iter().zip(&before).filter(|(region, before)| {
                let (lsn, work) = self.progress_of(**region);
                lsn.0 < before.0.0 + WRITES || work <= before.1
            });
            let behind: Vec<usize> = behind.map(|(region, _)| *region).collect();
            let Some(first) = behind.first() else {
                break;
            };
            if self.run.cluster.now().since(begin) > GOES_ON_WITHIN {
                return Err(format!(
                    "beside failed copies of regions {regions:?} region {first} has not gone on within \
                     {GOES_ON_WITHIN:?}: it is at {:?}",
                    self.progress_of(*first)
                ));
            }
            for region in behind {
                self.write_to(region)?;
            }
            self.run.flush()?;
            self.run.tick(Pace::Full)?;
        }
        let coverage = &mut self.run.cluster.coverage;
        coverage.add("copies left failed", regions.len() as u64);
        coverage.add("regions that went on beside one", well.len() as u64);
        self.run.answers()?;
        for server in servers {
            let ended = self.run.cluster.kill(server);
            self.run
                .ended(server, ended, "is killed, since a copy on it has failed");
        }
        self.run.start_all()
    }

    /// Asks for a write in a region. A region may have a single object, of which the other requests ask too seldom for
    /// a verdict on its progress.
    fn write_to(&mut self, region: usize) -> Result<(), Wrong> {
        let of_it = |object: &usize| self.run.objects.get(*object).region == region;
        let objects: Vec<usize> = (0..self.run.objects.len()).filter(of_it).collect();
        let target = Target {
            object: objects[self.run.random.below(objects.len())],
            to: Bound::To(self.run.load.next_op()),
            len: self.run.random.between(VALUE_BYTES_MIN, WRITE_BYTES_MAX),
        };
        let ask = Ask::Write {
            targets: vec![target],
            condition: When::Always,
            previous: false,
        };
        self.run.ask(ask)?;
        Ok(())
    }

    /// Servers on which a copy was made to fail, and regions that have one.
    fn failed_copies(&self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut servers, mut regions) = (BTreeSet::new(), BTreeSet::new());
        for server in 0..SERVERS {
            for (index, region) in self.run.cluster.map.regions().iter().enumerate() {
                let up = self.run.cluster.active(server);
                let why = up.and_then(|up| up.node.inspect().copy_failure(region.id));
                if why.is_some_and(|why| why == MADE_TO_FAIL) {
                    servers.insert(server);
                    regions.insert(index);
                }
            }
        }
        (servers, regions)
    }

    /// What is committed of a region, and how often it has flushed or merged.
    fn progress_of(&self, region: usize) -> (Lsn, u64) {
        let of = &self.run.cluster.map.regions()[region];
        let server = (0..SERVERS).find(|server| id(*server) == of.primary);
        let up = server.and_then(|server| self.run.cluster.active(server));
        let stats = up.and_then(|up| up.node.inspect().engine_stats(of.id));
        let lsn = up.and_then(|up| up.node.inspect().committed(of.id));
        let work = stats.map_or(0, |stats| {
            stats.work.flushes + stats.work.compactions + stats.work.moves
        });
        (lsn.unwrap_or(Lsn(0)), work)
    }
}
