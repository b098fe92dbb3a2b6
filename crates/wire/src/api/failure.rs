//! Why requests fail.

use alloc::string::String;
use alloc::vec::Vec;

use argosy_base::Outcome;
use argosy_base::codec::{Malformed, Reader};

/// Why a request failed, split by what the client does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The request is over a limit or makes no sense. Correct it. Nothing was written.
    #[error("{0}")]
    Invalid(String),
    /// A member of the region is missing, or the region is not open yet. Try again later.
    #[error("{what} ({outcome})")]
    Unavailable {
        /// What is missing, and what would help.
        what: String,
        /// For a write, whether it was applied. For a read, [`Outcome::NotApplied`].
        outcome: Outcome,
    },
    /// The region takes no writes for now: windows, memory or device are full. Try again later.
    #[error("{what} ({outcome})")]
    Busy {
        /// What is full.
        what: String,
        /// Whether the write was applied.
        outcome: Outcome,
    },
    /// The request came under a name that is older than what the region remembers: whether it was applied before is not
    /// known. It was not applied now. Whoever has sent it once only sends it under a new name, of a new client id.
    #[error("{0}")]
    Forgotten(String),
    /// The key is bound to a value of another type than the request is about. Nothing was written.
    #[error("{0}")]
    WrongType(String),
    /// Storage failed. An operator has to look.
    #[error("{what} ({outcome})")]
    Storage {
        /// Which device, segment and byte, and what is wrong.
        what: String,
        /// Whether the write was applied.
        outcome: Outcome,
    },
}

impl Failure {
    /// What is wrong, in words.
    #[must_use]
    pub fn what(&self) -> &str {
        match self {
            Self::Invalid(what)
            | Self::Forgotten(what)
            | Self::WrongType(what)
            | Self::Unavailable { what, .. }
            | Self::Busy { what, .. }
            | Self::Storage { what, .. } => what,
        }
    }

    /// Appends which failure it is, and what became of a write. DO NOT CHANGE THE VALUES.
    pub(crate) fn put_kind(&self, out: &mut Vec<u8>) {
        let (kind, outcome) = match self {
            Self::Invalid(_) => (0, Outcome::NotApplied),
            Self::Unavailable { outcome, .. } => (1, *outcome),
            Self::Busy { outcome, .. } => (2, *outcome),
            Self::Storage { outcome, .. } => (3, *outcome),
            Self::Forgotten(_) => (4, Outcome::Unknown),
            Self::WrongType(_) => (5, Outcome::NotApplied),
        };
        out.push(kind);
        out.push(match outcome {
            Outcome::Applied => 0,
            Outcome::NotApplied => 1,
            Outcome::Unknown => 2,
        });
    }

    /// Reads the same, and the words, which `text` reads.
    pub(crate) fn read<'a>(
        r: &mut Reader<'a>,
        text: impl FnOnce(&mut Reader<'a>) -> Result<&'a [u8], Malformed>,
    ) -> Result<Self, Malformed> {
        let kind = r.u8()?;
        let outcome = match r.u8()? {
            0 => Outcome::Applied,
            1 => Outcome::NotApplied,
            2 => Outcome::Unknown,
            _ => return Err(r.malformed()),
        };
        let what = String::from_utf8_lossy(text(r)?).into_owned();
        Ok(match kind {
            0 => Self::Invalid(what),
            1 => Self::Unavailable { what, outcome },
            2 => Self::Busy { what, outcome },
            3 => Self::Storage { what, outcome },
            4 => Self::Forgotten(what),
            5 => Self::WrongType(what),
            _ => return Err(r.malformed()),
        })
    }
}
