//! How levels are kept in order: what is compacted, and the work of it.
//!
//! Reading order: [`why`] (the reasons to merge, and which goes first), [`pick`](mod@pick) (which part of which level,
//! a pure function of a shape and a [`policy`]), [`whole`] (the papers' way: whole levels, as trees), `pack` (where
//! there is little room), [`plan`] (what it reads and takes away), [`build`] (from a sorted source to finished
//! segments, in bounded steps), `references` (which pointers come and go with that), [`cut`] (range tombstones),
//! [`uncounted`] (pointers of what was cut off), [`medium`] and [`values`] (where the values of medium pairs go).

pub(crate) mod below;
pub(crate) mod bounded;
pub(crate) mod build;
pub(crate) mod cut;
mod growing;
pub(crate) mod medium;
mod pack;
pub mod pick;
pub mod plan;
pub mod policy;
mod references;
pub(crate) mod target;
pub(crate) mod uncounted;
pub(crate) mod values;
pub(crate) mod whole;
pub(crate) mod why;

pub use bounded::Levels;
pub use pick::pick;
pub use policy::{Choice, Picked, Policy};
pub use why::Why;
