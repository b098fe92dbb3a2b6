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
//!
//! Windows may have their memory from somebody who has some for a few regions at one time ([`WindowRoom`]). Whoever it
//! is may ask that they rest soon: then nobody appends any more, but the marks that say that all is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::{Instant, LogId};
use argosy_engine::{BusyReason, EngineError, WindowRoom};
use argosy_log::LogWindows;

use super::writer::Writer;
use crate::names::logs::LOGS;
use crate::replica::ReplicaSurvivors;

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
    /// They are to rest as soon as all that was appended is durable. Changed by anyone; heeded under the writer lock.
    rest_soon: AtomicBool,
    /// Who gives them memory, if they are not to have it for good.
    room: Option<Arc<dyn WindowRoom>>,
}

impl Windows {
    /// Those of each log, by [`LogId::index`]. Where `room` gives them memory they begin at rest: what they hold is
    /// durable.
    pub(super) fn new(
        of_logs: [Arc<LogWindows>; LOGS.len()],
        room: Option<Arc<dyn WindowRoom>>,
    ) -> Self {
        let rests = room.is_some();
        if let Some(room) = &room {
            of_logs.iter().for_each(|windows| windows.release());
            room.gave_back();
        }
        Self {
            of_logs,
            at_rest: AtomicBool::new(rests),
            rest_soon: AtomicBool::new(false),
            room,
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

    /// Has them rest as soon as all that was appended is durable; or not, if they do not rest yet.
    pub(super) fn set_rest_soon(&self, soon: bool) {
        self.rest_soon.store(soon, Ordering::Release);
    }

    /// The memory of each slot of each log, for whoever goes on where the logs end. The engine has ended: who gave them
    /// memory has it back.
    pub(super) fn end(&self) -> ReplicaSurvivors {
        let rested = self.at_rest.swap(true, Ordering::AcqRel);
        if let Some(room) = self.room.as_ref().filter(|_| !rested) {
            room.gave_back();
        }
        self.of_logs.each_ref().map(|windows| {
            let slots = 0..windows.geometry().slots();
            let memory = slots.map(|slot| Some(Arc::clone(windows.memory(slot))));
            memory.collect()
        })
    }

    /// Whether they are to rest as soon as all that was appended is durable, and do not rest yet.
    pub(super) fn are_to_rest(&self) -> bool {
        self.rest_soon.load(Ordering::Acquire) && !self.are_at_rest()
    }

    /// Has the logs of `writer`, which are those of these windows, rest if all of them is durable. Returns whether they
    /// begin to.
    pub(super) fn rest(&self, writer: &mut Writer) -> bool {
        let rests = !self.at_rest.load(Ordering::Relaxed) && writer.logs.are_settled();
        if rests {
            writer.logs.rest();
            self.at_rest.store(true, Ordering::Release);
            if let Some(room) = &self.room {
                room.gave_back();
            }
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
            return match self.rest_soon.load(Ordering::Acquire) {
                true => Err(EngineError::Busy(BusyReason::LogWindows)),
                false => Ok(false),
            };
        }
        self.take_memory(writer)?;
        // It was about the time before.
        self.set_rest_soon(false);
        self.at_rest.store(false, Ordering::Release);
        Ok(true)
    }

    /// Takes memory for the windows of `writer`, which rest.
    #[cold]
    fn take_memory(&self, writer: &mut Writer) -> Result<(), EngineError> {
        let busy = EngineError::Busy(BusyReason::LogWindows);
        if self.room.as_ref().is_some_and(|room| !room.take()) {
            return Err(busy);
        }
        if writer.logs.wake().is_ok() {
            return Ok(());
        }
        // Some may have found it.
        self.of_logs.iter().for_each(|windows| windows.release());
        if let Some(room) = &self.room {
            room.gave_back();
        }
        Err(busy)
    }
}
