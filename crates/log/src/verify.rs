//! Checks what a device holds of a log's chain, segment by segment, and goes on where something is
//! wrong: for tools, for scrubs and repairs, and before a segment is sent to another member. Only [`find_torn`] looks
//! at windows: what is sealed is on the device, or lost.

use std::ops::ControlFlow;
use std::sync::Arc;

use argosy_base::{BLOCK_SIZE, Kind, Lsn, RegionId, SegmentNumber};
use argosy_device::DeviceError;
use argosy_memory::SharedMemory;

use super::record::{Decoded, Record, RecordKind, decode};
use super::scan::{ReadDevice, Scan, Source, Stop};
use super::segment::{Geometry, LogLayout, SEGMENT_HEADER_BYTES, identity};
use crate::chain::LogSegment;

/// A place in a log at which there is no record where one should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFault {
    /// The segment.
    pub number: SegmentNumber,
    /// Where in it.
    pub offset: u32,
    /// What is wrong.
    pub what: &'static str,
}

impl LogFault {
    /// Where a scan met what is no record.
    fn of(stop: Stop) -> Self {
        Self {
            number: stop.number,
            offset: stop.offset,
            what: stop.what.unwrap_or("the segment ends early"),
        }
    }

    /// Where a device has lost a write to `segment`.
    const fn lost(segment: &LogSegment, offset: u32) -> Self {
        Self {
            number: segment.number,
            offset,
            what: "zeros where records were written",
        }
    }
}

/// What was found in the sealed segments of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Records that were read and are good.
    pub records: u64,
    /// The first fault of each segment that has one.
    pub faults: Vec<LogFault>,
}

/// Reads every sealed segment of `chain` to its end: header, records, order.
///
/// # Errors
/// Those of `read`.
pub fn verify_sealed<E>(
    region: RegionId,
    geometry: Geometry,
    chain: &[LogSegment],
    read: &mut ReadDevice<'_, E>,
) -> Result<Sealed, E> {
    let mut found = Sealed::default();
    let mut last = Lsn(0);
    for segment in chain {
        let begun = segment.end.is_some_and(|end| end > SEGMENT_HEADER_BYTES);
        if !begun {
            continue;
        }
        let mut scan = begin(LogLayout { region, geometry }, segment, read)?;
        while let Some(head) = scan.head() {
            if head.lsn <= last {
                found.faults.push(LogFault {
                    number: segment.number,
                    offset: head.start,
                    what: "the LSN does not follow that of the segment before",
                });
                break;
            }
            last = head.lsn;
            found.records += 1;
            scan.advance(read)?;
        }
        if let Some(offset) = scan.lost() {
            found.faults.push(LogFault::lost(segment, offset));
        } else if let Some(stop) = scan.trouble() {
            found.faults.push(LogFault::of(stop));
        }
    }
    Ok(found)
}

/// A part of a log segment that another member asks for.
#[derive(Clone, Copy, Debug)]
pub struct SentBytes<'a> {
    /// Where in the segment it begins.
    pub from: u32,
    /// What was read there.
    pub bytes: &'a [u8],
}

/// What is wrong with `segment`, if it is sealed, or else in front of byte `durable` of it: another member asks
/// for the bytes `sent` of it. What follows is left to whoever recovers it.
///
/// # Errors
/// Those of `read_rest`, which reads what else it takes.
pub fn check_sent(
    of: LogLayout,
    segment: &LogSegment,
    durable: u32,
    read_rest: &mut ReadDevice<'_, DeviceError>,
    sent: SentBytes<'_>,
) -> Result<Option<LogFault>, DeviceError> {
    let SentBytes { from, bytes } = sent;
    let sent = from as usize..from as usize + bytes.len();
    let mut read = |of: &LogSegment, at: u32, out: &mut [u8]| {
        let wanted = at as usize..at as usize + out.len();
        if wanted.start < sent.start || sent.end < wanted.end {
            read_rest(of, at, out)?;
        }
        // What is sent is what is checked.
        let both = wanted.start.max(sent.start)..wanted.end.min(sent.end);
        if !both.is_empty() {
            let own = &bytes[both.start - sent.start..both.end - sent.start];
            out[both.start - wanted.start..both.end - wanted.start].copy_from_slice(own);
        }
        Ok(())
    };
    fault_before(of, segment, durable, &mut read)
}

