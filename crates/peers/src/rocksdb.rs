//! RocksDB: open, put, delete, get, scan, flush, wait, close.
//!
//! The library is opened as its own guides advise for fast devices: direct I/O for reads, flushes and
//! compactions, no compression, a Bloom filter in every table, a log that is written, and synced only if
//! [`RocksDbSettings::sync`] asks for it. What is set is in [`RocksDbSettings`], which prints itself; all else is the
//! library's default, indexes and filters beside the block cache among it.
//!
//! Handles belong to one [`RocksDb`], which closes them in the opposite order. The C interface
//! allows calls from several threads at once, so a `RocksDb` is shared like any other reference; an
//! iterator is not, and never leaves the call that makes it.

mod ffi;

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Why the library did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It said why. Of a write it is not known whether it was applied.
    #[error("RocksDB could not {what}: {reason}")]
    Refused {
        /// What it was asked for.
        what: &'static str,
        /// What it said.
        reason: String,
    },
    /// A directory's name that no C text can hold.
    #[error("RocksDB cannot be opened in {path:?}: the path holds a zero byte")]
    Path {
        /// The directory.
        path: PathBuf,
    },
    /// This version lacks something that we read.
    #[error("this RocksDB does not tell its {what}")]
    Untold {
        /// What is missing.
        what: &'static str,
    },
}

/// What is set; all else is the library's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocksDbSettings {
    /// Bytes of one memtable.
    pub write_buffer_bytes: usize,
    /// So many memtables, the one that is written among them.
    pub write_buffers: u8,
    /// Bytes of the block cache.
    pub cache_bytes: usize,
    /// Flushes and compactions at once.
    pub background_jobs: u8,
    /// Bits of the Bloom filter for each key.
    pub bloom_bits: u8,
    /// The log is synced before a write returns.
    pub sync: bool,
}

impl RocksDbSettings {
    /// Memtables of `write_buffer_bytes` and a cache that have `memory_bytes` together.
    #[must_use]
    pub fn within(memory_bytes: usize, write_buffer_bytes: usize) -> Self {
        const WRITE_BUFFERS: u8 = 2;
        const CACHE_BYTES_MIN: usize = 1 << 20;
        let buffers = usize::from(WRITE_BUFFERS) * write_buffer_bytes;
        Self {
            write_buffer_bytes,
            write_buffers: WRITE_BUFFERS,
            cache_bytes: memory_bytes.saturating_sub(buffers).max(CACHE_BYTES_MIN),
            background_jobs: 2,
            bloom_bits: 10,
            sync: false,
        }
    }

    /// Bytes of the first level below the one that memtables are flushed to: as many memtables as
    /// that holds files, which is also the ratio of the library's defaults.
    const fn level_base_bytes(&self) -> u64 {
        4 * self.write_buffer_bytes as u64
    }
}

impl fmt::Display for RocksDbSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write_buffer_size={} max_write_buffer_number={} block_cache={} \
             max_background_jobs={} bloom_bits={} max_bytes_for_level_base={} \
             target_file_size_base={} compression=none use_direct_reads=1 \
             use_direct_io_for_flush_and_compaction=1 sync={}",
            self.write_buffer_bytes,
            self.write_buffers,
            self.cache_bytes,
            self.background_jobs,
            self.bloom_bits,
            self.level_base_bytes(),
            self.write_buffer_bytes,
            u8::from(self.sync),
        )
    }
}

/// A handle of the C interface, and how it is given back.
struct Owned<T> {
    raw: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Takes over `raw`, which `destroy` gives back.
    ///
    /// # Safety
    /// `raw` is null or a handle that belongs to the caller, and `destroy` is its function.
    unsafe fn new(raw: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        NonNull::new(raw).map(|raw| Self { raw, destroy })
    }

    /// # Safety
    /// As [`new`](Self::new); and `raw` is null only where memory ran out.
    unsafe fn made(raw: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Self {
        // SAFETY: the caller's promise is the same.
        let made = unsafe { Self::new(raw, destroy) };
        made.expect("the library ends the process when memory runs out")
    }

    const fn get(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let destroy = self.destroy;
        // SAFETY: the handle belongs to us and is not used any more; `destroy` is its function.
        unsafe { destroy(self.raw.as_ptr()) }
    }
}

/// An open store.
pub struct RocksDb {
    // Closed first: fields are dropped in their order.
    db: Owned<ffi::Db>,
    reads: Owned<ffi::ReadOptions>,
    writes: Owned<ffi::WriteOptions>,
    flushes: Owned<ffi::FlushOptions>,
}

// SAFETY: the library allows calls on an open store from any thread, several at once; the three
// options are only read.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

impl fmt::Debug for RocksDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksDb").finish_non_exhaustive()
    }
}

