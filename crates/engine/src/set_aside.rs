//! A copy that is set aside: it is too damaged to be used, and is kept beside the copy that took its place.
//!
//! The catalog keeps its manifest under [another id](crate::catalog::id_of_set_aside). What belongs to the copy and can
//! be found is claimed, so that it is not overwritten. The rest is [quarantined](Store::quarantine) until the copy is
//! set aside; after that others may be given it.
//!
//! The life of such a copy:
//!
//! 1. An engine finds what is left of it ([`SetAside::new`]), while a device is being opened and the copy cannot be:
//!    nobody takes its segments. Or a copy that was opened has turned out to be damaged since ([`SetAside::of_kept`]).
//! 2. [`SetAside::put_aside`]: the catalog names it as set aside, and no copy as in use. Then a new copy is made, which
//!    counts as begun anew. After a crash in between, the next opening makes it.
//! 3. At every later opening what is left of it is found again.
//! 4. [`SetAside::discard`]: it is given up, and its segments are free. Or [`put_back`]: the device's copy of the
//!    region and the one that was set aside change places, in a store that no server has open.

use std::sync::Arc;

use argosy_base::{DeviceSegment, RegionId, Standing};
use argosy_device::{DeviceError, RegionChange, RegionEntry, SegmentHandle, Store};

use crate::catalog::{id_of_set_aside, standing, with_standing};

/// A copy that cannot be used, and what is kept of it. See the module documentation.
pub struct SetAside {
    store: Arc<Store>,
    /// As the catalog named it while it was in use.
    entry: RegionEntry,
    segments: Vec<SegmentHandle>,
}

impl SetAside {
    /// What is left of the copy that the catalog names by `entry` while it is in use: the device segments that it takes
    /// beside those of its manifest.
    #[must_use]
    pub const fn new(store: Arc<Store>, entry: RegionEntry, segments: Vec<SegmentHandle>) -> Self {
        Self {
            store,
            entry,
            segments,
        }
    }

    /// The segments in `places`, which the copy of `region` [kept](SegmentHandle::keep) when it was closed. `None`
    /// where the catalog does not name the region.
    pub fn of_kept(
        store: &Arc<Store>,
        region: RegionId,
        places: impl IntoIterator<Item = DeviceSegment>,
    ) -> Option<Self> {
        let entry = store.region(region)?;
        let places = places.into_iter();
        let segments = places.map(|place| store.take_kept(place)).collect();
        Some(Self::new(Arc::clone(store), entry, segments))
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
        // One that is being filled was ordinary before: one that is begun anew stays that.
        let was_whole = |used| matches!(standing_of(used), Standing::Ordinary | Standing::Filling);
        used.as_ref().is_some_and(was_whole)
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
        let (region, id) = (self.entry.region, id_of_set_aside(self.entry.region));
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
        let id = id_of_set_aside(self.entry.region);
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

fn standing_of(entry: &RegionEntry) -> Standing {
    standing(entry.words[1]).unwrap_or_default()
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
        words: [generation, with_standing(word, standing)],
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
    let id = id_of_set_aside(region);
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
