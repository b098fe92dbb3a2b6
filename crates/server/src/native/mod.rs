//! The native front end: clients of this host, in memory that they share with the server.
//!
//! ```text
//!            hello        memory, bell        requests          +---------+
//!  client -----------> meet ----------> client ======> spinner -| Service |
//!            (Unix socket)                      <====== (step)  |         |
//!                                         replies, into slots   |         |
//!                                              tasks -> workers-|         |
//!                                                               +---------+
//! ```
//!
//! 1. A client comes to the server's Unix socket (`meet`) and is given a piece of memory of its own,
//!    as much as it asks for and the bound of all clients allows, and a bell of its own (`bell`).
//! 2. The thread's [`Spinner`] looks for requests of all its clients by their marks, and carries each
//!    out where it finds it, if the region is this server's ([`Routes`]) and the device is not needed.
//!    Otherwise it becomes a task of a [worker](crate::tasks). The answer goes straight into the client's
//!    slot, at once or, where it has to wait, from the thread's mailbox.
//! 3. While it finds nothing for [`Settings::spin`], the thread says so in every client's memory and
//!    sleeps in epoll (`thread`). A client that lays a request then rings the bell. Clients that sleep
//!    are woken when they have been answered.
//! 4. A client's socket that closes ends it: its memory is given back.
//!
//! What a client writes is copied before it is looked at; what is no request ends that client and
//! nothing else. Requests that are in flight at the same time have no order among them, except that
//! the writes of one client are carried out in the order in which they were laid, and that the keys
//! that it reads are at least as new as what it had laid before: a read that needs the device may
//! find what was written behind it, too. A scan finds what had been answered, and need not find writes
//! of its own client that wait for their answers.

mod bell;
mod client;
mod front;
mod listener;
mod long;
mod meet;
mod read;
mod serve;
mod share;
mod snapshots;
mod spinner;
mod tally;
mod thread;

pub use front::{Front, Routes, Settings};
pub use listener::{NativeListener, Place, Start};
pub use spinner::Spinner;
