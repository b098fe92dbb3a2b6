//! The contract of an engine: what a region can be asked, and how it is kept moving.

use argosy_base::{EditSeq, Instant, LogKind, Lsn, Moment, SegmentNumber};

use crate::batch::WriteBatch;
use crate::{
    EngineError, Found, Outline, Progress, Reach, Snapshot, Wanted, WriteOptions, Written,
};

/// One region's storage. All methods may be called from any thread.
pub trait Store: Send + Sync {
    /// The newest value of `key`, committed or not: the caller answers once [`Found::wait`] is
    /// over. Within [`Reach::Device`] it may block its thread for a device read.
    ///
    /// # Errors
    /// [`EngineError::NotInMemory`] within [`Reach::Memory`] alone: from an engine that cannot tell, always.
    fn get_within(&self, key: &[u8], reach: Reach) -> Result<Found, EngineError>;

    /// [`get_within`](Self::get_within) reach of the device.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s.
    fn get(&self, key: &[u8]) -> Result<Found, EngineError> {
        self.get_within(key, Reach::Device)
    }

    /// [`get`](Self::get) of each of `keys`, in their order, as of one moment. An engine that is able to asks the
    /// device for all that it needs together.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s, of any of them.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Found>, EngineError> {
        self.get_some(keys, Wanted::Values(usize::MAX), Reach::Device)
    }

    /// What is `wanted` of the first of `keys`, as [`get_many`](Self::get_many) has it.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s, of any of them.
    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
        reach: Reach,
    ) -> Result<Vec<Found>, EngineError>;

    /// What is known of `key` without its value, which is not read where it lies apart.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s.
    fn outline(&self, key: &[u8], reach: Reach) -> Result<Outline, EngineError> {
        self.get_within(key, reach).map(Outline::from)
    }

    /// Appends `batch` to the log and makes it visible to [`get`](Self::get). Returns at once;
    /// when it is committed is for the driver to find out. Writes of one region are serialised. Within
    /// [`Reach::Device`] it may block its thread for a device read, where a condition or the answer depends on what
    /// the keys are bound to.
    ///
    /// # Errors
    /// Whatever the error, nothing of `batch` was written: all that can fail comes before.
    /// [`EngineError::NotInMemory`] as [`get_within`](Self::get_within).
    fn write_within(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        reach: Reach,
    ) -> Result<Written, EngineError>;

    /// [`write_within`](Self::write_within) reach of the device.
    ///
    /// # Errors
    /// As [`write_within`](Self::write_within)'s.
    fn write(&self, batch: &WriteBatch, options: WriteOptions) -> Result<Written, EngineError> {
        self.write_within(batch, options, Reach::Device)
    }

    /// A view of everything up to the commit LSN.
    fn snapshot(&self) -> Box<dyn Snapshot>;

    /// The highest LSN appended.
    fn last_lsn(&self) -> Lsn;

    /// The region's time: what its clock shows, but never less than what was once told of, here or on an
    /// earlier primary. A pair whose expiry it has reached is not there any more.
    fn time(&self) -> Moment;

    /// The commit LSN as the engine knows it.
    fn committed_lsn(&self) -> Lsn;

    /// Raises the commit LSN. Without an observer the engine does this by itself.
    fn commit(&self, lsn: Lsn);

    /// Every other member has made `log` durable up to byte `to` of `segment`. A window may be
    /// reused once its range is durable here and everywhere. Without an observer the engine does
    /// this by itself. Never blocks on a step under way.
    fn flushed_everywhere(&self, log: LogKind, segment: SegmentNumber, to: u32);

    /// Every other member has applied all edits up to `seq`. A log segment or a block of segment
    /// numbers is used only once the edit that declared it is durable here and everywhere, so that
    /// any member can make sense of its own windows after a crash. Without an observer the engine
    /// does this by itself. Never blocks on a step under way.
    fn edit_applied_everywhere(&self, seq: EditSeq);

    /// Does a bounded piece of background work: flushes, compaction, manifest. An error is final:
    /// the engine takes no more writes.
    fn step(&self, now: Instant) -> Result<Progress, EngineError>;
}
