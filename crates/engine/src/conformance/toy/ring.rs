//! The windows of the log, and the writing end of it.
//!
//! A segment of the log is one window long, and the window of ordinal `n` is in slot `n % slots`. A chain has as many
//! segments as there are slots, so each segment has its window for as long as it is part of the chain, and no segment
//! is ever read back to be shipped.
//!
//! ```text
//! slot   := header (in a block of its own)  window
//! header := sealed: number: u64                            under the identity of a window
//! ```
//!
//! Bytes become durable by ranges: a range is closed by padding up to a whole block, when it is flushed or the segment
//! is left. A range is done when it is durable here and everywhere, or when an image everywhere covers it.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{FlushRange, Identity, Kind, LogId, Lsn, RegionId, SegmentNumber};
use argosy_memory::SharedMemory;

use super::edit::RingSegment;
use super::record::{identity, seal};
use crate::LogEnd;
use crate::source::{LogPlace, Next, Piece};

/// The only log.
pub(super) const LOG: LogId = LogId::FIRST;

/// Bytes of a slot in front of its window.
pub(super) const HEADER_BYTES: usize = BLOCK_SIZE;

/// The header of the window of `segment`.
fn header(region: RegionId, segment: &RingSegment) -> Vec<u8> {
    let identity = Identity {
        kind: Kind::Window,
        ..identity(region, segment, 0)
    };
    seal(identity, &segment.number.0.to_le_bytes())
}

/// The memory of the windows; `None` where it is gone.
pub(super) struct Slots(pub(super) Vec<Option<Arc<SharedMemory>>>);

impl Slots {
    /// The slot of `segment`.
    fn of(&self, segment: &RingSegment) -> Option<&SharedMemory> {
        let slot = segment.ordinal.checked_rem(self.0.len() as u64)?;
        self.0[usize::try_from(slot).ok()?].as_deref()
    }

    /// What they hold of `segment`, if they have its window.
    pub(super) fn found(&self, region: RegionId, segment: &RingSegment) -> Option<Vec<u8>> {
        let memory = self.of(segment)?;
        let header = header(region, segment);
        let named = memory.peek(0, header.len()) == header;
        named.then(|| memory.peek(HEADER_BYTES, memory.len() - HEADER_BYTES))
    }

    /// Has the window of `segment` begin with `bytes`.
    pub(super) fn begin(&self, region: RegionId, segment: &RingSegment, bytes: &[u8]) {
        if let Some(memory) = self.of(segment) {
            memory.write(0, &header(region, segment));
            memory.write(HEADER_BYTES, bytes);
        }
    }
}

/// A segment of the chain, and how far it is written.
struct Tail {
    segment: RingSegment,
    at: usize,
    /// The range in front of it is closed.
    closed: usize,
    /// The last LSN in it.
    last: Lsn,
}

/// A range that is closed and not done.
struct Range {
    range: FlushRange,
    /// The last LSN in front of its end.
    last: Lsn,
    here: bool,
    everywhere: bool,
}

/// See the module documentation.
pub(super) struct Ring {
    region: RegionId,
    slots: Vec<Arc<SharedMemory>>,
    /// There are no other members.
    alone: bool,
    chain: Vec<Tail>,
    /// The segment with this ordinal is written.
    writing: u64,
    /// Segments with a lower ordinal may be written.
    usable: u64,
    ranges: VecDeque<Range>,
    /// Everything up to it is durable everywhere.
    pub(super) durable: Lsn,
}

impl Ring {
    /// The ring in `slots` that begins with `chain`, behind a history up to `durable`.
    pub(super) fn new(
        region: RegionId,
        slots: Vec<Arc<SharedMemory>>,
        chain: &[RingSegment],
        durable: Lsn,
        alone: bool,
    ) -> Self {
        let mut ring = Self {
            region,
            slots,
            alone,
            chain: Vec::new(),
            writing: chain.first().map_or(0, |segment| segment.ordinal),
            usable: 0,
            ranges: VecDeque::new(),
            durable,
        };
        ring.follow(chain);
        ring
    }

