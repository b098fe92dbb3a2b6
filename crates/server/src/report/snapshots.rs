//! What metrics tell of the snapshots that clients keep open.

use super::families::Families;
use super::status::Status;

/// Their families.
pub(super) fn families(page: &mut Families, status: &Status) {
    let snapshots = &status.snapshots;
    page.gauge(
        "argosy_snapshots_open",
        "Snapshots that clients keep open, each region's counted.",
    )
    .count(&[], snapshots.open as u64);
    page.gauge(
        "argosy_snapshot_oldest_age_seconds",
        "How long the oldest of them has been open.",
    )
    .with(&[], snapshots.oldest_seconds);
    let mut pinned = page.gauge(
        "argosy_snapshot_pinned_bytes",
        "Bytes that only snapshots pin.",
    );
    pinned.count(&[("place", "device")], snapshots.device_bytes);
    pinned.count(&[("place", "memory")], snapshots.memory_bytes);
}
