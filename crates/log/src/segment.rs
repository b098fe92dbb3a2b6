//! Log segments and their windows: geometry, names and headers.
//!
//! ```text
//! segment, as it lies on the device
//! 0         64                    W                     2W               S = segment_bytes
//! +---------+---------------------+---------------------+----------------+
//! | header  | records ... zeros   | records ... zeros   | ...            |
//! +---------+---------------------+---------------------+----------------+
//!  <------- window 0 ------------> <----- window 1 ----> ...
//!
//! segment header (64 bytes)
//! 0     8        12    13     16      20      28     32       40        48     60   64
//! +-----+--------+-----+------+-------+-------+------+--------+---------+------+----+
//! |magic|version |log  |zero  |region |number |epoch |ordinal |base LSN |zero  |crc |
//! +-----+--------+-----+------+-------+-------+------+--------+---------+------+----+
//!
//! window slot, as it lies in shared memory
//! 0                   4096                        4096 + W
//! +-------------------+---------------------------+
//! | window header     | bytes [k*W, (k+1)*W) of the segment
//! +-------------------+---------------------------+
//!
//! window header (64 bytes, then zeros)
//! 0     8        12    13     16      20      28     32     36     40     48           56    60   64
//! +-----+--------+-----+------+-------+-------+------+------+------+------+------------+-----+----+
//! |magic|version |log  |zero  |region |number |epoch |index |zero  |boot  |incarnation |zero |crc |
//! +-----+--------+-----+------+-------+-------+------+------+------+------+------------+-----+----+
//! ```
//!
//! Window `k` of the segment with ordinal `n` is the log's window number `w = n * (S / W) + k`, and
//! lies in slot `w % slots`: every member finds it without being told. The log's windows follow each
//! other through the slots in turn, so a slot is taken over by window `w` from window `w - slots`.

use argosy_base::codec::Reader;
use argosy_base::limits::{BLOCK_SIZE, KEY_BYTES_MAX, SEGMENT_SIZE};
use argosy_base::{Epoch, Identity, Incarnation, Kind, LogId, Lsn, RegionId, SegmentNumber};
use argosy_memory::{BootId, SharedMemory};

use crate::chain::LogSegment;

/// Bytes in front of the first record of a segment.
pub const SEGMENT_HEADER_BYTES: u32 = 64;

/// Bytes in front of a window's payload in its slot.
pub const WINDOW_HEADER_BYTES: usize = BLOCK_SIZE;

/// [`BLOCK_SIZE`], as offsets are counted.
pub(super) const BLOCK_BYTES: u32 = 4096;

/// Bytes of a header that mean something; the checksum is the last four.
pub(super) const HEADER_BYTES: usize = 64;
/// Where a header's checksum lies.
const CRC_AT: usize = HEADER_BYTES - 4;

/// "argoslog", read as a little-endian number.
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"argoslog");
/// "argoswin", read as a little-endian number.
const WINDOW_MAGIC: u64 = u64::from_le_bytes(*b"argoswin");
/// The format of both headers: the only one that is read.
const VERSION: u32 = 4;

/// How a log is cut into windows. Equal on all members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    segment: u32,
    window: u32,
    slots: u32,
}

/// What a segment of a log is read by: whose it is, and how it is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLayout {
    /// The region that has the log.
    pub region: RegionId,
    /// How its segments are divided.
    pub geometry: Geometry,
}

impl Geometry {
    /// Segments of `segment_bytes` in windows of `window_bytes`, `slots` of which are in memory.
    ///
    /// # Panics
    /// Unless both are whole blocks, a window divides a segment, holds the longest key beside
    /// headers (two blocks), and there are at least 2 slots.
    #[must_use]
    pub fn new(segment_bytes: usize, window_bytes: usize, slots: usize) -> Self {
        assert!(segment_bytes <= SEGMENT_SIZE && segment_bytes.is_multiple_of(window_bytes));
        assert!(window_bytes.is_multiple_of(BLOCK_SIZE));
        assert!(window_bytes >= KEY_BYTES_MAX + BLOCK_SIZE, "a key fits");
        assert!(slots >= 2, "one window is flushed while another is filled");
        let narrow = |n: usize| u32::try_from(n).expect("at most a segment");
        Self {
            segment: narrow(segment_bytes),
            window: narrow(window_bytes),
            slots: narrow(slots),
        }
    }

