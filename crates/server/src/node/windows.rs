//! The memory of a region's log windows: what an earlier process left, and fresh memory in its
//! place.
//!
//! Fresh memory is made beside what is there, filled, and only then given the name that a restart
//! looks for, window by window: each fresh window holds all that its predecessor did and was not
//! durable, so that a kill in between finds one or the other.

use std::path::PathBuf;
use std::sync::Arc;

use argosy_base::{Descriptor, MemoryKey, RegionId, ServerId};
use argosy_engine::{LogSlots, LogSpec, LogSurvivors, Survivors, Windows};
use argosy_fabric::{Fabric, FabricError};
use argosy_memory::{BootId, MemoryError, SharedMemory};

use super::{World, keys};

/// The windows of one region's logs.
#[derive(Clone, Copy)]
pub(super) struct WindowsOf<'a> {
    pub(super) region: RegionId,
    pub(super) logs: &'a [LogSpec],
}

impl WindowsOf<'_> {
    pub(super) fn keys(&self) -> impl Iterator<Item = MemoryKey> {
        let logs = self.logs.iter();
        logs.flat_map(|log| self.keys_of(log))
    }

    /// The keys of one log's windows, in the order of the slots.
    fn keys_of(&self, log: &LogSpec) -> impl Iterator<Item = MemoryKey> + use<> {
        let (region, id) = (self.region, log.id);
        (0..log.slots).map(move |slot| keys::window(region, id, slot))
    }

    /// What an earlier process left.
    pub(super) fn survivors(&self, world: &World) -> Survivors {
        self.find(|key| world.windows.survivors(key.0))
    }

    fn find(&self, find: impl Fn(MemoryKey) -> Option<Arc<SharedMemory>>) -> Survivors {
        let left = |log: &LogSpec| LogSurvivors {
            log: log.id,
            slots: self.keys_of(log).map(&find).collect(),
        };
        self.logs.iter().map(left).collect()
    }

    /// Fresh windows, with memory where that is `needed` from the start. What is there keeps its name until
    /// [`keep`](Self::keep).
    pub(super) fn fresh(&self, needed: bool, world: &World) -> Result<Windows, MemoryError> {
        let make = |key: MemoryKey, len| match needed {
            true => world.windows.create(key.0, len),
            false => world.windows.create_released(key.0, len),
        };
        let fresh = |log: &LogSpec| {
            let slots = self.keys_of(log);
            let slots = slots.map(|key| make(key, log.slot_bytes));
            Ok(LogSlots {
                log: log.id,
                slots: slots.collect::<Result<_, MemoryError>>()?,
            })
        };
        self.logs.iter().map(fresh).collect()
    }

    /// From now on a restart finds the fresh windows.
    pub(super) fn keep(&self, world: &World) -> Result<(), MemoryError> {
        self.keys()
            .try_for_each(|key| world.windows.forget_survivors(key.0))
    }

    /// Lets `to` write to `windows`.
    pub(super) fn grant(
        &self,
        windows: &Windows,
        fabric: &dyn Fabric,
        to: ServerId,
    ) -> Result<Vec<Descriptor>, FabricError> {
        let memories = windows.iter().flat_map(|log| &log.slots);
        self.keys()
            .zip(memories)
            .map(|(key, memory)| fabric.grant(key, Arc::clone(memory), to))
            .collect()
    }
}

/// What a stopped server left in `directories` of the windows of `region` since `boot`, to be looked
/// at: nothing is revoked, removed or given another name. Of two of one name the later counts.
#[must_use]
pub fn left_windows(
    directories: &[PathBuf],
    region: RegionId,
    logs: &[LogSpec],
    boot: BootId,
) -> Survivors {
    WindowsOf { region, logs }.find(|key| {
        let path = |directory: &PathBuf| directory.join(format!("{:016x}.window", key.0));
        let found = directories.iter().map(path);
        let found = found.filter_map(|path| SharedMemory::open(&path).ok());
        let of_this_boot = found.filter(|memory| memory.stamp().boot == boot);
        let last = of_this_boot.max_by_key(|memory| memory.stamp().serial);
        last.map(Arc::new)
    })
}
