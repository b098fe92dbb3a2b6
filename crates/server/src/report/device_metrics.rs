//! `/metrics`: the device, and what reading all of it now and then has found.

use super::families::Families;
use super::metrics::sum_of;
use super::status::Status;

pub(super) fn device(page: &mut Families, status: &Status) {
    let device = &status.resources.device;
    let mut bytes = page.gauge(
        "argosy_device_bytes",
        "The device: in use, kept for deletes and compactions, free for writers.",
    );
    let reserve = device.space.reserve_bytes.min(device.space.free_bytes);
    bytes.count(&[("kind", "used")], device.space.used_bytes);
    bytes.count(&[("kind", "reserve")], reserve);
    bytes.count(&[("kind", "free")], device.space.free_bytes - reserve);
    page.gauge(
        "argosy_device_full",
        "1 while the device has no room for new data.",
    )
    .is(f64::from(u8::from(device.full)));
    page.gauge(
        "argosy_device_failed",
        "1 after a write or a sync of the device has failed, or its file is gone: nothing is written until the \
         server is restarted.",
    )
    .is(f64::from(u8::from(device.failed)));
    page.counter("argosy_device_syncs_total", "Syncs of the device.")
        .count(&[], device.io.syncs_total);
    page.counter(
        "argosy_device_discards_total",
        "Segments that were freed and whose space was given back to the file system, in the background.",
    )
    .count(&[], device.io.discards_total);
    let reads =
        "Reads of the device through io_uring, into memory that was registered with it or not.";
    let mut reads = page.counter("argosy_device_ring_reads_total", reads);
    let fixed = device.io.fixed_reads_total;
    reads.count(&[("memory", "registered")], fixed);
    reads.count(
        &[("memory", "other")],
        device.io.ring_reads_total.saturating_sub(fixed),
    );
    scrub(page, status);
}

fn scrub(page: &mut Families, status: &Status) {
    let scrub = &status.resources.scrub;
    for (name, help, count) in [
        (
            "argosy_scrub_read_bytes_total",
            "Bytes read to see whether they are what was written.",
            scrub.bytes_total,
        ),
        (
            "argosy_scrub_passes_total",
            "Times that everything of a region was read in that way.",
            scrub.passes_total,
        ),
        (
            "argosy_repaired_segments_total",
            "Damaged segments that were written again with what another member had.",
            scrub.repaired_segments_total,
        ),
        (
            "argosy_refilled_copies_total",
            "Damaged copies that were set aside and filled anew from another member.",
            scrub.refilled_copies_total,
        ),
    ] {
        page.counter(name, help).count(&[], count);
    }
    page.gauge(
        "argosy_scrub_damages",
        "Damaged places that scrubbing has found and nobody has repaired; /status names them.",
    )
    .count(&[], scrub.damages.len() as u64);
    page.gauge(
        "argosy_damaged_segments",
        "Segments that are damaged now, as far as scrubs, reads and merges have found out.",
    )
    .count(&[], scrub.damaged_segments);
    page.gauge(
        "argosy_set_aside_copies",
        "Damaged copies that are set aside until the device has no room or they are put back.",
    )
    .count(&[], scrub.set_aside_regions.len() as u64);
}

/// What was found when regions were opened.
pub(super) fn recovery(page: &mut Families, status: &Status) {
    let cut = sum_of(status, |engine| engine.recovery_cut_records);
    page.gauge(
        "argosy_recovery_cut_records",
        "At least so many whole records lay behind the end of the history when the regions served here were opened.",
    )
    .count(&[], cut);
}
