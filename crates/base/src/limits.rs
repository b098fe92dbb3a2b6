//! What is bounded, and by how much. Whoever is refused for a limit is told its name and value.

/// Bytes in a segment, the unit of allocation and of shipping.
pub const SEGMENT_SIZE: usize = 2 << 20;

/// Bytes in a block, the unit of direct I/O and of padding.
pub const BLOCK_SIZE: usize = 4096;

/// Most logs that a region may have.
pub const LOGS_MAX: usize = 4;

/// Most windows of one log.
pub const WINDOW_SLOTS_MAX: usize = 64;

/// Highest id of a region. Those above are of what a device's catalog keeps beside regions.
pub const REGION_ID_MAX: u32 = (1 << 29) - 1;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// Longest value that is one pair, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Longest value, in bytes: above [`VALUE_BYTES_MAX`] it is kept in parts.
pub const LONG_VALUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of each part of such a value, but for the last.
pub const PART_BYTES: usize = 512 << 10;

/// Most pairs in one atomic batch.
pub const BATCH_PAIRS_MAX: usize = 16 << 10;

/// Most bytes of keys and values in one atomic batch. One value of the longest kind and its key
/// fit, and the whole batch fits one log window of [`SEGMENT_SIZE`] with its record headers
/// (at most 32 bytes for each of [`BATCH_PAIRS_MAX`] pairs).
pub const BATCH_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX;

/// Most ranges of keys that one atomic batch removes.
pub const BATCH_RANGES_MAX: usize = 256;

const _: () = assert!(BATCH_BYTES_MAX + BATCH_PAIRS_MAX * 32 + 2 * BLOCK_SIZE < SEGMENT_SIZE);
