//! Whether this server's copy of a region is *whole*: certain to hold everything that was acknowledged.
//!
//! A copy is whole from when its primary says so, or it is the open primary's, for as long as the memory of its
//! windows survives: nothing is acknowledged that a member does not hold. So the mark of it is memory that goes the
//! same way as the windows, and lies beside them:
//!
//! ```text
//! 0              8         12
//! +--------------+---------+-------
//! | generation   | crc32c  | zeros             all zeros: not whole
//! +--------------+---------+-------
//! ```
//!
//! Integers are little-endian; `crc32c` covers the generation, with the identity (whole, region). The *generation* is
//! that of the copy's manifest when the mark was made. It rises, so a mark that says a higher one was made for
//! another copy, one that took the place of this one once.

use std::sync::Arc;

use argosy_base::{Epoch, Identity, Kind, RegionId, SegmentNumber, Standing};
use argosy_device::Store;
use argosy_engine::{Survivors, catalog};
use argosy_memory::{MemoryError, SharedMemory};

use super::{World, keys};

/// Bytes of the mark's memory.
pub(crate) const MARK_BYTES: usize = 4096;
const CRC_AT: usize = 8;

/// See the module documentation.
pub(super) struct WholeMark {
    region: RegionId,
    memory: Arc<SharedMemory>,
    is_set: bool,
}

impl WholeMark {
    /// The mark as an earlier process left it. It counts only if all of the windows, `survivors`, are there too.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] where there is no memory.
    pub(super) fn open(
        region: RegionId,
        survivors: &Survivors,
        world: &World,
    ) -> Result<Self, MemoryError> {
        let mut slots = survivors.iter().flat_map(|log| &log.slots);
        let all = slots.all(Option::is_some);
        let is_set = all && Self::is_left(region, world);
        Self::renew(region, is_set, world)
    }

    /// Whether an earlier process has left a mark that the copy is whole. Its windows may be gone.
    pub(super) fn is_left(region: RegionId, world: &World) -> bool {
        let left = world.windows.survivors(keys::whole(region).0);
        left.is_some_and(|left| says_whole(&left, region, &world.store))
    }

    /// Fresh memory for the mark, set or not. From now on a restart finds no other.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] where there is no memory.
    pub(super) fn renew(region: RegionId, set: bool, world: &World) -> Result<Self, MemoryError> {
        let name = keys::whole(region).0;
        let mut mark = Self {
            region,
            memory: world.windows.create(name, MARK_BYTES)?,
            is_set: false,
        };
        if set {
            mark.set(&world.store);
        }
        world.windows.forget_survivors(name)?;
        Ok(mark)
    }

    pub(super) const fn is_set(&self) -> bool {
        self.is_set
    }

    /// What the copy of a primary that serves is certain to hold.
    pub(super) const fn standing(&self) -> Standing {
        match self.is_set {
            true => Standing::Whole,
            false => Standing::Ordinary,
        }
    }

    /// The copy is whole.
    pub(super) fn set(&mut self, store: &Store) {
        let Some(generation) = generation(self.region, store) else {
            return;
        };
        let bytes = generation.to_le_bytes();
        let sum = identity(self.region).checksum(&bytes).to_le_bytes();
        self.memory.write(CRC_AT, &sum);
        self.memory.write(0, &bytes);
        self.is_set = true;
    }
}

const fn identity(region: RegionId) -> Identity {
    Identity {
        kind: Kind::Whole,
        region,
        segment: SegmentNumber(0),
        epoch: Epoch(0),
        offset: 0,
    }
}

/// The generation of the manifest of this server's copy.
fn generation(region: RegionId, store: &Store) -> Option<u64> {
    store
        .region(region)
        .map(|entry| catalog::generation(&entry))
}

/// Whether `memory` is the mark of the copy that the device has.
fn says_whole(memory: &SharedMemory, region: RegionId, store: &Store) -> bool {
    if memory.len() < MARK_BYTES {
        return false;
    }
    let (bytes, sum) = (memory.read_vec(0, CRC_AT), memory.read_vec(CRC_AT, 4));
    let marked = bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
    marked > 0
        && sum == identity(region).checksum(&bytes).to_le_bytes()
        && generation(region, store).is_some_and(|generation| generation >= marked)
}

#[cfg(test)]
#[path = "whole_tests.rs"]
mod tests;
