//! What a server does with what its last start has left.

use std::ops::RangeInclusive;

use argosy_base::{RegionId, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_device::Store;
use argosy_memory::MemoryError;

use super::{World, keys};

/// A number of this start of the server: the next one at each start, and on a new device one that has nothing to do
/// with those of the device before. Peers and clients may know one of those.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
pub(super) fn start_number(store: &Store) -> u16 {
    let superblock = store.superblock();
    (superblock.device_id as u16).wrapping_add(superblock.incarnation.get() as u16)
}

/// The names of the memory of server `id` that no other server has to reach: the windows of regions
/// that are kept there alone.
pub(crate) fn names_within(id: ServerId, map: &ClusterMap) -> Vec<RangeInclusive<u64>> {
    map.regions()
        .iter()
        .filter(|region| region.members == [id])
        .map(|region| keys::windows_of(region.id))
        .collect()
}

/// Forgets windows of regions that this server is no longer a member of.
pub(super) fn remove_orphans(map: &ClusterMap, world: &World) -> Result<(), MemoryError> {
    for name in world.windows.survivor_names() {
        let region = RegionId(u32::try_from(name >> 24 & 0xffff_ffff).expect("masked"));
        if !keys::is_window(name) || map.region(region).is_none() {
            world.windows.forget_survivors(name)?;
        }
    }
    Ok(())
}
