//! Other stores, behind as little of an interface as `argosy bench --peer` needs.
//!
//! Only [`rocksdb`] so far: Debian's library through its C interface, as an application would use
//! it that cares for speed. A peer is no part of the store: nothing but the bench may know this
//! crate, and only where its feature `peers` is on.

pub mod rocksdb;
