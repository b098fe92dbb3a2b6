//! What the one binary is made of: `argosy server`, `argosy playground`, `argosy bench`,
//! `argosy inspect`.
//!
//! Reading order: [`config`] (what a server is told), [`server`], [`cluster`] (several of them on
//! one machine), then [`playground`] and [`bench`](mod@bench), which start clusters; [`inspect`]
//! looks at what a stopped server left; [`cli`] puts them together, and [`failure`] says how a
//! command ends.

#![forbid(unsafe_code)]

pub mod bench;
pub mod budget;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod failure;
pub mod inspect;
pub mod playground;
pub mod server;
pub mod signals;
pub mod units;
