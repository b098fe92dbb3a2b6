//! Copies that are set aside, and the device's catalog.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::sync::Arc;

use crate::common::tiny;
use argosy_base::{RegionId, SEGMENT_SIZE, Standing};
use argosy_device::{
    Crash, Device, FormatOptions, MemoryDevice, OpKind, Purpose, RegionEntry, Store, StoreSettings,
};
use argosy_engine::catalog::id_of_set_aside;
use argosy_engine::set_aside::{SetAside, put_back};
use argosy_engine::{Store as _, WriteBatch, WriteOptions};
use argosy_lsm::db::promote::fresh_windows;
use argosy_lsm::replica::{Replica, ReplicaError, ReplicaSurvivors};
use argosy_lsm::set_aside::claim;
use argosy_lsm::{Lsm, Settings};
use argosy_memory::AnonymousWindows;

const REGION: RegionId = RegionId(7);

fn open(device: &Arc<MemoryDevice>) -> Arc<Store> {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    Store::open(device, &StoreSettings::default()).unwrap()
}

/// A device with a copy of the region that is in use, and one that is set aside.
fn with_two_copies() -> Arc<MemoryDevice> {
    let device = MemoryDevice::eager(16 * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).unwrap();
    let device = Arc::new(device);
    let store = open(&device);
    store.finish_recovery();
    for (region, word) in [(REGION, 1), (id_of_set_aside(REGION), 2)] {
        let manifest = store.allocate(Purpose::Metadata).unwrap();
        let entry = RegionEntry {
            region,
            manifest: vec![manifest.segment()],
            words: [word, 0],
        };
        store.set_region(entry).wait().unwrap();
    }
    device
}

/// What the region and the copy that is set aside consist of, in this order.
fn found(device: &MemoryDevice) -> Vec<u64> {
    let device = Arc::new(device.crash_clone(Crash::PowerLoss, 1));
    let entries = open(&device).regions();
    entries.iter().map(|entry| entry.words[0]).collect()
}

#[test]
fn a_copy_is_put_back_as_a_whole_or_not_at_all() {
    let mut seen = Vec::new();
    for kind in [OpKind::Write, OpKind::Sync] {
        for requests in 0..5 {
            let device = with_two_copies();
            let store = open(&device);
            device.fail_after(kind, requests);
            let swapped = put_back(&store, REGION).is_ok();
            let found = found(&device);
            assert!(
                found == [1, 2] || found == [2, 1],
                "{requests} {kind:?}: {found:?}"
            );
            assert!(!swapped || found == [2, 1], "{requests} {kind:?}");
            seen.push(found[0]);
        }
    }
    assert!(seen.contains(&1) && seen.contains(&2), "{seen:?}");
}

const OTHER: RegionId = RegionId(8);

/// A store with an engine that has filled levels of the region.
fn filled(device: &Arc<MemoryDevice>, region: RegionId, settings: &Settings) {
    let store = open(device);
    let windows = AnonymousWindows::new();
    let engine = Lsm::open(&store, region, &windows, settings, None).unwrap();
    for number in 0..2000 {
        let mut batch = WriteBatch::new();
        batch
            .put(format!("key {number:05}").as_bytes(), [7; 100])
            .unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            engine.step(argosy_base::Instant::default()).unwrap();
        }
    }
    engine.close().unwrap();
}

fn open_copy(
    store: &Arc<Store>,
    region: RegionId,
    settings: &Settings,
) -> Result<Replica, ReplicaError> {
    let windows = AnonymousWindows::new();
    let windows = fresh_windows(&windows, region, settings)?;
    Replica::open(
        store,
        region,
        windows,
        &ReplicaSurvivors::default(),
        settings,
    )
}

/// Takes the copy of the region that is in use aside.
fn put_aside(store: &Arc<Store>, settings: &Settings) -> SetAside {
    let mut entries = store.regions().into_iter();
    let entry = entries.find(|entry| entry.region == REGION).unwrap();
    let bytes = u32::try_from(settings.layout.segment_bytes).unwrap();
    let left = claim(store, &entry, bytes);
    store.finish_recovery();
    left.put_aside().unwrap().unwrap()
}

fn empty_device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::eager(64 * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).unwrap();
    Arc::new(device)
}

/// A crash between the two leaves no copy in use. Whoever makes one then makes one that was begun anew.
#[test]
fn a_copy_that_is_made_beside_one_that_is_set_aside_was_begun_anew() {
    let (device, settings) = (empty_device(), tiny());
    filled(&device, REGION, &settings);
    drop(put_aside(&open(&device), &settings));
    let store = open(&device);
    let left = store.regions();
    assert_eq!(left.len(), 1, "named once");
    assert_eq!(left[0].region, id_of_set_aside(REGION));
    store.finish_recovery();
    let mut copy = open_copy(&store, REGION, &settings).unwrap();
    assert_eq!(copy.standing(), Standing::BegunAnew);
    copy.become_ordinary();
    for _ in 0..10 {
        copy.step().unwrap();
    }
    drop((copy, store));
    let copy = open_copy(&open(&device), REGION, &settings).unwrap();
    assert_eq!(copy.standing(), Standing::Ordinary);
}

/// One that was never filled is of no use: it does not take the place of what is set aside.
#[test]
fn a_copy_that_was_never_filled_is_not_set_aside() {
    let (device, settings) = (empty_device(), tiny());
    filled(&device, REGION, &settings);
    let store = open(&device);
    let _left = put_aside(&store, &settings);
    let before = store.regions();
    let copy = open_copy(&store, REGION, &settings).unwrap();
    assert!(copy.set_aside().unwrap().put_aside().unwrap().is_none());
    assert_eq!(store.regions(), before);
}

/// What a copy wrote may still lie on a device that cannot discard it. So no later copy's manifest has its generation.
#[test]
fn no_generation_of_a_manifest_comes_back() {
    let (device, settings) = (empty_device(), tiny());
    filled(&device, REGION, &settings);
    let store = open(&device);
    let _left = put_aside(&store, &settings);
    let mut last = 0;
    for _ in 0..3 {
        let copy = open_copy(&store, REGION, &settings).unwrap();
        let generation = store.region(REGION).unwrap().words[0];
        assert!(generation > last, "{generation} after {last}");
        last = generation;
        assert!(copy.set_aside().unwrap().put_aside().unwrap().is_none());
    }
}

/// What only damaged records of a manifest name may be given to others. A copy that is put back does not take it from
/// them.
#[test]
fn a_copy_that_is_put_back_takes_nothing_that_others_were_given() {
    let (device, settings) = (empty_device(), tiny());
    filled(&device, REGION, &settings);
    {
        let store = open(&device);
        put_aside(&store, &settings).forget();
        drop(open_copy(&store, REGION, &settings).unwrap());
    }
    filled(&device, OTHER, &settings);
    assert!(put_back(&open(&device), REGION).unwrap());
    let store = open(&device);
    let other = open_copy(&store, OTHER, &settings).unwrap();
    let refused = open_copy(&store, REGION, &settings).err().unwrap();
    assert!(
        refused.to_string().contains("given to another copy"),
        "{refused}"
    );
    drop(other);

    // Undone, it is as before.
    assert!(put_back(&open(&device), REGION).unwrap());
    let copy = open_copy(&open(&device), REGION, &settings).unwrap();
    assert_eq!(copy.standing(), Standing::BegunAnew);
}