/// What is wrong with `segment`, if it is sealed, or else in front of byte `durable` of it, a block's end.
fn fault_before<E>(
    of: LogLayout,
    segment: &LogSegment,
    durable: u32,
    read: &mut ReadDevice<'_, E>,
) -> Result<Option<LogFault>, E> {
    if segment.end.is_some() {
        let sealed = verify_sealed(of.region, of.geometry, std::slice::from_ref(segment), read)?;
        return Ok(sealed.faults.into_iter().next());
    }
    let mut scan = begin(of, segment, read)?;
    while scan.head().is_some_and(|head| head.end < durable) {
        scan.advance(read)?;
    }
    if let Some(offset) = scan.lost().filter(|offset| *offset < durable) {
        return Ok(Some(LogFault::lost(segment, offset)));
    }
    let fault = scan.trouble().filter(|stop| stop.offset < durable);
    Ok(fault.map(LogFault::of))
}

/// A scan of `segment` alone, as it is on the device, at its first record.
fn begin<'a, E>(
    LogLayout { region, geometry }: LogLayout,
    segment: &'a LogSegment,
    read: &mut ReadDevice<'_, E>,
) -> Result<Scan<'a>, E> {
    let source = Source {
        region,
        geometry,
        chain: std::slice::from_ref(segment),
        slots: &[],
        points: &[],
        written: &|_| u32::MAX,
    };
    let mut scan = Scan::at(source, 0);
    scan.advance(read)?;
    Ok(scan)
}

/// Shows `visit` the records of `segment` on the device, each with the byte at which it begins, until that has
/// had enough. Tells where something that is no record stands in front of the end, and what is wrong there.
///
/// # Errors
/// Those of `read`.
pub fn visit_records<E>(
    of: LogLayout,
    segment: &LogSegment,
    read: &mut ReadDevice<'_, E>,
    visit: &mut dyn FnMut(u32, Record<'_>) -> ControlFlow<()>,
) -> Result<Option<(u32, &'static str)>, E> {
    let mut scan = begin(of, segment, read)?;
    while let Some(head) = scan.head() {
        let start = head.start;
        if visit(start, scan.record()).is_break() {
            return Ok(None);
        }
        scan.advance(read)?;
    }
    let trouble = scan.trouble().filter(|_| segment.end.is_some());
    Ok(trouble.map(|stop| (stop.offset, stop.what.unwrap_or("the segment ends early"))))
}

/// Where something that is no record stands behind the last record of the segments that are not
/// sealed: torn by a loss of power, or damaged.
///
/// # Errors
/// Those of `read`.
pub fn find_torn<E>(
    region: RegionId,
    geometry: Geometry,
    chain: &[LogSegment],
    slots: &[Option<Arc<SharedMemory>>],
    read: &mut ReadDevice<'_, E>,
) -> Result<Option<LogFault>, E> {
    let first = chain.iter().position(|segment| segment.end.is_none());
    let Some(first) = first else {
        return Ok(None);
    };
    let source = Source {
        region,
        geometry,
        chain,
        slots,
        points: &[],
        written: &|_| u32::MAX,
    };
    let mut scan = Scan::at(source, first);
    scan.advance(read)?;
    while scan.head().is_some() {
        scan.advance(read)?;
    }
    let trouble = scan.trouble().filter(|stop| stop.offset > 0);
    Ok(trouble.map(|stop| LogFault {
        number: stop.number,
        offset: stop.offset,
        what: stop.what.unwrap_or("no record"),
    }))
}

/// Makes closing marks in `bytes`, with which `segment` begins, say nothing, and zeros of what follows each in its
/// window.
///
/// A closing mark says what was durable when it was written; recovery writes one again without that. No record of the
/// history lies behind one. So copies that differ only in that hold the same.
pub fn level_closing_marks(
    region: RegionId,
    geometry: Geometry,
    segment: &LogSegment,
    bytes: &mut [u8],
) {
    for index in 0..geometry.windows_per_segment() {
        let start = (index * geometry.window_bytes()) as usize;
        let end = (geometry.window_end(index) as usize).min(bytes.len());
        let mut at = start.max(SEGMENT_HEADER_BYTES as usize);
        while at < end {
            let offset = u32::try_from(at).expect("less than a segment");
            let here = identity(Kind::LogRecord, region, segment, offset);
            let (is_closing, len) = match decode(&bytes[at..end], here, segment.base_lsn) {
                Decoded::Record(record, len) => (record.kind == RecordKind::ClosingMark, len),
                Decoded::Pad => (false, BLOCK_SIZE - at % BLOCK_SIZE),
                Decoded::Invalid => break,
            };
            if is_closing {
                let mut mark = Vec::new();
                Record::closing_mark(Lsn(0)).encode(here, segment.base_lsn, &mut mark);
                // Not longer than one that says something.
                bytes[at..at + mark.len()].copy_from_slice(&mark);
                bytes[at + mark.len()..end].fill(0);
                break;
            }
            at += len;
        }
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
