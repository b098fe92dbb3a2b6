//! How far the edits of an engine have come.

use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::EditSeq;

/// See the module documentation.
pub(super) struct EditProgress {
    /// Every member has applied the edits up to this one.
    everywhere: AtomicU64,
    /// Damage to the edits up to this one on this device would be told. See
    /// [`Storage::witnessed`](crate::storage::Storage::witnessed).
    witnessed: AtomicU64,
}

impl EditProgress {
    /// Every member has the edits up to `everywhere`, and the loss of those up to `witnessed` would be seen.
    pub(super) const fn new(everywhere: EditSeq, witnessed: EditSeq) -> Self {
        Self {
            everywhere: AtomicU64::new(everywhere.0),
            witnessed: AtomicU64::new(witnessed.0),
        }
    }

    /// Every member has applied the edits up to `seq`.
    pub(super) fn note_everywhere(&self, seq: EditSeq) {
        self.everywhere.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// Damage to the edits up to `seq` would be told.
    pub(super) fn note_witnessed(&self, seq: EditSeq) {
        self.witnessed.store(seq.0, Ordering::Release);
    }

    /// Every member has applied the edits up to this one.
    pub(super) fn everywhere(&self) -> EditSeq {
        EditSeq(self.everywhere.load(Ordering::Acquire))
    }

    /// The last edit that may be relied on: every member has it, and none can lose it unseen. Before that its log
    /// segments and numbers are not used, and nobody is told that what it alone says is durable.
    pub(super) fn usable(&self) -> EditSeq {
        let witnessed = self.witnessed.load(Ordering::Acquire);
        self.everywhere().min(EditSeq(witnessed))
    }
}
