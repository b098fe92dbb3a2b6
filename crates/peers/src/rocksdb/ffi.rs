//! What we use of `rocksdb/c.h`, which the C interface keeps stable from version to version.
//!
//! Every handle is opaque, belongs to whoever it was returned to, and is given back by the function
//! that is called after it. Functions that take `error` leave it alone when they succeed; otherwise
//! they put a text there that belongs to the caller ([`rocksdb_free`]).

use std::ffi::{c_char, c_double, c_int, c_uchar, c_uint, c_void};

/// Declares types that are only ever seen behind a pointer.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub(super) struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque! {
    /// An open store.
    Db;
    /// Options to open one with.
    Options;
    /// Options of its tables.
    TableOptions;
    /// A cache of blocks.
    Cache;
    /// A kind of filter.
    FilterPolicy;
    /// Options of reads.
    ReadOptions;
    /// Options of writes.
    WriteOptions;
    /// Options of flushes.
    FlushOptions;
    /// A value that stays where it is while this is held.
    PinnedSlice;
    /// A position among the pairs.
    Iterator;
}

/// `rocksdb_no_compression`.
pub(super) const NO_COMPRESSION: c_int = 0;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub(super) fn rocksdb_open(
        options: *const Options,
        dir: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Db;
    pub(super) fn rocksdb_close(db: *mut Db);
    pub(super) fn rocksdb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_delete(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    );
    /// Null where there is no such key, and where there is an error.
    pub(super) fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    ) -> *mut PinnedSlice;
    pub(super) fn rocksdb_pinnableslice_value(
        slice: *const PinnedSlice,
        bytes: *mut usize,
    ) -> *const c_char;
    pub(super) fn rocksdb_pinnableslice_destroy(slice: *mut PinnedSlice);
    pub(super) fn rocksdb_flush(db: *mut Db, options: *const FlushOptions, error: *mut *mut c_char);
    /// Zero where there is such a property.
    pub(super) fn rocksdb_property_int(db: *mut Db, name: *const c_char, value: *mut u64) -> c_int;
    /// Null where there is no such property.
    pub(super) fn rocksdb_property_value(db: *mut Db, name: *const c_char) -> *mut c_char;
    pub(super) fn rocksdb_free(text: *mut c_void);

    pub(super) fn rocksdb_create_iterator(
        db: *mut Db,
        options: *const ReadOptions,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    pub(super) fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const c_char, key_bytes: usize);
    pub(super) fn rocksdb_iter_next(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_key(iterator: *const Iterator, bytes: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_value(iterator: *const Iterator, bytes: *mut usize)
    -> *const c_char;
    pub(super) fn rocksdb_iter_get_error(iterator: *const Iterator, error: *mut *mut c_char);

    pub(super) fn rocksdb_options_create() -> *mut Options;
    pub(super) fn rocksdb_options_destroy(options: *mut Options);
    pub(super) fn rocksdb_options_set_create_if_missing(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_compression(options: *mut Options, kind: c_int);
    pub(super) fn rocksdb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub(super) fn rocksdb_options_set_max_write_buffer_number(options: *mut Options, n: c_int);
    pub(super) fn rocksdb_options_set_max_background_jobs(options: *mut Options, n: c_int);
    pub(super) fn rocksdb_options_set_max_bytes_for_level_base(options: *mut Options, bytes: u64);
    pub(super) fn rocksdb_options_set_target_file_size_base(options: *mut Options, bytes: u64);
    pub(super) fn rocksdb_options_set_use_direct_reads(options: *mut Options, on: c_uchar);
    pub(super) fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
        options: *mut Options,
        on: c_uchar,
    );
    pub(super) fn rocksdb_options_set_stats_dump_period_sec(options: *mut Options, s: c_uint);
    pub(super) fn rocksdb_options_set_block_based_table_factory(
        options: *mut Options,
        table: *mut TableOptions,
    );

    pub(super) fn rocksdb_block_based_options_create() -> *mut TableOptions;
    pub(super) fn rocksdb_block_based_options_destroy(table: *mut TableOptions);
    /// Takes the policy over.
    pub(super) fn rocksdb_block_based_options_set_filter_policy(
        table: *mut TableOptions,
        policy: *mut FilterPolicy,
    );
    /// Shares the cache.
    pub(super) fn rocksdb_block_based_options_set_block_cache(
        table: *mut TableOptions,
        cache: *mut Cache,
    );
    pub(super) fn rocksdb_filterpolicy_create_bloom_full(bits: c_double) -> *mut FilterPolicy;
    pub(super) fn rocksdb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub(super) fn rocksdb_cache_destroy(cache: *mut Cache);

    pub(super) fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, sync: c_uchar);
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
}
