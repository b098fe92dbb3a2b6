//! Three servers with one region whose group the test changes, each on a device that may be full, and a client. Used by
//! [`regrouping_tests`](super).
//!
//! 1. *Asking*: what was begun is settled by its answer ([`trio_model_tests`](super::trio_model_tests)).
//! 2. *Changing*: the map is written as a master would, from what servers report and wish.
//! 3. *Judging*: what has to hold then ([`trio_judging_tests`](super::trio_judging_tests)).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{AddressMode, Clock, Epoch, Instant, KeyRange, RegionId, ServerId, Standing};
use argosy_coordinator::{
    ClusterId, ClusterMap, CopyReport, CopyStatus, PromotionClaim, Region as MapRegion,
    RegionState, Replication, Server,
};
use argosy_device::{FormatOptions, MemoryDevice, Purpose, SegmentHandle, Store, StoreSettings};
use argosy_engine::stats::Stats;
use argosy_engine::{Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::{SimSettings, SimWorld};
use argosy_lsm::{Compaction, Settings};
use argosy_memory::AnonymousWindows;

use super::trio_judging_tests::Names;
use super::trio_model_tests::{Effect, Model, Told, key_of, value_of};
use crate::activity::Ledger;
use crate::node::readers_tests::{Answers, StoppedClock, set_clock};
use crate::node::region::Driver;
use crate::node::{LinkSettings, MemoryParts, Node, NodeSettings, Wakers, World};
use crate::service::{ReplySink, ReplyTo, Request, Service};

pub(super) const REGION: RegionId = RegionId(1);
/// Segments of a device: more than twice what a server keeps for deletes and merges.
const DEVICE_SEGMENTS: u64 = 400;
pub(super) const SERVERS: usize = 3;
/// Steps of a quarter of a millisecond in which something has to happen that is waited for.
const STEPS_MAX: usize = 80_000;

/// How members become equal, and what their pointers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) replication: Replication,
    pub(super) addresses: AddressMode,
    pub(super) compaction: Compaction,
}

const fn mode(replication: Replication, addresses: AddressMode, compaction: Compaction) -> Mode {
    Mode {
        replication,
        addresses,
        compaction,
    }
}

/// All modes that have copies.
pub(super) const MODES: [Mode; 6] = [
    mode(
        Replication::SendIndex,
        AddressMode::Logical,
        Compaction::Partial,
    ),
    mode(
        Replication::SendIndex,
        AddressMode::Logical,
        Compaction::WholeLevel,
    ),
    mode(
        Replication::SendIndex,
        AddressMode::Rewrite,
        Compaction::Partial,
    ),
    mode(
        Replication::SendIndex,
        AddressMode::Rewrite,
        Compaction::WholeLevel,
    ),
    mode(
        Replication::BuildIndex,
        AddressMode::Logical,
        Compaction::Partial,
    ),
    mode(
        Replication::BuildIndex,
        AddressMode::Rewrite,
        Compaction::WholeLevel,
    ),
];

/// See the module documentation.
pub(super) struct Trio {
    world: SimWorld,
    pub(super) nodes: [Arc<Node>; SERVERS],
    windows: [AnonymousWindows; SERVERS],
    devices: [Arc<MemoryDevice>; SERVERS],
    pub(super) is_up: [bool; SERVERS],
    /// What others have taken of each device.
    pub(super) hogs: [Vec<SegmentHandle>; SERVERS],
    /// They take whatever is given back, but the reserve.
    is_full: [bool; SERVERS],
    settings: NodeSettings,
    reserve: u32,
    pub(super) mode: Mode,
    pub(super) map: ClusterMap,
    pub(super) now: Instant,
    answers: Arc<Answers>,
    pub(super) model: Model,
    pub(super) names: Names,
}

pub(super) fn id(server: usize) -> ServerId {
    ServerId(u32::try_from(server).expect("three"))
}

fn map(mode: Mode) -> ClusterMap {
    let servers = (0..SERVERS).map(|server| Server {
        id: id(server),
        resp: format!("127.0.0.1:700{server}"),
        admin: format!("127.0.0.1:800{server}"),
    });
    let members = (0..SERVERS).map(id).collect();
    let region = MapRegion::first(REGION, KeyRange::all(), id(0), members);
    let map = ClusterMap::new(
        ClusterId(1),
        mode.replication,
        servers.collect(),
        vec![region],
    );
    map.expect("it is valid").with_addresses(mode.addresses)
}

