//! Tests of what a store may be made of: see [`super`].

use std::sync::Arc;

use crate::testing::TempDir;
use crate::{
    Buffer, Crash, Device, DeviceError, FileDevice, FileSettings, FormatOptions, Io, MemoryDevice,
    OpKind, Purpose, SegmentHandle, Store, StoreSettings, check_blank,
};

use super::*;

const SEGMENT: u64 = SEGMENT_SIZE as u64;

fn write(device: &dyn Device, at: u64, byte: u8, len: usize) {
    let mut data = Buffer::zeroed(len);
    data.fill(byte);
    let (data, range) = (Arc::new(data), 0..len);
    let io = Io::Write { at, data, range };
    device.submit(io).wait().unwrap();
    device.submit(Io::Sync).wait().unwrap();
}

fn refused(device: &dyn Device) -> String {
    let error = Store::format(device, &FormatOptions::default()).unwrap_err();
    assert!(matches!(error, DeviceError::Unusable { .. }), "{error}");
    error.to_string()
}

/// A store with something in its first segments.
fn used(device: &Arc<dyn Device>) {
    Store::format(&**device, &FormatOptions::default()).unwrap();
    let store = Store::open(Arc::clone(device), &StoreSettings::default()).unwrap();
    store.finish_recovery();
    let manifest = store.allocate(Purpose::Metadata).unwrap();
    write(&**device, manifest.segment().start(), 7, BLOCK_SIZE);
    let entry = crate::RegionEntry {
        region: argosy_base::RegionId(1),
        manifest: [&manifest].map(SegmentHandle::segment).to_vec(),
        words: [0, 0],
    };
    store.set_region(entry).wait().unwrap();
}

#[test]
fn a_store_that_lost_its_head_is_not_made_anew() {
    // One catalog is left; nothing of segment 0 is.
    for lost in [1 << 20, SEGMENT_SIZE] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::eager(16 * SEGMENT, 1));
        used(&device);
        write(&*device, 0, 0, lost);
        assert!(!Store::is_formatted(&*device).unwrap());
        let error = refused(&*device);
        let byte = match lost {
            SEGMENT_SIZE => SEGMENT,
            _ => u64::from(SLOTS_AT[1]),
        };
        assert!(error.contains(&format!("byte {byte} is not")), "{error}");
        let opened = Store::open(Arc::clone(&device), &StoreSettings::default());
        assert_eq!(opened.err().unwrap().to_string(), error);
    }
}

#[test]
fn foreign_bytes_are_found_at_the_ends_and_where_a_file_was_written() {
    let dir = TempDir::new();
    let len = 40_000 * SEGMENT;
    // A partition table's copy, and data where no sample is taken.
    for at in [len - 512, 33_333 * SEGMENT + (1 << 20)] {
        let device =
            FileDevice::open_or_create(&dir.join("device"), len, &FileSettings::default()).unwrap();
        check_blank(&device).unwrap();
        write(&device, at - at % BLOCK_SIZE as u64, 1, BLOCK_SIZE);
        let error = refused(&device);
        assert!(error.contains("first 2 MiB are empty"), "{error}");
        drop(device);
        std::fs::remove_file(dir.join("device")).unwrap();
    }
}

#[test]
fn a_making_that_was_cut_short_is_begun_anew() {
    // Four writes, each with a sync: both catalogs, both superblocks.
    let mut begun = 0;
    for writes in 0..4 {
        for crash in [Crash::Kill, Crash::PowerLoss] {
            let device = MemoryDevice::eager(16 * SEGMENT, writes);
            device.fail_after(OpKind::Sync, writes);
            Store::format(&device, &FormatOptions::default()).unwrap_err();
            let device = device.crash(crash);
            if !Store::is_formatted(&device).unwrap() {
                begun += 1;
                Store::format(&device, &FormatOptions::default()).unwrap();
            }
            Store::open(Arc::new(device), &StoreSettings::default()).unwrap();
        }
    }
    assert!(begun >= 4, "{begun} were begun anew");
}
