//! The log-structured merge engine.
//!
//! A write becomes a record in a log and an entry of a memtable. Full memtables become sorted runs
//! of L1, and runs are merged, one part at a time, into larger and larger levels. Levels and
//! logs are made of segments of 2 MiB, each written once, front to back. Their contents never change; a repair writes
//! the same bytes again. What a region consists of at any moment is a *version*, and every step to the next one is an
//! *edit* in the region's manifest. Another copy of the region needs nothing but the log's bytes,
//! the finished segments, and the edits, all of which an [`Observer`](argosy_engine::Observer)
//! hears of.
//!
//! Reading order, top down:
//!
//! - [`db`]: the engine, its three lanes (readers, writers, background), and how it begins.
//! - [`read`]: how a key is found, without the device, with it, or several at once; scans and snapshots.
//! - [`memtable`], and the crate [`argosy_log`]: where a write goes.
//! - [`compaction`]: which part of which level is merged when, and how. `work`: the jobs that do it, and what else goes
//!   on in the background wherever levels are built.
//! - [`level`], [`filter`], [`cache`], [`merge`]: segments, and reading them.
//! - [`edit`], [`version`], [`manifest`], [`segments`], [`storage`]: what a region consists of, and how that is
//!   made durable.
//! - [`names`]: the words that all of them share. From there on modules lie on floors, and none knows one above it.
//! - [`pins`]: versions that are kept under a name.
//! - [`cut_segments`]: what lay behind the end of a history when it was cut.
//! - [`duplicates`]: which requests were applied of late, so that none is applied twice.
//! - [`replica`]: the passive member, which a backup is and every engine begins as.
//! - [`damage`]: segments that were found damaged, and what merges do about them.
//! - [`repair`]: how one of these is written again, with what another member has.
//! - [`problem`]: what can be wrong with what is stored.
//! - [`stored`]: what a copy consists of, for those who check and repair it.
//! - [`inspect`]: a region of a stopped server, looked at, verified and compared.
//! - [`contract`]: all of that, as a server has it.
//! - [`addresses`]: pointers that hold places on a device instead of segment numbers.
//! - [`shape`]: what stays as it was when a region was made.
//! - [`settings`]: what can be set; [`memory`](mod@memory): what is taken.

#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "who reads on in here builds the documentation with private items"
)]

pub mod addresses;
pub mod cache;
pub mod compaction;
pub mod contract;
pub mod cut_segments;
pub mod damage;
pub mod db;
pub mod duplicates;
pub mod edit;
pub mod filter;
mod hashing;
pub mod inspect;
pub mod level;
pub mod manifest;
pub mod memtable;
mod merge;
pub mod names;
pub mod pins;
mod problem;
pub mod read;
mod recount;
pub mod repair;
pub mod replica;
pub mod scrub;
mod segments;
pub mod set_aside;
pub mod settings;
pub mod shape;
mod shared;
pub mod storage;
pub mod stored;
pub mod version;
mod work;

pub use argosy_engine::{Service, memory};
pub use db::Lsm;
pub use edit::{Edit, LevelSegment, LogPoint, LogSegment};
pub use memory::Memory;
pub use replica::{Replica, ReplicaError};
pub use settings::{
    Compaction, Layout, LevelSettings, LogSettings, MemtableSettings, Mutants, Placement, Settings,
    SpaceSettings, ValueSettings,
};
pub use storage::{Storage, StorageError};
pub use version::Version;
