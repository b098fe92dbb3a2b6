//! Goes through one sealed segment of a log, for garbage collection: from the device, window
//! by window, record by record, at whatever pace the caller takes them.
//!
//! What is sealed is on the device whole. Records are decoded under the identity of their place, as
//! always (I2): what is no record of this segment ends the sweep with an error. So does a block of zeros without a
//! closing mark before it: the device has lost a write there. The lost values may be live, so the segment has to stay
//! until it is repaired.

use argosy_base::{Kind, Pointer, RegionId};
use argosy_device::Buffer;

use super::record::{Decoded, RecordKind, decode};
use super::scan::ReadDevice;
use super::segment::{BLOCK_BYTES, Geometry, SEGMENT_HEADER_BYTES, identity};
use crate::chain::LogSegment;

/// So much of a segment is read first to find out with what it begins.
const LOOK_BYTES: u32 = 64 << 10;

/// Why a sweep goes no further.
#[derive(Debug)]
pub enum SweepError<E> {
    /// The segment could not be read.
    Read(E),
    /// Something that is no record stands here.
    Damaged {
        /// Where in the segment.
        offset: u32,
    },
}

/// A put that begins a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept<'a> {
    /// Where its record begins: what levels and memtables hold of it.
    pub at: Pointer,
    /// Its key.
    pub key: &'a [u8],
    /// The value; `None` where it goes on in further records.
    pub value: Option<&'a [u8]>,
}

/// See the module documentation.
pub struct Sweep {
    region: RegionId,
    geometry: Geometry,
    segment: LogSegment,
    /// The next record.
    offset: u32,
    /// The window that was read last, and where it begins.
    window: Option<Buffer>,
    start: Option<u32>,
}

impl Sweep {
    /// A sweep of `segment` from its first record on.
    pub const fn new(region: RegionId, geometry: Geometry, segment: LogSegment) -> Self {
        Self {
            region,
            geometry,
            segment,
            offset: SEGMENT_HEADER_BYTES,
            window: None,
            start: None,
        }
    }

    /// The segment.
    pub const fn segment(&self) -> &LogSegment {
        &self.segment
    }

    /// Where the next record is looked for.
    pub const fn offset(&self) -> u32 {
        self.offset
    }

    /// The next put that begins a value; `None` behind the last.
    pub fn next<E>(
        &mut self,
        read: &mut ReadDevice<'_, E>,
    ) -> Result<Option<Swept<'_>>, SweepError<E>> {
        let end = self.segment.end.unwrap_or(0);
        while self.offset < end {
            let start = self.load(read).map_err(SweepError::Read)?;
            let behind = (start + self.geometry.window_bytes()).min(end);
            let here = identity(Kind::LogRecord, self.region, &self.segment, self.offset);
            let window = self.window.as_deref().unwrap_or_default();
            let bytes = &window[(self.offset - start) as usize..(behind - start) as usize];
            match decode(bytes, here, self.segment.base_lsn) {
                Decoded::Record(record, _) if record.kind == RecordKind::ClosingMark => {
                    self.offset = start + self.geometry.window_bytes();
                }
                Decoded::Record(record, len) => {
                    let offset = self.offset;
                    self.offset += u32::try_from(len).expect("less than a window");
                    if record.kind == RecordKind::Put && !record.key.is_empty() {
                        let (key, value) = (record.key.len(), record.value.len());
                        let (at, chunk) = (Pointer::new(self.segment.number, offset), record.chunk);
                        // Key and value are the record's last bytes.
                        let to = (self.offset - start) as usize;
                        let window = self.window.as_deref().unwrap_or_default();
                        let value = &window[to - value..to];
                        return Ok(Some(Swept {
                            at,
                            key: &window[to - value.len() - key..to - value.len()],
                            value: (!chunk).then_some(value),
                        }));
                    }
                }
                Decoded::Pad if !may_begin(self.offset) => {
                    self.offset = self.offset.next_multiple_of(BLOCK_BYTES);
                }
                // A block of zeros without a closing mark in front of it: the device has lost a write.
                Decoded::Pad | Decoded::Invalid => {
                    return Err(SweepError::Damaged {
                        offset: self.offset,
                    });
                }
            }
        }
        Ok(None)
    }

    /// Has the window at the present place read; returns where it begins.
    fn load<E>(&mut self, read: &mut ReadDevice<'_, E>) -> Result<u32, E> {
        let window = self.geometry.window_bytes();
        let start = self.offset / window * window;
        if self.start != Some(start) {
            self.start = None;
            let buffer = self
                .window
                .get_or_insert_with(|| Buffer::for_reading(window as usize));
            read(&self.segment, start, &mut buffer[..window as usize])?;
            self.start = Some(start);
        }
        Ok(start)
    }
}

/// Whether `segment` begins with the rest of a value that the segment before it has the beginning
/// of; also where that cannot be told.
///
/// # Errors
/// Those of `read`.
pub fn begins_inside_value<E>(
    region: RegionId,
    geometry: Geometry,
    segment: &LogSegment,
    read: &mut ReadDevice<'_, E>,
) -> Result<bool, E> {
    let end = segment.end.unwrap_or(0);
    if end <= SEGMENT_HEADER_BYTES {
        return Ok(false);
    }
    for len in [LOOK_BYTES, geometry.window_bytes()] {
        let len = len.min(geometry.window_bytes());
        let mut bytes = Buffer::for_reading(len as usize);
        read(segment, 0, &mut bytes[..len as usize])?;
        // What stands behind the end is not the log's.
        let bytes = &bytes[..len.min(end) as usize];
        let mut offset = SEGMENT_HEADER_BYTES;
        while (offset as usize) < bytes.len() {
            let here = identity(Kind::LogRecord, region, segment, offset);
            match decode(&bytes[offset as usize..], here, segment.base_lsn) {
                Decoded::Record(record, len) if record.kind.is_mark() => {
                    offset += u32::try_from(len).expect("less than a window");
                }
                Decoded::Record(record, _) => return Ok(record.key.is_empty()),
                Decoded::Pad if !may_begin(offset) => {
                    offset = offset.next_multiple_of(BLOCK_BYTES);
                }
                Decoded::Pad | Decoded::Invalid => break,
            }
        }
    }
    Ok(true)
}

/// Whether a flush may have begun at `offset`. Every flush begins with a record, so no padding stands there.
const fn may_begin(offset: u32) -> bool {
    offset == SEGMENT_HEADER_BYTES || offset.is_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
