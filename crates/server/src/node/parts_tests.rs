//! Edits and checkpoints that are longer than a message: they reach a backup whole, and a peer that sends nonsense
//! in their place harms nobody.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{
    AddressMode, EditSeq, Epoch, Incarnation, Instant, KeyRange, RegionId, ServerId,
};
use argosy_coordinator::{ClusterId, ClusterMap, Replication, Server};
use argosy_device::{FormatOptions, MemoryDevice, Store};
use argosy_engine::{Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::SimWorld;
use argosy_memory::AnonymousWindows;
use argosy_wire::message::Message;
use argosy_wire::ring::{Header, MESSAGE_BYTES_MAX};

use super::edit_memory::EDIT_BYTES_MAX;
use super::link::{Ends, Link};
use super::readers_tests::{Answers, set_clock, surroundings};
use super::region::{copy_of, engine_of};
use super::{LinkSettings, MemoryParts, Node, NodeSettings};
use crate::service::{ReplySink, ReplyTo, Request, Response, Service};

const REGION: RegionId = RegionId(1);
const IDS: [ServerId; 2] = [ServerId(0), ServerId(1)];
const SEGMENTS: u64 = 96;

fn device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::eager(SEGMENTS * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).expect("it is new");
    Arc::new(device)
}

fn map() -> ClusterMap {
    let server = |id: ServerId| Server {
        id,
        resp: format!("127.0.0.1:700{}", id.0),
        admin: format!("127.0.0.1:800{}", id.0),
    };
    let region = argosy_coordinator::Region::first(REGION, KeyRange::all(), IDS[0], IDS.to_vec());
    let servers = IDS.map(server).to_vec();
    let map = ClusterMap::new(ClusterId(1), Replication::SendIndex, servers, vec![region]);
    map.expect("it is valid")
}

/// With a ring of `ring_bytes`, and edits in parts of at most `part_bytes`.
const fn link(ring_bytes: usize, part_bytes: usize) -> LinkSettings {
    LinkSettings {
        ring_bytes,
        slot_bytes: SEGMENT_SIZE,
        part_bytes,
    }
}

/// Two servers, of which the first is primary, and their world.
struct Pair {
    world: SimWorld,
    nodes: Vec<Arc<Node>>,
    settings: NodeSettings,
    now: u64,
    answers: Arc<Answers>,
    /// Most bytes of edits that the backup put together.
    edits_held: usize,
}

