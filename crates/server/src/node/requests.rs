//! What a node keeps of requests that belongs to no region: those that are with other servers, what answers hold, the
//! numbers of snapshots, and the queue of those that need the device.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use argosy_base::Instant;

use super::calls::Calls;
use super::waiting::Allowance;
use crate::tasks::Tasks;

/// See the module documentation.
pub(super) struct Requests {
    /// What answers that wait for their commit hold.
    answers: Arc<Allowance>,
    calls: Mutex<Calls>,
    /// When deadlines were last looked at, in nanoseconds.
    swept: AtomicU64,
    snapshots: AtomicU32,
    /// Where other servers' reads go that need the device, if there are workers.
    tasks: OnceLock<Arc<Tasks>>,
}

impl Requests {
    /// Those of a node whose answers may hold what `answers` allows.
    pub(super) fn new(answers: Arc<Allowance>) -> Self {
        Self {
            answers,
            calls: Mutex::default(),
            swept: AtomicU64::new(0),
            snapshots: AtomicU32::new(0),
            tasks: OnceLock::new(),
        }
    }

    /// What answers that wait for their commit hold.
    pub(super) fn answers(&self) -> &Allowance {
        &self.answers
    }

    /// Those that are with other servers.
    pub(super) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether deadlines are to be looked at, for the first time in the span `every`.
    pub(super) fn begin_sweep(&self, now: Instant, every: Duration) -> bool {
        let last = Instant::from_nanos(self.swept.load(Ordering::Relaxed));
        let is_due = now.since(last) >= every;
        if is_due {
            self.swept.store(now.as_nanos(), Ordering::Relaxed);
        }
        is_due
    }

    /// The next number of a snapshot, from 0 at each start.
    pub(super) fn next_snapshot(&self) -> u32 {
        self.snapshots.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on other servers' reads that need the device go to the workers of `tasks`.
    pub(super) fn set_tasks(&self, tasks: Arc<Tasks>) {
        // There is one queue.
        let _ = self.tasks.set(tasks);
    }

    /// Where they go, if there are workers.
    pub(super) fn tasks(&self) -> Option<&Arc<Tasks>> {
        self.tasks.get()
    }
}
