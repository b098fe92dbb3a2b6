//! The cache of an engine, as others take memory from it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::stats::CacheStats;

/// What gives way where memory is short.
pub trait Cache: fmt::Debug + Send + Sync {
    /// Sets `charged` to `bytes`, and grows or shrinks the cache by the difference, as one step. Only the cache
    /// changes `charged`. Entries leave to make room, but the cache keeps what
    /// [`gives_at_most`](Self::gives_at_most) leaves to it.
    fn charge(&self, charged: &AtomicUsize, bytes: usize);

    /// Most bytes by which it gives way; 0 for a cache that never does.
    fn gives_at_most(&self) -> usize;

    /// What it has done and holds.
    fn stats(&self) -> CacheStats;
}

/// The cache of an engine without one. It never gives way.
#[derive(Debug)]
pub(crate) struct NoCache;

impl Cache for NoCache {
    fn charge(&self, charged: &AtomicUsize, bytes: usize) {
        charged.store(bytes, Ordering::Relaxed);
    }

    fn gives_at_most(&self) -> usize {
        0
    }

    fn stats(&self) -> CacheStats {
        CacheStats::default()
    }
}

/// What somebody else takes of a cache's budget. Gives it back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    cache: Arc<dyn Cache>,
    bytes: AtomicUsize,
}

impl Charge {
    /// For somebody who will take a part of the budget of `cache`: nothing at first.
    #[must_use]
    pub const fn of(cache: Arc<dyn Cache>) -> Self {
        Self {
            cache,
            bytes: AtomicUsize::new(0),
        }
    }

    /// From now on it is `bytes` bytes.
    pub fn set(&self, bytes: usize) {
        self.cache.charge(&self.bytes, bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}
