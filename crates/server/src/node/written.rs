//! How far the logs of an open primary are written, and whether its backups wait to hear that it is committed.

use argosy_base::{Lsn, PerLog};
use argosy_engine::LogEnd;

use super::outbox::News;

/// See the module documentation.
pub(super) struct Written {
    /// How far each log is written, and the highest LSN in it; taken together from the outbox.
    ends: PerLog<LogEnd>,
    last: Lsn,
    /// Backups build their own levels, from the logs alone.
    builds: bool,
    /// Backups are to be told once this is committed: they were asked to flush it before, or were attached.
    owed: Option<Lsn>,
}

impl Written {
    /// Nothing yet. Backups `build` their own levels, or are sent the primary's.
    pub(super) fn new(builds: bool) -> Self {
        Self {
            ends: PerLog::default(),
            last: Lsn(0),
            builds,
            owed: None,
        }
    }

    /// How far each log is written.
    pub(super) const fn ends(&self) -> &PerLog<LogEnd> {
        &self.ends
    }

    /// The highest LSN that is written.
    pub(super) const fn last(&self) -> Lsn {
        self.last
    }

    /// The region was opened with a history up to `last`.
    pub(super) const fn opened_at(&mut self, last: Lsn) {
        self.last = last;
    }

    /// Takes in what was appended.
    pub(super) fn note(&mut self, news: &News) {
        for (log, end) in news.ends.iter() {
            self.ends.insert(log, *end);
        }
        self.last = news.last.unwrap_or(self.last);
    }

    /// A backup was attached while everything up to `commit` is committed. Returns whether it has to be told: one that
    /// builds levels waits for that, although nothing may ever be written again.
    pub(super) fn attached_at(&mut self, commit: Lsn) -> bool {
        self.flush_at(commit);
        self.builds
    }

    /// Backups are asked to flush while everything up to `commit` is committed.
    pub(super) fn flush_at(&mut self, commit: Lsn) {
        self.owed = (commit < self.last).then_some(self.last).or(self.owed);
    }

    /// Whether backups are to be told of `commit`, once: those that build levels wait for what they flushed to be
    /// committed.
    pub(super) fn take_owed(&mut self, commit: Lsn) -> bool {
        let is_due = self.builds && self.owed.is_some_and(|owed| owed <= commit);
        if is_due {
            self.owed = None;
        }
        is_due
    }
}
