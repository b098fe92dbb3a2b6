//! The cache of what was read from the device: leaves of levels, values from the logs, and the
//! readers of level segments, which are their indexes and filters.
//!
//! One cache with one budget in bytes serves all regions of a server (I9). It keeps what is asked
//! for again: an entry that is only passed by, as in a scan, leaves before one that was asked for twice
//! (CLOCK-Pro with ghosts, by `quick_cache`). Entries name their segment by region and number;
//! numbers are never used twice, so entries of freed segments that stay only take room: they age.
//!
//! While there is room, builds put in the leaves and the pages of medium segments that they have
//! written, and those of a segment that is given away are taken out: see `compaction/build.rs` and
//! `segments/mod.rs`. What room is left then, bytes of the large log have that were flushed (`flushed.rs`).
//!
//! Readers are *pinned* as long as they fit: they stay with their segments and are never looked up,
//! and what they take is taken off what is left for the rest ([`NodeCache::pin`]). Pins may take
//! three quarters of the budget. A reader that finds no room there is an entry like any other.
//!
//! What else grows at the cost of the cache is *charged* to it ([`Charge`]), and comes off in the
//! same way: pinned memtables, which only a snapshot sees, pairs that wait to be bulk-loaded, gaps of the allocator.
//!
//! The number of shards and the hash are fixed, so that equal requests make equal hits on every
//! machine and in every run.

pub mod flushed;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use argosy_base::{Pointer, RegionId, SegmentNumber};
use argosy_engine::stats::{CacheLookups, CacheStats};
use argosy_engine::{Cache, Charge};
use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::{Cache as Entries, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::hashing::FixedState;
use crate::level::{Leaf, SegmentReader};
use crate::names::SegmentName;
use flushed::FlushedQueue;

/// Entries that the cache is laid out for: about this many bytes each.
const ENTRY_BYTES_TYPICAL: usize = 4 << 10;
/// Most parts with a lock of their own.
const SHARDS_MAX: usize = 16;
/// Least bytes of a shard, so that each can hold the longest value several times.
const SHARD_BYTES_MIN: usize = 4 << 20;
/// What an entry costs in the cache's own tables.
const OVERHEAD_BYTES: usize = 128;
/// What is in front of shared bytes: two counters.
pub(crate) const COUNTERS_BYTES: usize = 16;
/// The budget is divided between pins and entries in so many parts: few enough that the line is seldom moved, and
/// large enough for several entries.
const PARTS_MIN: usize = 16;
/// A large budget is divided in so many, so that little is lost where one is taken in part.
const PARTS_MAX: usize = 64;
/// Budgets from which on there are so many parts.
const LARGE_BYTES: usize = 64 << 20;

/// Pages of medium segments of which it is remembered that a value was read: two kilobytes.
const PAGES_REMEMBERED: usize = 256;

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
    /// A node of a tree, leaf or index node, or a page of a medium segment.
    Node {
        /// The region that wrote the segment.
        region: RegionId,
        /// The segment.
        segment: SegmentNumber,
        /// Where in it the node begins.
        offset: u32,
    },
    /// Index and filter of a level segment.
    Reader {
        /// The region that wrote the segment.
        region: RegionId,
        /// The segment.
        segment: SegmentNumber,
    },
    /// The value of a log record.
    Value {
        /// The region that wrote the record.
        region: RegionId,
        /// Where the record begins.
        at: Pointer,
    },
}

impl CacheKey {
    /// Of leaf `index` of a self-contained segment.
    ///
    /// # Panics
    /// With an index that no segment has.
    #[must_use]
    pub fn leaf(name: SegmentName, index: usize) -> Self {
        Self::Leaf {
            region: name.region,
            segment: name.number,
            leaf: u32::try_from(index).expect("a segment has fewer leaves than bytes"),
        }
    }

    /// Of the page of the medium segment `name` that begins at `offset`.
    #[must_use]
    pub(crate) const fn page(name: SegmentName, offset: u32) -> Self {
        Self::Node {
            region: name.region,
            segment: name.number,
            offset,
        }
    }

    /// Of the index and filter of a level segment.
    #[inline]
    #[must_use]
    pub const fn reader(region: RegionId, segment: SegmentNumber) -> Self {
        Self::Reader { region, segment }
    }
}

/// What is looked up, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// A leaf.
    Leaf,
    /// An index node of a tree.
    Index,
    /// The index and filter of a segment.
    Reader,
    /// The value of a log record, or its page.
    Value,
}