    /// Bytes of a segment that are used.
    #[inline]
    #[must_use]
    pub const fn segment_bytes(&self) -> u32 {
        self.segment
    }

    /// Bytes of a window.
    #[inline]
    #[must_use]
    pub const fn window_bytes(&self) -> u32 {
        self.window
    }

    /// Bytes of the shared memory of one slot: the header's block and the window.
    #[inline]
    #[must_use]
    pub const fn slot_bytes(&self) -> usize {
        WINDOW_HEADER_BYTES + self.window as usize
    }

    /// Windows that are in memory.
    #[inline]
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Windows in a segment.
    #[inline]
    #[must_use]
    pub const fn windows_per_segment(&self) -> u32 {
        self.segment / self.window
    }

    /// Which window of its segment byte `offset` lies in.
    #[inline]
    #[must_use]
    pub const fn window_index(&self, offset: u32) -> u32 {
        offset / self.window
    }

    /// The offset in front of which all records are durable where all blocks in front of `to` are. A record may reach
    /// beyond `to`, but not beyond its window. Zero where `to` is the end of the segment: the segment may have ended
    /// early, with anything behind its last record.
    #[must_use]
    pub const fn durable_records(&self, to: u32) -> u32 {
        if to >= self.segment {
            return 0;
        }
        to.saturating_sub(1) / self.window * self.window
    }

    /// The byte of the segment at which window `index` ends.
    #[inline]
    #[must_use]
    pub const fn window_end(&self, index: u32) -> u32 {
        (index + 1) * self.window
    }

    /// The log-wide number of window `index` of the segment with `ordinal`.
    #[inline]
    #[must_use]
    pub const fn window_number(&self, ordinal: u64, index: u32) -> u64 {
        ordinal * self.windows_per_segment() as u64 + index as u64
    }

    /// The slot in which window `index` of the segment with `ordinal` lies while it is in memory.
    #[inline]
    #[must_use]
    pub const fn slot(&self, ordinal: u64, index: u32) -> usize {
        self.slot_of(self.window_number(ordinal, index))
    }

    /// The slot of the window with this log-wide number.
    #[inline]
    #[must_use]
    pub const fn slot_of(&self, window: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
        let slot = (window % self.slots as u64) as usize;
        slot
    }
}

/// A position in a log's chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentPosition {
    /// The place of the segment in the chain.
    pub ordinal: u64,
    /// The byte in the segment.
    pub offset: u32,
    /// The segment's number.
    pub number: SegmentNumber,
}

/// The identity of a record or header that begins at `offset` of `segment`.
#[inline]
pub(super) const fn identity(
    kind: Kind,
    region: RegionId,
    segment: &LogSegment,
    offset: u32,
) -> Identity {
    Identity {
        kind,
        region,
        segment: segment.number,
        epoch: segment.epoch,
        offset,
    }
}

/// Whose windows: part of a window's header, for whoever reads it after a stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writer {
    /// The boot of the machine that writes.
    pub boot: BootId,
    /// The start of the server that writes.
    pub incarnation: Incarnation,
}

/// What a window's header says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowName {
    /// The region.
    pub region: RegionId,
    /// The log.
    pub log: LogId,
    /// The segment.
    pub number: SegmentNumber,
    /// The epoch of the segment.
    pub epoch: Epoch,
    /// Which window of the segment.
    pub index: u32,
}

/// Why a header is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// No header, a damaged one, or that of something else.
    #[error("not a header of this place")]
    Invalid,
    /// A header of a format that this program does not know.
    #[error("format {0} is not known; this program reads format {VERSION}")]
    Version(u32),
}

