//! Has the cache give way to what a store takes beyond its budget, by what the system says is resident.
//!
//! What is accounted for is what was asked of the allocator. What is resident is more: gaps between what stays
//! and what was freed, which grow for hours where entries of all lengths come and go, and which no count
//! knows. So whoever has a whole process to itself looks from time to time at what is resident:
//!
//! 1. Beyond the budget the cache gives way by a quarter of the excess with every look, until that is gone, or
//!    a sixteenth of the cache is left. It is not what is missing at once, since what is freed is not returned
//!    at once.
//! 2. Where a sixteenth of the budget is free, the cache takes back a sixteenth of what it gave.
//!
//! Between the two nothing changes, so that entries do not leave and come to and fro.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cache::{Cache, Charge};

/// See the module documentation.
#[derive(Debug)]
pub struct Excess {
    charge: Charge,
    /// Bytes that were charged last.
    charged: AtomicUsize,
    /// Most bytes that may be charged: those that the cache can give.
    most: usize,
    budget: usize,
}

impl Excess {
    /// How long it should be between two looks.
    pub const EVERY: Duration = Duration::from_secs(1);

    /// For a store with `cache` that may take `budget` bytes of memory in all.
    #[must_use]
    pub fn new(cache: Arc<dyn Cache>, budget: usize) -> Self {
        Self {
            most: cache.gives_at_most(),
            charge: Charge::of(cache),
            charged: AtomicUsize::new(0),
            budget,
        }
    }

    /// The store has `resident` bytes in memory.
    pub fn look(&self, resident: u64) {
        let resident = usize::try_from(resident).unwrap_or(usize::MAX);
        let before = self.charged.load(Ordering::Relaxed);
        let over = resident.saturating_sub(self.budget);
        let after = match over {
            0 if resident < self.budget - self.budget / 16 => before - before.div_ceil(16),
            0 => before,
            over => before.saturating_add(over.div_ceil(4)).min(self.most),
        };
        if after != before {
            // One thread looks; were there two, the cache would follow either.
            self.charged.store(after, Ordering::Relaxed);
            self.charge.set(after);
        }
    }

    /// Bytes by which the cache is smaller than it was meant to be.
    #[must_use]
    pub fn charged(&self) -> usize {
        self.charged.load(Ordering::Relaxed)
    }
}
