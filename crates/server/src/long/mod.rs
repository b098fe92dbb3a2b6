//! Values in parts ([`argosy_engine::long`]), as calls of a [`Service`](crate::service::Service): each part of a value
//! is read by one call. Front ends say in which protocol a value goes, and keep as much of it as they have room for.

mod read;

pub(crate) use read::{Came, Reading};

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
