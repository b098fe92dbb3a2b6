//! What every storage engine offers, and what it tells its observer.
//!
//! An engine stores one region. It does not know that it is replicated: it calls an [`Observer`]
//! whenever something happened that another copy would have to hear of, and whoever drives it
//! tells it what has been acknowledged elsewhere. Without an observer it is a local store.
//!
//! Reading order: [`batch`] and [`change`] (what is written), [`long`] (values in parts), [`composite`], [`Store`] (the
//! contract),
//! [`deciding`] (what a write comes to),
//! [`Marks`] (its state, to be read without a call), [`Observer`], [`windows`], [`source`] and [`Checkpoint`] (for
//! other copies), [`Stored`] (what a copy consists of, for those who check and repair it), [`Engine`] and
//! [`Follower`] (the passive copy), [`Service`] and [`Promoted`] (how it becomes a store, and a copy again),
//! [`catalog`] and [`set_aside`] (what a device names beside regions), [`conformance`] (the tests that every engine
//! passes).
//!
//! Plain data: [`stats`] and [`memory`](mod@memory) (what an engine reports), [`damage`], [`scrub`] and [`repair`]
//! (what happens to damaged data), [`bulk_load`] (sorted pairs), [`shipment`] (a finished segment on its way), [`cut`]
//! (what was cut off at an opening).

#![forbid(unsafe_code)]

pub mod bulk_load;
pub mod cache;
pub mod catalog;
mod checkpoint;
pub mod conformance;
mod copy_error;
pub mod cut;
pub mod damage;
pub mod deciding;
mod engine;
mod error;
pub mod excess;
pub mod follower;
mod lent;
pub mod long;
mod marks;
pub mod memory;
mod observer;
mod promotion;
pub mod repair;
mod request;
pub mod scrub;
pub mod set_aside;
pub mod shipment;
mod snapshot;
pub mod source;
pub mod stats;
mod store;
pub mod stored;
mod wait;
pub mod windows;

pub use argosy_base::{
    BatchError, Change, Changed, Condition, Expiry, Guard, Only, Op, Refusal, Seen, Wanted, Was,
    WriteBatch, WriteOptions, batch, change, composite,
};
pub use cache::{Cache, Charge};
pub use checkpoint::Checkpoint;
pub use copy_error::CopyError;
pub use engine::{CopyOf, Engine, NewCopy, Settings};
pub use error::{BusyReason, EngineError};
pub use excess::Excess;
pub use follower::{CopyEvent, Follower};
pub use lent::Lent;
pub use marks::Marks;
pub use observer::{EditNotice, LogEnd, Observer, SealedSegment};
pub use promotion::{NotDemoted, NotPromoted, Promoted, Promoting, Promotion, Service};
pub use request::{Found, Outline, Progress, Reach, Written, first_wanted};
pub use snapshot::{Scan, Snapshot};
pub use source::{Pin, PinnedCheckpoint, Source};
pub use store::{Capabilities, Store};
pub use stored::Stored;
pub use wait::WaitFor;
pub use windows::{LogSlots, LogSpec, LogSurvivors, Survivors, WindowRoom, Windows};
