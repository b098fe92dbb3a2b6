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

use std::sync::atomic::Ordering;

use argosy_base::Instant;
use argosy_engine::{BusyReason, EngineError};

use super::Lsm;
use super::writer::Writer;

/// Since when the logs have not gone on.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    since: Option<Instant>,
    /// Bytes that had been appended by then.
    bytes: u64,
}

impl Lsm {
    /// Has the logs rest if they did not go on for long enough. Returns whether they begin to.
    pub(super) fn rest_if_quiet(&self, quiet: &mut Quiet, now: Instant) -> bool {
        let mut writer = self.lock();
        let bytes = writer.logs.bytes();
        if quiet.bytes != bytes || quiet.since.is_none() {
            *quiet = Quiet {
                since: Some(now),
                bytes,
            };
        }
        let is_over = |since| now >= since + self.settings.rest_after;
        let rests = !self.at_rest.load(Ordering::Relaxed)
            && quiet.since.is_some_and(is_over)
            && writer.logs.are_settled();
        if rests {
            writer.logs.rest();
            self.at_rest.store(true, Ordering::Release);
        }
        rests
    }

    /// Makes sure that the logs of `writer`, which is this engine's, can be appended to.
    ///
    /// # Errors
    /// [`BusyReason::LogWindows`] where there is no memory for windows.
    pub(super) fn wake_logs(&self, writer: &mut Writer) -> Result<(), EngineError> {
        if !self.at_rest.load(Ordering::Relaxed) {
            return Ok(());
        }
        let woken = writer.logs.wake();
        woken.map_err(|_| EngineError::Busy(BusyReason::LogWindows))?;
        self.at_rest.store(false, Ordering::Release);
        // What is appended now is flushed in its time.
        self.wake();
        Ok(())
    }
}
