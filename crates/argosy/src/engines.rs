//! The engines that a server can have, and what its configuration means to them.

use argosy_lsm::{Compaction, Placement};

use crate::config::{CompactionName, PlacementName, StorageSection};

pub(crate) use argosy_lsm::Settings;

/// What a configuration says of the engine, with sizes of memory as they are without one.
pub(crate) fn of_storage(storage: &StorageSection) -> Settings {
    Settings {
        placement: placement(storage.placement),
        large_bytes: storage.large_bytes.bytes(),
        growth_factor: storage.growth_factor,
        medium_log_percent: storage.medium_log_percent,
        compaction: compaction(storage.compaction),
        max_space_amplification: storage.max_space_amplification.0,
        node_bytes: storage.node_bytes.bytes(),
        flush_interval: storage.flush_interval.0,
        ..Settings::default()
    }
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
