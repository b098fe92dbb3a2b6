//! The memory that the regions of a server share: one cache, and what their memtables may take together (I9).
//!
//! How large memtables are is set for as many regions as the server serves when it starts
//! ([`MemtableSettings::regions`]). It may come to serve more, when others fail. Then all memtables are smaller, so
//! that they take no more together:
//!
//! ```text
//! bytes of a memtable = bytes that are set x regions that they are set for / regions that are served
//! ```
//!
//! 1. A region counts from before its memtables are rebuilt from the logs until it is served no more.
//! 2. An active memtable that is too large by now is frozen by the next write to its region, or the next step of it.
//!    Each time a quarter more regions are served, all are woken for that: one that nobody writes to takes no more than
//!    a memtable that was begun before, which its share has room for.
//! 3. What memtables take beyond the region's share is charged to the cache until they are flushed (`pinned`). So are
//!    those of a log that a server wrote whose memtables were larger.
//!
//! 4. Promotions take turns ([`rebuilding`](super::rebuilding)): what they rebuild is within what all shares and the
//!    cache have left.
//!
//! Invariant: the shares of all regions together are at most those of as many regions as were set.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use argosy_device::Waker;
use argosy_engine::Cache as _;
use parking_lot::Mutex;

use super::rebuilding::{Line, Turn};
use crate::cache::NodeCache;
use crate::memtable::Memtable;
use crate::settings::MemtableSettings;

/// No memtable is made smaller than this: an arena has no smaller chunks.
const TABLE_BYTES_MIN: usize = 64 << 10;

/// What the regions of a server share.
#[derive(Debug)]
pub(crate) struct ServerMemory {
    cache: Arc<NodeCache>,
    /// Regions that are served, or about to be. Relaxed: nothing is ordered by it.
    served: AtomicUsize,
    woken: Mutex<Woken>,
    /// Of those that are to be served.
    line: Arc<Line>,
    /// What memtables take, as of the last step of each region.
    taken: Taken,
}

/// Bytes of memtables. Relaxed: nothing is ordered by it.
#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicUsize,
    /// Those of them that are charged to the cache.
    charged: AtomicUsize,
}

/// The regions, to be woken when their memtables may be too large.
#[derive(Debug, Default)]
struct Woken {
    /// How many there were when all of them were woken last.
    served: usize,
    regions: Vec<Weak<RegionMemory>>,
}

impl ServerMemory {
    /// That of a server with this cache, which serves nothing yet.
    pub(crate) fn new(cache: Arc<NodeCache>) -> Arc<Self> {
        Arc::new(Self {
            cache,
            served: AtomicUsize::new(0),
            woken: Mutex::default(),
            line: Arc::default(),
            taken: Taken::default(),
        })
    }

    /// The promotions of the server.
    pub(super) const fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Bytes of a memtable of the next region that is served, with memtables as `settings` say.
    pub(super) fn next_table_bytes(&self, settings: &MemtableSettings) -> usize {
        let served = self.served.load(Ordering::Relaxed) + 1;
        let part = part_of(settings.bytes, settings.regions, served);
        part.max(TABLE_BYTES_MIN.min(settings.bytes))
    }

    /// Bytes that more memtables may take before those of all regions, and whatever else the cache has given way to,
    /// are more than the shares and what the cache gives.
    pub(super) fn room(&self, settings: &MemtableSettings) -> usize {
        let served = self.served.load(Ordering::Relaxed) + 1;
        let shares = settings.regions.unwrap_or(served).max(1) * share_of(settings);
        let charged = self.taken.charged.load(Ordering::Relaxed);
        let of_others = self.cache.claimed_bytes().saturating_sub(charged);
        let given = self.cache.gives_at_most().saturating_sub(of_others);
        let taken = self.taken.bytes.load(Ordering::Relaxed);
        shares.saturating_add(given).saturating_sub(taken)
    }

    /// Leaves and values of all regions.
    pub(crate) const fn cache(&self) -> &Arc<NodeCache> {
        &self.cache
    }

