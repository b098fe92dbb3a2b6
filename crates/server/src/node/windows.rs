//! The memory of a region's log windows: what an earlier process left, and fresh memory in its
//! place.
//!
//! Fresh memory is made beside what is there, filled, and only then given the name that a restart
//! looks for, window by window: each fresh window holds all that its predecessor did and was not
//! durable, so that a kill in between finds one or the other.

use std::path::PathBuf;
use std::sync::Arc;

use argosy_base::{LogKind, RegionId};
use argosy_log::Geometry;
use argosy_lsm::replica::{Slots, Survivors};
use argosy_memory::{BootId, MemoryError, SharedMemory};

use super::{World, keys};

pub(super) fn window_keys(
    region: RegionId,
    geometry: &Geometry,
) -> impl Iterator<Item = argosy_fabric::MemoryKey> {
    let slots = geometry.slots();
    LogKind::ALL
        .into_iter()
        .flat_map(move |log| (0..slots).map(move |slot| keys::window(region, log, slot)))
}

pub(super) fn survivors(region: RegionId, geometry: &Geometry, world: &World) -> Survivors {
    LogKind::ALL.map(|log| {
        (0..geometry.slots())
            .map(|slot| world.windows.survivors(keys::window(region, log, slot).0))
            .collect()
    })
}

/// Fresh memory for the windows. What is there keeps its name until [`keep_windows`].
pub(super) fn fresh_windows(
    region: RegionId,
    geometry: &Geometry,
    world: &World,
) -> Result<Slots, MemoryError> {
    let mut slots = Slots::default();
    for log in LogKind::ALL {
        for slot in 0..geometry.slots() {
            let key = keys::window(region, log, slot);
            slots[log.index()].push(world.windows.create(key.0, geometry.slot_bytes())?);
        }
    }
    Ok(slots)
}

/// From now on a restart finds the fresh windows.
pub(super) fn keep_windows(
    region: RegionId,
    geometry: &Geometry,
    world: &World,
) -> Result<(), MemoryError> {
    window_keys(region, geometry).try_for_each(|key| world.windows.forget_survivors(key.0))
}

/// What a stopped server left in `directories` of the windows of `region` since `boot`, to be looked
/// at: nothing is revoked, removed or given another name. Of two of one name the later counts.
#[must_use]
pub fn left_windows(
    directories: &[PathBuf],
    region: RegionId,
    geometry: &Geometry,
    boot: BootId,
) -> Survivors {
    LogKind::ALL.map(|log| {
        let open = |slot| {
            let name = keys::window(region, log, slot).0;
            let path = |directory: &PathBuf| directory.join(format!("{name:016x}.window"));
            let found = directories.iter().map(path);
            let found = found.filter_map(|path| SharedMemory::open(&path).ok());
            let of_this_boot = found.filter(|memory| memory.stamp().boot == boot);
            let last = of_this_boot.max_by_key(|memory| memory.stamp().serial);
            last.map(Arc::new)
        };
        (0..geometry.slots()).map(open).collect()
    })
}
