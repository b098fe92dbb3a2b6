//! Segment numbers that a member gives out: those below a mark that every member has recorded.

use argosy_base::SegmentNumber;

/// See the module documentation.
pub(super) struct Numbers {
    /// The next number to give out.
    next: SegmentNumber,
    /// The first that may not be.
    limit: SegmentNumber,
    /// The first number of the range that belongs to this member alone, if it has ever numbered from that.
    range: Option<SegmentNumber>,
    /// The member numbers from that range now.
    from_range: bool,
}

impl Numbers {
    /// None below `mark`, until more is recorded.
    pub(super) const fn from(mark: SegmentNumber) -> Self {
        Self {
            next: mark,
            limit: mark,
            range: None,
            from_range: false,
        }
    }

    /// From now on none below `mark`, of the group's, until more is recorded.
    pub(super) const fn restart(&mut self, mark: SegmentNumber) {
        let range = self.range;
        *self = Self::from(mark);
        self.range = range;
    }

    /// None of the range that begins at `first`, which belongs to this member alone, and of which those below
    /// `recorded` may be in use.
    pub(super) fn of_own(first: SegmentNumber, recorded: SegmentNumber) -> Self {
        Self {
            range: Some(first),
            from_range: true,
            ..Self::from(first.max(recorded))
        }
    }

    /// One that was never used, if one is left.
    pub(super) fn allocate(&mut self) -> Option<SegmentNumber> {
        if self.next >= self.limit {
            return None;
        }
        let number = self.next;
        self.next = number.next();
        Some(number)
    }

    /// The next number to give out.
    pub(super) const fn next(&self) -> SegmentNumber {
        self.next
    }

    /// How many are left to give out.
    pub(super) const fn left(&self) -> u64 {
        self.limit.0.saturating_sub(self.next.0)
    }

    /// The first number of the member's own range, where it numbers from that.
    pub(super) fn own(&self) -> Option<SegmentNumber> {
        self.range.filter(|_| self.from_range)
    }

    /// The first number of the member's own range, if it has ever numbered from that.
    pub(super) const fn range(&self) -> Option<SegmentNumber> {
        self.range
    }

    /// Gives out none below `number` any more.
    pub(super) fn skip(&mut self, number: SegmentNumber) {
        self.next = self.next.max(number);
    }

    /// Those below `mark` are recorded as in use.
    pub(super) fn recorded(&mut self, mark: SegmentNumber) {
        self.limit = self.limit.max(mark);
    }
}
