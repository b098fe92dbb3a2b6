//! What an engine has done and holds, for `INFO`, the bench, and tests.
//!
//! Counters are relaxed atomics: nothing is ordered by them, and a reader sees each of them at some
//! recent moment. Sizes are read from the current version.

use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::LogKind;
use argosy_engine::BusyReason;

use crate::cache::CacheStats;
use crate::damage::DamageStats;
use crate::version::{Run, Version};

/// One level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// 1 is L1.
    pub level: u8,
    /// Sorted runs.
    pub runs: usize,
    /// Those of them that have a tree across their segments.
    pub trees: usize,
    /// Segments, a segment in several pieces counted once, index segments of trees included.
    pub segments: usize,
    /// Index segments of trees.
    pub index_segments: usize,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Entries in them, clipped or not.
    pub entries: u64,
}

/// One log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStats {
    /// Which one.
    pub log: LogKind,
    /// Segments of its chain.
    pub segments: usize,
    /// Bytes of records in the sealed ones.
    pub bytes: u64,
    /// Of these, bytes that no level points to: space that only freeing whole segments gives back.
    /// Only the large log has any, and only what is in the levels already is looked at.
    pub dead_bytes: u64,
}

/// What an engine has done since it was opened, and holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// L1 first.
    pub levels: Vec<LevelStats>,
    /// Bytes of memory of all memtables.
    pub memtable_bytes: usize,
    /// Entries of all memtables, older ones of a key included.
    pub memtable_entries: usize,
    /// Memtables that wait to be flushed.
    pub memtables_frozen: usize,
    /// Memtables that became runs.
    pub flushes: u64,
    /// Compactions that merged.
    pub compactions: u64,
    /// Segments that went down without being rewritten.
    pub moves: u64,
    /// Segments that were found damaged, and merges that passed over some.
    pub damage: DamageStats,
    /// Bytes of segments that compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes of segments that flushes and compactions wrote.
    pub segment_write_bytes: u64,
    /// Bytes of logs that were written to the device.
    pub log_write_bytes: u64,
    /// … of the recovery log, from which nothing but recovery reads.
    pub recovery_log_write_bytes: u64,
    /// Marks that were appended by themselves: where a log went idle, or a flush was asked to be marked.
    pub log_marks: u64,
    /// Whole records that were found behind the end of the history when the region was opened.
    pub cut_records: u64,
    /// Log segments with such records that were kept, and are given up since the device was full.
    pub cut_segments_given_up: u64,
    /// Log segments that exist.
    pub log_segments: usize,
    /// The logs.
    pub logs: Vec<LogStats>,
    /// Bytes that levels hold above what starts a compaction: work that is due.
    pub compaction_debt_bytes: u64,
    /// Segments of the medium log that exist.
    pub medium_log_segments: usize,
    /// Bytes of pairs that levels point to in them.
    pub medium_log_refs: u64,
    /// Segments of the medium log that flushes wrote.
    pub medium_segments: u64,
    /// Bytes of these.
    pub medium_write_bytes: u64,
    /// Values that flushes wrote there.
    pub medium_written: u64,
    /// Values that merges put in place again.
    pub medium_placed: u64,
    /// Segments of the medium log that merges freed.
    pub medium_freed: u64,
    /// Version edits committed.
    pub edits: u64,
    /// Bytes of the large log that no level points to, in segments of which all values are in the
    /// levels: what garbage collection could free.
    pub gc_debt_bytes: u64,
    /// Steps of garbage collection.
    pub gc_steps: u64,
    /// Segments of the large log out of which everything that lived was moved.
    pub gc_segments: u64,
    /// Bytes of them that were read.
    pub gc_read_bytes: u64,
    /// Values that were moved.
    pub gc_moved: u64,
    /// Segments that went although levels pointed into them, since newer entries hid all that.
    pub gc_evacuated: u64,
    /// Level segments whose pointers were counted because a removed range had cut parts off.
    pub segments_counted: u64,
    /// Bytes of the pairs that were moved.
    pub gc_moved_bytes: u64,
    /// Values that were not moved because their keys had been written meanwhile.
    pub gc_lost: u64,
    /// Bytes of all segments of the region's logs and levels.
    pub allocated_bytes: u64,
    /// Bytes of pairs that live, at least, as far as the levels know: without what is in memtables
    /// only, and without what may have been overwritten above.
    pub live_bytes: u64,
    /// Leaves, indexes and filters, and values, of all regions that share the cache.
    pub cache: CacheStats,
    /// Segments that a filter spared a get.
    pub filter_spared: u64,
    /// Segments that a get read in vain: their filters had let pass what they do not hold.
    pub filter_misled: u64,
    /// Bytes of the cache's budget that filters of the region's segments take.
    pub filter_bytes: u64,
    /// Writers sent away because the log windows were full.
    pub busy_windows: u64,
    /// … because too many memtables were waiting.
    pub busy_memtable: u64,
    /// … because L1 held too many runs.
    pub busy_debt: u64,
    /// … because the region took nearly as much space as it may.
    pub busy_space: u64,
    /// … because the device was full.
    pub busy_device: u64,
    /// … because sorted pairs were being ingested there.
    pub busy_ingest: u64,
}

