//! What a cluster agrees on: a few small values, each changed under conditions, and who is alive.
//!
//! A [`Coordinator`] is asked by `submit` and answers by `poll`, so that no step waits for it.
//! [`Embedded`] keeps the values in a directory that the servers of one machine share;
//! [`InMemory`] serves the simulator and tests. What lies under [`CLUSTER_KEY`], and below it, is a
//! [`ClusterMap`]: which servers there are, and which of them store which keys.
//!
//! Reading order: [`contract`] (the trait, and what it promises), [`state`] (what requests do),
//! [`embedded`] and [`format`](mod@format) (its files), [`in_memory`], [`conformance`] (tests that both pass); [`map`]
//! (the region map), [`region`] (an entry of it), [`map_format`], [`map_write`] and [`map_reader`] (how it lies here,
//! is changed, and is read), [`reports`] (what servers tell the master), [`job`], [`jobs`] and [`jobs_format`] (the
//! master's redo log), [`split`] (how keys are cut into
//! regions at
//! first).

#![forbid(unsafe_code)]

pub mod conformance;
pub mod contract;
pub mod embedded;
pub mod format;
mod hints;
pub mod in_memory;
pub mod job;
pub mod jobs;
pub mod jobs_format;
pub mod map;
pub mod map_format;
pub mod map_reader;
pub mod map_write;
pub mod region;
pub mod reports;
pub mod split;
pub mod state;

pub use contract::{
    Coordinator, CoordinatorError, CoordinatorEvent, CoordinatorOp, CoordinatorReply, Entry,
    EntryVersion, Request, RequestId, SessionId, SessionState,
};
pub use embedded::{Embedded, EmbeddedSettings};
pub use in_memory::InMemory;
pub use job::{Deed, DeedStanding, JobId, JobKind, JobState, RedoJob};
pub use jobs::{JOBS_KEY, JobError, JobLog};
pub use jobs_format::JobLogError;
pub use map::{ClusterId, ClusterMap, DeviceId, MapError, Replication, Server};
pub use map_format::{SHARD_BYTES_MAX, ShardPlace};
pub use map_reader::{
    MapAccessError, MapMutants, MapPart, MapProgress, MapReader, map_behind, read_map,
};
pub use map_write::{MapShards, MapWrite, StoredMap};
pub use region::{CopyStatus, PromotionClaim, Region, RegionState};
pub use reports::{CopyReport, Presence, ReportError, ServerReport, Wish};

/// The key of the region map's index, and above those of its shards.
pub const CLUSTER_KEY: &str = "cluster";

/// The key of who is the master: an ephemeral value.
pub const MASTER_KEY: &str = "master";
