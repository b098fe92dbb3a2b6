//! The servers of a run: what of them outlives a process, and how a process begins and ends.
//!
//! A server's device and windows belong to its machine. A process has a [`Node`] on them, reached
//! through wrappers that let it die at any instant ([`crate::crash_point`]). A kill leaves the windows
//! and decides what becomes of device writes under way; a power loss takes the windows, and with
//! them what the device had not made durable.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use argosy_base::{Clock, Instant, Moment, RegionId, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_device::{Crash, MemoryDevice, Store, StoreSettings};
use argosy_engine::conformance::toy;
use argosy_fabric::SimWorld;
use argosy_server::activity::Ledger;
use argosy_server::node::{Node, Wakers, World};
use argosy_server::service::{ReplySink, Response};
use argosy_server::tasks::Tasks;
use parking_lot::Mutex;

use crate::clock::{BEGAN, ServerClock, SimClock};
use crate::coverage::{Coverage, Mode};
use crate::crash_point::{CrashPoint, CrashingDevice, CrashingFabric, CrashingWindows};
use crate::engine::{Chosen, Reader};
use crate::objects::Objects;
use crate::plan::Plan;
use crate::planted::Mutants;
use crate::random::Random;
use crate::windows::MachineWindows;
use crate::wire::Wire;
use coordination::{Attending, Coordination};
use counting::{count_device, count_fabric, count_node, segments};
use halting::{HaltedStep, Ran, StepKind};
use harm::Spoilt;
use parked::{Alarm, Parked};
use setup::{StartSettings, machines, map, node_settings};

pub(crate) mod coordination;
mod counting;
pub(crate) mod halting;
mod handle;
mod harm;
mod jobs;
pub(crate) mod parked;
mod setup;

pub(crate) use harm::REFUSED;

/// Processes that were stopped inside a step.
pub(crate) const HALTS: &str = "stops inside a step";

/// Segments of a device that neither fills nor holds many.
const SEGMENTS: u64 = 4096;

/// Requests that wait for a server's worker, at most: few, so that there are more now and then.
const TASKS_MAX: usize = 4;

/// Where a process's late answers arrive, until it dies.
pub(crate) struct Mailbox {
    crash_point: Arc<CrashPoint>,
    answers: Mutex<Vec<(u64, Response)>>,
}

impl Mailbox {
    /// The answers that have arrived since the last call.
    pub(crate) fn take(&self) -> Vec<(u64, Response)> {
        std::mem::take(&mut self.answers.lock())
    }
}

impl ReplySink for Mailbox {
    fn deliver(&self, token: u64, response: Response) {
        if !self.crash_point.is_dead() {
            let mut answers = self.answers.lock();
            answers.push((token, response));
        }
    }
}

/// A process.
pub(crate) struct Up {
    /// The server without its threads.
    pub node: Arc<Node>,
    /// Its segments.
    pub store: Arc<Store>,
    /// What waits for its worker.
    pub tasks: Arc<Tasks>,
    /// Its life.
    pub crash_point: Arc<CrashPoint>,
    /// Its answers.
    pub mailbox: Arc<Mailbox>,
    /// Which of all processes of the run it is.
    pub session: u32,
    /// What it does at present.
    doing: Doing,
    /// It is stopped inside a step, at the look at its clock after so many more.
    halts_after: Option<u64>,
    /// Since when it has been doing something without a break.
    pub since: Instant,
    /// When its threads go on that wait.
    parked: Parked,
    /// What it does in a cluster whose groups change.
    attending: Option<Attending>,
}

/// What a process does.
enum Doing {
    /// Its steps.
    Steps,
    /// Nothing: it was stopped between two steps.
    Nothing,
    /// Nothing: it was stopped inside a step of this kind.
    Halted(StepKind, HaltedStep),
}

/// A machine.
struct Server {
    device: Arc<MemoryDevice>,
    windows: MachineWindows,
    clock: Arc<ServerClock>,
    /// An operator says that the device is not the one that the map names, but takes its place.
    new_device: bool,
    /// Bits of its manifests that are flipped for a while.
    spoilt: Vec<Spoilt>,
    stalled: bool,
    /// In how many of 100 moments the device goes on.
    pace: usize,
    up: Option<Up>,
    /// Regions of which the process that ended last had whole copies, which memory keeps.
    whole: BTreeSet<RegionId>,
}

/// An open node and the store that it runs on.
struct Opened {
    node: Arc<Node>,
    store: Arc<Store>,
    tasks: Arc<Tasks>,
    /// When its threads go on.
    parked: Parked,
}

/// How a start went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// It runs.
    Up,
    /// It died again, as was planned.
    Died,
    /// It refused.
    Refused(String),
}

