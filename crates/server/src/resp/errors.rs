//! Failures of the service, in words for clients.

use argosy_base::Outcome as WriteOutcome;

use crate::service::ServiceError;

/// What a client is told. The prefix says what it may do: correct the request (`ERR`), try again
/// (`TRYAGAIN`: not applied), find out first whether it was applied (`NOREPLICAS`), or call an
/// operator (`MISCONF`).
pub(super) fn error_text(error: &ServiceError, is_write: bool) -> String {
    match error {
        ServiceError::Invalid(what) if is_write => format!("ERR {what} (not applied)"),
        ServiceError::Invalid(what) => format!("ERR {what}"),
        ServiceError::Unavailable { what, outcome } | ServiceError::Busy { what, outcome } => {
            let prefix = match outcome {
                WriteOutcome::Unknown if is_write => "NOREPLICAS",
                _ => "TRYAGAIN",
            };
            with_outcome(prefix, what, *outcome, is_write)
        }
        ServiceError::Storage { what, outcome } => {
            let prefix = if is_write { "MISCONF" } else { "ERR" };
            with_outcome(prefix, what, *outcome, is_write)
        }
    }
}

fn with_outcome(prefix: &str, what: &str, outcome: WriteOutcome, is_write: bool) -> String {
    if is_write {
        format!("{prefix} {what} ({outcome})")
    } else {
        format!("{prefix} {what}")
    }
}
