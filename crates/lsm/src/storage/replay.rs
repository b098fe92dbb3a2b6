//! Reads a version from the edits of its manifest.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::DeviceSegment;
use argosy_device::Store;
use argosy_engine::catalog::{EntryKind, kind_of};

use super::StorageError;
use crate::cut_segments;
use crate::edit::Edit;
use crate::manifest::{Manifest, ManifestError, ManifestRecord};
use crate::segments::StoredSegment;
use crate::version::Version;

/// Applies the edits of a manifest, and then claims the segments that are left: what an edit
/// removed may long belong to someone else. If the manifest could not be read for a while, even a segment that it still
/// names may have been given to another copy. Then this copy counts as damaged.
pub(super) fn replay_edits(
    store: &Arc<Store>,
    empty: Version,
    manifest: &Manifest,
    records: &[ManifestRecord],
) -> Result<Version, StorageError> {
    let region = empty.region();
    let corrupt = |what: &'static str| {
        StorageError::Manifest(ManifestError::Corrupt {
            region,
            segment: manifest.chain().next().unwrap_or_default(),
            offset: 0,
            what,
        })
    };
    let mut version = empty;
    for (index, record) in records.iter().enumerate() {
        let edit = Edit::decode(&record.edit).map_err(|_| corrupt("a record holds no edit"))?;
        if index == 0 && !edit.checkpoint {
            return Err(corrupt("it does not begin with a checkpoint"));
        }
        let places = record.places.iter().map(|(number, place)| {
            let stored = StoredSegment::unclaimed(*number, Arc::clone(store), *place);
            (*number, stored)
        });
        version = version
            .apply(&edit, &places.collect())
            .map_err(|_| corrupt("an edit does not fit the version before it"))?;
    }
    // Pins keep places of their region, too. A device with pins has no other region.
    let has_pins = LazyCell::new(|| {
        store
            .regions()
            .iter()
            .any(|entry| kind_of(entry) == EntryKind::Pin)
    });
    let cut: BTreeSet<_> = cut_segments::places(store, region).collect();
    let mut taken: BTreeSet<DeviceSegment> = manifest.chain().collect();
    for stored in version.table().values() {
        if !taken.insert(stored.place()) {
            return Err(corrupt("two segments have one place"));
        }
        // What the catalog keeps of the region's logs is this copy's.
        let own = u32::from(cut.contains(&stored.place()));
        if store.references(stored.place()) > own && !*has_pins {
            return Err(corrupt(
                "a place that it names has been given to another copy",
            ));
        }
        stored.claim()?;
    }
    Ok(version)
}
