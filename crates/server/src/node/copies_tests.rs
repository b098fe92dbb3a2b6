//! Two servers and what becomes of their copies when one fails, there is no memory, or the fabric or a device is slow:
//! stepped by the test, over a simulated fabric.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Instant, KeyRange, RegionId, ServerId};
use argosy_coordinator::{ClusterId, ClusterMap, Replication, Server};
use argosy_device::Purpose;
use argosy_engine::{Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::{SimSettings, SimWorld};
use argosy_memory::{AnonymousWindows, MemoryError, SharedMemory, WindowStore};
use argosy_replication::primary::Event;
use parking_lot::Mutex;

use super::bad_wire::over_bad_wire;
use super::readers_tests::{Answers, Gate, set_clock};
use super::reading::Asked;
use super::region::{Driver, engine_of};
use super::{LinkSettings, MemoryParts, Mutants, Node, NodeSettings, World};
use crate::service::{ReplySink, ReplyTo, Request, Response, Service};

pub(super) const REGIONS: [RegionId; 2] = [RegionId(1), RegionId(2)];
/// The first key of the second region.
const BORDER: &[u8] = b"m";

/// Memory whose next requests are refused.
#[derive(Default)]
pub(super) struct Scarce {
    pub(super) inner: AnonymousWindows,
    /// How many requests are still to be refused.
    pub(super) refusals: AtomicUsize,
    /// What was made.
    pub(super) made: Mutex<Vec<u64>>,
}

impl WindowStore for Scarce {
    fn survivor_names(&self) -> Vec<u64> {
        self.inner.survivor_names()
    }

    fn survivors(&self, name: u64) -> Option<Arc<SharedMemory>> {
        self.inner.survivors(name)
    }

    fn create(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        let left = self.refusals.load(Ordering::Relaxed);
        if left == 0 {
            self.made.lock().push(name);
            return self.inner.create(name, len);
        }
        self.refusals.store(left - 1, Ordering::Relaxed);
        Err(MemoryError::Refused {
            what: "create",
            path: "memory".to_owned(),
            source: Arc::new(std::io::ErrorKind::StorageFull.into()),
        })
    }

    fn forget_survivors(&self, name: u64) -> Result<(), MemoryError> {
        self.inner.forget_survivors(name)
    }
}

fn id(server: usize) -> ServerId {
    ServerId(u32::try_from(server).expect("two"))
}

fn surroundings(
    world: &SimWorld,
    server: usize,
    device: &Arc<Gate>,
    windows: &Arc<Scarce>,
) -> World {
    let usual = super::readers_tests::surroundings(world, id(server), Arc::<Gate>::clone(device));
    World {
        fabric: over_bad_wire(usual.fabric),
        windows: Arc::<Scarce>::clone(windows),
        ..usual
    }
}

/// Two servers with two regions; the first is primary of both.
pub(super) struct Pair {
    pub(super) world: SimWorld,
    pub(super) nodes: [Arc<Node>; 2],
    pub(super) windows: [Arc<Scarce>; 2],
    pub(super) devices: [Arc<Gate>; 2],
    pub(super) settings: NodeSettings,
    pub(super) map: ClusterMap,
    pub(super) answers: Arc<Answers>,
    asked: u64,
    pub(super) now: Instant,
}

pub(super) fn map(replication: Replication) -> ClusterMap {
    let members = vec![ServerId(0), ServerId(1)];
    let servers = members.iter().map(|id| Server {
        id: *id,
        resp: format!("127.0.0.1:700{}", id.0),
        admin: format!("127.0.0.1:800{}", id.0),
    });
    let ranges = [
        KeyRange::new(b"".to_vec(), Some(BORDER.to_vec())),
        KeyRange::new(BORDER.to_vec(), None),
    ];
    let regions = REGIONS.into_iter().zip(ranges);
    let regions = regions.map(|(id, range)| {
        argosy_coordinator::Region::first(id, range, ServerId(0), members.clone())
    });
    let (servers, regions) = (servers.collect(), regions.collect());
    ClusterMap::new(ClusterId(1), replication, servers, regions).expect("it is valid")
}

pub(super) fn settings(mutants: Mutants) -> NodeSettings {
    NodeSettings {
        scrub: Default::default(),
        sweep: Default::default(),
        engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
            of.memtables.bytes = 64 << 10;
            of.memtables.count_max = 2;
            of.cache_bytes = 0;
        })),
        link: LinkSettings {
            ring_bytes: 256 << 10,
            slot_bytes: SEGMENT_SIZE,
            part_bytes: 16 << 10,
        },
        memory: MemoryParts {
            answers: MemoryParts::answers_of(0),
            ..MemoryParts::default()
        },
        deadline: Duration::from_millis(100),
        failover_wait: Duration::ZERO,
        remove_after: Duration::from_secs(1),
        leases: None,
        mutants,
        replication_mutants: Default::default(),
    }
}

