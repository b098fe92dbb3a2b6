//! Many regions: what becomes of all of them at one time is one map, and as many looks at reports as there are regions.

use std::time::Duration;

use argosy_base::{EditSeq, Lsn};
use argosy_coordinator::reports::REPORT_BYTES_MAX;
use argosy_coordinator::{CopyReport, EntryVersion, JobLog, MapShards, ServerReport, Wish};

use super::tests::{map, started};
use super::*;
use crate::cluster::looks;

const SERVERS: u32 = 6;
const COPIES: u32 = 3;
/// The server that is lost.
const LOST: ServerId = ServerId(0);
/// Most looks at reports that a step takes for each region: a few at each of its members, and at each server where one
/// is lacking.
const LOOKS_MAX: u64 = 25;
/// The same where no group lacks a member.
const LOOKS_WHOLE_MAX: u64 = 12;

/// A cluster, and its planner.
struct Many {
    planner: Planner,
    cluster: Cluster,
    now: Instant,
    /// How often each step has looked at a report.
    looks: Vec<u64>,
}

impl Many {
    fn new(regions: u32) -> Self {
        let now = Instant::from_nanos(1);
        let settings = PlanSettings::default();
        let mut many = Self {
            planner: Planner::new(settings, Mutants::default(), now),
            cluster: Cluster {
                map: Arc::new(map(SERVERS, regions, COPIES)),
                shards: MapShards::default(),
                version: EntryVersion(1),
                jobs: JobLog::default(),
                jobs_version: EntryVersion(0),
                servers: BTreeMap::new(),
            },
            now,
            looks: Vec::new(),
        };
        (0..SERVERS).for_each(|id| many.start(ServerId(id), 1));
        many
    }

    fn regions(&self) -> usize {
        self.cluster.map.regions().len()
    }

    fn start(&mut self, server: ServerId, incarnation: u64) {
        self.cluster.servers.insert(server, started(incarnation));
    }

    /// Has all servers report of the regions, by `say`, with the views of the present map.
    fn report(&mut self, say: impl Fn(ServerId, &Region, &mut ServerReport)) {
        for (id, live) in &mut self.cluster.servers {
            let mut report = ServerReport {
                incarnation: live.presence.incarnation,
                map: self.cluster.version,
                ..ServerReport::default()
            };
            for region in self.cluster.map.regions() {
                say(*id, region, &mut report);
            }
            let json = report.to_json();
            assert!(json.len() <= REPORT_BYTES_MAX, "{} bytes", json.len());
            assert_eq!(ServerReport::parse(&json), Ok(report.clone()));
            live.report = Some(report);
        }
    }

    /// Has the planner take a step. It is one map, in which each of `steps` regions has taken one.
    fn plan(&mut self, steps: usize) {
        let (before, regions) = (looks::take(), self.regions() as u64);
        let plan = self.planner.step(&self.cluster, self.now);
        self.looks.push(looks::take());
        assert!(
            self.looks.last() <= Some(&(LOOKS_MAX * regions)),
            "{:?} after {before}",
            self.looks
        );
        assert_eq!(plan.steps.len(), steps);
        let Some(next) = plan.map else {
            assert_eq!(steps, 0);
            return;
        };
        let old = self.cluster.map.regions().iter();
        let changed = next.regions().iter().zip(old).filter(|(new, old)| {
            assert!(new.epoch.0 <= old.epoch.0 + 1, "one step at most");
            new != old
        });
        assert_eq!(changed.count(), steps);
        self.cluster.map = next;
        self.cluster.version.0 += 1;
    }
}

fn whole(region: &Region) -> CopyReport {
    CopyReport {
        epoch: region.epoch,
        status: CopyStatus::Whole,
        cut: region.since,
        edit: EditSeq(u64::MAX),
        lsn: Lsn(u64::MAX),
    }
}

/// What members of regions without a primary say: all of them have whole copies.
fn stands(server: ServerId, region: &Region, report: &mut ServerReport) {
    if region.state == RegionState::Recovering && region.members.contains(&server) {
        report.copies.insert(region.id, whole(region));
    }
}

/// A server of a cluster of `regions` regions is lost, and returns with an empty device. Returns how often each step
/// has looked at a report.
fn lose_one(regions: u32) -> Vec<u64> {
    let mut many = Many::new(regions);
    many.report(stands);
    many.plan(0);
    assert!(many.looks[0] <= LOOKS_WHOLE_MAX * u64::from(regions));
    many.cluster.servers.remove(&LOST);
    let leads = |region: &&Region| region.primary == LOST;
    let led = many.cluster.map.regions().iter().filter(leads).count();
    let has = |region: &&Region| region.members.contains(&LOST);
    let stored = many.cluster.map.regions().iter().filter(has).count();
    assert!(led >= many.regions() / 7 && stored >= many.regions() * 3 / 7);

    many.plan(led);
    many.report(stands);
    many.plan(led);
    many.report(|server, region, report| {
        if region.primary == server && region.members.contains(&LOST) {
            let wish = Wish {
                epoch: region.epoch,
                remove: vec![LOST],
                ..Wish::default()
            };
            report.wishes.insert(region.id, wish);
        }
    });
    many.plan(stored - led);
    many.report(stands);
    many.plan(0);
    many.now = many.now + Duration::from_secs(1);
    many.start(LOST, 2);
    many.plan(0);
    many.report(stands);
    many.plan(stored);
    let filled = |region: &&Region| !region.filling.is_empty();
    assert_eq!(
        many.cluster.map.regions().iter().filter(filled).count(),
        stored
    );
    many.report(|server, region, report| {
        if region.primary == server && !region.filling.is_empty() {
            let wish = Wish {
                epoch: region.epoch,
                add: region.filling.clone(),
                ..Wish::default()
            };
            report.wishes.insert(region.id, wish);
        }
    });
    many.plan(stored);
    // What the server had is spread: those that store the fewest regions are filled first.
    let counts = (0..SERVERS).map(|id| {
        let has = |region: &&Region| region.members.contains(&ServerId(id));
        many.cluster.map.regions().iter().filter(has).count()
    });
    let counts: Vec<usize> = counts.collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 2, "{counts:?}");
    many.looks
}

#[test]
fn a_lost_server_of_a_thousand_regions_is_one_map_for_each_step() {
    let of_thousand = lose_one(1_000);
    let of_twice = lose_one(2_000);
    for (once, twice) in of_thousand.iter().zip(&of_twice) {
        // What a step does beside the regions is the same.
        assert!(
            twice.saturating_sub(2 * once) <= 100,
            "{of_thousand:?}, {of_twice:?}"
        );
    }
}
