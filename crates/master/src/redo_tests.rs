//! What another master makes of jobs that it finds: see [`super`].

use argosy_base::{EditSeq, Epoch, Instant, Lsn};
use argosy_coordinator::{
    CopyReport, CopyStatus, EntryVersion, JobId, JobState, MapShards, RegionState, Wish,
};

use super::*;
use crate::plan::Planner;
use crate::plan::tests::{map, started};
use crate::settings::{Mutants, PlanSettings};

const ME: SessionId = SessionId(7);

/// A cluster whose planner has just begun, and has not seen anybody.
struct Scene {
    planner: Planner,
    cluster: Cluster,
    now: Instant,
}

impl Scene {
    fn new(servers: u32, copies: u32) -> Self {
        let now = Instant::from_nanos(1);
        let start = |id| (ServerId(id), started(1));
        let mut scene = Self {
            planner: Planner::new(PlanSettings::default(), Mutants::default(), now),
            cluster: Cluster {
                map: Arc::new(map(servers, 1, copies)),
                shards: MapShards::default(),
                version: EntryVersion(1),
                jobs: JobLog::default(),
                jobs_version: EntryVersion(1),
                servers: (0..servers).map(start).collect(),
            },
            now,
        };
        scene.report();
        scene
    }

    /// All have taken the views of the present map.
    fn report(&mut self) {
        for live in self.cluster.servers.values_mut() {
            if let Some(report) = &mut live.report {
                report.map = self.cluster.version;
            }
        }
    }

    fn region(&self) -> &Region {
        &self.cluster.map.regions()[0]
    }

    fn job(&mut self, kind: JobKind, server: u32) -> JobId {
        let (region, epoch) = (self.region().id, self.region().epoch);
        let deed = Deed {
            kind,
            server: ServerId(server),
            region,
        };
        self.cluster.jobs.cover(deed, epoch, SessionId(1)).unwrap()
    }

    fn wish(&mut self, wish: Wish) {
        let (id, primary) = (self.region().id, self.region().primary);
        let live = self.cluster.servers.get_mut(&primary).unwrap();
        live.report.as_mut().unwrap().wishes.insert(id, wish);
    }

    /// A round, and what it leaves behind. Returns the steps.
    fn round(&mut self) -> Vec<GroupStep> {
        let plan = self.planner.step(&self.cluster, self.now);
        let Errand { note, act } = Errand::of(&self.cluster, plan, MapBounds::default(), ME);
        if let Some(note) = note {
            self.cluster.jobs = note;
            self.cluster.jobs_version.0 += 1;
        }
        let Some(act) = act else {
            return Vec::new();
        };
        self.cluster.jobs = act.log;
        self.cluster.map = act.map;
        self.cluster.version.0 += 1;
        self.report();
        act.steps
    }

    fn state(&self, id: JobId) -> JobState {
        self.cluster.jobs.job(id).unwrap().state
    }

    fn copy(&mut self, server: u32, status: CopyStatus, lsn: u64) {
        let (id, epoch) = (self.region().id, self.region().epoch);
        let copy = CopyReport {
            epoch,
            status,
            cut: Epoch(1),
            edit: EditSeq(1),
            lsn: Lsn(lsn),
        };
        let live = self.cluster.servers.get_mut(&ServerId(server)).unwrap();
        live.report.as_mut().unwrap().copies.insert(id, copy);
    }
}

#[test]
fn a_quiet_cluster_writes_nothing() {
    let mut scene = Scene::new(3, 3);
    let plan = scene.planner.step(&scene.cluster, scene.now);
    let errand = Errand::of(&scene.cluster, plan, MapBounds::default(), ME);
    let (note, act) = (None, None);
    assert_eq!(errand, Errand { note, act });
}

/// A master that has just begun waits for servers that it has not seen, unless another has found them lost.
#[test]
fn a_promotion_that_was_planned_is_done_at_once() {
    for planned in [false, true] {
        let mut scene = Scene::new(3, 3);
        scene.cluster.servers.remove(&ServerId(0));
        let job = planned.then(|| scene.job(JobKind::Promote, 0));
        assert_eq!(scene.round().len(), usize::from(planned));
        let Some(job) = job else {
            continue;
        };
        assert_eq!(scene.region().state, RegionState::Recovering);
        assert_eq!(scene.state(job), JobState::Acting);
        let found = scene.cluster.jobs.job(job).unwrap();
        assert_eq!((found.actor, found.attempts), (Some(ME), 2));
        for server in [1, 2] {
            scene.copy(server, CopyStatus::Whole, 10);
        }
        scene.now = scene.now + PlanSettings::default().absent_after;
        assert_eq!(scene.round().len(), 1);
        assert_eq!(scene.region().primary, ServerId(1));
        assert_eq!(scene.state(job), JobState::Done);
        assert_eq!(scene.cluster.jobs.jobs().len(), 1);
    }
}

#[test]
fn a_promotion_without_a_cause_is_dropped() {
    let mut scene = Scene::new(3, 3);
    let job = scene.job(JobKind::Promote, 0);
    assert!(scene.round().is_empty());
    assert_eq!(scene.state(job), JobState::Cancelled);
    assert_eq!(scene.region().epoch, Epoch(1));
}

