//! What an engine has done and holds, for `INFO`, the bench, and tests.
//!
//! Counters are relaxed atomics: nothing is ordered by them, and a reader sees each of them at some
//! recent moment. Sizes are read from the current version.

use std::sync::atomic::{AtomicU64, Ordering};

use argosy_engine::BusyReason;
pub use argosy_engine::stats::{LevelStats, LogStats, Stats};

use crate::names::logs::{LARGE_LOG, LOGS, log_word};
use crate::version::{Run, Version};

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
            name: log_word(log),
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
            if log == LARGE_LOG && in_levels {
                let live = version.log_refs(entry.segment.number);
                stats.dead_bytes += u64::from(end).saturating_sub(live);
            }
        }
        stats
    };
    LOGS.into_iter().map(of).collect()
}
