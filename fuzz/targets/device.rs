//! What stands on a device: superblocks, catalogs, and manifests with regions' edits and pins.

use std::sync::Arc;

use argosy_base::{DeviceSegment, RegionId};
use argosy_device::{Crash, Device, RegionEntry, Store};
use argosy_lsm::Compaction;
use argosy_lsm::inspect::{InspectedRegion, LeftWindows, verify_pin, verify_region};
use argosy_lsm::pins;

use super::sample::{REGION, Sample};
use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "device",
    run,
    seeds,
};

/// Where superblocks and catalogs stand.
const HEAD: [u64; 4] = [0, 64 << 10, 128 << 10, 1088 << 10];

thread_local! {
    static MADE: Sample = Sample::new(Compaction::Partial);
}

/// Where the manifests of the sample's region and of its pin begin, too.
fn places(made: &Sample) -> Vec<u64> {
    let entries = made.store().regions();
    let manifests = entries.iter().map(|entry| entry.manifest[0].start());
    HEAD.into_iter().chain(manifests).collect()
}

fn run(data: &[u8]) -> bool {
    MADE.with(|made| damaged(made, data))
}

fn damaged(made: &Sample, data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    let bytes = &bytes[..bytes.len().min(64 << 10)];
    let device = made.device.crash_clone(Crash::Kill, 1);
    let places = places(made);
    device.poke(places[usize::from(which % 8) % places.len()], bytes);
    let _ = Store::survey(&device);
    let device: Arc<dyn Device> = Arc::new(device);
    let Ok(store) = Store::open_read_only(device) else {
        return false;
    };
    let mut entries = store.regions();
    // One that no catalog names, in whatever is there.
    let stray = u32::from(which >> 3) % 128;
    entries.push(RegionEntry {
        region: RegionId(9),
        manifest: vec![DeviceSegment(stray.max(1))],
        words: [1, 0],
    });
    let mut found = false;
    for entry in &entries {
        let region = InspectedRegion::read(&store, entry, &made.settings);
        assert!(region.version.is_some() || !region.problems.is_empty());
        if let Some(version) = &region.version {
            let windows = LeftWindows::default();
            let _ = verify_region(version, &windows, &made.settings);
            found |= version.replay_from().0 > 1;
        }
        if let Ok((_, version)) = pins::read(&store, entry, REGION, &made.settings) {
            let _ = verify_pin(&version, &made.settings);
        }
    }
    found
}

fn seeds() -> Vec<Vec<u8>> {
    MADE.with(|made| {
        let mut seeds = Vec::new();
        let places = places(made);
        assert_eq!(places.len(), HEAD.len() + 2, "a region and a pin");
        for (which, at) in (0..).zip(places) {
            // What is written there is not long, but for the region's manifest.
            let len = if which == 4 { 64 << 10 } else { 8192 };
            seeds.push(input(which, &made.bytes(at, len)));
        }
        seeds
    })
}