impl Pair {
    pub(super) fn new(fabric: SimSettings, mutants: Mutants) -> Self {
        Self::with(Replication::SendIndex, fabric, settings(mutants))
    }

    pub(super) fn with(
        replication: Replication,
        fabric: SimSettings,
        settings: NodeSettings,
    ) -> Self {
        Self::of(map(replication), fabric, settings)
    }

    /// One of whose cluster this is the `map`.
    pub(super) fn of(map: ClusterMap, fabric: SimSettings, settings: NodeSettings) -> Self {
        set_clock(1);
        let world = SimWorld::with_settings(7, fabric);
        let devices = [Gate::new(), Gate::new()];
        let windows = [Arc::<Scarce>::default(), Arc::<Scarce>::default()];
        let nodes = std::array::from_fn(|server| {
            let surroundings = surroundings(&world, server, &devices[server], &windows[server]);
            let id = id(server);
            Node::open(id, settings.clone(), surroundings, map.clone()).expect("it opens")
        });
        Self {
            map,
            world,
            nodes,
            windows,
            devices,
            settings,
            answers: Arc::default(),
            asked: 0,
            now: Instant::from_nanos(1),
        }
    }

    /// Kills the process of a server and starts it again.
    pub(super) fn restart(&mut self, server: usize) {
        self.world.kill(id(server));
        self.windows[server] = Arc::new(Scarce {
            inner: self.windows[server].inner.restart(),
            ..Scarce::default()
        });
        let (device, windows) = (&self.devices[server], &self.windows[server]);
        let surroundings = surroundings(&self.world, server, device, windows);
        let map = self.map.clone();
        let node = Node::open(id(server), self.settings.clone(), surroundings, map);
        self.nodes[server] = node.expect("it opens");
    }

    /// The same, with an empty device in place of its own.
    pub(super) fn replace(&mut self, server: usize) {
        self.devices[server] = Gate::new();
        self.windows[server] = Arc::default();
        self.world.forget_incarnation(id(server));
        self.restart(server);
    }

    /// Lets so much time pass.
    pub(super) fn run(&mut self, millis: u64) {
        for _ in 0..millis * 4 {
            self.step_fabric();
            for node in &self.nodes {
                node.step_background(self.now);
            }
        }
    }

    /// Lets a quarter of a millisecond pass for those who serve, and not for the background.
    pub(super) fn step_fabric(&mut self) {
        self.now = self.now + Duration::from_micros(250);
        self.world.step(self.now);
        set_clock(self.now.as_nanos());
        for node in &self.nodes {
            node.step_fabric(self.now);
        }
    }

    /// Shuts the device of `server` and has its background run against it, on a thread of its own. Returns once that
    /// waits for the device.
    fn shut(&self, server: usize) -> JoinHandle<()> {
        self.devices[server].shut(true);
        let (node, now) = (Arc::clone(&self.nodes[server]), self.now);
        let background = thread::Builder::new().spawn(move || {
            node.step_background(now);
        });
        self.devices[server].wait_for_read();
        background.expect("it was started")
    }

    /// The background of `server` gets what it waits for.
    fn open_device(&self, server: usize, background: JoinHandle<()>) {
        self.devices[server].shut(false);
        background.join().expect("no panic");
    }

    /// Has the backup of the first region asked to report anew.
    pub(super) fn prepare_anew(&self) {
        let node = &self.nodes[0];
        let region = node.region(REGIONS[0]).expect("a member");
        if let Driver::Primary(driver) = &mut *region.driver() {
            let member = ServerId(1);
            driver.handle(Event::LinkUp { member }, &node.context());
        }
    }

    fn shipments(&self) -> u64 {
        self.nodes[0].inspect().counts().shipments
    }

    /// Until both servers are ready.
    pub(super) fn open(&mut self) {
        for _ in 0..200 {
            if self.nodes.iter().all(|node| node.ready().lacks.is_none()) {
                return;
            }
            self.run(10);
        }
        panic!("{:?}", self.nodes[0].ready());
    }

    /// Writes four pairs, a kilobyte in all; the answer comes in its time.
    pub(super) fn put(&mut self, region: usize, key: u64) {
        self.put_values(region, key, 240);
    }

