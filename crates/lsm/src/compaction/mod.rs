//! How levels are kept in order: what is compacted, and the work of it.
//!
//! Reading order: [`why`] (the reasons to merge, and which goes first), [`pick`](mod@pick) (which part of which level,
//! a pure function of a shape and a [`policy`]), [`whole`] (the papers' way: whole levels, as trees), `pack` (where
//! there is little room), [`plan`] (what it reads and takes away), [`build`] (from a sorted source to finished
//! segments, in bounded steps), `references` (which pointers come and go with that), [`cut`] (removed ranges),
//! [`uncounted`] (pointers of what was cut off), [`medium`] and [`values`] (where the values of medium pairs go).

pub mod below;
pub mod build;
pub mod cut;
pub mod medium;
mod pack;
pub mod pick;
pub mod pieces;
pub mod plan;
pub mod policy;
mod references;
pub mod target;
pub mod uncounted;
pub mod values;
pub mod whole;
pub mod why;

pub use pick::pick;
pub use pieces::Shape;
pub use policy::{Choice, Picked, Policy};
pub use whole::pick_whole;
pub use why::Why;
