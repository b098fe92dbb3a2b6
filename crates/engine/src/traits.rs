//! The contract of an engine: what a region can be asked, and how it is kept moving.

use std::time::Duration;

use argosy_base::{
    Direction, EditSeq, Instant, KeyRange, LogKind, Lsn, Moment, Outcome, Remedy, SegmentNumber,
};
use argosy_device::DeviceError;

use crate::WaitFor;
use crate::batch::{BatchError, WriteBatch};
use crate::change::Changed;
use crate::long::Torn;

/// Why a write cannot be taken at this moment. Nothing of it was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusyReason {
    /// The log windows are full: a flush has not been acknowledged by every member.
    #[error("the log windows are full until every member has made them durable")]
    LogWindows,
    /// L0 is full: a compaction has to retire a memtable.
    #[error("the memtables are full until one of them has been flushed")]
    Memtable,
    /// The levels hold more runs than reads can bear: compaction is behind.
    #[error("compaction is behind")]
    CompactionDebt,
    /// The region takes nearly as much space as it may, and part of it holds nothing that lives.
    #[error("garbage collection is behind")]
    SpaceDebt,
    /// The device is out of segments, but for those that are kept so that deletes and compactions
    /// can make room. Writes of new data are taken again when they have.
    #[error("the device is full; reads and deletes go on; delete keys to make room")]
    DeviceFull,
    /// Sorted pairs are being taken into the levels, where this would be written; or too many wait for it.
    #[error("sorted pairs are being ingested there")]
    Ingest,
}

/// Why an engine did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The request is over a limit. Correct it.
    #[error(transparent)]
    Limit(#[from] BatchError),
    /// The write was not taken. Retry after the next progress.
    #[error("not applied: {0}")]
    Busy(BusyReason),
    /// The device failed, or what it holds is damaged; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Stored bytes do not mean anything. Fetch the segment from another member.
    #[error("{segment}, byte {offset}: {what}")]
    Corrupt {
        /// The segment that is damaged.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The parts of a long value are not what was written.
    #[error(transparent)]
    Torn(#[from] Torn),
    /// It would take a read from the device, which is out of [`Reach::Memory`]. Nothing was done. Ask again within
    /// [`Reach::Device`].
    #[error("not applied: it takes the device, and the request was not to wait for that")]
    NotInMemory,
    /// The engine met an error that it cannot survive and takes no more writes. Reopen it.
    #[error("the region is closed to writes: {0}")]
    Closed(&'static str),
}

impl EngineError {
    /// What the caller does next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Limit(_) => Remedy::Correct,
            Self::Busy(_) | Self::NotInMemory => Remedy::Retry,
            Self::Device(error) => error.remedy(),
            Self::Corrupt { .. } | Self::Torn(_) => Remedy::Repair,
            Self::Closed(_) => Remedy::Reopen,
        }
    }

    /// What became of the write that met this error.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Limit(_) | Self::Busy(_) | Self::NotInMemory | Self::Closed(_) => {
                Outcome::NotApplied
            }
            Self::Device(_) | Self::Corrupt { .. } | Self::Torn(_) => Outcome::Unknown,
        }
    }
}

/// What must hold of every key of a batch for it to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The keys are not bound.
    Absent,
    /// The keys are bound.
    Present,
    /// The keys are bound to what the batch [expects](WriteBatch::expect).
    Equals,
    /// The keys have not been written since they had this version, which a read told
    /// ([`Found::version`]). May fail though nobody wrote, where the key lies in the levels and a memtable went
    /// there since: then the key has another version by now, and reading it again tells which. That may be so a
    /// few times in a row while much is written.
    Version(Lsn),
}

/// How a batch is to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// When to write at all.
    pub condition: Condition,
    /// Whether to report what each key was bound to before.
    pub return_previous: bool,
}

