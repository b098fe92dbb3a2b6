//! What versions take of memory, and who gives way to it (I9).
//!
//! A version counts a few hundred bytes and the keys of each segment, and what garbage collection keeps
//! of it. Old versions share nearly all of it with the newest one, so only the newest one counts. [`held_bytes`]
//! adds up all regions of the process, and the cache gives way to that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::SegmentNumber;
use argosy_engine::Charge;

use super::{LevelEntry, LogEntry, LogUse, Run, Uncounted, Version};
use crate::cache::NodeCache;
use crate::edit::LevelSegment;
use crate::names::logs::{LARGE_LOG, LOGS};
use crate::segments::StoredSegment;
use crate::shared::slot_bytes;

/// Counts of an [`Arc`].
const COUNTS: usize = 2 * size_of::<usize>();

/// Of an entry of a level segment: itself, and its places in the lists of its run.
const ENTRY: usize = COUNTS
    + size_of::<LevelSegment>()
    + slot_bytes::<LevelEntry>()
    + size_of::<u64>()
    + slot_bytes::<Arc<LevelSegment>>();

/// Of any segment: its place in the table, and what keeps it.
const STORED: usize =
    COUNTS + size_of::<StoredSegment>() + slot_bytes::<(SegmentNumber, Arc<StoredSegment>)>();

/// Of a segment of the large or medium log: what levels point to.
const REFERENCED: usize = slot_bytes::<(SegmentNumber, LogUse)>();

/// Of a level segment of which parts are uncounted: one part with keys of some length, as most have.
const UNCOUNTED: usize =
    ENTRY + slot_bytes::<(SegmentNumber, Uncounted)>() + size_of::<LevelEntry>() + 64;

/// What garbage collection keeps of a segment of the large log (`work/settled.rs`): in a map and a set, whose nodes are
/// three quarters full.
const SETTLED: usize = (5 + 2) * size_of::<u64>() * 4 / 3;

/// What it keeps of a level segment above the lowest run (`work/shadowed.rs`).
const SHADOWED: usize = 28 * size_of::<u64>() * 4 / 3;

/// Bytes of an entry of a level segment.
pub(super) const fn entry_bytes(segment: &LevelSegment) -> usize {
    let to = match &segment.range.to {
        Some(to) => to.len(),
        None => 0,
    };
    ENTRY + segment.range.from.len() + to
}

impl Version {
    /// Bytes of memory that it takes, without indexes and filters. What it shares with other versions is counted.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let runs: usize = self.runs().map(|(_, run)| Run::memory_bytes(run)).sum();
        let logs: usize = LOGS.iter().map(|log| self.log(*log).len()).sum();
        let upper = self.runs().map(|(_, run)| run.segments.len());
        let upper =
            upper.sum::<usize>() - self.runs().last().map_or(0, |(_, run)| run.segments.len());
        let kept = self.log(LARGE_LOG).len() * SETTLED + upper * SHADOWED;
        let referenced = (self.log(LARGE_LOG).len() + self.medium_log().len()) * REFERENCED;
        let medium = self.medium.memory_bytes();
        let cut = self.uncounted.len() * UNCOUNTED + self.evacuated.len() * REFERENCED;
        let logs = logs * slot_bytes::<LogEntry>();
        // The newest one's, which the writer has once more where it goes on changing it.
        let duplicates = 2 * self.duplicates.memory_bytes();
        let segments = self.table.len() * STORED;
        runs + logs + medium + referenced + cut + kept + segments + duplicates
    }
}

/// What the newest versions of all regions of the process take.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the newest versions of all regions of the process take that are charged to a cache.
#[must_use]
pub fn held_bytes() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// What a region's newest version takes, charged to a cache. Gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct VersionCharge {
    charge: Charge,
    bytes: usize,
}

impl VersionCharge {
    /// Nothing yet.
    pub(crate) fn new(cache: &Arc<NodeCache>) -> Self {
        Self {
            charge: cache.new_charge(),
            bytes: 0,
        }
    }

    /// `version` is the newest one.
    pub(crate) fn set(&mut self, version: &Version) {
        let bytes = version.memory_bytes();
        HELD.fetch_add(bytes, Ordering::Relaxed);
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
        self.charge.set(bytes);
    }
}

impl Drop for VersionCharge {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