#[test]
fn a_filling_that_was_planned_is_done_if_there_is_need() {
    for planned in [false, true] {
        let mut scene = Scene::new(4, 3);
        scene.wish(Wish {
            epoch: Epoch(1),
            remove: vec![ServerId(1)],
            ..Wish::default()
        });
        assert_eq!(scene.round().len(), 1);
        // The server that has left may return with a copy; so a spare is filled much later.
        scene.cluster.servers.remove(&ServerId(1));
        scene.now = scene.now + PlanSettings::default().absent_after;
        let job = planned.then(|| scene.job(JobKind::Fill, 3));
        assert_eq!(scene.round().len(), usize::from(planned));
        if let Some(job) = job {
            assert_eq!(scene.region().filling, [ServerId(3)]);
            assert_eq!(scene.state(job), JobState::Acting);
        }
    }
    let mut scene = Scene::new(4, 3);
    let job = scene.job(JobKind::Fill, 3);
    assert!(scene.round().is_empty());
    assert_eq!(scene.state(job), JobState::Cancelled, "nobody is lacking");
}

#[test]
fn a_removal_is_done_only_while_the_primary_asks_for_it() {
    for asked in [false, true] {
        let mut scene = Scene::new(3, 3);
        let job = scene.job(JobKind::Remove, 2);
        if asked {
            scene.wish(Wish {
                epoch: Epoch(1),
                remove: vec![ServerId(2)],
                ..Wish::default()
            });
        }
        assert_eq!(scene.round().len(), usize::from(asked));
        let state = if asked {
            JobState::Done
        } else {
            JobState::Cancelled
        };
        assert_eq!(scene.state(job), state);
    }
}

#[test]
fn what_a_person_has_cancelled_is_not_planned_again() {
    let mut scene = Scene::new(3, 3);
    scene.planner.see((0..3).map(ServerId));
    scene.cluster.servers.remove(&ServerId(0));
    let job = scene.job(JobKind::Promote, 0);
    let map = scene.cluster.map.clone();
    scene.cluster.jobs.cancel(job, &map).unwrap();
    assert!(scene.round().is_empty());
    assert_eq!(scene.region().state, RegionState::Serving);
    scene.cluster.jobs.retry(job, &map).unwrap();
    assert_eq!(scene.round().len(), 1);
    assert_eq!(scene.state(job), JobState::Acting);
}

/// Two of three members are lost for good, and the last has no whole copy.
#[test]
fn a_region_opens_with_what_is_left_by_order_alone() {
    let mut scene = Scene::new(3, 3);
    scene.planner.see((0..3).map(ServerId));
    for id in [0, 1] {
        scene.cluster.servers.remove(&ServerId(id));
    }
    assert_eq!(scene.round().len(), 1);
    scene.now = scene.now + PlanSettings::default().report_within;
    scene.copy(2, CopyStatus::Cut, 8);
    assert!(scene.round().is_empty());
    scene.now = scene.now + PlanSettings::default().report_within;
    assert!(scene.round().is_empty(), "nobody has ordered it");
    let region = scene.region().clone();
    let job = scene.cluster.jobs.order_recovery(&region).unwrap();
    assert_eq!(scene.round().len(), 1);
    let region = scene.region().clone();
    assert_eq!(
        (region.primary, region.claim.unwrap().lsn),
        (ServerId(2), Lsn(8))
    );
    assert_eq!(scene.state(job), JobState::Done);
    let open: Vec<_> = scene.cluster.jobs.open().collect();
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn an_order_that_cannot_be_carried_out_fails_and_says_why() {
    let mut scene = Scene::new(4, 3);
    scene.planner.see((0..4).map(ServerId));
    for id in [0, 1] {
        scene.cluster.servers.remove(&ServerId(id));
    }
    assert_eq!(scene.round().len(), 1);
    let region = scene.region().clone();
    let job = scene.cluster.jobs.order_recovery(&region).unwrap();
    assert!(scene.round().is_empty());
    assert_eq!(
        scene.state(job),
        JobState::Planned,
        "whoever is there has time to report"
    );
    scene.copy(2, CopyStatus::Partial, 8);
    scene.now = scene.now + PlanSettings::default().report_within;
    assert!(scene.round().is_empty());
    assert_eq!(scene.state(job), JobState::Failed);
    // Somebody who is no member has a copy. No member has obeyed: the primary before may serve.
    let mut scene = Scene::new(4, 3);
    scene.planner.see((0..4).map(ServerId));
    let mut region = scene.region().clone();
    region.state = RegionState::Recovering;
    region.filling = vec![ServerId(3)];
    scene.cluster.map = scene
        .cluster
        .map
        .with_regions(vec![region.clone()])
        .unwrap()
        .into();
    for id in [0, 1, 2] {
        scene.cluster.servers.remove(&ServerId(id));
    }
    scene.copy(3, CopyStatus::Cut, 8);
    let job = scene.cluster.jobs.order_recovery(&region).unwrap();
    assert!(scene.round().is_empty());
    scene.now = scene.now + PlanSettings::default().report_within;
    assert!(scene.round().is_empty());
    assert_eq!(scene.state(job), JobState::Failed);
}

#[test]
fn what_has_no_room_in_the_log_waits() {
    let mut scene = Scene::new(3, 3);
    let region = scene.region().clone();
    for _ in 0..argosy_coordinator::jobs::OPEN_MAX {
        scene.cluster.jobs.order_recovery(&region).unwrap();
    }
    scene.wish(Wish {
        epoch: Epoch(1),
        remove: vec![ServerId(2)],
        ..Wish::default()
    });
    let plan = scene.planner.step(&scene.cluster, scene.now);
    assert_eq!(plan.steps.len(), 1);
    // What is moot would make room.
    let plan = MasterPlan {
        moot: Vec::new(),
        ..plan
    };
    let errand = Errand::of(&scene.cluster, plan, MapBounds::default(), ME);
    assert_eq!(errand.act, None);
}
