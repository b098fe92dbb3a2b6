//! How a key is found, and a range gone through.
//!
//! A [`ReadView`] is everything that readers need, and never changes: the memtables and a version.
//! Whoever changes either puts a new view in its place, and readers keep the one that they began
//! with, so reading takes no lock. A get asks, newest first, the memtables, the runs of L1, and the
//! one run of each level below; filters spare most of the reads. In a run that is a tree the way leads
//! through the tree's index nodes. A scan merges the same sources.
//!
//! What a reader sees is bounded by an LSN: memtables hide what is newer. Levels hold one entry per
//! key, so a bounded view is only right if nothing newer than the bound has left the memtables;
//! [`ReadView::levels_lsn`] tells.
//!
//! A value that lies in a log is read from the log's window while it is there, afterwards from what
//! stayed in memory when the window was flushed, or through the cache from the device; one of the
//! medium log always through the cache, which keeps it, or its page where others of that are read, too.
//!
//! Whether a read may go to the device is a parameter ([`Fetch`]).
//!
//! Reading order: this file, [`readers`] and [`nodes`] (segments and their nodes through the cache), `search` (one key
//! in the levels), `values`, [`many`] (several keys); [`cursor`], [`tree_cursor`], [`sources`], [`scan`], [`snapshot`];
//! `ttl` (what has expired); `rouser` (whom reads wake).

pub(crate) mod cursor;
pub(crate) mod many;
pub mod medium;
pub(crate) mod nodes;
pub(crate) mod readers;
mod rouser;
pub(crate) mod scan;
mod search;
pub mod snapshot;
pub(crate) mod sources;
pub(crate) mod tree_cursor;
mod ttl;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argosy_base::{KeyRange, Lsn, RegionId};
use argosy_engine::{EngineError, Outline, Reach, WaitFor};
use argosy_log::LogWindows;

use crate::addresses::Addressing;
use crate::cache::NodeCache;
use crate::damage::Damages;
use crate::memtable::{Memtable, RangeTombstones};
use crate::merge::{Merge, Source};
use crate::names::{Entry, OwnedEntry};
use crate::segments::fetch::Fetch;
use crate::version::Version;
pub use cursor::{LevelCursor, ReadAhead};
pub(crate) use readers::{leaf_home, passing_reader, reader};
pub use rouser::Rouser;
use scan::{RangeMerge, RangeScan, Walk, begun, warm};
use search::Search;
use sources::{MemtableDownSource, MemtableSource, RunReading, RunSource};
pub use ttl::ScanTime;
pub(crate) use values::{VersionLog, read_log};

/// What is shared by everything that reads one region.
pub struct Reading {
    /// The region.
    pub region: RegionId,
    /// Leaves and values.
    pub cache: Arc<NodeCache>,
    /// The large log's windows.
    pub windows: Arc<LogWindows>,
    /// What filters did.
    pub filters: FilterCounts,
    /// What was found damaged.
    pub damages: Arc<Damages>,
    /// The region is not served here any more: see [`check_serving`](Self::check_serving).
    pub ended: AtomicBool,
}

impl Reading {
    /// Whether whoever reads may go on. To be asked behind the load of a view: one that holds nothing any more is shown
    /// only behind the end.
    ///
    /// # Errors
    /// [`EngineError::NotServing`] from the end on.
    #[inline]
    pub(crate) fn check_serving(&self) -> Result<(), EngineError> {
        match self.ended.load(Ordering::Acquire) {
            true => Err(EngineError::NotServing),
            false => Ok(()),
        }
    }

    /// Nobody reads any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// What filters of level segments did for gets, and what scans did without. Relaxed: nothing is ordered
/// by the counters.
#[derive(Debug, Default)]
pub struct FilterCounts {
    /// Segments that were not read because their filter knew that they do not have the key.
    pub spared: AtomicU64,
    /// Segments that were read in vain.
    pub misled: AtomicU64,
    /// Runs in which scans began.
    pub entered: AtomicU64,
    /// Bytes of the leaves in which they began that had to come from the device.
    pub fetched_bytes: AtomicU64,
    /// Looks at values of the medium log. One at the device counts as several.
    pub followed: AtomicU64,
    /// Wakes the background for what is counted.
    pub(crate) rouser: Rouser,
}

impl FilterCounts {
    /// Counts what they did for one get.
    #[inline]
    pub(crate) fn count(&self, spared: u64, misled: u64) {
        self.add(&self.spared, spared);
        self.add(&self.misled, misled);
    }

    /// Counts so many runs in which a scan began.
    pub(crate) fn count_entered(&self, runs: u64) {
        self.add(&self.entered, runs);
    }

    /// Counts so many bytes of leaves that came from the device for scans.
    pub(crate) fn count_fetched(&self, bytes: u64) {
        self.add(&self.fetched_bytes, bytes);
    }

    /// Counts a look at a value of the medium log that took as long as so many `looks` at the cache.
    pub(crate) fn count_followed(&self, looks: u64) {
        self.add(&self.followed, looks);
    }

