//! A store in a program of one's own: no server, no network, one directory.
//!
//! ```
//! use argosy::{Condition, Db, WriteBatch};
//!
//! # fn main() -> Result<(), argosy::Error> {
//! # let path = argosy::db::example("mod");
//! let db = Db::open(&path)?;
//!
//! // Keys and values are bytes; keys are in the order of their bytes.
//! db.put("user:1", "Ada")?;
//! db.put("user:2", "Grace")?;
//! assert_eq!(db.get("user:1")?.as_deref(), Some(&b"Ada"[..]));
//! assert!(db.delete("user:2")?);
//!
//! // What belongs together is written together.
//! let mut batch = WriteBatch::new();
//! batch.put(b"user:3", b"Edsger")?;
//! batch.put(b"index:Edsger", b"user:3")?;
//! db.write(&batch)?;
//!
//! // Only if nobody else was first.
//! assert!(!db.put_if("user:3", "Barbara", Condition::Absent)?);
//!
//! // Ranges and prefixes, from either end.
//! let users: Result<Vec<_>, _> = db.prefix("user:").rev().collect();
//! assert_eq!(users?[0], (b"user:3".to_vec(), b"Edsger".to_vec()));
//!
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Db`] may be cloned and called from any thread. Reads take no lock, but for the first that comes upon
//! a pair which has expired. Writes are in one order, and
//! each is applied as a whole or not at all. When a write is *durable* is up to [`Durability`].
//!
//! One thread in the background flushes and merges. It sleeps while there is nothing to do, and ends
//! with the last `Db`, [`Snapshot`] or [`Scan`]. Dropping these is a clean stop: what was written is
//! made durable, and opening again replays no more than one memtable's worth of log. [`Db::close`] does
//! the same, and tells whether it worked.
//!
//! Where writes come faster than merges can follow, or the device is full, a write waits, at most as
//! long as [`Builder::patience`] says, and then returns [`Error::Busy`] with the reason.
//!
//! Values have up to 64 MiB. One of more than 1 MiB is kept in parts, and read and written as a whole: it is
//! put by itself, not in a batch.
//!
//! Reading order: `builder` and `place` (opening), this file, `write`, `scan`, `long` (values in parts), `checkpoint`,
//! `ingest`, `stepper` (the background thread), `pace` (what it and callers tell each other), `error`.

mod builder;
mod checkpoint;
mod clock;
mod damage;
mod error;
mod ingest;
mod long;
mod pace;
#[cfg(test)]
mod pace_tests;
mod place;
mod scan;
mod stepper;
mod sync;
pub(crate) mod unclosed;
mod write;

use std::fs::File;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use argosy_base::SEGMENT_SIZE;
use argosy_device::Store;
use argosy_engine::Engine;
use argosy_engine::long::{Uses, Versions, check_users, is_head};
use argosy_lsm::Lsm;
use argosy_lsm::excess::Excess;
use argosy_lsm::pins::Pins;
use argosy_lsm::scrub::Scrubber;

pub use argosy_base::{KeyRange, Lsn, Moment, Outcome, Remedy};
pub use argosy_engine::{
    BatchError, BusyReason, Change, Changed, Condition, EngineError, Expiry, Only, Reach, Refusal,
    WriteBatch, Written,
};
pub use argosy_lsm::db::ingest::IngestError;
pub use argosy_lsm::pins::PinError;
pub use argosy_lsm::scrub::{Pace as ScrubPace, ScrubStats};
pub use argosy_lsm::{Memory, Placement, Settings};
pub use builder::{Builder, Durability};
pub use checkpoint::Checkpoint;
pub use damage::{Damage, DamagedSegment};
pub use error::{Error, Result};
pub use scan::{Scan, Snapshot};
pub use write::WriteOptions;

#[cfg(feature = "cli")]
pub(crate) use place::CLUSTER as EMBEDDED_CLUSTER;

use pace::Pace;
use unclosed::Unclosed;

/// A store. See the [module's documentation](self).
///
/// Clones are the same store; it is closed when the last of them is dropped.
#[derive(Clone)]
pub struct Db {
    shared: Arc<Shared>,
}

/// What a store has done and holds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The engine's counters: levels, logs, memtables, merges, cache, filters.
    pub engine: argosy_lsm::db::Stats,
    /// What the store takes of memory. Memtables and buffers are those of all stores of the process.
    pub memory: Memory,
    /// Bytes that the store may take on its file system.
    pub device_bytes: u64,
    /// Bytes that it takes.
    pub device_used_bytes: u64,
    /// Bytes read from the device since it was opened.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub write_bytes: u64,
    /// Syncs of it.
    pub syncs: u64,
    /// Reads of it that went through io_uring; those of them into registered memory.
    pub ring_reads: (u64, u64),
    /// The best way by which bytes come from it: `plain`, `io_uring`, `io_uring with registered buffers`.
    pub device_io: &'static str,
    /// Whether new data is turned away because the device is full.
    pub full: bool,
    /// The write or sync of the device that failed, since when the store takes no more writes.
    pub failed: Option<String>,
    /// What scrubbing has read, and found.
    pub scrub: ScrubStats,
    /// Whether everything that was written is durable.
    pub durable: bool,
}

/// What a store is made of when it has been opened.
struct Opened {
    engine: Arc<Lsm>,
    pins: Pins,
    store: Arc<Store>,
    path: PathBuf,
    durability: Durability,
    patience: Duration,
    scrub: ScrubPace,
    memory: Option<(Excess, stepper::Resident)>,
    /// A number that no store was opened with before.
    random: u128,
    /// Of the directory, and of its windows.
    locks: [File; 2],
}

/// What clones, snapshots and scans share. The locks fall last.
struct Shared {
    engine: Arc<Lsm>,
    pins: Pins,
    store: Arc<Store>,
    pace: Arc<Pace>,
    scrubber: Arc<Mutex<Scrubber>>,
    /// Of values in parts.
    versions: Versions,
    /// Held by whoever reads parts of what is overwritten, and all the time by the sweeper when it removes some.
    sweeping: Arc<RwLock<()>>,
    /// Which long values are being written.
    uses: Arc<Uses>,
    /// The background thread, until the store is closed; then how that went.
    ending: Mutex<Ending>,
    closed: AtomicBool,
    path: PathBuf,
    durability: Durability,
    patience: Duration,
    _locks: [File; 2],
}

/// How far a store's end has come.
enum Ending {
    Running(JoinHandle<()>),
    Ended(Result<()>),
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db")
            .field("path", &self.shared.path)
            .field("durability", &self.shared.durability)
            .finish_non_exhaustive()
    }
}

impl Db {
    /// Opens the store in the directory `path`, or makes it there, with the settings that come with it.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Builder::new().open(path)
    }

    /// What can be set before a store is opened.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn start(opened: Opened) -> Result<Self> {
        let pace: Arc<Pace> = Arc::default();
        for_wakes(&opened, &pace);
        let (engine, stepped) = (Arc::clone(&opened.engine), Arc::clone(&pace));
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
        let thread = std::thread::Builder::new()
            .name("argosy".to_owned())
            .spawn(move || stepper::background(&engine, &stepped, &chores))
            .map_err(|e| Error::system("start a thread for", &opened.path, &e))?;
        let shared = Shared {
            engine: opened.engine,
            pins: opened.pins,
            store: opened.store,
            pace,
            scrubber,
            versions: Versions::new(opened.random),
            sweeping,
            uses,
            ending: Mutex::new(Ending::Running(thread)),
            closed: AtomicBool::new(false),
            path: opened.path,
            durability: opened.durability,
            patience: opened.patience,
            _locks: opened.locks,
        };
        let shared = Arc::new(shared);
        Ok(Self { shared })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    // --- Reads ---

    /// The value of `key`, or `None` where it has none.
    ///
    /// # Errors
    /// [`Error::Limit`] where no key is like that; [`Error::Engine`] where the device fails or what it
    /// holds is damaged; [`Error::Closed`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.pace.read();
        check_users(key.as_ref())?;
        let found = shared.engine.get(key.as_ref())?;
        shared.shown_up_to(found.lsn)?;
        match found.value {
            Some(head) if is_head(&head) => self.snapshot().get(key),
            value => Ok(value),
        }
    }

    /// The value of `key`, and a version for [`Condition::Version`]: a write under that condition is applied
    /// only if nobody wrote the key in between.
    ///
    /// It may be refused though nobody did: levels do not keep versions, so where a memtable went to the levels in
    /// between, each key that no memtable has is of a newer version. Read again then, and write under the version
    /// that this tells, as often as it takes; under a load of writes that may be a few times in a row.
    /// [`compare_and_swap`](Self::compare_and_swap) looks at the value alone, and is refused only where that is
    /// another one.
    ///
    /// ```
    /// use argosy::Condition;
    ///
    /// # fn main() -> Result<(), argosy::Error> {
    /// # let path = argosy::db::example("versions");
    /// # let db = argosy::Db::open(&path)?;
    /// db.put("k", "1")?;
    /// let (value, version) = db.get_with_version("k")?;
    /// db.put("k", "somebody else's")?;
    /// assert!(!db.put_if("k", "mine", Condition::Version(version))?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with_version(&self, key: impl AsRef<[u8]>) -> Result<(Option<Vec<u8>>, Lsn)> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.pace.read();
        check_users(key.as_ref())?;
        loop {
            let found = shared.engine.get(key.as_ref())?;
            shared.shown_up_to(found.lsn)?;
            match found.value {
                Some(head) if is_head(&head) => {
                    // The value of that version, or the next one's.
                    if let Some(value) = self.snapshot().get_if_head(key.as_ref(), &head)? {
                        return Ok((Some(value), found.version));
                    }
                }
                value => return Ok((value, found.version)),
            }
        }
    }

    /// The values of `keys` at one moment, in their order. What has to be read from the device for them is
    /// read as one request, so many keys take little longer than one.
    ///
    /// ```
    /// # fn main() -> Result<(), argosy::Error> {
    /// # let path = argosy::db::example("get-many");
    /// # let db = argosy::Db::open(&path)?;
    /// db.put("a", "1")?;
    /// assert_eq!(db.get_many(["a", "b"])?, [Some(b"1".to_vec()), None]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.pace.read();
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        keys.iter().try_for_each(|key| check_users(key))?;
        let found = shared.engine.get_many(&keys)?;
        let mut values = found.iter().filter_map(|found| found.value.as_deref());
        if values.any(is_head) {
            return self.snapshot().get_many(keys);
        }
        let newest = found.iter().map(|found| found.lsn).max();
        shared.shown_up_to(newest.unwrap_or_default())?;
        Ok(found.into_iter().map(|found| found.value).collect())
    }

    /// Whether `key` has a value. Costs as much as to find it: a value that lies apart from its key is not
    /// read.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.pace.read();
        check_users(key.as_ref())?;
        let found = shared.engine.outline(key.as_ref(), Reach::Device)?;
        shared.shown_up_to(found.lsn)?;
        Ok(found.len.is_some())
    }

    /// A view of the store at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.pace.read();
        Snapshot::new(self.shared.engine.snapshot_now(), Arc::clone(&self.shared))
    }

    /// All pairs as they are now, by rising keys; from the highest down with `rev`.
    pub fn iter(&self) -> Scan {
        self.snapshot().iter()
    }

    /// The pairs whose keys are in `range` as they are now, by rising keys; from the highest down with
    /// `rev`.
    ///
    /// ```
    /// # fn main() -> Result<(), argosy::Error> {
    /// # let path = argosy::db::example("range");
    /// # let db = argosy::Db::open(&path)?;
    /// db.put([1], "one")?;
    /// db.put([2], "two")?;
    /// db.put([3], "three")?;
    /// let (key, _) = db.range([1]..=[2]).next_back().unwrap()?;
    /// assert_eq!(key, [2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        self.snapshot().range(range)
    }

    /// The pairs whose keys begin with `prefix` as they are now, by rising keys; from the highest down
    /// with `rev`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        self.snapshot().prefix(prefix)
    }

    // --- The store as a whole ---

    /// Makes everything durable that was written before, and waits for it and for a mark on the device that says
    /// so: damage to what a flush confirmed is an error, at the next opening at the latest, and never taken for the end
    /// of what was written.
    ///
    /// # Errors
    /// [`Error::NotDurable`]; [`Error::Closed`].
    pub fn flush(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.check_open()?;
        let last = shared.engine.last_lsn();
        let full = || shared.engine.is_full();
        let marked = shared.pace.until_marked(last, shared.patience, full);
        marked.map_err(Error::NotDurable)
    }

    /// Merges everything into one level, drops what is overwritten or deleted, and waits for it. Worth
    /// its while after much was deleted, or before much is read; the store merges by itself as it has
    /// to. Writes go on meanwhile, and make it take longer.
    ///
    /// # Errors
    /// [`Error::Busy`] where the device is full: what was asked for goes on as far as there is room.
    /// [`Error::Engine`] where the device fails; [`Error::Closed`].
    pub fn compact(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.engine.compact_now();
        shared.until(|| (!shared.engine.is_compacting()).then_some(()))
    }

    /// What the store has done and holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (engine, store) = (&self.shared.engine, &self.shared.store);
        let moved = store.device().counters();
        let segment = SEGMENT_SIZE as u64;
        Stats {
            engine: engine.stats(),
            memory: engine.memory(),
            device_bytes: u64::from(store.total()) * segment,
            device_used_bytes: u64::from(store.used()) * segment,
            read_bytes: moved.read_bytes,
            write_bytes: moved.write_bytes,
            syncs: moved.syncs,
            ring_reads: (moved.ring_reads, moved.fixed_reads),
            device_io: store.device().io_method().name(),
            full: engine.is_full(),
            scrub: self.shared.scrubber().stats(),
            failed: store.failure().map(|error| error.to_string()),
            durable: engine.durable_lsn() >= engine.last_lsn(),
        }
    }

    /// Stops the store: makes everything durable and ends the background thread. Clones neither write nor
    /// get any more; snapshots and scans go on, and keep the directory from being opened again until they
    /// are dropped. Who closes it again is told how it went.
    ///
    /// # Errors
    /// [`Error::NotDurable`] where what was written could not be made durable. It is as safe then as
    /// after a kill.
    pub fn close(&self) -> Result<()> {
        self.shared.stop()
    }
}

