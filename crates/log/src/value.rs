//! Finds a value again by the pointer to its first record.
//!
//! 1. The record at the pointer is read, from its window while it is in memory and its checksum
//!    agrees there, otherwise from the device. A window is reused only when the device has it, so
//!    one of the two has the record, whatever the writer does meanwhile.
//! 2. It must be a put of the wanted key.
//! 3. A value in chunks goes on in the log's next record: behind this one; where padding follows, in the next block;
//!    where the window holds no more, at the start of the next one, which is in the next segment if
//!    this one is full. Marks in between are passed over. The LSNs must follow each other.
//! 4. The parts together must be as long as the caller was told.

use std::ops::Range;

use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_base::{Kind, Lsn, Pointer, SegmentNumber};

use super::record::{Decoded, HEADER_BYTES_MAX, Record, RecordKind, decode};
use super::segment::{BLOCK_BYTES, Geometry, SEGMENT_HEADER_BYTES, identity};
use super::windows::LogWindows;
use crate::chain::LogSegment;

/// How many segments of a log a value may reach into behind the one in which it begins:
/// its bytes, a 16th for padding at the ends of windows, and headers.
pub const fn reach(segment_bytes: usize) -> u64 {
    (VALUE_BYTES_MAX + VALUE_BYTES_MAX / 8).div_ceil(segment_bytes) as u64
}

/// Where log bytes come from once they are no longer in a window.
pub trait LogSource {
    /// Why a read fails.
    type Error;

    /// What the source knows of a log segment. The source gets it back, and need not look the segment up again.
    type Segment: Copy + AsRef<LogSegment>;

    /// The log segment with this number, or `None` where the version has none.
    fn segment(&self, number: SegmentNumber) -> Option<Self::Segment>;

    /// The segment that follows `segment` in its log's chain.
    fn after(&self, segment: Self::Segment) -> Option<Self::Segment>;

    /// Reads device bytes of `segment` at `offset`: any alignment, inside one window.
    ///
    /// # Errors
    /// When the device fails.
    fn read(&self, segment: Self::Segment, offset: u32, out: &mut [u8]) -> Result<(), Self::Error>;
}

/// A value in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef<'a> {
    /// Where its first record begins.
    pub at: Pointer,
    /// Bytes of the value.
    pub value_len: u32,
    /// The key to which it belongs, as found in a level or memtable.
    pub key: &'a [u8],
}

impl ValueRef<'_> {
    /// The bytes of its segment that are read first: all of it, if it is not in parts.
    #[must_use]
    pub fn first_read(&self, geometry: Geometry) -> Range<u32> {
        let from = self.at.offset();
        let len = read_len(geometry, from, self.key.len() + self.value_len as usize);
        from..from + len
    }
}

/// Bytes to read at `offset` for a record of which key and value have at most `bytes`.
fn read_len(geometry: Geometry, offset: u32, bytes: usize) -> u32 {
    let window = geometry.window_bytes();
    let to_window_end = window - offset % window;
    u32::try_from(HEADER_BYTES_MAX + bytes).map_or(to_window_end, |len| len.min(to_window_end))
}

/// Why a value could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError<E> {
    /// The source failed.
    #[error("the log could not be read")]
    Source(E),
    /// The bytes are not the value's. Fetch the segment from another member.
    #[error("{segment}, byte {offset}: {what}")]
    Corrupt {
        /// The segment.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads a value, from `windows` while it is there, otherwise from `source`.
///
/// # Errors
/// [`ReadError`]; never anything but the value that was written for this key at this place.
pub fn read_value<S: LogSource>(
    value: &ValueRef<'_>,
    windows: &LogWindows,
    source: &S,
) -> Result<Vec<u8>, ReadError<S::Error>> {
    let segment = source.segment(value.at.segment());
    let segment = segment.ok_or_else(|| corrupt(value.at, "no such log segment"))?;
    read_value_in(segment, value, windows, source)
}

/// Like [`read_value`], for callers that have looked up the segment of the value's first record.
///
/// # Errors
/// As [`read_value`].
pub fn read_value_in<S: LogSource>(
    segment: S::Segment,
    value: &ValueRef<'_>,
    windows: &LogWindows,
    source: &S,
) -> Result<Vec<u8>, ReadError<S::Error>> {
    let mut reading = Reading {
        windows,
        source,
        segment,
        offset: value.at.offset(),
        value: Vec::with_capacity(value.value_len as usize),
        wanted: value,
        last: None,
        buffer: Vec::new(),
        held: None,
    };
    while reading.take_part()? {}
    Ok(reading.value)
}

/// What became of the bytes at a place.
enum Part {
    /// They are the value's next part: this many bytes of log, and the next record's LSN if the
    /// value goes on.
    Value { len: usize, next: Option<Lsn> },
    /// A mark of this many bytes.
    Mark { len: usize },
    /// Padding.
    Pad,
}

struct Reading<'a, S: LogSource> {
    windows: &'a LogWindows,
    source: &'a S,
    segment: S::Segment,
    offset: u32,
    value: Vec<u8>,
    wanted: &'a ValueRef<'a>,
    /// The LSN that continues the value, once it has begun.
    last: Option<Lsn>,
    buffer: Vec<u8>,
    /// The byte of the segment from which on `buffer` has it.
    held: Option<u32>,
}

