//! A peer that writes nonsense into all memory that it may write: rings whose positions, lengths and words are wrong,
//! and rings that are right with messages that say anything. Random, from seeds.
//!
//! Two servers are as they should be, and have a region for themselves. The third is no server, but links to both,
//! which open as they should. Of another region it claims to be the primary, and of a third it is a backup. Whatever it
//! says, nobody panics, nothing that could grow is over its bound, and the two answer their clients; and once it says
//! nothing wrong any more, its links are open.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::codec::{put_string, put_varint};
use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{
    AddressMode, DeviceSegment, Direction, EditSeq, Epoch, FlushRange, Incarnation, Instant,
    KeyRange, LogId, LogPosition, Lsn, Position, RegionId, SegmentNumber, ServerId, Standing,
};
use argosy_coordinator::{ClusterId, ClusterMap, Region, Replication, Server};
use argosy_device::{FormatOptions, MemoryDevice, Store};
use argosy_engine::{Reach, Wanted, WriteBatch, WriteOptions};
use argosy_fabric::sim::{SimFabric, SimWorld};
use argosy_fabric::{Connecting, Descriptor, Fabric, MemoryKey, RemoteMemory};
use argosy_memory::AnonymousWindows;
use argosy_wire::message::{CONTINUED, FetchStatus, Message};
use argosy_wire::ring::{Header, RingShape, RingWriter};

use super::inbox::RING;
use super::link::{Ends, Link};
use super::readers_tests::{Answers, set_clock, surroundings};
use super::{LinkSettings, MemoryParts, Node, NodeSettings, keys};
use crate::service::{
    KeyList, Lease, Maintenance, Paging, ReplySink, ReplyTo, Request, Response, Service, SnapshotId,
};

const HOSTILE: ServerId = ServerId(2);
/// Without the hostile one; it is a backup there; it is the primary.
const REGIONS: [RegionId; 3] = [RegionId(1), RegionId(2), RegionId(3)];
const SETTINGS: LinkSettings = LinkSettings {
    ring_bytes: 16 << 10,
    slot_bytes: 64 << 10,
    part_bytes: 1000,
};
/// Seeds, and steps of each in which the peer is hostile.
const SEEDS: u64 = 24;
const STEPS: u64 = 3_000;
/// Steps within which a client has to be answered, and links have to open.
const PATIENCE: u64 = 20_000;

/// Random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("it is below a usize")
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A number: one that may be right, more often than not.
    fn number(&mut self) -> u64 {
        match self.below(10) {
            0..6 => self.below(12) as u64,
            6 => self.below(70_000) as u64,
            7 => u64::MAX - self.below(3) as u64,
            8 => u64::from(u32::MAX) - self.below(3) as u64,
            _ => self.next(),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
    fn byte(&mut self) -> u8 {
        self.number() as u8
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.byte()).collect()
    }
}

fn map() -> ClusterMap {
    let ids = [ServerId(0), ServerId(1), HOSTILE];
    let server = |id: ServerId| Server {
        id,
        resp: format!("127.0.0.1:700{}", id.0),
        admin: format!("127.0.0.1:800{}", id.0),
    };
    let range = |from: &[u8], to: Option<&[u8]>| KeyRange::new(from, to.map(<[u8]>::to_vec));
    let region = |at: usize, range: KeyRange, members: &[ServerId]| {
        Region::first(REGIONS[at], range, members[0], members.to_vec())
    };
    let regions = vec![
        region(0, range(b"", Some(b"h")), &ids[..2]),
        region(1, range(b"h", Some(b"p")), &ids),
        region(2, range(b"p", None), &[HOSTILE, ids[0], ids[1]]),
    ];
    let servers = ids.map(server).to_vec();
    ClusterMap::new(ClusterId(1), Replication::SendIndex, servers, regions).expect("it is valid")
}

fn settings() -> NodeSettings {
    NodeSettings {
        scrub: Default::default(),
        sweep: Default::default(),
        engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
            of.memtables.bytes = 64 << 10;
            of.cache_bytes = 1 << 20;
            of.layout.segment_bytes = 64 << 10;
            of.layout.window_bytes = 16 << 10;
        })),
        link: SETTINGS,
        memory: MemoryParts {
            answers: MemoryParts::answers_of(0),
            ..MemoryParts::default()
        },
        deadline: Duration::from_secs(2),
        failover_wait: Duration::ZERO,
        remove_after: Duration::from_secs(1),
        leases: None,
        mutants: Default::default(),
        replication_mutants: Default::default(),
    }
}

