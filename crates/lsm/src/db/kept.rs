//! Memtables that the region has done with, for as long as somebody sees them.
//!
//! A snapshot or a scan keeps the memtables of its view. What these take beyond the memtables' own share of
//! the memory budget is charged to the cache, which gives way to it (I9).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use argosy_device::buffer;

use crate::cache::flushed;
use crate::cache::{Charge, NodeCache};
use crate::memory::Memory;
use crate::memtable::{Memtable, allocated};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct KeptTables {
    tables: Mutex<Vec<Weak<Memtable>>>,
    /// How many there are, for who looks often.
    count: AtomicUsize,
    charge: Charge,
    /// Bytes that all memtables of the region may take without a charge.
    share: usize,
}

impl KeptTables {
    /// None yet. Memtables may take `share` bytes; what is more is charged to `cache`.
    pub(super) fn new(cache: &Arc<NodeCache>, share: usize) -> Self {
        Self {
            tables: Mutex::default(),
            count: AtomicUsize::new(0),
            charge: cache.charge(),
            share,
        }
    }

    /// The region has done with `table`.
    pub(super) fn add(&self, table: &Arc<Memtable>) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.push(Arc::downgrade(table));
        self.count.store(tables.len(), Ordering::Release);
    }

    /// Bytes of those that are left, where the region's own memtables are `own`: charges the cache.
    fn settle(&self, own: &[Arc<Memtable>]) -> usize {
        let mut left = Vec::new();
        if self.count.load(Ordering::Acquire) > 0 {
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            tables.retain(|table| {
                let alive = table.upgrade();
                left.extend(alive);
                table.strong_count() > 0
            });
            self.count.store(tables.len(), Ordering::Release);
        }
        let sum = |tables: &[Arc<Memtable>]| -> usize {
            tables.iter().map(|table| table.memory_bytes()).sum()
        };
        let kept = sum(&left);
        self.charge
            .set((sum(own) + kept).saturating_sub(self.share));
        kept
    }
}

impl super::Lsm {
    /// Bytes of memtables that the region has done with and that somebody still sees. Counts them anew, and
    /// has the cache give way to them.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.settle(&self.view.load().memtables)
    }

    /// What the store takes of memory: the region's windows, the cache, which regions may share, and
    /// memtables and buffers of all stores of the process.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let cache = self.reading.cache.stats();
        Memory {
            memtables: allocated::bytes() as u64,
            windows: self.settings.windows_bytes() as u64,
            cache: cache.bytes,
            pinned: cache.pinned_bytes,
            versions: self.view.load().version.memory_bytes() as u64,
            buffers: (buffer::allocated_bytes().saturating_sub(flushed::kept_bytes())
                + super::bulk::held_bytes()) as u64,
        }
    }
}
