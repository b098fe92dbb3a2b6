//! Masters that die, or are cut off, at each of their requests, while another takes over.
//!
//! A story: a server is lost, and its regions get other primaries, and its groups go on without it; it returns, and is
//! filled, and a member again. An *eye* looks at the coordinator after each request:
//!
//! - nothing is done to a region without an open job that was there before;
//! - who writes log or map holds the election at that moment, and the jobs that have changed name its session.
//!
//! In the end all is as if nobody had died, the regions' epochs as well: what a job says is done once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use argosy_base::Epoch;
use argosy_coordinator::{
    ClusterMap, CopyStatus, InMemory, JobKind, JobLog, JobState, Region, RegionState,
};

use crate::settings::MapBounds;

use super::tests::{Stage, TIMES, read, stored};
use super::*;

/// Each region lies in a shard of its own, and one shard is written at a time: so a master may die between any two
/// regions of a job.
fn settings() -> PlanSettings {
    PlanSettings {
        map: MapBounds {
            shard_bytes: 1,
            change_bytes: 1,
        },
        ..super::tests::settings()
    }
}

/// When a master dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Before it asks.
    Unasked,
    /// After what it asked for has come to pass.
    Unanswered,
    /// It is cut off as it asks. What it has asked for arrives later.
    CutOff,
}

/// What befalls a master, and how often it has asked.
#[derive(Debug, Default)]
struct Fuse {
    asked: u32,
    /// Which of its requests change something.
    changes: Vec<u32>,
    fate: Option<(u32, Fate)>,
    is_dead: bool,
}

/// See the module documentation.
struct Eye {
    observer: InMemory,
    map: ClusterMap,
    log: JobLog,
    /// What is wrong.
    wrong: Vec<String>,
}

impl Eye {
    fn look(&mut self, asker: SessionState, now: Instant) {
        let map = stored(&mut self.observer, now).unwrap().map;
        let map = Arc::unwrap_or_clone(map);
        let entry = read(&mut self.observer, JOBS_KEY, now);
        let log = JobLog::decode(&entry.value).unwrap();
        if map == self.map && log == self.log {
            return;
        }
        let owner = read(&mut self.observer, MASTER_KEY, now).owner;
        let asker = match asker {
            SessionState::None => None,
            SessionState::Alive(id) | SessionState::InDoubt(id) | SessionState::Expired(id) => {
                Some(id)
            }
        };
        if owner.is_none() || owner != asker {
            self.wrong
                .push(format!("{asker:?} acts, and {owner:?} is elected"));
        }
        let jobs = log.jobs();
        let new = jobs.filter(|job| self.log.job(job.id).ok() != Some(*job));
        for job in new.filter(|job| job.actor != owner) {
            self.wrong.push(format!("{owner:?} writes {job:?}"));
        }
        for (old, new) in self.map.regions().iter().zip(map.regions()) {
            for (kind, server) in happened(old, new) {
                let has = |job: &&argosy_coordinator::RedoJob| {
                    let open = job.state.is_open() && job.regions.contains_key(&old.id);
                    open && job.kind == kind && job.server == server
                };
                if !self.log.jobs().any(|job| has(&job)) {
                    self.wrong
                        .push(format!("{kind:?} of {server} in {old} without a job"));
                }
            }
        }
        (self.map, self.log) = (map, log);
    }
}

/// What has been done to a region.
fn happened(old: &Region, new: &Region) -> Vec<(JobKind, ServerId)> {
    let mut all = Vec::new();
    if new.state == RegionState::Recovering && old.state == RegionState::Serving
        || old.since < new.since
    {
        return vec![(JobKind::Promote, old.primary)];
    }
    let gone = old.members.iter().filter(|id| !new.members.contains(id));
    all.extend(gone.map(|id| (JobKind::Remove, *id)));
    let came = new.members.iter().filter(|id| !old.members.contains(id));
    let filled = new.filling.iter().filter(|id| !old.filling.contains(id));
    all.extend(came.chain(filled).map(|id| (JobKind::Fill, *id)));
    all
}

/// A master's handle.
struct Watched {
    inner: Arc<Mutex<InMemory>>,
    fuse: Arc<Mutex<Fuse>>,
    eye: Arc<Mutex<Eye>>,
    now: Instant,
}

impl Watched {
    fn look(&self) {
        let session = self.inner.lock().unwrap().session();
        self.eye.lock().unwrap().look(session, self.now);
    }
}