#[derive(Clone)]
enum Cached {
    Leaf(Leaf),
    Reader(Arc<SegmentReader>),
    Value(Arc<[u8]>),
}

#[derive(Clone)]
struct Bytes;

impl Weighter<CacheKey, Cached> for Bytes {
    fn weight(&self, _key: &CacheKey, value: &Cached) -> u64 {
        let bytes = match value {
            Cached::Leaf(leaf) => footprint(leaf.shared_bytes() + COUNTERS_BYTES),
            Cached::Reader(reader) => reader.memory_bytes(),
            Cached::Value(value) => footprint(value.len() + COUNTERS_BYTES),
        };
        (bytes + OVERHEAD_BYTES) as u64
    }
}

/// What an allocator takes for `bytes` bytes, roughly. The usual ones have four sizes from a power of two to
/// the next, and about a sixteenth of a page for themselves and for what is left at its end.
pub(crate) fn footprint(bytes: usize) -> usize {
    let step = (bytes.max(64).next_power_of_two() / 8).max(16);
    let rounded = bytes.next_multiple_of(step);
    rounded + rounded / 16
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

    fn stats(&self) -> CacheLookups {
        CacheLookups {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}

/// A cache of leaves, readers and values within a budget. Cheap to share: `Arc<NodeCache>`.
pub struct NodeCache {
    entries: Entries<CacheKey, Cached, Bytes, FixedState, DefaultLifecycle<CacheKey, Cached>>,
    budget: Budget,
    pins: Mutex<Pins>,
    pins_refused: AtomicU64,
    flushed: FlushedQueue,
    /// Each page that was read has one of these places, which it shares with others: the hash of the last.
    pages_read: Box<[AtomicU64]>,
    leaves: Counts,
    indexes: Counts,
    readers: Counts,
    values: Counts,
}

/// What the cache may take, and how that is divided.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Bytes of all of it.
    bytes: usize,
    /// Bytes of it that others lend.
    lent: usize,
    /// Bytes of a part.
    part: usize,
    /// How many parts there are.
    parts: usize,
}

impl Budget {
    /// Most bytes that pins may take: three quarters of what is not lent. Entries keep the rest.
    const fn pinned_max(&self) -> usize {
        self.bytes.saturating_sub(self.lent) / 4 * 3
    }

    /// Most parts that are kept for pins and charges: all but a sixteenth.
    const fn parts_max(&self) -> usize {
        self.parts - self.parts / PARTS_MIN
    }
}

/// What pins take.
#[derive(Debug, Default)]
struct Pins {
    /// Bytes that are pinned.
    bytes: usize,
    /// Bytes that are charged.
    charged: usize,
    /// Parts of the budget that are kept for both; the entries have the others.
    parts: usize,
}

/// Room for something that is pinned. Gives it back when it is dropped.
pub struct Pin {
    cache: Arc<NodeCache>,
    bytes: usize,
}

impl Pin {
    /// In which cache.
    pub(crate) const fn cache(&self) -> &Arc<NodeCache> {
        &self.cache
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.cache.unpin(self.bytes);
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pin({} bytes)", self.bytes)
    }
}

impl NodeCache {
    /// A cache that keeps at most `budget` bytes. With less than a leaf's size it keeps nothing.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self::with_lent(budget, 0)
    }

    /// The same, where `lent` bytes of the budget may be charged at any time: pins, which never leave, take none of
    /// those.
    #[must_use]
    pub(crate) fn with_lent(budget: usize, lent: usize) -> Self {
        let shards = (budget / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        // Rounded down to a power of two: the parts' budgets then add up to the whole.
        let shards = 1 << shards.ilog2();
        let parts = match budget >= LARGE_BYTES {
            true => PARTS_MAX,
            false => PARTS_MIN,
        };
        let part = budget / parts / shards * shards;
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity((budget / ENTRY_BYTES_TYPICAL).max(1))
            .weight_capacity((budget / shards * shards) as u64)
            .build()
            .expect("both capacities are set");
        Self {
            entries: Entries::with_options(options, Bytes, FixedState, DefaultLifecycle::default()),
            budget: Budget {
                bytes: budget,
                lent,
                part,
                parts,
            },
            pins: Mutex::default(),
            pins_refused: AtomicU64::new(0),
            flushed: FlushedQueue::default(),
            pages_read: (0..PAGES_REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            leaves: Counts::default(),
            indexes: Counts::default(),
            readers: Counts::default(),
            values: Counts::default(),
        }
    }

    /// The leaf kept under `key`. Counts it if it is there; the caller counts a miss where it reads the leaf
    /// (`count`). So with all lookups.
    #[must_use]
    pub fn leaf(&self, key: CacheKey) -> Option<Leaf> {
        self.node(key, Lookup::Leaf)
    }

    /// The index node of a tree that is kept under `key`, in the form of a leaf.
    #[must_use]
    pub fn index_node(&self, key: CacheKey) -> Option<Leaf> {
        self.node(key, Lookup::Index)
    }

    #[inline]
    fn node(&self, key: CacheKey, of: Lookup) -> Option<Leaf> {
        let Some(Cached::Leaf(node)) = self.entries.get(&key) else {
            return None;
        };
        self.count(of, true);
        Some(node)
    }

    /// The value, or the page of a medium segment, kept under `key`.
    #[must_use]
    pub fn value(&self, key: CacheKey) -> Option<Arc<[u8]>> {
        let Some(Cached::Value(value)) = self.entries.get(&key) else {
            return None;
        };
        self.count(Lookup::Value, true);
        Some(value)
    }

    /// The reader kept under `key`.
    #[must_use]
    pub fn reader(&self, key: CacheKey) -> Option<Arc<SegmentReader>> {
        let Some(Cached::Reader(reader)) = self.entries.get(&key) else {
            return None;
        };
        self.count(Lookup::Reader, true);
        Some(reader)
    }

    /// Counts a lookup that found something, or that goes on to read it.
    pub(crate) fn count(&self, of: Lookup, hit: bool) {
        let counts = match of {
            Lookup::Leaf => &self.leaves,
            Lookup::Index => &self.indexes,
            Lookup::Reader => &self.readers,
            Lookup::Value => &self.values,
        };
        counts.count(hit);
    }

    /// Whether `bytes` more would find room without anything leaving for them. A part of the budget is left
    /// to what is asked for.
    #[must_use]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.has_room_beside_entries(self.flushed.bytes() + bytes)
    }

    /// Whether entries leave room for `bytes` bytes of all else that a build or a flush puts in.
    pub(crate) fn has_room_beside_entries(&self, bytes: usize) -> bool {
        let room = self
            .entries
            .capacity()
            .saturating_sub(self.budget.part as u64);
        self.entries.weight() + bytes as u64 <= room
    }

    /// What was flushed and stays.
    pub(crate) const fn flushed(&self) -> &FlushedQueue {
        &self.flushed
    }

    /// Puts an entry in; now and then flushed parts leave for those that came in.
    fn keep(&self, key: CacheKey, entry: Cached) {
        let bytes = Bytes.weight(&key, &entry);
        self.entries.insert(key, entry);
        if self.flushed.comes_in(bytes, self.budget.part / 4) {
            self.clear_room();
        }
    }

    /// Whether something is kept under `key`. Not counted, and no sign that it is asked for.
    #[must_use]
    pub(crate) fn has(&self, key: CacheKey) -> bool {
        self.entries.contains_key(&key)
    }

    /// The reader kept under `key`, for whoever counts what there is: not counted itself, and no sign that it
    /// is asked for.
    #[must_use]
    pub(crate) fn peek_reader(&self, key: CacheKey) -> Option<Arc<SegmentReader>> {
        match self.entries.peek(&key) {
            Some(Cached::Reader(reader)) => Some(reader),
            _ => None,
        }
    }

    /// Keeps `leaf`, which was not there when it was looked for by [`has`](Self::has): counts a miss.
    pub(crate) fn keep_missed_leaf(&self, key: CacheKey, leaf: Leaf) {
        self.count(Lookup::Leaf, false);
        self.keep_leaf(key, leaf);
    }

    /// Whether the page of a medium segment that `key` names was read a moment ago, too. Remembers that it was
    /// read now.
    pub(crate) fn is_read_again(&self, key: CacheKey) -> bool {
        let hash = FixedState.hash_one(key);
        // A remainder of 256.
        let place = usize::try_from(hash % PAGES_REMEMBERED as u64).unwrap_or(0);
        // Relaxed: a guess, by which nothing is ordered.
        self.pages_read[place].swap(hash, Ordering::Relaxed) == hash
    }

    /// Keeps `page` under `key`, if there is room for it.
    pub fn keep_page(&self, key: CacheKey, page: Arc<[u8]>) {
        self.keep_value(key, page);
    }

    /// Keeps `leaf` under `key`, if there is room for it.
    pub fn keep_leaf(&self, key: CacheKey, leaf: Leaf) {
        self.keep(key, Cached::Leaf(leaf));
    }

    /// Keeps `value` under `key`, if there is room for it.
    pub fn keep_value(&self, key: CacheKey, value: Arc<[u8]>) {
        self.keep(key, Cached::Value(value));
    }

    /// Keeps `reader` under `key`, if there is room for it.
    pub fn keep_reader(&self, key: CacheKey, reader: Arc<SegmentReader>) {
        self.keep(key, Cached::Reader(reader));
    }

    /// Keeps nothing under `key` any more.
    pub fn forget(&self, key: CacheKey) {
        self.entries.remove(&key);
    }

    /// Room for `bytes` that stay in memory, if there is some: entries leave to make it.
    #[must_use]
    pub fn pin(self: &Arc<Self>, bytes: usize) -> Option<Pin> {
        let bytes = bytes + OVERHEAD_BYTES;
        let mut pins = self.pins();
        let wanted = pins.bytes + pins.charged + bytes;
        if pins.bytes + pins.charged.saturating_sub(self.budget.lent) + bytes
            > self.budget.pinned_max()
        {
            // Relaxed: a counter for people.
            self.pins_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.divide(&mut pins, wanted);
        pins.bytes += bytes;
        drop(pins);
        self.clear_room();
        Some(Pin {
            cache: Arc::clone(self),
            bytes,
        })
    }

    fn unpin(&self, bytes: usize) {
        let mut pins = self.pins();
        pins.bytes -= bytes;
        let left = pins.bytes + pins.charged;
        self.divide(&mut pins, left);
    }

    /// For somebody who will take a part of the budget: nothing at first.
    #[must_use]
    pub(crate) fn new_charge(self: &Arc<Self>) -> Charge {
        Charge::of(Arc::<Self>::clone(self))
    }

    /// Moves the line between entries and all else for pins and charges of `wanted` bytes. One part is left
    /// to them before the line is moved back, so that it does not go to and fro with every segment.
    fn divide(&self, pins: &mut Pins, wanted: usize) {
        let parts = wanted
            .div_ceil(self.budget.part.max(1))
            .min(self.budget.parts_max());
        if parts > pins.parts || parts + 1 < pins.parts {
            pins.parts = parts;
            let left = (self.budget.parts - parts) * self.budget.part;
            self.entries.set_capacity(left as u64);
        }
    }

    /// Bytes of pins and charges.
    pub(crate) fn claimed_bytes(&self) -> usize {
        let pins = self.pins();
        pins.bytes + pins.charged
    }

    fn pins(&self) -> MutexGuard<'_, Pins> {
        // Two numbers, which agree after every line above.
        self.pins.lock()
    }

    /// What the cache has done and holds.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (pinned, charged) = {
            let pins = self.pins();
            (pins.bytes, pins.charged)
        };
        CacheStats {
            leaf: self.leaves.stats(),
            index: self.indexes.stats(),
            value: self.values.stats(),
            reader: self.readers.stats(),
            pins_refused: read(&self.pins_refused),
            bytes: self.entries.weight() + self.flushed.bytes() as u64,
            flushed_bytes: self.flushed.bytes() as u64,
            pinned_bytes: pinned as u64,
            charged_bytes: charged as u64,
            budget: self.budget.bytes as u64,
        }
    }
}

impl Cache for NodeCache {
    /// All but the last sixteenth of the budget gives way.
    fn charge(&self, charged: &AtomicUsize, bytes: usize) {
        let mut pins = self.pins();
        let before = charged.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            pins.charged = pins.charged - before + bytes;
            let wanted = pins.bytes + pins.charged;
            self.divide(&mut pins, wanted);
            drop(pins);
            self.clear_room();
        }
    }

    fn gives_at_most(&self) -> usize {
        self.budget.part * self.budget.parts_max()
    }

    fn stats(&self) -> CacheStats {
        Self::stats(self)
    }
}

impl std::fmt::Debug for NodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeCache({:?})", self.stats())
    }
}

#[cfg(test)]
mod tests;
