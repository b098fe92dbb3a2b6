//! Signs of life on a link: the beats that this side writes, and the changes of what the peer writes.

use argosy_base::Instant;

use super::{BEAT_EVERY, QUIET_AFTER, SILENT_AFTER};

/// When this side beats next, and when the peer was heard last.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    beat_at: Instant,
    beats: u64,
    /// What the peer last wrote of its head and its beat.
    head: u64,
    beat: u64,
    heard_at: Instant,
}

impl Pulse {
    /// The peer has shown a sign of life.
    pub(super) const fn hear(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// The peer's words say this. A change is a sign of life.
    pub(super) fn read(&mut self, head: u64, beat: u64, now: Instant) {
        if (head, beat) != (self.head, self.beat) {
            (self.head, self.beat) = (head, beat);
            self.heard_at = now;
        }
    }

    /// Whether the peer has shown a sign of life after `at`.
    pub(super) fn is_heard_after(&self, at: Instant) -> bool {
        self.heard_at > at
    }

    /// Whether the peer has missed several beats.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        now.since(self.heard_at) > QUIET_AFTER
    }

    /// Whether the peer has shown no sign of life for long.
    pub(super) fn is_missing(&self, now: Instant) -> bool {
        now.since(self.heard_at) > SILENT_AFTER
    }

    /// When a beat is due, unless something else is written before.
    pub(super) const fn next(&self) -> Instant {
        self.beat_at
    }

    /// The beat to write, if one is due.
    pub(super) fn due(&self, now: Instant) -> Option<u64> {
        (now >= self.beat_at).then_some(self.beats + 1)
    }

    /// `beat` has been written.
    pub(super) const fn wrote(&mut self, beat: u64) {
        self.beats = beat;
    }

    /// The peer has been written to: the next beat is due later.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.beat_at = now + BEAT_EVERY;
    }
}
