//! Readers of a server that is alone: what they do not wait for. Each test holds up what they must not
//! wait for until they have been answered.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Clock, DeviceSegment, Instant, KeyRange, RegionId, ServerId};
use argosy_coordinator::{ClusterId, ClusterMap, Replication, Server};
use argosy_device::{
    Counters, Device, DeviceError, FormatOptions, Io, MemoryDevice, Read, Store, StoreSettings,
    Ticket, Waker,
};
use argosy_engine::{Condition, Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::SimWorld;
use argosy_memory::AnonymousWindows;
use parking_lot::{Condvar, Mutex};

use super::local::LocalRegion;
use super::region::{Region, engine_of};
use super::{LinkSettings, MemoryParts, Node, NodeSettings, World};
use crate::activity::Ledger;
use crate::service::{Begun, Failure, KeyList, ReplySink, ReplyTo, Request, Response, Service};
use crate::tasks::Tasks;

const ID: ServerId = ServerId(0);
/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1) };
}

/// It is always the same time, until a test says otherwise.
pub(super) struct StoppedClock;

/// So many nanoseconds have passed, for this thread.
pub(super) fn set_clock(nanos: u64) {
    NOW.set(nanos);
}

impl Clock for StoppedClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(NOW.get())
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

/// What server `id` has around it: a formatted device, memory for windows, and a clock that stands still.
pub(super) fn surroundings(world: &SimWorld, id: ServerId, device: Arc<dyn Device>) -> World {
    let clock: Arc<dyn Clock> = Arc::new(StoppedClock);
    let store = Store::open(device, &StoreSettings::default()).expect("it was formatted");
    World {
        ledger: Arc::new(Ledger::new(Arc::clone(&clock), [])),
        fabric: world.fabric(id, store.incarnation()),
        windows: Arc::new(AnonymousWindows::new()),
        wakers: super::Wakers::of_one(Arc::new(|| {})),
        clock,
        store,
        resident: || None,
        trim_allocator: || {},
    }
}

/// A device whose reads wait while the gate is shut.
pub(super) struct Gate {
    inner: MemoryDevice,
    /// Whether it is shut, and whether a read waits.
    state: Mutex<(bool, bool)>,
    /// Calls to read something.
    submissions: AtomicUsize,
    changed: Condvar,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        let inner = MemoryDevice::eager(256 * SEGMENT_SIZE as u64, 1);
        Store::format(&inner, &FormatOptions::default()).expect("it is new");
        Arc::new(Self {
            inner,
            state: Mutex::default(),
            submissions: AtomicUsize::new(0),
            changed: Condvar::new(),
        })
    }

    /// The device itself.
    pub(super) const fn inner(&self) -> &MemoryDevice {
        &self.inner
    }

    /// Calls to read something that had to wait for it.
    pub(super) fn reads(&self) -> usize {
        self.submissions.load(Ordering::Relaxed)
    }

    pub(super) fn shut(&self, shut: bool) {
        self.state.lock().0 = shut;
        self.changed.notify_all();
    }

    /// Returns once a read waits.
    pub(super) fn wait_for_read(&self) {
        let mut state = self.state.lock();
        let waited = self
            .changed
            .wait_while_for(&mut state, |state| !state.1, PATIENCE);
        assert!(!waited.timed_out(), "nothing is read");
    }
}

impl Device for Gate {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        while state.0 {
            state.1 = true;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        drop(state);
        self.submissions.fetch_add(1, Ordering::Relaxed);
        self.inner.read(at, buffer)
    }

    fn read_together(&self, reads: &mut [Read<'_>]) {
        self.submissions.fetch_add(1, Ordering::Relaxed);
        self.inner.read_together(reads);
    }

    fn submit(&self, io: Io) -> Ticket {
        self.inner.submit(io)
    }

    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        self.inner.wait(ticket)
    }

    fn written_from(&self, at: u64) -> Option<(u64, u64)> {
        self.inner.written_from(at)
    }

    fn discard(&self, segment: DeviceSegment) {
        self.inner.discard(segment);
    }