    #[inline]
    fn add(&self, counter: &AtomicU64, n: u64) {
        if n > 0 {
            counter.fetch_add(n, Ordering::Relaxed);
            self.rouser.note_read();
        }
    }
}

/// A moment of the region. See the module documentation.
pub struct ReadView {
    /// Newest first; the first is the one that is written to.
    pub memtables: Vec<Arc<Memtable>>,
    /// The levels and logs.
    pub version: Arc<Version>,
    /// The highest LSN that has left the memtables.
    pub levels_lsn: Lsn,
    /// The LSN of a record that tells the time by which merges have removed pairs from the levels.
    pub expired_lsn: Lsn,
    /// How often pairs came into the levels that no memtable had.
    pub bulk_loads: u64,
}

/// Where a key's newest binding was found.
pub struct Located {
    /// The binding; `None` where the key was never bound.
    pub entry: Option<OwnedEntry>,
    /// Its LSN, while it is in a memtable. What has gone to the levels is committed, and an answer
    /// that reveals it waits for nothing.
    pub lsn: Lsn,
}

impl Located {
    /// What it tells without the value.
    pub(crate) fn outline(&self) -> Outline {
        let entry = self.entry.as_ref().map(OwnedEntry::as_entry);
        Outline {
            len: entry.and_then(|entry| entry.value_len()),
            wait: WaitFor::committed(self.lsn),
            expiry: entry.and_then(|entry| entry.expiry()),
        }
    }
}

impl ReadView {
    /// What the levels bind is the same in all views in which this is the same.
    #[must_use]
    pub const fn levels(&self) -> (Lsn, u64) {
        (self.levels_lsn, self.bulk_loads)
    }

    /// The newest binding of `key` in the memtables at or below `lsn`.
    #[inline]
    #[must_use]
    pub fn in_memory(&self, key: &[u8], lsn: Lsn) -> Option<(Lsn, Entry<'_>)> {
        self.memtables.iter().find_map(|table| table.get(key, lsn))
    }

    /// The newest binding of `key` in the levels.
    ///
    /// # Errors
    /// When a segment that may hold it cannot be read; [`EngineError::NotInMemory`] as `fetch` says.
    pub fn in_levels(
        &self,
        key: &[u8],
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<Option<OwnedEntry>, EngineError> {
        Search::new(key).advance(self, reading, fetch)
    }

    /// The newest binding of `key` at or below `lsn`.
    ///
    /// # Errors
    /// As [`in_levels`](Self::in_levels).
    #[inline]
    pub(crate) fn locate(
        &self,
        key: &[u8],
        lsn: Lsn,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<Located, EngineError> {
        if let Some((lsn, entry)) = self.in_memory(key, lsn) {
            return Ok(Located {
                entry: Some(entry.to_owned()),
                lsn,
            });
        }
        Ok(Located {
            entry: self.in_levels(key, reading, fetch)?,
            lsn: Lsn(0),
        })
    }

    /// The version of a key that was found at `lsn`, or where that is 0 in the levels.
    #[must_use]
    pub(crate) fn version_of(&self, lsn: Lsn, is_bound: bool) -> Lsn {
        match (lsn, is_bound) {
            (Lsn(0), true) => self.levels_lsn,
            // Something may have been there that a merge has removed since, as it was over.
            (Lsn(0), false) => self.levels_lsn.max(self.expired_lsn),
            _ => lsn,
        }
    }

    /// A scan of `range` as of `lsn`, in key order, or with the parameter
    /// [`DOWN`](crate::level::stand::DOWN) from the highest key down. Reads nothing before it is asked for a
    /// pair. Keeps the view for as long as it lives.
    #[must_use]
    pub fn scan<const DOWN: bool>(
        self: &Arc<Self>,
        range: &KeyRange,
        lsn: Lsn,
        time: &Arc<ScanTime>,
        reading: &Arc<Reading>,
    ) -> RangeScan<DOWN> {
        let (view, reading) = (Arc::clone(self), Arc::clone(reading));
        RangeScan::new(range.clone(), view, reading, lsn, Arc::clone(time))
    }

    /// All that has pairs of `range` as of `lsn`, merged, of which `expected` will be taken if that is known.
    ///
    /// # Errors
    /// When a segment at which it begins cannot be read.
    pub(crate) fn merge<const DOWN: bool>(
        &self,
        range: &KeyRange,
        walk: Walk,
        lsn: Lsn,
        reading: &Arc<Reading>,
    ) -> Result<RangeMerge<DOWN>, EngineError> {
        let mut sources: Vec<Box<dyn Source + Send>> = Vec::new();
        let in_places = self.version.addresses().hold_places();
        let resolve = in_places.then(|| Arc::clone(&self.version));
        let runs = begun(&self.version, range);
        if !range.is_empty() {
            if walk.reach == Reach::Device {
                warm::<DOWN>(&runs, range, walk.expected, reading);
            }
            let tombstones = RangeTombstones::of(self.memtables.iter().map(Arc::as_ref), lsn);
            for table in &self.memtables {
                let tombstones = tombstones.clone();
                sources.push(if DOWN {
                    Box::new(MemtableDownSource::without(table, lsn, range, tombstones))
                } else {
                    Box::new(MemtableSource::without(table, lsn, range, tombstones))
                });
            }
            for run in &runs {
                let how = RunReading {
                    region: reading.region,
                    ahead: ReadAhead::SCAN,
                    cache: Some(Arc::clone(&reading.cache)),
                    reach: walk.reach,
                    resolve: resolve.clone(),
                    counts: false,
                };
                let run = RunSource::<DOWN>::in_range(
                    how,
                    &self.version,
                    run,
                    range,
                    tombstones.as_ref(),
                )?;
                sources.push(Box::new(run));
            }
        }
        reading.filters.count_entered(runs.len() as u64);
        Ok(Merge::either_way(sources))
    }
}

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod medium_tests;
#[cfg(test)]
mod segment_tests;
#[cfg(test)]
mod tree_tests;
