//! The logs that an engine's regions have, and the shared memory of their windows.

use std::sync::Arc;

use argosy_base::LogId;
use argosy_memory::SharedMemory;

/// A log that every region of an engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpec {
    /// Which log.
    pub id: LogId,
    /// Its name, for messages.
    pub name: &'static str,
    /// Windows that are in memory at one time. Each has a slot of shared memory.
    pub slots: usize,
    /// Bytes of a window.
    pub window_bytes: usize,
    /// Windows of a segment.
    pub segment_windows: u64,
    /// Bytes of a slot: of a window and the header in front of it.
    pub slot_bytes: usize,
}

/// The memory of one log's windows.
#[derive(Clone)]
pub struct LogSlots {
    /// Which log.
    pub log: LogId,
    /// The memory of each slot.
    pub slots: Vec<Arc<SharedMemory>>,
}

/// The memory of a region's windows: an item for each log of the engine, in the engine's order.
pub type Windows = Vec<LogSlots>;

/// What an earlier process left of one log's windows.
#[derive(Clone)]
pub struct LogSurvivors {
    /// Which log.
    pub log: LogId,
    /// The memory of each slot, or `None` if it is gone.
    pub slots: Vec<Option<Arc<SharedMemory>>>,
}

/// What an earlier process left of a region's windows: an item for each log of the engine, in the engine's order.
pub type Survivors = Vec<LogSurvivors>;

/// Who gives the windows of a store memory: a server has memory for those of a few regions at one time.
///
/// A store asks before its windows take memory, and tells when they have none any more. Both are called under the lock
/// that orders all writes of the region, and call nothing of a store.
pub trait WindowRoom: Send + Sync {
    /// The windows are about to take memory. False where there is none for them now: whoever writes comes again.
    fn take(&self) -> bool;

    /// The windows have no memory any more.
    fn gave_back(&self);
}