    fn set_waker(&self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn failure(&self) -> Option<DeviceError> {
        self.inner.failure()
    }
}

std::thread_local! {
    static TRIMMED: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread was made to trim its allocator by a server of [`alone_with`].
pub(super) fn trimmed() -> usize {
    TRIMMED.get()
}

/// A server with one region, of which it is the only member. What was written is read from the device.
pub(super) fn alone(device: &Arc<Gate>) -> (Arc<Node>, Arc<Region>) {
    alone_with(device, 0, || None)
}

/// [`alone`] with a cache of `cache_bytes`, where the system says that so much is `resident`.
pub(super) fn alone_with(
    device: &Arc<Gate>,
    cache_bytes: usize,
    resident: fn() -> Option<u64>,
) -> (Arc<Node>, Arc<Region>) {
    let map = ClusterMap::new(
        ClusterId(1),
        Replication::None,
        vec![Server {
            id: ID,
            resp: "127.0.0.1:7000".to_owned(),
            admin: "127.0.0.1:8000".to_owned(),
        }],
        vec![argosy_coordinator::Region::first(
            RegionId(1),
            KeyRange::all(),
            ID,
            vec![ID],
        )],
    );
    let settings = NodeSettings {
        scrub: Default::default(),
        sweep: Default::default(),
        engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
            of.memtables.bytes = 64 << 10;
            of.memtables.count_max = 2;
            of.cache_bytes = cache_bytes;
        })),
        link: LinkSettings {
            ring_bytes: 64 << 10,
            slot_bytes: SEGMENT_SIZE,
            part_bytes: 1024,
        },
        memory: MemoryParts {
            answers: MemoryParts::answers_of(0),
            ..MemoryParts::default()
        },
        deadline: Duration::from_secs(5),
        failover_wait: Duration::ZERO,
        remove_after: Duration::from_secs(1),
        leases: None,
        mutants: Default::default(),
        replication_mutants: Default::default(),
    };
    let world = World {
        resident,
        trim_allocator: || TRIMMED.set(TRIMMED.get() + 1),
        ..surroundings(&SimWorld::new(1), ID, Arc::<Gate>::clone(device))
    };
    let node = Node::open(ID, settings, world, map.expect("it is valid")).expect("it opens");
    let region = Arc::clone(node.region(RegionId(1)).expect("it is a member"));
    (node, region)
}

/// Answers, in the order in which they came.
#[derive(Default)]
pub(super) struct Answers(pub(super) Mutex<Vec<(u64, Response)>>);

impl ReplySink for Answers {
    fn deliver(&self, token: u64, response: Response) {
        self.0.lock().push((token, response));
    }
}

fn put(key: &str, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch
        .put(key.as_bytes(), value.as_bytes())
        .expect("it is short");
    batch
}

/// Reads `key` on a thread of its own: what it is told, within [`PATIENCE`].
fn get(node: &Arc<Node>, key: &'static str) -> Option<Response> {
    let (sender, told): (_, Receiver<Option<Response>>) = channel();
    let node = Arc::clone(node);
    let reader = thread::Builder::new().spawn(move || {
        let sink: Arc<dyn ReplySink> = Arc::new(Answers::default());
        let key = key.as_bytes();
        let _ = sender.send(
            node.call(Request::Get { key }, Reach::Device, ReplyTo::new(&sink, 0))
                .answered(),
        );
    });
    let told = told.recv_timeout(PATIENCE).expect("a reader hangs");
    reader.expect("it was started").join().expect("no panic");
    told
}

#[test]
fn readers_do_not_wait_for_what_a_queued_write_reads() {
    let device = Gate::new();
    let (node, region) = alone(&device);
    while !region.is_open() {
        node.step_fabric(Instant::from_nanos(1));
        node.step_background(Instant::from_nanos(1));
    }
    let engine = engine_of(&region).expect("it is open");
    let answers = Arc::new(Answers::default());
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&answers);
    let plain = WriteOptions::default();
    let write = |batch: &WriteBatch, options, token| {
        node.call(
            Request::Write { batch, options },
            Reach::Device,
            ReplyTo::new(&sink, token),
        )
        .answered()
    };

    assert!(write(&put("cold", "old"), plain, 0).is_some());
    let filler = "x".repeat(500);
    let mut fillers = 0;
    while write(&put(&format!("filler {fillers}"), &filler), plain, 1).is_some() {
        fillers += 1;
    }
    let if_there = WriteOptions {
        condition: Condition::Present,
        ..plain
    };
    assert_eq!(write(&put("cold", "new"), if_there, 2), None);
    let key = b"cold";
    assert_eq!(
        node.call(Request::Get { key }, Reach::Device, ReplyTo::new(&sink, 3))
            .answered(),
        None
    );
    assert_eq!(region.waiting().queued(), 3);
    // The memtables go to the device; nothing that waits is tried yet.
    while engine.step(Instant::from_nanos(1)).expect("it works").made {}

    device.shut(true);
    let (its_node, its_region) = (Arc::clone(&node), Arc::clone(&region));
    let retrying = thread::Builder::new().spawn(move || {
        LocalRegion::new(&its_node.context(), &its_region).retry_queued(Reach::Device)
    });
    device.wait_for_read();
    let value = Some(Response::Value(Some(filler.clone().into_bytes())));
    // The write that was first was carried out, to memory.
    assert_eq!(get(&node, "absent"), Some(Response::Value(None)));
    let key = format!("filler {fillers}").leak();
    assert_eq!(get(&node, key), value);
    assert_eq!(
        get(&node, "cold"),
        None,
        "it waits for the write of its key"
    );
    let later = write(&put("later", "x"), plain, 4);
    assert_eq!(later, None, "nothing overtakes what is in hand");
    assert_eq!(answers.0.lock().len(), 1);

    device.shut(false);
    let made = retrying.expect("it was started").join();
    assert!(made.expect("no panic").made);
    let told = std::mem::take(&mut *answers.0.lock());
    let tokens: Vec<u64> = told.iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens, [1, 2, 3, 4]);
    let applied = |at: usize| matches!(told[at].1, Response::Written { applied: true, .. });
    assert!(applied(0) && applied(1) && applied(3), "{told:?}");
    assert_eq!(told[2].1, Response::Value(Some(b"new".to_vec())));
}

