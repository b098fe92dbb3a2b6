//! Whether the histories of all keys are possible.
//!
//! A register's history is followed whole by [`register`], a counter's by [`counter`]. What was acknowledged and is
//! not there at the end shows as a read that no order of the requests explains: the reads at the end are a part of
//! the histories.

use argosy_history::register::{Access, AccessKind, Bound, RegisterViolation};
use argosy_history::{counter, register};

use crate::record::History;

/// So many accesses around one that cannot be explained are told.
const AROUND: usize = 12;

/// A history that is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexplained {
    /// The number of the key.
    pub key: usize,
    /// What is wrong, in a line.
    pub words: String,
    /// The accesses around it, one a line.
    pub around: Vec<String>,
}

/// Checks all histories.
#[must_use]
pub(crate) fn judge(histories: &[History]) -> Vec<Unexplained> {
    let checked = histories.iter().enumerate();
    checked
        .filter_map(|(key, history)| fault_of(key, history))
        .collect()
}

fn fault_of(key: usize, history: &History) -> Option<Unexplained> {
    let accesses = match history {
        History::Register(accesses) => accesses,
        History::Counter(increments) => {
            let words = counter::check(increments).err()?;
            let around = Vec::new();
            return Some(Unexplained { key, words, around });
        }
    };
    match register::check(Bound::Absent, accesses).err()? {
        RegisterViolation::TooWide => Some(Unexplained {
            key,
            words: "too much was under way at one time to find out whether this is possible"
                .to_owned(),
            around: Vec::new(),
        }),
        RegisterViolation::Impossible { access, possible } => {
            let possible: Vec<_> = possible.iter().map(Bound::to_string).collect();
            Some(Unexplained {
                key,
                words: format!(
                    "request {} cannot be explained; when it was answered the key could be bound to {} only",
                    accesses[access].op,
                    possible.join(" or ")
                ),
                around: around(accesses, &accesses[access]),
            })
        }
    }
}

/// The accesses that were under way with `wrong`, or began or ended shortly before it, in the order of time.
fn around(accesses: &[Access], wrong: &Access) -> Vec<String> {
    let ended = wrong.ended.unwrap_or(u64::MAX);
    let mut near: Vec<_> = accesses.iter().filter(|one| one.began <= ended).collect();
    near.sort_by_key(|one| one.ended.unwrap_or(one.began));
    let from = near.len().saturating_sub(AROUND);
    near[from..].iter().map(|one| line_of(one)).collect()
}

/// An access in a line: when it was, in microseconds, and what it did.
#[must_use]
pub(crate) fn line_of(access: &Access) -> String {
    let micros = |nanos: u64| nanos / 1000;
    let ended = access
        .ended
        .map_or("?".to_owned(), |at| micros(at).to_string());
    let what = match access.kind {
        AccessKind::Read(bound) => format!("saw {bound}"),
        AccessKind::Exists(existed) => format!("saw that it exists: {existed}"),
        AccessKind::Void => "was not applied".to_owned(),
        AccessKind::Write { to, condition, saw } => format!("to {to} when {condition:?}: {saw:?}"),
    };
    format!(
        "{}..{ended} request {}: {what}",
        micros(access.began),
        access.op
    )
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