/// What a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Whether the condition held and the batch was written.
    pub applied: bool,
    /// The condition held, but not what [guards](WriteBatch::guard) the batch.
    pub unguarded: bool,
    /// What the reply waits for. Where the condition failed: for what it failed on.
    pub wait: WaitFor,
    /// Per operation, what its key was bound to before, where that was asked for.
    pub previous: Vec<Option<Vec<u8>>>,
    /// Per operation, whether its key was bound before, where a condition, the previous value, a change
    /// or a delete made the engine look. Empty otherwise.
    pub existed: Vec<bool>,
    /// What a [change](WriteBatch::change) told, unless the condition failed. Where it came to nothing,
    /// `applied` is false.
    pub changed: Option<Changed>,
}

/// What a key is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value, or `None` where the key is not bound.
    pub value: Option<Vec<u8>>,
    /// What the answer waits for.
    pub wait: WaitFor,
    /// No write of the key has a higher LSN: for [`Condition::Version`].
    pub version: Lsn,
    /// When the pair expires, if it does.
    pub expiry: Option<Moment>,
}

/// What is known of a key without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Bytes of the value, or `None` where the key is not bound.
    pub len: Option<usize>,
    /// What the answer waits for.
    pub wait: WaitFor,
    /// When the pair expires, if it does.
    pub expiry: Option<Moment>,
}

impl From<Found> for Outline {
    fn from(found: Found) -> Self {
        Self {
            len: found.value.map(|value| value.len()),
            wait: found.wait,
            expiry: found.expiry,
        }
    }
}

/// What is wanted of several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The values of the first of the keys, up to that which brings them to so many bytes; that of the
    /// first key in any case.
    Values(usize),
    /// Whether they are bound: values are not read, and told as empty ones.
    Presence,
}

/// Whether a step did anything, and when to call again if nothing else happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Something was done: call again soon.
    pub made: bool,
    /// Nothing can be done before this long has passed. `None`: nothing until an event.
    pub idle_for: Option<Duration>,
}

/// A consistent view of the region at one LSN. Pins what it sees until it is dropped (I1).
pub trait Snapshot: Send + Sync {
    /// The LSN up to which this view sees.
    fn lsn(&self) -> Lsn;

    /// What answers wait for that show what it sees.
    fn wait(&self) -> WaitFor {
        WaitFor::committed(self.lsn())
    }

    /// Whether it has shown a pair that is past its expiry by the clock, though not yet by the region's
    /// time, which goes on with what is committed. Whoever can wait takes another one.
    fn shows_overdue(&self) -> bool {
        false
    }

    /// What `key` was bound to.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// What each of `keys` was bound to, in their order.
    ///
    /// # Errors
    /// As [`get`](Self::get)'s, of any of them.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.get_some(keys, Wanted::Values(usize::MAX))
    }

    /// What is `wanted` of the first of `keys`, in their order.
    ///
    /// # Errors
    /// As [`get`](Self::get)'s, of any of them.
    fn get_some(&self, keys: &[&[u8]], wanted: Wanted)
    -> Result<Vec<Option<Vec<u8>>>, EngineError>;

    /// The pairs of `range` in the order of their keys, or from the highest down. Either way a scan
    /// costs what it returns, not what the range holds.
    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Scan>, EngineError>;
}

/// The pairs of a range, one after the other.
pub trait Scan: Send {
    /// Its caller will take at most `pairs` more pairs: so many are read ahead, and no more. Best said before
    /// the first is asked for. Without this word a scan finds out by and by.
    fn expect(&mut self, pairs: usize) {
        let _ = pairs;
    }

    /// Its caller has no use for values: they need not be read, and may be left out.
    fn leave_values_out(&mut self) {}

    /// The next pair, or `None` at the end of the range.
    #[expect(
        clippy::type_complexity,
        reason = "a pair of a key and a value, nothing more"
    )]
    fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>, EngineError>;
}

/// How far a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To what is in memory: for a thread that must not wait for the device.
    Memory,
    /// To the device.
    Device,
}

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
