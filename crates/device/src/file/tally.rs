//! What a device has done, counted by all threads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::io::Counters;

/// See [`Counters`].
#[derive(Default)]
pub(super) struct Tally {
    pub(super) read_bytes: AtomicU64,
    pub(super) write_bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) ring_reads: AtomicU64,
    pub(super) fixed_reads: AtomicU64,
    pub(super) ahead_reads: AtomicU64,
    pub(super) discards: AtomicU64,
}

impl Tally {
    /// The numbers at present.
    pub(super) fn counters(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            read_bytes: get(&self.read_bytes),
            write_bytes: get(&self.write_bytes),
            syncs: get(&self.syncs),
            ring_reads: get(&self.ring_reads),
            fixed_reads: get(&self.fixed_reads),
            ahead_reads: get(&self.ahead_reads),
            discards: get(&self.discards),
        }
    }
}
