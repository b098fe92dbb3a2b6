//! The names under which a server tells of itself in `INFO`, and which `argosy bench` and the
//! tests read. Whoever writes them and whoever reads them use this one table.
//!
//! In section `argosy` every value of [`COUNTERS`] is a decimal number that only rises while the
//! server runs, and every value of [`GAUGES`] one that rises and falls; [`DEVICE_IO`] is words.
//! Section `regions` has one line for each region that the server is a member of:
//!
//! ```text
//! region_<id>:role=<primary|backup>,state=<word>,epoch=<n>,lsn=<n>,edit=<n>,digest=<16 hex digits>
//! ```
//!
//! `lsn` is the commit LSN as this member knows it, `edit` the last version edit that is applied
//! here, and `digest` says what levels that edit left: members whose digests are equal at the same
//! edit hold equal levels.

/// The section that holds [`COUNTERS`] and [`GAUGES`].
pub const SECTION: &str = "argosy";

/// The section with one line a region.
pub const SECTION_REGIONS: &str = "regions";

/// Fields of this section are added to the section of the front end that has its name.
pub const SECTION_MEMORY: &str = "memory";

/// The section of the native protocol's front end; left out where there is none.
pub const SECTION_NATIVE: &str = "native";
/// The Unix socket where native clients of the server's host meet it.
pub const NATIVE_SOCKET: &str = "native_socket";
/// Native clients that are connected.
pub const NATIVE_CLIENTS: &str = "native_clients";
/// Bytes of memory that native clients share with the server.
pub const NATIVE_MEMORY: &str = "native_memory";
/// Native connections taken in so far.
pub const NATIVE_TAKEN_IN: &str = "native_connections_received";
/// Native connections refused so far, for want of room or of a common version.
pub const NATIVE_REFUSED: &str = "native_connections_refused";
/// Native connections ended so far, while they were idle, to make room for others.
pub const NATIVE_EVICTED: &str = "native_connections_evicted";
/// Answers to native clients so far, errors included.
pub const NATIVE_ANSWERS: &str = "native_requests_processed";
/// Requests of all clients and other servers that workers carried out because they needed the device, so far.
pub const NATIVE_TASKS: &str = "native_tasks";
/// Requests that wait for a worker.
pub const NATIVE_TASKS_QUEUED: &str = "native_tasks_queued";
/// Requests so far that found the queue of the workers full.
pub const NATIVE_QUEUE_FULL: &str = "native_queue_full";
/// Native clients that were ended since they wrote what is no request.
pub const NATIVE_GARBLED: &str = "native_garbled";

/// CPU microseconds of clients' requests: the protocol, sockets, engines' reads and writes.
pub const REQUEST_CPU_US: &str = "request_cpu_us";
/// CPU microseconds of logs: shipping records to backups, writing them to the devices of members.
pub const LOG_REPLICATION_CPU_US: &str = "log_replication_cpu_us";
/// CPU microseconds spent in compaction: merging, building and writing, flushing memtables to L1.
pub const COMPACTION_CPU_US: &str = "compaction_cpu_us";
/// CPU microseconds of finished segments and edits, on their way to backups and there.
pub const INDEX_SHIPPING_CPU_US: &str = "index_shipping_cpu_us";
/// CPU microseconds of rewriting the pointers of segments that were shipped here.
pub const REWRITING_CPU_US: &str = "rewriting_cpu_us";
/// CPU microseconds of the same threads for anything else.
pub const OTHER_CPU_US: &str = "other_cpu_us";
/// Each microsecond of CPU of a server's threads is in one of these.
pub const ACTIVITIES_CPU_US: [&str; 6] = [
    REQUEST_CPU_US,
    LOG_REPLICATION_CPU_US,
    COMPACTION_CPU_US,
    INDEX_SHIPPING_CPU_US,
    REWRITING_CPU_US,
    OTHER_CPU_US,
];
/// Bytes written into other servers' memory, records, segments and messages alike.
pub const NETWORK_BYTES: &str = "network_bytes";
/// Bytes read from the device, by this server's own count.
pub const DEVICE_READ_BYTES: &str = "device_read_bytes";
/// Bytes written to the device, by this server's own count.
pub const DEVICE_WRITE_BYTES: &str = "device_write_bytes";
/// Reads of the device that went through io_uring.
pub const DEVICE_RING_READS: &str = "device_ring_reads";
/// Those of them into memory that was registered with it.
pub const DEVICE_FIXED_READS: &str = "device_fixed_reads";
/// Compactions that were committed, flushes of a memtable included.
pub const COMPACTIONS: &str = "compactions";
/// Bytes of segments and log records fetched or received in catching up.
pub const CATCH_UP_BYTES: &str = "catch_up_bytes";

/// Level segments whose pointers were rewritten here.
pub const REWRITTEN_SEGMENTS: &str = "rewritten_segments";
/// Bytes of these segments.
pub const REWRITTEN_BYTES: &str = "rewritten_bytes";
/// Pointers that were rewritten in them.
pub const REWRITTEN_POINTERS: &str = "rewritten_pointers";

/// Pieces of background work that are known to be left: memtables to flush, compactions due,
/// shipments and flushes not acknowledged. Zero means drained.
pub const BACKGROUND_PENDING: &str = "background_pending";
/// The deepest level on the device that holds anything, over all regions.
pub const LEVELS: &str = "levels";
/// Bytes of the device segments in use.
pub const SPACE_BYTES: &str = "space_bytes";

/// 1 once a write or a sync of the device has failed, so that none is done any more.
pub const DEVICE_FAILED: &str = "device_failed";

/// The best way by which bytes come from the device, in words; a field of section `argosy` that is no number.
pub const DEVICE_IO: &str = "device_io";

/// What only rises.
pub const COUNTERS: [&str; 16] = [
    REQUEST_CPU_US,
    LOG_REPLICATION_CPU_US,
    COMPACTION_CPU_US,
    INDEX_SHIPPING_CPU_US,
    REWRITING_CPU_US,
    OTHER_CPU_US,
    NETWORK_BYTES,
    DEVICE_READ_BYTES,
    DEVICE_WRITE_BYTES,
    DEVICE_RING_READS,
    DEVICE_FIXED_READS,
    COMPACTIONS,
    CATCH_UP_BYTES,
    REWRITTEN_SEGMENTS,
    REWRITTEN_BYTES,
    REWRITTEN_POINTERS,
];

/// What rises and falls.
pub const GAUGES: [&str; 4] = [BACKGROUND_PENDING, LEVELS, SPACE_BYTES, DEVICE_FAILED];