/// The header of `segment`, the first [`SEGMENT_HEADER_BYTES`] of its bytes.
#[must_use]
pub fn encode_segment_header(region: RegionId, segment: &LogSegment) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    put_name(&mut bytes, SEGMENT_MAGIC, region, segment);
    bytes[32..40].copy_from_slice(&segment.ordinal.to_le_bytes());
    bytes[40..48].copy_from_slice(&segment.base_lsn.0.to_le_bytes());
    let crc = identity(Kind::LogHeader, region, segment, 0).checksum(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Verifies that `bytes` begin with the header of `segment`.
///
/// # Errors
/// When they do not.
pub fn check_segment_header(
    bytes: &[u8],
    region: RegionId,
    segment: &LogSegment,
) -> Result<(), HeaderError> {
    let here = identity(Kind::LogHeader, region, segment, 0);
    check_version(bytes, SEGMENT_MAGIC, |_| Some(here))?;
    let expected = encode_segment_header(region, segment);
    if bytes[..HEADER_BYTES] == expected {
        Ok(())
    } else {
        Err(HeaderError::Invalid)
    }
}

/// Which segment `bytes` begin with the header of, whatever it should be; for tools. The checksum,
/// which needs the segment's epoch, is that of the epoch in the header.
#[must_use]
pub fn named_by_header(bytes: &[u8]) -> Option<(RegionId, SegmentNumber)> {
    let mut from = Reader::new("log header", bytes);
    let magic = from.u64().ok()?;
    let _version = from.u32().ok()?;
    from.take(4).ok()?;
    let name = WindowName {
        log: LogId::FIRST,
        region: RegionId(from.u32().ok()?),
        number: SegmentNumber(from.u64().ok()?),
        epoch: Epoch(from.u32().ok()?),
        index: 0,
    };
    let here = Identity {
        kind: Kind::LogHeader,
        ..name.identity()
    };
    let header = bytes.get(..HEADER_BYTES)?;
    let crc = here.checksum(&header[..CRC_AT]).to_le_bytes();
    (magic == SEGMENT_MAGIC && header[CRC_AT..] == crc).then_some((name.region, name.number))
}

/// The segment whose header `bytes` begin with, whatever it should be; for tools. It says nothing of where it ends. The
/// checksum, which needs number and epoch, is that of those in the header.
///
/// # Errors
/// When they begin with none.
pub fn decode_segment_header(bytes: &[u8]) -> Result<(RegionId, LogSegment), HeaderError> {
    let mut named = None;
    check_version(bytes, SEGMENT_MAGIC, |header| {
        let mut from = Reader::new("log header", header);
        from.take(12).ok()?;
        let log = LogId::new(from.u8().ok()?)?;
        from.take(3).ok()?;
        let region = RegionId(from.u32().ok()?);
        let segment = LogSegment {
            log,
            number: SegmentNumber(from.u64().ok()?),
            epoch: Epoch(from.u32().ok()?),
            ordinal: from.u64().ok()?,
            base_lsn: Lsn(from.u64().ok()?),
            end: None,
        };
        named = Some((region, segment));
        Some(identity(Kind::LogHeader, region, &segment, 0))
    })?;
    named.ok_or(HeaderError::Invalid)
}

/// The header of window `index` of `segment`, for the first block of its slot.
#[must_use]
pub fn encode_window_header(
    region: RegionId,
    segment: &LogSegment,
    index: u32,
    writer: Writer,
) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    put_name(&mut bytes, WINDOW_MAGIC, region, segment);
    bytes[32..36].copy_from_slice(&index.to_le_bytes());
    bytes[40..48].copy_from_slice(&writer.boot.0.to_le_bytes());
    bytes[48..56].copy_from_slice(&writer.incarnation.0.to_le_bytes());
    let crc = identity(Kind::Window, region, segment, 0).checksum(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads the header of a window slot.
///
/// # Errors
/// When `bytes` do not begin with a valid header.
pub fn decode_window_header(bytes: &[u8]) -> Result<(WindowName, Writer), HeaderError> {
    check_version(bytes, WINDOW_MAGIC, |bytes| {
        Some(parse_window_header(bytes)?.0.identity())
    })?;
    parse_window_header(bytes).ok_or(HeaderError::Invalid)
}

/// Whether the window slot in `memory` holds anything behind its headers: records, which may be on a device, too, or
/// not. Of a window that cannot be understood it is assumed; memory that holds something else, or nothing, has
/// none.
#[must_use]
pub fn holds_records(memory: &SharedMemory) -> bool {
    if memory.len() < WINDOW_HEADER_BYTES {
        return false;
    }
    let header = memory.peek(0, HEADER_BYTES);
    if header[..8] != WINDOW_MAGIC.to_le_bytes() {
        return false;
    }
    let of_segment = match decode_window_header(&header) {
        Ok((name, _)) if name.index == 0 => SEGMENT_HEADER_BYTES as usize,
        _ => 0,
    };
    let from = WINDOW_HEADER_BYTES + of_segment;
    (from..memory.len()).step_by(BLOCK_SIZE).any(|at| {
        let len = BLOCK_SIZE.min(memory.len() - at);
        memory.peek(at, len).iter().any(|byte| *byte != 0)
    })
}

impl WindowName {
    /// The name of window `index` of `segment`.
    #[must_use]
    pub const fn new(region: RegionId, segment: &LogSegment, index: u32) -> Self {
        Self {
            region,
            log: segment.log,
            number: segment.number,
            epoch: segment.epoch,
            index,
        }
    }

    const fn identity(self) -> Identity {
        Identity {
            kind: Kind::Window,
            region: self.region,
            segment: self.number,
            epoch: self.epoch,
            offset: 0,
        }
    }
}

/// What both headers begin with.
fn put_name(bytes: &mut [u8; HEADER_BYTES], magic: u64, region: RegionId, segment: &LogSegment) {
    bytes[0..8].copy_from_slice(&magic.to_le_bytes());
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12] = segment.log.raw();
    bytes[16..20].copy_from_slice(&region.0.to_le_bytes());
    bytes[20..28].copy_from_slice(&segment.number.0.to_le_bytes());
    bytes[28..32].copy_from_slice(&segment.epoch.0.to_le_bytes());
}

/// Verifies magic, checksum and version, in this order: a version is only believed where the
/// checksum, which lies at the same place in every version, agrees.
fn check_version(
    bytes: &[u8],
    magic: u64,
    identity: impl FnOnce(&[u8]) -> Option<Identity>,
) -> Result<(), HeaderError> {
    let header = bytes.get(..HEADER_BYTES).ok_or(HeaderError::Invalid)?;
    let mut from = Reader::new("log header", header);
    let found = from.u64().map_err(|_| HeaderError::Invalid)?;
    let version = from.u32().map_err(|_| HeaderError::Invalid)?;
    let mut crc = Reader::new("log header", &header[CRC_AT..]);
    let crc = crc.u32().map_err(|_| HeaderError::Invalid)?;
    let here = identity(header).ok_or(HeaderError::Invalid)?;
    if found != magic || crc != here.checksum(&header[..CRC_AT]) {
        return Err(HeaderError::Invalid);
    }
    match version {
        VERSION => Ok(()),
        other => Err(HeaderError::Version(other)),
    }
}

fn parse_window_header(bytes: &[u8]) -> Option<(WindowName, Writer)> {
    let mut from = Reader::new("window header", bytes);
    from.take(12).ok()?;
    let log = LogId::new(from.u8().ok()?)?;
    from.take(3).ok()?;
    let name = WindowName {
        log,
        region: RegionId(from.u32().ok()?),
        number: SegmentNumber(from.u64().ok()?),
        epoch: Epoch(from.u32().ok()?),
        index: from.u32().ok()?,
    };
    from.take(4).ok()?;
    let writer = Writer {
        boot: BootId(from.u64().ok()?),
        incarnation: Incarnation(from.u64().ok()?),
    };
    Some((name, writer))
}

const _: () = assert!(HEADER_BYTES == SEGMENT_HEADER_BYTES as usize);
const _: () = assert!(HEADER_BYTES <= WINDOW_HEADER_BYTES && BLOCK_BYTES as usize == BLOCK_SIZE);

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