    /// The chain is this one from now on: an image has what was in front of it.
    pub(super) fn follow(&mut self, chain: &[RingSegment]) {
        let first = chain.first().map_or(0, |segment| segment.ordinal);
        self.chain.retain(|tail| tail.segment.ordinal >= first);
        let new = chain.iter().skip(self.chain.len()).map(|segment| Tail {
            segment: *segment,
            at: 0,
            closed: 0,
            last: Lsn(0),
        });
        self.chain.extend(new);
        assert!(self.chain.len() <= self.slots.len(), "a slot for each");
        if self.alone {
            self.use_all();
        }
    }

    /// All segments of the chain may be written.
    pub(super) fn use_all(&mut self) {
        let last = self.chain.last();
        self.usable = last.map_or(0, |tail| tail.segment.ordinal + 1);
    }

    /// The image that has everything up to `upto`, in place of what is in front of the chain, is everywhere.
    pub(super) fn note_image(&mut self, upto: Lsn) {
        let first = self.chain.first().map_or(0, |tail| tail.segment.ordinal);
        self.ranges.retain(|range| range.range.ordinal >= first);
        self.durable = self.durable.max(upto);
        self.use_all();
    }

    /// Segments behind the one that is written.
    pub(super) const fn spare(&self) -> u64 {
        self.usable.saturating_sub(self.writing + 1)
    }

    /// The first segment that is needed behind an image up to `upto`.
    pub(super) fn first_behind(&self, upto: Lsn) -> u64 {
        let needed = |tail: &&Tail| tail.segment.ordinal == self.writing || tail.last > upto;
        let first = self.chain.iter().find(needed);
        first.map_or(self.writing, |tail| tail.segment.ordinal)
    }

    fn memory(&self, ordinal: u64) -> (usize, &SharedMemory) {
        let slot = usize::try_from(ordinal % self.slots.len() as u64).expect("a slot");
        (slot, &self.slots[slot])
    }

    fn window_bytes(&self) -> usize {
        self.slots[0].len() - HEADER_BYTES
    }

    fn tail(&self, ordinal: u64) -> Option<&Tail> {
        let mut chain = self.chain.iter();
        chain.find(|tail| tail.segment.ordinal == ordinal)
    }

    /// Whether `bytes` more fit the segment that is written.
    fn takes(&self, bytes: usize) -> bool {
        let tail = self.tail(self.writing);
        self.writing < self.usable
            && tail.is_some_and(|tail| tail.at + bytes <= self.window_bytes())
    }

