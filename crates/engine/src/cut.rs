//! Records that are cut off when a region is opened.

/// Complete records that were found behind the end of the history when an engine was opened. They are not part of the
/// history because a record before them is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of the records.
    pub records: u64,
    /// Log segments that are kept because they hold such records.
    pub kept: usize,
    /// A description for logs and operators.
    pub words: String,
}
