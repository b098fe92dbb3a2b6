//! A store: reads of it, and what concerns it as a whole.

use std::path::Path;
use std::sync::Arc;

use argosy_base::{Lsn, SEGMENT_SIZE};
use argosy_engine::damage::{Damage, DamagedSegment};
use argosy_engine::long::{check_users, is_head};
use argosy_engine::{Reach, Store};

use crate::bounds::KeyBounds;
use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::scan::{Scan, Snapshot};
use crate::shared::{Opened, Shared};
use crate::table::Table;
use crate::{Memory, ScrubStats};

/// A store. See the [crate's documentation](crate).
///
/// Clones are the same store; it is closed when the last of them is dropped.
#[derive(Clone)]
pub struct Db {
    pub(crate) shared: Arc<Shared>,
}

/// What a store has done and holds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DbStats {
    /// The engine's counters: levels, logs, memtables, merges, cache, filters.
    pub engine: argosy_lsm::db::Stats,
    /// What the store takes of memory. Memtables and buffers are those of all stores of the process.
    pub memory: Memory,
    /// What the store's device has done and holds.
    pub device: DeviceUse,
    /// Whether new data is turned away because the device is full.
    pub full: bool,
    /// The write or sync of the device that failed, since when the store takes no more writes.
    pub failed: Option<String>,
    /// What scrubbing has read, and found.
    pub scrub: ScrubStats,
    /// Whether everything that was written is durable.
    pub durable: bool,
}

/// What the device of a store has done and holds.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DeviceUse {
    /// Bytes that the store may take on its file system.
    pub bytes: u64,
    /// Bytes that it takes.
    pub used_bytes: u64,
    /// Bytes read from the device since it was opened.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub write_bytes: u64,
    /// Syncs of it.
    pub syncs: u64,
    /// Reads of it that went through io_uring; those of them into registered memory.
    pub ring_reads: (u64, u64),
    /// The best way by which bytes come from it: `plain`, `io_uring`, `io_uring with registered buffers`.
    pub io: &'static str,
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
    pub(crate) fn start(opened: Opened) -> Result<Self> {
        let shared = Shared::start(opened)?;
        Ok(Self { shared })
    }

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
        shared.shown_up_to(found.wait.lsn())?;
        match found.value {
            Some(head) if is_head(&head) => self.snapshot().get(key),
            value => Ok(value),
        }
    }

    /// The value of `key`, and a version for [`Condition::Version`](crate::Condition::Version): a write under that
    /// condition is applied only if nobody wrote the key in between.
    ///
    /// It may be refused though nobody did: levels do not keep versions, so where a memtable went to the levels in
    /// between, each key that no memtable has is of a newer version. Read again then, and write under the version
    /// that this tells, as often as it takes; under a load of writes that may be a few times in a row.
    /// [`compare_and_swap`](Self::compare_and_swap) looks at the value alone, and is refused only where that is
    /// another one.
    ///
    /// ```
    /// use argosy_embedded::Condition;
    ///
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
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
            shared.shown_up_to(found.wait.lsn())?;
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
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
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
        let newest = found.iter().map(|found| found.wait.lsn()).max();
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
        shared.shown_up_to(found.wait.lsn())?;
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
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// db.put([1], "one")?;
    /// db.put([2], "two")?;
    /// db.put([3], "three")?;
    /// let (key, _) = db.range([1]..=[2]).next_back().unwrap()?;
    /// assert_eq!(key, [2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&self, range: impl KeyBounds) -> Scan {
        self.snapshot().range(range)
    }

    /// The pairs whose keys begin with `prefix` as they are now, by rising keys; from the highest down
    /// with `rev`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        self.snapshot().prefix(prefix)
    }

    /// The table `name`, which is part of this store: its keys are those that begin with the name and a zero byte.
    ///
    /// ```
    /// use argosy_embedded::WriteBatch;
    ///
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// let users = db.table("users")?;
    /// let mails = db.table("mails")?;
    /// users.put("1", "Ada")?;
    /// assert_eq!(mails.get("1")?, None);
    ///
    /// // What belongs together is written together, whatever tables it is in.
    /// let mut batch = WriteBatch::new();
    /// batch.put(users.key("2"), "Grace")?;
    /// batch.put(mails.key("grace@example.org"), "2")?;
    /// db.write(&batch)?;
    ///
    /// let names: Result<Vec<_>, _> = users.range("1"..="2").collect();
    /// assert_eq!(names?[1], (b"2".to_vec(), b"Grace".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableName`] where the name is empty, too long, or has a zero byte.
    pub fn table(&self, name: impl AsRef<[u8]>) -> Result<Table> {
        Table::of(self.clone(), name.as_ref())
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

    /// Runs a full compaction: all data is merged into one level, without the entries that were overwritten or
    /// deleted. Returns when that is done. It helps after many deletes, or before many reads. The store also compacts
    /// by itself, as necessary. Writes continue meanwhile, and prolong the compaction.
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

    /// Waits until nothing is left to do in the background: everything that was written before is durable, no memtable
    /// is to be flushed, and no merge is due. What others write meanwhile is waited for as well. For programs that
    /// measure, or want to be undisturbed afterwards.
    ///
    /// # Errors
    /// As [`compact`](Self::compact); [`Error::NotDurable`].
    pub fn drain(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.check_open()?;
        let durable = shared.until_durable(shared.engine.last_lsn());
        durable.map_err(Error::NotDurable)?;
        shared.pace.begin_rest();
        // A turn may find nothing to do because it waits for the device, so the engine is asked as well.
        let is_drained = || shared.pace.is_resting() && shared.engine.background_pending() == 0;
        shared.until(|| is_drained().then_some(()))
    }

    /// What the store takes of memory, as [`stats`](Self::stats) has it; cheap enough to ask all the time.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.shared.engine.memory()
    }

    /// What the store has done and holds.
    #[must_use]
    pub fn stats(&self) -> DbStats {
        let (engine, store) = (&self.shared.engine, &self.shared.store);
        let moved = store.device().counters();
        let segment = SEGMENT_SIZE as u64;
        DbStats {
            engine: engine.stats(),
            memory: self.memory(),
            device: DeviceUse {
                bytes: u64::from(store.total()) * segment,
                used_bytes: u64::from(store.used()) * segment,
                read_bytes: moved.read_bytes,
                write_bytes: moved.write_bytes,
                syncs: moved.syncs,
                ring_reads: (moved.ring_reads, moved.fixed_reads),
                io: store.device().io_method().name(),
            },
            full: engine.is_full(),
            scrub: self.shared.scrubber().stats(),
            failed: store.failure().map(|error| error.to_string()),
            durable: engine.durable_lsn() >= engine.last_lsn(),
        }
    }

    /// What [scrubbing](crate::Builder::scrub_period) has found to be damaged since the store was opened, with the
    /// keys that it concerns. Reads of them fail; all others are as they were.
    #[must_use]
    pub fn damages(&self) -> Vec<Damage> {
        let copy = self.shared.engine.stored();
        let scrubber = self.shared.scrubber();
        scrubber.damages_in(&*copy).cloned().collect()
    }

    /// Segments that reads, merges and scrubs have found damaged since the store was opened: reads of them fail, and
    /// merges pass over their keys. At most [`DAMAGES_MAX`](argosy_lsm::damage::DAMAGES_MAX).
    #[must_use]
    pub fn damaged_segments(&self) -> Vec<DamagedSegment> {
        self.shared.engine.stored().damaged()
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

/// What can be handed to other threads.
pub(crate) const fn shared_between_threads<T: Send + Sync + 'static>() {}

const _: fn() = || shared_between_threads::<Db>();
