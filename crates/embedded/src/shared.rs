//! What the clones, snapshots and scans of a store share: the engine, its threads, and how these end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use argosy_base::Lsn;
use argosy_device::Store;
use argosy_engine::long::{Uses, Versions};
use argosy_engine::scrub::{Pace as ScrubPace, Scrubber};
use argosy_engine::{BusyReason, EngineError, Excess, Store as _};
use argosy_lsm::Lsm;
use argosy_lsm::pins::Pins;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::builder::Durability;
use crate::error::{Error, Result};
use crate::pace::Pace;
use crate::unclosed::Unclosed;
use crate::{logs, stepper};

/// What a store is made of when it has been opened.
pub(crate) struct Opened {
    pub(crate) engine: Arc<Lsm>,
    pub(crate) pins: Pins,
    pub(crate) store: Arc<Store>,
    pub(crate) path: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) patience: Duration,
    pub(crate) scrub: ScrubPace,
    pub(crate) memory: Option<(Excess, stepper::Resident)>,
    /// A number that no store was opened with before.
    pub(crate) random: u128,
    /// Of the directory, and of its windows.
    pub(crate) locks: [File; 2],
}

/// What clones, snapshots and scans share. The locks fall last.
pub(crate) struct Shared {
    pub(crate) engine: Arc<Lsm>,
    pub(crate) pins: Pins,
    pub(crate) store: Arc<Store>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) scrubber: Arc<Mutex<Scrubber>>,
    pub(crate) long: LongValues,
    /// The threads, until the store is closed; then how that went.
    ending: Mutex<Ending>,
    closed: AtomicBool,
    pub(crate) path: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) patience: Duration,
    _locks: [File; 2],
}

/// What a store knows of its values in parts.
pub(crate) struct LongValues {
    pub(crate) versions: Versions,
    /// Held by whoever reads parts of what is overwritten, and all the time by the sweeper when it removes some.
    pub(crate) sweeping: Arc<RwLock<()>>,
    /// Which of them are being written.
    pub(crate) uses: Arc<Uses>,
}

/// How far a store's end has come.
enum Ending {
    Running([JoinHandle<()>; 2]),
    Ended(Result<()>),
}

impl Shared {
    /// Starts the background thread, and that of the logs.
    pub(crate) fn start(opened: Opened) -> Result<Arc<Self>> {
        let pace: Arc<Pace> = Arc::default();
        for_wakes(&opened, &pace);
        let scrubber = Arc::new(Mutex::new(Scrubber::new(opened.scrub)));
        let sweeping: Arc<RwLock<()>> = Arc::default();
        let uses: Arc<Uses> = Arc::default();
        let chores = stepper::Chores {
            scrubber: Arc::clone(&scrubber),
            sweeping: Arc::clone(&sweeping),
            uses: Arc::clone(&uses),
            store: Arc::clone(&opened.store),
            memory: opened.memory,
        };
        let threads = start_threads(&opened.engine, &opened.path, &pace, chores)?;
        Ok(Arc::new(Self {
            engine: opened.engine,
            pins: opened.pins,
            store: opened.store,
            pace,
            scrubber,
            long: LongValues {
                versions: Versions::new(opened.random),
                sweeping,
                uses,
            },
            ending: Mutex::new(Ending::Running(threads)),
            closed: AtomicBool::new(false),
            path: opened.path,
            durability: opened.durability,
            patience: opened.patience,
            _locks: opened.locks,
        }))
    }

    pub(crate) fn scrubber(&self) -> MutexGuard<'_, Scrubber> {
        self.scrubber.lock()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Relaxed) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Waits for what background work brings about. A full device is no reason to wait.
    pub(crate) fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> Result<T> {
        self.until_tried(|| match done() {
            None if self.engine.is_full() => {
                Err(Error::from(EngineError::Busy(BusyReason::DeviceFull)))
            }
            done => Ok(done),
        })
    }

    /// Waits for what background work tells, whether the device is full or not.
    pub(crate) fn until_told<T>(&self, mut told: impl FnMut() -> Option<T>) -> Result<T> {
        self.until_tried(|| Ok(told()))
    }

    fn until_tried<T>(&self, attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let done = self.pace.until_room(Duration::MAX, attempt, Error::from)?;
        Ok(done.expect("there is no end to the patience"))
    }

    /// Returns when everything up to `lsn` is durable, or cannot be made so.
    pub(crate) fn until_durable(&self, lsn: argosy_base::Lsn) -> Result<(), EngineError> {
        let full = || self.engine.is_full();
        self.pace.until_durable(lsn, self.patience, full)
    }

    /// Returns when what is shown up to `lsn` can be shown: with [`Durability::Sync`], once it is durable.
    #[inline]
    pub(crate) fn shown_up_to(&self, lsn: Lsn) -> Result<()> {
        match self.durability {
            Durability::Sync => Ok(self.until_durable(lsn)?),
            _ => Ok(()),
        }
    }

    pub(crate) fn stop(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        self.pace.stop();
        // Held to the end: who comes second waits for it, and is told the same.
        let mut ending = self.ending.lock();
        let threads = match std::mem::replace(&mut *ending, Ending::Ended(Ok(()))) {
            Ending::Running(threads) => threads,
            Ending::Ended(result) => {
                *ending = Ending::Ended(result.clone());
                return result;
            }
        };
        // A panic of one of them was told to whoever waits; what is left is to stop.
        for thread in threads {
            let _ = thread.join();
        }
        let closed = self.engine.close();
        // Where that fails, opening mends the copy of the catalog that is behind.
        let _ = self.store.finish_changes();
        if closed.is_ok() {
            Unclosed::remove(&self.path);
        }
        // Who waits for durability, or shows what waits for it, goes on.
        self.pace.end(self.engine.durable_lsn(), &closed);
        let result = closed.map_err(Error::NotDurable);
        *ending = Ending::Ended(result.clone());
        result
    }
}

/// What a thread of a store does.
type ThreadBody = Box<dyn FnOnce(&Lsm, &Pace) + Send>;

/// Starts the background thread, and that of the logs.
fn start_threads(
    engine: &Arc<Lsm>,
    path: &Path,
    pace: &Arc<Pace>,
    chores: stepper::Chores,
) -> Result<[JoinHandle<()>; 2]> {
    let start = |name: &str, body: ThreadBody| {
        let (engine, pace) = (Arc::clone(engine), Arc::clone(pace));
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread
            .spawn(move || body(&engine, &pace))
            .map_err(|e| Error::system("start a thread for", path, &e))
    };
    let logs = start("argosy-logs", Box::new(logs::make_durable))?;
    let body = move |engine: &Lsm, pace: &Pace| stepper::background(engine, pace, &chores);
    match start("argosy", Box::new(body)) {
        Ok(background) => Ok([logs, background]),
        Err(error) => {
            pace.stop();
            let _ = logs.join();
            Err(error)
        }
    }
}

/// Has the engine and the device ring for the threads.
fn for_wakes(opened: &Opened, pace: &Arc<Pace>) {
    let of_engine = Arc::clone(pace);
    opened.engine.set_waker(Arc::new(move || of_engine.ring()));
    let of_device = Arc::clone(pace);
    opened
        .store
        .set_waker(Arc::new(move || of_device.device_done()));
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Who wants to know whether it worked calls `close`.
        let _ = self.stop();
    }
}
