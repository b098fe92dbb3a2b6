//! What keeps a region's engine from taking writes, and since when.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::Instant;
use argosy_engine::EngineError;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The error that the engine met and cannot survive.
    broken: OnceLock<String>,
    /// When the region was first seen to be full since it was not, in nanoseconds; 0: it is not.
    full_since: AtomicU64,
    /// When writes were last given up that waited, and none has been acknowledged since, in nanoseconds;
    /// 0: none has.
    gave_up_at: AtomicU64,
}

impl Health {
    /// The engine takes no more writes because of `error`. Returns whether that is news.
    pub(super) fn failed(&self, error: &EngineError) -> bool {
        self.broken.set(error.to_string()).is_ok()
    }

    /// The error with which it has failed in that way.
    pub(super) fn failure(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    /// It is full, or it is not. Returns for how long it has been full.
    pub(crate) fn note_full(&self, is_full: bool, now: Instant) -> Option<Duration> {
        if !is_full {
            self.full_since.store(0, Ordering::Relaxed);
            return None;
        }
        let since = &self.full_since;
        let at = now.as_nanos().max(1);
        let first = since.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
        // It is full from now on, or was before.
        let began = first.map_or_else(|began| began, |_| at);
        Some(now.since(Instant::from_nanos(began)))
    }

    /// Writes that waited have been given up.
    pub(crate) fn gave_up(&self, now: Instant) {
        self.gave_up_at
            .store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// A write was acknowledged.
    pub(super) fn acknowledged(&self) {
        self.gave_up_at.store(0, Ordering::Relaxed);
    }

    /// Whether writes were given up within the last `span`, and none was acknowledged since.
    pub(crate) fn is_stalled(&self, now: Instant, span: Duration) -> bool {
        let at = self.gave_up_at.load(Ordering::Relaxed);
        at > 0 && now.since(Instant::from_nanos(at)) <= span
    }
}
