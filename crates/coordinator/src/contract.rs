//! What every coordinator offers: a few small values under keys, changed under conditions; sessions,
//! and values that vanish with them.
//!
//! ```text
//! key  := part ("/" part)*        at most KEY_BYTES_MAX bytes
//! part := 1 to PART_BYTES_MAX of a-z, 0-9, "-" and "_"
//! ```
//!
//! - **Values.** A value has a version: 0 while there is none, 1 when it is first set, and one more
//!   with every change. Who deletes a key makes its version begin anew. The children of a key are
//!   the last parts of the keys one part longer that hold a value; the key itself need not hold one.
//! - **Multi.** All operations of a [`Request::Multi`] take effect at one moment, or none does. Each
//!   sees what the operations before it would have done.
//! - **Sessions.** A handle has at most one. It lasts while the handle is polled more often than the
//!   session's timeout, and ends at the latest some time after that; then the *ephemeral* values that
//!   it owns are removed. Another handle ends it, by its own clock: so an expired session
//!   does not prove that its owner has stopped. An owner that was stopped learns of it when it goes on. A
//!   request *under* a session fails from then on ([`CoordinatorError::SessionExpired`]).
//! - **Watches** are hints. That something may have changed can be reported late, never, or without
//!   a change; so users read again after a hint, and also without one from time to time.
//! - **Answers.** Requests may end in any order. A read, or a condition that fails, tells of a state
//!   between submission and answer, and what it tells is durable. [`CoordinatorError::ConnectionLost`]:
//!   the outcome is unknown, so the caller reads. After every other error nothing was changed. A
//!   request that has not ended may have taken effect, or may yet.
//! - **Time** is what [`Coordinator::poll`] is told. A coordinator reads no clock and
//!   waits for no other process.
//!
//! ZooKeeper's semantics suffice to implement it. Key `a/b` is node `/a.d/b.v`, so that a key may have a
//! value, children, or both; nodes `.d` are made on the way and stay. A version is the node's and one
//! more. An operation that wants nothing under its key is a create, or a create and a delete in the
//! same multi.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, Remedy};

/// Longest part of a key, in bytes.
pub const PART_BYTES_MAX: usize = 64;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 200;

/// Longest value, in bytes; and all values that a [`Request::Multi`] sets, together.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Most operations of a [`Request::Multi`].
pub const OPS_MAX: usize = 64;

/// Most keys that hold a value.
pub const KEYS_MAX: usize = 4096;

/// Most bytes of all keys and values together: four of the longest values.
pub const STATE_BYTES_MAX: usize = 4 * VALUE_BYTES_MAX;

/// Most sessions at a time.
pub const SESSIONS_MAX: usize = 256;

/// Most keys that a handle watches.
pub const WATCHES_MAX: usize = 64;

/// Most requests of a handle that have not ended.
pub const REQUESTS_MAX: usize = 256;

/// Shortest timeout of a session. A shorter one is taken for this.
pub const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(20);

/// Longest timeout of a session. A longer one is taken for this.
pub const SESSION_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// How often a value has been set; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryVersion(pub u64);

impl fmt::Display for EntryVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}", self.0)
    }
}

/// Names a session. Never used twice by the handles of one coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// One operation of a [`Request::Multi`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorOp {
    /// `key` has to be at version `expected`; 0: it must hold nothing.
    Check {
        /// See the module documentation.
        key: String,
        /// The version that it must have.
        expected: EntryVersion,
    },
    /// Put `value` under `key` if that is at version `expected`. An ephemeral value stays ephemeral.
    Set {
        /// See the module documentation.
        key: String,
        /// The version that the change is based on; 0 to set the first value.
        expected: EntryVersion,
        /// The bytes.
        value: Vec<u8>,
    },
    /// Put `value` under `key`, which must hold nothing, until the session of the multi ends.
    CreateEphemeral {
        /// See the module documentation.
        key: String,
        /// The bytes.
        value: Vec<u8>,
    },
    /// Remove the value under `key` if that is at version `expected`.
    Delete {
        /// See the module documentation.
        key: String,
        /// The version that the change is based on.
        expected: EntryVersion,
    },
}

impl CoordinatorOp {
    /// The key that it concerns.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Check { key, .. }
            | Self::Set { key, .. }
            | Self::CreateEphemeral { key, .. }
            | Self::Delete { key, .. } => key,
        }
    }

    /// Bytes of the value that it sets.
    fn value_bytes(&self) -> usize {
        match self {
            Self::Set { value, .. } | Self::CreateEphemeral { value, .. } => value.len(),
            Self::Check { .. } | Self::Delete { .. } => 0,
        }
    }
}

