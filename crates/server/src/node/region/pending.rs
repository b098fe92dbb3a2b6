//! What clients have asked of a region and is not over: answers that wait, and what lasts longer than a request.

use std::sync::Arc;

use argosy_engine::long::Uses;
use parking_lot::{Mutex, MutexGuard};

use super::super::bulk_load::BulkLoads;
use super::super::maintenance::Maintained;
use super::super::snapshots::Snapshots;
use super::super::waiting::{Allowance, Waiting};

/// See the module documentation.
pub(super) struct Unfinished {
    waiting: Mutex<Waiting>,
    /// Sorted pairs that are being bulk-loaded.
    pub(super) bulk_loads: BulkLoads,
    /// What clients have asked to be done with all of it.
    pub(super) maintained: Maintained,
    /// Those that clients keep open.
    pub(super) snapshots: Snapshots,
}

impl Unfinished {
    /// Nothing. What answers hold while they wait is taken from `allowance`.
    pub(super) fn new(allowance: &Arc<Allowance>, uses: &Arc<Uses>) -> Self {
        Self {
            waiting: Mutex::new(Waiting::new(Arc::clone(allowance), Arc::clone(uses))),
            bulk_loads: BulkLoads::default(),
            maintained: Maintained::default(),
            snapshots: Snapshots::default(),
        }
    }

    /// Answers and requests that wait.
    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}
