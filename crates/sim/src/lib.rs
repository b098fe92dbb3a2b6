//! Whole clusters from one seed, on one thread.
//!
//! A seed decides everything: settings, load, delays, and what goes wrong when. Three servers run
//! on a simulated clock, on devices and a fabric that fail as real ones do; thousands of requests
//! are asked, many at a time; at the end the answers, the copies and the devices are judged.
//! `make simulate SEED=7` replays a seed with a log in words.
//!
//! Reading order: `plan` (what a seed decides) and `profile` (what seeds stand for), `run` and `finish` (what
//! happens), `small` and `full` (devices that have no room), `failing` (devices that fail), `lone` (devices that
//! are lost), `rotting` (windows that are damaged), `slow` (devices that take their time), `budget` (memory),
//! `wire` (bits that flip), `cluster`, `windows` and `crash_point` (servers, and how they die), `failover`,
//! `partitions`, `moved` and `leaving` (groups that change), `engine` (settings, and what checkpoints state),
//! `planted` (mistakes that have to be found), `objects`, `asks`, `load`, `long`, `bulk_load`, `changes`,
//! `transact`, `repeat`, `leases`, `maintain`, `many` and `judge` (what clients do), `check` (what is possible),
//! [`coverage`] (that it was not for nothing).

#![forbid(unsafe_code)]

mod alone;
mod asks;
mod budget;
mod bulk_load;
mod changes;
mod check;
mod clock;
mod cluster;
mod compare;
pub mod coverage;
mod crash_point;
mod damaging;
mod depend;
mod engine;
mod erase;
mod failing;
mod failover;
mod finish;
mod full;
mod judge;
mod leases;
mod leaving;
mod load;
mod lone;
mod long;
mod maintain;
mod many;
mod moved;
mod objects;
mod partitions;
mod plan;
mod planted;
mod profile;
mod random;
mod repeat;
mod rotting;
mod run;
mod slow;
mod small;
mod spoiling;
mod transact;
mod windows;
mod wire;
mod words;

pub use planted::Mutants;
pub use profile::Profile;
pub use run::{RunOptions, RunReport, run};
