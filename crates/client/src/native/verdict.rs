//! What becomes of a request that has no answer yet, or one that is not the last word.

use argosy_base::Outcome;
use argosy_wire::api::Failure;

use super::channel::{Channel, IN_FLIGHT_MAX};
use crate::error::ClientError;

/// What is known of a request without an answer.
pub(super) const fn outcome_of(write: bool) -> Outcome {
    if write {
        Outcome::Unknown
    } else {
        Outcome::NotApplied
    }
}

/// Why a request was not sent, or came to nothing.
#[derive(Debug)]
pub(super) enum Failed {
    /// It or its reply fits no connection. What asks for less may do.
    TooLarge(ClientError),
    /// Regions have moved: what was asked for together may be with several servers.
    Parted(ClientError),
    /// Something else.
    Other(ClientError),
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        Self::Other(error)
    }
}

impl From<Failed> for ClientError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::TooLarge(error) | Failed::Parted(error) | Failed::Other(error) => error,
        }
    }
}

/// Why no reply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoReply {
    /// The connection was lost.
    Lost,
    /// The same, and the server never took the request.
    NotTaken,
    /// The server is quiet, and another one leads the region by now, or the same one under another epoch.
    Moved,
    /// There is no time left.
    Late,
}

/// What a reply calls for.
pub(super) enum Verdict {
    /// It is the answer.
    Final,
    /// A slot of so many bytes.
    Larger(usize),
    /// A newer map, and another attempt.
    Elsewhere,
    /// Another attempt, which is harmless; or this error where there is no time.
    Again(ClientError),
    /// Nothing.
    Failed(ClientError),
}

pub(super) fn verdict_of(failure: Failure, write: bool) -> Verdict {
    let of = |outcome| if write { outcome } else { Outcome::NotApplied };
    match failure {
        Failure::Invalid(what) => Verdict::Failed(ClientError::Invalid { what }),
        Failure::WrongType(what) => Verdict::Failed(ClientError::WrongType { what }),
        Failure::Forgotten(what) => Verdict::Failed(ClientError::Forgotten { what }),
        Failure::Storage { what, outcome } => {
            let outcome = of(outcome);
            Verdict::Failed(ClientError::Storage { what, outcome })
        }
        Failure::Unavailable { what, outcome } if of(outcome) == Outcome::NotApplied => {
            let outcome = Outcome::NotApplied;
            Verdict::Again(ClientError::Unavailable { what, outcome })
        }
        // A server that is busy has waited for room as long as it may.
        Failure::Unavailable { what, outcome } | Failure::Busy { what, outcome } => {
            let outcome = of(outcome);
            Verdict::Failed(ClientError::Unavailable { what, outcome })
        }
    }
}

pub(super) fn unserved() -> ClientError {
    ClientError::Unavailable {
        what: "no server serves the region at present; try again".to_owned(),
        outcome: Outcome::NotApplied,
    }
}

pub(super) fn too_many() -> ClientError {
    ClientError::Unavailable {
        what: format!("{IN_FLIGHT_MAX} requests are in flight: wait for some of them first"),
        outcome: Outcome::NotApplied,
    }
}

pub(super) fn too_large(channel: &Channel) -> ClientError {
    ClientError::Invalid {
        what: format!(
            "request or reply do not fit the memory that the server shares with this client (replies: \
             {} bytes); raise its memory.limit, or ask for less",
            channel.reply_bytes_max()
        ),
    }
}
