//! Failures of the service, in words for clients.

use argosy_base::Outcome as WriteOutcome;

use crate::service::Failure;

/// The first word of an error that leaves open whether a write was applied. It is no word of Redis: each
/// of those is taken for a refusal by some client library, and some are followed by another attempt
/// without the caller's knowledge (go-redis repeats what was answered by `NOREPLICAS`, `TRYAGAIN`,
/// `LOADING`, `READONLY`, `MASTERDOWN` or `CLUSTERDOWN`). An unknown word is a plain error everywhere.
const OUTCOME_UNKNOWN: &str = "UNCERTAIN";

/// What a client is told. The prefix says what it may do: correct the request (`ERR`), try again
/// (`TRYAGAIN`: not applied), find out first whether it was applied ([`OUTCOME_UNKNOWN`]), or call
/// an operator (`MISCONF`).
pub(super) fn error_text(error: &Failure, is_write: bool) -> String {
    match error {
        Failure::Invalid(what) if is_write => format!("ERR {what} (not applied)"),
        Failure::Invalid(what) => format!("ERR {what}"),
        Failure::WrongType(what) => format!("WRONGTYPE {what}"),
        Failure::Unavailable { what, outcome } | Failure::Busy { what, outcome } => {
            let prefix = match outcome {
                WriteOutcome::Unknown if is_write => OUTCOME_UNKNOWN,
                _ => "TRYAGAIN",
            };
            with_outcome(prefix, what, *outcome, is_write)
        }
        Failure::Forgotten(what) => format!("{OUTCOME_UNKNOWN} {what}"),
        Failure::Storage { what, outcome } => {
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
