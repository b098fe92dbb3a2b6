//! The atomics of access to a memory. The twin of this file, with those of a model checker, is in
//! `tests/access_protocol.rs`.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
