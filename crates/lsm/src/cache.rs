//! The cache of what was read from the device: leaves of levels, and values from the logs.
//!
//! One cache with one budget in bytes serves all regions of a server. It keeps what is asked for
//! again: an entry that is only passed by, as in a scan, leaves before one that was asked for twice
//! (CLOCK-Pro with ghosts, by `quick_cache`). Entries name their segment by region and number;
//! numbers are never used twice, so entries of freed segments need not be removed: they age.
//!
//! The number of shards and the hash are fixed, so that equal requests make equal hits on every
//! machine and in every run.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{Pointer, RegionId, SegmentNumber};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::level::Leaf;

/// Entries that the cache is laid out for: about this many bytes each.
const ENTRY_BYTES_TYPICAL: usize = 4 << 10;
/// Most parts with a lock of their own.
const SHARDS_MAX: usize = 16;
/// Least bytes of a shard, so that each can hold the longest value several times.
const SHARD_BYTES_MIN: usize = 4 << 20;
/// What an entry costs beside its bytes: the cache's own tables, the allocator.
const OVERHEAD_BYTES: usize = 128;

/// What an entry of the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKey {
    /// A leaf of a level segment.
    Leaf {
        /// The region that wrote the segment.
        region: RegionId,
        /// The segment.
        segment: SegmentNumber,
        /// Which of its leaves.
        leaf: u32,
    },
    /// The value of a log record.
    Value {
        /// The region that wrote the record.
        region: RegionId,
        /// Where the record begins.
        at: Pointer,
    },
}

#[derive(Clone)]
enum Cached {
    Leaf(Leaf),
    Value(Arc<[u8]>),
}

#[derive(Clone)]
struct Bytes;

impl Weighter<CacheKey, Cached> for Bytes {
    fn weight(&self, _key: &CacheKey, value: &Cached) -> u64 {
        let bytes = match value {
            Cached::Leaf(leaf) => leaf.memory_bytes(),
            Cached::Value(value) => value.len(),
        };
        (bytes + OVERHEAD_BYTES) as u64
    }
}

/// What the cache has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Leaves found.
    pub leaf_hits: u64,
    /// Leaves not found.
    pub leaf_misses: u64,
    /// Values found.
    pub value_hits: u64,
    /// Values not found.
    pub value_misses: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Most bytes that may be held.
    pub budget: u64,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Counts {
    /// Counts one request. Relaxed: nothing is ordered by the counters.
    fn count(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cache of leaves and values within a budget. Cheap to share: `Arc<NodeCache>`.
pub struct NodeCache {
    entries: Cache<CacheKey, Cached, Bytes, FixedState, DefaultLifecycle<CacheKey, Cached>>,
    budget: usize,
    leaves: Counts,
    values: Counts,
}

impl NodeCache {
    /// A cache that keeps at most `budget` bytes. With less than a leaf's size it keeps nothing.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        let shards = (budget / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        // Rounded down to a power of two: the parts' budgets then add up to the whole.
        let shards = 1 << shards.ilog2();
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity((budget / ENTRY_BYTES_TYPICAL).max(1))
            .weight_capacity((budget / shards * shards) as u64)
            .build()
            .expect("both capacities are set");
        Self {
            entries: Cache::with_options(options, Bytes, FixedState, DefaultLifecycle::default()),
            budget,
            leaves: Counts::default(),
            values: Counts::default(),
        }
    }

    /// The leaf kept under `key`.
    #[must_use]
    pub fn leaf(&self, key: CacheKey) -> Option<Leaf> {
        let found = match self.entries.get(&key) {
            Some(Cached::Leaf(leaf)) => Some(leaf),
            _ => None,
        };
        self.leaves.count(found.is_some());
        found
    }

    /// The value kept under `key`.
    #[must_use]
    pub fn value(&self, key: CacheKey) -> Option<Arc<[u8]>> {
        let found = match self.entries.get(&key) {
            Some(Cached::Value(value)) => Some(value),
            _ => None,
        };
        self.values.count(found.is_some());
        found
    }

    /// Keeps `leaf` under `key`, if there is room for it.
    pub fn keep_leaf(&self, key: CacheKey, leaf: Leaf) {
        self.entries.insert(key, Cached::Leaf(leaf));
    }

    /// Keeps `value` under `key`, if there is room for it.
    pub fn keep_value(&self, key: CacheKey, value: Arc<[u8]>) {
        self.entries.insert(key, Cached::Value(value));
    }

    /// What the cache has done and holds.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            leaf_hits: read(&self.leaves.hits),
            leaf_misses: read(&self.leaves.misses),
            value_hits: read(&self.values.hits),
            value_misses: read(&self.values.misses),
            bytes: self.entries.weight(),
            budget: self.budget as u64,
        }
    }
}

impl std::fmt::Debug for NodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeCache({:?})", self.stats())
    }
}

/// Makes hashers that answer the same on every machine.
#[derive(Clone, Copy, Debug, Default)]
struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(0)
    }
}

/// Folds words by a wide multiplication. Keys are numbers that no user chooses, so no defence
/// against chosen collisions is needed.
struct Mixer(u64);

impl Mixer {
    #[inline]
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        let (low, high) = (wide & u128::from(u64::MAX), wide >> 64);
        // Both halves have 64 bits.
        self.0 = u64::try_from(low ^ high).unwrap_or_default();
    }
}

impl Hasher for Mixer {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    #[inline]
    fn write_isize(&mut self, value: isize) {
        // The discriminant of an enum.
        self.mix(value.unsigned_abs() as u64);
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
