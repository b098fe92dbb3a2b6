//! Whose turn it is where merges take turns with other work: with flushes, and with pairs that are ingested.

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Merge,
    Other,
}

/// See the module documentation.
pub(super) struct Turns {
    /// Pairs become segments without a memtable; no merge begins meanwhile.
    ingesting: bool,
    /// Whose turn it is of merges that are due and pairs that wait to become segments.
    ingest: Turn,
    /// A part begins after the merge under way, ahead of other merges.
    ingest_is_next: bool,
    /// Whose turn it was in the last step, of flushes and merges.
    flush: Turn,
}

impl Turns {
    /// Nothing goes on, and it is not the turn of merges.
    pub(super) const fn new() -> Self {
        Self {
            ingesting: false,
            ingest: Turn::Other,
            ingest_is_next: false,
            flush: Turn::Other,
        }
    }

    /// Whether pairs become segments without a memtable, or their edit is on its way.
    pub(super) const fn is_ingesting(&self) -> bool {
        self.ingesting
    }

    /// Whether the next part may begin, if one waits (`wait`), where a merge is under way (`merging`), and none is due
    /// (`at_rest`).
    pub(super) const fn may_ingest(&mut self, wait: bool, merging: bool, at_rest: bool) -> bool {
        let turn = at_rest || matches!(self.ingest, Turn::Other);
        self.ingest_is_next = wait && merging;
        wait && !self.ingesting && !merging && turn
    }

    /// Whether a merge may begin, as far as pairs let it that are ingested.
    pub(super) const fn may_merge(&self) -> bool {
        !self.ingesting && !self.ingest_is_next
    }

    /// Pairs begin to become segments.
    pub(super) const fn ingest_begun(&mut self) {
        self.ingesting = true;
    }

    /// They are given up.
    pub(super) const fn ingest_given_up(&mut self) {
        self.ingesting = false;
    }

    /// Their edit is committed.
    pub(super) const fn ingest_committed(&mut self) {
        self.ingesting = false;
        self.ingest = Turn::Merge;
    }

    /// The edit of a merge is committed.
    pub(super) const fn merge_committed(&mut self) {
        self.ingest = Turn::Other;
    }

    /// Whether this step is a merge's before it is a flush's: each second one where they go `in_turns`.
    pub(super) const fn merge_is_first(&mut self, in_turns: bool) -> bool {
        self.flush = match self.flush {
            Turn::Other if in_turns => Turn::Merge,
            _ => Turn::Other,
        };
        matches!(self.flush, Turn::Merge)
    }
}
