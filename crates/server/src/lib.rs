//! The region server: what runs on each machine of a cluster.
//!
//! Reading order: [`service`] (what a front end can ask), [`resp`] (the Redis protocol: sessions,
//! commands, sockets), [`native`] (clients in shared memory), `long` (values in parts, as calls of a
//! service), [`tasks`] (what needs the device, and the workers that carry it out), [`node`] (regions,
//! replication, links to other servers; no threads), [`runtime`] (a node with its threads, device and
//! sockets), [`admin`] (HTTP for who watches), [`report`] (what it tells), [`meter`] and [`activity`]
//! (what requests and CPU are counted by).
//!
//! A request enters at [`resp`] or [`native`], is called on a [`node::Node`] through
//! [`service::Service`], and is answered at once or later. A node forwards what belongs to another
//! server's region, writes what belongs to its own through the engine, and hands what the engine
//! tells to the pure machines of the replication crate.

#![forbid(unsafe_code)]

pub mod activity;
pub mod admin;
mod line_rate;
mod long;
mod mailbox;
pub mod membership;
pub mod meter;
pub mod native;
pub mod node;
pub mod ownership;
pub mod report;
pub mod resp;
pub mod runtime;
pub mod service;
pub mod tasks;
