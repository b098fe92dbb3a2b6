//! What a verification has gone through.

/// What has been checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Level segments, every byte of them, index segments of trees among them.
    pub level_segments: u64,
    /// Pairs and tombstones in them.
    pub entries: u64,
    /// Segments of the medium log.
    pub medium_segments: u64,
    /// Pointers into the large and the medium log, followed to their records.
    pub pointers: u64,
    /// Pointers into segments that were evacuated, each shadowed by a newer entry.
    pub shadowed: u64,
    /// Segments of logs.
    pub log_segments: u64,
    /// Records in the sealed ones.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl std::ops::AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.level_segments += other.level_segments;
        self.entries += other.entries;
        self.medium_segments += other.medium_segments;
        self.pointers += other.pointers;
        self.shadowed += other.shadowed;
        self.log_segments += other.log_segments;
        self.records += other.records;
        self.bytes += other.bytes;
    }
}
