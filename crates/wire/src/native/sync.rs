//! The atomics of a connection's signs. The twin of this file, with those of a model checker, is in
//! `tests/native_protocol.rs`.

pub(super) use core::sync::atomic::{AtomicU32, Ordering, fence};
