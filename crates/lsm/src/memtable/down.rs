//! A memtable from the highest key down, as a reader at an LSN sees it.
//!
//! The tree's leaves are linked upwards only. On its way down a cursor goes from slot to slot inside a
//! leaf, and from a leaf's first slot it searches for what is in front of it, by the order alone; as it
//! does where the writer has changed the leaf since.
//!
//! Of several entries of one key it comes to the oldest first, and wants the newest that its reader may
//! see. So it looks one entry ahead: mostly that is another key's, and the entry is the only one. If
//! not, one search finds the entry that is wanted, and another what is in front of all of the key's. A
//! key that was written a thousand times costs as much as one that was written twice.
//!
//! What is inserted meanwhile is newer than what the reader may see: that it was missed, or comes in
//! between, makes no difference.

use std::sync::Arc;

use argosy_base::Lsn;

use super::arena::Address;
use super::tree::{OutOfDate, Spot};
use super::{Core, LAST, entry_of};
use crate::names::Entry;

/// An entry, and where it was found.
type Place = (Spot, Address);

/// See the module documentation.
pub struct DownCursor {
    core: Arc<Core>,
    lsn_max: Lsn,
    /// The newest entry, as the reader sees it, of the key that the cursor is at.
    at: Option<Place>,
    /// The last entry of the keys below.
    below: Option<Place>,
}

impl DownCursor {
    /// A cursor behind the last key, for a reader that sees what is at or below `lsn_max`.
    pub(super) fn new(core: &Arc<Core>, lsn_max: Lsn) -> Self {
        Self {
            core: Arc::clone(core),
            lsn_max,
            at: None,
            below: core.tree.seek_before(&core.arena, &LAST),
        }
    }

    /// Moves behind the highest key below `bound`.
    pub fn seek(&mut self, bound: &[u8]) {
        let Core { arena, tree } = &*self.core;
        let front = tree.target(bound, Lsn(u64::MAX));
        self.at = None;
        self.below = tree.seek_before(arena, &front);
    }

    /// Moves to the next lower key that the reader sees. Below the lowest it stays.
    pub fn advance(&mut self) {
        let Core { arena, tree } = &*self.core;
        self.at = None;
        while let Some(oldest) = self.below {
            let entry = arena.entry(oldest.1);
            self.below = self.core.before(&oldest);
            let is_only = |other: Place| arena.entry(other.1).key != entry.key;
            if self.below.is_none_or(is_only) {
                if entry.lsn() <= self.lsn_max {
                    self.at = Some(oldest);
                    return;
                }
                continue;
            }
            let newest = tree.seek(arena, &tree.target(entry.key, self.lsn_max));
            self.at = newest.filter(|found| arena.entry(found.1).key == entry.key);
            self.below = tree.seek_before(arena, &tree.target(entry.key, Lsn(u64::MAX)));
            if self.at.is_some() {
                return;
            }
        }
    }

    /// The key at the cursor, and what it is bound to. `None` behind the last and below the first.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<(&[u8], Entry<'_>)> {
        let (_, address) = self.at?;
        let found = self.core.arena.entry(address);
        Some((found.key, entry_of(&found)))
    }

    /// The LSN of that.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        let (_, address) = self.at?;
        Some(self.core.arena.entry(address).lsn())
    }
}

impl Core {
    /// The entry in front of the one that was found at `at`.
    fn before(&self, (spot, address): &Place) -> Option<Place> {
        match self.tree.previous(spot) {
            Ok(previous) => Some(previous),
            Err(OutOfDate) => {
                let entry = self.arena.entry(*address);
                let here = self.tree.target(entry.key, entry.lsn());
                self.tree.seek_before(&self.arena, &here)
            }
        }
    }
}
