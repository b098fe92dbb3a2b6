//! The engine of a region while the region is open here.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::Lsn;
use argosy_engine::{Follower, Marks, NotDemoted, Promoted, Source, Store, Windows};

use super::gate::Right;

/// A store that serves a region. The methods of [`Store`] are called on it; those that are called all the time are
/// answered from [`Marks`] instead.
pub(crate) struct Serving {
    store: Arc<dyn Store>,
    source: Option<Arc<dyn Source>>,
    marks: Arc<Marks>,
    /// Up to when what it has may be shown.
    right: Arc<Right>,
    /// Everything up to this LSN is on its way to every member.
    issued: AtomicU64,
}

impl Deref for Serving {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Serving {
    /// What was `promoted`, and shows its state in `marks`.
    pub(crate) fn new(promoted: Promoted, marks: Arc<Marks>) -> Self {
        Self {
            store: promoted.store,
            source: promoted.source,
            marks,
            right: Arc::default(),
            issued: AtomicU64::new(0),
        }
    }

    /// Up to when what it has may be shown. For the gate.
    pub(super) const fn right(&self) -> &Arc<Right> {
        &self.right
    }

    /// Makes the store a copy again, with `fresh` windows: it serves no more. Blocks.
    ///
    /// # Errors
    /// See [`Store::demote`].
    pub(super) fn demote(&self, fresh: Windows) -> Result<Box<dyn Follower>, Box<NotDemoted>> {
        Arc::clone(&self.store).demote(fresh)
    }

    /// The highest LSN appended.
    pub(crate) fn last_lsn(&self) -> Lsn {
        self.marks.last_lsn()
    }

    /// The commit LSN.
    pub(crate) fn committed_lsn(&self) -> Lsn {
        self.marks.committed_lsn()
    }

    /// The highest LSN up to which everything is on its way to every member.
    pub(super) fn issued_lsn(&self) -> Lsn {
        Lsn(self.issued.load(Ordering::Acquire))
    }

    /// Everything up to `lsn` is on its way to every member.
    pub(super) fn issued(&self, lsn: Lsn) {
        self.issued.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Whether writes of new data are refused because a device is full.
    pub(crate) fn is_full(&self) -> bool {
        self.marks.is_full()
    }

    /// The store, as other members copy it.
    pub(crate) fn source(&self) -> Option<&dyn Source> {
        self.source.as_deref()
    }
}
