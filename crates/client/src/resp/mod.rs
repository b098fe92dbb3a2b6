//! The Redis protocol: [`Connection`] speaks it, [`RespClient`] does with it what every client can.

mod client;
mod connection;
mod parse;
mod snapshot;

pub use client::RespClient;
pub use connection::{BriefReply, Connection, RespError};
pub use parse::{Reply, parse_reply};
