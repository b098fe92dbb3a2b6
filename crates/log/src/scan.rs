//! Reads one log's records in order, from the device and from windows that survived.
//!
//! 1. For each window of the chain the device's bytes are read and, where the window's slot survived
//!    and its header names this very window, the slot's as well.
//! 2. At each position the slot is asked first, then the device; whichever has a valid record there
//!    has the record. A closing mark leads to the end of the window. A position where neither has a record
//!    but one has zeros up to the end of the block is padding, which leads to the next block. No writer leaves
//!    padding at the start of a block. Padding there is the end of the log, or means that a device has lost a write
//!    (`unclosed.rs`). If it was known to be durable in a segment that is not sealed, the scan stops. Otherwise it
//!    notes the marks at the starts of the following blocks and continues at the end of the window.
//!    Anything else stops the scan.
//! 3. Of windows that survived, an image is composed of what was found; what the device does not hold
//!    of it can so be written there.
//!
//! | the slot's header        | the slot's bytes    | used                                            |
//! |--------------------------|---------------------|-------------------------------------------------|
//! | names this window        | newer than device's | slot's records, which go to the device          |
//! | names this window        | older, or damaged   | slot's where valid, device's where not          |
//! | names this window        | zeros at first      | likewise: the log rested in this window once    |
//! | names another window     | (of that window)    | device's alone: this one was flushed before     |
//! | invalid, or no slot      | –                   | device's alone                                  |
//!
//! Where a segment that is not sealed stops but the next one of the chain was begun, the scan goes on
//! there: the writer ended the segment early, and died before the edit that says so. If records were
//! lost in between, their LSNs are missing.
//!
//! Whether a stop is an end, a torn tail or corruption is not decided here but in
//! [`recover`](mod@super::recover).

mod cut;
mod loaded;
mod place;
mod source;
mod unclosed;

use argosy_base::{Identity, Kind, Lsn, Pointer, SegmentNumber};

use self::loaded::{Image, Loaded, Memory};
use self::place::ScanPlace;
use self::unclosed::{ToWrite, Unclosed, put_into};
use super::record::{Decoded, Record, RecordKind, decode, parse};
use super::segment::{
    BLOCK_BYTES, HeaderError, SEGMENT_HEADER_BYTES, SegmentPosition, WINDOW_HEADER_BYTES,
    check_segment_header, identity,
};
use crate::chain::LogSegment;

pub(super) use source::Source;

pub use cut::{CutSegment, visit_behind};

/// Reads device bytes of a segment at an offset, whole blocks.
pub type ReadDevice<'a, E> = dyn FnMut(&LogSegment, u32, &mut [u8]) -> Result<(), E> + 'a;

/// Bytes that belong to the history, and that the device lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unflushed {
    /// The segment.
    pub segment: LogSegment,
    /// Where they belong; whole blocks.
    pub from: u32,
    /// Whole blocks of one window, zero behind the last record.
    pub bytes: Vec<u8>,
}

/// Why a scan goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// The segment in which it stopped.
    pub(super) number: SegmentNumber,
    /// Where in it.
    pub(super) offset: u32,
    /// Whether the bytes there are known to be durable: they lie in front of a seal or a log point.
    pub(super) durable: bool,
    /// What is wrong there; `None` where the chain just ends.
    pub(super) what: Option<&'static str>,
}

/// The record at which a scan stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) lsn: Lsn,
    pub(super) segment: LogSegment,
    pub(super) start: u32,
    pub(super) end: u32,
    in_memory: bool,
}

impl Head {
    /// Where the record begins.
    pub(super) const fn at(&self) -> Pointer {
        Pointer::new(self.segment.number, self.start)
    }

    /// The position behind the record.
    pub(super) const fn behind(&self) -> SegmentPosition {
        SegmentPosition {
            ordinal: self.segment.ordinal,
            offset: self.end,
            number: self.segment.number,
        }
    }
}

