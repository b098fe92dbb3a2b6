//! What the protocol of log windows is made of: atomics and shared memory.
//!
//! It is one file because it has a twin. `tests/window_protocol.rs` compiles `windows.rs` again, over the model
//! checker's atomics.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

pub(super) use argosy_memory::SharedMemory;
