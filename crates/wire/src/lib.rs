//! Pure codecs: what goes over a wire, as bytes, without the wire.
//!
//! Reading order: [`ring`] (how messages travel in memory that a peer writes), [`message`] (what
//! servers say to each other), [`api`] (what clients ask for and are answered), [`native`]
//! (what clients and servers say to each other in shared memory), [`resp`] (the Redis
//! protocol: requests parsed where they lie, replies appended to a buffer).
//!
//! Nothing here performs I/O. A decoder refuses what it does not know and never panics, whatever
//! it is given.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod api;
pub mod message;
pub mod native;
pub mod resp;
pub mod ring;

#[cfg(test)]
mod message_tests;
