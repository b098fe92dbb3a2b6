//! The log: groups of operations in segments that are as long as a window, and the writing end of it.
//!
//! ```text
//! sealed := checksum: u32  len: u32  body[len]               the checksum is that of len and body, under an identity
//! group  := lsn: varint  time: varint  count: varint  op[count]       time 0: it tells none; ops as on the wire
//! ```
//!
//! The chain begins with the segment whose ordinal the last edit states, and has as many segments as there are slots.
//! The segment of ordinal `n` has the number `n + 1` and the slot `n % slots`, of windows and on the device. So it has
//! its window for as long as it is part of the chain, and no segment is ever read back to be shipped.
//!
//! A group lies in one segment, and begins right behind the one before it, or, where a flush came between, at the next
//! block. It is sealed under the identity of its byte: what an earlier segment left in the slot is no group (I2). Its
//! first operation has its LSN, each further one the next.

use std::collections::{BTreeMap, VecDeque};

use argosy_base::codec::{Malformed, Reader, put_varint};
use argosy_base::limits::{BATCH_PAIRS_MAX, BLOCK_SIZE};
use argosy_base::ops::{put_op, read_op};
use argosy_base::{FlushRange, Identity, LogId, Lsn, Moment, SegmentNumber, WriteBatch};

use super::map::Map;
use crate::LogEnd;
use crate::source::LogPlace;

/// The only log.
pub(super) const LOG: LogId = LogId::FIRST;

/// Bytes in front of those that are sealed.
pub(super) const SEAL_BYTES: usize = 8;

/// `body`, sealed.
pub(super) fn seal(identity: Identity, body: &[u8]) -> Vec<u8> {
    let len = narrow(body.len()).to_le_bytes();
    let checksum = identity.checksum_of([&len[..], body].into_iter());
    [&checksum.to_le_bytes()[..], &len, body].concat()
}

/// The body that `bytes` begin with, if it is whole.
pub(super) fn unseal(identity: Identity, bytes: &[u8]) -> Option<&[u8]> {
    let mut from = Reader::new("sealed", bytes);
    let (checksum, len) = (from.u32().ok()?, from.u32().ok()?);
    let body = from.take(len as usize).ok()?;
    (identity.checksum(&bytes[4..SEAL_BYTES + body.len()]) == checksum).then_some(body)
}

/// Operations that take effect together, and the region's TTL clock; 0 where the group does not set it.
pub(super) struct Logged {
    /// The LSN of its first operation.
    pub(super) first: Lsn,
    pub(super) time: Moment,
    pub(super) ops: WriteBatch,
}

impl Logged {
    /// The LSN of its last operation.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.first.0 + (self.ops.len() as u64).max(1) - 1)
    }

    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let head = [self.first.0, self.time.0, self.ops.len() as u64];
        head.into_iter()
            .for_each(|number| put_varint(&mut out, number));
        self.ops.ops().for_each(|op| put_op(&op, &mut out));
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let from = &mut Reader::new("toy group", bytes);
        let (first, time) = (Lsn(from.varint()?), Moment(from.varint()?));
        let mut ops = WriteBatch::new();
        for _ in 0..from.length(BATCH_PAIRS_MAX)? {
            let kind = from.u8()?;
            let added = ops.add_any(&read_op(kind, from)?);
            added.map_err(|_| from.malformed())?;
        }
        Ok(Self { first, time, ops })
    }
}

/// Applies the groups of a segment to `map`, up to the first that is missing: whichever of `sources`, which begin with
/// the segment, has it. Returns the segment's bytes up to there.
pub(super) fn follow(segment: Identity, sources: &[&[u8]], map: &mut Map) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let places = [bytes.len(), bytes.len().next_multiple_of(BLOCK_SIZE)];
        let group = places.iter().find_map(|at| {
            let mut rests = sources.iter().filter_map(|source| source.get(*at..));
            let sealed = rests.find_map(|rest| {
                let body = unseal(segment.at(narrow(*at)), rest)?;
                Some((&rest[..SEAL_BYTES + body.len()], Logged::decode(body).ok()?))
            });
            sealed.map(|(sealed, group)| (*at, sealed, group))
        });
        let next = map.last.next();
        let Some((at, sealed, group)) = group.filter(|(.., group)| group.first <= next) else {
            return bytes;
        };
        if group.first == next {
            map.apply(&group);
        }
        bytes.resize(at, 0);
        bytes.extend_from_slice(sealed);
    }
}

/// The segment of ordinal `ordinal`.
pub(super) const fn number(ordinal: u64) -> SegmentNumber {
    SegmentNumber(ordinal + 1)
}