impl Coordinator for Watched {
    fn submit(&mut self, request: Request) -> RequestId {
        let fate = {
            let mut fuse = self.fuse.lock().unwrap();
            fuse.asked += 1;
            let asked = fuse.asked;
            if matches!(request, Request::Multi { .. }) {
                fuse.changes.push(asked);
            }
            let fate = fuse
                .fate
                .filter(|(at, _)| *at == asked)
                .map(|(_, fate)| fate);
            fuse.is_dead |= matches!(fate, Some(Fate::Unasked | Fate::Unanswered));
            match fate {
                None if fuse.is_dead => Some(Fate::Unasked),
                fate => fate,
            }
        };
        if fate == Some(Fate::Unasked) {
            return RequestId(u64::MAX);
        }
        let id = self.inner.lock().unwrap().submit(request);
        match fate {
            Some(Fate::CutOff) => self.inner.lock().unwrap().cut_off(true),
            Some(Fate::Unanswered) => loop {
                let event = self.inner.lock().unwrap().poll(self.now);
                self.look();
                match event {
                    Some(CoordinatorEvent::Ended { id: ended, .. }) if ended == id => break,
                    _ => {}
                }
            },
            _ => {}
        }
        id
    }

    fn watch(&mut self, key: &str) -> Result<(), CoordinatorError> {
        self.inner.lock().unwrap().watch(key)
    }

    fn session(&self) -> SessionState {
        self.inner.lock().unwrap().session()
    }

    fn poll(&mut self, now: Instant) -> Option<CoordinatorEvent> {
        self.now = now;
        if self.fuse.lock().unwrap().is_dead {
            return None;
        }
        let event = self.inner.lock().unwrap().poll(now);
        self.look();
        event
    }
}

/// How a story ends.
#[derive(Debug, PartialEq, Eq)]
struct End {
    /// Epochs and members of the regions.
    groups: Vec<(Epoch, BTreeSet<ServerId>)>,
    /// How many jobs of which kind have ended how.
    jobs: Vec<(JobKind, JobState)>,
}

/// A story that has been told.
#[derive(Debug)]
struct Told {
    end: End,
    /// How often the first master has asked.
    asked: u32,
    /// Which of these change something.
    changes: Vec<u32>,
    wrong: Vec<String>,
    /// Jobs that another master has taken up.
    taken_over: usize,
}

/// A stage whose masters are watched.
struct Theatre {
    stage: Stage,
    eye: Arc<Mutex<Eye>>,
    fuses: Vec<Arc<Mutex<Fuse>>>,
    /// The master that leads first.
    leader: usize,
}

impl Theatre {
    fn new(mutants: Mutants) -> Self {
        let mut stage = Stage::new(2, 3, mutants);
        let eye = Arc::new(Mutex::new(Eye {
            observer: stage.observer.clone(),
            map: stage.map(),
            log: JobLog::default(),
            wrong: Vec::new(),
        }));
        let fuses: Vec<Arc<Mutex<Fuse>>> = (0..2).map(|_| Arc::default()).collect();
        let masters = (0..).zip(stage.handles.iter().zip(&fuses));
        let masters = masters.map(|(id, (inner, fuse))| {
            let handle = Watched {
                inner: Arc::clone(inner),
                fuse: Arc::clone(fuse),
                eye: Arc::clone(&eye),
                now: stage.now,
            };
            let master = Master::new(Box::new(handle), ServerId(id), settings(), TIMES, stage.now);
            master.with_mutants(settings(), mutants, stage.now)
        });
        stage.masters = masters.collect();
        stage
            .players
            .iter_mut()
            .for_each(|player| player.wishes = true);
        stage.pass(300);
        let [leader] = stage.leaders()[..] else {
            panic!("{:?} lead", stage.leaders());
        };
        Self {
            stage,
            eye,
            fuses,
            leader,
        }
    }

    /// From now on it is counted what the leader asks, and this befalls it.
    fn doom(&self, fate: Option<(u32, Fate)>) {
        *self.fuses[self.leader].lock().unwrap() = Fuse {
            fate,
            ..Fuse::default()
        };
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 5 {
            self.stage.pass(5);
            // Whoever was cut off is heard from again when another leads.
            if self.stage.masters[1 - self.leader].role() == MasterRole::Leading {
                self.stage.handle(self.leader).cut_off(false);
            }
        }
    }

    fn log(&mut self) -> JobLog {
        let entry = read(&mut self.stage.observer, JOBS_KEY, self.stage.now);
        JobLog::decode(&entry.value).unwrap()
    }

    /// A person orders that the regions without a primary open with what is left, and one that has one.
    fn order(&mut self) {
        let entry = read(&mut self.stage.observer, JOBS_KEY, self.stage.now);
        let mut log = JobLog::decode(&entry.value).unwrap();
        for region in self.stage.map().regions() {
            log.order_recovery(region).unwrap();
        }
        let request = Request::CompareAndSet {
            key: JOBS_KEY.to_owned(),
            expected: entry.version,
            value: log.encode(),
        };
        super::tests::ask(&mut self.stage.observer, request, self.stage.now).unwrap();
        self.eye.lock().unwrap().log = log;
    }

