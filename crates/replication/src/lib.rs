//! Pure state machines of replication: event in, actions out.
//!
//! A region's group has one primary and some backups. The primary writes every record, one-sided,
//! into each backup's memory; it ships every segment that its compactions finish; and its version
//! edits, sent in order, make those segments part of the backups' versions (send-index: Tebis
//! §3.2–3.4). What a backup holds is therefore always a prefix of the primary's log plus a version
//! that the primary committed (invariant I6).
//!
//! Reading order: [`primary`] (opening a region, catching
//! members up, the commit LSN, flushes and edits), [`backup`] (what a member does with what it is
//! sent), [`lease`] (whether a primary may answer at this moment).
//! [`testdata`](https://docs.rs/datadriven) scripts under `src/testdata` show each
//! conversation in words.
//!
//! Nothing here performs I/O, reads a clock or draws a random number. Whoever drives a machine
//! feeds it events in the order in which they happened and carries out every action, in order.
//! Messages of one link arrive in order or not at all: a link that loses one is reset, which both
//! sides see as `LinkDown`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod backup;
pub mod lease;
pub mod mode;
pub mod primary;

pub use backup::Backup;
pub use mode::{Mode, Mutants};
pub use primary::Primary;

#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod tests;
