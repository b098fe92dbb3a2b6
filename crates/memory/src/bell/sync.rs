//! The atomics of a bell. The twin of this file, with those of a model checker, is in
//! `tests/bell_protocol.rs`.

pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};
