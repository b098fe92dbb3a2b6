//! End to end: the built binary, as separate processes, talked to over sockets by Redis' own tools
//! and by clients that check what they are told.
//!
//! A tool that is missing is a failure, not a skipped test: `make test` installs them all. Waits
//! have a limit only so that a hanging server fails the test; no time is ever asserted.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its world is not as it should be"
)]

mod admin;
mod bench_command;
mod composites;
mod config_command;
mod ctl_command;
mod cut_command;
mod damaged;
mod differential;
mod failover;
mod first_minutes;
mod full;
mod inspect_command;
mod kill;
mod leaving;
mod long_values;
mod lost_member;
mod maintenance;
mod malformed;
mod memory;
mod missing_device;
mod native;
mod native_calls;
mod native_stopped;
mod package_index;
mod page;
mod pages;
mod playground;
mod playground_commands;
mod promises;
mod put_back_command;
mod redis_tools;
mod repair_command;
mod rewrite;
mod support;
mod tools;
mod trial;
