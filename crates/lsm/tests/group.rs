//! The suite of groups that every engine with copies passes, over both address modes and both ways to compact.

#![allow(dead_code, reason = "the common part has more than this test needs")]

mod common;

use argosy_base::AddressMode;
use argosy_engine::conformance::group;
use argosy_lsm::{Compaction, Settings};
use common::tiny;

/// Small windows, so that a history fills many.
fn suite(addresses: AddressMode, compaction: Compaction, seed: u64) {
    let settings = Settings {
        addresses,
        compaction,
        l0_bytes: 8 << 10,
        l0_log_bytes: 64 << 10,
        large_bytes: 200,
        segment_bytes: 32 << 10,
        window_bytes: 8 << 10,
        window_slots: 8,
        ..tiny()
    };
    group::run(&settings, 300, seed);
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
