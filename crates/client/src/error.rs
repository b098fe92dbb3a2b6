//! Why a request has no answer, split by what the caller does next. Each says what became of a
//! write.

use argosy_base::{BatchError, Outcome, Remedy};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The request is over a limit or makes no sense. Correct it. Nothing was written.
    #[error("{what} (not applied)")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
    /// The key is bound to a hash, a sorted set or a set, which clients of Redis read and write. Nothing was written.
    #[error("{what} (not applied)")]
    WrongType {
        /// Which key, and what it is bound to.
        what: String,
    },
    /// This client cannot ask for that. Nothing was written.
    #[error("{what}")]
    Unsupported {
        /// What, and where it can be had.
        what: &'static str,
    },
    /// The region or a member of it is not there, or is full. Try again later.
    #[error("{what} ({outcome})")]
    Unavailable {
        /// What is missing, and what would help.
        what: String,
        /// Whether the write was applied; [`Outcome::NotApplied`] for a read.
        outcome: Outcome,
    },
    /// The write was sent more than once, and the region no longer knows whether it was applied. Read the key.
    #[error("{what}")]
    Forgotten {
        /// Which request, and what the server said.
        what: String,
    },
    /// Storage failed. An operator has to look.
    #[error("{what} ({outcome})")]
    Storage {
        /// Which device, segment and byte, and what is wrong.
        what: String,
        /// Whether the write was applied.
        outcome: Outcome,
    },
    /// No answer came: the server cannot be reached, or was lost, or was too slow. Try again.
    #[error("{what} ({outcome})")]
    Lost {
        /// Which server, and what the system said.
        what: String,
        /// Whether the write was applied.
        outcome: Outcome,
    },
    /// The server answered what it may not. One of the two programs is wrong.
    #[error("{what} ({outcome})")]
    Protocol {
        /// What was answered.
        what: String,
        /// Whether the write was applied.
        outcome: Outcome,
    },
}

impl From<BatchError> for ClientError {
    fn from(error: BatchError) -> Self {
        let what = error.to_string();
        Self::Invalid { what }
    }
}

impl ClientError {
    /// What became of the write that met this error. For a read, [`Outcome::NotApplied`].
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Invalid { .. } | Self::WrongType { .. } | Self::Unsupported { .. } => {
                Outcome::NotApplied
            }
            Self::Forgotten { .. } => Outcome::Unknown,
            Self::Unavailable { outcome, .. }
            | Self::Storage { outcome, .. }
            | Self::Lost { outcome, .. }
            | Self::Protocol { outcome, .. } => *outcome,
        }
    }

    /// What to do about it. A write whose [outcome](Self::outcome) is unknown may be tried again
    /// where doing it twice is as good as once.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self {
            Self::Invalid { .. }
            | Self::WrongType { .. }
            | Self::Unsupported { .. }
            | Self::Forgotten { .. }
            | Self::Protocol { .. } => Remedy::Correct,
            Self::Unavailable { .. } | Self::Lost { .. } => Remedy::Retry,
            Self::Storage { .. } => Remedy::Repair,
        }
    }

    /// The same error, after earlier parts of the request were applied: its outcome as a whole is
    /// unknown.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        let outcome = Outcome::Unknown;
        let part = |what| format!("part of the request was applied, but then: {what}");
        match self {
            Self::Invalid { what } | Self::WrongType { what } => Self::Unavailable {
                what: part(what),
                outcome,
            },
            Self::Unsupported { what } => Self::Unavailable {
                what: part(what.to_owned()),
                outcome,
            },
            Self::Forgotten { what } => Self::Forgotten { what: part(what) },
            Self::Unavailable { what, .. } => Self::Unavailable {
                what: part(what),
                outcome,
            },
            Self::Storage { what, .. } => Self::Storage {
                what: part(what),
                outcome,
            },
            Self::Lost { what, .. } => Self::Lost {
                what: part(what),
                outcome,
            },
            Self::Protocol { what, .. } => Self::Protocol {
                what: part(what),
                outcome,
            },
        }
    }
}
