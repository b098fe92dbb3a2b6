//! What every coordinator offers: reading a value, and replacing it if it is still the one that
//! was read.
//!
//! A key is 1 to 64 characters of `a-z`, `0-9`, `-` and `_`. A value has a version: 0 while there
//! is none, and one more with every change. Requests may end in any order; a request that has not
//! ended may have taken effect.

use std::fmt;
use std::sync::Arc;

use argosy_base::Remedy;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// How often a value has been set; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryVersion(pub u64);

impl fmt::Display for EntryVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}", self.0)
    }
}

/// What is asked of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// What is under `key`?
    Read {
        /// See the module documentation.
        key: String,
    },
    /// Put `value` under `key` if that is still at version `expected`.
    CompareAndSet {
        /// See the module documentation.
        key: String,
        /// The version that the change is based on; 0 to set the first value.
        expected: EntryVersion,
        /// At most [`VALUE_BYTES_MAX`] bytes.
        value: Vec<u8>,
    },
}

impl Request {
    /// The key that is asked about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Read { key } | Self::CompareAndSet { key, .. } => key,
        }
    }

    /// Whether key and value are within their bounds.
    pub(crate) fn check(&self) -> Result<(), CoordinatorError> {
        let key = self.key();
        let good = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(good) {
            return Err(CoordinatorError::BadKey {
                key: key.to_owned(),
            });
        }
        match self {
            Self::CompareAndSet { value, .. } if value.len() > VALUE_BYTES_MAX => {
                Err(CoordinatorError::TooLong {
                    len: value.len(),
                    max: VALUE_BYTES_MAX,
                })
            }
            _ => Ok(()),
        }
    }
}

/// Names a request, so that its answer can be told from others. Never used twice by one
/// coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What is under a key: after a read, what was found; after a compare-and-set, what was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// How often it was set. 0: there is nothing, and `value` is empty.
    pub version: EntryVersion,
    /// The bytes.
    pub value: Vec<u8>,
}

/// Why a request failed. Variants differ in what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// Someone else changed the value. Read it again, and decide anew.
    #[error("{key} is at {found}, not at {expected}")]
    Conflict {
        /// The key.
        key: String,
        /// What the change was based on.
        expected: EntryVersion,
        /// What is there.
        found: EntryVersion,
    },
    /// The request can never succeed.
    #[error("{key:?} is no key: use 1 to 64 of a-z, 0-9, - and _")]
    BadKey {
        /// What was given.
        key: String,
    },
    /// The request can never succeed.
    #[error("a value of {len} bytes is too long: at most {max}")]
    TooLong {
        /// Bytes of the value.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// What is stored is not what was written, or was written by a later version. A person has to
    /// look.
    #[error("{path}: {what}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The system refused. Correct the cause, and try again.
    #[error("cannot {what} {path}: {source}")]
    Refused {
        /// What was tried, such as "write".
        what: &'static str,
        /// With what.
        path: String,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
}

impl CoordinatorError {
    /// What the caller does next.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self {
            Self::Conflict { .. } | Self::Refused { .. } => Remedy::Retry,
            Self::BadKey { .. } | Self::TooLong { .. } => Remedy::Correct,
            Self::Damaged { .. } => Remedy::Repair,
        }
    }
}

/// A request's end.
pub type CoordinatorAnswer = (RequestId, Result<Entry, CoordinatorError>);

/// A few small values that a whole cluster agrees on; see the module documentation.
pub trait Coordinator: Send {
    /// Begins `request`. Its end is reported by [`poll`](Self::poll).
    fn submit(&mut self, request: Request) -> RequestId;

    /// The next request that has ended. `None`: none has, ask again later. Never blocks for long.
    fn poll(&mut self) -> Option<CoordinatorAnswer>;
}
