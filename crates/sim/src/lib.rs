//! Whole clusters from one seed, on one thread.
//!
//! A seed decides everything: settings, load, delays, and what goes wrong when. Three servers run
//! on a simulated clock, on devices and a fabric that fail as real ones do; thousands of requests
//! are asked, many at a time; at the end the answers, the copies and the devices are judged.
//! `make simulate SEED=7` replays a seed with a log in words.
//!
//! Reading order: [`plan`] (what a seed decides) and [`profile`] (what seeds stand for), [`run`](mod@run) and
//! `finish` (what happens), [`small`] and `full` (devices that have no room), `failing` (devices that fail), `lone`
//! (devices that are lost), `rotting` (windows that are damaged), `slow` (devices that take their time), `budget`
//! (memory), [`wire`] (bits that flip), [`cluster`], [`windows`] and [`mortal`] (servers, and how they die),
//! [`planted`] (mistakes that have to be found), [`objects`], [`asks`], [`load`], [`long`], [`bulk`], [`changes`],
//! [`leases`], [`maintain`], [`many`] and [`judge`] (what clients do), [`check`] (what is possible), [`coverage`]
//! (that it was not for nothing).

#![forbid(unsafe_code)]

mod alone;
pub mod asks;
mod budget;
pub mod bulk;
pub mod changes;
pub mod check;
pub mod clock;
pub mod cluster;
pub mod coverage;
mod damaging;
pub mod depend;
pub mod erase;
mod failing;
mod finish;
mod full;
pub mod judge;
pub mod leases;
pub mod load;
mod lone;
pub mod long;
pub mod maintain;
pub mod many;
pub mod mortal;
pub mod objects;
pub mod plan;
pub mod planted;
pub mod profile;
pub mod random;
mod rotting;
pub mod run;
mod slow;
pub mod small;
mod spoiling;
pub mod windows;
pub mod wire;
pub mod words;

pub use planted::Mutants;
pub use profile::Profile;
pub use run::{Options, Report, run};
