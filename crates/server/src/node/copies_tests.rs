//! Two servers and what becomes of their copies when the fabric is slow: stepped by the
//! test, over a simulated fabric.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Clock, Epoch, Instant, KeyRange, RegionId, ServerId};
use argosy_coordinator::{ClusterId, ClusterMap, Replication, Server};
use argosy_device::{AnonymousWindows, Store, StoreSettings};
use argosy_engine::{WriteBatch, WriteOptions};
use argosy_fabric::sim::{SimSettings, SimWorld};

use super::readers_tests::{Answers, Gate, StoppedClock, set_clock};
use super::{LinkSettings, MemoryParts, Mutants, Node, NodeSettings, World};
use crate::activity::Ledger;
use crate::service::{ReplySink, Request, Response, Service};

const REGIONS: [RegionId; 2] = [RegionId(1), RegionId(2)];
/// The first key of the second region.
const BORDER: &[u8] = b"m";

/// Two servers with two regions; the first is primary of both.
struct Pair {
    world: SimWorld,
    nodes: [Arc<Node>; 2],
    answers: Arc<Answers>,
    asked: u64,
    now: Instant,
}

fn map() -> ClusterMap {
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
    let regions = regions.map(|(id, range)| argosy_coordinator::Region {
        id,
        range,
        epoch: Epoch(1),
        primary: ServerId(0),
        members: members.clone(),
    });
    let (servers, regions) = (servers.collect(), regions.collect());
    ClusterMap::new(ClusterId(1), Replication::SendIndex, servers, regions).expect("it is valid")
}

fn settings(mutants: Mutants) -> NodeSettings {
    NodeSettings {
        scrub: Default::default(),
        sweep: Default::default(),
        engine: argosy_lsm::Settings {
            l0_bytes: 64 << 10,
            memtables_max: 2,
            cache_bytes: 0,
            ..Default::default()
        },
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
        mutants,
        replication_mutants: Default::default(),
    }
}

impl Pair {
    fn new(fabric: SimSettings, mutants: Mutants) -> Self {
        let world = SimWorld::with_settings(7, fabric);
        let nodes = std::array::from_fn(|index| {
            let id = ServerId(u32::try_from(index).expect("two"));
            let clock: Arc<dyn Clock> = Arc::new(StoppedClock);
            let store =
                Store::open(Gate::new(), &StoreSettings::default()).expect("it was formatted");
            let surroundings = World {
                ledger: Arc::new(Ledger::new(Arc::clone(&clock), [])),
                fabric: world.fabric(id, store.incarnation()),
                windows: Arc::new(AnonymousWindows::new()),
                waker: Arc::new(|| {}),
                clock,
                store,
                resident: || None,
                collect: || {},
            };
            Node::open(id, settings(mutants), surroundings, map()).expect("it opens")
        });
        Self {
            world,
            nodes,
            answers: Arc::default(),
            asked: 0,
            now: Instant::from_nanos(1),
        }
    }

    /// Lets so much time pass.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis * 4 {
            self.now = self.now + Duration::from_micros(250);
            self.world.step(self.now);
            set_clock(self.now.as_nanos());
            for node in &self.nodes {
                node.step_fabric(self.now);
                node.step_background(self.now);
            }
        }
    }

    /// Until both servers are ready.
    fn open(&mut self) {
        for _ in 0..200 {
            if self.nodes.iter().all(|node| node.ready().lacks.is_none()) {
                return;
            }
            self.run(10);
        }
        panic!("{:?}", self.nodes[0].ready());
    }

    /// Writes four pairs, a kilobyte in all; the answer comes in its time.
    fn put(&mut self, region: usize, key: u64) {
        let mut batch = WriteBatch::new();
        for part in 0..4 {
            let key = format!("{}{key:08}{part}", ["a", "z"][region]);
            batch
                .put(key.as_bytes(), &[b'v'; 240])
                .expect("it is short");
        }
        let options = WriteOptions::default();
        let sink: Arc<dyn ReplySink> = Arc::clone(&self.answers) as _;
        self.asked += 1;
        let request = Request::Write {
            batch: &batch,
            options,
        };
        if let Some(now) = self.nodes[0].call(request, &sink, self.asked) {
            sink.deliver(self.asked, now);
        }
        self.nodes[0].flush();
    }

    /// How many writes were acknowledged since this was asked last, of how many answers.
    fn acknowledged(&self) -> (usize, usize) {
        let answers = std::mem::take(&mut *self.answers.0.lock().expect("no panic"));
        let applied = answers
            .iter()
            .filter(|(_, answer)| matches!(answer, Response::Written { applied: true, .. }));
        (applied.count(), answers.len())
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
    let offers = pair.nodes[0].counts().offers;
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
    assert_eq!(pair.nodes[0].counts().links_lost, 0);
    assert_eq!(
        pair.nodes[0].counts().offers,
        offers,
        "nobody had to catch up"
    );
}