impl RocksDb {
    /// Opens the store in `dir`, making it where there is none.
    pub fn open(dir: &Path, settings: &RocksDbSettings) -> Result<Self, PeerError> {
        let name = CString::new(dir.as_os_str().as_bytes());
        let name = name.map_err(|_| PeerError::Path {
            path: dir.to_path_buf(),
        })?;
        let options = options(settings);
        let db = checked("open its directory", |error| {
            // SAFETY: the options and the name live through the call, which copies both.
            unsafe { ffi::rocksdb_open(options.get(), name.as_ptr(), error) }
        })?;
        // SAFETY: a constructor without conditions.
        let reads = unsafe { ffi::rocksdb_readoptions_create() };
        // SAFETY: as above.
        let writes = unsafe { ffi::rocksdb_writeoptions_create() };
        // SAFETY: they are ours, and not in use yet.
        unsafe { ffi::rocksdb_writeoptions_set_sync(writes, u8::from(settings.sync)) };
        // SAFETY: as above. To wait is the default.
        let flushes = unsafe { ffi::rocksdb_flushoptions_create() };
        Ok(Self {
            // SAFETY: it belongs to us, and this closes it.
            db: unsafe { Owned::made(db, ffi::rocksdb_close) },
            // SAFETY: as above.
            reads: unsafe { Owned::made(reads, ffi::rocksdb_readoptions_destroy) },
            // SAFETY: as above.
            writes: unsafe { Owned::made(writes, ffi::rocksdb_writeoptions_destroy) },
            // SAFETY: as above.
            flushes: unsafe { Owned::made(flushes, ffi::rocksdb_flushoptions_destroy) },
        })
    }

    /// Writes a pair. It is in the log when this returns, synced where [`RocksDbSettings::sync`] says so.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), PeerError> {
        let (db, options) = (self.db.get(), self.writes.get());
        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
        checked("write a pair", |error| {
            // SAFETY: the handles are open; key and value have so many bytes, and are copied.
            unsafe { ffi::rocksdb_put(db, options, k, key.len(), v, value.len(), error) }
        })
    }

    /// Removes a key, whether or not it is there.
    pub fn delete(&self, key: &[u8]) -> Result<(), PeerError> {
        let (db, options) = (self.db.get(), self.writes.get());
        checked("delete a key", |error| {
            // SAFETY: the handles are open; the key has so many bytes, and is copied.
            unsafe { ffi::rocksdb_delete(db, options, key.as_ptr().cast(), key.len(), error) }
        })
    }

    /// Hands the value of `key` to `found`, without a copy.
    #[inline]
    pub fn get<R>(
        &self,
        key: &[u8],
        found: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, PeerError> {
        let (db, options) = (self.db.get(), self.reads.get());
        let slice = checked("read a key", |error| {
            // SAFETY: the handles are open; the key has so many bytes.
            unsafe { ffi::rocksdb_get_pinned(db, options, key.as_ptr().cast(), key.len(), error) }
        })?;
        // SAFETY: what is returned belongs to us, and this gives it back.
        let slice = unsafe { Owned::new(slice, ffi::rocksdb_pinnableslice_destroy) };
        let Some(slice) = slice else {
            return Ok(found(None));
        };
        let mut bytes = 0;
        // SAFETY: the slice is held, and `bytes` is ours.
        let value = unsafe { ffi::rocksdb_pinnableslice_value(slice.get(), &raw mut bytes) };
        // SAFETY: the value has so many bytes, which stay while the slice is held.
        Ok(found(Some(unsafe { view(value, bytes) })))
    }

    /// Hands the first `count` pairs at and behind `from` to `each`, in key order.
    pub fn scan(
        &self,
        from: &[u8],
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), PeerError> {
        // SAFETY: the handles are open.
        let raw = unsafe { ffi::rocksdb_create_iterator(self.db.get(), self.reads.get()) };
        // SAFETY: it belongs to us, and this gives it back, before the store is closed.
        let iterator = unsafe { Owned::made(raw, ffi::rocksdb_iter_destroy) };
        let at = iterator.get();
        // SAFETY: the iterator is open; the key has so many bytes, and is copied.
        unsafe { ffi::rocksdb_iter_seek(at, from.as_ptr().cast(), from.len()) }
        for _ in 0..count {
            // SAFETY: the iterator is open.
            if unsafe { ffi::rocksdb_iter_valid(at) } == 0 {
                break;
            }
            let (mut key_bytes, mut value_bytes) = (0, 0);
            // SAFETY: the iterator stands at a pair.
            let key = unsafe { ffi::rocksdb_iter_key(at, &raw mut key_bytes) };
            // SAFETY: the iterator stands at a pair.
            let value = unsafe { ffi::rocksdb_iter_value(at, &raw mut value_bytes) };
            // SAFETY: the key has so many bytes, which stay until the iterator moves.
            let key = unsafe { view(key, key_bytes) };
            // SAFETY: the same of the value.
            let value = unsafe { view(value, value_bytes) };
            each(key, value);
            // SAFETY: the iterator stands at a pair; the views of it are not used any more.
            unsafe { ffi::rocksdb_iter_next(at) }
        }
        checked("scan", |error| {
            // SAFETY: the iterator is open.
            unsafe { ffi::rocksdb_iter_get_error(at, error) }
        })
    }

    /// Writes the memtable to a table, and waits for that.
    pub fn flush(&self) -> Result<(), PeerError> {
        checked("flush its memtable", |error| {
            // SAFETY: the handles are open.
            unsafe { ffi::rocksdb_flush(self.db.get(), self.flushes.get(), error) }
        })
    }

    /// Flushes and compactions that are due or under way, and memtables that wait for one.
    pub fn pending(&self) -> Result<u64, PeerError> {
        const COUNTS: [&CStr; 5] = [
            c"rocksdb.num-immutable-mem-table",
            c"rocksdb.mem-table-flush-pending",
            c"rocksdb.num-running-flushes",
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
        ];
        COUNTS.iter().map(|name| self.number(name)).sum()
    }

    /// Levels that hold tables, counted to the deepest; the one that memtables are flushed to is
    /// the first.
    pub fn levels(&self) -> Result<u64, PeerError> {
        /// `num_levels` of the library's defaults.
        const LEVELS: u64 = 7;
        let mut deepest = 0;
        for level in 0..LEVELS {
            let name = CString::new(format!("rocksdb.num-files-at-level{level}"));
            let text = self.text(&name.expect("a name without zeros"), "levels")?;
            if text.trim() != "0" {
                deepest = level + 1;
            }
        }
        Ok(deepest)
    }

    /// Flushes and compactions that were done since the store was opened.
    pub fn compactions(&self) -> Result<u64, PeerError> {
        let untold = PeerError::Untold {
            what: "number of compactions",
        };
        let text = self.text(c"rocksdb.stats", "statistics")?;
        compactions_in(&text).ok_or(untold)
    }

    fn number(&self, name: &CStr) -> Result<u64, PeerError> {
        let mut value = 0;
        // SAFETY: the store is open, the name a C text, and `value` is ours.
        let rc = unsafe { ffi::rocksdb_property_int(self.db.get(), name.as_ptr(), &raw mut value) };
        match rc {
            0 => Ok(value),
            _ => Err(PeerError::Untold {
                what: "background work",
            }),
        }
    }

    fn text(&self, name: &CStr, what: &'static str) -> Result<String, PeerError> {
        // SAFETY: the store is open, and the name a C text.
        let text = unsafe { ffi::rocksdb_property_value(self.db.get(), name.as_ptr()) };
        // SAFETY: what is returned is null or a C text that belongs to us.
        unsafe { taken(text) }.ok_or(PeerError::Untold { what })
    }
}