/// See the module documentation.
pub(crate) struct Cluster {
    /// The fabric.
    pub world: SimWorld,
    /// What they write to each other over.
    pub wire: Arc<Wire>,
    /// The time.
    pub clock: Arc<SimClock>,
    /// Who has what.
    pub map: ClusterMap,
    /// What has happened.
    pub coverage: Coverage,
    /// What reads the checkpoints of copies.
    pub reader: Box<dyn Reader>,
    starts: StartSettings,
    /// What becomes of files when power is lost.
    powerless: Random,
    servers: Vec<Server>,
    sessions: u32,
    /// What changes groups, where they change.
    coordination: Option<Coordination>,
}

impl Cluster {
    /// Machines with formatted devices, all down.
    pub(crate) fn new(
        plan: &Plan,
        objects: &Objects,
        mutants: Mutants,
        random: &mut Random,
    ) -> Self {
        let lsm = plan.engine.clone().with(|of| of.mutants = mutants.engine);
        let toy = plan.toy.map(|toy| toy::Settings {
            mutants: mutants.toy,
            ..toy
        });
        let engine = Chosen { lsm, toy };
        let reader = engine.reader();
        let settings = node_settings(plan, mutants, engine);
        let clock = Arc::<SimClock>::default();
        let servers = machines(plan, mutants, &clock, random);
        let map = map(plan, objects);
        let failover = plan.groups.changes.as_ref();
        let coordination = failover.map(|of| Coordination::new(of, mutants.master, &map, &clock));
        Self {
            servers,
            coordination,
            world: SimWorld::with_settings(random.next(), plan.links.fabric.clone()),
            wire: Arc::new(Wire::new(random.clone())),
            clock,
            map,
            coverage: Coverage::of(Mode::of(plan.kind, plan.groups.builds, &plan.engine)),
            reader,
            starts: StartSettings::new(settings, plan),
            powerless: random.clone(),
            sessions: 0,
        }
    }

    /// The present moment.
    #[must_use]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The same by the clock of a server.
    #[must_use]
    pub(crate) fn server_now(&self, server: usize) -> Instant {
        self.servers[server].clock.now()
    }

    /// The indices of all servers.
    #[must_use]
    pub(crate) fn indices(&self) -> Range<usize> {
        0..self.servers.len()
    }

    /// The process of a server, if there is one.
    #[must_use]
    pub(crate) fn up(&self, server: usize) -> Option<&Up> {
        self.servers[server].up.as_ref()
    }

    /// The process of a server, if there is one that does something.
    #[must_use]
    pub(crate) fn active(&self, server: usize) -> Option<&Up> {
        let up = self.up(server);
        up.filter(|up| matches!(up.doing, Doing::Steps))
    }

    /// The process of a server, if there is one that is not inside a step: then its node may be asked.
    #[must_use]
    pub(crate) fn between_steps(&self, server: usize) -> Option<&Up> {
        let up = self.up(server);
        up.filter(|up| !matches!(up.doing, Doing::Halted(..)))
    }

    /// Whether the process of a server is stopped inside a step.
    #[must_use]
    pub(crate) fn is_halted(&self, server: usize) -> bool {
        self.up(server).is_some() && self.between_steps(server).is_none()
    }

    /// The index of the primary of a region.
    #[must_use]
    pub(crate) fn primary_of(&self, region: usize) -> usize {
        self.map.regions()[region].primary.0 as usize
    }

    /// Why not every region is whole, or `None`.
    #[must_use]
    pub(crate) fn lacks(&self) -> Option<String> {
        use argosy_server::service::Service;
        self.indices()
            .find_map(|server| match self.active(server) {
                None => Some(format!("server {server} is not up")),
                Some(up) => match (up.node.ready().lacks, up.node.inspect().peer_apart()) {
                    (Some(why), _) => Some(format!("server {server}: {why}")),
                    (None, Some(peer)) => Some(format!("server {server} has no link to {peer}")),
                    (None, None) => None,
                },
            })
            .or_else(|| self.lacks_of_groups())
    }

    /// Copies that cannot be used, and why, for a report.
    #[must_use]
    pub(crate) fn failed_copies(&self) -> String {
        let mut failed = String::new();
        for server in self.indices() {
            for region in self.map.regions() {
                let state = self
                    .up(server)
                    .map(|up| up.node.inspect().copy_state(region.id));
                if let Some(Err(why)) = state {
                    let _ = write!(failed, "; {} on server {server}: {why}", region.id);
                }
            }
        }
        failed
    }

    // --- Counting ---

    /// Segments of the levels and of the logs that the copies on a server consist of.
    #[must_use]
    pub(crate) fn segments_of(&self, server: usize) -> (usize, usize) {
        let up = self.up(server);
        up.map_or((0, 0), |up| segments(&up.node, &*self.reader))
    }

