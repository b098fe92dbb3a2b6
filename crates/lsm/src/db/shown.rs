//! What an engine shows its readers: a view, up to where they may see it, and what they keep of it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use argosy_base::Lsn;
use argosy_engine::Marks;

use super::pinned::PinnedTables;
use super::rebuilding::Turn;
use super::server_memory::RegionMemory;
use super::writer::Writer;
use crate::memtable::Memtable;
use crate::read::ReadView;
use crate::version::Version;

/// See the module documentation.
pub(super) struct Shown {
    /// Replaced under the writer lock only.
    view: ArcSwap<ReadView>,
    /// The last LSN is the highest that readers may see. It is stored behind the inserts that it covers, and loaded by
    /// readers before they take the view.
    marks: Arc<Marks>,
    /// The memtables that only snapshots and scans pin.
    pinned: PinnedTables,
}

impl Shown {
    /// What `writer` holds, up to where `marks` say.
    pub(super) fn new(writer: &Writer, marks: Arc<Marks>, pinned: PinnedTables) -> Self {
        Self {
            view: ArcSwap::from_pointee(writer.view()),
            marks,
            pinned,
        }
    }

    /// The view, for a moment.
    #[inline]
    pub(super) fn view(&self) -> Guard<Arc<ReadView>> {
        self.view.load()
    }

    /// The view, for as long as it is kept.
    pub(super) fn view_to_keep(&self) -> Arc<ReadView> {
        self.view.load_full()
    }

    /// The version of the view.
    pub(super) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.view.load().version)
    }

    /// The highest LSN that readers may see, and a view that has it.
    #[inline]
    pub(super) fn last(&self) -> (Lsn, Guard<Arc<ReadView>>) {
        loop {
            // The LSN before the view: whatever it covers is in that.
            let lsn = self.marks.last_lsn();
            let view = self.view.load();
            // A key that merges have removed would have a version that covers writes that are not seen.
            if view.expired_lsn <= lsn {
                return (lsn, view);
            }
        }
    }

    /// The commit LSN, and a view that has everything up to there.
    pub(super) fn committed(&self) -> (Lsn, Arc<ReadView>) {
        loop {
            let lsn = self.marks.committed_lsn();
            let view = self.view.load_full();
            // A memtable leaves only once it is committed: then the commit LSN has risen, too.
            if view.levels_lsn <= lsn {
                return (lsn, view);
            }
        }
    }

    /// Shows what `writer` holds now. Returns what was shown before, whose end may give back memory and segments: it is
    /// dropped best without the writer lock.
    pub(super) fn replace(&self, writer: &Writer) -> Arc<ReadView> {
        self.view.swap(Arc::new(writer.view()))
    }

    /// Up to where readers may see, what is committed, and whether the device is full.
    #[inline]
    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The region has done with `table`, which readers may still see.
    pub(super) fn keep(&self, table: &Arc<Memtable>) {
        self.pinned.add(table);
    }

    /// What the region has of its server's memory.
    pub(super) const fn memory(&self) -> &Arc<RegionMemory> {
        self.pinned.memory()
    }

    /// All memtables but the newest were rebuilt in `turn`.
    pub(super) fn rebuilt(&self, turn: Turn) {
        let view = self.view.load();
        self.memory().is_rebuilt(turn, view.memtables.get(1));
    }

    /// Whether readers pin memtables, as of the last count.
    pub(super) fn pins_any(&self) -> bool {
        self.pinned.are_any()
    }

    /// Counts anew the memtables that readers pin, and has the cache give way to that.
    pub(super) fn settle_pinned(&self) {
        self.pinned.settle(&self.view.load().memtables);
    }
}
