//! A store in a program of one's own: no server, no network, one directory.
//!
//! ```
//! use argosy_embedded::{Condition, Db, WriteBatch};
//!
//! # fn main() -> Result<(), argosy_embedded::Error> {
//! # let path = tempfile::tempdir().unwrap();
//! let db = Db::open(&path)?;
//!
//! // Keys and values are bytes; keys are in the order of their bytes.
//! db.put("user:1", "Ada")?;
//! db.put("user:2", "Grace")?;
//! assert_eq!(db.get("user:1")?.as_deref(), Some(&b"Ada"[..]));
//! assert!(db.delete("user:2")?);
//!
//! // What belongs together is written together.
//! let mut batch = WriteBatch::new();
//! batch.put("user:3", "Edsger")?;
//! batch.put("index:Edsger", "user:3")?;
//! db.write(&batch)?;
//!
//! // Only if nobody else was first.
//! assert!(!db.put_if("user:3", "Barbara", Condition::Absent)?);
//!
//! // Ranges and prefixes, from either end.
//! let users: Result<Vec<_>, _> = db.prefix("user:").rev().collect();
//! assert_eq!(users?[0], (b"user:3".to_vec(), b"Edsger".to_vec()));
//!
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Db`] may be cloned and called from any thread. Reads take no lock, but for the first that comes upon
//! a pair which has expired. Writes are in one order, and
//! each is applied as a whole or not at all. When a write is *durable* is up to [`Durability`].
//!
//! One thread in the background flushes and merges. It sleeps while there is nothing to do, and ends
//! with the last `Db`, [`Snapshot`] or [`Scan`]. Dropping these is a clean stop: what was written is
//! made durable, and opening again replays no more than one memtable's worth of log. [`Db::close`] does
//! the same, and tells whether it worked.
//!
//! Where writes come faster than merges can follow, or the device is full, a write waits, at most as
//! long as [`Builder::patience`] says, and then returns [`Error::Busy`] with the reason.
//!
//! Values have up to 64 MiB. One of more than 1 MiB is kept in parts, and read and written as a whole: it is
//! put by itself, not in a batch.
//!
//! Reading order: `builder` and `place` (opening), `db` (reads, and the store as a whole) and `shared`, `write`,
//! `scan` and `bounds`, `table` (parts of a store by name), `long` (values in parts), `checkpoint`, `stepper` (the
//! background thread), `logs` (the thread that makes logs durable), `pace` (what they and callers tell each other),
//! `error`. [`machine`] says how much memory there is.

#![forbid(unsafe_code)]

mod bounds;
mod builder;
mod checkpoint;
mod db;
mod error;
mod logs;
mod long;
pub mod machine;
mod pace;
#[cfg(test)]
mod pace_tests;
mod place;
mod scan;
mod shared;
mod stepper;
mod sync;
mod table;
mod unclosed;
mod write;

pub use argosy_base::{KeyRange, Lsn, Moment, Outcome, Remedy};
/// Has all stores of this process ask for huge pages, or not, as without a call, where they take memory from the system
/// itself: memtables, and buffers of whole segments. For programs with gigabytes of budget; their allocator does
/// so for the rest, or not. `docs/embedding.md` has more.
pub use argosy_device::pages::ask_for_huge as ask_for_huge_pages;
pub use argosy_engine::damage::{Damage, DamagedSegment};
pub use argosy_engine::scrub::{Pace as ScrubPace, ScrubStats};
pub use argosy_engine::{
    BatchError, BusyReason, Change, Changed, Condition, EngineError, Expiry, Only, Refusal,
    WriteBatch, Written,
};
pub use argosy_lsm::db::bulk_loader::BulkLoadError;
pub use argosy_lsm::pins::PinError;
pub use argosy_lsm::{Memory, Placement, Settings};
pub use bounds::KeyBounds;
pub use builder::{Builder, Durability};
pub use checkpoint::Checkpoint;
pub use db::{Db, DbStats, DeviceUse};
pub use error::{Error, Result};
pub use place::CLUSTER;
pub use scan::{Scan, Snapshot};
pub use table::{TABLE_NAME_BYTES_MAX, Table, TableScan, TableSnapshot};
pub use unclosed::Unclosed;
pub use write::WriteOptions;

/// The examples of the documents, run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../../../docs/from-rocksdb.md")]
    struct FromRocksDb;
}
