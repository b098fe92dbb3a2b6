//! Other stores, behind as little of an interface as `argosy bench --peer` needs.
//!
//! [`rocksdb`] is Debian's library through its C interface, as an application would use it that cares for
//! speed; `fjall` and `bf_tree` are Rust crates, which the feature `crates` takes in. A peer is no part of the
//! store: nothing but the bench may know this crate, and only where its feature `peers` is on.

#[cfg(feature = "crates")]
pub mod bf_tree;
#[cfg(feature = "crates")]
pub mod fjall;
pub mod rocksdb;
