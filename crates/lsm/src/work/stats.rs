//! What an engine has done and holds, for `INFO`, the bench, and tests.
//!
//! Counters are relaxed atomics: nothing is ordered by them, and a reader sees each of them at some
//! recent moment. Sizes are read from the current version.

use std::sync::atomic::{AtomicU64, Ordering};

use argosy_engine::BusyReason;
use argosy_engine::stats::{BusyStats, GcStats, LogWorkStats, MediumStats, WorkStats};
pub use argosy_engine::stats::{LevelStats, LogStats, Stats};

use crate::names::logs::{LARGE_LOG, LOGS, log_word};
use crate::version::{Run, Version};

/// Counters that rise while the engine runs.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) flushes: AtomicU64,
    pub(crate) merges: MergeCounts,
    pub(crate) segment_write_bytes: AtomicU64,
    pub(crate) logs: LogCounts,
    pub(crate) cut_segments_given_up: AtomicU64,
    pub(crate) medium: MediumCounts,
    pub(crate) edits: AtomicU64,
    pub(crate) gc: GcCounts,
    pub(crate) segments_counted: AtomicU64,
    /// Bytes that were merged, looked at for garbage, or moved: what pays for writes.
    pub(crate) worked_bytes: AtomicU64,
    busy: [AtomicU64; 6],
}

/// Of [`Counts`], those of merges.
#[derive(Debug, Default)]
pub(crate) struct MergeCounts {
    pub(crate) begun: AtomicU64,
    /// Segments that were moved down instead.
    pub(crate) moves: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
}

/// Of [`Counts`], those of the logs.
#[derive(Debug, Default)]
pub(crate) struct LogCounts {
    pub(crate) write_bytes: AtomicU64,
    /// Those to the recovery log among them.
    pub(crate) recovery_write_bytes: AtomicU64,
    pub(crate) marks: AtomicU64,
}

/// Of [`Counts`], those of the medium log.
#[derive(Debug, Default)]
pub(crate) struct MediumCounts {
    pub(crate) segments: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    /// Values that went there.
    pub(crate) written: AtomicU64,
    /// Values that were put in place from there.
    pub(crate) placed: AtomicU64,
    /// Segments that went.
    pub(crate) freed: AtomicU64,
}

/// Of [`Counts`], those of garbage collection.
#[derive(Debug, Default)]
pub(crate) struct GcCounts {
    pub(crate) steps: AtomicU64,
    /// Segments that were read to their end.
    pub(crate) segments: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    /// Values that were moved.
    pub(crate) moved: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
    /// Segments that were evacuated.
    pub(crate) evacuated: AtomicU64,
    /// Values that were written anew before they were moved.
    pub(crate) lost: AtomicU64,
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
            work: WorkStats {
                flushes: read(&self.flushes),
                compactions: read(&self.merges.begun),
                moves: read(&self.merges.moves),
                read_bytes: read(&self.merges.read_bytes),
                write_bytes: read(&self.segment_write_bytes),
                edits: read(&self.edits),
                counted: read(&self.segments_counted),
                ..WorkStats::default()
            },
            log_work: LogWorkStats {
                write_bytes: read(&self.logs.write_bytes),
                recovery_write_bytes: read(&self.logs.recovery_write_bytes),
                marks: read(&self.logs.marks),
                cut_segments_given_up: read(&self.cut_segments_given_up),
                ..LogWorkStats::default()
            },
            medium: MediumStats {
                segments: read(&self.medium.segments),
                write_bytes: read(&self.medium.write_bytes),
                written: read(&self.medium.written),
                placed: read(&self.medium.placed),
                freed: read(&self.medium.freed),
                ..MediumStats::default()
            },
            gc: GcStats {
                steps: read(&self.gc.steps),
                segments: read(&self.gc.segments),
                read_bytes: read(&self.gc.read_bytes),
                moved: read(&self.gc.moved),
                evacuated: read(&self.gc.evacuated),
                moved_bytes: read(&self.gc.moved_bytes),
                lost: read(&self.gc.lost),
                ..GcStats::default()
            },
            busy: BusyStats {
                windows: read(&self.busy[BusyReason::LogWindows as usize]),
                memtable: read(&self.busy[BusyReason::Memtable as usize]),
                debt: read(&self.busy[BusyReason::CompactionDebt as usize]),
                space: read(&self.busy[BusyReason::SpaceDebt as usize]),
                device: read(&self.busy[BusyReason::DeviceFull as usize]),
                bulk_load: read(&self.busy[BusyReason::BulkLoad as usize]),
            },
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