fn open(world: &SimWorld, id: ServerId) -> Arc<Node> {
    let device = MemoryDevice::eager(128 * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).expect("it is new");
    let world = surroundings(world, id, Arc::new(device));
    Node::open(id, settings(), world, map()).expect("it opens")
}

/// A write past the links.
enum Raw {
    /// It is being connected: these bytes go to that offset.
    Connecting(Box<dyn Connecting>, usize, Vec<u8>),
    Made {
        /// Kept, so that the write is not given up.
        _remote: Box<dyn RemoteMemory>,
    },
}

/// See the module documentation.
struct Scene {
    world: SimWorld,
    nodes: [Arc<Node>; 2],
    links: [Link; 2],
    fabric: Arc<SimFabric>,
    /// What the hostile one has begun to write past its links.
    raw: Vec<Raw>,
    random: Random,
    now: u64,
    /// Attempts that the others have named.
    attempts: Vec<u64>,
    answers: Arc<Answers>,
    sent: usize,
}

impl Scene {
    fn new(seed: u64) -> Self {
        // Of the seed before another time may be left.
        set_clock(1);
        let world = SimWorld::new(seed);
        let nodes = [0, 1].map(|id| open(&world, ServerId(id)));
        let fabric = world.fabric(HOSTILE, Incarnation(1));
        let link = |peer: u32| {
            let windows = Arc::new(AnonymousWindows::new());
            let fabric = Arc::<SimFabric>::clone(&fabric);
            let ends = Ends {
                me: HOSTILE,
                peer: ServerId(peer),
            };
            Link::new(ends, SETTINGS, fabric, windows, 1 << 16).expect("memory for a link")
        };
        Self {
            links: [0, 1].map(link),
            world,
            nodes,
            fabric,
            raw: Vec::new(),
            random: Random(seed),
            now: 1,
            attempts: vec![1, 2],
            answers: Arc::default(),
            sent: 0,
        }
    }

    /// Lets some time pass. What the others say is read, and nothing of it believed.
    fn step(&mut self) {
        self.now += 50_000 + self.random.next() % 200_000;
        set_clock(self.now);
        let now = Instant::from_nanos(self.now);
        self.world.step(now);
        self.step_raw();
        for node in &self.nodes {
            node.step_fabric(now);
            node.step_background(now);
            let holdings = node.reports().holdings();
            let over = holdings.iter().find(|holding| holding.held > holding.most);
            assert_eq!(over, None, "something grows without end");
        }
        let mut payload = Vec::new();
        for link in &mut self.links {
            link.step(now, &mut Vec::new());
            while let Some(header) = link.next(&mut payload) {
                if let Ok(Message::Prepare { attempt, .. }) = Message::decode(header.kind, &payload)
                {
                    self.attempts.push(attempt);
                }
            }
            link.flush();
        }
    }

    /// Something hostile.
    fn act(&mut self) {
        match self.random.below(20) {
            0..9 => self.say(),
            9 => (0..300).for_each(|_| self.say()),
            10 | 11 => self.say_anything(),
            12..15 => self.scribble(),
            15 => self.misplace(),
            _ => {}
        }
        // Connections that are given up write on.
        let keep = self.raw.len().saturating_sub(8);
        self.raw.drain(..keep);
    }

    fn header(&mut self, kind: u8) -> Header {
        let region = match self.random.below(8) {
            0 => RegionId(self.random.small()),
            1 => RegionId(0),
            _ => self.random.pick(&REGIONS),
        };
        let epoch = Epoch(if self.random.below(10) == 0 {
            self.random.small()
        } else {
            1
        });
        let request = self.random.number();
        Header {
            kind,
            region,
            epoch,
            request,
        }
    }

    fn send(&mut self, header: Header, payload: &[u8]) {
        let link = self.random.below(2);
        self.sent += usize::from(self.links[link].send(header, payload).is_ok());
    }

    /// A message that can be understood, or nearly.
    fn say(&mut self) {
        let attempt = {
            let known = self.attempts.len();
            let at = known - 1 - self.random.below(known.min(3));
            self.attempts[at]
        };
        let (body, key) = (self.random.bytes(900), self.random.bytes(40));
        let mut payload = Vec::new();
        let kind = {
            let message = message(&mut self.random, attempt, &body, &key);
            message.encode(&mut payload);
            message.kind()
        };
        if self.random.below(8) == 0 && !payload.is_empty() {
            let at = self.random.below(payload.len());
            match self.random.below(2) {
                0 => payload.truncate(at),
                _ => payload[at] ^= 1 << self.random.below(8),
            }
        }
        let header = self.header(kind);
        self.send(header, &payload);
    }