/// The options of the C interface for `settings`.
fn options(settings: &RocksDbSettings) -> Owned<ffi::Options> {
    // SAFETY: a constructor without conditions.
    let raw = unsafe { ffi::rocksdb_options_create() };
    // SAFETY: it belongs to us, and this gives it back.
    let options = unsafe { Owned::made(raw, ffi::rocksdb_options_destroy) };
    let (to, buffer_bytes) = (options.get(), settings.write_buffer_bytes);
    let (buffers, jobs) = (settings.write_buffers, settings.background_jobs);
    let table = table_options(settings);
    // SAFETY: here and below the options are open, and the value is of the type that is asked for.
    unsafe { ffi::rocksdb_options_set_create_if_missing(to, 1) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_compression(to, ffi::NO_COMPRESSION) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_write_buffer_size(to, buffer_bytes) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_max_write_buffer_number(to, c_int::from(buffers)) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_max_background_jobs(to, c_int::from(jobs)) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_max_bytes_for_level_base(to, settings.level_base_bytes()) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_target_file_size_base(to, buffer_bytes as u64) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_use_direct_reads(to, 1) }
    // SAFETY: as above.
    unsafe { ffi::rocksdb_options_set_use_direct_io_for_flush_and_compaction(to, 1) }
    // SAFETY: as above. What it would write into its text log from time to time nobody reads.
    unsafe { ffi::rocksdb_options_set_stats_dump_period_sec(to, 0) }
    // SAFETY: both are open; what the table's options say is copied.
    unsafe { ffi::rocksdb_options_set_block_based_table_factory(to, table.get()) }
    options
}