fn engine(mode: Mode) -> Settings {
    Settings::small().with(|of| {
        of.cache_bytes = 0;
        of.check_frees = true;
        of.memtables.bytes = 12 << 10;
        of.memtables.log_bytes = 96 << 10;
        of.layout.node_bytes = 512;
        of.layout.segment_bytes = 24 << 10;
        of.layout.window_bytes = 8 << 10;
        of.layout.addresses = mode.addresses;
        of.levels.compaction = mode.compaction;
        of.levels.growth_factor = 3;
        of.levels.l1_runs = 2;
        of.levels.l1_runs_max = 8;
        of.levels.number_block = 16;
        of.levels.part_bytes = 72 << 10;
        of.levels.step_bytes = 4 << 10;
        of.values.large_bytes = 1000;
        of.logs.flush_interval = Duration::from_millis(10);
        of.space.amplification_max = 110;
        of.space.floor_bytes = Some(0);
    })
}

fn node_settings(engine: Settings) -> NodeSettings {
    NodeSettings {
        scrub: Default::default(),
        sweep: Default::default(),
        link: LinkSettings {
            ring_bytes: 64 << 10,
            slot_bytes: engine.layout.segment_bytes,
            part_bytes: 4 << 10,
        },
        engine: Arc::new(engine),
        memory: MemoryParts {
            answers: MemoryParts::answers_of(0),
            ..MemoryParts::default()
        },
        deadline: Duration::from_millis(200),
        failover_wait: Duration::ZERO,
        remove_after: Duration::from_secs(5),
        leases: None,
        mutants: Default::default(),
        replication_mutants: Default::default(),
    }
}

impl Trio {
    pub(super) fn new(mode: Mode) -> Self {
        set_clock(1);
        let world = SimWorld::with_settings(7, SimSettings::default());
        let engine = engine(mode);
        let reserve = engine.reserve_segments(1);
        let devices = std::array::from_fn(|server| {
            let bytes = DEVICE_SEGMENTS * argosy_base::SEGMENT_SIZE as u64;
            let device = MemoryDevice::eager(bytes, server as u64 + 1);
            let options = FormatOptions {
                device_id: server as u128 + 1,
                ..FormatOptions::default()
            };
            Store::format(&device, &options).expect("it is new");
            Arc::new(device)
        });
        let windows: [AnonymousWindows; SERVERS] = Default::default();
        let (settings, map) = (node_settings(engine), map(mode));
        let nodes = std::array::from_fn(|server| {
            let world = surroundings(&world, server, &devices[server], &windows[server], reserve);
            Node::open(id(server), settings.clone(), world, map.clone()).expect("it opens")
        });
        let mut trio = Self {
            world,
            nodes,
            windows,
            devices,
            is_up: [true; SERVERS],
            hogs: Default::default(),
            is_full: [false; SERVERS],
            settings,
            reserve,
            mode,
            map,
            now: Instant::from_nanos(1),
            answers: Arc::default(),
            model: Model::default(),
            names: Names::default(),
        };
        trio.open();
        trio
    }

    // --- Time ---

    /// Lets a quarter of a millisecond pass.
    pub(super) fn step(&mut self) {
        self.now = self.now + Duration::from_micros(250);
        self.world.step(self.now);
        set_clock(self.now.as_nanos());
        for server in 0..SERVERS {
            if self.is_full[server] {
                self.take_room(server);
            }
        }
        for (node, is_up) in self.nodes.iter().zip(self.is_up) {
            if is_up {
                node.step_fabric(self.now);
                node.step_background(self.now);
            }
        }
        let answers = std::mem::take(&mut *self.answers.0.lock());
        for (token, response) in answers {
            self.model.settle(token, &response);
        }
    }

    pub(super) fn run(&mut self, millis: u64) {
        for _ in 0..millis * 4 {
            self.step();
        }
    }

    /// Until `what` holds.
    pub(super) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        for _ in 0..STEPS_MAX {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!(
            "{:?}: it is never so: {what}\n{}",
            self.mode,
            self.in_words()
        );
    }

    /// Until the region serves, with all its members.
    pub(super) fn open(&mut self) {
        self.run_until("the region serves with all members", |trio| {
            let members = &trio.map.regions()[0].members;
            let region = trio.nodes[trio.primary()].region(REGION).expect("a member");
            let live = match &*region.driver() {
                Driver::Primary(driver) => {
                    let known = driver.machine().members();
                    let live = known.filter(|of| of.state == "live" && members.contains(&of.id));
                    live.count()
                }
                _ => 0,
            };
            live + 1 == members.len() && region.is_seated() && trio.shows()
        });
    }

    /// What there is to say where something goes wrong.
    pub(super) fn in_words(&self) -> String {
        let mut text = self.map.regions()[0].to_string();
        for (server, node) in self
            .nodes
            .iter()
            .enumerate()
            .filter(|(at, _)| self.is_up[*at])
        {
            let room = node.world.store.room();
            let failure = node.inspect().copy_failure(REGION);
            let space = node.inspect().space_in_words(REGION);
            text += &format!(
                "\nserver {server}: {:?}, {room:?}, failed: {failure:?}, {space:?}",
                node.ready()
            );
        }
        text
    }