    /// Counts what devices and fabric have done. Once, at the end.
    pub(crate) fn count_faults(&mut self) {
        for server in &self.servers {
            count_device(&server.device, &mut self.coverage);
        }
        count_fabric(&self.world, &self.wire, &mut self.coverage);
    }

    // --- Beginnings and ends ---

    /// Starts a process on a machine that has none.
    pub(crate) fn start(&mut self, server: usize, die_after: Option<u64>) -> Started {
        let id = id(server);
        self.sessions += 1;
        self.coverage.add("starts", 1);
        let machine = &mut self.servers[server];
        assert!(machine.up.is_none(), "a machine has one process");
        machine.windows = machine.windows.restart();
        let crash_point = CrashPoint::new(id, self.world.clone(), machine.windows.clone());
        if let Some(effects) = die_after {
            crash_point.die_after(effects);
        }
        let opened = self
            .own(server)
            .and_then(|()| self.open(server, &crash_point));
        if crash_point.is_dead() {
            self.coverage.add("deaths while starting", 1);
            drop(opened);
            self.crash(server, Crash::Kill);
            return Started::Died;
        }
        crash_point.die_after(u64::MAX);
        match opened {
            Ok(opened) => {
                let mailbox = Mailbox {
                    crash_point: Arc::clone(&crash_point),
                    answers: Mutex::default(),
                };
                let attending = self.coordination.as_ref().map(|of| {
                    let now = self.servers[server].clock.now();
                    of.attend(server, &opened.node, &crash_point, now)
                });
                self.servers[server].up = Some(Up {
                    attending,
                    node: opened.node,
                    store: opened.store,
                    tasks: opened.tasks,
                    crash_point,
                    mailbox: Arc::new(mailbox),
                    session: self.sessions,
                    doing: Doing::Steps,
                    halts_after: None,
                    since: self.clock.now(),
                    parked: opened.parked,
                });
                Started::Up
            }
            Err(error) => Started::Refused(error),
        }
    }

    fn open(&self, server: usize, crash_point: &Arc<CrashPoint>) -> Result<Opened, String> {
        let machine = &self.servers[server];
        let device = CrashingDevice {
            inner: Arc::clone(&machine.device),
            crash_point: Arc::clone(crash_point),
            clock: Arc::clone(&self.clock),
            cost: self.starts.read_cost,
        };
        let settings = StoreSettings {
            reserve_segments: self.starts.reserves[server],
        };
        let store = Store::open(Arc::new(device), &settings);
        let store = store.map_err(|error| error.to_string())?;
        let windows = CrashingWindows {
            inner: machine.windows.store(),
            crash_point: Arc::clone(crash_point),
        };
        let fabric = Arc::new(CrashingFabric::start(
            &self.world,
            store.incarnation(),
            Arc::clone(crash_point),
            Arc::clone(&self.wire),
        ));
        let alarm = Alarm::default();
        let parked = Parked::new(Arc::<CrashingFabric>::clone(&fabric), alarm.clone());
        let world = World {
            clock: Arc::clone(&machine.clock) as Arc<dyn Clock>,
            ledger: Arc::new(Ledger::new(
                Arc::clone(&self.clock) as Arc<dyn Clock>,
                std::iter::empty(),
            )),
            store: Arc::clone(&store),
            windows: Arc::new(windows),
            fabric,
            wakers: Wakers::of_one(alarm.waker()),
            resident: || None,
            trim_allocator: || {},
        };
        let node = Node::open(
            id(server),
            self.starts.node.clone(),
            world,
            self.map.clone(),
        );
        let node = node.map_err(|error| error.to_string())?;
        let tasks = Arc::new(Tasks::new(TASKS_MAX));
        node.set_tasks(Arc::clone(&tasks));
        Ok(Opened {
            node,
            store,
            tasks,
            parked,
        })
    }

    /// Ends the process of a server, if there is one, at once. Returns which it was.
    pub(crate) fn kill(&mut self, server: usize) -> Option<u32> {
        let up = self.take_down(server)?;
        self.coverage.add("kills", 1);
        self.crash(server, Crash::Kill);
        if self.indices().all(|server| self.up(server).is_none()) {
            self.coverage.add("kills of all", 1);
        }
        Some(up.session)
    }

    /// Stops the process of a server as it should be. Returns which it was.
    pub(crate) fn close(&mut self, server: usize) -> Option<u32> {
        self.up(server)?.node.close();
        let up = self.take_down(server)?;
        self.coverage.add("clean stops", 1);
        self.servers[server].device.run_all();
        self.crash(server, Crash::Kill);
        Some(up.session)
    }

