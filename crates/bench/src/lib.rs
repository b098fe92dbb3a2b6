//! YCSB against a cluster of servers, or against the engine alone.
//!
//! A benchmark is a list of [`Configuration`]s. Each loads its records once and runs its workloads
//! on that data; each workload gives one [`Row`]. In steps:
//!
//! 1. [`chooser`] picks a record (zipf, latest, uniform), [`data`] derives its key and, with a
//!    version, its value; [`workload`] says what is done with it.
//! 2. [`driver`] runs client threads, each with pipelined connections ([`transport`]); or [`embedded`]
//!    calls the engine in this process.
//! 3. Every read is verified: the bytes must be those of a version that [`truth`] knows to be
//!    possible, neither older than what was surely overwritten nor newer than what was written; a
//!    scan must return every key that [`order`] knows to be there, in order.
//! 4. When the last reply is in, the run waits until the servers have drained, and only then
//!    reads the kernel's counters of each server process ([`process`]).
//!    Of a store in this process, [`memory`] has looked all the time at what it takes, and by what.
//! 5. [`report`] turns the differences into rows, a table and JSON; [`timeline`] has the course of
//!    each workload by the second, and [`plot`] draws it.
//!
//! [`figure`] has the comparisons of the papers as data: what is run, and what they claim.
//!
//! What a figure means is said where its field is defined, in [`report`]. This crate starts no
//! processes: it is handed addresses and process ids.

#![forbid(unsafe_code)]

pub mod chooser;
pub mod csv;
pub mod data;
pub mod driver;
pub mod embedded;
pub mod figure;
pub mod heads;
pub mod memory;
pub mod order;
pub mod plot;
pub mod process;
pub mod report;
pub mod rng;
pub mod run;
pub mod timeline;
pub mod transport;
pub mod truth;
pub mod workload;

pub use argosy_client::resp;
pub use data::{Mix, PairSizes};
pub use report::{Report, Row};
pub use run::{BenchError, Configuration, Notice, Phase, ServerHandle, TestedCluster};
pub use transport::Transport;
pub use workload::Workload;
