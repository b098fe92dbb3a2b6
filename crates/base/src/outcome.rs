//! What an error asks of its caller, and what is known of a write that failed. Crates split their
//! error variants by these; a client sees the [`Outcome`] of every write.

use core::fmt;

/// What a caller does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The request was wrong; the same request fails again.
    Correct,
    /// A passing state: try again later.
    Retry,
    /// The bytes are not what was written: fetch them from another member.
    Repair,
    /// The device or the process state is not to be trusted any more: stop and reopen.
    Reopen,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, and is as durable as the mode promises.
    Applied,
    /// It did not take effect and never will.
    NotApplied,
    /// It may have taken effect, or may yet.
    Unknown,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Applied => "applied",
            Self::NotApplied => "not applied",
            Self::Unknown => "outcome unknown: it may have been applied",
        })
    }
}
