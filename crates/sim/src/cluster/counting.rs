//! What servers, devices and the fabric have done, and how many segments there are.

use std::collections::BTreeMap;

use argosy_device::MemoryDevice;
use argosy_engine::stats::Stats;
use argosy_fabric::SimWorld;
use argosy_server::node::Node;

use crate::coverage::Coverage;
use crate::engine::{PartKind, Reader};
use crate::wire::Wire;

/// Segments of the levels and of the logs that the copies on a server consist of: those of the medium log count
/// as levels. Copies that are not open count as none.
pub(super) fn segments(node: &Node, reader: &dyn Reader) -> (usize, usize) {
    let (mut levels, mut logs) = (0, 0);
    for region in node.map().regions() {
        let Ok(state) = node.inspect().copy_state(region.id) else {
            continue;
        };
        if let Ok(stated) = reader.read(&state.checkpoint) {
            let parts = stated.parts.iter();
            let kinds: BTreeMap<_, _> = parts.map(|part| (part.number, part.kind)).collect();
            let of_logs = kinds.values().filter(|kind| **kind == PartKind::Log);
            let of_logs = of_logs.count();
            levels += kinds.len() - of_logs;
            logs += of_logs;
        }
    }
    (levels, logs)
}

/// Counts what a process has done.
pub(super) fn count_node(node: &Node, coverage: &mut Coverage) {
    let counts = node.inspect().counts();
    coverage.add("links lost", counts.links_lost);
    coverage.add("shipments", counts.shipments);
    coverage.add("offers of checkpoints", counts.offers);
    coverage.add("parts of edits", counts.parts);
    coverage.add("bytes caught up", counts.catch_up_bytes);
    coverage.add("fetches refused", counts.fetches_refused);
    coverage.add("segments repaired", counts.repaired_segments);
    coverage.add("copies filled anew", counts.refilled_copies);
    coverage.add("adoptions", counts.adoptions);
    coverage.add("backups that rested", counts.rests);
    coverage.add("promotions", counts.promotions.all);
    coverage.add("pointers rewritten", counts.rewritten.pointers);
    for region in node.map().regions() {
        if let Some(stats) = node.inspect().builder_stats(region.id) {
            coverage.add("flushes of backups", stats.work.flushes);
            coverage.add("compactions of backups", stats.work.compactions);
            count_medium(coverage, &stats);
        }
        let Some(stats) = node.inspect().engine_stats(region.id) else {
            continue;
        };
        count_medium(coverage, &stats);
        coverage.add("flushes", stats.work.flushes);
        coverage.add("compactions", stats.work.compactions);
        coverage.add("moves", stats.work.moves);
        coverage.add("values moved by garbage collection", stats.gc.moved);
        coverage.add("segments evacuated", stats.gc.evacuated);
        coverage.add("level segments counted", stats.work.counted);
        coverage.add(
            "requests that waited for garbage collection",
            stats.busy.space,
        );
        coverage.add("values that escaped garbage collection", stats.gc.lost);
        let busy = [
            stats.busy.windows,
            stats.busy.memtable,
            stats.busy.debt,
            stats.busy.space,
            stats.busy.device,
            stats.busy.bulk_load,
        ];
        coverage.add("requests busy", busy.iter().sum());
        let deep = stats
            .levels
            .iter()
            .any(|level| level.level >= 3 && level.segments > 0);
        coverage.add("engines with three levels", u64::from(deep));
        // A run that is a tree has an index segment for each height.
        let heights = stats.levels.iter().map(|level| {
            let more = level.index_segments.saturating_sub(level.trees);
            u64::from(more > 0)
        });
        coverage.add("trees with several heights", heights.sum());
    }
}

/// Counts what the fabric has done. Once, at the end.
pub(super) fn count_fabric(fabric: &SimWorld, wire: &Wire, coverage: &mut Coverage) {
    let counters = fabric.counters();
    coverage.add("one-sided writes", counters.writes);
    coverage.add("torn one-sided writes", counters.torn);
    coverage.add("overtaken pieces", counters.overtaken);
    coverage.add("revoked one-sided writes", counters.revoked);
    let connections = counters.connections;
    coverage.add("connections refused", connections.refused);
    coverage.add("connections given up", connections.unheard);
    coverage.add("connections dropped on the way", connections.dropped);
    coverage.add("broken connections", connections.broken);
    coverage.add("bits flipped on the way", wire.flipped());
}

/// Counts what was done to a device. Once for each device, at its end.
pub(super) fn count_device(device: &MemoryDevice, coverage: &mut Coverage) {
    let faults = device.fault_counters();
    coverage.add("torn blocks", faults.torn_blocks);
    coverage.add("lost unsynced blocks", faults.lost_unsynced_blocks);
    coverage.add("lost writes in flight", faults.lost_in_flight_writes);
    coverage.add("misdirected writes", faults.misdirected_writes);
    coverage.add("flipped bits", faults.flipped_bits);
}

/// What became of medium pairs where levels are built.
fn count_medium(coverage: &mut Coverage, stats: &Stats) {
    coverage.add("medium values put apart", stats.medium.written);
    coverage.add("medium values put in place", stats.medium.placed);
    coverage.add("medium segments freed", stats.medium.freed);
}