/// Has the engine and the device ring for the background thread.
fn for_wakes(opened: &Opened, pace: &Arc<Pace>) {
    let ringing = || {
        let pace = Arc::clone(pace);
        Arc::new(move || pace.ring())
    };
    opened.engine.set_waker(ringing());
    opened.store.set_waker(ringing());
}

impl Shared {
    fn scrubber(&self) -> MutexGuard<'_, Scrubber> {
        self.scrubber.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Relaxed) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Waits for what background work brings about. A full device is no reason to wait.
    fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> Result<T> {
        let attempt = || match done() {
            None if self.engine.is_full() => {
                Err(Error::from(EngineError::Busy(BusyReason::DeviceFull)))
            }
            done => Ok(done),
        };
        let done = self.pace.until_room(Duration::MAX, attempt, Error::from)?;
        Ok(done.expect("there is no end to the patience"))
    }

    /// Returns when everything up to `lsn` is durable, or cannot be made so.
    fn until_durable(&self, lsn: argosy_base::Lsn) -> Result<(), EngineError> {
        let full = || self.engine.is_full();
        self.pace.until_durable(lsn, self.patience, full)
    }

    /// Returns when what is shown up to `lsn` can be shown: with [`Durability::Sync`], once it is durable.
    #[inline]
    fn shown_up_to(&self, lsn: Lsn) -> Result<()> {
        match self.durability {
            Durability::Sync => Ok(self.until_durable(lsn)?),
            _ => Ok(()),
        }
    }

    fn stop(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        self.pace.stop();
        // Held to the end: who comes second waits for it, and is told the same.
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = match std::mem::replace(&mut *ending, Ending::Ended(Ok(()))) {
            Ending::Running(thread) => thread,
            Ending::Ended(result) => {
                *ending = Ending::Ended(result.clone());
                return result;
            }
        };
        // A panic of that thread was told to whoever waits; what is left is to stop.
        let _ = thread.join();
        let closed = self.engine.close();
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

impl Drop for Shared {
    fn drop(&mut self) {
        // Who wants to know whether it worked calls `close`.
        let _ = self.stop();
    }
}

/// What can be handed to other threads.
const fn shared_between_threads<T: Send + Sync + 'static>() {}

const _: fn() = || shared_between_threads::<Db>();

/// A new directory for an example in this documentation, removed when the result is dropped. For
/// examples only.
#[doc(hidden)]
#[must_use]
pub fn example(name: &str) -> Example {
    let name = format!("argosy-example-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&path);
    Example(path)
}

/// See [`example`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Example(PathBuf);

impl AsRef<Path> for Example {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
