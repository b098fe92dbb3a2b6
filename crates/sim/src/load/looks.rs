//! How requests went, as what they are told says it.

use argosy_server::service::Failure;

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is not answered.
    Pending,
    /// It was answered.
    Applied,
    /// It was refused.
    NotApplied,
    /// Nobody knows.
    Unknown,
}

/// Writes of one object under way, at most.
pub(super) const BUSY_MAX: usize = 5;

/// Whether a refusal says that a device is full.
pub(crate) fn no_space(what: &str) -> bool {
    what.contains(" is full (") || what.contains("a device was full")
}

/// Whether a request that was given up is told that it had found room late.
pub(crate) fn had_waited_for_room(error: &Failure) -> bool {
    error.to_string().contains("the request had waited before")
}

/// Whether a request that was forwarded is told that it was given up at its deadline.
pub(crate) fn gave_up(error: &Failure) -> bool {
    error.to_string().contains("did not answer in time")
}

/// Whether a request is told that a device has failed, and not that something is damaged.
pub(crate) fn is_failure(what: &str) -> bool {
    let failed = ["failed", "closed to writes"];
    failed.iter().any(|told| what.contains(told)) && !what.contains("checksum")
}

/// Whether a request is told where something else lies than what was written.
pub(crate) fn names_damage(what: &str) -> bool {
    what.contains("byte ") || is_failure(what)
}
