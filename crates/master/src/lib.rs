//! The master: it moves regions away from servers that fail, and fills the places that they leave.
//!
//! It never touches data, and data service never depends on it. What it knows it reads from the coordinator: the region
//! map, who is there, and what servers report. What it decides is a change of the map for many regions at once, as
//! many as one transaction takes. It writes down what it is about to do before it does it. The next master finishes
//! what one that has died had begun, and operators see it.
//!
//! The rules are those of `docs/model/Group.tla`, and so are the names: *raise*, *promote*, *remove*, *fill*, *add*.
//!
//! Reading order: [`settings`], [`cluster`] (what was read), [`health`] (whom to take for lost), [`promotion`] (who is
//! promoted: a pure function of a region's entry and its reports), [`memory`] (what a planner remembers of a region:
//! times), [`groups`] (members that go and come), [`apart`] (pairs that do not hear each other, again and again),
//! [`steps`] (what it wants), [`plan`] (the pure machine over all of it), [`redo`] (what is written before it is done),
//! [`round`] (reading it all), [`runner`] (election, and the loop).

#![forbid(unsafe_code)]

pub mod apart;
pub mod cluster;
pub mod groups;
pub mod health;
pub mod memory;
mod phase;
pub mod plan;
pub mod promotion;
pub mod redo;
pub mod round;
pub mod runner;
pub mod settings;
pub mod steps;

pub use cluster::{Cluster, LiveServer};
pub use plan::Planner;
pub use runner::{Master, MasterRole, MasterTally};
pub use settings::{MapBounds, MasterTimes, Mutants, PlanSettings};
pub use steps::{GroupStep, MasterPlan, RaiseReason};
