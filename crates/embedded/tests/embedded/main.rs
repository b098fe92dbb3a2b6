//! The embedded store from outside: what a program that uses it may rely on.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its world is not as it should be"
)]

mod basics;
mod bulk_loads;
mod checkpoints;
mod damaged;
mod killed;
mod long;
mod model;
mod opening;
mod replaced;
mod several;
mod support;
mod tables;
mod windows;
