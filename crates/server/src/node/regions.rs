//! The regions that a server is a member of, and which of them have something to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::RegionId;

use super::raised::Raised;
use super::region::Region;
use super::schedule::Steppers;

/// Where regions say that they have something to do.
#[derive(Clone)]
pub(super) struct Wanted {
    /// For the steppers.
    pub(super) steppers: Arc<Steppers>,
    /// They have something to ship.
    pub(super) dirty: Arc<Raised>,
    /// They have messages or answers to move on.
    pub(super) active: Arc<Raised>,
}

/// See the module documentation.
pub(super) struct Regions {
    all: BTreeMap<RegionId, Arc<Region>>,
    wanted: Wanted,
    /// Counts what regions have done. Relaxed: a look that comes too early for it is followed by another.
    moves: AtomicU64,
}

impl Regions {
    /// `all` of them, which say in `wanted` what they have to do.
    pub(super) fn new(all: BTreeMap<RegionId, Arc<Region>>, wanted: Wanted) -> Self {
        let moves = AtomicU64::new(0);
        Self { all, wanted, moves }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them, by their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.all.values()
    }

    /// The one of that name.
    pub(super) fn get(&self, id: RegionId) -> Option<&Arc<Region>> {
        self.all.get(&id)
    }

    /// What has something to do in the background.
    pub(super) fn steppers(&self) -> &Arc<Steppers> {
        &self.wanted.steppers
    }

    /// Those that have something to ship, each once. What is raised meanwhile comes with the next call.
    pub(super) fn take_dirty(&self) -> impl Iterator<Item = &Arc<Region>> {
        let dirty = self.taken(&self.wanted.dirty);
        dirty.inspect(|region| region.dirty().lower())
    }

    /// Those that have messages or answers to move on, in the same way.
    pub(super) fn take_active(&self) -> impl Iterator<Item = &Arc<Region>> {
        let active = self.taken(&self.wanted.active);
        active.inspect(|region| {
            region.active().lower();
            self.note_move();
        })
    }

    /// A region has done something.
    pub(super) fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// How often any has.
    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn taken<'a>(&'a self, raised: &'a Raised) -> impl Iterator<Item = &'a Arc<Region>> {
        let ids = (0..raised.len()).filter_map(|_| raised.pop());
        ids.filter_map(|id| self.get(id))
    }
}
