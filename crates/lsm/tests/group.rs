//! The suite of groups that every engine with copies passes, over both address modes and both ways to compact.

use std::time::Duration;

use crate::common::tiny;
use argosy_base::AddressMode;
use argosy_engine::conformance::group;
use argosy_lsm::Compaction;

/// Small windows, so that a history fills many.
fn suite(addresses: AddressMode, compaction: Compaction, seed: u64) {
    let settings = tiny().with(|of| {
        of.layout.addresses = addresses;
        of.levels.compaction = compaction;
        of.memtables.bytes = 8 << 10;
        of.memtables.log_bytes = 64 << 10;
        of.values.large_bytes = 200;
        of.layout.segment_bytes = 32 << 10;
        of.layout.window_bytes = 8 << 10;
        of.layout.window_slots = 8;
        of.logs.rest_after = Duration::from_millis(200);
    });
    let met = group::run(&settings, 300, seed);
    assert!(met.ahead > 10 && met.built > 1 && met.rests > 10, "{met:?}");
    let returned = met.spared > 100 && met.dropped > 100 && met.branched > 10 && met.busy > 5;
    assert!(returned, "{met:?}");
}

#[test]
fn groups_keep_what_was_confirmed_where_pointers_hold_numbers() {
    suite(AddressMode::Logical, Compaction::Partial, 1);
}

#[test]
fn groups_keep_what_was_confirmed_where_pointers_hold_places() {
    suite(AddressMode::Rewrite, Compaction::Partial, 2);
}

#[test]
fn groups_keep_what_was_confirmed_where_levels_are_compacted_whole() {
    suite(AddressMode::Logical, Compaction::WholeLevel, 3);
}
