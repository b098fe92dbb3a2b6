//! The Redis protocol front end: clients of Redis talk to a server as if it were one.
//!
//! ```text
//!  socket --bytes--> Session --Call--> Service          threads: listener, one of several
//!         <--bytes--         <-answer-                  answers: at once, or later through a queue
//! ```
//!
//! Reading order: [`front`] (what connections share, and their bounds), [`session`] (a connection as
//! a pure state machine), `input` and `reply` (what it holds: requests not carried out, replies not
//! written), `command` (how a request finds its command) and its families `connection`, `strings`,
//! `changes`, `composite` (hashes, sorted sets, sets), `computed`, `keys`, `expiry`, `scan`, `snapshots`,
//! `maintenance`, `info`, `docs`, `transactions`, `scripts`, `random`, `slow_log`, `latency`; `exec` (a transaction
//! from `EXEC` on), `read_set` (what was read for it), `overlay` (what its commands see), `in_order`; [`cursors`] and
//! [`glob`] for `SCAN`; `operators` (what concerns all connections), and `clients`, which lists and ends them. Around
//! them, with sockets and threads: [`listener`], `worker` (the rounds of one thread), `slots`, `accept`, `pool`,
//! `pace` (who waits when all hold much), and `mailbox` (of the crate).
//! [`fake`] is a service in memory, to test and measure all of it without a store.
//!
//! What differs from Redis, so that nobody has to find out:
//!
//! - A transaction is atomic within one region, and optimistic: where others write its keys all the time, it is
//!   given up. Of scripts those of lock libraries are known.
//! - There is one database, 0. There is no password. There are strings, hashes, sorted sets and sets, and no
//!   lists and streams.
//! - Any server answers for any key (it forwards): `cluster_enabled:0`.
//! - `MSET`, and `DEL` of several keys, are atomic within each region, not across regions; `MGET` is
//!   no snapshot.
//! - Keys have 1 to 4096 bytes, values up to 64 MiB, of which some commands take those above
//!   1 MiB; `INFO limits` names all bounds.
//! - `SCAN` goes in key order; a cursor that was forgotten answers an error that says to begin again
//!   from 0, and never skips keys. `DBSIZE` is an estimate.
//! - `KV.RANGE from to [LIMIT n]` answers a flat array of keys and values in key order, from `from`
//!   on and without `to`. A bound that is empty, `-` or `+` is none.

pub mod cursors;
pub mod fake;
pub mod front;
pub mod glob;
pub mod listener;
mod long;
mod many_long;
pub mod session;

mod accept;
mod changes;
mod clients;
mod command;
mod composite;
mod computed;
mod connection;
mod docs;
mod errors;
mod exec;
mod expiry;
mod holds;
mod in_order;
mod info;
mod input;
mod keys;
mod latency;
mod maintenance;
mod once;
mod operators;
#[cfg(test)]
mod operators_tests;
mod overlay;
mod pace;
mod pages;
mod pool;
mod random;
mod rate;
mod read_set;
mod reply;
mod scan;
mod scripts;
mod sha1;
mod slots;
mod slow_log;
mod snapshots;
mod strings;
mod transactions;
mod worker;
#[cfg(test)]
mod workers_tests;

pub use argosy_wire::api::Scratch;
pub use front::{ClientPolicy, Context, CrossRegion, FrontEnd, Limits, Settings};
pub use listener::{Listener, Threads};
pub use pool::Pool;
pub use session::{Call, CallToken, Session};
pub use slow_log::{RoundMoment, SlowLogSettings};
