//! Background work of every member that builds levels of its own: an engine that serves ([`db`](crate::db)), and a
//! backup that takes the logs alone ([`replica`](crate::replica)).
//!
//! From the ground up:
//!
//! - [`stats`]: what was done and is held, in numbers. [`site`]: where work is done, and what for.
//! - [`truncation`]: which log segments an edit can take away. `freed`: checks that nothing points into them.
//! - [`shadowed`], [`settled`]: how much of what levels point to is shadowed; which log segments may be victims of
//!   garbage collection. [`census`] makes of both what is to be done about dead values.
//! - [`admission`]: how fast writers may go on.
//! - `space`, [`read_triggered`]: what is known of room on the device, and which merges reads trigger.
//! - [`jobs`]: flushes and merges, of `frozen` memtables and of levels.
//! - [`watch`]: what a member without readers does about dead values.

pub(crate) mod admission;
pub(crate) mod census;
pub(crate) mod freed;
pub(crate) mod frozen;
pub(crate) mod jobs;
pub(crate) mod read_triggered;
pub(crate) mod settled;
pub(crate) mod shadowed;
pub(crate) mod site;
pub(crate) mod space;
pub(crate) mod stats;
pub(crate) mod truncation;
pub(crate) mod watch;

#[cfg(test)]
mod passes_tests;