    /// A message of which nothing has a meaning, parts of messages that have no end among them.
    fn say_anything(&mut self) {
        let kind = self.random.byte().max(1);
        let kind = if self.random.below(3) == 0 {
            kind | CONTINUED
        } else {
            kind
        };
        let kind = if kind == CONTINUED { 20 } else { kind };
        let payload = self.random.bytes(4_000);
        let header = self.header(kind);
        self.send(header, &payload);
    }

    /// Writes `bytes` at `offset` of memory that the peer offers under `key`, as far as there is such.
    fn write_raw(&mut self, peer: ServerId, key: MemoryKey, offset: usize, bytes: &[u8]) {
        let Ok(found) = self.fabric.find(peer, key) else {
            return;
        };
        let connecting = self.fabric.connect(peer, found, 1);
        let bytes = bytes.to_vec();
        self.raw.push(Raw::Connecting(connecting, offset, bytes));
    }

    /// Writes what was to be written where connections have been made.
    fn step_raw(&mut self) {
        for raw in &mut self.raw {
            let Raw::Connecting(connecting, offset, bytes) = raw else {
                continue;
            };
            // Those that fail stay, and count as others that are given up.
            if let Ok(Some(mut remote)) = connecting.poll() {
                let len = remote.len();
                let offset = len.min(*offset);
                let bytes = &bytes[..bytes.len().min(len - offset)];
                // It may be revoked in this very moment.
                let _ = remote.write(offset, bytes, 1);
                *raw = Raw::Made { _remote: remote };
            }
        }
    }

    /// Random bytes anywhere: in the words of an inbox, in its ring, in landing slots and windows.
    fn scribble(&mut self) {
        let peer = ServerId(self.random.small() % 2);
        let log = log(&mut self.random);
        let window = keys::window(REGIONS[2], log, self.random.below(4));
        let inbox = keys::inbox(HOSTILE);
        let key = self
            .random
            .pick(&[inbox, inbox, keys::landing(HOSTILE), window]);
        let (offset, bytes) = match self.random.below(4) {
            // A word of the inbox: whole, and wrong.
            0 => (
                8 * self.random.below(8),
                self.random.number().to_le_bytes().to_vec(),
            ),
            // The place where the next message is to begin, if none has come yet.
            1 => (RING, self.random.bytes(64)),
            _ => (self.random.below(80_000), self.random.bytes(600)),
        };
        self.write_raw(peer, key, offset, &bytes);
    }

    /// A message that is right but for where it lies, and of which session it is.
    fn misplace(&mut self) {
        let link = self.random.below(2);
        let session = match self.random.below(2) {
            0 => self.links[link].session(),
            _ => self.random.small(),
        };
        let shape = RingShape::new(SETTINGS.ring_bytes);
        let mut ring = RingWriter::new(shape, Incarnation(session.into()));
        let payload = self.random.bytes(300);
        for _ in 0..=self.random.below(20) {
            let header = self.header(20);
            let _ = ring.push(header, &[&payload]);
        }
        if let Some((_, bytes)) = ring.next_write() {
            let bytes = bytes.to_vec();
            let offset = match self.random.below(3) {
                0 => RING,
                _ => RING + 32 * self.random.below(SETTINGS.ring_bytes / 32),
            };
            let peer = ServerId(u32::try_from(link).expect("two"));
            self.write_raw(peer, keys::inbox(HOSTILE), offset, &bytes);
        }
    }

