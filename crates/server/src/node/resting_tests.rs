//! Windows of regions that nobody writes to: what they take, and how they are woken.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Instant, KeyRange, RegionId, ServerId};
use argosy_coordinator::{ClusterId, ClusterMap, Replication, Server};
use argosy_device::{FormatOptions, MemoryDevice, Store};
use argosy_engine::{Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::{SimSettings, SimWorld};
use argosy_memory::shared::CONTROL_BYTES;
use argosy_memory::{BootId, Others, WindowFiles, WindowFilesOptions};
use tempfile::TempDir;

use super::copies_tests::{Pair, settings};
use super::planted_tests::write_of;
use super::readers_tests::{Answers, set_clock, surroundings};
use super::{Node, NodeSettings, World};
use crate::service::{Begun, ReplySink, ReplyTo, Request, Response, Service};

/// Logs are flushed soon, and rest soon.
fn soon(window_bytes: usize) -> NodeSettings {
    NodeSettings {
        engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
            of.memtables.bytes = 64 << 10;
            of.memtables.count_max = 2;
            of.cache_bytes = 0;
            of.logs.flush_interval = Duration::from_millis(5);
            of.logs.rest_after = Duration::from_millis(40);
            of.layout.window_bytes = window_bytes;
        })),
        ..settings(Default::default())
    }
}

/// Bytes of a slot for one window of `settings`.
fn slot_bytes(settings: &NodeSettings) -> usize {
    settings.engine.start().logs()[0].slot_bytes
}

/// How many windows have no memory at `server`, and how many have.
fn released(pair: &Pair, server: usize) -> (usize, usize) {
    let slot = slot_bytes(&pair.settings);
    let memories = pair.windows[server].inner.memories();
    let windows = memories.iter().filter(|(_, memory)| memory.len() == slot);
    let (awake, at_rest): (Vec<_>, Vec<_>) = windows.partition(|(_, memory)| memory.is_allocated());
    (at_rest.len(), awake.len())
}

#[test]
fn a_group_rests_and_is_woken_by_a_write() {
    for replication in [Replication::SendIndex, Replication::BuildIndex] {
        let mut pair = Pair::with(replication, SimSettings::default(), soon(512 << 10));
        pair.open();
        pair.run(200);
        let slots = 2 * 2 * pair.settings.engine.start().logs()[0].slots;
        for server in [0, 1] {
            assert_eq!(released(&pair, server), (slots, 0), "it was never written");
        }
        for key in 0..20 {
            pair.put(0, key);
            pair.run(if key % 4 == 0 { 200 } else { 2 });
        }
        pair.run(200);
        assert_eq!(pair.acknowledged(), (20, 20));
        for server in [0, 1] {
            assert_eq!(released(&pair, server), (slots, 0));
        }
        pair.put(1, 7);
        pair.run(2);
        assert_eq!(pair.acknowledged(), (1, 1));
        for server in [0, 1] {
            assert_eq!(
                released(&pair, server),
                (slots / 2, slots / 2),
                "one region is awake"
            );
        }
        // A backup that comes back has fresh windows, and rests with the others.
        pair.run(200);
        pair.restart(1);
        pair.open();
        pair.put(0, 30);
        // They are connected to first.
        let is_acknowledged = (0..20).any(|_| {
            pair.run(1);
            pair.acknowledged() == (1, 1)
        });
        assert!(is_acknowledged);
        // Both are killed with what is in windows alone.
        pair.restart(0);
        pair.restart(1);
        pair.open();
        pair.put(0, 31);
        pair.run(300);
        assert_eq!(pair.acknowledged(), (1, 1));
        for server in [0, 1] {
            assert_eq!(released(&pair, server), (slots, 0));
        }
    }
}

/// There is memory for the windows of `server` that rest, or none.
fn set_scarce(pair: &Pair, server: usize, scarce: bool) {
    let memories = pair.windows[server].inner.memories();
    memories
        .iter()
        .for_each(|(_, memory)| memory.set_scarce(scarce));
}

/// Longest time after which a backup asks for memory again, in milliseconds.
const AGAIN: u64 = 2000;