fn table_options(settings: &RocksDbSettings) -> Owned<ffi::TableOptions> {
    // SAFETY: a constructor without conditions.
    let raw = unsafe { ffi::rocksdb_block_based_options_create() };
    // SAFETY: it belongs to us, and this gives it back.
    let table = unsafe { Owned::made(raw, ffi::rocksdb_block_based_options_destroy) };
    // SAFETY: a constructor without conditions.
    let raw = unsafe { ffi::rocksdb_cache_create_lru(settings.cache_bytes) };
    // SAFETY: it belongs to us, and this gives back our share of it.
    let cache = unsafe { Owned::made(raw, ffi::rocksdb_cache_destroy) };
    let bits = f64::from(settings.bloom_bits);
    // SAFETY: a constructor without conditions.
    let policy = unsafe { ffi::rocksdb_filterpolicy_create_bloom_full(bits) };
    // SAFETY: the options are open and take the policy over, which nobody else holds.
    unsafe { ffi::rocksdb_block_based_options_set_filter_policy(table.get(), policy) }
    // SAFETY: both are open; the cache is shared from now on, and lives as long as it is used.
    unsafe { ffi::rocksdb_block_based_options_set_block_cache(table.get(), cache.get()) }
    table
}

/// Calls a function of the C interface, and turns what it puts into `error` into ours.
#[inline]
fn checked<R>(
    what: &'static str,
    call: impl FnOnce(*mut *mut c_char) -> R,
) -> Result<R, PeerError> {
    let mut error = std::ptr::null_mut();
    let result = call(&raw mut error);
    if error.is_null() {
        return Ok(result);
    }
    // SAFETY: the function left a C text, which belongs to us.
    let reason = unsafe { taken(error) }.unwrap_or_default();
    Err(PeerError::Refused { what, reason })
}

/// Copies a text that the library gave us, and gives it back.
///
/// # Safety
/// `text` is null or a C text from the library that belongs to the caller.
unsafe fn taken(text: *mut c_char) -> Option<String> {
    let text = NonNull::new(text)?;
    // SAFETY: the caller says that it is a C text; it is ours until it is freed below.
    let copy = unsafe { CStr::from_ptr(text.as_ptr()) };
    let copy = copy.to_string_lossy().into_owned();
    // SAFETY: it came from the library, and is not used any more.
    unsafe { ffi::rocksdb_free(text.as_ptr().cast()) };
    Some(copy)
}

/// `count` bytes at `start`.
///
/// # Safety
/// They are there and do not change for `'a`; `start` may be null where there are none.
unsafe fn view<'a>(start: *const c_char, count: usize) -> &'a [u8] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast(), count) }
}

/// The sum of column `Comp(cnt)` of the first table in `rocksdb.stats`.
fn compactions_in(stats: &str) -> Option<u64> {
    let mut lines = stats.lines();
    let column = lines.find_map(|line| {
        let mut names = line.split_ascii_whitespace();
        names.position(|name| name == "Comp(cnt)")
    })?;
    let sum = lines.find_map(|line| line.trim_start().strip_prefix("Sum "))?;
    // The level's name is cut off, but the column of sizes has a unit, which is a word of its own.
    sum.split_ascii_whitespace().nth(column)?.parse().ok()
}

/// Bytes that the library's log takes for pairs written one by one.
///
/// ```text
/// file   := block*                       of 32 KiB
/// block  := piece* zero*                 the rest of a block that has no room for a piece's head
/// piece  := crc: u32  len: u16  type: u8  bytes
/// record := sequence: u64  count: u32    of a batch, then each change:
///           type: u8  key-len: varint  key  value-len: varint  value
/// ```
///
/// The library counts them only together with much else, at a price; so they are counted here. A
/// new file begins at a block of its own, which is not followed: a few bytes in each 32 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogBytes(u64);

impl LogBytes {
    /// A pair with so long a key and value was written.
    #[inline]
    pub fn put(&mut self, key_bytes: usize, value_bytes: usize) {
        const BLOCK: u64 = 32 << 10;
        const PIECE_HEAD: u64 = 7;
        const BATCH_HEAD: usize = 12;
        let pair = varint_bytes(key_bytes) + key_bytes + varint_bytes(value_bytes) + value_bytes;
        let mut left = (BATCH_HEAD + 1 + pair) as u64;
        while left > 0 {
            let room = BLOCK - self.0 % BLOCK;
            if room < PIECE_HEAD {
                self.0 += room;
                continue;
            }
            let piece = left.min(room - PIECE_HEAD);
            self.0 += PIECE_HEAD + piece;
            left -= piece;
        }
    }

    /// All so far.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

const fn varint_bytes(n: usize) -> usize {
    let bits = usize::BITS - n.leading_zeros();
    if bits == 0 {
        1
    } else {
        bits.div_ceil(7) as usize
    }
}
