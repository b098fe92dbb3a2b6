//! Rest: a region whose logs do not go on gives the memory of its windows back.
//!
//! ```text
//!            nothing appended for `rest_after`, all of it durable everywhere, with marks
//!   awake ───────────────────────────────────────────────────────────────────────────────▶ at rest
//!     ▲                                                                                         │
//!     └───────────────────────── the next append, if there is memory ───────────────────────────┘
//! ```
//!
//! Both steps are taken under the writer lock. Where there is no memory for windows, a write is sent away as if
//! the windows were full, and nothing of it was applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::{Instant, LogId};
use argosy_engine::{BusyReason, EngineError};
use argosy_log::LogWindows;

use super::writer::Writer;
use crate::names::logs::LOGS;

/// Since when the logs have not gone on.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    since: Option<Instant>,
    /// Bytes that had been appended by then.
    bytes: u64,
}

impl Quiet {
    /// Whether logs of so many `bytes` have not gone on for `rest_after`.
    pub(super) fn lasts(&mut self, bytes: u64, now: Instant, rest_after: Duration) -> bool {
        if self.bytes != bytes || self.since.is_none() {
            *self = Self {
                since: Some(now),
                bytes,
            };
        }
        self.since.is_some_and(|since| now >= since + rest_after)
    }
}

/// The windows of an engine's logs.
pub(super) struct Windows {
    /// By [`LogId::index`].
    of_logs: [Arc<LogWindows>; LOGS.len()],
    /// They have no memory. Changed under the writer lock only; who sees that they have none sees all appends in front
    /// of that.
    at_rest: AtomicBool,
}

impl Windows {
    /// Those of each log, by [`LogId::index`], awake.
    pub(super) const fn new(of_logs: [Arc<LogWindows>; LOGS.len()]) -> Self {
        Self {
            of_logs,
            at_rest: AtomicBool::new(false),
        }
    }

    /// Those of each log, by [`LogId::index`].
    pub(super) fn of_logs(&self) -> [Arc<LogWindows>; LOGS.len()] {
        self.of_logs.clone()
    }

    /// Those of `log`.
    pub(super) const fn of(&self, log: LogId) -> &Arc<LogWindows> {
        &self.of_logs[log.index()]
    }

    /// Whether they have no memory.
    pub(super) fn are_at_rest(&self) -> bool {
        self.at_rest.load(Ordering::Acquire)
    }

    /// Has the logs of `writer`, which are those of these windows, rest if all of them is durable. Returns whether they
    /// begin to.
    pub(super) fn rest(&self, writer: &mut Writer) -> bool {
        let rests = !self.at_rest.load(Ordering::Relaxed) && writer.logs.are_settled();
        if rests {
            writer.logs.rest();
            self.at_rest.store(true, Ordering::Release);
        }
        rests
    }

    /// Makes sure that the logs of `writer`, which are those of these windows, can be appended to. Returns whether they
    /// were at rest.
    ///
    /// # Errors
    /// [`BusyReason::LogWindows`] where there is no memory for windows.
    #[inline]
    pub(super) fn wake(&self, writer: &mut Writer) -> Result<bool, EngineError> {
        if !self.at_rest.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let woken = writer.logs.wake();
        woken.map_err(|_| EngineError::Busy(BusyReason::LogWindows))?;
        self.at_rest.store(false, Ordering::Release);
        Ok(true)
    }
}