/// A place where a scan went on with the next segment.
#[derive(Clone, Copy)]
struct Passed {
    stop: Stop,
    at: ScanPlace,
}

/// See the module documentation.
pub(super) struct Scan<'a> {
    source: Source<'a>,
    at: ScanPlace,
    /// Behind the last record of this segment.
    record_end: u32,
    last_lsn: Lsn,
    loaded: Option<Loaded>,
    head: Option<Head>,
    stop: Option<Stop>,
    /// The first place where a segment that was not sealed stopped.
    passed: Option<Passed>,
    /// Blocks of segments that are not sealed, and the first one of any segment, that are padding and were not closed.
    unclosed: Vec<Unclosed>,
    lost: Option<u32>,
    mark: Lsn,
    /// Windows that the device does not have whole.
    windows: Vec<Image>,
}

/// What stands at a position.
enum Found {
    Record {
        lsn: Lsn,
        kind: RecordKind,
        len: u32,
        in_memory: bool,
    },
    Pad,
    Nothing,
}

impl<'a> Scan<'a> {
    /// A scan of the records with LSNs from `from` on, and of some before them: it begins at the last
    /// segment of which all earlier ones are sealed and hold only lower LSNs.
    pub(super) fn begin<E>(
        source: Source<'a>,
        from: Lsn,
        read: &mut ReadDevice<'_, E>,
    ) -> Result<Self, E> {
        let unsealed = source.chain.iter().position(|s| s.end.is_none());
        let mut first = unsealed.unwrap_or(source.chain.len().saturating_sub(1));
        while first > 0 {
            let mut probe = Self::at(source, first);
            probe.advance(read)?;
            let segment = &source.chain[first];
            let head = probe.head.filter(|head| head.segment == *segment);
            if head.is_some_and(|head| head.lsn <= from) {
                break;
            }
            first -= 1;
        }
        Ok(Self::at(source, first))
    }

    /// A scan of all records of the chain from segment `index` on.
    pub(super) const fn at(source: Source<'a>, index: usize) -> Self {
        Self {
            source,
            at: ScanPlace { index, offset: 0 },
            record_end: 0,
            last_lsn: Lsn(0),
            loaded: None,
            head: None,
            stop: None,
            passed: None,
            unclosed: Vec::new(),
            lost: None,
            mark: Lsn(0),
            windows: Vec::new(),
        }
    }

