//! Records in windows behind the end of the history: what tells a torn end from a damaged middle, where one
//! process alone wrote the windows.
//!
//! Such a process writes its records one by one, in the order of their LSNs over all logs. A kill leaves all
//! of them up to an LSN, and perhaps a part of the next. So behind the end of the history there can be
//! nothing but the first records of the group that was being written. Anything else was written when what is
//! missing was there:
//!
//! | behind the end of the history, in windows | means |
//! |---|---|
//! | nothing, or what is no record | the end |
//! | records with the next LSNs, without a gap, all of a group that goes on | the end, in the middle of a group |
//! | a record behind a gap, or the last of a group | damage |
//!
//! Only the last record of all cannot be told from one that was torn. Windows that peers write are filled in
//! other orders: nothing follows from what lies in those.
//!
//! Where a window's header is damaged, its slot is read as each window that it could hold. Records are looked
//! for at every byte, since a damaged one need not tell how long it was.

use std::sync::Arc;

use argosy_base::{Kind, Lsn, RegionId, SegmentNumber};
use argosy_memory::SharedMemory;

use super::record::record_at;
use super::segment::{
    Geometry, SEGMENT_HEADER_BYTES, WINDOW_HEADER_BYTES, WindowName, decode_window_header, identity,
};
use crate::chain::LogSegment;

/// Least bytes of a record, for a bound of what LSNs can be there.
const RECORD_BYTES_MIN: u64 = 8;

/// A record that would not be there if the history had ended where it seems to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The record's LSN.
    pub lsn: Lsn,
    /// The first LSN that is missing.
    pub missing: Lsn,
    /// The segment in whose window it lies.
    pub number: SegmentNumber,
    /// Where in the segment.
    pub offset: u32,
    /// How many there are behind the first that is missing.
    pub records: u64,
}

/// A region's logs, and what survived of their windows.
pub struct Left<'a, const N: usize> {
    /// The region.
    pub region: RegionId,
    /// How its logs are cut.
    pub geometry: Geometry,
    /// Per log ([`LogId::index`](argosy_base::LogId::index)), the chain in rising order.
    pub chains: [&'a [LogSegment]; N],
    /// Per log, what survived of the windows, by slot.
    pub windows: [&'a [Option<Arc<SharedMemory>>]; N],
}

/// A record that was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    lsn: Lsn,
    more: bool,
    number: SegmentNumber,
    offset: u32,
}

impl<const N: usize> Left<'_, N> {
    /// Looks for what the history cannot have ended before, where its last LSN is `last`.
    #[must_use]
    pub fn find_behind(&self, last: Lsn) -> Option<Behind> {
        let mut search = Search {
            region: self.region,
            geometry: self.geometry,
            last,
            found: Vec::new(),
        };
        for (chain, slots) in self.chains.into_iter().zip(self.windows) {
            for (slot, memory) in slots.iter().enumerate() {
                if let Some(memory) = memory {
                    search.look_through(chain, slot, memory);
                }
            }
        }
        let mut found = search.found;
        found.sort_unstable();
        found.dedup_by_key(|found| found.lsn);
        let mut missing = last.next();
        let mut rest = found.iter().enumerate();
        let (index, first) = rest.find(|(_, found)| {
            let goes_on = found.lsn == missing && found.more;
            if goes_on {
                missing = missing.next();
            }
            !goes_on
        })?;
        Some(Behind {
            lsn: first.lsn,
            missing,
            number: first.number,
            offset: first.offset,
            records: (found.len() - index) as u64,
        })
    }
}

/// Records behind the end of the history, as they are found.
struct Search {
    region: RegionId,
    geometry: Geometry,
    last: Lsn,
    found: Vec<Found>,
}

impl Search {
    /// Looks at each window of `chain` that `memory`, its slot `slot`, can hold.
    fn look_through(&mut self, chain: &[LogSegment], slot: usize, memory: &SharedMemory) {
        let Self {
            region, geometry, ..
        } = *self;
        if memory.len() < geometry.slot_bytes() {
            return;
        }
        let header = memory.peek(0, SEGMENT_HEADER_BYTES as usize);
        if header.iter().all(|byte| *byte == 0) {
            return;
        }
        let named = decode_window_header(&header).ok().map(|(name, _)| name);
        let bytes = memory.peek(WINDOW_HEADER_BYTES, geometry.window_bytes() as usize);
        for segment in chain {
            for index in 0..geometry.windows_per_segment() {
                let is_it = match named {
                    Some(name) => name == WindowName::new(region, segment, index),
                    None => segment.end.is_none() && geometry.slot(segment.ordinal, index) == slot,
                };
                if is_it {
                    self.records(segment, index, &bytes);
                }
            }
        }
    }

