//! What an engine has done and holds, for `INFO`, metrics, benchmarks, and tests.
//!
//! Plain numbers, taken at one moment. Fields that do not apply to an engine stay 0.

use argosy_base::LogId;

/// Size of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Number of the level; 1 is L1.
    pub level: u8,
    /// Sorted runs.
    pub runs: usize,
    /// Runs that have a tree across their segments.
    pub trees: usize,
    /// Segments, including index segments of trees. A segment with several bounds counts once.
    pub segments: usize,
    /// Index segments of trees.
    pub index_segments: usize,
    /// Bytes of all these segments.
    pub bytes: u64,
    /// Entries in them, including those out of bounds.
    pub entries: u64,
}

/// Size of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStats {
    /// Which log.
    pub log: LogId,
    /// Its name, in one word.
    pub name: &'static str,
    /// Segments of its chain.
    pub segments: usize,
    /// Bytes of records in its sealed segments.
    pub bytes: u64,
    /// Bytes of these records that no level points to. Freeing whole segments is the only way to get this space
    /// back. Only the large log has any, and only records that are already in the levels are examined.
    pub dead_bytes: u64,
}

/// What an engine has done since it was opened, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The levels, L1 first.
    pub levels: Vec<LevelStats>,
    /// The size of each log.
    pub logs: Vec<LogStats>,
    /// All memtables.
    pub memtables: MemtableStats,
    /// What flushes and compactions did.
    pub work: WorkStats,
    /// What was written to the logs.
    pub log_work: LogWorkStats,
    /// The medium log.
    pub medium: MediumStats,
    /// Garbage collection.
    pub gc: GcStats,
    /// What the region takes on its device.
    pub space: SpaceStats,
    /// The filters of segments.
    pub filters: FilterStats,
    /// Writes that were refused.
    pub busy: BusyStats,
    /// Damaged segments, and merges that skipped some.
    pub damage: DamageStats,
    /// The cache, which all regions of a server share.
    pub cache: CacheStats,
}

/// The memtables of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemtableStats {
    /// Bytes of memory that all memtables take.
    pub bytes: usize,
    /// Entries of all memtables, including older versions of a key.
    pub entries: usize,
    /// Memtables waiting to be flushed.
    pub frozen: usize,
}

/// What flushes and compactions did, and what is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkStats {
    /// Memtables that were flushed to runs.
    pub flushes: u64,
    /// Compactions that merged segments.
    pub compactions: u64,
    /// Segments that moved down without being rewritten.
    pub moves: u64,
    /// Bytes of segments that compactions read.
    pub read_bytes: u64,
    /// Bytes of segments that flushes and compactions wrote.
    pub write_bytes: u64,
    /// Bytes in levels above the threshold that starts a compaction: work that is due.
    pub debt_bytes: u64,
    /// Version edits that were committed.
    pub edits: u64,
    /// Level segments whose pointers were counted because a range tombstone had cut parts off.
    pub counted: u64,
}

/// What was written to the logs, and what opening found in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogWorkStats {
    /// Bytes of logs that were written to the device.
    pub write_bytes: u64,
    /// Bytes of the recovery log among them. Only recovery reads this log.
    pub recovery_write_bytes: u64,
    /// Marks that were appended on their own, because a log went idle or the caller asked for a marked flush.
    pub marks: u64,
    /// Complete records found behind the end of the history when the region was opened.
    pub cut_records: u64,
    /// Log segments with such records that were kept at first and freed later because the device was full.
    pub cut_segments_given_up: u64,
    /// Log segments in use.
    pub segments: usize,
}

/// The medium log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediumStats {
    /// Segments of the medium log in use.
    pub log_segments: usize,
    /// Bytes of pairs in these segments that levels point to.
    pub log_refs: u64,
    /// Segments of the medium log that flushes wrote.
    pub segments: u64,
    /// Bytes of the segments that flushes wrote there.
    pub write_bytes: u64,
    /// Values that flushes wrote there.
    pub written: u64,
    /// Values that merges moved from there back into leaves.
    pub placed: u64,
    /// Segments of the medium log that merges freed.
    pub freed: u64,
}

/// Garbage collection in the large log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Bytes of the large log that no level points to, in segments whose values are all in the levels. Garbage
    /// collection could free them.
    pub debt_bytes: u64,
    /// Steps of garbage collection.
    pub steps: u64,
    /// Segments of the large log from which all live values were moved.
    pub segments: u64,
    /// Bytes that were read from them.
    pub read_bytes: u64,
    /// Values that were moved.
    pub moved: u64,
    /// Segments that were freed although levels pointed into them, because newer entries hid those pointers.
    pub evacuated: u64,
    /// Bytes of the pairs that were moved.
    pub moved_bytes: u64,
    /// Values that were not moved because their keys had been written in the meantime.
    pub lost: u64,
}

/// What a region takes on its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Bytes of all segments of the region's logs and levels.
    pub allocated_bytes: u64,
    /// A lower bound of the bytes of live pairs, as far as the levels know. Pairs that are only in memtables, or may
    /// have been overwritten in a higher level, do not count.
    pub live_bytes: u64,
}

/// The filters of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterStats {
    /// Segments that a get did not have to read because of their filter.
    pub spared: u64,
    /// Segments that a get read in vain because their filter gave a false positive.
    pub misled: u64,
    /// Bytes of the cache's budget that the filters of the region's segments take.
    pub bytes: u64,
}

/// Writes that were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyStats {
    /// Writes refused because the log windows were full.
    pub windows: u64,
    /// Writes refused because too many memtables were waiting.
    pub memtable: u64,
    /// Writes refused because L1 held too many runs.
    pub debt: u64,
    /// Writes refused because the region took nearly as much space as it may.
    pub space: u64,
    /// Writes refused because the device was full.
    pub device: u64,
    /// Writes refused because sorted pairs were being bulk-loaded into their range.
    pub bulk_load: u64,
}

/// What a cache has done since it was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Of leaves.
    pub leaf: CacheLookups,
    /// Of index nodes of trees.
    pub index: CacheLookups,
    /// Of values.
    pub value: CacheLookups,
    /// Of unpinned segment readers.
    pub reader: CacheLookups,
    /// Segment readers for which there was no room among the pins.
    pub pins_refused: u64,
    /// Bytes of entries, and of flushed logs that stayed in memory.
    pub bytes: u64,
    /// Bytes of logs that stayed in memory after they were flushed.
    pub flushed_bytes: u64,
    /// Bytes of pinned segment readers.
    pub pinned_bytes: u64,
    /// Bytes outside the cache that are charged to its budget.
    pub charged_bytes: u64,
    /// Most bytes of all these together.
    pub budget: u64,
}

/// How often something of one kind was looked for in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheLookups {
    /// It was found.
    pub hits: u64,
    /// It was not.
    pub misses: u64,
}

/// How much damage was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageStats {
    /// Segments that are known to be damaged now.
    pub damaged: u64,
    /// Segments found damaged since the region was opened.
    pub found: u64,
    /// Merges that were abandoned because of damage.
    pub merges_passed: u64,
}

/// What snapshots pin although the region itself needs it no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedBySnapshots {
    /// Bytes of memory of memtables that only snapshots pin.
    pub memtable_bytes: usize,
    /// Segments of the device that only snapshots pin.
    pub segments: usize,
}