    /// Takes power from servers together. Returns which processes were ended.
    pub(crate) fn cut_power(&mut self, servers: &[usize]) -> Vec<u32> {
        let mut ended = Vec::new();
        for server in servers {
            ended.extend(self.take_down(*server).map(|up| up.session));
            self.world.cut_power(id(*server));
            let stale = self.servers[*server]
                .windows
                .lose_power(&mut self.powerless);
            self.coverage.add("windows of another boot", stale);
            self.crash(*server, Crash::PowerLoss);
            self.coverage.add("power losses", 1);
        }
        self.coverage
            .add("power losses of two", u64::from(servers.len() == 2));
        ended
    }

    /// Takes the process away, and counts what it had done.
    fn take_down(&mut self, server: usize) -> Option<Up> {
        let mut up = self.servers[server].up.take()?;
        up.crash_point.kill();
        // What is left of a step has no effect any more.
        up.doing = Doing::Nothing;
        self.note_whole(server, &up.node);
        count_node(&up.node, &mut self.coverage);
        Some(up)
    }

    fn crash(&mut self, server: usize, kind: Crash) {
        let machine = &mut self.servers[server];
        if kind == Crash::PowerLoss {
            machine.whole.clear();
        }
        machine.device = Arc::new(machine.device.crash(kind));
    }

    /// The process died in the middle of a step.
    pub(crate) fn bury(&mut self, server: usize) -> Option<u32> {
        let dead = self.up(server).is_some_and(|up| up.crash_point.is_dead());
        let session = dead.then(|| self.kill(server)).flatten();
        self.coverage
            .add("kills in the middle", u64::from(session.is_some()));
        session
    }

    // --- Steps ---

    /// A step of the thread that moves links and messages, if it would do one. Returns whether anything was made.
    pub(crate) fn step_fabric(&mut self, server: usize) -> bool {
        let now = self.server_now(server);
        let always = !self.starts.when_due;
        let up = self.servers[server].up.as_mut();
        let Some(up) = up.filter(|up| matches!(up.doing, Doing::Steps)) else {
            return false;
        };
        (up.parked.is_fabric_awake(now) || always) && self.step(server, StepKind::Fabric, now)
    }

    /// A step of a worker. Returns whether it found something to do.
    pub(crate) fn step_worker(&mut self, server: usize) -> bool {
        let now = self.server_now(server);
        self.active(server).is_some() && self.step(server, StepKind::Worker, now)
    }

    /// A step of the thread in the background, if it would do one. Returns whether anything was made.
    pub(crate) fn step_background(&mut self, server: usize) -> bool {
        let now = self.server_now(server);
        let always = !self.starts.when_due;
        let Some(up) = self.active(server) else {
            return false;
        };
        (up.parked.is_background_awake(now) || always)
            && self.step(server, StepKind::Background, now)
    }

    /// A step of a process that does some, which may be stopped inside. Returns whether anything was made.
    fn step(&mut self, server: usize, kind: StepKind, now: Instant) -> bool {
        let machine = &mut self.servers[server];
        let up = machine.up.as_mut().expect("the caller has looked");
        let Some(looks) = up.halts_after else {
            let progress = kind.run(&up.node, &up.tasks, now);
            up.parked.stepped(kind, now, &progress);
            return progress.made;
        };
        let (node, tasks) = (Arc::clone(&up.node), Arc::clone(&up.tasks));
        let step = move || kind.run(&node, &tasks, now);
        match machine.clock.halt().run(looks, step) {
            Ran::Ended(progress, left) => {
                up.halts_after = Some(left);
                up.parked.stepped(kind, now, &progress);
                progress.made
            }
            Ran::Halted(step) => {
                up.halts_after = None;
                (up.doing, up.since) = (Doing::Halted(kind, step), self.clock.now());
                self.world.stop(id(server));
                self.coverage.add(HALTS, 1);
                true
            }
        }
    }

    // --- Time ---

    /// What clocks on walls should show.
    #[must_use]
    pub(crate) fn right_time(&self) -> Moment {
        BEGAN.after(self.now().as_nanos() / 1_000_000)
    }

    /// What the clock on a server's wall shows.
    #[must_use]
    pub(crate) fn wall(&self, server: usize) -> Moment {
        self.servers[server].clock.wall()
    }

    /// When the run would have begun by it.
    #[must_use]
    pub(crate) fn wall_began(&self, server: usize) -> Moment {
        let passed = self.right_time().since(BEGAN);
        Moment(self.wall(server).0 - passed)
    }

    /// Sets it.
    pub(crate) fn set_wall(&mut self, server: usize, began: Moment) {
        let before = self.wall(server);
        self.servers[server].clock.set(began);
        let back = self.wall(server) < before;
        self.coverage.add("clocks set back", u64::from(back));
    }
}

/// The name of a server.
#[must_use]
pub(crate) fn id(server: usize) -> ServerId {
    ServerId(u32::try_from(server).expect("a handful of servers"))
}
