//! A server that comes to serve more regions than its memtables were set for: all of them together stay within what
//! was set, and every write is taken.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use argosy_base::{EditSeq, Epoch, Instant, RegionId, SEGMENT_SIZE};
use argosy_device::{Device, FormatOptions, MemoryDevice, Store, StoreSettings};
use argosy_engine::{CopyOf, Engine, LogSlots, Service, Settings as _, WriteBatch, WriteOptions};
use argosy_lsm::Settings;
use argosy_lsm::memtable::allocated;
use argosy_memory::{AnonymousWindows, WindowStore};

const TABLE_BYTES: usize = 4 << 20;
const TABLES_MAX: usize = 3;
/// What all memtables may take: those of the one region that they were set for.
const SHARE: usize = TABLES_MAX * TABLE_BYTES;
const CACHE_BYTES: usize = 32 << 20;
const REGIONS: u32 = 8;
/// The arena of each memtable ends in a chunk of 64 KiB that is used in part.
const SLACK: usize = REGIONS as usize * TABLES_MAX * (64 << 10);

/// A server, by its engine.
struct Server {
    engine: Arc<dyn Engine>,
    store: Arc<Store>,
    windows: AnonymousWindows,
    served: Vec<Arc<dyn argosy_engine::Store>>,
    now: u64,
    /// Writes that were taken.
    written: u64,
    /// Most bytes of memtables that the cache did not give way to.
    most: usize,
}

impl Server {
    fn new(regions: Option<usize>) -> Self {
        let device = MemoryDevice::eager(512 * SEGMENT_SIZE as u64, 1);
        Store::format(&device, &FormatOptions::default()).unwrap();
        let device: Arc<dyn Device> = Arc::new(device);
        let store = Store::open(device, &StoreSettings::default()).unwrap();
        store.finish_recovery();
        let settings = Settings::default().with(|of| {
            of.memtables.bytes = TABLE_BYTES;
            of.memtables.count_max = TABLES_MAX;
            of.memtables.regions = regions;
            of.cache_bytes = CACHE_BYTES;
        });
        Self {
            engine: settings.start(),
            store,
            windows: AnonymousWindows::new(),
            served: Vec::new(),
            now: 1,
            written: 0,
            most: 0,
        }
    }

    /// Has it serve one region more.
    fn serve(&mut self) {
        let region = RegionId(u32::try_from(self.served.len()).unwrap());
        let logs = self.engine.logs().iter();
        let windows = logs.map(|log| LogSlots {
            log: log.id,
            slots: (0..log.slots)
                .map(|slot| {
                    let name = u64::from(region.0) << 32 | u64::from(log.id.raw()) << 16;
                    let name = name | u64::try_from(slot).unwrap();
                    self.windows.create(name, log.slot_bytes).unwrap()
                })
                .collect(),
        });
        let copy = CopyOf {
            store: &self.store,
            region,
            own_levels: None,
        };
        let copy = self.engine.create(&copy, windows.collect()).unwrap();
        let service = Service {
            epoch: Epoch(1),
            since: EditSeq::default().cut_epoch(),
            ..Service::default()
        };
        let promoted = copy.promote(service);
        self.served
            .push(promoted.map_err(|not| not.error).unwrap().store);
        self.look();
    }

    fn step(&mut self) {
        self.now += 20_000_000;
        for store in &self.served {
            store.step(Instant::from_nanos(self.now)).unwrap();
        }
        self.look();
    }

    /// What memtables take beyond what the cache has given way to.
    fn look(&mut self) {
        let charged = usize::try_from(self.engine.cache().stats().charged_bytes).unwrap();
        self.most = self.most.max(allocated::bytes().saturating_sub(charged));
    }

    /// Writes a kilobyte to a region. Waits while there is no room.
    fn write(&mut self, region: usize) {
        let mut batch = WriteBatch::new();
        let key = format!("{:08}", self.written * 7919 % 100_000);
        batch.put(key.as_bytes(), [b'v'; 900]).unwrap();
        let mut steps = 0;
        while self.served[region]
            .write(&batch, WriteOptions::default())
            .is_err()
        {
            self.step();
            steps += 1;
            assert!(steps < 10_000, "a write is not taken");
        }
        self.written += 1;
        self.look();
    }

    /// Has everything flushed that waits for it.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.step();
        }
    }
}

/// One test, since what is allocated is counted for the whole process.
#[test]
fn memtables_of_more_regions_take_no_more_together() {
    let mut server = Server::new(Some(1));
    server.serve();
    for _ in 0..10_000 {
        server.write(0);
    }
    assert!(
        allocated::bytes() > TABLE_BYTES / 2,
        "{}",
        allocated::bytes()
    );
    while server.served.len() < REGIONS as usize {
        server.serve();
        let newest = server.served.len() - 1;
        for _ in 0..50 {
            server.write(newest);
        }
    }
    assert!(server.most <= SHARE + SLACK, "{} on the way", server.most);
    server.settle();
    server.most = 0;
    server.step();
    assert!(
        server.most <= SHARE,
        "{}, also of those that are not written to",
        server.most
    );
    // What is there now is within the share by itself: the cache need not give way.
    for _ in 0..4000 {
        for region in 0..REGIONS as usize {
            server.write(region);
        }
        let taken = allocated::bytes();
        assert!(taken <= SHARE + SLACK, "{taken} of {SHARE}");
    }
    assert_eq!(server.written, 10_000 + 7 * 50 + 4000 * 8, "all were taken");
    drop(server);

    // Where it is not said how many they are set for, they take what they need.
    let mut server = Server::new(None);
    (0..REGIONS).for_each(|_| server.serve());
    for _ in 0..4000 {
        (0..REGIONS as usize).for_each(|region| server.write(region));
    }
    assert!(allocated::bytes() > SHARE + SLACK, "{}", allocated::bytes());
}
