//! The native protocol: requests in memory that the client shares with each server.
//!
//! 1. [`Client::connect`] is told one server: `host:port` where it speaks the Redis protocol, from
//!    which it learns the rest, or the Unix socket (`meet`). It fetches the region map.
//! 2. A request goes to the primary of its key's region. The connection (`channel`) is opened by the
//!    first request that needs it, and anew after it was lost, with growing pauses.
//! 3. The request is laid in the shared memory, with the slot (`slots`) in which the server is to
//!    answer. Any number may be in flight, from one thread ([`Client::submit`]) or many.
//! 4. Waiting spins a little, then sleeps until the server wakes it.
//!
//! What is done by itself: a server that says that the region is not its own gives a newer map, and the request goes
//! where that says; a slot that was too small is replaced by a larger one; a request that surely had no effect is tried
//! again until its deadline. A write that is waited for has a name (`names`), under which it is written at most once:
//! where it may have had an effect, it is sent again under that until its deadline. One that was
//! [submitted](Client::submit), or is one of [many](Client::write_many), has none: where it may have had an effect it
//! is not repeated, and its error says *unknown*.

mod change;
mod channel;
mod client;
mod clock;
mod known;
mod link;
mod long;
mod many;
mod meet;
mod names;
mod run;
mod slots;
mod snapshot;
mod ticket;
mod verdict;

pub use change::{PairOutline, Terms, Told, Until, ValueChange, WriteCondition, WriteOutcome};
pub use client::{Client, Options, RandomSource};
pub use snapshot::Snapshot;
pub use ticket::{Ask, Completion, Ticket};