    /// Another region is served, with memtables as `settings` say.
    pub(super) fn join(self: &Arc<Self>, settings: &MemtableSettings) -> Arc<RegionMemory> {
        let served = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        let region = Arc::new(RegionMemory {
            server: Arc::clone(self),
            table_bytes: settings.bytes,
            share_bytes: share_of(settings),
            regions: settings.regions,
            has_left: AtomicBool::new(false),
            waker: OnceLock::new(),
            taken: Taken::default(),
            rebuilt: Mutex::default(),
        });
        self.wake_others(served, &region);
        region
    }

    /// Wakes the regions that there were, where that is due since `region` is served, too.
    fn wake_others(&self, served: usize, region: &Arc<RegionMemory>) {
        let mut woken = self.woken.lock();
        woken.regions.retain(|other| other.strong_count() > 0);
        let before = woken.served.max(region.regions.unwrap_or(usize::MAX));
        woken.served = woken.served.min(served);
        if served > before && served - before > before / 4 {
            woken.served = served;
            let others = woken.regions.iter().filter_map(Weak::upgrade);
            others.for_each(|other| other.wake());
        }
        woken.regions.push(Arc::downgrade(region));
    }
}

/// What a region that is served has of the memory of its server. It gives that back when it is dropped.
pub(crate) struct RegionMemory {
    server: Arc<ServerMemory>,
    /// Bytes of one memtable, where no more regions are served than were set.
    table_bytes: usize,
    /// Bytes of all of them, then.
    share_bytes: usize,
    /// Regions that this is set for.
    regions: Option<usize>,
    has_left: AtomicBool,
    waker: OnceLock<Waker>,
    taken: Taken,
    rebuilt: Mutex<Option<Rebuilt>>,
}

/// The turn of a region whose memtables were rebuilt.
struct Rebuilt {
    /// Ends when it is dropped.
    _turn: Turn,
    /// That which is flushed last.
    newest: Weak<Memtable>,
}

/// Bytes that all memtables of a region may take, with such `settings`.
fn share_of(settings: &MemtableSettings) -> usize {
    let all = settings.count_max * settings.bytes;
    settings.share_bytes.unwrap_or(all)
}

/// The part of `bytes`, set for so many `regions`, that each has where more are served.
fn part_of(bytes: usize, regions: Option<usize>, served: usize) -> usize {
    match regions {
        Some(regions) if served > regions => bytes / served * regions.max(1),
        _ => bytes,
    }
}

impl fmt::Debug for RegionMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionMemory({} bytes)", self.share_bytes())
    }
}

