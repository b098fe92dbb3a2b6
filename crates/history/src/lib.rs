//! Checks recorded histories: could a single store that never fails have given these answers? The simulator and trials
//! of real clusters record them.
//!
//! An *object* is what takes effect as a whole: a key, or a group of neighbouring keys that are only ever written
//! together. Every write binds its object to a value of its own, so a read tells which write it saw. An *access* is
//! what one request did to, or saw of, one object.
//!
//! - [`register`]: the accesses of one object, in some order that fits their times, are those of one register.
//!   Writes of unknown outcome may take effect at any later time, or never.
//! - [`appends`]: transactions that read and append to lists were carried out as if one behind the other.
//! - [`counter`]: numbers that are only ever incremented are incremented once by each request.
//!
//! Times are numbers that rise with every request and every answer of a run. The checkers are pure functions of the
//! recorded history: they read no clock.

#![forbid(unsafe_code)]

pub mod appends;
pub mod counter;
pub mod register;