/// A request to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the value under `key`. Answered by [`CoordinatorReply::Entry`].
    Read {
        /// See the module documentation.
        key: String,
    },
    /// List the children of `key`. Answered by [`CoordinatorReply::Children`].
    Children {
        /// See the module documentation; empty for the keys of one part.
        key: String,
    },
    /// Put `value` under `key` if that is still at version `expected`. Answered by
    /// [`CoordinatorReply::Entry`].
    CompareAndSet {
        /// See the module documentation.
        key: String,
        /// The version that the change is based on; 0 to set the first value.
        expected: EntryVersion,
        /// At most [`VALUE_BYTES_MAX`] bytes.
        value: Vec<u8>,
    },
    /// Do all of `ops`, or nothing. Answered by [`CoordinatorReply::Done`].
    Multi {
        /// At most [`OPS_MAX`].
        ops: Vec<CoordinatorOp>,
        /// The session of this handle, which must not have ended. Ephemeral values need one: it owns
        /// them.
        under: Option<SessionId>,
    },
    /// Open a session of this handle. The one that it has had ends. Answered by
    /// [`CoordinatorReply::Opened`].
    OpenSession {
        /// How long it outlasts its last sign of life, at least.
        timeout: Duration,
    },
    /// End the session of this handle at once. Answered by [`CoordinatorReply::Done`].
    CloseSession {
        /// The session.
        session: SessionId,
    },
}

impl Request {
    /// Whether a handle takes the request that has `waiting` others.
    ///
    /// # Errors
    /// The bound that is broken.
    pub(crate) fn admit(&self, waiting: usize) -> Result<(), CoordinatorError> {
        self.check()?;
        match waiting < REQUESTS_MAX {
            true => Ok(()),
            false => Err(CoordinatorError::TooMany {
                what: "requests",
                max: REQUESTS_MAX,
            }),
        }
    }

    /// Whether all is within its bounds.
    ///
    /// # Errors
    /// The bound that is broken. The request can never succeed.
    pub(crate) fn check(&self) -> Result<(), CoordinatorError> {
        match self {
            Self::Read { key } => check_key(key),
            Self::Children { key } => check_key_or_root(key),
            Self::CompareAndSet { key, value, .. } => {
                check_key(key).and_then(|()| check_len(value.len()))
            }
            Self::Multi { ops, under } => check_ops(ops, *under),
            Self::OpenSession { .. } | Self::CloseSession { .. } => Ok(()),
        }
    }
}

fn check_ops(ops: &[CoordinatorOp], under: Option<SessionId>) -> Result<(), CoordinatorError> {
    if ops.len() > OPS_MAX {
        return Err(CoordinatorError::TooMany {
            what: "operations",
            max: OPS_MAX,
        });
    }
    ops.iter().try_for_each(|op| check_key(op.key()))?;
    check_len(ops.iter().map(CoordinatorOp::value_bytes).sum())?;
    let is_ephemeral = |op: &CoordinatorOp| matches!(op, CoordinatorOp::CreateEphemeral { .. });
    match ops.iter().any(is_ephemeral) && under.is_none() {
        true => Err(CoordinatorError::NoSession),
        false => Ok(()),
    }
}

fn check_len(len: usize) -> Result<(), CoordinatorError> {
    match len > VALUE_BYTES_MAX {
        true => Err(CoordinatorError::TooLong {
            len,
            max: VALUE_BYTES_MAX,
        }),
        false => Ok(()),
    }
}

/// Whether `key` is one, by the grammar of the module documentation.
pub(crate) fn is_key(key: &str) -> bool {
    let good = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    let part = |part: &str| (1..=PART_BYTES_MAX).contains(&part.len()) && part.bytes().all(good);
    key.len() <= KEY_BYTES_MAX && key.split('/').all(part)
}

fn check_key(key: &str) -> Result<(), CoordinatorError> {
    match is_key(key) {
        true => Ok(()),
        false => Err(CoordinatorError::BadKey {
            key: key.to_owned(),
        }),
    }
}

/// [`check_key`], but an empty `key` stands for the root of all keys.
pub(crate) fn check_key_or_root(key: &str) -> Result<(), CoordinatorError> {
    match key.is_empty() {
        true => Ok(()),
        false => check_key(key),
    }
}