/// A write wakes a region whose backup finds no memory for its windows. It is not confirmed as long as that is so; who
/// waits is told at the deadline that it may have been done, and who comes when the primary's own windows are full that
/// it was not. Nothing is lost, and everything goes on once there is memory.
#[test]
fn a_backup_without_memory_for_windows_holds_writes_up_and_loses_none() {
    for replication in [Replication::SendIndex, Replication::BuildIndex] {
        let mut pair = Pair::with(replication, SimSettings::default(), soon(64 << 10));
        pair.open();
        pair.run(200);
        let deadline = u64::try_from(pair.settings.deadline.as_millis()).expect("it is short");
        set_scarce(&pair, 1, true);

        // There is memory before anyone asks again: nobody notices.
        pair.put(0, 1);
        pair.run(deadline / 2);
        assert_eq!(pair.acknowledged(), (0, 0), "the backup has no memory");
        set_scarce(&pair, 1, false);
        pair.run(deadline);
        let (confirmed, answers) = pair.acknowledged();
        assert_eq!(answers, 1, "it is told by the deadline");
        pair.run(AGAIN);
        pair.put(0, 2);
        pair.run(20);
        assert_eq!(pair.acknowledged(), (1, 1), "{confirmed} before");

        // There is none for long: whoever writes is told, and memory of the primary is bounded.
        pair.run(200);
        let slots = 2 * pair.settings.engine.start().logs()[0].slots;
        assert_eq!(released(&pair, 1), (2 * slots, 0), "it rests again");
        set_scarce(&pair, 1, true);
        let mut told = 0;
        for key in 0..400 {
            pair.put(0, 10 + key);
            if key % 50 == 0 {
                pair.run(5);
            }
            told += 1;
        }
        pair.run(2 * deadline);
        assert_eq!(pair.acknowledged(), (0, told), "none is confirmed");
        assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);

        set_scarce(&pair, 1, false);
        pair.run(AGAIN + 200);
        pair.put(0, 1000);
        pair.run(50);
        assert_eq!(pair.acknowledged(), (1, 1), "it goes on");
        // What was written at first and confirmed is there on both, whoever is killed.
        pair.restart(0);
        pair.restart(1);
        pair.open();
        for key in [1, 2, 1000] {
            assert!(pair.has(0, key), "{key} is lost");
        }
    }
}

/// Bytes that the files in `directory` take, without those of more than `longest` bytes: memory of links.
fn taken(directory: &Path, longest: u64) -> u64 {
    let files = std::fs::read_dir(directory).expect("it is there");
    let files = files.map(|file| file.and_then(|file| file.metadata()).expect("it is there"));
    let windows = files.filter(|file| file.len() <= longest);
    windows.map(|file| file.blocks() * 512).sum()
}

const REGIONS: u32 = 100;

fn map() -> ClusterMap {
    let members = vec![ServerId(0), ServerId(1)];
    let servers = members.iter().map(|id| Server {
        id: *id,
        resp: format!("127.0.0.1:700{}", id.0),
        admin: format!("127.0.0.1:800{}", id.0),
    });
    let border = |region: u32| format!("{region:03}").into_bytes();
    let regions = (0..REGIONS).map(|region| {
        let from = match region {
            0 => Vec::new(),
            _ => border(region),
        };
        let to = (region + 1 < REGIONS).then(|| border(region + 1));
        let (id, range) = (RegionId(region + 1), KeyRange::new(from, to));
        argosy_coordinator::Region::first(id, range, ServerId(0), members.clone())
    });
    let (servers, regions) = (servers.collect(), regions.collect());
    ClusterMap::new(ClusterId(1), Replication::SendIndex, servers, regions).expect("it is valid")
}

/// Two servers whose windows lie in files.
struct OnFiles {
    /// In shared memory, where there is any.
    directory: TempDir,
    world: SimWorld,
    nodes: [Arc<Node>; 2],
    now: u64,
}

impl OnFiles {
    fn new(settings: &NodeSettings) -> Self {
        let tmpfs = Path::new("/dev/shm");
        let base = match tmpfs.is_dir() {
            true => tmpfs.to_path_buf(),
            false => std::env::temp_dir(),
        };
        let mut directory = tempfile::Builder::new();
        let directory = directory.prefix("argosy-resting-").tempdir_in(base);
        let directory = directory.expect("there is room");
        set_clock(1);
        let world = SimWorld::with_settings(7, SimSettings::default());
        let nodes = [0, 1].map(|server| {
            let device = MemoryDevice::eager(2048 * SEGMENT_SIZE as u64, 1);
            Store::format(&device, &FormatOptions::default()).expect("it is new");
            let usual = surroundings(&world, ServerId(server), Arc::new(device));
            let windows = WindowFiles::open(WindowFilesOptions {
                directory: directory.path().join(server.to_string()),
                fallback: None,
                boot: BootId(1),
                incarnation: usual.store.incarnation(),
                device: 0,
                others: Others::Refuse,
            });
            let windows = Arc::new(windows.expect("it is new"));
            let surroundings = World { windows, ..usual };
            Node::open(ServerId(server), settings.clone(), surroundings, map()).expect("it opens")
        });
        let now = 1;
        Self {
            directory,
            world,
            nodes,
            now,
        }
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += 1_000_000;
            set_clock(self.now);
            let now = Instant::from_nanos(self.now);
            self.world.step(now);
            for node in &self.nodes {
                node.step_fabric(now);
                node.step_background(now);
            }
        }
    }

    fn open(&mut self) {
        for _ in 0..100 {
            if self.nodes.iter().all(|node| node.ready().lacks.is_none()) {
                return;
            }
            self.run(10);
        }
    }

    /// Bytes that the log windows of each server take.
    fn taken(&self, settings: &NodeSettings) -> [u64; 2] {
        let longest = slot_bytes(settings) + CONTROL_BYTES;
        let longest = u64::try_from(longest).expect("it is short");
        ["0", "1"].map(|server| taken(&self.directory.path().join(server), longest))
    }
}