    /// Adds the records behind `last` in window `index` of `segment`.
    fn records(&mut self, segment: &LogSegment, index: u32, window: &[u8]) {
        let Self {
            region, geometry, ..
        } = *self;
        let start = index * geometry.window_bytes();
        // What lies behind a seal was given up.
        let sealed_at = segment.end.unwrap_or(u32::MAX);
        let limit = geometry.window_end(index).min(sealed_at);
        let windows = geometry.slots() as u64 * u64::from(geometry.window_bytes());
        let highest = self.last.0.saturating_add(2 * windows / RECORD_BYTES_MIN);
        let mut offset = start.max(SEGMENT_HEADER_BYTES);
        while offset < limit {
            let bytes = &window[(offset - start) as usize..(limit - start) as usize];
            let here = identity(Kind::LogRecord, region, segment, offset);
            let Some((record, len)) = record_at(bytes, here, segment.base_lsn) else {
                offset += 1;
                continue;
            };
            let is_write = !record.kind.is_mark();
            if is_write && record.lsn > self.last && record.lsn.0 <= highest {
                self.found.push(Found {
                    lsn: record.lsn,
                    more: record.more,
                    number: segment.number,
                    offset,
                });
            }
            offset += u32::try_from(len).expect("less than a window");
        }
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::LogId;

    use super::super::testing::{Operation, REGION, Region};
    use super::*;
    use crate::testing::{LARGE_LOG, RECOVERY_LOG};

    fn region() -> Region {
        Region::new(Geometry::new(32 << 10, 8 << 10, 4))
    }

    fn put(log: LogId, key: &str, len: usize) -> Operation {
        Operation {
            log,
            key: key.into(),
            value: Some(vec![7; len]),
        }
    }

    fn behind(region: &Region) -> (Lsn, Option<Behind>) {
        let (recovered, _) = region.recover(true, Lsn(0)).unwrap();
        let windows = [0, 1]
            .map(|log: usize| -> Vec<_> { region.memory[log].iter().cloned().map(Some).collect() });
        let left = Left {
            region: REGION,
            geometry: region.geometry,
            chains: [&region.chains[0], &region.chains[1]],
            windows: [&windows[0], &windows[1]],
        };
        (recovered.last, left.find_behind(recovered.last))
    }

    fn flip(region: &Region, log: LogId, slot: usize, at: usize) {
        let memory = &region.memory[log.index()][slot];
        let byte = memory.read_vec(at, 1)[0];
        memory.write(at, &[byte ^ 0x10]);
    }

    /// Where the record of history entry `index` begins in the first window's memory.
    fn place(region: &Region, index: usize) -> usize {
        WINDOW_HEADER_BYTES + region.history[index].at.offset() as usize
    }

    #[test]
    fn a_flipped_bit_anywhere_in_the_middle_is_told() {
        let mut region = region();
        for n in 0..12 {
            let log = if n % 3 == 2 { LARGE_LOG } else { RECOVERY_LOG };
            region.append(&[put(log, "key", 30)]).unwrap();
        }
        assert_eq!(behind(&region), (Lsn(12), None), "nothing is wrong");
        // The fifth write, in each of its bytes; key and value take 33, what is in front 8.
        let first = place(&region, 4);
        assert_eq!(region.history[4].operation.log, RECOVERY_LOG);
        for at in first..first + 41 {
            flip(&region, RECOVERY_LOG, 0, at);
            let (last, found) = behind(&region);
            assert_eq!(last, Lsn(4), "byte {at}");
            let found = found.expect("records lie behind it");
            assert_eq!((found.missing, found.records), (Lsn(5), 7), "byte {at}");
            flip(&region, RECOVERY_LOG, 0, at);
        }
        // The window's header: the slot could hold no other window.
        flip(&region, RECOVERY_LOG, 0, 20);
        let (last, found) = behind(&region);
        assert_eq!(last, Lsn(0));
        assert_eq!(found.map(|found| found.records), Some(12));
    }

    #[test]
    fn a_torn_end_is_the_end() {
        let mut region = region();
        for _ in 0..3 {
            region.append(&[put(RECOVERY_LOG, "key", 30)]).unwrap();
        }
        let group: Vec<_> = [RECOVERY_LOG, LARGE_LOG, RECOVERY_LOG]
            .map(|log| put(log, "group", 30))
            .into();
        region.append(&group).unwrap();
        // The last record of all: as if it had not been written whole.
        let at = place(&region, 5);
        flip(&region, RECOVERY_LOG, 0, at + 20);
        assert_eq!(behind(&region), (Lsn(3), None));
        flip(&region, RECOVERY_LOG, 0, at + 20);
        // One before it in the group, in the other log: the group had been whole.
        let at = place(&region, 4);
        flip(&region, LARGE_LOG, 0, at + 20);
        let (last, found) = behind(&region);
        assert_eq!(last, Lsn(3));
        assert_eq!(
            found.map(|found| (found.missing, found.lsn)),
            Some((Lsn(5), Lsn(6)))
        );
    }
}