#[test]
fn readers_do_not_wait_for_the_driver_of_a_region_that_is_not_open() {
    let (node, region) = alone(&Gate::new());
    let driver = region.driver();
    let Some(Response::Failed(Failure::Unavailable { what, .. })) = get(&node, "a") else {
        panic!("it is not open yet");
    };
    assert!(what.contains("is being opened"), "{what}");
    drop(driver);
    while !region.is_open() {
        node.step_fabric(Instant::from_nanos(1));
        node.step_background(Instant::from_nanos(1));
    }
    assert_eq!(get(&node, "a"), Some(Response::Value(None)));
}

#[test]
fn gets_that_are_carried_out_together_are_answered_one_by_one() {
    let (node, region) = alone(&Gate::new());
    let tokens: Vec<u64> = (10..15).collect();
    let keys = KeyList::of([b"b", b"x", b"a", b"b", b"c"].map(|key| key.as_slice()));
    let told = || {
        let answers = Arc::new(Answers::default());
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&answers);
        let replies: Vec<_> = tokens
            .iter()
            .map(|token| ReplyTo::new(&sink, *token))
            .collect();
        node.get_each(&keys, &replies);
        let mut told = std::mem::take(&mut *answers.0.lock());
        told.sort_by_key(|(token, _)| *token);
        told
    };
    // Nothing is open yet, which each is told.
    let unavailable =
        |(_, told): &(u64, Response)| matches!(told, Response::Failed(Failure::Unavailable { .. }));
    let early = told();
    assert!(
        early.len() == 5 && early.iter().all(unavailable),
        "{early:?}"
    );
    while !region.is_open() {
        node.step_fabric(Instant::from_nanos(1));
        node.step_background(Instant::from_nanos(1));
    }
    let sink: Arc<dyn ReplySink> = Arc::new(Answers::default());
    // Longer together than one answer about several keys may be.
    let long = |key: &str| key.repeat(400 << 10);
    for key in ["a", "b", "c"] {
        let (batch, options) = (&put(key, &long(key)), WriteOptions::default());
        while node
            .call(
                Request::Write { batch, options },
                Reach::Device,
                ReplyTo::new(&sink, 0),
            )
            .answered()
            .is_none()
        {
            node.step_background(Instant::from_nanos(2));
        }
    }
    let value = |key: Option<&str>| Response::Value(key.map(|key| long(key).into_bytes()));
    let expected = [Some("b"), None, Some("a"), Some("b"), Some("c")].map(value);
    let expected: Vec<_> = tokens.iter().copied().zip(expected).collect();
    assert!(told() == expected);
}

#[test]
fn gets_that_wait_for_a_worker_are_read_in_one_submission() {
    let device = Gate::new();
    let (node, region) = alone(&device);
    while !region.is_open() {
        node.step_fabric(Instant::from_nanos(1));
        node.step_background(Instant::from_nanos(1));
    }
    let engine = engine_of(&region).expect("it is open");
    let answers = Arc::new(Answers::default());
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&answers);
    let keys: Vec<String> = (0..400).map(|n| format!("key {n}")).collect();
    for key in &keys {
        let (batch, options) = (&put(key, &key.repeat(100)), WriteOptions::default());
        let request = Request::Write { batch, options };
        while node
            .call(request, Reach::Device, ReplyTo::new(&sink, 0))
            .answered()
            .is_none()
        {
            node.step_background(Instant::from_nanos(2));
        }
    }
    // The first of them are in memtables that are full, which go to the device.
    node.step_fabric(Instant::from_nanos(3));
    while engine.step(Instant::from_nanos(3)).expect("it works").made {}
    let tasks = Tasks::new(100);
    // How often the device is called for so many gets.
    let submissions = |count: usize| {
        let before = device.submissions.load(Ordering::Relaxed);
        for (token, key) in (0..).zip(keys.iter().step_by(5).take(count)) {
            let key = key.as_bytes();
            let request = Request::Get { key };
            let reply = ReplyTo::new(&sink, token);
            let call = |reach, reply| node.call(request, reach, reply);
            let begun = tasks.call_or_push(request, reply, call);
            assert_eq!(begun, Begun::NeedsDevice);
        }
        assert_eq!(tasks.counts().queued, count);
        assert_eq!(device.submissions.load(Ordering::Relaxed), before);
        answers.0.lock().clear();
        assert!(tasks.step(&*node) && !tasks.step(&*node));
        let mut told = std::mem::take(&mut *answers.0.lock());
        told.sort_by_key(|(token, _)| *token);
        for ((_, response), key) in told.iter().zip(keys.iter().step_by(5)) {
            let value = Some(key.repeat(100).into_bytes());
            assert_eq!(*response, Response::Value(value));
        }
        assert_eq!(told.len(), count);
        device.submissions.load(Ordering::Relaxed) - before
    };
    submissions(1);
    assert_eq!(submissions(20), submissions(1));
}