impl Pair {
    /// With memtables of `l0_bytes`, and all else that follows from these.
    fn new(l0_bytes: usize, segment_bytes: usize, link: LinkSettings) -> Self {
        let settings = NodeSettings {
            scrub: Default::default(),
            sweep: Default::default(),
            engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
                of.memtables.bytes = l0_bytes;
                of.memtables.count_max = 3;
                of.cache_bytes = 1 << 20;
                of.layout.segment_bytes = segment_bytes;
                of.layout.window_bytes = segment_bytes / 4;
                of.levels.l1_runs = 16;
                of.levels.l1_runs_max = 24;
            })),
            link,
            memory: MemoryParts {
                answers: MemoryParts::answers_of(0),
                ..MemoryParts::default()
            },
            deadline: Duration::from_secs(60),
            failover_wait: Duration::ZERO,
            remove_after: Duration::from_secs(1),
            leases: None,
            mutants: Default::default(),
            replication_mutants: Default::default(),
        };
        let mut pair = Self {
            world: SimWorld::new(1),
            nodes: Vec::new(),
            settings,
            now: 1,
            answers: Arc::default(),
            edits_held: 0,
        };
        pair.nodes = IDS.map(|id| pair.open(id)).to_vec();
        pair
    }

    /// Server `id` with an empty device.
    fn open(&self, id: ServerId) -> Arc<Node> {
        let world = surroundings(&self.world, id, device());
        Node::open(id, self.settings.clone(), world, map()).expect("it opens")
    }

    /// The backup's device is replaced by an empty one.
    fn replace_backup(&mut self) {
        self.nodes.pop();
        self.world.forget_incarnation(IDS[1]);
        let backup = self.open(IDS[1]);
        self.nodes.push(backup);
    }

    fn step(&mut self) {
        self.now += 100_000;
        set_clock(self.now);
        let now = Instant::from_nanos(self.now);
        self.world.step(now);
        for node in &self.nodes {
            node.step_fabric(now);
            node.step_background(now);
        }
        let held = self
            .nodes
            .last()
            .expect("one is there")
            .memory
            .arriving_bytes();
        self.edits_held = self.edits_held.max(held);
    }

    /// Steps until `done`.
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..400_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        let reasons = self.nodes.iter().map(|node| Service::ready(&**node));
        panic!("{what}: {:?}", reasons.collect::<Vec<_>>());
    }

    fn write(&mut self, batch: &WriteBatch) {
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&self.answers);
        let options = WriteOptions::default();
        let answer = self.nodes[0]
            .call(
                Request::Write { batch, options },
                Reach::Device,
                ReplyTo::new(&sink, 1),
            )
            .answered();
        let answer = answer.unwrap_or_else(|| {
            let answers = |pair: &Self| pair.answers.0.lock().pop();
            self.until("a write", |pair| !pair.answers.0.lock().is_empty());
            answers(self).expect("it is there").1
        });
        assert!(matches!(answer, Response::Written { .. }), "{answer:?}");
    }

    /// Makes a run of what was written last.
    fn freeze(&mut self) {
        let region = self.nodes[0].region(REGION).expect("it is there");
        assert!(engine_of(region).expect("it is open").freeze_now());
        self.until("the run", |pair| {
            pair.nodes[0].reports().background_pending() == 0
        });
    }

    /// `count` pairs of 400 bytes.
    fn load(&mut self, count: usize) {
        self.load_some(0..count);
    }

    /// Pairs of 400 bytes with these keys.
    fn load_some(&mut self, keys: impl Iterator<Item = usize>) {
        let value = [7; 390];
        let mut batch = WriteBatch::new();
        for n in keys {
            batch.put(key(n), value).expect("it is short");
            // It has to fit a log window.
            if 1000 * batch.len() > self.nodes[0].memory.engine().logs()[0].window_bytes {
                self.write(&batch);
                batch.clear();
            }
        }
        self.write(&batch);
    }

    /// Whether the backup has the levels that the primary has, and nothing is left to do.
    fn is_settled(&self) -> bool {
        let levels = |node: &Node| {
            let copy = node.inspect().copy_state(REGION).ok()?;
            let stored = copy_of(node.region(REGION)?)?;
            Some((copy.checkpoint.seq, stored.digest()))
        };
        let drained = self
            .nodes
            .iter()
            .all(|node| node.reports().background_pending() == 0);
        drained
            && levels(&self.nodes[0]).is_some()
            && levels(&self.nodes[0]) == levels(&self.nodes[1])
    }

    fn longest_message(&self) -> u64 {
        let longest = |node: &Node, peer| node.link(peer).sent().longest;
        longest(&self.nodes[0], IDS[1]).max(longest(&self.nodes[1], IDS[0]))
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

/// 256 ranges over `count` keys, with bounds of 2 KiB.
fn ranges(count: usize, round: usize) -> WriteBatch {
    let bound = |n: usize| {
        let mut bound = key(n);
        bound.resize(2000, b'x');
        bound
    };
    let mut batch = WriteBatch::new();
    for n in 0..256 {
        let at = n * (count / 256) + round;
        let range = KeyRange::new(bound(at), Some(bound(at + 1)));
        batch.delete_range(&range).expect("it fits");
    }
    batch
}

/// With the ring that a server has: one client's batches make edits of megabytes.
#[test]
fn removed_ranges_with_long_bounds_reach_a_backup() {
    const PAIRS: usize = 60_000;
    let mut pair = Pair::new(4 << 20, SEGMENT_SIZE, link(8 << 20, MESSAGE_BYTES_MAX));
    pair.until("the region opens", |pair| {
        Service::ready(&*pair.nodes[0]).lacks.is_none()
    });
    pair.load(PAIRS);
    for round in 0..4 {
        pair.write(&ranges(PAIRS, 3 * round));
    }
    pair.until("the backup has all", Pair::is_settled);
    let parts = pair.nodes[0].inspect().counts().parts;
    assert!(
        parts > 32,
        "no edit was longer than 2 MiB: {parts} parts of 64 KiB"
    );
    assert!(pair.longest_message() <= 64 << 10);
    assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);

    // An empty backup takes a checkpoint of it, and nothing is left in memory.
    pair.replace_backup();
    pair.until("an empty backup is whole", Pair::is_settled);
    for node in &pair.nodes {
        assert_eq!(
            node.memory.arriving_bytes() + node.memory.sending_bytes(),
            0
        );
    }
}

