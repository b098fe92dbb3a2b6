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

use crate::cache::{Charge, NodeCache};

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
    pub fn new(cache: &Arc<NodeCache>, budget: usize) -> Self {
        Self {
            charge: cache.charge(),
            charged: AtomicUsize::new(0),
            most: cache.gives_at_most(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_way_until_nothing_is_over_the_budget() {
        let cache = Arc::new(NodeCache::new(1600));
        let excess = Excess::new(&cache, 1600);
        let charged = |resident| {
            excess.look(resident);
            excess.charged()
        };
        assert_eq!([charged(0), charged(1600), charged(1601)], [0, 0, 1]);
        assert_eq!([charged(2000), charged(2000)], [101, 201]);
        assert_eq!([charged(1600), charged(1500)], [201, 201], "all is well");
        assert_eq!([charged(1499), charged(1499)], [188, 176]);
        assert_eq!(charged(u64::MAX), 1500, "a sixteenth of the cache stays");
        (0..100).for_each(|_| excess.look(0));
        assert_eq!(excess.charged(), 0);
    }

    #[test]
    fn what_is_given_away_is_given_back() {
        let cache = Arc::new(NodeCache::new(64 << 20));
        let room = 32 << 20;
        let excess = Excess::new(&cache, 64 << 20);
        assert!(cache.has_room(room));
        excess.look(64 << 22);
        assert!(!cache.has_room(room), "three quarters are charged");
        drop(excess);
        assert!(cache.has_room(room));
    }
}