    /// Asks the first server for this; the answer comes in its time.
    pub(super) fn begin(&mut self, request: Request<'_>) {
        let sink: Arc<dyn ReplySink> = Arc::clone(&self.answers) as _;
        self.asked += 1;
        let reply = ReplyTo::new(&sink, self.asked);
        if let Some(now) = self.nodes[0].call(request, Reach::Device, reply).answered() {
            sink.deliver(self.asked, now);
        }
    }

    /// The same, with values of `len` bytes.
    pub(super) fn put_values(&mut self, region: usize, key: u64, len: usize) {
        let mut batch = WriteBatch::new();
        for part in 0..4 {
            let key = format!("{}{key:08}{part}", ["a", "z"][region]);
            batch
                .put(key.as_bytes(), vec![b'v'; len])
                .expect("it is short");
        }
        let options = WriteOptions::default();
        let batch = &batch;
        self.begin(Request::Write { batch, options });
        self.nodes[0].flush();
    }

    /// Whether what [`put`](Self::put) wrote for `key` is there.
    pub(super) fn has(&mut self, region: usize, key: u64) -> bool {
        let sink: Arc<dyn ReplySink> = Arc::clone(&self.answers) as _;
        let key = format!("{}{key:08}0", ["a", "z"][region]);
        let key = key.as_bytes();
        self.asked += 1;
        let reply = ReplyTo::new(&sink, self.asked);
        let begun = self.nodes[0].call(Request::Get { key }, Reach::Device, reply);
        let answer = begun.answered().or_else(|| {
            self.run(10);
            let answers = std::mem::take(&mut *self.answers.0.lock());
            answers.into_iter().map(|(_, answer)| answer).next()
        });
        matches!(answer, Some(Response::Value(Some(_))))
    }

    /// How many writes were acknowledged since this was asked last, of how many answers.
    pub(super) fn acknowledged(&self) -> (usize, usize) {
        let answers = std::mem::take(&mut *self.answers.0.lock());
        let applied = answers
            .iter()
            .filter(|(_, answer)| matches!(answer, Response::Written { applied: true, .. }));
        (applied.count(), answers.len())
    }
}

/// Writes to both regions until the copy of the first fails, and then to the second.
fn beside_a_failed_copy(mutants: Mutants) -> (Pair, usize, u64) {
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    for key in 0..400 {
        pair.put(0, key % 200);
        pair.put(1, key % 200);
        pair.run(1);
    }
    pair.run(200);
    assert!(pair.shipments() > 0, "segments are shipped");
    assert!(pair.nodes[1].inspect().fail_copy(REGIONS[0]));
    // What the first region has in its memtables still goes to its levels, and is shipped to nobody.
    for key in 0..200 {
        pair.put(0, key);
        pair.run(1);
    }
    pair.run(300);
    pair.acknowledged();
    let before = pair.shipments();
    let mut acknowledged = 0;
    for key in 0..1200 {
        pair.put(1, key % 300);
        pair.run(1);
        acknowledged += pair.acknowledged().0;
    }
    pair.run(500);
    acknowledged += pair.acknowledged().0;
    let shipped = pair.shipments() - before;
    (pair, acknowledged, shipped)
}

#[test]
fn other_regions_go_on_beside_a_failed_copy() {
    let (mut pair, acknowledged, shipped) = beside_a_failed_copy(Mutants::default());
    assert!(acknowledged > 900, "{acknowledged} of 1200 writes");
    assert!(shipped > 8, "{shipped} segments");

    // Both servers say what is the matter, and the copy refuses to take part again.
    for round in 0..2 {
        let primary = pair.nodes[0].ready();
        for why in [primary.writes, primary.lacks] {
            let why = why.expect("a copy has failed");
            assert!(why.contains("whose copy has failed (it was made"), "{why}");
        }
        let backup = pair.nodes[1].ready().degraded;
        let told = |why: &String| why.contains("copy has failed: it was made");
        assert!(backup.iter().any(told), "{backup:?}");
        let status = pair.nodes[0].reports().status(Default::default());
        let region = &status.regions[0];
        assert_eq!(region.role.state, "degraded");
        assert_eq!(region.backups[0].state, "failed");
        let page = crate::report::metrics::page(&status, &[]);
        assert!(
            page.contains("argosy_backup_failed{peer=\"1\"} 1"),
            "{page}"
        );
        let copy = &pair.nodes[1].reports().status(Default::default()).regions[0];
        assert_eq!((copy.role.role, copy.role.state), ("backup", "failed"));
        if round == 0 {
            let lost = pair.nodes[0].inspect().counts().links_lost;
            pair.nodes[0].link(ServerId(1)).reset("the test wants it");
            pair.run(1000);
            assert_eq!(
                pair.nodes[0].inspect().counts().links_lost,
                lost + 1,
                "once"
            );
            assert!(pair.nodes[0].link(ServerId(1)).is_open());
        }
    }

    // Nothing is acknowledged that the failed copy lacks.
    pair.acknowledged();
    pair.put(0, 0);
    pair.run(300);
    assert_eq!(pair.acknowledged().0, 0);

    // Its server is started again: it is brought up to what was written.
    pair.restart(1);
    pair.open();
    pair.put(0, 1);
    pair.run(20);
    assert_eq!(pair.acknowledged().0, 1);
}

