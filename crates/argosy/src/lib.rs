//! What the one binary is made of: `argosy server`, `argosy playground`, `argosy shell`, `argosy import` and `export`,
//! `argosy bench`, `argosy inspect`, `argosy ctl`. The store for a program of one's own is another crate,
//! `argosy-embedded`.
//!
//! Reading order: [`config`] (the settings of a server), `server`, [`cluster`] (several servers on one machine), then
//! `playground` and `bench`, which start clusters; `connect`, `shell` and [`transfer`] (import and
//! export) talk to one, with keys and values as [`bytes`] reads and shows them; `inspect` looks at what a stopped
//! server left; `ctl` at what a cluster agrees on; [`cli`] puts them together, and `failure` says how a command ends.

#![forbid(unsafe_code)]

mod bench;
mod budget;
pub mod bytes;
pub mod cli;
pub mod cluster;
pub mod config;
mod connect;
mod ctl;
mod engines;
mod failure;
mod frugal;
mod inspect;
mod open_files;
mod playground;
mod server;
mod shell;
mod signals;
mod sparse;
pub mod transfer;
pub mod units;
