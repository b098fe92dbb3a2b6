//! fjall: open, put, delete, get, scan, wait, close.
//!
//! It is opened as `RocksDb` is, as far as it can be: the same memtables, a cache of what is left of the
//! memory, a first level of four files, no compression, filters of its default (ten bits a key), two worker
//! threads, and a journal that is handed to the system with every write but not synced. It reads and writes
//! through the system's page cache, and there is no setting for direct I/O: what it finds there is neither
//! counted as read nor part of the memory that it was given.
//!
//! It is told when to turn a memtable over. By itself it asks its workers for that once with every put behind the
//! end of a memtable; where they are late the queue of such messages is full, and both workers wait for room in
//! it, which they alone could make (fjall 3.1.13; its pull request 323 would mend it): it never goes on. Turned
//! over by the writer the queue stays short.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::compaction::Leveled;
use fjall::config::CompressionPolicy;
use fjall::{AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions};

/// Why it did not do what it was asked for. Of a write it is not known whether it was applied.
#[derive(Debug, thiserror::Error)]
#[error("fjall could not {what}: {reason}")]
pub struct FjallError {
    /// What it was asked for.
    pub what: &'static str,
    /// What it said.
    pub reason: String,
}

/// The error of doing `what`.
fn refused<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> FjallError {
    move |error| FjallError {
        what,
        reason: error.to_string(),
    }
}

/// What is set; all else is its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FjallSettings {
    /// Bytes of a memtable.
    pub memtable_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Threads that flush and compact.
    pub workers: usize,
}

impl FjallSettings {
    /// Memtables of `memtable_bytes`, two at a time, and a cache that have `memory_bytes` together.
    #[must_use]
    pub fn within(memory_bytes: usize, memtable_bytes: usize) -> Self {
        const CACHE_BYTES_MIN: usize = 1 << 20;
        let cache = memory_bytes.saturating_sub(2 * memtable_bytes);
        Self {
            memtable_bytes: memtable_bytes as u64,
            cache_bytes: cache.max(CACHE_BYTES_MIN) as u64,
            workers: 2,
        }
    }
}

impl fmt::Display for FjallSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "max_memtable_size={} cache_size={} worker_threads={} l0_threshold=4 table_target_size={} \
             compression=none manual_journal_persist=0 (buffered I/O, journal not synced)",
            self.memtable_bytes, self.cache_bytes, self.workers, self.memtable_bytes,
        )
    }
}

/// An open store.
pub struct Fjall {
    keyspace: Keyspace,
    database: Database,
    memtable_bytes: u64,
    /// Bytes put since a memtable was turned over.
    put_bytes: AtomicU64,
}

/// Bytes of a memtable that a pair takes beside key and value.
const PAIR_BYTES: u64 = 48;

/// Bytes of the journal that a put takes beside key and value: the markers of a batch's beginning and end, and
/// the head of its one item.
const JOURNAL_BYTES: u64 = 13 + 13 + 21;

impl Fjall {
    /// Opens a new store in `dir`.
    ///
    /// # Errors
    /// [`FjallError`].
    pub fn open(dir: &Path, settings: &FjallSettings) -> Result<Self, FjallError> {
        let database = Database::builder(dir)
            .cache_size(settings.cache_bytes)
            .worker_threads(settings.workers)
            .journal_compression(CompressionType::None)
            .open()
            .map_err(refused("open"))?;
        let memtable_bytes = settings.memtable_bytes;
        let options = move || {
            let leveled = Leveled::default()
                .with_l0_threshold(4)
                .with_table_target_size(memtable_bytes);
            KeyspaceCreateOptions::default()
                .max_memtable_size(u64::MAX)
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
                .compaction_strategy(Arc::new(leveled))
        };
        let keyspace = database.keyspace("bench", options);
        Ok(Self {
            keyspace: keyspace.map_err(refused("make a keyspace"))?,
            database,
            memtable_bytes,
            put_bytes: AtomicU64::new(0),
        })
    }

    /// Binds `key` to `value`.
    ///
    /// # Errors
    /// [`FjallError`].
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), FjallError> {
        self.keyspace.insert(key, value).map_err(refused("put"))?;
        let bytes = PAIR_BYTES + key.len() as u64 + value.len() as u64;
        // Relaxed: a count; of several writers the one that passes the end turns the memtable over.
        let before = self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before < self.memtable_bytes && before + bytes >= self.memtable_bytes {
            self.put_bytes.store(0, Ordering::Relaxed);
            self.keyspace
                .rotate_memtable()
                .map_err(refused("turn a memtable over"))?;
        }
        Ok(())
    }

    /// Deletes `key`.
    ///
    /// # Errors
    /// [`FjallError`].
    pub fn delete(&self, key: &[u8]) -> Result<(), FjallError> {
        self.keyspace.remove(key).map_err(refused("delete"))
    }

    /// Hands the value of `key` to `found`.
    ///
    /// # Errors
    /// [`FjallError`].
    #[inline]
    pub fn get<R>(
        &self,
        key: &[u8],
        found: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, FjallError> {
        let value = self.keyspace.get(key).map_err(refused("get"))?;
        Ok(found(value.as_deref()))
    }

    /// Hands the first `count` pairs at and behind `from` to `each`.
    ///
    /// # Errors
    /// [`FjallError`].
    pub fn scan(
        &self,
        from: &[u8],
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), FjallError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        for guard in self.keyspace.range(from..).take(count) {
            let (key, value) = guard.into_inner().map_err(refused("scan"))?;
            each(&key, &value);
        }
        Ok(())
    }

    /// Flushes and compactions that are under way or waited for.
    #[must_use]
    pub fn pending(&self) -> usize {
        let database = &self.database;
        let sealed = self.keyspace.tree.sealed_memtable_count();
        sealed + database.outstanding_flushes() + database.active_compactions()
    }

    /// The deepest level that holds a table, counted from the one that memtables are flushed to.
    #[must_use]
    pub fn levels(&self) -> u64 {
        let holds = |level: &usize| {
            let tables = self.keyspace.tree.level_table_count(*level);
            tables.is_some_and(|tables| tables > 0)
        };
        (0..7)
            .filter(holds)
            .max()
            .map_or(0, |level| level as u64 + 1)
    }

    /// Tables that flushes and compactions made so far, as far as it tells: its compactions.
    #[must_use]
    pub fn compactions(&self) -> u64 {
        self.database.compactions_completed() as u64
    }

    /// Bytes that a put of so many writes into the journal.
    #[must_use]
    pub const fn journal_bytes(key: usize, value: usize) -> u64 {
        JOURNAL_BYTES + key as u64 + value as u64
    }
}
