//! A region's logs: every write is a record here before it is anything else. For any engine that wants logs.
//!
//! A region has `N` logs, whose ids ([`LogId`](argosy_base::LogId)) are 1 to `N`. Each is a [`chain`] of log segments
//! whose tail lies in windows of shared memory. The first log takes what is handed out whole when a history is
//! followed: keys with values, deletes, range tombstones, the region's time. Of a value in another log only the place
//! is handed out. A write goes this way:
//!
//! 1. [`LogGroup::append_group`] cuts a batch into records, finds out whether all logs have room for
//!    all of them, and only then appends the first one.
//! 2. [`LogWriter`] puts each record behind the one before it in the window that belongs to its
//!    place ([`LogWindows`]), and enters the next window or segment where one is full. From there other members'
//!    windows are filled ([`LogWindows::piece`]).
//! 3. Full windows, and on request what is filled of the current one, become flush ranges
//!    ([`LogWriter::take_flush`]). Their window is used again only when every member has them.
//! 4. [`read_value`] finds a value again, in the window while it is there, on the device afterwards.
//! 5. A member that builds its own levels gathers what is flushed into their history ([`feed`]).
//! 6. After a stop [`recover()`] merges what the device and surviving windows hold into the one
//!    history that is there without a gap.
//!
//! What an engine does with records is not known here: which of them become a memtable, and which pointers into
//! logs count.
//!
//! Reading order: [`chain`], [`record`] and [`segment`] (the formats), [`windows`], [`writer`], [`group`],
//! [`value`], [`feed`], [`scan`], [`recover`](mod@recover) (the decisions after a stop, as a table).
//!
//! Invariants: a record never crosses the end of its window; a group of records is visible whole or
//! not at all; every record's checksum covers its region, segment, epoch and offset (I2), so what a
//! window or a device segment held in an earlier life is never taken for a record.

#![forbid(unsafe_code)]

pub mod behind;
pub mod chain;
pub mod feed;
mod gather;
pub mod group;
mod piece;
mod probe;
pub mod record;
pub mod recover;
pub mod scan;
pub mod segment;
pub mod sweep;
mod sync;
pub mod value;
pub mod verify;
pub mod windows;
pub mod writer;

argosy_base::mutants! {
    /// Planted mistakes, all off. The simulator switches one on to prove that its checker finds it.
    pub struct Mutants {
        /// A window is used again once it is flushed here, whether or not it is elsewhere.
        reuse_early,
    }
}

#[cfg(test)]
mod testing;

pub use chain::{LogPoint, LogSegment};
pub use group::{Appended, GroupOp, LogGroup};
pub use record::{Record, RecordKind};
pub use recover::{
    Binding, CutSegment, Holes, LogTail, RecoverError, RecoveredLogs, Recovery, Replayed, Request,
    Unflushed, recover,
};
pub use segment::{Geometry, LogLayout, SegmentPosition, WindowName, Writer};
pub use value::{LogSource, ReadError, ValueRef, read_value, read_value_in};
pub use windows::LogWindows;
pub use writer::{LogWriter, NoRoom};
