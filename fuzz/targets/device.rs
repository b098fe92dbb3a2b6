//! What stands on a device: superblocks, catalogs, and manifests with regions' edits and pins.

use std::sync::Arc;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{DeviceSegment, RegionId};
use argosy_device::{Crash, Device, RegionEntry, Store};
use argosy_lsm::Compaction;
use argosy_lsm::inspect::{Region, Windows, verify_region};
use argosy_lsm::pins;

use super::sample::Sample;
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

/// Where the manifest of the sample's region begins.
fn manifest(made: &Sample) -> u64 {
    made.region().entry.manifest[0].start()
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
    let place = HEAD.get(usize::from(*which) % (HEAD.len() + 1)).copied();
    device.poke(place.unwrap_or_else(|| manifest(made)), bytes);
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
        let region = Region::read(&store, entry, &made.settings);
        assert!(region.version.is_some() || !region.problems.is_empty());
        if let Some(version) = &region.version {
            let windows = Windows::default();
            let _ = verify_region(version, &windows, &made.settings);
            found |= version.replay_from().0 > 1;
        }
        let _ = pins::read(&store, entry, RegionId(2), &made.settings);
    }
    found
}

fn seeds() -> Vec<Vec<u8>> {
    MADE.with(|made| {
        let mut seeds = Vec::new();
        for (which, at) in (0..).zip(HEAD.into_iter().chain([manifest(made)])) {
            let len = if which == 4 { 64 << 10 } else { 4096 };
            assert!(at < made.device.len() && len < SEGMENT_SIZE);
            seeds.push(input(which, &made.bytes(at, len)));
        }
        seeds
    })
}