/// Each batch cuts every run in 256 places more, and an edit names all pieces of the segments that it cuts.
#[test]
fn removed_ranges_make_no_edit_too_long_however_many_came_before() {
    const PAIRS: usize = 40_000;
    const RUNS: usize = 15;
    let mut pair = Pair::new(4 << 20, SEGMENT_SIZE, link(8 << 20, MESSAGE_BYTES_MAX));
    pair.until("the region opens", |pair| {
        Service::ready(&*pair.nodes[0]).lacks.is_none()
    });
    // Every run has keys from all over.
    for run in 0..RUNS {
        pair.load_some((run..PAIRS).step_by(RUNS));
        pair.freeze();
    }
    for round in 0..8 {
        pair.write(&ranges(PAIRS, 3 * round));
    }
    pair.until("the backup has all", Pair::is_settled);
    let held = pair.edits_held;
    assert!(held <= 8 << 20, "an edit of {held} bytes");
}

/// With the smallest ring: everything goes in parts.
#[test]
fn checkpoints_go_through_the_smallest_ring() {
    let mut pair = Pair::new(128 << 10, 32 << 10, link(16 << 10, 300));
    pair.until("the region opens", |pair| {
        Service::ready(&*pair.nodes[0]).lacks.is_none()
    });
    pair.load(4000);
    pair.until("the backup has all", Pair::is_settled);
    let before = pair.nodes[0].inspect().counts();
    pair.replace_backup();
    pair.until("an empty backup is whole", Pair::is_settled);
    let after = pair.nodes[0].inspect().counts();
    assert!(after.offers > before.offers);
    assert!(after.parts > before.parts, "the checkpoint was short");
    assert!(pair.longest_message() <= 4 << 10);
}

/// The first server is a link alone, which says what it likes.
struct Hostile {
    pair: Pair,
    link: Link,
}

impl Hostile {
    /// The backup has reported.
    fn new() -> Self {
        let mut pair = Pair::new(4 << 20, SEGMENT_SIZE, link(64 << 10, 16 << 10));
        pair.nodes.remove(0);
        pair.world.forget_incarnation(IDS[0]);
        let fabric = pair.world.fabric(IDS[0], Incarnation(7));
        let windows = Arc::new(AnonymousWindows::new());
        let [me, peer] = [IDS[0], IDS[1]];
        let ends = Ends { me, peer };
        let link = Link::new(ends, pair.settings.link, fabric, windows, 1).expect("memory");
        let mut hostile = Self { pair, link };
        hostile.prepare();
        hostile
    }

    /// Steps until the backup has answered with a message of `kind`.
    fn answer(&mut self, kind: u8) -> Option<Vec<u8>> {
        for _ in 0..5_000 {
            self.pair.step();
            let now = Instant::from_nanos(self.pair.now);
            self.link.step(now, &mut Vec::new());
            let mut payload = Vec::new();
            while let Some(header) = self.link.next(&mut payload) {
                if header.kind == kind {
                    return Some(payload);
                }
            }
        }
        None
    }

