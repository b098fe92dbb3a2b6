//! What a store takes of memory, part by part.
//!
//! Everything that grows with data, load or time is in one of the parts, and each is counted where it is
//! allocated, not estimated. What is left is the program itself and what the allocator keeps.

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memtables: the active one, those that wait to be flushed, and those that only snapshots and scans
    /// still see. Of all stores of the process.
    pub memtables: u64,
    /// Windows of the logs.
    pub windows: u64,
    /// Entries of the cache: leaves, index nodes of trees, values; and what stayed of the large log when it was
    /// flushed.
    pub cache: u64,
    /// Indexes and filters of segments, which stay with them.
    pub pinned: u64,
    /// What the region consists of: some 400 bytes a segment, and its bounds. The cache gives way to it.
    pub versions: u64,
    /// Buffers of merges, flushes, reads, logs and garbage collection, and those that are kept for the next,
    /// without what stayed when it was flushed; and parts that wait to be bulk-loaded. Of all stores of the process.
    pub buffers: u64,
}

impl Memory {
    /// The parts with their names.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("memtables", self.memtables),
            ("windows", self.windows),
            ("cache", self.cache),
            ("pinned", self.pinned),
            ("versions", self.versions),
            ("buffers", self.buffers),
        ]
    }

    /// All parts together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }
}
