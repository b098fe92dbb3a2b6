//! The engines that a server can have, and what its configuration means to them.

use argosy_lsm::{Compaction, Placement};

use crate::config::{CompactionName, PlacementName, StorageSection};

pub(crate) use argosy_lsm::Settings;

/// What a configuration says of the engine, with sizes of memory as they are without one.
pub(crate) fn of_storage(storage: &StorageSection) -> Settings {
    Settings::default().with(|of| {
        of.values.placement = placement(storage.values.placement);
        of.values.large_bytes = storage.values.large_bytes.bytes();
        of.levels.growth_factor = storage.growth_factor;
        of.values.medium_log_percent = storage.values.medium_log_percent;
        of.levels.compaction = compaction(storage.compaction);
        of.space.amplification_max = storage.max_space_amplification.0;
        of.layout.node_bytes = storage.node_bytes.bytes();
        of.logs.flush_interval = storage.flush_interval.0;
    })
}

/// The placement of this name.
pub(crate) const fn placement(name: PlacementName) -> Placement {
    match name {
        PlacementName::Hybrid => Placement::Hybrid,
        PlacementName::InPlace => Placement::InPlace,
        PlacementName::Separated => Placement::Separated,
    }
}

/// The compaction of this name.
pub(crate) const fn compaction(name: CompactionName) -> Compaction {
    match name {
        CompactionName::Partial => Compaction::Partial,
        CompactionName::WholeLevel => Compaction::WholeLevel,
    }
}
