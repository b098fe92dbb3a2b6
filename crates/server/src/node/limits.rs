//! Which backups are too slow, and for how long: to make the logs durable, or to take edits and segments.
//!
//! A log window is used again once every member has flushed it. So the windows pass a slow backup's pace on to writers
//! (`slow_member_tests`): when all of them wait for it, what it flushes is what is taken, a window at a time. Writers
//! are not slowed besides. Delays from half of the windows on, which rose with the square of what waited beyond that,
//! were tried: they cost up to a third of the writes of a second, and no write was answered sooner.
//!
//! A backup is *at its limit* while all windows of a log but one, or all, wait for it alone: they are durable here. One
//! that is so for as long as a member may be away is to be removed, as that one is.
//!
//! Edits and segments are another matter. A finished segment waits in the outbox until each backup has a landing slot
//! free for it, and flushes and merges wait behind it. An edit waits at each backup until that has applied it, and
//! meanwhile the log segments that it declares are not written, and what it frees stays. A backup whose device stands
//! still for these, while flushes of the logs pass, holds up garbage collection, then flushes, and at last writers.
//! Nobody waits at first, so a backup has time: it is *stuck* once it has taken nothing for [`TAKES_WITHIN`] although
//! something waits. One that is so for as long as a member may catch up is to be removed. One whose device is full is
//! not stuck: everybody is told of that, and writers wait for room.

use std::time::Duration;

use argosy_base::{EditSeq, Instant, SegmentNumber, ServerId};
use argosy_engine::{LogSpec, Source};
use argosy_replication::Primary;

/// More time than this between two looks does not count: this server has done nothing then, whatever the backup did.
const LOOK_MAX: Duration = Duration::from_millis(200);

/// A backup that takes an edit or a segment in this time is not stuck.
const TAKES_WITHIN: Duration = Duration::from_millis(200);

/// What waits for a backup. It has taken nothing while that stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Untaken {
    /// The last edit that it has applied.
    pub(super) applied: EditSeq,
    /// The finished segment that waits for one of its landing slots.
    pub(super) segment: Option<SegmentNumber>,
}

/// A backup, and what waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) member: ServerId,
    pub(super) untaken: Option<Untaken>,
}

/// Whether the windows of `log` wait for `member` alone, whom `machine` knows; `source` has the log here.
pub(super) fn wait_for(
    member: ServerId,
    machine: &Primary,
    source: &dyn Source,
    log: &LogSpec,
) -> bool {
    let owed = machine.owed(member, log.id);
    let only_there = owed.take_while(|range| source.has_flushed(range));
    let bytes = only_there.map(|range| u64::from(range.to - range.from));
    is_at_limit(bytes.sum(), log)
}

/// Whether a backup is at its limit that has not flushed so many `bytes` of `log` which are durable here.
pub(super) const fn is_at_limit(bytes: u64, log: &LogSpec) -> bool {
    bytes > 0 && bytes >= ((log.slots - 1) * log.window_bytes) as u64
}

/// For how long a backup has been at its limit of late.
///
/// It is so by turns where writers are as fast as it allows: a window that it has flushed is filled and durable here
/// after a while. Time in which it is not counts double against it. So one that keeps the others waiting for less than
/// two thirds of the time, which is one of a third of their speed, is never at its limit for long. One that shows no
/// sign of life is another matter: it is not slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AtLimit {
    is_at_limit: bool,
    looked: Instant,
    held: Duration,
}

impl AtLimit {
    /// It is, or is not, from `now` on.
    pub(super) fn note(&mut self, is_at_limit: bool, now: Instant) {
        let span = now.since(self.looked).min(LOOK_MAX);
        self.held = match self.is_at_limit {
            true => self.held.saturating_add(span),
            false => self.held.saturating_sub(2 * span),
        };
        (self.is_at_limit, self.looked) = (is_at_limit, now);
    }

    /// Whether it has been for `patience` by `now`.
    pub(super) fn is_long(&mut self, now: Instant, patience: Duration) -> bool {
        self.note(self.is_at_limit, now);
        // What it was before that tells nothing of how it is.
        self.held = self.held.min(patience);
        self.held == patience
    }
}

/// For how long a backup has been stuck of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stuck {
    untaken: Option<Untaken>,
    /// Since when that has been the same.
    since: Instant,
    at_limit: AtLimit,
}

impl Stuck {
    /// From `now` on this waits for it.
    pub(super) fn note(&mut self, untaken: Option<Untaken>, now: Instant) {
        if untaken != self.untaken {
            (self.untaken, self.since) = (untaken, now);
        }
        let is_stuck = untaken.is_some() && now.since(self.since) >= TAKES_WITHIN;
        self.at_limit.note(is_stuck, now);
    }

    /// Whether it has been for `patience` by `now`.
    pub(super) fn is_long(&mut self, now: Instant, patience: Duration) -> bool {
        self.at_limit.is_long(now, patience)
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