    /// A client of the first server writes into the region that has nothing to do with the hostile one.
    fn ask(&mut self, token: u64) {
        let mut batch = WriteBatch::new();
        batch
            .put(format!("a{}", token % 100).as_bytes(), [7; 300])
            .expect("it is short");
        let (batch, options) = (&batch, WriteOptions::default());
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&self.answers);
        if let Some(response) = self.nodes[0]
            .call(
                Request::Write { batch, options },
                Reach::Device,
                ReplyTo::new(&sink, token),
            )
            .answered()
        {
            sink.deliver(token, response);
        }
        self.nodes[0].flush();
    }

    /// How many requests were answered since the last call. Each was carried out.
    fn answered(&mut self) -> u64 {
        let answers = std::mem::take(&mut *self.answers.0.lock());
        for (token, answer) in &answers {
            let written = matches!(answer, Response::Written { applied: true, .. });
            assert!(written, "request {token} of an honest client: {answer:?}");
        }
        answers.len() as u64
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE {
            if done(self) {
                return;
            }
            self.step();
        }
        let lacks = self.nodes.each_ref().map(|node| Service::ready(&**node));
        panic!("{what}: {lacks:?}");
    }

    fn is_open(&self) -> bool {
        let links = self.links.iter().all(Link::is_open);
        links
            && self
                .nodes
                .iter()
                .all(|node| node.inspect().peer_apart().is_none())
    }
}

/// A log, which the engine may have or not.
fn log(random: &mut Random) -> LogId {
    let all: Vec<LogId> = LogId::all().collect();
    random.pick(&all)
}

fn position(random: &mut Random) -> Position {
    let end = LogPosition {
        ordinal: random.number(),
        segment: SegmentNumber(random.number()),
        end: random.small(),
        flushed: random.small(),
    };
    Position {
        edit: EditSeq(random.number()),
        lsn: Lsn(random.number()),
        logs: (0..random.below(4)).map(|_| (log(random), end)).collect(),
    }
}

fn range(random: &mut Random) -> FlushRange {
    FlushRange {
        log: log(random),
        ordinal: random.number(),
        segment: SegmentNumber(random.number()),
        from: random.small(),
        to: random.small(),
    }
}

/// Some descriptors of grants that nobody made.
fn descriptors(random: &mut Random) -> Vec<Descriptor> {
    let any = |random: &mut Random| Descriptor {
        key: MemoryKey(random.number()),
        grant: random.number(),
    };
    (0..random.below(4)).map(|_| any(random)).collect()
}

/// Any message, with numbers and bytes of the seed's choice.
fn message<'a>(random: &mut Random, attempt: u64, body: &'a [u8], key: &'a [u8]) -> Message<'a> {
    let (seq, segment) = (EditSeq(random.number()), SegmentNumber(random.number()));
    let (from, to, slot) = (random.small(), random.small(), random.byte());
    let len = match random.below(2) {
        0 => body.len() as u64,
        _ => random.number(),
    };
    match random.below(30) {
        0 => Message::Prepare {
            attempt,
            addresses: random.pick(&AddressMode::ALL),
            refill: random.below(9) == 0,
        },
        1 => Message::Report {
            attempt,
            position: position(random),
            standing: random.pick(&Standing::ALL),
            windows: descriptors(random),
        },
        2 => Message::CaughtUp {
            attempt,
            position: position(random),
        },
        3 => Message::Offer {
            attempt,
            seq,
            len,
            bytes: body,
        },
        4 | 5 => Message::Edit {
            attempt,
            seq,
            len,
            bytes: body,
        },
        6 => Message::More {
            attempt,
            seq,
            from: random.number(),
            bytes: body,
        },
        7 => Message::MoreWanted {
            attempt,
            seq,
            to: random.number(),
        },
        8 => Message::Applied { attempt, seq },
        9 => Message::CheckpointWanted { attempt },
        10 => Message::Flush {
            attempt,
            range: range(random),
            commit: Lsn(random.number()),
        },
        11 => Message::Flushed {
            attempt,
            range: range(random),
        },
        12 => Message::Ship {
            attempt,
            segment,
            len: from,
            checksum: to,
            slot,
            place: DeviceSegment(random.small()),
        },
        what => second_message(random, what, attempt, body, key),
    }
}

/// The second half of them.
fn second_message<'a>(
    random: &mut Random,
    what: usize,
    attempt: u64,
    body: &'a [u8],
    key: &'a [u8],
) -> Message<'a> {
    let segment = SegmentNumber(random.number());
    let (from, to, slot) = (random.small(), random.small(), random.byte());
    match what {
        13 => Message::Stored {
            attempt,
            slot: slot % 4,
        },
        14 | 15 => Message::Fetch {
            segment,
            from,
            to,
            slot: slot % 4,
        },
        16 => Message::Fetched {
            slot,
            status: FetchStatus::Ok,
            len: from,
            checksum: to,
        },
        17 => Message::Adopt,
        18 => Message::Room {
            free: from,
            reserve: to,
        },
        19 => Message::Places {
            attempt,
            places: vec![(segment, DeviceSegment(to)); random.below(50)],
        },
        20 => Message::Commit {
            commit: Lsn(random.number()),
        },
        21 => Message::Compact {
            upto: Lsn(random.number()),
        },
        22 => Message::Failed {
            attempt,
            damaged: random.below(9) == 0,
            why: "it wants to",
        },
        23 => Message::Whole { attempt },
        24 => Message::Rest { attempt },
        25 => Message::Wake { attempt },
        26 => Message::Awake { attempt },
        27 => {
            let mut answer = Vec::new();
            Response::Count(random.number()).encode(&mut answer);
            Message::Answer(answer.leak())
        }
        28 => Message::Seated,
        _ => Message::Call(call(random, body, key).leak()),
    }
}