#[test]
fn a_hundred_idle_regions_take_64_kib_each() {
    // Small enough for machines with little memory.
    let settings = soon(128 << 10);
    let mut servers = OnFiles::new(&settings);
    servers.open();
    let answers = Arc::new(Answers::default());
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&answers);
    for region in 0..REGIONS {
        let mut batch = WriteBatch::new();
        for (what, len) in [("small", 10), ("large", 5_000)] {
            let key = format!("{region:03} {what}");
            let value = vec![b'v'; len];
            batch.put(key.as_bytes(), &value).expect("it is short");
        }
        let options = WriteOptions::default();
        let request = Request::Write {
            batch: &batch,
            options,
        };
        let reply = ReplyTo::new(&sink, region.into());
        let begun = servers.nodes[0].call(request, Reach::Device, reply);
        if let Begun::Answered(now) = begun {
            sink.deliver(region.into(), now);
        }
    }
    servers.nodes[0].flush();
    // Backups wake when they are asked to.
    servers.run(2);
    let limit = u64::from(REGIONS) * (64 << 10);
    let in_use = servers.taken(&settings);
    assert!(in_use.iter().all(|taken| *taken > limit * 8), "{in_use:?}");
    servers.run(300);
    let answers = std::mem::take(&mut *answers.0.lock());
    let applied = answers
        .iter()
        .filter(|(_, answer)| matches!(answer, Response::Written { applied: true, .. }));
    let all = REGIONS as usize;
    assert_eq!((applied.count(), answers.len()), (all, all));
    let idle = servers.taken(&settings);
    assert!(idle.iter().all(|taken| *taken <= limit), "{idle:?}");
}

/// Each server has memory for the windows of eight regions, and of eight whose backup it is.
#[test]
fn a_hundred_regions_take_turns_with_memory_for_the_windows_of_eight() {
    const AWAKE: usize = 8;
    let mut settings = soon(128 << 10);
    settings.memory.awake = AWAKE;
    settings.deadline = Duration::from_secs(20);
    let mut servers = OnFiles::new(&settings);
    servers.open();
    let answers = Arc::new(Answers::default());
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&answers);
    for round in 0..3 {
        for region in 0..REGIONS {
            let batch = write_of(format!("{region:03} {round}").as_bytes(), 10);
            let options = WriteOptions::default();
            let request = Request::Write {
                batch: &batch,
                options,
            };
            let token = u64::from(round * REGIONS + region);
            let begun = servers.nodes[0].call(request, Reach::Device, ReplyTo::new(&sink, token));
            if let Begun::Answered(now) = begun {
                sink.deliver(token, now);
            }
        }
        servers.nodes[0].flush();
    }
    let logs = settings.engine.start();
    let region = |log: &argosy_engine::LogSpec| log.slots * log.slot_bytes;
    let region: usize = logs.logs().iter().map(region).sum();
    let resting = REGIONS as usize * (64 << 10);
    let most = (AWAKE * region + resting) as u64;
    for _ in 0..2000 {
        servers.run(1);
        let taken = servers.taken(&settings);
        assert!(
            taken.iter().all(|taken| *taken <= most),
            "{taken:?} of {most}"
        );
    }
    let answers = std::mem::take(&mut *answers.0.lock());
    let is_applied =
        |answer: &&(u64, Response)| matches!(answer.1, Response::Written { applied: true, .. });
    let all = 3 * REGIONS as usize;
    assert_eq!(
        (answers.iter().filter(is_applied).count(), answers.len()),
        (all, all)
    );
}
