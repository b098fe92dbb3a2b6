//! What can be found of a copy that is [set aside](argosy_engine::set_aside), or is about to be.
//!
//! The intact records of the manifest tell which device segments belong to the copy. Those that no other manifest
//! names are claimed, so that they are not overwritten. Segments that only damaged records name are not known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{DeviceSegment, SegmentNumber};
use argosy_device::{RegionEntry, Store};
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_engine::set_aside::SetAside;

use crate::cut_segments;
use crate::edit::Edit;
use crate::manifest::{ManifestRecord, readable};
use crate::version::Version;

/// Claims what can be found of the copy in `entry`, in use or set aside, unless another copy has claimed it. To be
/// called when all other copies have been opened and recovery has not ended. Each segment of the manifest has
/// `segment_bytes` bytes. Blocks.
#[must_use]
pub fn claim(store: &Arc<Store>, entry: &RegionEntry, segment_bytes: u32) -> SetAside {
    let region = match kind_of(entry) {
        EntryKind::SetAside(region) => region,
        _ => entry.region,
    };
    let entry = RegionEntry {
        region,
        ..entry.clone()
    };
    let places = places(&readable(store, &entry, segment_bytes));
    let cut: BTreeSet<_> = cut_segments::places(store, region).collect();
    let segments = places.into_iter();
    // What the catalog keeps of the region's logs is this copy's.
    let segments = segments.filter_map(|place| match cut.contains(&place) {
        true if store.references(place) == 1 => store.claim(place).ok(),
        _ => store.claim_unclaimed(place),
    });
    SetAside::new(Arc::clone(store), entry, segments.collect())
}

/// What `version` consists of, after the storage that had it has ended. `None` where the catalog does not name
/// its region.
#[must_use]
pub fn of_version(store: &Arc<Store>, version: &Version) -> Option<SetAside> {
    let places = version.table().values().map(|stored| stored.place());
    SetAside::of_kept(store, version.region(), places)
}

/// The places that these records of a manifest name, without those that later records remove.
fn places(records: &[ManifestRecord]) -> BTreeSet<DeviceSegment> {
    let mut named: BTreeMap<SegmentNumber, DeviceSegment> = BTreeMap::new();
    for record in records {
        if let Ok(edit) = Edit::decode(&record.edit) {
            let stays: BTreeSet<_> = edit.added.iter().map(|(_, _, new)| new.number).collect();
            let levels = edit.removed.iter().map(|place| place.number);
            let logs = edit.logs.removed.iter().map(|(_, number)| *number);
            for number in levels.chain(logs).filter(|number| !stays.contains(number)) {
                named.remove(&number);
            }
        }
        named.extend(record.places.iter().copied());
    }
    named.into_values().collect()
}
