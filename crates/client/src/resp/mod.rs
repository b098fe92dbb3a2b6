//! The Redis protocol: [`Connection`] speaks it, [`RespClient`] does with it what every client can.

mod client;
mod connection;

pub use client::RespClient;
pub use connection::{BriefReply, Connection, Reply, RespError, parse_reply};
