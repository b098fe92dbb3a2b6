//! What all memtables of the process take: those that are written, that wait to be flushed, and that nothing
//! but a snapshot or a scan still sees.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Of the process, as the allocator is. Relaxed: nothing is ordered by it.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of all memtables of this process.
#[must_use]
pub fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

pub(super) fn add(bytes: usize) {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

pub(super) fn remove(bytes: usize) {
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
}
