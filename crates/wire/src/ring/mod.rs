//! A ring of messages in memory that its writer fills from afar.
//!
//! The reader owns the memory and does nothing while a message arrives; the writer owns the right
//! to write into it, one-sided. Neither ever asks the other for anything but room:
//!
//! 1. [`RingWriter::push`] lays messages one behind the other in a private buffer, and
//!    [`RingWriter::next_write`] gives it out as one contiguous write (two where the ring wraps).
//! 2. [`RingReader::next`] polls the first word of the place where the next message must begin.
//!    When marks stand at both ends of a message it copies the message out and checks the copy.
//! 3. It then zeroes the space, and its caller publishes [`RingReader::head`] to the writer with a
//!    write of 8 aligned bytes, which [`RingWriter::set_head`] takes. Only then is the space reused.
//!
//! ```text
//! ring    := message*                                    (a power of two of bytes)
//! message := header payload 0* end                       (a multiple of 32 bytes)
//!          | header                                      (kind 0: skip to the ring's start)
//!
//! 0      2      3         4     8        12      16        24            28       32
//! +------+------+---------+-----+--------+-------+---------+-------------+--------+
//! | mark | kind | version | len | region | epoch | request | incarnation | crc32c |
//! +------+------+---------+-----+--------+-------+---------+-------------+--------+
//! | payload: len bytes, then zeros                          | end: position/32, mark |
//! +---------------------------------------------------------+-----------------------+
//!
//! end := position / 32: u32  mark: u32                   (the last 8 bytes of the message)
//! ```
//!
//! Integers are little-endian. A *position* counts all bytes ever laid in the ring, so it names lap
//! and offset at once; the offset is the position modulo the capacity. `len` is the payload's
//! length, or for kind 0 the bytes that are skipped, header included. `crc32c` is seeded with the
//! identity (message, region, epoch, position) and covers the first 28 bytes and the payload.
//! `incarnation` is the low half of the writer's.
//!
//! Invariants:
//!
//! - All bytes outside the messages that lie between the reader's head and the writer's tail are
//!   zero. So each byte of a message is, until it arrives, zero, and the marks at both ends cost
//!   nothing to wait for.
//! - The bytes may arrive in any order: until all have, the checksum does not match, and there is
//!   *no message yet*. An error is reported only for what no later byte can put right (a wrong
//!   mark, an impossible length). What never matches otherwise cannot be told from what is late;
//!   see [`RingReader::is_partial`].
//! - The fabric lands overlapping writes of one writer in order. So a zero that is late (a reader
//!   does not miss it, and may have made room since) cannot fall on what was written there next.
//! - A message that was left from an earlier lap, or that was meant for another place, has another
//!   position in its checksum and in its end mark.

mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::{RingMemory, RingReader};
pub use writer::{PushError, RingWriter};

use argosy_base::checksum::{Identity, Kind, extend};
use argosy_base::{Epoch, Incarnation, RegionId, SegmentNumber};

/// Bytes of a message's header; every message is a multiple of it, and begins at a multiple of it.
pub const HEADER_SIZE: usize = 32;

/// Most bytes of a message, with its frame, however large the ring is: so that none holds up those behind it
/// for long. What is longer goes in parts.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Bytes of the mark at the end of a message.
const END_SIZE: usize = 8;

/// Version of the message format, what payloads may say included (`message`, `api`): whoever adds to
/// that raises it, so that a server that does not know the addition says so, and does not call it
/// damage. 2: pointers may hold places. 3: backups may build levels; scans may go down.
/// 4: writes may depend on values. 5: pairs may expire. 6: several keys may be asked for together, and
/// how long a value is. 7: snapshots. 8: ranges of keys may be removed. 9: versions may be asked for.
/// 10: sorted pairs may be bulk-loaded. 11: regions may be flushed and compacted when somebody asks.
/// 12: edits and checkpoints go in parts that are asked for, calls and answers as several messages.
/// 13: a backup tells that its copy has failed. 14: and whether a copy is whole, or damaged and to be begun anew.
/// 15: and whether it was begun anew or put back. 16: a position lists the logs that it speaks of. 17: windows may
/// rest. 18: windows of a new attempt may have no memory until the primary asks for it. 19: a report has the
/// descriptors of the windows, and what a backup tells of edits and flushes names the attempt. 20: leases. 21: what a
/// backup tells of segments that it was shipped names the attempt, too.
const VERSION: u8 = 24;

/// The first two bytes of every header. Not zero, so that free space is not a message.
const MARK: u16 = 0xa650;

/// The high half of the last word of every message.
const END_MARK: u32 = 0x50a6_e4d5;

/// The kind of a header that skips to the start of the ring.
const KIND_SKIP: u8 = 0;

