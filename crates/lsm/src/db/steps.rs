//! What an engine does step by step, besides answering: whose turn it is, who is woken for it, and what ends it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use argosy_base::Lsn;
use argosy_device::Waker;
use argosy_engine::EngineError;

use super::background::Background;
use super::log_work::LogWork;
use crate::storage::Storage;

/// Why no more writes are taken.
const DEVICE_FAILED: &str = "a write or a sync of its device failed, and none is tried again; reads go on; \
     look at the device and at the system's log, then reopen it";

/// See the module documentation.
pub(super) struct Steps {
    background: Mutex<Background>,
    logs: LogWork,
    /// See [`background_pending`](argosy_engine::Store::background_pending).
    pending: AtomicUsize,
    waker: OnceLock<Waker>,
    /// Why no more writes are taken.
    closed: OnceLock<&'static str>,
}

impl Steps {
    /// Those of an engine with `storage`, which begins behind `last`.
    pub(super) fn new(storage: Storage, last: Lsn) -> Self {
        Self {
            logs: LogWork::new(storage.store()),
            background: Mutex::new(Background::new(storage, last)),
            pending: AtomicUsize::new(1),
            waker: OnceLock::new(),
            closed: OnceLock::new(),
        }
    }

    /// What makes the logs durable.
    pub(super) const fn logs(&self) -> &LogWork {
        &self.logs
    }

    /// What is under way in the background, as of the last step.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// So much is under way in the background.
    pub(super) fn set_pending(&self, pending: usize) {
        self.pending.store(pending, Ordering::Relaxed);
    }

    /// Whom to wake when there is something new to do. Set once.
    pub(super) fn set_waker(&self, waker: Waker) {
        // A second waker would mean two loops, and is the caller's mistake; the first stays.
        let set = self.waker.set(waker);
        assert!(set.is_ok(), "one loop steps an engine");
    }

    /// There is something new to do.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Takes no more writes, for the reason `why`, unless there was one before.
    pub(super) fn close(&self, why: &'static str) {
        // The first one is the cause.
        let _ = self.closed.set(why);
    }

    /// Whether writes are taken.
    pub(super) fn check_open(&self) -> Result<(), EngineError> {
        match self.closed.get() {
            Some(why) => Err(EngineError::Closed(why)),
            None => Ok(()),
        }
    }

    /// Waits for whoever is at a background step.
    pub(super) fn background(&self) -> Result<MutexGuard<'_, Background>, EngineError> {
        let background = self.background.lock();
        background.map_err(|_| EngineError::Closed("a background step panicked"))
    }

    /// [`background`](Self::background), to look at it or to end it, also where a step has panicked.
    pub(super) fn background_as_it_is(&self) -> MutexGuard<'_, Background> {
        self.background
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a step of background work; `None` where another thread is at it.
    pub(super) fn with_background<T>(
        &self,
        step: impl FnOnce(&mut Background) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        self.check_open()?;
        let mut background = match self.background.try_lock() {
            Ok(background) => background,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Poisoned(_)) => {
                return Err(EngineError::Closed("a background step panicked"));
            }
        };
        // What another region has met of the same device ends this one, too.
        let whole = background.check_device();
        let stepped = whole
            .and_then(|()| step(&mut background))
            .inspect_err(|error| self.note_failure(error));
        stepped.map(Some)
    }

    /// Takes no more writes, since a step has ended in `error`.
    pub(super) fn note_failure(&self, error: &EngineError) {
        self.close(match error {
            EngineError::Device(_) => DEVICE_FAILED,
            EngineError::Corrupt { .. } => "stored bytes are damaged",
            _ => "background work failed",
        });
    }
}
