//! The windows of the log, and the writing end of it.
//!
//! A segment of the log is one window long, and the window of ordinal `n` is in slot `n % slots`. A chain has as many
//! segments as there are slots, so each segment has its window for as long as it is part of the chain, and no segment
//! is ever read back to be shipped.
//!
//! ```text
//! slot   := header (in a block of its own)  window
//! header := magic: u64 = "TOYWINDW"  version: u32 = 1  region: u32  number: u64  epoch: u32  zero: u32  checksum: u32
//! ```
//!
//! Bytes become durable by ranges: a range is closed by padding up to a whole block, when it is flushed or the segment
//! is left. A range is done when it is durable here and everywhere, or when an image everywhere covers it.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{FlushRange, Identity, Kind, LogId, Lsn, RegionId};
use argosy_memory::SharedMemory;

use super::edit::RingSegment;
use super::record::{FRAGMENT_BYTES, Fragment, Group};
use crate::LogEnd;
use crate::source::{LogPlace, Next, Piece};

/// The only log.
pub(super) const LOG: LogId = LogId::FIRST;

/// Bytes of a slot in front of its window.
pub(super) const HEADER_BYTES: usize = BLOCK_SIZE;

const MAGIC: u64 = u64::from_le_bytes(*b"TOYWINDW");
const VERSION: u32 = 1;
const NAME_BYTES: usize = 36;

/// The least that a fragment takes of a segment: where less is left, the segment is left.
const FRAGMENT_MIN: usize = 64;