/// What stands in front of a payload. What `kind` means is for the two sides to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the message says; 1 to 255.
    pub kind: u8,
    /// The region that it concerns; 0 where none.
    pub region: RegionId,
    /// The epoch to which it belongs; 0 where none.
    pub epoch: Epoch,
    /// A number that an answer repeats.
    pub request: u64,
}

/// Why a ring can no longer be used: start over with fresh memory. All of it is the other side's
/// fault, or the memory's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// What stands there can never become a message.
    #[error("ring position {position}: {what} is {found:#x}")]
    Garbage {
        /// Where the message begins, in bytes ever laid in the ring.
        position: u64,
        /// Which field is impossible.
        what: &'static str,
        /// Its value.
        found: u64,
    },
    /// The writer speaks another version of the format.
    #[error(
        "ring messages of version {found}, but only version {VERSION} is known here; run the same \
         release of Argosy on all servers"
    )]
    Version {
        /// The writer's version.
        found: u8,
    },
    /// The message is intact, but comes from another incarnation of the writer.
    #[error("ring message from incarnation {found} (low half), expected {expected}")]
    Stranger {
        /// The low half of the incarnation that wrote it.
        found: u32,
        /// The low half of the incarnation that may write.
        expected: u32,
    },
}

/// The size of a ring: what both sides must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    capacity: usize,
}

impl RingShape {
    /// The smallest ring: four messages of 64 bytes.
    pub const CAPACITY_MIN: usize = 256;
    /// The largest ring.
    pub const CAPACITY_MAX: usize = 1 << 30;

    /// A ring of `capacity` bytes.
    ///
    /// # Panics
    /// Unless `capacity` is a power of two from [`CAPACITY_MIN`](Self::CAPACITY_MIN) to
    /// [`CAPACITY_MAX`](Self::CAPACITY_MAX).
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two());
        assert!(capacity >= Self::CAPACITY_MIN && capacity <= Self::CAPACITY_MAX);
        Self { capacity }
    }

    /// Bytes of the ring.
    #[must_use]
    pub const fn capacity(self) -> usize {
        self.capacity
    }

    /// Longest payload, in bytes. With its frame it takes at most a quarter of the ring, so that in an
    /// empty ring there is always room for it, even behind a skip; and at most [`MESSAGE_BYTES_MAX`].
    #[must_use]
    pub const fn payload_max(self) -> usize {
        let quarter = self.capacity / 4;
        let message = if quarter < MESSAGE_BYTES_MAX {
            quarter
        } else {
            MESSAGE_BYTES_MAX
        };
        message - HEADER_SIZE - END_SIZE
    }

    /// Where in the ring `position` lies.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked with a capacity of at most 2^30"
    )]
    #[inline]
    const fn offset(self, position: u64) -> usize {
        (position & (self.capacity as u64 - 1)) as usize
    }
}

/// Bytes that a message with `payload` bytes takes in the ring.
#[inline]
#[must_use]
pub const fn message_size(payload: usize) -> usize {
    (HEADER_SIZE + payload + END_SIZE).next_multiple_of(HEADER_SIZE)
}

/// The first word of a header: mark, kind, version, length.
#[inline]
fn start_word(kind: u8, len: u32) -> u64 {
    u64::from(MARK) | u64::from(kind) << 16 | u64::from(VERSION) << 24 | u64::from(len) << 32
}

/// The last word of the message at `position`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is meant: 128 GiB of messages lie between two equal marks"
)]
#[inline]
fn end_word(position: u64) -> u64 {
    u64::from((position / HEADER_SIZE as u64) as u32) | u64::from(END_MARK) << 32
}

/// The header at `position` as bytes, without its checksum.
fn header_bytes(header: Header, len: u32, incarnation: u32) -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    bytes[..8].copy_from_slice(&start_word(header.kind, len).to_le_bytes());
    bytes[8..12].copy_from_slice(&header.region.0.to_le_bytes());
    bytes[12..16].copy_from_slice(&header.epoch.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&header.request.to_le_bytes());
    bytes[24..28].copy_from_slice(&incarnation.to_le_bytes());
    bytes
}

/// The state of the checksum after the header, before the payload.
#[inline]
fn header_checksum(region: RegionId, epoch: Epoch, position: u64, bytes: &[u8]) -> u32 {
    let identity = Identity {
        kind: Kind::Message,
        region,
        segment: SegmentNumber(position),
        epoch,
        offset: 0,
    };
    extend(identity.seed(), &bytes[..HEADER_SIZE - 4])
}

/// The part of an incarnation that messages carry.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is meant: no server starts 2^32 times within one ring's life"
)]
fn low_half(incarnation: Incarnation) -> u32 {
    incarnation.0 as u32
}