/// Counters that rise while the engine runs.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) compaction_read_bytes: AtomicU64,
    pub(crate) segment_write_bytes: AtomicU64,
    pub(crate) log_write_bytes: AtomicU64,
    pub(crate) recovery_log_write_bytes: AtomicU64,
    pub(crate) log_marks: AtomicU64,
    pub(crate) cut_segments_given_up: AtomicU64,
    pub(crate) medium_segments: AtomicU64,
    pub(crate) medium_write_bytes: AtomicU64,
    pub(crate) medium_written: AtomicU64,
    pub(crate) medium_placed: AtomicU64,
    pub(crate) medium_freed: AtomicU64,
    pub(crate) edits: AtomicU64,
    pub(crate) gc_steps: AtomicU64,
    pub(crate) gc_segments: AtomicU64,
    pub(crate) gc_read_bytes: AtomicU64,
    pub(crate) gc_moved: AtomicU64,
    pub(crate) gc_evacuated: AtomicU64,
    pub(crate) segments_counted: AtomicU64,
    pub(crate) gc_moved_bytes: AtomicU64,
    pub(crate) gc_lost: AtomicU64,
    /// Bytes that were merged, looked at for garbage, or moved: what pays for writes.
    pub(crate) worked_bytes: AtomicU64,
    busy: [AtomicU64; 6],
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn busy(&self, reason: BusyReason) {
        Self::add(&self.busy[reason as usize], 1);
    }

    /// The counters, with everything else zero.
    pub(crate) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            flushes: read(&self.flushes),
            compactions: read(&self.compactions),
            moves: read(&self.moves),
            compaction_read_bytes: read(&self.compaction_read_bytes),
            segment_write_bytes: read(&self.segment_write_bytes),
            log_write_bytes: read(&self.log_write_bytes),
            recovery_log_write_bytes: read(&self.recovery_log_write_bytes),
            log_marks: read(&self.log_marks),
            cut_segments_given_up: read(&self.cut_segments_given_up),
            medium_segments: read(&self.medium_segments),
            medium_write_bytes: read(&self.medium_write_bytes),
            medium_written: read(&self.medium_written),
            medium_placed: read(&self.medium_placed),
            medium_freed: read(&self.medium_freed),
            edits: read(&self.edits),
            gc_steps: read(&self.gc_steps),
            gc_segments: read(&self.gc_segments),
            gc_read_bytes: read(&self.gc_read_bytes),
            gc_moved: read(&self.gc_moved),
            gc_evacuated: read(&self.gc_evacuated),
            segments_counted: read(&self.segments_counted),
            gc_moved_bytes: read(&self.gc_moved_bytes),
            gc_lost: read(&self.gc_lost),
            busy_windows: read(&self.busy[BusyReason::LogWindows as usize]),
            busy_memtable: read(&self.busy[BusyReason::Memtable as usize]),
            busy_debt: read(&self.busy[BusyReason::CompactionDebt as usize]),
            busy_space: read(&self.busy[BusyReason::SpaceDebt as usize]),
            busy_device: read(&self.busy[BusyReason::DeviceFull as usize]),
            busy_ingest: read(&self.busy[BusyReason::Ingest as usize]),
            ..Stats::default()
        }
    }
}

/// The levels of `version`.
#[must_use]
pub fn level_stats(version: &Version) -> Vec<LevelStats> {
    (1..)
        .zip(version.levels())
        .map(|(number, level)| {
            let mut stats = LevelStats {
                level: number,
                runs: level.runs.len(),
                trees: level.runs.iter().filter(|run| run.tree.is_some()).count(),
                index_segments: level.runs.iter().map(|run| run.index().len()).sum(),
                ..LevelStats::default()
            };
            for entry in level.runs.iter().flat_map(Run::whole_segments) {
                stats.segments += 1;
                stats.bytes += u64::from(entry.segment.len);
                stats.entries += u64::from(entry.segment.entries);
            }
            stats
        })
        .collect()
}

/// The logs of `version`.
#[must_use]
pub fn log_stats(version: &Version) -> Vec<LogStats> {
    let of = |log| {
        let chain = version.log(log);
        let mut stats = LogStats {
            log,
            segments: chain.len(),
            bytes: 0,
            dead_bytes: 0,
        };
        for (at, entry) in chain.iter().enumerate() {
            let Some(end) = entry.segment.end else {
                continue;
            };
            stats.bytes += u64::from(end);
            // All of it is in the levels where the next one begins below what would be replayed.
            let next = chain.get(at + 1);
            let in_levels = next.is_some_and(|n| n.segment.base_lsn <= version.replay_from());
            if log == LogKind::Large && in_levels {
                let live = version.log_refs(entry.segment.number);
                stats.dead_bytes += u64::from(end).saturating_sub(live);
            }
        }
        stats
    };
    LogKind::ALL.into_iter().map(of).collect()
}