/// Any call, of keys that the region may not have and with bounds that are none.
fn call(random: &mut Random, body: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let at = Some(SnapshotId(random.number()));
    match random.below(8) {
        0 => Request::Get { key }.encode(&mut out),
        1 => Request::GetVersion { key }.encode(&mut out),
        2 => write(random, body, key, &mut out),
        3 => {
            let keys = &KeyList::of([&b"big"[..]; 40]);
            let wanted = Wanted::Values(usize::MAX);
            Request::GetMany { keys, wanted, at }.encode(&mut out);
        }
        4 => {
            let span = Duration::from_nanos(random.number());
            let lease = random.pick(&[Lease::Open(span), Lease::Renew(span), Lease::Close]);
            Request::Snapshot { id: at, lease }.encode(&mut out);
        }
        5 => {
            let to = (random.below(2) == 0).then(|| body.to_vec());
            let paging = Paging {
                direction: random.pick(&[Direction::Up, Direction::Down]),
                pairs_max: usize::MAX,
                bytes_max: usize::MAX,
                keys_only: random.below(2) == 0,
                at,
            };
            let range = &KeyRange::new(key, to);
            Request::Scan { range, paging }.encode(&mut out);
        }
        6 => {
            out.extend_from_slice(&[9, 2]);
            for bytes in [key, body, key, body] {
                put_string(&mut out, bytes);
            }
        }
        _ => match random.below(2) {
            0 => {
                let what = Maintenance::Flush;
                Request::Maintain { what }.encode(&mut out);
            }
            _ => Request::Count.encode(&mut out),
        },
    }
    out
}

/// A write that a server would not send: see the grammar in `wire::api`.
fn write(random: &mut Random, body: &[u8], key: &[u8], out: &mut Vec<u8>) {
    out.push(2);
    match random.pick(&[0, 1, 3, 4]) {
        3 => {
            out.push(3);
            put_string(out, key);
        }
        4 => out.extend_from_slice(&[4, 7]),
        when => out.push(when),
    }
    out.push(u8::from(random.below(2) == 0));
    match random.below(4) {
        0 => {
            out.push(random.byte());
            put_varint(out, random.number());
        }
        _ => out.push(0),
    }
    let ops = random.below(3);
    put_varint(out, ops as u64);
    for _ in 0..ops {
        let kind = random.pick(&[1, 2, 3]);
        out.push(kind);
        put_string(out, key);
        put_string(out, body);
        if kind == 2 {
            out.push(random.byte());
            put_varint(out, random.number());
        }
    }
}

#[test]
fn a_hostile_peer_harms_nobody_else() {
    let (mut resets, mut sent) = (0, 0);
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed);
        scene.until("the links open", Scene::is_open);
        scene.until("the honest region opens", |scene| {
            scene.nodes[0].inspect().snapshot(REGIONS[0]).is_some()
        });
        let (mut asked, mut answered) = (0, 0);
        for step in 0..STEPS {
            scene.act();
            scene.step();
            if step % 20 == 0 {
                asked += 1;
                scene.ask(asked);
            }
            answered += scene.answered();
        }
        for _ in 0..PATIENCE {
            if answered == asked {
                break;
            }
            scene.step();
            answered += scene.answered();
        }
        assert_eq!(answered, asked, "seed {seed}: honest clients are answered");
        scene.raw.clear();
        scene.until("its links open again", Scene::is_open);
        resets += scene
            .nodes
            .iter()
            .map(|node| node.inspect().counts().links_lost)
            .sum::<u64>();
        sent += scene.sent;
    }
    assert!(
        resets > 4 * SEEDS,
        "the test would prove nothing: {resets} resets"
    );
    assert!(sent > 1000, "the test would prove nothing: {sent} messages");
}