    /// Whether `bytes` fit now.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.takes(bytes) || self.spare() > 0
    }

    /// Appends a group that ends with `last`, for which there is room. Returns the range that ends with that.
    pub(super) fn append(&mut self, group: &[u8], last: Lsn) -> Option<FlushRange> {
        let mut closed = None;
        if !self.takes(group.len() + super::record::SEAL_BYTES) {
            closed = self.close();
            self.writing += 1;
        }
        let (_, memory) = self.memory(self.writing);
        let tail = self.tail(self.writing).expect("there is room");
        if tail.at == 0 {
            memory.write(0, &header(self.region, &tail.segment));
        }
        let bytes = seal(identity(self.region, &tail.segment, tail.at), group);
        memory.write(HEADER_BYTES + tail.at, &bytes);
        let tail = self.tail_mut();
        tail.at += bytes.len();
        tail.last = last;
        closed
    }

    fn tail_mut(&mut self) -> &mut Tail {
        let writing = self.writing;
        let mut chain = self.chain.iter_mut();
        chain
            .find(|tail| tail.segment.ordinal == writing)
            .expect("the chain has what is written")
    }

    /// Whether there is an open range.
    pub(super) fn has_open(&self) -> bool {
        self.tail(self.writing)
            .is_some_and(|tail| tail.at > tail.closed)
    }

    /// Pads the open range, and closes it.
    pub(super) fn close(&mut self) -> Option<FlushRange> {
        if !self.has_open() {
            return None;
        }
        let tail = self.tail_mut();
        let (at, last, segment) = (tail.at, tail.last, tail.segment);
        let to = at.next_multiple_of(BLOCK_SIZE);
        let range = FlushRange {
            log: LOG,
            ordinal: segment.ordinal,
            segment: segment.number,
            from: narrow(tail.closed),
            to: narrow(to),
        };
        (tail.at, tail.closed) = (to, to);
        let (_, memory) = self.memory(segment.ordinal);
        memory.fill_zero(HEADER_BYTES + at..HEADER_BYTES + to);
        self.ranges.push_back(Range {
            range,
            last,
            here: false,
            everywhere: self.alone,
        });
        Some(range)
    }

    /// Closed ranges that are not durable here, with their bytes.
    pub(super) fn to_flush(&self) -> Vec<(FlushRange, Vec<u8>)> {
        let new = self.ranges.iter().filter(|range| !range.here);
        let with_bytes = new.map(|Range { range, .. }| {
            let (_, memory) = self.memory(range.ordinal);
            let from = HEADER_BYTES + range.from as usize;
            let len = (range.to - range.from) as usize;
            (*range, memory.read_vec(from, len))
        });
        with_bytes.collect()
    }

    /// How far it is written.
    pub(super) fn end(&self) -> Option<LogEnd> {
        let tail = self.tail(self.writing).filter(|tail| tail.at > 0)?;
        Some(LogEnd {
            log: LOG,
            ordinal: tail.segment.ordinal,
            segment: tail.segment.number,
            end: narrow(tail.at),
        })
    }

    /// All ranges up to byte `to` of `segment` are durable here, or everywhere else.
    pub(super) fn note(&mut self, segment: SegmentNumber, to: u32, here: bool) {
        let mut ranges = self.ranges.iter();
        let Some(range) = ranges.find(|range| range.range.segment == segment) else {
            return;
        };
        let upto = (range.range.ordinal, to);
        let covered = |range: &&mut Range| (range.range.ordinal, range.range.to) <= upto;
        for range in self.ranges.iter_mut().filter(covered) {
            range.here |= here;
            range.everywhere |= !here;
        }
        let is_done = |range: &mut Range| range.here && range.everywhere;
        while let Some(done) = self.ranges.pop_front_if(is_done) {
            self.durable = self.durable.max(done.last);
        }
    }

    /// Whether what all others have durable is durable here.
    pub(super) fn keeps_up(&self) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.all(|range| range.here || !range.everywhere)
    }

    /// Up to which byte `segment` is durable here.
    pub(super) fn durable_here(&self, segment: &RingSegment) -> u32 {
        let mut ranges = self.ranges.iter();
        let open = ranges.find(|range| range.range.segment == segment.number && !range.here);
        let closed = || {
            self.tail(segment.ordinal)
                .map_or(0, |tail| narrow(tail.closed))
        };
        open.map_or_else(closed, |range| range.range.from)
    }

    /// See [`Source::piece`](crate::Source::piece).
    pub(super) fn piece(&self, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next {
        if from >= end {
            return Next::End;
        }
        let Some(tail) = self.tail(from.ordinal) else {
            return Next::Skip(from.next_segment());
        };
        let upto = match from.ordinal == end.ordinal {
            true => tail.at.min(end.offset as usize),
            false => tail.at,
        };
        let begin = from.offset as usize;
        if begin >= upto {
            return Next::Skip(from.next_segment());
        }
        let (slot, memory) = self.memory(from.ordinal);
        piece.slot = slot;
        piece.header = match begin {
            0 => header(self.region, &tail.segment),
            _ => Vec::new(),
        };
        piece.at = HEADER_BYTES + begin;
        piece.bytes = memory.read_vec(piece.at, upto - begin);
        piece.next = LogPlace {
            ordinal: from.ordinal,
            offset: narrow(upto),
        };
        Next::Write
    }
}

fn narrow(byte: usize) -> u32 {
    u32::try_from(byte).expect("a byte of a segment")
}
