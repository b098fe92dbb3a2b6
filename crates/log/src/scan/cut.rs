//! Records behind the end of a history: whole, and yet not part of it, since one before them is missing.
//!
//! They are normal after a loss of power: what no flush had made durable reaches the device in any order. They may
//! also lie behind a record that was durable and is damaged, where nothing says that it was. So they are counted and
//! told, and nothing follows from them.
//!
//! They are looked for on the device alone, from the place at which a log ends or stops: there at every byte up to
//! the end of the window, since a damaged record need not tell how long it was; in later windows, which begin with a
//! record, one behind the other, and from the next block on where there is none.

use std::ops::ControlFlow;

use argosy_base::{Kind, LogId, Lsn, RegionId, SegmentNumber};

use super::super::record::{Record, record_at};
use super::super::segment::{
    BLOCK_BYTES, LogLayout, SEGMENT_HEADER_BYTES, SegmentPosition, identity,
};
use super::place::ScanPlace;
use super::{ReadDevice, Scan};
use crate::chain::LogSegment;

/// What one log segment holds behind the end of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutSegment {
    /// The log.
    pub log: LogId,
    /// The segment.
    pub number: SegmentNumber,
    /// How many records.
    pub records: u64,
    /// The lowest LSN among them.
    pub first: Lsn,
    /// The highest.
    pub last: Lsn,
}

impl CutSegment {
    const fn new(segment: &LogSegment) -> Self {
        Self {
            log: segment.log,
            number: segment.number,
            records: 0,
            first: Lsn(u64::MAX),
            last: Lsn(0),
        }
    }

    fn add(&mut self, lsn: Lsn) {
        self.records += 1;
        self.first = self.first.min(lsn);
        self.last = self.last.max(lsn);
    }
}

impl Scan<'_> {
    /// From where on nothing belongs to the history.
    fn cut_from(&self, end: Option<SegmentPosition>) -> ScanPlace {
        let chain = self.source.chain;
        let here = ScanPlace {
            index: self.at.index,
            offset: self.head.map_or(self.at.offset, |head| head.start),
        };
        let met = self.passed.map_or(here, |passed| passed.at);
        let end = match end {
            Some(end) => ScanPlace {
                index: chain.partition_point(|segment| segment.ordinal < end.ordinal),
                offset: end.offset,
            },
            None => ScanPlace {
                index: chain.partition_point(|segment| segment.end.is_some()),
                offset: 0,
            },
        };
        met.min(end)
    }

    /// The segments with records of higher LSNs than `missing`, in the order of the chain, from the `end` of the log's
    /// history on: windows that hold nothing behind it may have led the scan over what the device has there. What
    /// cannot be read holds none.
    pub(in super::super) fn cut_segments<E>(
        &self,
        end: Option<SegmentPosition>,
        missing: Lsn,
        read: &mut ReadDevice<'_, E>,
    ) -> Vec<CutSegment> {
        let first = self.cut_from(end);
        let geometry = self.source.geometry;
        let mut window = Vec::new();
        let mut found = Vec::new();
        for (index, segment) in self.source.chain.iter().enumerate().skip(first.index) {
            let limit = segment.end.unwrap_or(geometry.segment_bytes());
            let limit = limit.min(self.source.written_up_to(segment));
            let mut at = if index == first.index {
                first.offset
            } else {
                0
            };
            let mut cut = CutSegment::new(segment);
            // Within the window of the stop.
            let mut at_each_byte = index == first.index;
            while at < limit {
                let start = at / geometry.window_bytes() * geometry.window_bytes();
                let end = start + geometry.window_bytes();
                // Mostly nothing is read.
                window.resize(geometry.window_bytes() as usize, 0);
                let is_read = read(segment, start, &mut window).is_ok();
                let len = if is_read { end.min(limit) - start } else { 0 };
                let bytes = &window[..len as usize];
                let look = Look {
                    region: self.source.region,
                    segment,
                    window: (start, bytes),
                    at_each_byte,
                };
                let _ = look.for_records(at.max(SEGMENT_HEADER_BYTES), &mut |_, record| {
                    if record.lsn > missing {
                        cut.add(record.lsn);
                    }
                    ControlFlow::Continue(())
                });
                at_each_byte = false;
                at = end;
            }
            found.extend(Some(cut).filter(|cut| cut.records > 0));
        }
        found
    }
}

/// Shows `visit` the whole records of `segment` on the device with LSNs from `first` on, each with the byte at which it
/// begins, until that has had enough. They are looked for at every byte, whatever lies in between: for tools.
///
/// # Errors
/// The first of `read`: what can be read is shown all the same.
pub fn visit_behind<E>(
    of: LogLayout,
    segment: &LogSegment,
    first: Lsn,
    read: &mut ReadDevice<'_, E>,
    visit: &mut dyn FnMut(u32, Record<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, E> {
    let LogLayout { region, geometry } = of;
    let mut window = vec![0; geometry.window_bytes() as usize];
    let mut failed = None;
    for index in 0..geometry.windows_per_segment() {
        let start = index * geometry.window_bytes();
        if let Err(error) = read(segment, start, &mut window) {
            failed.get_or_insert(error);
            continue;
        }
        let look = Look {
            region,
            segment,
            window: (start, &window),
            at_each_byte: true,
        };
        let visited = look.for_records(start.max(SEGMENT_HEADER_BYTES), &mut |at, record| {
            if record.lsn < first {
                return ControlFlow::Continue(());
            }
            visit(at, record)
        });
        if visited.is_break() {
            return Ok(visited);
        }
    }
    failed.map_or(Ok(ControlFlow::Continue(())), Err)
}

/// How many zeros `bytes` begin with: no record begins with one, and most of what lies behind a log is zero.
fn zeros_in_front(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 64] = [0; 64];
    let chunks = bytes.chunks_exact(ZEROS.len());
    let whole = chunks.take_while(|chunk| **chunk == ZEROS).count() * ZEROS.len();
    let rest = &bytes[whole..];
    whole + rest.iter().take_while(|byte| **byte == 0).count()
}

/// A window in which records are looked for.
struct Look<'a> {
    region: RegionId,
    segment: &'a LogSegment,
    /// Its first byte in the segment, and its bytes.
    window: (u32, &'a [u8]),
    at_each_byte: bool,
}

impl Look<'_> {
    fn for_records(
        &self,
        from: u32,
        visit: &mut dyn FnMut(u32, Record<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (start, bytes) = self.window;
        let mut at = from;
        while let Some(rest) = bytes
            .get((at - start) as usize..)
            .filter(|rest| !rest.is_empty())
        {
            let here = identity(Kind::LogRecord, self.region, self.segment, at);
            at = match record_at(rest, here, self.segment.base_lsn) {
                Some((record, len)) => {
                    if !record.kind.is_mark() {
                        visit(at, record)?;
                    }
                    at + u32::try_from(len).expect("less than a window")
                }
                None if self.at_each_byte => {
                    at + 1 + u32::try_from(zeros_in_front(&rest[1..])).expect("less than a window")
                }
                None => (at + 1).next_multiple_of(BLOCK_BYTES),
            };
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_counted_up_to_the_first_other_byte() {
        let mut bytes = vec![0; 200];
        assert_eq!(zeros_in_front(&bytes), 200);
        for at in [0, 1, 63, 64, 65, 127, 128, 199] {
            bytes[at] = 1;
            assert_eq!(zeros_in_front(&bytes), at);
            bytes[at] = 0;
        }
        assert_eq!(zeros_in_front(&[]), 0);
    }
}
