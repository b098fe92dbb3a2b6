//! A copy that is set aside: it is too damaged to be used, and is kept beside the copy that took its place.
//!
//! The catalog keeps its manifest under another id: that of the region plus [`SET_ASIDE`]. The intact records of the
//! manifest tell which device segments belong to the copy. Those that no other manifest names are claimed, so that
//! they are not overwritten. Segments that only damaged records name are not known. Until the copy is set aside they
//! are [quarantined](Store::quarantine); after that others may be given them.
//!
//! The life of such a copy:
//!
//! 1. [`SetAside::claim`]: a device is being opened, and the copy cannot be. Nobody takes its segments.
//!    [`SetAside::of_version`], [`Replica::set_aside`](crate::replica::Replica::set_aside): a copy that was opened has
//!    turned out to be damaged since.
//! 2. [`SetAside::put_aside`]: the catalog names it as set aside, and no copy as in use. Then a new copy is made, which
//!    counts as begun anew. After a crash in between, the next opening makes it.
//! 3. [`SetAside::claim`] again, at every later opening, by way of [`region_of`].
//! 4. [`SetAside::discard`]: it is given up, and its segments are free. Or [`put_back`]: the device's copy of the
//!    region and the one that was set aside change places, in a store that no server has open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{DeviceSegment, RegionId, SegmentNumber, Standing};
use argosy_device::{DeviceError, RegionChange, RegionEntry, SegmentHandle, Store};

use crate::cut_segments;
use crate::edit::Edit;
use crate::manifest::readable;
use crate::shape;
use crate::version::Version;

/// How much higher the catalog's id of a copy that is set aside is than that of its region.
pub const SET_ASIDE: u32 = 3 << 30;

/// The region of a copy that was set aside; `None` if the catalog's entry is of something else.
#[must_use]
pub fn region_of(entry: &RegionEntry) -> Option<RegionId> {
    entry.region.0.checked_sub(SET_ASIDE).map(RegionId)
}

/// The catalog's id of the copy of `region` that is set aside.
#[must_use]
pub const fn id_of(region: RegionId) -> RegionId {
    RegionId(region.0 | SET_ASIDE)
}

/// A copy that cannot be used, and what is kept of it. See the module documentation.
pub struct SetAside {
    store: Arc<Store>,
    /// As the catalog named it while it was in use.
    entry: RegionEntry,
    segments: Vec<SegmentHandle>,
}

impl SetAside {
    /// Claims what can be found of the copy in `entry`, in use or set aside, unless another copy has claimed it. To be
    /// called when all other copies have been opened and recovery has not ended. Each segment of the manifest has
    /// `segment_bytes` bytes. Blocks.
    #[must_use]
    pub fn claim(store: &Arc<Store>, entry: &RegionEntry, segment_bytes: u32) -> Self {
        let region = region_of(entry).unwrap_or(entry.region);
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
        Self {
            segments: segments.collect(),
            store: Arc::clone(store),
            entry,
        }
    }

    /// What `version` consists of, after the storage that had it has ended. `None` where the catalog does not name
    /// its region.
    #[must_use]
    pub fn of_version(store: &Arc<Store>, version: &Version) -> Option<Self> {
        let places = version.table().values().map(|stored| stored.place());
        Self::of_kept(store, version.region(), places)
    }

    /// The segments in `places`, which the storage of `region` kept when it was closed.
    pub(crate) fn of_kept(
        store: &Arc<Store>,
        region: RegionId,
        places: impl IntoIterator<Item = DeviceSegment>,
    ) -> Option<Self> {
        let entry = store.region(region)?;
        let places = places.into_iter();
        Some(Self {
            segments: places.map(|place| store.take_kept(place)).collect(),
            store: Arc::clone(store),
            entry,
        })
    }