    /// The record at which the scan stands; `None` before the first and behind the last.
    pub(super) const fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// The record at which the scan stands, with its key and value.
    ///
    /// # Panics
    /// When it stands at none.
    pub(super) fn record(&self) -> Record<'_> {
        let head = self.head.as_ref().expect("the scan stands at a record");
        let loaded = self.loaded.as_ref().expect("and has its window");
        let bytes = loaded.bytes(head.in_memory, head.start..head.end);
        let (record, _) = parse(bytes, head.segment.base_lsn).expect("it was decoded before");
        record
    }

    /// Why there is no further record, once there is none.
    pub(super) const fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// Where something that is no record was met first, whether or not the scan went on.
    pub(super) fn trouble(&self) -> Option<Stop> {
        let stop = self.stop.filter(|stop| stop.what.is_some());
        self.passed.map(|passed| passed.stop).or(stop)
    }

    /// The first block of padding that no closing mark announces. A device has lost it, if it was written.
    pub(super) const fn lost(&self) -> Option<u32> {
        self.lost
    }

    /// Goes to the next record.
    pub(super) fn advance<E>(&mut self, read: &mut ReadDevice<'_, E>) -> Result<(), E> {
        self.head = None;
        while self.head.is_none() && self.stop.is_none() {
            self.step(read)?;
        }
        Ok(())
    }

    /// Looks at the present position, and moves on.
    fn step<E>(&mut self, read: &mut ReadDevice<'_, E>) -> Result<(), E> {
        let Some(segment) = self.source.chain.get(self.at.index).copied() else {
            self.stop_at_end();
            return Ok(());
        };
        let limit = segment.end.unwrap_or(self.source.geometry.segment_bytes());
        if self.at.offset >= limit {
            self.leave_segment(&segment);
            return Ok(());
        }
        self.load(&segment, read)?;
        if self.at.offset == 0 {
            self.check_header(&segment);
            return Ok(());
        }
        match self.look(&segment, limit) {
            Found::Record {
                lsn,
                kind,
                len,
                in_memory,
            } => {
                let start = self.at.offset;
                self.compose(start, len, in_memory);
                self.at.offset += len;
                if kind.is_mark() {
                    self.mark = self.mark.max(lsn);
                    if kind == RecordKind::ClosingMark {
                        self.pass_padding(self.window_end());
                    }
                } else if lsn <= self.last_lsn {
                    self.at.offset = start;
                    self.stop_here(&segment, "the LSN does not follow the one before");
                } else {
                    self.last_lsn = lsn;
                    self.record_end = self.at.offset;
                    self.head = Some(Head {
                        lsn,
                        segment,
                        start,
                        end: self.at.offset,
                        in_memory,
                    });
                }
            }
            Found::Pad => self.skip_padding(&segment, limit),
            Found::Nothing => self.leave_torn_segment(&segment),
        }
        Ok(())
    }

    /// Where there is no record: goes on with the next segment, if there is one. Whether that was
    /// begun, its header will tell.
    fn leave_torn_segment(&mut self, segment: &LogSegment) {
        let passed = Passed {
            stop: Stop {
                number: segment.number,
                offset: self.at.offset,
                durable: self.at.offset < self.source.durable(segment),
                what: Some("no record"),
            },
            at: self.at,
        };
        if passed.stop.durable || self.at.index + 1 == self.source.chain.len() {
            self.stop = Some(passed.stop);
            return;
        }
        self.passed.get_or_insert(passed);
        self.at = self.at.next_segment();
        self.record_end = 0;
    }

    fn stop_here(&mut self, segment: &LogSegment, what: &'static str) {
        self.stop = Some(Stop {
            number: segment.number,
            offset: self.at.offset,
            durable: self.at.offset < self.source.durable(segment),
            what: Some(what),
        });
    }

    fn stop_at_end(&mut self) {
        let last = self.source.chain.last();
        self.stop = Some(Stop {
            number: last.map_or(SegmentNumber(0), |last| last.number),
            offset: self.record_end,
            durable: false,
            what: None,
        });
    }

    fn leave_segment(&mut self, segment: &LogSegment) {
        let whole = segment.end.is_none_or(|end| self.ends_at(end));
        if !whole {
            self.at.offset = self.record_end;
            self.stop_here(segment, "a sealed segment ends early");
            return;
        }
        self.at = self.at.next_segment();
        if self.at.index < self.source.chain.len() {
            self.record_end = 0;
        }
    }

    /// Whether a segment that was read to its end may have been sealed at `end`: behind its last
    /// record, or behind all padding, or empty.
    const fn ends_at(&self, end: u32) -> bool {
        end == self.record_end
            || end == self.source.geometry.segment_bytes()
            || end <= SEGMENT_HEADER_BYTES
    }

    /// Has the window at the present position in `loaded`.
    fn load<E>(&mut self, segment: &LogSegment, read: &mut ReadDevice<'_, E>) -> Result<(), E> {
        let window = self.source.geometry.window_bytes();
        let start = self.at.offset / window * window;
        let there = |loaded: &Loaded| loaded.segment == *segment && loaded.start == start;
        if self.loaded.as_ref().is_some_and(there) {
            return Ok(());
        }
        self.unload();
        let mut device = vec![0; window as usize];
        let on_device = self
            .source
            .written_up_to(segment)
            .clamp(start, start + window)
            - start;
        if on_device > 0 {
            read(segment, start, &mut device[..on_device as usize])?;
        }
        self.loaded = Some(Loaded {
            segment: *segment,
            start,
            device,
            memory: self.load_memory(segment, start / window),
        });
        Ok(())
    }

    fn load_memory(&self, segment: &LogSegment, index: u32) -> Option<Memory> {
        let memory = self.source.memory_of(segment, index)?;
        let window = self.source.geometry.window_bytes() as usize;
        Some(Memory {
            bytes: memory.peek(WINDOW_HEADER_BYTES, window),
            image: vec![0; window],
            missing: None,
        })
    }

    /// Keeps the window if the device lacks some of it.
    fn unload(&mut self) {
        let Some(loaded) = self.loaded.take() else {
            return;
        };
        if let Some(memory) = loaded.memory
            && let Some(missing) = memory.missing
        {
            self.windows.push(Image {
                segment: loaded.segment,
                start: loaded.start,
                missing,
                bytes: memory.image,
            });
        }
    }

    fn check_header(&mut self, segment: &LogSegment) {
        let loaded = self.loaded.as_ref().expect("loaded before");
        let region = self.source.region;
        let header = |bytes: &[u8]| check_segment_header(bytes, region, segment);
        let on_device = header(&loaded.device);
        let in_memory = loaded.memory.as_ref().map(|memory| header(&memory.bytes));
        match (in_memory, on_device) {
            (Some(Ok(())), _) => {
                self.compose(0, SEGMENT_HEADER_BYTES, true);
                self.begin_behind_header();
            }
            (_, Ok(())) => {
                self.compose(0, SEGMENT_HEADER_BYTES, false);
                self.begin_behind_header();
            }
            (Some(Err(HeaderError::Version(_))), _) | (_, Err(HeaderError::Version(_))) => {
                self.stop_here(segment, "a log segment of a format that is not known");
            }
            _ => self.stop_here(segment, "no segment header"),
        }
    }

    const fn begin_behind_header(&mut self) {
        self.at.offset = SEGMENT_HEADER_BYTES;
    }

    /// The end of the window that is loaded.
    fn window_end(&self) -> u32 {
        self.loaded.as_ref().expect("loaded before").end()
    }

    fn look(&self, segment: &LogSegment, limit: u32) -> Found {
        let loaded = self.loaded.as_ref().expect("loaded before");
        let end = limit.min(loaded.end());
        let here = self.identity(segment, self.at.offset);
        let found = |in_memory: bool| {
            let bytes = loaded.bytes(in_memory, self.at.offset..end);
            match decode(bytes, here, segment.base_lsn) {
                Decoded::Record(record, len) => Found::Record {
                    lsn: record.lsn,
                    kind: record.kind,
                    len: u32::try_from(len).expect("less than a window"),
                    in_memory,
                },
                Decoded::Pad => Found::Pad,
                Decoded::Invalid => Found::Nothing,
            }
        };
        let in_memory = match loaded.memory {
            Some(_) => found(true),
            None => Found::Nothing,
        };
        // What the device holds there is compared by who composes the window.
        if matches!(in_memory, Found::Record { .. }) {
            return in_memory;
        }
        match (in_memory, found(false)) {
            (_, record @ Found::Record { .. }) => record,
            (Found::Pad, _) | (_, Found::Pad) => Found::Pad,
            _ => Found::Nothing,
        }
    }

    fn identity(&self, segment: &LogSegment, offset: u32) -> Identity {
        identity(Kind::LogRecord, self.source.region, segment, offset)
    }

    /// Goes to the next block, or to the end of the window.
    fn skip_padding(&mut self, segment: &LogSegment, limit: u32) {
        let from = self.at.offset;
        if !from.is_multiple_of(BLOCK_BYTES) {
            return self.pass_padding(from.next_multiple_of(BLOCK_BYTES));
        }
        let end = self.window_end();
        for block in (from..end.min(limit)).step_by(BLOCK_BYTES as usize) {
            self.at.offset = block;
            if let Found::Record { lsn, kind, .. } = self.look(segment, limit)
                && kind.is_mark()
            {
                self.mark = self.mark.max(lsn);
            }
        }
        self.at.offset = from;
        self.lost.get_or_insert(from);
        if segment.end.is_none() && from < self.source.durable(segment) {
            return self.stop_here(segment, "padding that no closing mark announces");
        }
        if segment.end.is_none() {
            self.unclosed.push(Unclosed {
                segment: *segment,
                from,
                to: end,
            });
        }
        self.pass_padding(end);
    }

    /// Goes to `end`, in the same window, with nothing in between.
    fn pass_padding(&mut self, end: u32) {
        let loaded = self.loaded.as_mut().expect("loaded before");
        let range = loaded.range(self.at.offset..end);
        if let Some(memory) = &mut loaded.memory
            && loaded.device[range].iter().any(|byte| *byte != 0)
        {
            memory.missing.get_or_insert(self.at.offset);
        }
        self.at.offset = end;
    }

    /// Puts found bytes into the window's image, and notes whether the device has them.
    fn compose(&mut self, start: u32, len: u32, in_memory: bool) {
        let loaded = self.loaded.as_mut().expect("loaded before");
        let range = loaded.range(start..start + len);
        let Some(memory) = &mut loaded.memory else {
            return;
        };
        let on_device = &loaded.device[range.clone()];
        if !in_memory {
            memory.image[range].copy_from_slice(on_device);
            return;
        }
        let found = &memory.bytes[range.clone()];
        if found != on_device {
            memory.missing.get_or_insert(start);
        }
        memory.image[range].copy_from_slice(found);
    }

    /// Reads on behind the stop, for the marks at the starts of blocks and segments.
    pub(super) fn find_marks<E>(&self, read: &mut ReadDevice<'_, E>) -> Result<Lsn, E> {
        let mut mark = self.mark;
        let from = self.passed.map_or(self.at, |passed| passed.at);
        let mut reader = Scan::at(self.source, from.index);
        reader.at.offset = from.offset / BLOCK_BYTES * BLOCK_BYTES;
        while let Some(segment) = self.source.chain.get(reader.at.index).copied() {
            let limit = segment.end.unwrap_or(self.source.geometry.segment_bytes());
            let window = self.source.geometry.window_bytes();
            let written = self.source.written_up_to(&segment);
            while reader.at.offset < limit {
                let block = reader.at.offset;
                let index = block / window;
                if index * window >= written && self.source.memory_of(&segment, index).is_none() {
                    reader.at.offset = (index + 1) * window;
                    continue;
                }
                reader.load(&segment, read)?;
                if block == 0 {
                    reader.at.offset = SEGMENT_HEADER_BYTES;
                }
                if let Found::Record { lsn, kind, .. } = reader.look(&segment, limit)
                    && kind.is_mark()
                {
                    mark = mark.max(lsn);
                }
                reader.at.offset = block + BLOCK_BYTES;
            }
            reader.at = reader.at.next_segment();
        }
        Ok(mark)
    }

    /// What has to be written to make everything up to `end` durable, and the closing marks that are not there of
    /// padding in front of `end`; the LSNs from the start of replay on are all there.
    pub(super) fn into_unflushed(mut self, end: SegmentPosition) -> ToWrite {
        self.unload();
        let parts = self.windows.into_iter();
        let mut unflushed: Vec<_> = parts.filter_map(|image| image.up_to(end)).collect();
        let known = self
            .unclosed
            .into_iter()
            .filter(|padding| (padding.segment.ordinal, padding.from) < (end.ordinal, end.offset));
        let closed = known.map(|padding| padding.closed(self.source.region));
        let window = self.source.geometry.window_bytes();
        let closing = put_into(&mut unflushed, closed, window);
        ToWrite { unflushed, closing }
    }
}