    // --- Asking ---

    pub(super) fn primary(&self) -> usize {
        self.map.regions()[0].primary.0 as usize
    }

    pub(super) fn shows(&self) -> bool {
        self.nodes[self.primary()].inspect().shows(REGION)
    }

    fn ask(&mut self, request: Request<'_>, effect: Effect) {
        self.model.asked += 1;
        let token = self.model.asked;
        self.model.pending.insert(token, effect);
        let sink: Arc<dyn ReplySink> = Arc::clone(&self.answers) as _;
        let primary = self.primary();
        let begun = self.nodes[primary].call(request, Reach::Device, ReplyTo::new(&sink, token));
        self.nodes[primary].flush();
        if let Some(response) = begun.answered() {
            self.model.settle(token, &response);
        }
    }

    fn next_write(&mut self) -> u32 {
        self.model.writes += 1;
        self.model.writes
    }

    fn ask_to_write(&mut self, batch: &WriteBatch, effect: Effect) {
        let options = WriteOptions::default();
        self.ask(Request::Write { batch, options }, effect);
    }

    /// Begins to bind each of `keys` anew, in one batch.
    pub(super) fn put(&mut self, keys: impl IntoIterator<Item = u32>) {
        let write = self.next_write();
        let (mut batch, mut effect) = (WriteBatch::new(), Effect::new());
        for key in keys {
            batch
                .put(key_of(key), value_of(key, write))
                .expect("it is short");
            effect.push((key, Some(write)));
        }
        self.ask_to_write(&batch, effect);
    }

    /// Begins to remove each of `keys`, in one batch.
    pub(super) fn delete(&mut self, keys: impl IntoIterator<Item = u32>) {
        let (mut batch, mut effect) = (WriteBatch::new(), Effect::new());
        for key in keys {
            batch.delete(key_of(key)).expect("it is short");
            effect.push((key, None));
        }
        self.ask_to_write(&batch, effect);
    }

    /// Begins to remove `range`.
    pub(super) fn delete_range(&mut self, range: Range<u32>) {
        let effect = self
            .model
            .keys(range.clone())
            .map(|key| (key, None))
            .collect();
        let mut batch = WriteBatch::new();
        let range = KeyRange::new(key_of(range.start), Some(key_of(range.end)));
        batch.delete_range(&range).expect("it is short");
        self.ask_to_write(&batch, effect);
    }

    /// Begins to bulk-load `keys`, of which none is bound.
    pub(super) fn bulk_load(&mut self, keys: Range<u32>) {
        let write = self.next_write();
        let (mut batch, mut effect) = (WriteBatch::new(), Effect::new());
        for key in keys {
            batch
                .put(key_of(key), value_of(key, write))
                .expect("it is short");
            effect.push((key, Some(write)));
        }
        self.ask(Request::Ingest { batch: &batch }, effect);
    }

    /// Until everything that was asked is answered. Returns the answers since this was asked last.
    pub(super) fn settle(&mut self) -> Told {
        self.run_until("everything is answered", |trio| {
            trio.model.pending.is_empty()
        });
        std::mem::take(&mut self.model.told)
    }

    /// Whether something is not answered.
    pub(super) fn is_asking(&self) -> bool {
        !self.model.pending.is_empty()
    }