/// The writing end of the log. It places groups, and writes nothing.
///
/// Bytes become durable by ranges: a range is closed at a whole block, when it is flushed or the segment is left. It is
/// done when it is durable here and everywhere, or when an image everywhere covers it.
pub(super) struct Tail {
    window_bytes: usize,
    /// Where the next group goes, and the end of the last range that was closed.
    at: LogPlace,
    closed: LogPlace,
    /// Segments below this ordinal may be written.
    pub(super) usable: u64,
    /// Per segment that was written, how far, and its last LSN.
    pub(super) written: BTreeMap<u64, (u32, Lsn)>,
    /// Ranges that are closed and not done, and the last LSN in front of the end of each.
    ranges: VecDeque<(FlushRange, Lsn)>,
    /// How far it is durable here, and on all other members.
    pub(super) here: LogPlace,
    pub(super) everywhere: LogPlace,
    /// Everything up to it is durable everywhere.
    pub(super) durable: Lsn,
}

impl Tail {
    /// Continues the log at segment `first`, after a history that is durable up to `durable`.
    pub(super) const fn new(window_bytes: usize, first: u64, durable: Lsn) -> Self {
        let begin = LogPlace {
            ordinal: first,
            offset: 0,
        };
        Self {
            window_bytes,
            at: begin,
            closed: begin,
            usable: first,
            written: BTreeMap::new(),
            ranges: VecDeque::new(),
            here: begin,
            everywhere: begin,
            durable,
        }
    }

    /// Forgets the ranges of segments before `first`: every member has an image of everything up to `upto`.
    pub(super) fn note_image(&mut self, first: u64, upto: Lsn) {
        self.ranges.retain(|(range, _)| range.ordinal >= first);
        self.durable = self.durable.max(upto);
    }

    /// Segments behind the one that is written.
    pub(super) const fn spare(&self) -> u64 {
        self.usable.saturating_sub(self.at.ordinal + 1)
    }

    /// The first segment that is needed behind an image up to `upto`.
    pub(super) fn first_behind(&self, upto: Lsn) -> u64 {
        let mut needed = self.written.iter().filter(|(_, (_, last))| *last > upto);
        needed.next().map_or(self.at.ordinal, |(first, _)| *first)
    }

    const fn takes(&self, bytes: usize) -> bool {
        self.at.ordinal < self.usable && self.at.offset as usize + bytes <= self.window_bytes
    }

    /// Places a group of so many bytes that ends with `last`. Returns where it begins, and the range that was closed in
    /// front of it; `None` where there is no room.
    pub(super) fn append(
        &mut self,
        bytes: usize,
        last: Lsn,
    ) -> Option<(LogPlace, Option<FlushRange>)> {
        let mut closed = None;
        if !self.takes(bytes) {
            (self.spare() > 0).then_some(())?;
            closed = self.close();
            self.at = self.at.next_segment();
            self.closed = self.at;
        }
        let begin = self.at;
        self.at.offset += narrow(bytes);
        self.written.insert(begin.ordinal, (self.at.offset, last));
        Some((begin, closed))
    }

    /// Whether there is an open range.
    pub(super) fn has_open(&self) -> bool {
        self.at > self.closed
    }

    /// Closes the open range. What is behind its last group is no group.
    pub(super) fn close(&mut self) -> Option<FlushRange> {
        let (end, last) = self.written.get_mut(&self.at.ordinal)?;
        if self.at == self.closed {
            return None;
        }
        *end = narrow((*end as usize).next_multiple_of(BLOCK_SIZE));
        let range = FlushRange {
            log: LOG,
            ordinal: self.at.ordinal,
            segment: number(self.at.ordinal),
            from: self.closed.offset,
            to: *end,
        };
        self.at.offset = *end;
        self.closed = self.at;
        self.ranges.push_back((range, *last));
        Some(range)
    }

    /// Closed ranges that are not durable here.
    pub(super) fn to_flush(&self) -> Vec<FlushRange> {
        let ranges = self.ranges.iter().map(|(range, _)| *range);
        ranges.filter(|range| behind(range) > self.here).collect()
    }

    /// Forgets ranges that are done.
    pub(super) fn forget_done(&mut self) {
        let done = self.here.min(self.everywhere);
        while let Some((_, last)) = self.ranges.pop_front_if(|(range, _)| behind(range) <= done) {
            self.durable = self.durable.max(last);
        }
    }

    /// How far it is written.
    pub(super) fn end(&self) -> Option<LogEnd> {
        let (ordinal, (end, _)) = self.written.last_key_value()?;
        Some(LogEnd {
            log: LOG,
            ordinal: *ordinal,
            segment: number(*ordinal),
            end: *end,
        })
    }
}

/// The place behind a range.
pub(super) const fn behind(range: &FlushRange) -> LogPlace {
    LogPlace {
        ordinal: range.ordinal,
        offset: range.to,
    }
}

pub(super) fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("less than 4 GiB")
}