/// What the rule above is for: a copy that fails silently stops all regions of the two servers.
#[test]
fn a_copy_that_fails_silently_stops_other_regions() {
    let mutants = Mutants {
        fail_silently: true,
        ..Mutants::default()
    };
    let (pair, acknowledged, shipped) = beside_a_failed_copy(mutants);
    assert!(acknowledged < 600, "{acknowledged} of 1200 writes");
    assert!(shipped < 5, "{shipped} segments");
    assert_eq!(pair.nodes[0].ready().lacks, None, "and nobody says so");
}

/// There is no memory for fresh windows when a copy is to report: it reports later.
#[test]
fn a_report_waits_for_memory() {
    for refusals in [1, 2, 5] {
        let mut pair = Pair::new(SimSettings::default(), Mutants::default());
        pair.open();
        pair.put(0, 1);
        pair.run(20);
        assert_eq!(pair.acknowledged(), (1, 1));
        let memory = Arc::<Scarce>::clone(&pair.windows[1]);
        memory.refusals.store(refusals, Ordering::Relaxed);
        pair.prepare_anew();
        pair.run(50);
        assert!(pair.nodes[0].ready().lacks.is_some(), "it has not reported");
        pair.run(8000);
        assert_eq!(memory.refusals.load(Ordering::Relaxed), 0);
        assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);
        assert_eq!(pair.nodes[0].ready().lacks, None, "{refusals} refusals");
        pair.put(0, 2);
        pair.put(1, 3);
        pair.run(20);
        assert_eq!(pair.acknowledged(), (2, 2));
    }
}

/// A fabric that takes few writes at a time loses nobody.
#[test]
fn a_full_fabric_loses_no_backup() {
    let fabric = SimSettings {
        in_flight_max: 2,
        ..SimSettings::default()
    };
    let mut pair = Pair::new(fabric, Mutants::default());
    pair.open();
    let offers = pair.nodes[0].inspect().counts().offers;
    for key in 0..600 {
        pair.put(0, key % 100);
        pair.put(1, key % 100);
        if key % 4 == 0 {
            pair.run(1);
        }
    }
    pair.run(500);
    let (acknowledged, answers) = pair.acknowledged();
    assert!(acknowledged > 1000, "{acknowledged} of {answers}");
    assert!(pair.world.counters().refused > 50, "the fabric was full");
    assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);
    assert_eq!(
        pair.nodes[0].inspect().counts().offers,
        offers,
        "nobody had to catch up"
    );
}

/// Four writes to the second region, and five milliseconds, while a background waits for its device: how many were
/// acknowledged.
fn beside_a_slow_device(pair: &mut Pair) -> (usize, usize) {
    pair.acknowledged();
    for key in 0..4 {
        pair.put(1, key);
        for _ in 0..20 {
            pair.step_fabric();
        }
    }
    pair.acknowledged()
}

/// While a member's fetch waits for a slow device, writes are acknowledged, of that region, too, and links live.
#[test]
fn a_fetch_from_a_slow_device_holds_up_nobody() {
    let mut pair = Pair::new(SimSettings::default(), Mutants::default());
    pair.open();
    for key in 0..400 {
        pair.put(0, key % 200);
        pair.run(1);
    }
    pair.run(300);
    pair.acknowledged();
    let engine = engine_of(pair.nodes[0].region(REGIONS[0]).expect("a member"));
    let parts = engine.expect("it is open").stored().parts();
    let level = parts.iter().find(|part| part.log.is_none());
    let asked = Asked {
        region: REGIONS[0],
        segment: level.expect("there are levels").number,
        from: 0,
        to: 4096,
        slot: 0,
    };
    let context = pair.nodes[0].context();
    context
        .device_care
        .fetches()
        .push(ServerId(1), asked, &context);
    let background = pair.shut(0);
    for key in 0..4 {
        pair.put(0, key);
        pair.step_fabric();
    }
    for _ in 0..20 {
        pair.step_fabric();
    }
    assert_eq!(pair.acknowledged(), (4, 4));
    assert_eq!(beside_a_slow_device(&mut pair), (4, 4));
    assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);
    pair.open_device(0, background);
}