    /// Binds all of `keys` anew, in batches. All of it is applied.
    pub(super) fn write(&mut self, keys: Range<u32>) {
        let all: Vec<u32> = keys.collect();
        self.settle();
        for batch in all.chunks(8) {
            // What was refused for want of room in memory is asked again.
            for _ in 0..50 {
                self.put(batch.iter().copied());
                let told = self.settle();
                match (told.applied, told.refused) {
                    (1, 0) => break,
                    (0, 1) => self.run(5),
                    _ => panic!("{:?}: {told:?}\n{}", self.mode, self.in_words()),
                }
            }
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let primary = self.primary();
        self.nodes[primary]
            .inspect()
            .engine_stats(REGION)
            .unwrap_or_default()
    }

    // --- Changing ---

    /// The region of the map is what `change` makes of it, under the next epoch.
    fn set_region(&mut self, change: impl FnOnce(&mut MapRegion)) {
        let mut region = self.map.regions()[0].clone();
        region.epoch = Epoch(region.epoch.0 + 1);
        change(&mut region);
        self.map = self.map.with_regions(vec![region]).expect("it is valid");
        for (node, is_up) in self.nodes.iter().zip(self.is_up) {
            if is_up {
                node.set_map(self.map.clone()).expect("newer");
            }
        }
    }

    /// Under the same primary the group is this one.
    pub(super) fn regroup(&mut self, members: &[usize], filling: &[usize]) {
        let ids = |of: &[usize]| of.iter().map(|server| id(*server)).collect();
        self.set_region(|region| {
            (region.members, region.filling) = (ids(members), ids(filling));
        });
    }

    fn copy_report(&self, server: usize) -> Option<CopyReport> {
        let report = self.nodes[server].report_to_master(self.now);
        report.copies.get(&REGION).copied()
    }

    /// Raises the epoch, and promotes the copy of `server` once all of `members` have reported.
    pub(super) fn promote(&mut self, server: usize, members: &[usize]) {
        self.set_region(|region| region.state = RegionState::Recovering);
        self.run_until("all have reported", |trio| {
            members
                .iter()
                .all(|server| trio.copy_report(*server).is_some())
        });
        let stood = self.copy_report(server).expect("it has reported");
        assert_eq!(stood.status, CopyStatus::Whole, "{:?}", self.mode);
        self.set_region(|region| {
            region.last = std::mem::take(&mut region.members);
            region.members = members.iter().map(|server| id(*server)).collect();
            (region.primary, region.since) = (id(server), region.epoch);
            region.state = RegionState::Serving;
            region.claim = Some(PromotionClaim {
                status: stood.status,
                cut: stood.cut,
                edit: stood.edit,
                lsn: stood.lsn,
                member: true,
            });
        });
    }

    /// The process of `server` ends. What it was asked has no answer.
    pub(super) fn kill(&mut self, server: usize) {
        self.world.kill(id(server));
        self.is_up[server] = false;
        self.windows[server] = self.windows[server].restart();
        self.give_room(server);
        if server == self.primary() {
            self.answers = Arc::default();
            self.model.give_up();
        }
    }

    /// A process of `server` begins, and knows the map as it is.
    pub(super) fn start(&mut self, server: usize) {
        let (device, windows) = (&self.devices[server], &self.windows[server]);
        let world = surroundings(&self.world, server, device, windows, self.reserve);
        let node = Node::open(id(server), self.settings.clone(), world, self.map.clone());
        self.nodes[server] = node.expect("it opens");
        self.is_up[server] = true;
    }

    /// Fills the copy of `server`, which is no member, and makes it one once the primary wishes that.
    pub(super) fn fill(&mut self, server: usize) {
        let region = &self.map.regions()[0];
        let members: Vec<usize> = region.members.iter().map(|id| id.0 as usize).collect();
        if !region.filling.contains(&id(server)) {
            self.regroup(&members, &[server]);
        }
        self.run_until("the copy is filled", |trio| {
            let report = trio.nodes[trio.primary()].report_to_master(trio.now);
            let wish = report.wishes.get(&REGION);
            wish.is_some_and(|wish| wish.add.contains(&id(server)))
        });
        self.regroup(&[&members[..], &[server]].concat(), &[]);
        self.open();
        self.run_until("the copy is whole", |trio| {
            trio.nodes[server].inspect().standing(REGION) == Some(Standing::Whole)
        });
    }

    // --- Devices ---

    /// Others take what is free on the device of `server`, but for the reserve.
    fn take_room(&mut self, server: usize) {
        let store = &self.nodes[server].world.store;
        while store.room().free > self.reserve {
            let taken = store.allocate(Purpose::Metadata);
            self.hogs[server].push(taken.expect("there is room"));
        }
    }

    /// From now on the device of `server` has room for deletes and merges, and for nothing new.
    pub(super) fn make_full(&mut self, server: usize) {
        self.is_full[server] = true;
        self.take_room(server);
    }

    pub(super) fn is_full(&self, server: usize) -> bool {
        self.is_full[server]
    }

    pub(super) fn give_room(&mut self, server: usize) {
        self.is_full[server] = false;
        self.hogs[server].clear();
    }
}

fn surroundings(
    world: &SimWorld,
    server: usize,
    device: &Arc<MemoryDevice>,
    windows: &AnonymousWindows,
    reserve: u32,
) -> World {
    let clock: Arc<dyn Clock> = Arc::new(StoppedClock);
    let settings = StoreSettings {
        reserve_segments: reserve,
    };
    let store = Store::open(Arc::<MemoryDevice>::clone(device), &settings);
    let store = store.expect("it was formatted");
    World {
        ledger: Arc::new(Ledger::new(Arc::clone(&clock), [])),
        fabric: world.fabric(id(server), store.incarnation()),
        windows: Arc::new(windows.clone()),
        wakers: Wakers::of_one(Arc::new(|| {})),
        clock,
        store,
        resident: || None,
        trim_allocator: || {},
    }
}
