//! What was asked and answered, and whether one store that never fails could have answered so.
//!
//! The crate `history` says what objects and accesses are, and has what other recorders need, too:
//!
//! - [`register`]: the accesses of one object, in some order that fits their times, are those of
//!   one register. Writes of unknown outcome may take effect at any later time, or never.
//! - [`counter`]: numbers that are only ever incremented are incremented once by each request.
//!
//! What only a simulation can know is here:
//!
//! - [`order`]: writes that one process was handed one after the other take effect in that order:
//!   where a later one is seen, the earlier ones happened, too. This is what finds a hole.
//! - [`computed`]: the answers about one key whose values are made of those before them, by changes and by writes
//!   on a version, are those of one store, as they come.
//! - [`prefix`]: what a single copy holds after a power loss is what its first so many writes left.
//!
//! Times are numbers that rise with every request and every answer of a run.

pub(crate) mod computed;
pub(crate) mod order;
pub(crate) mod prefix;

pub(crate) use argosy_history::{counter, register};
pub(crate) use register::{Access, Bound, CLOCK, When};