/// While a copy that was asked to report reads its logs from a slow device, other regions of the two servers go on.
/// What comes for the copy meanwhile is handled afterwards.
#[test]
fn a_report_from_a_slow_device_holds_up_nobody() {
    for relinks in [false, true] {
        let mut pair = Pair::new(SimSettings::default(), Mutants::default());
        pair.open();
        for key in 0..20 {
            pair.put(0, key);
            pair.run(100);
        }
        pair.acknowledged();
        pair.prepare_anew();
        for _ in 0..20 {
            pair.step_fabric();
        }
        let background = pair.shut(1);
        assert_eq!(beside_a_slow_device(&mut pair), (4, 4));
        if relinks {
            pair.nodes[0].link(ServerId(1)).reset("the test wants it");
            for _ in 0..2000 {
                pair.step_fabric();
            }
            assert!(pair.nodes[0].link(ServerId(1)).is_open());
        }
        let lacks = pair.nodes[0].ready().lacks.expect("it has not reported");
        assert!(lacks.contains("waiting for server 1"), "{lacks}");
        let lost = pair.nodes[0].inspect().counts().links_lost;
        assert_eq!(lost, u64::from(relinks));
        pair.open_device(1, background);
        pair.run(500);
        assert_eq!(pair.nodes[0].inspect().counts().links_lost, lost);
        assert_eq!(pair.nodes[0].ready().lacks, None);
        pair.put(0, 1);
        pair.run(20);
        assert_eq!(pair.acknowledged(), (1, 1));
    }
}

/// While a primary is promoted, and reads its logs from a slow device, its links live, and what comes for the region
/// is handled afterwards.
#[test]
fn a_promotion_from_a_slow_device_holds_up_nobody() {
    let mut pair = Pair::new(SimSettings::default(), Mutants::default());
    pair.open();
    for key in 0..20 {
        pair.put(0, key);
        pair.run(100);
    }
    pair.restart(0);
    // Nothing is promoted before the background has its turn.
    for _ in 0..4000 {
        pair.step_fabric();
        pair.nodes[1].step_background(pair.now);
    }
    let background = pair.shut(0);
    for _ in 0..4000 {
        pair.step_fabric();
        pair.nodes[1].step_background(pair.now);
    }
    let [primary, backup] = &pair.nodes;
    let lacks = primary.ready().lacks.expect("it is not open");
    assert!(lacks.contains("it is being opened"), "{lacks}");
    assert!(primary.link(ServerId(1)).is_open());
    assert!(!primary.link(ServerId(1)).is_silent(pair.now));
    assert!(!backup.link(ServerId(0)).is_silent(pair.now));
    pair.open_device(0, background);
    pair.run(500);
    assert_eq!(pair.nodes[0].ready().lacks, None);
    assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);
    pair.acknowledged();
    pair.put(0, 1);
    pair.run(20);
    assert_eq!(pair.acknowledged(), (1, 1));
}

/// A primary that adopts another member's history on a device that is full goes on, a bit at a time, as there is room.
/// No link is reset for that.
#[test]
fn an_adoption_waits_for_room() {
    let mut pair = Pair::new(SimSettings::default(), Mutants::default());
    pair.open();
    for key in 0..200 {
        pair.put(0, key);
        pair.put(1, key);
        pair.run(1);
    }
    pair.run(300);
    pair.replace(0);
    let store = Arc::clone(&pair.nodes[0].world.store);
    let all = std::iter::from_fn(|| store.allocate(Purpose::Metadata).ok());
    let mut taken: Vec<_> = all.collect();
    let mut waited = 0;
    while pair.nodes[0].ready().lacks.is_some() {
        pair.run(300);
        waited += 1;
        drop(taken.pop().expect("it opens with the room that there is"));
    }
    assert!(waited > 4, "{waited}");
    assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);
    assert_eq!(
        pair.nodes[0].inspect().counts().adoptions,
        2,
        "once in each region"
    );
    taken.clear();
    pair.acknowledged();
    pair.put(0, 1);
    pair.run(20);
    assert_eq!(pair.acknowledged(), (1, 1));
}
