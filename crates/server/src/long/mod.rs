//! Values in parts ([`argosy_engine::long`]), as calls of a [`Service`](crate::service::Service): each part of a value
//! is read, or written, by one call. Front ends say in which protocol a value comes and goes, and when there is room
//! for the next part of it.

mod grow;
mod read;
mod write;

use argosy_base::Outcome;
use argosy_engine::long::Head;

pub(crate) use grow::{Grew, Growing};
pub(crate) use read::{Came, Reading, look_up};
pub(crate) use write::Writing;

use crate::service::Failure;

/// Bytes of the value that is bound, or whose head is.
pub(crate) fn len_of(bound: &[u8]) -> u64 {
    Head::parse(bound).map_or(bound.len() as u64, |head| head.len)
}

/// The bytes of `value` between two places, both included, counted from the end where below zero.
pub(crate) fn part(value: &[u8], from: i64, to: i64) -> &[u8] {
    let stretch = stretch(value.len() as u64, from, to);
    let place = |at| usize::try_from(at).unwrap_or(usize::MAX);
    let wanted = value.get(place(stretch.start)..place(stretch.end));
    wanted.unwrap_or_default()
}

/// What lies between two places, both included, of `len` bytes.
fn stretch(len: u64, from: i64, to: i64) -> std::ops::Range<u64> {
    let end = i64::try_from(len).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at.saturating_add(end) } else { at };
    let from = place(from).max(0).unsigned_abs();
    let behind = place(to).saturating_add(1).max(0).unsigned_abs();
    from..behind.min(len)
}

/// What has become of a value where `error` was met before its head was written: nobody sees its parts.
pub(crate) fn before_head(mut error: Failure) -> Failure {
    if let Failure::Unavailable { outcome, .. }
    | Failure::Busy { outcome, .. }
    | Failure::Storage { outcome, .. } = &mut error
    {
        *outcome = Outcome::NotApplied;
    }
    error
}

#[cfg(test)]
mod tests;
