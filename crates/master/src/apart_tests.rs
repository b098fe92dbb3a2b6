//! Pairs that come and go: see [`super`].

use std::sync::Arc;

use argosy_base::Epoch;
use argosy_coordinator::{EntryVersion, JobLog, MapShards, Wish};

use super::*;
use crate::plan::Planner;
use crate::plan::tests::{map, started};
use crate::settings::Mutants;

/// Three servers with one region, whose primary is server 0. Its link to server 1 goes down and up.
struct Flapping {
    planner: Planner,
    cluster: Cluster,
    now: Instant,
    epochs: u32,
}

impl Flapping {
    fn new(mutants: Mutants) -> Self {
        let now = Instant::from_nanos(1);
        Self {
            planner: Planner::new(PlanSettings::default(), mutants, now),
            cluster: Cluster {
                map: Arc::new(map(3, 1, 3)),
                shards: MapShards::default(),
                version: EntryVersion(1),
                jobs: JobLog::default(),
                jobs_version: EntryVersion(0),
                servers: (0..3).map(|id| (ServerId(id), started(1))).collect(),
            },
            now,
            epochs: 0,
        }
    }

    /// A second passes, in which the primary asks for what it needs, and has it filled at once what it can reach.
    fn pass(&mut self, is_down: bool, is_said: bool) {
        self.now = self.now + Duration::from_secs(1);
        let region = self.cluster.map.regions()[0].clone();
        let (far, said) = (
            ServerId(1),
            if is_said {
                vec![ServerId(1)]
            } else {
                Vec::new()
            },
        );
        for live in self.cluster.servers.values_mut() {
            live.report.as_mut().unwrap().map = self.cluster.version;
        }
        let live = self.cluster.servers.get_mut(&ServerId(0)).unwrap();
        live.presence.unreachable = said.into_iter().collect();
        let wish = Wish {
            epoch: region.epoch,
            remove: region
                .members
                .iter()
                .copied()
                .filter(|id| is_down && *id == far)
                .collect(),
            add: region
                .filling
                .iter()
                .copied()
                .filter(|id| !is_down || *id != far)
                .collect(),
            fill: Vec::new(),
        };
        live.report.as_mut().unwrap().wishes.insert(region.id, wish);
        if let Some(next) = self.planner.step(&self.cluster, self.now).map {
            self.epochs += next.regions()[0].epoch.0 - region.epoch.0;
            self.cluster.map = next;
            self.cluster.version.0 += 1;
        }
    }

    fn is_member(&self) -> bool {
        self.cluster.map.regions()[0].members.contains(&ServerId(1))
    }

    /// An hour in which the link is down for three seconds, and up for three. The servers say it after two.
    fn hour(&mut self) {
        for second in 0..3600 {
            self.pass(second % 6 < 3, second % 6 == 2);
        }
    }
}

/// Each time three epochs: removed, filled, added. The times are 1, 2, 4, ... seconds apart, and then five minutes.
const EPOCHS_OF_AN_HOUR: u32 = 3 * (9 + 12);

#[test]
fn a_pair_that_comes_and_goes_costs_few_epochs() {
    let mut flapping = Flapping::new(Mutants::default());
    flapping.hour();
    let epochs = flapping.epochs;
    assert!((6..=EPOCHS_OF_AN_HOUR).contains(&epochs), "{epochs} epochs");
    // Once the link is well, it is a member again, after five minutes at most, and stays one.
    let most = PlanSettings::default().rejoin_after_most.as_secs() + 3;
    (0..most).for_each(|_| flapping.pass(false, false));
    assert!(flapping.is_member());
    let epochs = flapping.epochs;
    (0..3600).for_each(|_| flapping.pass(false, false));
    assert_eq!(flapping.epochs, epochs);
    // And how often it happened is forgotten: it is back soon.
    (0..3).for_each(|_| flapping.pass(true, false));
    assert!(!flapping.is_member());
    (0..4).for_each(|_| flapping.pass(false, false));
    assert!(flapping.is_member());
}

#[test]
fn churn_without_bound_is_found() {
    let mut mutants = Mutants::default();
    assert!(mutants.plant("rejoin_at_once"));
    let mut flapping = Flapping::new(mutants);
    flapping.hour();
    assert!(
        flapping.epochs > EPOCHS_OF_AN_HOUR,
        "{} epochs",
        flapping.epochs
    );
}

#[test]
fn who_has_started_again_is_not_kept_away() {
    let mut flapping = Flapping::new(Mutants::default());
    flapping.hour();
    while flapping.is_member() {
        flapping.pass(true, true);
    }
    (0..5).for_each(|_| flapping.pass(false, false));
    assert!(!flapping.is_member());
    flapping.cluster.servers.insert(ServerId(1), started(2));
    (0..3).for_each(|_| flapping.pass(false, false));
    assert!(flapping.is_member());
}

#[test]
fn regions_of_one_moment_are_one_parting() {
    let flapping = Flapping::new(Mutants::default());
    let settings = PlanSettings::default();
    let mut apart = Apart::new();
    let pair = ServerPair::of(ServerId(1), ServerId(0));
    assert_eq!(pair, ServerPair::of(ServerId(0), ServerId(1)));
    let until = |apart: &Apart, now| apart.held(&settings, now).get(&pair).copied();
    let mut now = flapping.now;
    for _ in 0..10 {
        apart.part(&flapping.cluster, BTreeSet::from([pair]), &settings, now);
        assert_eq!(until(&apart, now), Some(now + settings.rejoin_after));
    }
    // Each further time twice as long, up to the most.
    for times in 1..40 {
        now = until(&apart, now).unwrap();
        apart.part(&flapping.cluster, BTreeSet::from([pair]), &settings, now);
        let hold = settings.rejoin_after * (1 << times.min(20));
        assert_eq!(
            until(&apart, now),
            Some(now + hold.min(settings.rejoin_after_most))
        );
    }
    assert_eq!(flapping.cluster.map.regions()[0].epoch, Epoch(1));
}
