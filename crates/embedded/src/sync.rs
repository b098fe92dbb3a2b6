//! What the background thread and the callers tell each other with: atomics, locks, conditions, and a clock.
//!
//! It is one file because it has a twin. `tests/pace_protocol.rs` compiles `pace.rs` again, over a model checker's.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) use argosy_device::SystemClock;
