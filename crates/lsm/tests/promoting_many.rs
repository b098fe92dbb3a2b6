//! A server that is promoted in many regions at one time, whose logs together hold more than it has memory for: all of
//! them open, one after the other, and never more is in memtables than their shares and what the cache gives.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use argosy_base::{EditSeq, Epoch, Instant, RegionId, SEGMENT_SIZE};
use argosy_device::{Device, FormatOptions, MemoryDevice, Store, StoreSettings, Waker};
use argosy_engine::{
    CopyOf, Engine, Follower, LogSlots, LogSurvivors, Service, Settings as _, WriteBatch,
    WriteOptions,
};
use argosy_lsm::Settings;
use argosy_lsm::memtable::allocated;
use argosy_memory::{AnonymousWindows, WindowStore};

const REGIONS: u32 = 8;
/// What the former primaries had in the memtables of each region.
const REBUILT_BYTES: usize = 6 << 20;
const TABLE_BYTES: usize = 4 << 20;
const TABLES_MAX: usize = 2;
/// What the memtables of the next one may take: those of the one region that they were set for.
const SHARE: usize = TABLES_MAX * TABLE_BYTES;
const CACHE_BYTES: usize = 16 << 20;
/// All but a sixteenth of the cache gives way.
const BUDGET: usize = SHARE + CACHE_BYTES / 16 * 15;
/// The empty memtable with which each region goes on.
const ACTIVE: usize = REGIONS as usize * (32 << 10);

/// A server, by its engine.
struct Server {
    engine: Arc<dyn Engine>,
    store: Arc<Store>,
    windows: AnonymousWindows,
    served: Vec<Arc<dyn argosy_engine::Store>>,
    now: Instant,
    /// Most bytes that all memtables took.
    most: usize,
}

fn settings(table_bytes: usize, tables_max: usize) -> Settings {
    Settings::default().with(|of| {
        of.memtables.bytes = table_bytes;
        of.memtables.count_max = tables_max;
        of.memtables.regions = Some(1);
        of.cache_bytes = CACHE_BYTES;
    })
}

fn service() -> Service {
    Service {
        epoch: Epoch(2),
        since: EditSeq::default().cut_epoch(),
        ..Service::default()
    }
}

impl Server {
    fn on(device: &Arc<dyn Device>, windows: AnonymousWindows, settings: &Settings) -> Self {
        let store = Store::open(Arc::clone(device), &StoreSettings::default()).unwrap();
        Self {
            engine: settings.start(),
            store,
            windows,
            served: Vec::new(),
            now: Instant::from_nanos(1),
            most: 0,
        }
    }

    /// The copy of `region`: what an earlier process left, or a new one.
    fn copy(&self, region: RegionId) -> Box<dyn Follower> {
        let copy = CopyOf {
            store: &self.store,
            region,
            own_levels: None,
        };
        let logs = self.engine.logs();
        let name = |log: usize, slot: usize| {
            u64::from(region.0) << 32 | u64::try_from(log << 16 | slot).unwrap()
        };
        let survivors = (0..).zip(logs).map(|(nth, log)| LogSurvivors {
            log: log.id,
            slots: (0..log.slots)
                .map(|slot| self.windows.survivors(name(nth, slot)))
                .collect(),
        });
        let survivors: argosy_engine::Survivors = survivors.collect();
        let windows = (0..).zip(logs).map(|(nth, log)| LogSlots {
            log: log.id,
            slots: (0..log.slots)
                .map(|slot| {
                    self.windows
                        .create(name(nth, slot), log.slot_bytes)
                        .unwrap()
                })
                .collect(),
        });
        let windows = windows.collect();
        match self.store.region(region) {
            Some(_) => self.engine.open(&copy, windows, survivors).unwrap(),
            None => self.engine.create(&copy, windows).unwrap(),
        }
    }

    fn serve(&mut self, copy: Box<dyn Follower>) {
        let promoted = copy.promote(service()).map_err(|not| not.error).unwrap();
        self.served.push(promoted.store);
        self.look();
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        for store in &self.served {
            store.step(self.now).unwrap();
        }
        self.look();
    }

    fn look(&mut self) {
        self.most = self.most.max(allocated::bytes());
    }
}

/// The device and the windows that a killed server leaves, whose regions have much in memtables.
fn left_behind() -> (Arc<dyn Device>, AnonymousWindows) {
    let device = MemoryDevice::eager(1024 * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let mut server = Server::on(&device, AnonymousWindows::new(), &settings(64 << 20, 2));
    server.store.finish_recovery();
    for region in 1..=REGIONS {
        let copy = server.copy(RegionId(region));
        server.serve(copy);
    }
    for (region, store) in (1_u64..).zip(&server.served) {
        for n in 0..REBUILT_BYTES as u64 / 1000 {
            let mut batch = WriteBatch::new();
            let key = format!("{region:03}{:08}", n * 7919 % 100_003);
            batch.put(key.as_bytes(), [b'v'; 900]).unwrap();
            let mut steps = 0;
            while store.write(&batch, WriteOptions::default()).is_err() {
                server.now = server.now + Duration::from_millis(1);
                store.step(server.now).unwrap();
                steps += 1;
                assert!(steps < 10_000, "a write is not taken");
            }
        }
    }
    (device, server.windows.restart())
}

/// Promotes all regions, each as soon as it has its turn where they `take_turns`. Returns the most that was in
/// memtables.
fn promote_all(take_turns: bool) -> usize {
    let (device, windows) = left_behind();
    let settings = settings(TABLE_BYTES, TABLES_MAX);
    let mut server = Server::on(&device, windows, &settings);
    assert_eq!(allocated::bytes(), 0, "nothing is left of the one before");
    let copies = (1..=REGIONS).map(|region| server.copy(RegionId(region)));
    let mut waiting: Vec<_> = copies.collect();
    server.store.finish_recovery();
    let woken = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&woken);
    let waker: Waker = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut steps = 0;
    while !waiting.is_empty() {
        let now = server.now;
        let mut still = Vec::new();
        for mut copy in waiting {
            match take_turns.then(|| copy.take_memory(now, &waker)).flatten() {
                None => server.serve(copy),
                Some(_) => still.push(copy),
            }
        }
        waiting = still;
        server.step();
        steps += 1;
        assert!(steps < 5_000, "{} wait still", waiting.len());
    }
    // What was said of patience is not what let them go.
    assert!(server.now < Instant::from_nanos(10_000_000_000));
    if take_turns {
        assert!(woken.load(Ordering::Relaxed) >= REGIONS as usize - 1);
    }
    for (region, store) in (1_u64..).zip(&server.served) {
        for n in 0..REBUILT_BYTES as u64 / 1000 {
            let key = format!("{region:03}{:08}", n * 7919 % 100_003);
            assert!(store.get(key.as_bytes()).unwrap().value.is_some(), "{key}");
        }
    }
    server.most
}

/// One test, since what is allocated is counted for the whole process.
#[test]
fn promotions_take_turns_for_memory() {
    let at_once = promote_all(false);
    assert!(
        at_once > BUDGET + ACTIVE,
        "{at_once} of {BUDGET}: the test needs more"
    );
    let in_turn = promote_all(true);
    assert!(in_turn <= BUDGET, "{in_turn} of {BUDGET}");
    assert!(in_turn > 2 * REBUILT_BYTES, "{in_turn}: several at a time");
}
