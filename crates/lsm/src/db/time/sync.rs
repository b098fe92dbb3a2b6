//! The atomics and the lock of a region's time. The twin of this file, with those of a model checker, is in
//! `tests/time_protocol.rs`.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::sync::{Mutex, PoisonError};
