//! What stands on a device: superblocks, catalogs, and manifests with regions' edits and pins.
#![no_main]

use std::sync::Arc;

use argosy_base::RegionId;
use argosy_base::limits::SEGMENT_SIZE;
use argosy_device::{Crash, Device, FormatOptions, MemoryDevice, RegionEntry, Store};
use argosy_lsm::Settings;
use argosy_lsm::inspect::Region;
use argosy_lsm::pins;
use libfuzzer_sys::fuzz_target;

/// Where superblocks and catalogs stand, and the segment of a manifest.
const PLACES: [u64; 5] = [0, 64 << 10, 128 << 10, 1088 << 10, SEGMENT_SIZE as u64];

thread_local! {
    static MADE: MemoryDevice = {
        let device = MemoryDevice::eager(4 * SEGMENT_SIZE as u64, 1);
        Store::format(&device, &FormatOptions::default()).expect("a new device takes a store");
        device
    };
}

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else {
        return;
    };
    let bytes = &bytes[..bytes.len().min(64 << 10)];
    let device = MADE.with(|made| made.crash_clone(Crash::Kill, 1));
    device.poke(PLACES[usize::from(*which) % PLACES.len()], bytes);
    let _ = Store::survey(&device);
    let device: Arc<dyn Device> = Arc::new(device);
    let Ok(store) = Store::open_read_only(device) else {
        return;
    };
    let settings = Settings {
        segment_bytes: 64 << 10,
        window_bytes: 32 << 10,
        ..Settings::default()
    };
    let entry = RegionEntry {
        region: RegionId(1),
        manifest: vec![argosy_base::DeviceSegment(1)],
        words: [u64::from(which >> 4), 0],
    };
    let region = Region::read(&store, &entry, &settings);
    assert!(region.version.is_some() || !region.problems.is_empty());
    let _ = pins::read(&store, &entry, RegionId(2), &settings);
});