    fn told(mut self, fate: Option<(u32, Fate)>) -> Told {
        assert!(self.stage.is_served(), "{fate:?}: {}", self.stage.map());
        let log = self.log();
        let map = self.stage.map();
        let group = |region: &Region| {
            assert!(region.filling.is_empty(), "{fate:?}: {region}");
            (region.epoch, region.members.iter().copied().collect())
        };
        let mut jobs: Vec<_> = log.jobs().map(|job| (job.kind, job.state)).collect();
        jobs.sort_unstable();
        let fuse = self.fuses[self.leader].lock().unwrap();
        Told {
            end: End {
                groups: map.regions().iter().map(group).collect(),
                jobs,
            },
            asked: fuse.asked,
            changes: fuse.changes.clone(),
            wrong: self.eye.lock().unwrap().wrong.clone(),
            taken_over: log.jobs().filter(|job| job.attempts > 1).count(),
        }
    }
}

/// Tells the story, with a fate for the master that leads first.
fn tell(mutants: Mutants, fate: Option<(u32, Fate)>) -> Told {
    let mut theatre = Theatre::new(mutants);
    theatre.doom(fate);
    theatre.stage.players[0].up = false;
    theatre.pass(1500);
    theatre.stage.players[0].up = true;
    theatre.pass(1200);
    theatre.told(fate)
}

/// Another story: two of three servers are lost for good, the third has lost its power, and a person orders that the
/// regions open with what it has.
fn tell_of_an_order(fate: Option<(u32, Fate)>) -> Told {
    let mut theatre = Theatre::new(Mutants::default());
    theatre.stage.players[0].up = false;
    theatre.stage.players[1].up = false;
    theatre.stage.players[2].copies = CopyStatus::Cut;
    theatre.pass(900);
    assert!(!theatre.stage.is_served(), "nobody has ordered it");
    theatre.order();
    theatre.doom(fate);
    theatre.pass(1500);
    theatre.told(fate)
}

#[test]
fn a_master_may_die_at_any_of_its_requests() {
    let undisturbed = tell(Mutants::default(), None);
    assert_eq!(undisturbed.wrong, Vec::<String>::new());
    let done = |kind| (kind, JobState::Done);
    let kinds = [JobKind::Promote, JobKind::Remove, JobKind::Fill];
    assert_eq!(undisturbed.end.jobs, kinds.map(done));
    assert_eq!(undisturbed.taken_over, 0);
    let mut taken_over = 0;
    // To die before a read is to die after the change before; a few of these do.
    let is_tried = |at: &u32| undisturbed.changes.contains(at) || at.is_multiple_of(11);
    let unasked = (1..=undisturbed.asked).filter(is_tried);
    let unasked = unasked.map(|at| (at, Fate::Unasked));
    let unanswered = undisturbed.changes.iter().map(|at| (*at, Fate::Unanswered));
    for fate in unasked.chain(unanswered) {
        let told = tell(Mutants::default(), Some(fate));
        assert_eq!(told.wrong, Vec::<String>::new(), "{fate:?}");
        assert_eq!(told.end, undisturbed.end, "{fate:?}");
        taken_over += told.taken_over;
    }
    assert!(taken_over > 5, "{taken_over}");
}

#[test]
fn an_order_is_carried_out_whoever_dies() {
    let undisturbed = tell_of_an_order(None);
    assert_eq!(undisturbed.wrong, Vec::<String>::new());
    let of = |kind| undisturbed.end.jobs.iter().filter(move |job| job.0 == kind);
    // The third region is served, which is why its order fails.
    let states: Vec<_> = of(JobKind::Recover).map(|job| job.1).collect();
    let states_due = [JobState::Done, JobState::Done, JobState::Failed];
    assert_eq!(states, states_due);
    assert!(!undisturbed.changes.is_empty());
    for at in &undisturbed.changes {
        for fate in [Fate::Unasked, Fate::Unanswered, Fate::CutOff] {
            let told = tell_of_an_order(Some((*at, fate)));
            assert_eq!(told.wrong, Vec::<String>::new(), "{fate:?} at {at}");
            assert_eq!(told.end, undisturbed.end, "{fate:?} at {at}");
        }
    }
}

#[test]
fn a_master_that_was_cut_off_does_nothing_more() {
    let undisturbed = tell(Mutants::default(), None);
    assert!(undisturbed.changes.len() >= 6, "{:?}", undisturbed.changes);
    for at in undisturbed.changes {
        let told = tell(Mutants::default(), Some((at, Fate::CutOff)));
        assert_eq!(told.wrong, Vec::<String>::new(), "at {at}");
        assert_eq!(told.end, undisturbed.end, "at {at}");
    }
}

#[test]
fn a_note_behind_the_act_is_found() {
    let mut mutants = Mutants::default();
    assert!(mutants.plant("note_after_act"));
    let told = tell(mutants, None);
    assert!(
        told.wrong
            .iter()
            .any(|wrong| wrong.ends_with("without a job")),
        "{told:?}"
    );
}

#[test]
fn two_masters_at_one_job_are_found() {
    let mut mutants = Mutants::default();
    assert!(mutants.plant("act_unelected"));
    let found = tell(mutants, None).changes.into_iter().find(|at| {
        let told = tell(mutants, Some((*at, Fate::CutOff)));
        told.wrong.iter().any(|wrong| wrong.ends_with("is elected"))
    });
    assert!(found.is_some());
}
