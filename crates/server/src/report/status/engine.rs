//! What is told of the engine of a region that is open here.

use serde::Serialize;

/// An engine.
#[derive(Clone, Debug, Serialize)]
pub struct EngineStatus {
    /// What an engine has in memory.
    #[serde(flatten)]
    pub memtables: MemtableStatus,
    /// Everything up to here is durable on every member.
    pub durable_lsn: u64,
    /// Flushes and compactions.
    #[serde(flatten)]
    pub compactions: CompactionStatus,
    /// Bytes of logs written to the device.
    pub log_write_bytes_total: u64,
    /// Whole records behind the end of the history that was found when the region was opened: they count for nothing.
    pub recovery_cut_records: u64,
    /// Bytes of all segments of the region's logs and levels.
    pub allocated_bytes: u64,
    /// Bytes of pairs that live, at least, as far as the levels know.
    pub live_bytes: u64,
    /// The medium log.
    #[serde(flatten)]
    pub medium_log: MediumLogStatus,
    /// Garbage collection in the large log.
    #[serde(flatten)]
    pub gc: GcStatus,
    /// Version edits committed.
    pub edits_total: u64,
    /// The filters of levels.
    #[serde(flatten)]
    pub filters: FilterStatus,
    /// Answers and requests that wait.
    #[serde(flatten)]
    pub waiting: WaitingStatus,
}

/// What an engine has in memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemtableStatus {
    /// Bytes of memory of all memtables.
    pub memtable_bytes: usize,
    /// Their entries.
    pub memtable_entries: usize,
    /// Memtables that wait to be flushed.
    pub memtables_frozen: usize,
}

/// Flushes and compactions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CompactionStatus {
    /// Bytes that levels hold above what starts a compaction.
    pub compaction_debt_bytes: u64,
    /// Memtables that became runs.
    pub flushes_total: u64,
    /// Compactions that merged.
    pub compactions_total: u64,
    /// Segments that went down a level as they were.
    pub moves_total: u64,
    /// Bytes of segments that compactions read.
    pub compaction_read_bytes_total: u64,
    /// Bytes of segments that flushes and compactions wrote.
    pub compaction_write_bytes_total: u64,
}

/// The medium log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MediumLogStatus {
    /// Segments of the medium log that exist.
    pub medium_log_segments: usize,
    /// Bytes of pairs that levels point to in them.
    pub medium_log_refs_bytes: u64,
    /// Values that flushes put into the medium log.
    pub medium_written_total: u64,
    /// Values that merges took out of it, and put in place.
    pub medium_placed_total: u64,
    /// Segments of it that merges freed.
    pub medium_freed_segments_total: u64,
}

/// Garbage collection in the large log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GcStatus {
    /// Bytes of the large log that no level points to: what garbage collection could give back.
    pub gc_debt_bytes: u64,
    /// Segments of the large log out of which everything that lived was moved.
    pub gc_segments_total: u64,
    /// Bytes of them that were read.
    pub gc_read_bytes_total: u64,
    /// Bytes of pairs that were moved.
    pub gc_moved_bytes_total: u64,
    /// Values that were not moved because their keys had been written meanwhile.
    pub gc_lost_total: u64,
}

/// The filters of levels.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FilterStatus {
    /// Segments that a filter spared a get.
    pub filter_spared_total: u64,
    /// Segments that a get read in vain.
    pub filter_misled_total: u64,
    /// Bytes of the cache that filters take.
    pub filter_bytes: u64,
}

/// Answers and requests that wait.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingStatus {
    /// Answers that wait for the commit LSN.
    pub answers_waiting: usize,
    /// Requests that wait for room.
    pub writes_waiting: usize,
    /// What these wait for: a reason of `write_stalls_total`.
    pub writes_wait_for: Option<&'static str>,
    /// How often a write found no room, by reason: `log_windows`, `memtable`, `compaction_debt`,
    /// `device_full`.
    pub write_stalls_total: Vec<StallStatus>,
}

/// Writes that found no room for one reason.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StallStatus {
    /// Why.
    pub reason: &'static str,
    /// How often.
    pub count: u64,
}