    fn prepare(&mut self) {
        // Nothing is answered until the link is open.
        self.answer(0);
        assert!(self.link.is_open());
        let addresses = AddressMode::Logical;
        self.send(&Message::Prepare {
            attempt: 1,
            addresses,
            refill: false,
        });
        self.answer(2).expect("it reports");
    }

    fn send(&mut self, message: &Message<'_>) {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        let header = Header {
            kind: message.kind(),
            region: REGION,
            epoch: Epoch(1),
            request: 0,
        };
        assert_eq!(self.link.send(header, &payload), Ok(()));
    }

    /// Sends `messages`; whether the link was reset for that.
    fn is_reset_by(&mut self, messages: &[Message<'_>]) -> bool {
        let session = self.link.session();
        for message in messages {
            self.send(message);
        }
        self.answer(0);
        self.link.session() != session
    }
}

const SEQ: EditSeq = EditSeq(9);

fn offer(len: u64, bytes: &[u8]) -> Message<'_> {
    let (attempt, seq) = (1, SEQ);
    Message::Offer {
        attempt,
        seq,
        len,
        bytes,
    }
}

fn edit(seq: EditSeq, len: u64, bytes: &[u8]) -> Message<'_> {
    Message::Edit {
        attempt: 1,
        seq,
        len,
        bytes,
    }
}

fn more(from: u64, bytes: &[u8]) -> Message<'_> {
    let (attempt, seq) = (1, SEQ);
    Message::More {
        attempt,
        seq,
        from,
        bytes,
    }
}

#[test]
fn parts_that_do_not_fit_are_an_error_of_the_link() {
    let begun = offer(100_000, b"begun");
    let other = Message::More {
        attempt: 1,
        seq: EditSeq(8),
        from: 5,
        bytes: b"other",
    };
    let wrong: [&[Message<'_>]; 7] = [
        &[begun.clone(), more(4, b"overlaps")],
        &[begun.clone(), more(6, b"leaves a gap")],
        &[begun.clone(), more(u64::MAX, b"far away")],
        &[begun.clone(), more(5, b"")],
        &[begun.clone(), other],
        &[begun.clone(), edit(EditSeq(10), 9, b"inside it")],
        &[offer(5, b"a bad"), edit(EditSeq(10), 4, b"edit")],
    ];
    let mut hostile = Hostile::new();
    for messages in wrong {
        assert!(hostile.is_reset_by(messages), "{messages:?}");
        hostile.prepare();
    }
    // What nobody waits for is passed over.
    let stale = Message::MoreWanted {
        attempt: 1,
        seq: SEQ,
        to: u64::MAX,
    };
    assert!(!hostile.is_reset_by(&[more(0, b"of nothing"), stale]));
    assert_eq!(hostile.pair.nodes[0].memory.arriving_bytes(), 0);
    // A window is asked for, and more than there is to come is wrong.
    hostile.send(&begun);
    let wanted = hostile.answer(23).expect("it asks");
    let wanted = Message::decode(23, &wanted).expect("it is one");
    assert!(
        matches!(wanted, Message::MoreWanted { to, .. } if to < 100_000),
        "{wanted:?}"
    );
    let short = offer(30, b"begun");
    assert!(hostile.is_reset_by(&[short, more(5, &[1; 26])]));
    assert_eq!(hostile.pair.nodes[0].memory.arriving_bytes(), 0);
}

#[test]
fn an_edit_over_the_bound_is_an_error_of_the_copy() {
    let mut hostile = Hostile::new();
    let len = EDIT_BYTES_MAX as u64 + 1;
    assert!(!hostile.is_reset_by(&[offer(len, b"begun")]));
    let node = &hostile.pair.nodes[0];
    let Err(why) = node.inspect().copy_state(REGION) else {
        panic!("the copy follows");
    };
    assert!(why.contains("67108865 bytes, and 67108864"), "{why}");
    assert_eq!(node.memory.arriving_bytes(), 0);
    assert!(hostile.link.is_open());
}
