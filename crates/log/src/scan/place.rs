//! Where a scan is.

/// A place in the chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScanPlace {
    /// The segment being read, by its index in the chain.
    pub(super) index: usize,
    /// The byte of it.
    pub(super) offset: u32,
}

impl ScanPlace {
    /// The start of the next segment.
    pub(super) const fn next_segment(self) -> Self {
        Self {
            index: self.index + 1,
            offset: 0,
        }
    }
}
