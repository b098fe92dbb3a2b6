//! A server with many regions: what its copies wait for at the device when they are made, and when they are promoted,
//! they wait for together.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use argosy_base::{EditSeq, Epoch, RegionId, SEGMENT_SIZE};
use argosy_device::{Device, FormatOptions, MemoryDevice, Store, StoreSettings};
use argosy_engine::{
    CopyOf, Engine, Follower, LogSlots, NewCopy, Promotion, Service, Settings as _,
};
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

fn service() -> Service {
    Service {
        epoch: Epoch(2),
        since: EditSeq::default().cut_epoch(),
        ..Service::default()
    }
}

/// A write for which there is no room beneath the device waits for room, until somebody waits for the write.
#[test]
fn a_promotion_without_room_beneath_fails_when_it_is_finished() {
    let server = Server::new();
    let copy = server.copies().swap_remove(0);
    server.device.set_full(true);
    let begun = copy.begin_promotion(service());
    let mut promotion = begun.map_err(|not| not.error).unwrap();
    for _ in 0..10 {
        server.device.run_all();
        let Promotion::Waits(promoting) = promotion else {
            panic!("it cannot write");
        };
        promotion = promoting.step().map_err(|not| not.error).unwrap();
    }
    let Promotion::Waits(promoting) = promotion else {
        panic!("it cannot write");
    };
    let Err(not) = promoting.finish() else {
        panic!("it cannot write");
    };
    assert!(!not.error.is_damage(), "{}", not.error);
}

#[test]
fn no_promotion_waits_for_the_device_before_the_next_one_begins() {
    let server = Server::new();
    let begin = |copy: Box<dyn Follower>| copy.begin_promotion(service());
    let begun = server.copies().into_iter().map(begin);
    let mut under_way: Vec<_> = begun
        .map(|begun| match begun.map_err(|not| not.error).unwrap() {
            Promotion::Waits(promoting) => promoting,
            Promotion::Done(_) => panic!("the device has done nothing yet"),
        })
        .collect();
    let mut promoted = Vec::new();
    while !under_way.is_empty() {
        let asked = server.device.in_flight();
        assert!(asked > 0, "each waits for something");
        for _ in 0..asked {
            server.device.run_one();
        }
        for promoting in std::mem::take(&mut under_way) {
            match promoting.step().map_err(|not| not.error).unwrap() {
                Promotion::Waits(promoting) => under_way.push(promoting),
                Promotion::Done(done) => promoted.push(done.store),
            }
        }
    }
    assert_eq!(promoted.len(), REGIONS as usize);
}
