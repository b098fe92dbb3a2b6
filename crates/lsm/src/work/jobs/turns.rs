//! Whose turn it is where merges take turns with other work: with flushes, and with pairs that are bulk-loaded.

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Merge,
    Other,
}

/// See the module documentation.
pub(super) struct Turns {
    /// Pairs become segments without a memtable; no merge begins meanwhile.
    bulk_loading: bool,
    /// Whose turn it is of merges that are due and pairs that wait to become segments.
    bulk_load: Turn,
    /// A part begins after the merge under way, ahead of other merges.
    bulk_load_is_next: bool,
    /// Whose turn it was in the last step, of flushes and merges.
    flush: Turn,
}

impl Turns {
    /// Nothing goes on, and it is not the turn of merges.
    pub(super) const fn new() -> Self {
        Self {
            bulk_loading: false,
            bulk_load: Turn::Other,
            bulk_load_is_next: false,
            flush: Turn::Other,
        }
    }

    /// Whether pairs become segments without a memtable, or their edit is on its way.
    pub(super) const fn is_bulk_loading(&self) -> bool {
        self.bulk_loading
    }

    /// Whether the next part may begin, if one waits (`wait`), where a merge is under way (`merging`), and none is due
    /// (`at_rest`).
    pub(super) const fn may_bulk_load(&mut self, wait: bool, merging: bool, at_rest: bool) -> bool {
        let turn = at_rest || matches!(self.bulk_load, Turn::Other);
        self.bulk_load_is_next = wait && merging;
        wait && !self.bulk_loading && !merging && turn
    }

    /// Whether a merge may begin, as far as pairs let it that are bulk-loaded.
    pub(super) const fn may_merge(&self) -> bool {
        !self.bulk_loading && !self.bulk_load_is_next
    }

    /// Pairs begin to become segments.
    pub(super) const fn bulk_load_begun(&mut self) {
        self.bulk_loading = true;
    }

    /// They are given up.
    pub(super) const fn bulk_load_given_up(&mut self) {
        self.bulk_loading = false;
    }

    /// Their edit is committed.
    pub(super) const fn bulk_load_committed(&mut self) {
        self.bulk_loading = false;
        self.bulk_load = Turn::Merge;
    }

    /// The edit of a merge is committed.
    pub(super) const fn merge_committed(&mut self) {
        self.bulk_load = Turn::Other;
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