/// The header of the window of `segment`.
pub(super) fn header(region: RegionId, segment: &RingSegment) -> Vec<u8> {
    let mut out = MAGIC.to_le_bytes().to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&region.0.to_le_bytes());
    out.extend_from_slice(&segment.number.0.to_le_bytes());
    out.extend_from_slice(&segment.epoch.0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let checksum = Identity::of_server(Kind::Window, 0).checksum(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// What `slots` hold of `segment`, if they have its window.
pub(super) fn found(
    slots: &[Option<Arc<SharedMemory>>],
    region: RegionId,
    segment: &RingSegment,
    window_bytes: u32,
) -> Option<Vec<u8>> {
    let slot = slot_of(segment.ordinal, slots.len())?;
    let memory = slots[slot].as_ref()?;
    let named = memory.peek(0, NAME_BYTES) == header(region, segment);
    named.then(|| memory.peek(HEADER_BYTES, window_bytes as usize))
}

/// The slot of the segment with this ordinal; `None` where there are no slots.
pub(super) fn slot_of(ordinal: u64, slots: usize) -> Option<usize> {
    let slot = ordinal.checked_rem(slots as u64)?;
    usize::try_from(slot).ok()
}

/// A segment of the chain, and how far it is written.
struct Tail {
    segment: RingSegment,
    at: usize,
    /// The range in front of it is closed.
    closed: usize,
    /// Nothing more is written to it.
    sealed: bool,
}

/// A range that is closed and not done.
pub(super) struct Range {
    pub(super) range: FlushRange,
    /// The last LSN in front of its end.
    last: Lsn,
    /// The observer was told of it.
    told: bool,
    /// Its write was begun.
    taken: bool,
    here: bool,
    everywhere: bool,
}

/// See the module documentation.
pub(super) struct Ring {
    region: RegionId,
    window_bytes: usize,
    slots: Vec<Arc<SharedMemory>>,
    chain: VecDeque<Tail>,
    /// Segments with a lower ordinal may be written.
    usable: u64,
    pub(super) ranges: VecDeque<Range>,
    /// Everything up to it is durable everywhere.
    pub(super) durable: Lsn,
    /// Bytes that were appended, with padding.
    pub(super) bytes: u64,
}

impl Ring {
    /// The ring in `slots`, with nothing in its chain, of a history up to `durable`.
    pub(super) const fn new(
        region: RegionId,
        window_bytes: usize,
        slots: Vec<Arc<SharedMemory>>,
        durable: Lsn,
    ) -> Self {
        Self {
            region,
            window_bytes,
            slots,
            chain: VecDeque::new(),
            usable: 0,
            ranges: VecDeque::new(),
            durable,
            bytes: 0,
        }
    }

    /// Adds segments to the chain.
    pub(super) fn extend(&mut self, segments: &[RingSegment]) {
        let new = segments.iter().map(|segment| Tail {
            segment: *segment,
            at: 0,
            closed: 0,
            sealed: false,
        });
        self.chain.extend(new);
        assert!(self.chain.len() <= self.slots.len(), "a slot for each");
    }

    /// All segments of the chain may be written.
    pub(super) fn use_all(&mut self) {
        self.usable = self.chain.back().map_or(0, |tail| tail.segment.ordinal + 1);
    }

    /// Takes the segments in front of `ordinal` from the chain: an image has all that is in them.
    pub(super) fn drop_before(&mut self, ordinal: u64) {
        self.chain.retain(|tail| tail.segment.ordinal >= ordinal);
    }

    /// An image that has everything up to `upto`, which was in segments in front of `ordinal`, is everywhere.
    pub(super) fn note_image(&mut self, ordinal: u64, upto: Lsn) {
        self.ranges.retain(|range| range.range.ordinal >= ordinal);
        self.durable = self.durable.max(upto);
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = &RingSegment> {
        self.chain.iter().map(|tail| &tail.segment)
    }

    /// Segments that nothing was written to and that may be.
    pub(super) fn spare(&self) -> usize {
        let spare = |tail: &&Tail| tail.at == 0 && self.may_write(tail);
        self.chain.iter().filter(spare).count()
    }

    fn may_write(&self, tail: &Tail) -> bool {
        !tail.sealed && tail.segment.ordinal < self.usable
    }

    /// Whether `bytes` of a group fit now. An error where they never will.
    pub(super) fn fits(&self, bytes: usize) -> Result<bool, TooLarge> {
        let per_segment = self.window_bytes - FRAGMENT_BYTES - FRAGMENT_MIN;
        let ever = per_segment * (self.slots.len() - 1);
        if bytes > ever {
            return Err(TooLarge);
        }
        let room = |tail: &Tail| {
            let left = self.window_bytes - tail.at.min(self.window_bytes);
            left.saturating_sub(FRAGMENT_BYTES + FRAGMENT_MIN)
        };
        let usable = self.chain.iter().filter(|tail| self.may_write(tail));
        Ok(usable.map(room).sum::<usize>() >= bytes)
    }

    /// Appends `group`, for which there is room.
    pub(super) fn append(&mut self, group: &Group, encoded: &[u8]) {
        let mut rest = encoded;
        let mut is_first = true;
        while is_first || !rest.is_empty() {
            let index = self.writable();
            let (region, window_bytes) = (self.region, self.window_bytes);
            let tail = &mut self.chain[index];
            let room = window_bytes - tail.at - FRAGMENT_BYTES;
            let (part, behind) = rest.split_at(rest.len().min(room));
            let fragment = Fragment {
                lsn: group.first,
                is_first,
                is_last: behind.is_empty(),
                bytes: part,
            };
            let bytes = fragment.encode(region, &tail.segment, tail.at);
            let slot = slot_of(tail.segment.ordinal, self.slots.len()).expect("there are slots");
            if tail.at == 0 {
                self.slots[slot].write(0, &header(region, &tail.segment));
            }
            self.slots[slot].write(HEADER_BYTES + tail.at, &bytes);
            tail.at += bytes.len();
            self.bytes += bytes.len() as u64;
            rest = behind;
            is_first = false;
        }
    }

    /// The segment that takes the next fragment.
    fn writable(&mut self) -> usize {
        loop {
            let index = self.chain.iter().position(|tail| self.may_write(tail));
            let index = index.expect("there is room for the group");
            if self.chain[index].at + FRAGMENT_BYTES + FRAGMENT_MIN <= self.window_bytes {
                return index;
            }
            self.seal(index, None);
        }
    }

    /// Ends the segment that is written, if one is begun. Returns the ordinal behind it.
    pub(super) fn seal_current(&mut self, last: Lsn) -> u64 {
        let mut begun = self.chain.iter();
        match begun.position(|tail| tail.at > 0 && !tail.sealed) {
            Some(index) => {
                self.seal(index, Some(last));
                self.chain[index].segment.ordinal + 1
            }
            None => {
                let unsealed = self.chain.iter().find(|tail| !tail.sealed);
                unsealed.map_or(self.usable, |tail| tail.segment.ordinal)
            }
        }
    }

    fn seal(&mut self, index: usize, last: Option<Lsn>) {
        self.close(index, last);
        self.chain[index].sealed = true;
    }

    /// Closes the open range of the segment that is written, if there is any. Returns whether there was.
    pub(super) fn close_open(&mut self, last: Lsn) -> bool {
        let open = self.chain.iter().position(|tail| tail.at > tail.closed);
        open.is_some_and(|index| {
            self.close(index, Some(last));
            true
        })
    }

    /// Whether there is an open range.
    pub(super) fn has_open(&self) -> bool {
        self.chain.iter().any(|tail| tail.at > tail.closed)
    }

    /// Pads the open range of a segment, and closes it. `last` is the last LSN in it; `None` in the middle of a group,
    /// which is durable only with its end.
    fn close(&mut self, index: usize, last: Option<Lsn>) {
        let slot = slot_of(self.chain[index].segment.ordinal, self.slots.len());
        let tail = &mut self.chain[index];
        if tail.at == tail.closed {
            return;
        }
        let to = tail.at.next_multiple_of(BLOCK_SIZE);
        let memory = &self.slots[slot.expect("there are slots")];
        memory.fill_zero(HEADER_BYTES + tail.at..HEADER_BYTES + to);
        self.bytes += (to - tail.at) as u64;
        let narrow = |byte: usize| u32::try_from(byte).expect("a byte of a segment");
        let range = FlushRange {
            log: LOG,
            ordinal: tail.segment.ordinal,
            segment: tail.segment.number,
            from: narrow(tail.closed),
            to: narrow(to),
        };
        (tail.at, tail.closed) = (to, to);
        self.ranges.push_back(Range {
            range,
            last: last.unwrap_or_default(),
            told: false,
            taken: false,
            here: false,
            everywhere: false,
        });
    }

    /// Closed ranges that nobody has taken, with their bytes.
    pub(super) fn take_ranges(&mut self) -> Vec<(FlushRange, Vec<u8>)> {
        let (slots, window) = (&self.slots, HEADER_BYTES);
        let new = self.ranges.iter_mut().filter(|range| !range.taken);
        let with_bytes = new.map(|range| {
            range.taken = true;
            let FlushRange {
                ordinal, from, to, ..
            } = range.range;
            let slot = slot_of(ordinal, slots.len()).expect("there are slots");
            let bytes = slots[slot].read_vec(window + from as usize, (to - from) as usize);
            (range.range, bytes)
        });
        with_bytes.collect()
    }

    /// Closed ranges that the observer was not told of.
    pub(super) fn untold(&mut self) -> Vec<FlushRange> {
        let untold = self.ranges.iter_mut().filter(|range| !range.told);
        let told = untold.map(|range| {
            range.told = true;
            range.range
        });
        told.collect()
    }

    /// How far it is written.
    pub(super) fn end(&self) -> Option<LogEnd> {
        let mut written = self.chain.iter().rev();
        let tail = written.find(|tail| tail.at > 0)?;
        Some(LogEnd {
            log: LOG,
            ordinal: tail.segment.ordinal,
            segment: tail.segment.number,
            end: u32::try_from(tail.at).expect("a byte of a segment"),
        })
    }

    /// All ranges up to this one are durable here, or everywhere else.
    pub(super) fn note(&mut self, ordinal: u64, to: u32, whose: Whose) {
        let covered = |range: &&mut Range| (range.range.ordinal, range.range.to) <= (ordinal, to);
        for range in self.ranges.iter_mut().filter(covered) {
            match whose {
                Whose::Here => range.here = true,
                Whose::Others => range.everywhere = true,
                Whose::All => (range.here, range.everywhere) = (true, true),
            }
        }
        let is_done = |range: &mut Range| range.here && range.everywhere;
        while let Some(done) = self.ranges.pop_front_if(is_done) {
            self.durable = self.durable.max(done.last);
        }
    }

    /// Whether what all others have durable is durable here.
    pub(super) fn keeps_up(&self) -> bool {
        self.ranges
            .iter()
            .all(|range| range.here || !range.everywhere)
    }

    /// The ordinal of the segment with this number.
    pub(super) fn ordinal_of(&self, number: argosy_base::SegmentNumber) -> Option<u64> {
        let segment = self.segments().find(|segment| segment.number == number);
        let ranges = || self.ranges.iter().map(|range| range.range);
        let of_range = || ranges().find(|range| range.segment == number);
        let ordinal = segment.map(|segment| segment.ordinal);
        ordinal.or_else(|| of_range().map(|range| range.ordinal))
    }

    /// Up to which byte `segment` is durable here.
    pub(super) fn durable_here(&self, segment: &RingSegment) -> u32 {
        let tail = self
            .chain
            .iter()
            .find(|tail| tail.segment.number == segment.number);
        let closed = tail.map_or(0, |tail| tail.closed);
        let of_segment = |range: &&Range| range.range.segment == segment.number;
        let mut ranges = self.ranges.iter().filter(of_segment);
        let first = ranges
            .find(|range| !range.here)
            .map(|range| range.range.from);
        first.unwrap_or_else(|| u32::try_from(closed).expect("a byte of a segment"))
    }

    /// See [`Source::piece`](crate::Source::piece).
    pub(super) fn piece(&self, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next {
        if from >= end {
            return Next::End;
        }
        let mut tails = self.chain.iter();
        let Some(tail) = tails.find(|tail| tail.segment.ordinal == from.ordinal) else {
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
        piece.slot = slot_of(from.ordinal, self.slots.len()).expect("there are slots");
        piece.header = match begin {
            0 => header(self.region, &tail.segment),
            _ => Vec::new(),
        };
        piece.at = HEADER_BYTES + begin;
        piece.bytes = self.slots[piece.slot].read_vec(piece.at, upto - begin);
        piece.next = LogPlace {
            ordinal: from.ordinal,
            offset: u32::try_from(upto).expect("a byte of a segment"),
        };
        Next::Write
    }
}

/// Where a range is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Here,
    Others,
    All,
}

/// The group has more bytes than all windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;