impl<S: LogSource> Reading<'_, S> {
    /// Takes what stands at the present place, and moves behind it. Whether the value goes on.
    fn take_part(&mut self) -> Result<bool, ReadError<S::Error>> {
        self.go_to_window()?;
        let in_memory = self.take_held().or_else(|| self.take_from_window());
        let part = match in_memory {
            Some(part) => part,
            None => self.take_from_source()?,
        };
        match part {
            Part::Value { len, next } => {
                self.move_by(len);
                self.last = next;
                if next.is_none() && self.value.len() != self.wanted.value_len as usize {
                    return Err(corrupt(self.wanted.at, "the value has another length"));
                }
                Ok(next.is_some())
            }
            Part::Mark { len } => {
                self.move_by(len);
                Ok(true)
            }
            Part::Pad => {
                let window = self.windows.geometry().window_bytes();
                let behind = self.offset.next_multiple_of(BLOCK_BYTES);
                // A block that begins with padding is the last of its window that was begun.
                self.offset = match behind == self.offset {
                    true => (self.offset / window + 1) * window,
                    false => behind,
                };
                Ok(true)
            }
        }
    }

    /// At the end of a segment, goes to the start of the next.
    fn go_to_window(&mut self) -> Result<(), ReadError<S::Error>> {
        if self.offset < self.windows.geometry().segment_bytes() {
            return Ok(());
        }
        let next = self.source.after(self.segment);
        let expected = self.segment.as_ref().ordinal + 1;
        let next = next.filter(|next| next.as_ref().ordinal == expected);
        self.segment = next.ok_or_else(|| self.corrupt("the value goes on in no segment"))?;
        self.offset = SEGMENT_HEADER_BYTES;
        self.held = None;
        Ok(())
    }

    /// Behind a mark or padding, what was read with it.
    fn take_held(&mut self) -> Option<Part> {
        let skip = self.offset.checked_sub(self.held?)? as usize;
        let len = read_len(self.windows.geometry(), self.offset, self.wanted_bytes()) as usize;
        let buffer = std::mem::take(&mut self.buffer);
        let bytes = buffer.get(skip..skip + len);
        let part = bytes.and_then(|bytes| self.take(bytes));
        self.buffer = buffer;
        part
    }

    fn take_from_window(&mut self) -> Option<Part> {
        let mut buffer = self.prepare_buffer();
        let there = self
            .windows
            .read(self.segment.as_ref(), self.offset, &mut buffer);
        let part = there.then(|| self.take(&buffer)).flatten();
        self.buffer = buffer;
        part
    }

    fn take_from_source(&mut self) -> Result<Part, ReadError<S::Error>> {
        let mut buffer = self.prepare_buffer();
        self.source
            .read(self.segment, self.offset, &mut buffer)
            .map_err(ReadError::Source)?;
        let part = self.take(&buffer);
        self.buffer = buffer;
        part.ok_or_else(|| self.corrupt("not the record of this value"))
    }

    /// As many bytes as the rest of the value can take here, and, where it goes on, a mark in front of it.
    fn prepare_buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mark = self.last.map_or(0, |_| HEADER_BYTES_MAX);
        let geometry = self.windows.geometry();
        let len = read_len(geometry, self.offset, mark + self.wanted_bytes());
        buffer.resize(len as usize, 0);
        self.held = Some(self.offset);
        buffer
    }

    /// Bytes of key and value that its next record has at most.
    fn wanted_bytes(&self) -> usize {
        let rest = self.wanted.value_len as usize - self.value.len();
        let key = match self.last {
            None => self.wanted.key.len(),
            Some(_) => 0,
        };
        key + rest
    }

    /// Takes the part of the value that `bytes` are, if they are the right ones.
    fn take(&mut self, bytes: &[u8]) -> Option<Part> {
        let region = self.windows.region();
        let segment = self.segment.as_ref();
        let here = identity(Kind::LogRecord, region, segment, self.offset);
        match decode(bytes, here, segment.base_lsn) {
            Decoded::Record(record, len) => match record.kind {
                kind if kind.is_mark() => self.last.is_some().then_some(Part::Mark { len }),
                RecordKind::Put if self.fits(&record) => {
                    self.value.extend_from_slice(record.value);
                    let next = record.chunk.then(|| record.lsn.next());
                    Some(Part::Value { len, next })
                }
                _ => None,
            },
            Decoded::Pad if self.last.is_some() => Some(Part::Pad),
            Decoded::Pad | Decoded::Invalid => None,
        }
    }

    /// Whether `record` is the value's next.
    fn fits(&self, record: &Record<'_>) -> bool {
        let rest = self.wanted.value_len as usize - self.value.len();
        let follows = match self.last {
            None => record.key == self.wanted.key,
            Some(expected) => record.key.is_empty() && record.lsn == expected,
        };
        follows && record.value.len() <= rest
    }

    fn move_by(&mut self, len: usize) {
        self.offset += u32::try_from(len).expect("less than a window");
    }

    fn corrupt(&self, what: &'static str) -> ReadError<S::Error> {
        ReadError::Corrupt {
            segment: self.segment.as_ref().number,
            offset: self.offset,
            what,
        }
    }
}

const fn corrupt<E>(at: Pointer, what: &'static str) -> ReadError<E> {
    ReadError::Corrupt {
        segment: at.segment(),
        offset: at.offset(),
        what,
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