impl RegionMemory {
    /// Whom to wake when the region's memtables may be too large. Set once.
    pub(super) fn set_waker(&self, waker: Waker) {
        drop(self.waker.set(waker));
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// What all regions of the server share.
    pub(super) const fn server(&self) -> &Arc<ServerMemory> {
        &self.server
    }

    /// Bytes of a memtable that is begun now.
    pub(super) fn table_bytes(&self) -> usize {
        self.limit().unwrap_or(self.table_bytes)
    }

    /// Bytes beyond which the active memtable is to be frozen although it has room; `None` where it may be filled.
    pub(super) fn limit(&self) -> Option<usize> {
        let least = TABLE_BYTES_MIN.min(self.table_bytes);
        let limit = self.part_of(self.table_bytes).max(least);
        (limit < self.table_bytes).then_some(limit)
    }

    /// Bytes that all memtables of the region may take before the cache gives way to them.
    pub(super) fn share_bytes(&self) -> usize {
        match self.has_left.load(Ordering::Relaxed) {
            true => 0,
            false => self.part_of(self.share_bytes),
        }
    }

    /// The region is served no more. What snapshots see of its memtables has no share from now on.
    pub(super) fn leave(&self) {
        if !self.has_left.swap(true, Ordering::Relaxed) {
            self.server.served.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The memtables that were rebuilt in `turn` are there, of which `newest` is flushed last.
    pub(super) fn is_rebuilt(&self, mut turn: Turn, newest: Option<&Arc<Memtable>>) {
        turn.is_rebuilt();
        *self.rebuilt.lock() = newest.map(|newest| Rebuilt {
            _turn: turn,
            newest: Arc::downgrade(newest),
        });
    }

    /// The region's memtables, of which it shows `own`, take `bytes`. Those beyond its share are `charged` to the
    /// cache.
    pub(super) fn settled(&self, own: &[Arc<Memtable>], bytes: usize, charged: usize) {
        self.set_taken(bytes, charged);
        let mut rebuilt = self.rebuilt.lock();
        let is_there = |rebuilt: &Rebuilt| {
            let newest = rebuilt.newest.as_ptr();
            own.iter().any(|table| Arc::as_ptr(table) == newest)
        };
        let is_over = rebuilt.as_ref().is_some_and(|rebuilt| !is_there(rebuilt));
        let over = is_over.then(|| rebuilt.take());
        drop(rebuilt);
        drop(over);
    }

    fn set_taken(&self, bytes: usize, charged: usize) {
        let all = &self.server.taken;
        let own = &self.taken;
        for (own, all, now) in [
            (&own.bytes, &all.bytes, bytes),
            (&own.charged, &all.charged, charged),
        ] {
            let before = own.swap(now, Ordering::Relaxed);
            all.fetch_add(now, Ordering::Relaxed);
            all.fetch_sub(before, Ordering::Relaxed);
        }
    }

    fn part_of(&self, bytes: usize) -> usize {
        let served = self.server.served.load(Ordering::Relaxed);
        part_of(bytes, self.regions, served)
    }
}

impl Drop for RegionMemory {
    fn drop(&mut self) {
        self.leave();
        self.set_taken(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: MemtableSettings = MemtableSettings {
        bytes: 1 << 20,
        log_bytes: 1 << 20,
        count_max: 3,
        share_bytes: None,
        regions: Some(2),
    };

    #[test]
    fn shares_together_stay_what_was_set() {
        let server = ServerMemory::new(Arc::new(NodeCache::new(0)));
        let mut regions = Vec::new();
        for count in 1..=100 {
            regions.push(server.join(&SET));
            let shares: usize = regions.iter().map(|region| region.share_bytes()).sum();
            assert!(shares <= 2 * 3 * SET.bytes, "{count}: {shares}");
            let limits = regions.iter().map(|region| region.limit());
            let limits: Vec<_> = limits.collect();
            match count {
                1 | 2 => assert!(limits.iter().all(Option::is_none)),
                3..=31 => assert!(limits.iter().all(|it| *it == Some(SET.bytes / count * 2))),
                _ => assert!(limits.iter().all(|it| *it == Some(TABLE_BYTES_MIN))),
            }
        }
        let last = regions.pop().expect("there are some");
        regions.truncate(3);
        last.leave();
        last.leave();
        assert_eq!(last.share_bytes(), 0, "it has left");
        assert_eq!(regions[0].table_bytes(), SET.bytes / 3 * 2);
        drop((last, regions.pop()));
        assert_eq!(regions[0].table_bytes(), SET.bytes, "each left once");
    }

    #[test]
    fn regions_are_woken_each_time_a_quarter_more_are_served() {
        let server = ServerMemory::new(Arc::new(NodeCache::new(0)));
        let woken = Arc::new(AtomicUsize::new(0));
        let first = server.join(&SET);
        let counted = Arc::clone(&woken);
        first.set_waker(Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let mut regions = Vec::new();
        let mut at = Vec::new();
        for served in 2..=20 {
            regions.push(server.join(&SET));
            if woken.swap(0, Ordering::Relaxed) > 0 {
                at.push(served);
            }
        }
        assert_eq!(at, [3, 4, 6, 8, 11, 14, 18]);
        regions.clear();
        regions.push(server.join(&SET));
        assert_eq!(woken.load(Ordering::Relaxed), 0, "as many as were set");
        regions.push(server.join(&SET));
        assert_eq!(woken.load(Ordering::Relaxed), 1, "more than were set again");
    }

    #[test]
    fn nobody_gives_way_where_no_number_is_set() {
        let server = ServerMemory::new(Arc::new(NodeCache::new(0)));
        let set = MemtableSettings {
            regions: None,
            ..SET
        };
        let regions: Vec<_> = (0..10).map(|_| server.join(&set)).collect();
        assert!(regions.iter().all(|region| region.limit().is_none()));
    }
}
