//! The versions that a storage holds: from the last that no damage takes away up to the one that edits change next.

use std::sync::Arc;

use crate::cache::NodeCache;
use crate::version::{Version, VersionCharge};

/// See the module documentation.
pub(super) struct Versions {
    /// After the last durable edit.
    current: Arc<Version>,
    /// After the last edit that has its witness. Keeps what later ones took away.
    witnessed: Arc<Version>,
    /// After each later edit up to the current version: of an append that is damaged the records in front may count.
    unwitnessed: Vec<Arc<Version>>,
    /// After the last edit of the queue.
    head: Arc<Version>,
    /// What the head version takes of memory.
    charge: Option<VersionCharge>,
}

impl Versions {
    /// `version` alone.
    pub(super) fn new(version: Version) -> Self {
        let current = Arc::new(version);
        Self {
            witnessed: Arc::clone(&current),
            unwitnessed: Vec::new(),
            head: Arc::clone(&current),
            current,
            charge: None,
        }
    }

    /// Has `cache` give way to what they take of memory.
    pub(super) fn charge_to(&mut self, cache: &Arc<NodeCache>) {
        let mut charge = VersionCharge::new(cache);
        charge.set(&self.head);
        self.charge = Some(charge);
    }

    /// The one after the last durable edit.
    pub(super) const fn current(&self) -> &Arc<Version> {
        &self.current
    }

    /// The one after the last edit that has its witness.
    pub(super) const fn witnessed(&self) -> &Arc<Version> {
        &self.witnessed
    }

    /// How many edits have become durable since.
    pub(super) const fn unwitnessed_len(&self) -> usize {
        self.unwitnessed.len()
    }

    /// The one after the last edit of the queue.
    pub(super) const fn head(&self) -> &Arc<Version> {
        &self.head
    }

    /// An edit was added to the queue that leads to `head`.
    pub(super) fn queued(&mut self, head: Arc<Version>) {
        self.head = head;
        if let Some(charge) = &mut self.charge {
            charge.set(&self.head);
        }
    }

    /// The edits of the queue are given up.
    pub(super) fn forget_queued(&mut self) {
        self.queued(Arc::clone(&self.current));
    }

    /// The edit that led to `version` is durable.
    pub(super) fn committed(&mut self, version: &Arc<Version>) {
        self.current = Arc::clone(version);
        self.unwitnessed.push(Arc::clone(version));
    }

    /// The current version has its witness, or a later append or a checkpoint behind it.
    pub(super) fn note_witnessed(&mut self) {
        self.witnessed = Arc::clone(&self.current);
        self.unwitnessed.clear();
    }

    /// Those after durable edits of which any may be the last that is found.
    pub(super) fn durable(&self) -> impl Iterator<Item = &Arc<Version>> {
        let durable = self.unwitnessed.iter();
        durable.chain([&self.current, &self.witnessed])
    }
}