    /// The region.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        self.entry.region
    }

    /// Whether the copy that took its place has been whole. This one is then no longer needed.
    #[must_use]
    pub fn was_replaced(&self) -> bool {
        let used = self.store.region(self.entry.region);
        used.is_some_and(|used| standing_of(&used) == Standing::Ordinary)
    }

    /// Device segments that it takes beside those of its manifest.
    #[must_use]
    pub const fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Takes the copy out of use: the catalog names it as set aside, in place of an earlier one. Blocks until that is
    /// durable. Returns `None` for a copy that was begun anew and never filled: it is given up, and what it took the
    /// place of stays set aside.
    ///
    /// # Errors
    /// The device's.
    pub fn put_aside(self) -> Result<Option<Self>, DeviceError> {
        let (region, id) = (self.entry.region, id_of(self.entry.region));
        if self.store.region(id).is_some() && standing_of(&self.entry) == Standing::BegunAnew {
            self.store.remove_region(region).wait()?;
            self.forget();
            return Ok(None);
        }
        let aside = with(&self.entry, id, Standing::Ordinary);
        let changes = vec![RegionChange::Remove(region), RegionChange::Set(aside)];
        self.store.change_regions(changes).wait()?;
        Ok(Some(self))
    }

    /// Gives the copy up: once that is durable its segments are free. Blocks.
    ///
    /// # Errors
    /// The device's; nothing is free then.
    pub fn discard(&mut self) -> Result<(), DeviceError> {
        let id = id_of(self.entry.region);
        self.store.remove_region(id).wait()?;
        self.segments.clear();
        Ok(())
    }

    /// Frees the segments of a copy whose name another one has taken.
    pub fn forget(mut self) {
        self.segments.clear();
    }
}

/// What it consists of stays on the device when the process ends.
impl Drop for SetAside {
    fn drop(&mut self) {
        self.segments.drain(..).for_each(SegmentHandle::keep);
    }
}

/// The places that these records of a manifest name, without those that later records remove.
fn places(records: &[crate::manifest::Record]) -> BTreeSet<DeviceSegment> {
    let mut named: BTreeMap<SegmentNumber, DeviceSegment> = BTreeMap::new();
    for record in records {
        if let Ok(edit) = Edit::decode(&record.edit) {
            let stays: BTreeSet<_> = edit.added.iter().map(|(_, _, new)| new.number).collect();
            let levels = edit.removed.iter().map(|place| place.number);
            let logs = edit.logs_removed.iter().map(|(_, number)| *number);
            for number in levels.chain(logs).filter(|number| !stays.contains(number)) {
                named.remove(&number);
            }
        }
        named.extend(record.places.iter().copied());
    }
    named.into_values().collect()
}

fn standing_of(entry: &RegionEntry) -> Standing {
    shape::standing(entry.words[1]).unwrap_or_default()
}

/// Whether the copy was put back, and has not been whole since.
#[must_use]
pub fn was_put_back(entry: &RegionEntry) -> bool {
    standing_of(entry) == Standing::PutBack
}

/// The entry of the same copy under `id`, with this standing.
fn with(entry: &RegionEntry, id: RegionId, standing: Standing) -> RegionEntry {
    let [generation, word] = entry.words;
    RegionEntry {
        region: id,
        manifest: entry.manifest.clone(),
        words: [generation, shape::with_standing(word, standing)],
    }
}

/// Swaps the copy of `region` that is in use and the one that is set aside. Nobody may have the region open. The copy
/// that is put back counts only where no other copy of the region has anything ([`Standing::PutBack`]). A second swap
/// before the region is opened undoes the first. Returns false if either is missing.
/// Blocks until that is durable; after a crash or an error both are swapped, or neither.
///
/// # Errors
/// The device's.
pub fn put_back(store: &Arc<Store>, region: RegionId) -> Result<bool, DeviceError> {
    let id = id_of(region);
    let (Some(used), Some(aside)) = (store.region(region), store.region(id)) else {
        return Ok(false);
    };
    let (comes, goes) = match (standing_of(&aside), standing_of(&used)) {
        (before, Standing::PutBack) => (before, Standing::Ordinary),
        (_, goes) => (Standing::PutBack, goes),
    };
    let swapped = [with(&aside, region, comes), with(&used, id, goes)];
    let changes = swapped.map(RegionChange::Set).to_vec();
    store.change_regions(changes).wait().map(|()| true)
}
