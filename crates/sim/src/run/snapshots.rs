//! Snapshots that are held for a while, and what a region holds.

use std::ops::Range;

use argosy_base::{Direction, Epoch, KeyRange};
use argosy_engine::Snapshot;

use crate::load::{Pairs, Wrong};

/// How many are held, at most.
const MAX: usize = 2;

/// A snapshot that is held.
pub(super) struct Held {
    pub(super) snapshot: Box<dyn Snapshot>,
    pub(super) region: usize,
    /// The epoch in which its primary was chosen.
    pub(super) since: Epoch,
    pub(super) server: usize,
    pub(super) session: u32,
    pub(super) when: Range<u64>,
    pub(super) until: u64,
}

/// Those that are held.
pub(crate) struct HeldSnapshots {
    pub(super) snapshots: Vec<Held>,
    /// How many, at most.
    pub(crate) max: usize,
}

impl Default for HeldSnapshots {
    fn default() -> Self {
        Self {
            snapshots: Vec::new(),
            max: MAX,
        }
    }
}

impl HeldSnapshots {
    /// Has as many be held as usual, or none.
    pub(crate) const fn allow(&mut self, any: bool) {
        self.max = if any { MAX } else { 0 };
    }

    pub(super) fn clear(&mut self) {
        self.snapshots.clear();
    }

    pub(super) fn forget_region(&mut self, region: usize) {
        self.snapshots.retain(|held| held.region != region);
    }

    pub(super) fn forget_session(&mut self, session: u32) {
        self.snapshots.retain(|held| held.session != session);
    }
}

/// What a snapshot has in `range`, read in `direction`.
pub(super) fn read_all(
    snapshot: &dyn Snapshot,
    range: &KeyRange,
    direction: Direction,
) -> Result<Pairs, Wrong> {
    let wrong = |error: argosy_engine::EngineError| format!("a snapshot cannot be read: {error}");
    let mut scan = snapshot.scan(range, direction).map_err(wrong)?;
    let mut pairs = Vec::new();
    while let Some(pair) = scan.next().map_err(wrong)? {
        pairs.push(pair);
    }
    Ok(pairs)
}
