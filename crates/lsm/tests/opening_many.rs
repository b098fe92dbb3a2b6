//! A server with many regions: what its copies wait for at the device when they are made, they wait for together.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use argosy_base::{RegionId, SEGMENT_SIZE};
use argosy_device::{Device, FormatOptions, MemoryDevice, Store, StoreSettings};
use argosy_engine::{CopyOf, Engine, Follower, LogSlots, NewCopy, Settings as _};
use argosy_lsm::Settings;
use argosy_memory::SharedMemory;

const REGIONS: u32 = 40;

struct Server {
    device: Arc<MemoryDevice>,
    engine: Arc<dyn Engine>,
    store: Arc<Store>,
}

impl Server {
    /// One whose device does what it is asked when it is told to, or when somebody waits.
    fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(512 * SEGMENT_SIZE as u64, 1));
        Store::format(&*device, &FormatOptions::default()).unwrap();
        let opened: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&device);
        let store = Store::open(opened, &StoreSettings::default()).unwrap();
        store.finish_recovery();
        let engine = Settings::default().start();
        Self {
            device,
            engine,
            store,
        }
    }

    fn copies(&self) -> Vec<Box<dyn Follower>> {
        let copies = (1..=REGIONS).map(|region| {
            let of = CopyOf {
                store: &self.store,
                region: RegionId(region),
                own_levels: None,
            };
            let logs = self.engine.logs().iter();
            let windows = logs.map(|log| LogSlots {
                log: log.id,
                slots: (0..log.slots)
                    .map(|_| Arc::new(SharedMemory::anonymous(log.slot_bytes)))
                    .collect(),
            });
            NewCopy {
                of,
                windows: windows.collect(),
            }
        });
        let made = self.engine.create_all(copies.collect()).into_iter();
        made.map(Result::unwrap).collect()
    }
}

#[test]
fn copies_that_are_made_together_take_two_changes_of_the_catalog() {
    let server = Server::new();
    let before = server.store.catalog_generation();
    let copies = server.copies();
    assert_eq!(copies.len(), REGIONS as usize);
    // The first change begins at once. All others are made by the next.
    assert_eq!(server.store.catalog_generation() - before, 2);
    let named = server.store.regions().into_iter();
    let named: Vec<_> = named.map(|entry| entry.region.0).collect();
    assert_eq!(named, (1..=REGIONS).collect::<Vec<_>>());
    assert!(copies.iter().all(|copy| copy.is_idle()));
    let left = Arc::new(server.device.crash(argosy_device::Crash::PowerLoss));
    let again = Store::open(left, &StoreSettings::default()).unwrap();
    assert_eq!(again.regions().len(), REGIONS as usize, "they are durable");
}