/// Whether `key` is `above`, or lies below it; `above` may be the root.
pub(crate) fn is_under(key: &str, above: &str) -> bool {
    let rest = key.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Names a request, so that its answer can be told from others. Never used twice by one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What is under a key: after a read, what was found; after a compare-and-set, what was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// How often it was set. 0: there is nothing, and `value` is empty.
    pub version: EntryVersion,
    /// The bytes.
    pub value: Vec<u8>,
    /// The session with which it vanishes.
    pub owner: Option<SessionId>,
}

/// The answer to a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorReply {
    /// What is under the key.
    Entry(Entry),
    /// The names of the children, in order. At most [`KEYS_MAX`].
    Children(Vec<String>),
    /// All was done. For each operation, the version of its key behind it.
    Done(Vec<EntryVersion>),
    /// The session is open.
    Opened {
        /// Its name.
        session: SessionId,
        /// Its timeout, within the bounds.
        timeout: Duration,
    },
}

impl CoordinatorReply {
    /// The entry, where the request was about one.
    #[must_use]
    pub fn into_entry(self) -> Option<Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            _ => None,
        }
    }
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
    #[error(
        "{key:?} is no key: use parts of 1 to 64 of a-z, 0-9, - and _, separated by /, and at most 200 bytes"
    )]
    BadKey {
        /// What was given.
        key: String,
    },
    /// The request can never succeed.
    #[error("values of {len} bytes are too long: at most {max}")]
    TooLong {
        /// Bytes of the values.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The request fails until there is less.
    #[error("too many {what}: at most {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        max: usize,
    },
    /// The request can never succeed.
    #[error("an ephemeral value needs a session")]
    NoSession,
    /// The session has ended. Whoever relied on it starts over, with a new one.
    #[error("{session} has ended")]
    SessionExpired {
        /// The session.
        session: SessionId,
    },
    /// The request may have taken effect, or may yet. Read, and decide anew.
    #[error("the connection to the coordinator was lost: the outcome is unknown")]
    ConnectionLost,
    /// What is stored is not what was written, or was written by another version. A person has to
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
            Self::Conflict { .. }
            | Self::Refused { .. }
            | Self::TooMany { .. }
            | Self::ConnectionLost => Remedy::Retry,
            Self::BadKey { .. } | Self::TooLong { .. } | Self::NoSession => Remedy::Correct,
            Self::SessionExpired { .. } => Remedy::Reopen,
            Self::Damaged { .. } => Remedy::Repair,
        }
    }
}

/// A request's end.
pub type CoordinatorAnswer = Result<CoordinatorReply, CoordinatorError>;

/// What [`Coordinator::poll`] reports.
#[derive(Clone, Debug)]
pub enum CoordinatorEvent {
    /// A request has ended.
    Ended {
        /// The request.
        id: RequestId,
        /// How.
        answer: CoordinatorAnswer,
    },
    /// Something under a watched key may have changed: read it.
    MayHaveChanged {
        /// As it was given to [`Coordinator::watch`].
        key: String,
    },
}

/// The session of a handle, as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// None was opened, or it was closed.
    None,
    /// Its signs of life are on time.
    Alive(SessionId),
    /// The last sign of life is, or was, too old: others may be about to end it, or have done so.
    InDoubt(SessionId),
    /// It has ended, and what it owned is removed.
    Expired(SessionId),
}

/// A few small values that a whole cluster agrees on; see the module documentation.
pub trait Coordinator: Send {
    /// Begins `request`. Its end is reported by [`poll`](Self::poll). A request over
    /// [`REQUESTS_MAX`] ends with [`CoordinatorError::TooMany`].
    fn submit(&mut self, request: Request) -> RequestId;

    /// Reports, from now on, that `key` or a key below it may have changed. The empty key stands for
    /// all. Watching a key twice is watching it once.
    ///
    /// # Errors
    /// [`CoordinatorError::BadKey`]; [`CoordinatorError::TooMany`] over [`WATCHES_MAX`].
    fn watch(&mut self, key: &str) -> Result<(), CoordinatorError>;

    /// The session of this handle, as it was seen by the last [`poll`](Self::poll).
    fn session(&self) -> SessionState;

    /// Takes a step, and reports what has happened. `None`: nothing, ask again later. Never blocks
    /// for long. `now` never goes back.
    fn poll(&mut self, now: Instant) -> Option<CoordinatorEvent>;
}
