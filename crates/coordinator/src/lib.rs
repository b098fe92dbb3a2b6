//! Where the region map lives: a few small values, each changed by compare-and-set.
//!
//! A [`Coordinator`] is asked by `submit` and answers by `poll`, so that no step waits for it.
//! [`Embedded`] keeps the values in a directory that the servers of one machine share;
//! [`InMemory`] serves the simulator and tests. What the value under [`CLUSTER_KEY`] says is a
//! [`ClusterMap`]: which servers there are, and which of them store which keys.
//!
//! Reading order: [`map`] (the region map), [`split`] (how keys are cut into regions at first),
//! [`contract`] (the trait), [`embedded`], [`in_memory`].

#![forbid(unsafe_code)]

pub mod contract;
pub mod embedded;
pub mod in_memory;
pub mod map;
pub mod split;

pub use contract::{Coordinator, CoordinatorError, Entry, EntryVersion, Request, RequestId};
pub use embedded::Embedded;
pub use in_memory::InMemory;
pub use map::{ClusterId, ClusterMap, DeviceId, MapError, Region, Replication, Server};

/// The key of the region map.
pub const CLUSTER_KEY: &str = "cluster";
