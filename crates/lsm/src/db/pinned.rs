//! Pinned memtables: the region has done with them, and somebody sees them still.
//!
//! A snapshot or a scan pins the memtables of its view. What these take beyond the memtables' own share of
//! the memory budget is charged to the cache, which gives way to it (I9).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use argosy_engine::Charge;
use parking_lot::Mutex;

use super::server_memory::RegionMemory;
use crate::memtable::Memtable;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct PinnedTables {
    tables: Mutex<Vec<Weak<Memtable>>>,
    /// How many there are, for who looks often.
    count: AtomicUsize,
    charge: Charge,
    /// Says what all memtables of the region may take without a charge.
    memory: Arc<RegionMemory>,
}

impl PinnedTables {
    /// None yet. What memtables take beyond their share of `memory` is charged to its cache.
    pub(super) fn new(memory: Arc<RegionMemory>) -> Self {
        Self {
            tables: Mutex::default(),
            count: AtomicUsize::new(0),
            charge: memory.server().cache().new_charge(),
            memory,
        }
    }

    /// What the region has of its server's memory.
    pub(super) const fn memory(&self) -> &Arc<RegionMemory> {
        &self.memory
    }

    /// The region has done with `table`.
    pub(super) fn add(&self, table: &Arc<Memtable>) {
        let mut tables = self.tables.lock();
        tables.push(Arc::downgrade(table));
        self.count.store(tables.len(), Ordering::Release);
    }

    /// Whether there were any at the last count, or have come since.
    pub(super) fn are_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Bytes of those that are left and that somebody still sees, where the region's own memtables are `own`. Counts
    /// them anew, and has the cache give way to them.
    pub(super) fn settle(&self, own: &[Arc<Memtable>]) -> usize {
        let mut left = Vec::new();
        if self.count.load(Ordering::Acquire) > 0 {
            let mut tables = self.tables.lock();
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
        let pinned = sum(&left);
        let all = sum(own) + pinned;
        let beyond = all.saturating_sub(self.memory.share_bytes());
        self.charge.set(beyond);
        self.memory.settled(own, all, beyond);
        pinned
    }
}
