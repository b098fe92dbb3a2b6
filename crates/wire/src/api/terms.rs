//! What requests are made of, beside keys, values and what `argosy_base` has.

use core::fmt;
use core::time::Duration;

use argosy_base::Direction;

/// What is to be done with regions as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Make everything that was written before durable on every member.
    Flush,
    /// Merge everything into one level, on every member, and drop what is overwritten or deleted.
    Compact,
}

/// How a page of a range is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// From which end of the range.
    pub direction: Direction,
    /// Most pairs to return.
    pub pairs_max: usize,
    /// Stop behind the pair that brings keys and values to this many bytes.
    pub bytes_max: usize,
    /// Leave the values out: they are returned empty.
    pub keys_only: bool,
    /// As of which snapshot; `None`: now.
    pub at: Option<SnapshotId>,
}

/// The number of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl SnapshotId {
    /// The snapshot that is displayed as `text`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok();
        number.filter(|_| digits).map(Self)
    }
}

/// What is to become of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It is opened, for so long.
    Open(Duration),
    /// It stays open for so long from now on.
    Renew(Duration),
    /// It ends.
    Close,
}

impl Lease {
    /// The longest lease.
    pub const LONGEST: Duration = Duration::from_secs(3600);
}
