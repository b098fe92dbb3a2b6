//! Bf-Tree: open, put, delete, get, scan, close.
//!
//! A B+-tree whose leaves are partly kept in memory as *mini-pages*, in a circular buffer that is all of its
//! memory but for inner nodes. It has one setting for memory, which is a power of two; here that is the
//! greatest that fits. It reads and writes leaves by direct I/O on the calling thread, and has no background
//! work. Its log is on: a put waits until the log's own thread has written its block, which looks every
//! [`BfTreeSettings::log_interval`]; the log is not synced, and never becomes shorter.
//!
//! It panics where a file cannot be read or written, and knows no empty values.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bf_tree::{
    BfTree as Tree, Config, LeafInsertResult, LeafReadResult, ScanReturnField, StorageBackend,
    WalConfig,
};

/// Longest key and longest pair that are taken.
const KEY_BYTES_MAX: usize = 64;
const PAIR_BYTES_MAX: usize = 1952;

/// Why it did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("Bf-Tree could not {what}: {reason}")]
pub struct BfTreeError {
    /// What it was asked for.
    pub what: &'static str,
    /// What it said.
    pub reason: String,
}

impl BfTreeError {
    fn of(what: &'static str, reason: impl fmt::Debug) -> Self {
        Self {
            what,
            reason: format!("{reason:?}"),
        }
    }
}

/// What is set; all else is its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfTreeSettings {
    /// Bytes of the circular buffer; a power of two.
    pub buffer_bytes: usize,
    /// How often the log's thread looks for what is to be written.
    pub log_interval: Duration,
    /// Bytes of a block of the log, which is written whole.
    pub log_block_bytes: usize,
}

impl BfTreeSettings {
    /// What fits into `memory_bytes`.
    #[must_use]
    pub const fn within(memory_bytes: usize) -> Self {
        const BUFFER_BYTES_MIN: usize = 1 << 20;
        let buffer_bytes = match memory_bytes {
            ..BUFFER_BYTES_MIN => BUFFER_BYTES_MIN,
            memory_bytes => 1 << memory_bytes.ilog2(),
        };
        Self {
            buffer_bytes,
            log_interval: Duration::from_micros(50),
            log_block_bytes: 16 << 10,
        }
    }
}

impl fmt::Display for BfTreeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cb_size_byte={} storage=direct wal_flush_interval_us={} wal_segment_size={} (a put waits for \
             the log's write, which is not synced)",
            self.buffer_bytes,
            self.log_interval.as_micros(),
            self.log_block_bytes,
        )
    }
}

/// An open store.
pub struct BfTree {
    tree: Tree,
}

impl BfTree {
    /// Opens a new store in `dir`, which is there.
    ///
    /// # Errors
    /// [`BfTreeError`].
    pub fn open(dir: &Path, settings: &BfTreeSettings) -> Result<Self, BfTreeError> {
        let mut log = WalConfig::new(dir.join("log"));
        log.flush_interval(settings.log_interval)
            .segment_size(settings.log_block_bytes);
        let mut config = Config::new(dir.join("tree"), settings.buffer_bytes);
        config
            .storage_backend(StorageBackend::StdDirect)
            .cb_max_key_len(KEY_BYTES_MAX)
            .max_fence_len(2 * KEY_BYTES_MAX)
            .cb_max_record_size(PAIR_BYTES_MAX)
            .leaf_page_size(8 << 10)
            .enable_write_ahead_log(Arc::new(log));
        let tree = Tree::with_config(config, None);
        Ok(Self {
            tree: tree.map_err(|error| BfTreeError::of("open", error))?,
        })
    }

    /// Binds `key` to `value`.
    ///
    /// # Errors
    /// [`BfTreeError`], where nothing was written.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BfTreeError> {
        match self.tree.insert(key, value) {
            LeafInsertResult::Success => Ok(()),
            LeafInsertResult::InvalidKV(reason) => Err(BfTreeError::of("put", reason)),
        }
    }

    /// Deletes `key`.
    pub fn delete(&self, key: &[u8]) {
        self.tree.delete(key);
    }

    /// Hands the value of `key` to `found`.
    ///
    /// # Errors
    /// [`BfTreeError`], for a key that it does not take.
    #[inline]
    pub fn get<R>(
        &self,
        key: &[u8],
        found: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, BfTreeError> {
        let mut value = [0; PAIR_BYTES_MAX];
        match self.tree.read(key, &mut value) {
            LeafReadResult::Found(len) => Ok(found(value.get(..len as usize))),
            LeafReadResult::NotFound | LeafReadResult::Deleted => Ok(found(None)),
            LeafReadResult::InvalidKey => Err(BfTreeError::of("get", "the key is too long")),
        }
    }

    /// Hands the first `count` pairs at and behind `from` to `each`.
    ///
    /// # Errors
    /// [`BfTreeError`], for a key that it does not take.
    pub fn scan(
        &self,
        from: &[u8],
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), BfTreeError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count == 0 {
            return Ok(());
        }
        let pairs = ScanReturnField::KeyAndValue;
        let mut scan = self
            .tree
            .scan_with_count(from, count, pairs)
            .map_err(|error| BfTreeError::of("scan", error))?;
        let mut pair = [0; PAIR_BYTES_MAX];
        while let Some((key, value)) = scan.next(&mut pair) {
            let (front, rest) = pair.split_at(key);
            each(front, &rest[..value]);
        }
        Ok(())
    }
}
