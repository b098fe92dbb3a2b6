//! What an engine does step by step, besides answering: whose turn it is, who is woken for it, and what ends it.

use std::ops::{Deref, DerefMut};
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

const PANICKED: &str = "a background step panicked";

/// See the module documentation.
pub(super) struct Steps {
    /// `None`: it was [taken](Self::take_background).
    background: Mutex<Option<Box<Background>>>,
    logs: LogWork,
    /// See [`background_pending`](argosy_engine::Store::background_pending).
    pending: AtomicUsize,
    waker: OnceLock<Waker>,
    /// Why no more writes are taken.
    closed: OnceLock<EngineError>,
}

/// The background, for as long as nobody else may be at it.
pub(super) struct AtBackground<'a>(MutexGuard<'a, Option<Box<Background>>>);

impl<'a> AtBackground<'a> {
    /// `None` where it was taken.
    fn of(background: MutexGuard<'a, Option<Box<Background>>>) -> Option<Self> {
        background.is_some().then_some(Self(background))
    }
}

impl Deref for AtBackground<'_> {
    type Target = Background;

    fn deref(&self) -> &Background {
        self.0.as_deref().expect("it is there")
    }
}

impl DerefMut for AtBackground<'_> {
    fn deref_mut(&mut self) -> &mut Background {
        self.0.as_deref_mut().expect("it is there")
    }
}

impl Steps {
    /// Those of an engine with `storage`, which begins behind `last`.
    pub(super) fn new(storage: Storage, last: Lsn) -> Self {
        Self {
            logs: LogWork::new(storage.store()),
            background: Mutex::new(Some(Box::new(Background::new(storage, last)))),
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
        let _ = self.closed.set(EngineError::Closed(why));
    }

    /// Takes no more writes and does no more steps, since the region is not served here any more.
    ///
    /// # Errors
    /// It was closed before.
    pub(super) fn end(&self) -> Result<(), EngineError> {
        let ended = self.closed.set(EngineError::NotServing);
        ended.or_else(|_| self.check_open())
    }

    /// Whether writes are taken.
    pub(super) fn check_open(&self) -> Result<(), EngineError> {
        match self.closed.get() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Waits for whoever is at a background step.
    pub(super) fn background(&self) -> Result<AtBackground<'_>, EngineError> {
        let background = self.background.lock();
        let background = background.map_err(|_| EngineError::Closed(PANICKED))?;
        AtBackground::of(background).ok_or(EngineError::NotServing)
    }

    /// [`background`](Self::background), to look at it or to end it, also where a step has panicked. `None` where it
    /// was taken.
    pub(super) fn background_as_it_is(&self) -> Option<AtBackground<'_>> {
        let background = self.background.lock();
        AtBackground::of(background.unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for whoever is at a background step, and takes the background for good: no step comes behind it.
    pub(super) fn take_background(&self) -> Result<Box<Background>, EngineError> {
        let background = self.background.lock();
        let mut background = background.map_err(|_| EngineError::Closed(PANICKED))?;
        background.take().ok_or(EngineError::NotServing)
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
                return Err(EngineError::Closed(PANICKED));
            }
        };
        let Some(background) = background.as_deref_mut() else {
            return Err(EngineError::NotServing);
        };
        // What another region has met of the same device ends this one, too.
        let whole = background.check_device();
        let stepped = whole
            .and_then(|()| step(background))
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
