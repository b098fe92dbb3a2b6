//! A store for a program of one's own, [`Db`]; and what the one binary is made of: `argosy server`,
//! `argosy playground`, `argosy shell`, `argosy import` and `export`, `argosy bench`, `argosy inspect`.
//!
//! ```
//! # fn main() -> Result<(), argosy::Error> {
//! # let path = argosy::db::example("lib");
//! let db = argosy::Db::open(&path)?;
//! db.put("user:7", "Ada")?;
//! assert_eq!(db.get("user:7")?.as_deref(), Some(&b"Ada"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! A program that embeds the store leaves the binary's dependencies out with `default-features = false`.
//!
//! Reading order: [`db`] by itself. Of the binary: [`config`] (what a server is told), [`server`],
//! [`cluster`] (several of them on one machine), then [`playground`] and [`bench`](mod@bench), which
//! start clusters; [`connect`], [`shell`] and [`transfer`] (import and export) talk to one, with keys
//! and values as [`bytes`] reads and shows them; [`inspect`] looks at what a stopped server left;
//! [`cli`] puts them together, and [`failure`] says how a command ends.

#![forbid(unsafe_code)]

pub mod db;
pub mod machine;
mod random;

#[cfg(feature = "cli")]
pub mod bench;
#[cfg(feature = "cli")]
pub mod budget;
#[cfg(feature = "cli")]
pub mod bytes;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod cluster;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "cli")]
pub mod connect;
#[cfg(feature = "cli")]
pub mod failure;
#[cfg(feature = "cli")]
mod frugal;
#[cfg(feature = "cli")]
pub mod inspect;
#[cfg(feature = "cli")]
pub mod playground;
#[cfg(feature = "cli")]
pub mod server;
#[cfg(feature = "cli")]
pub mod shell;
#[cfg(feature = "cli")]
pub mod signals;
#[cfg(feature = "cli")]
pub mod transfer;
#[cfg(feature = "cli")]
pub mod units;

/// Has all stores of this process ask for huge pages, or not, as without a call, where they take memory from the system
/// itself: memtables, and buffers of whole segments. For programs with gigabytes of budget; their allocator does
/// so for the rest, or not. `docs/embedding.md` has more.
pub use argosy_device::pages::ask_for_huge as ask_for_huge_pages;
pub use db::{
    BatchError, Builder, BusyReason, Change, Changed, Checkpoint, Condition, Damage,
    DamagedSegment, Db, Durability, EngineError, Error, Expiry, IngestError, KeyRange, Moment,
    Only, Outcome, PinError, Placement, Refusal, Remedy, Result, Scan, ScrubStats, Snapshot, Stats,
    WriteBatch, WriteOptions, Written,
};

/// The examples of the documents, run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/embedding.md")]
    struct Embedding;
}
