//! What the memtable's protocol between threads is made of: atomics, locks, pointers, widths of nodes.
//!
//! It is one file because it has a twin. `tests/memtable_protocol.rs` compiles the sources of this
//! folder again, over the model checker's atomics and with nodes so narrow that a split is reached
//! within a few steps.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub(super) use std::sync::{Mutex, OnceLock};

pub(super) use arc_swap::ArcSwapOption;

/// Entries of a leaf.
pub(super) const LEAF_WIDTH: usize = 32;
/// Children of an inner node less one.
pub(super) const INNER_WIDTH: usize = 64;
/// Nodes that are allocated at once.
pub(super) const NODES_CHUNK: usize = 32;
/// How often a reader looks before it waits for the writer. A few microseconds: many times what the writer
/// takes for one entry, and little beside what it costs to sleep and be woken.
pub(super) const LOOKS_MAX: usize = 64;
