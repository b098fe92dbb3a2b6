//! The pairs of a range, and what is read of the device for them at once.
//!
//! A scan waits for the device where it begins, in each run, and where a value lies in a log and not in
//! the cache. One after the other these waits are most of its time. So it reads together, in one
//! submission each:
//!
//! - the leaves in which it begins ([`warm`]), through the cache;
//! - from the first value on that is not in memory, those of the pairs that follow: as many as its caller
//!   said that it will take ([`Scan::expect`]), or more each time, if it said nothing. Of the medium log,
//!   whose values are in order, pages are read, each once.
//!
//! What goes on in order, leaf after leaf of a run, is read ahead by the
//! [cursor](crate::level::cursor) of that run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::{KeyRange, Pointer, SegmentNumber};
use argosy_device::DeviceError;
use argosy_engine::{EngineError, Scan};

use crate::addresses::name_of;
use crate::edit::LogSegment;
use crate::level::{Entry, LevelError, SegmentReader, medium};
use crate::log::{LogSource, ValueRef};
use crate::merge::{Merge, Source};
use crate::read::{ReadView, Reading, ScanTime, VersionLog, reader};
use crate::storage::Together;
use crate::version::Version;

/// Pairs that are looked at together the first time, where nobody said how many will be taken.
const AHEAD_FIRST: usize = 8;
/// Most pairs that are looked at together.
const AHEAD_MAX: usize = 64;
/// No more are looked at once their values have so many bytes.
const AHEAD_BYTES: usize = 256 << 10;

type Pair = (Vec<u8>, Vec<u8>);

/// The pairs of a range.
pub struct RangeScan<const DOWN: bool> {
    merge: Merge<Box<dyn Source + Send>, DOWN>,
    view: Arc<ReadView>,
    reading: Arc<Reading>,
    time: Arc<ScanTime>,
    /// Pairs that were read together and not taken yet.
    ready: VecDeque<Pair>,
    /// What went wrong behind them.
    failed: Option<EngineError>,
    /// How many pairs will be taken, if somebody said so.
    expected: Option<usize>,
    /// Pairs that are looked at together the next time, if nobody did.
    ahead: usize,
}

impl<const DOWN: bool> RangeScan<DOWN> {
    /// The pairs of `merge`, which reads `view`, that are there at `time`.
    pub(crate) fn new(
        merge: Merge<Box<dyn Source + Send>, DOWN>,
        (view, reading): (Arc<ReadView>, Arc<Reading>),
        time: Arc<ScanTime>,
    ) -> Self {
        Self {
            merge,
            view,
            reading,
            time,
            ready: VecDeque::new(),
            failed: None,
            expected: None,
            ahead: AHEAD_FIRST,
        }
    }

    /// Goes through the next pairs, and reads the values of theirs together that are not in memory.
    fn look_ahead(&mut self) {
        let pairs = match self.expected {
            Some(left) => left.clamp(1, AHEAD_MAX),
            None => self.ahead,
        };
        self.ahead = (self.ahead * 2).min(AHEAD_MAX);
        let mut batch = Batch {
            view: &self.view,
            reading: &self.reading,
            together: Together::default(),
            pages: BTreeMap::new(),
        };
        let mut found = Vec::with_capacity(pairs);
        let mut bytes = 0;
        while found.len() < pairs
            && bytes < AHEAD_BYTES
            && let Some(key) = self.merge.key()
        {
            if let Some(value) = batch.take(key, self.time.shown(self.merge.entry())) {
                bytes += value.len();
                found.push((key.to_vec(), value));
            }
            if let Err(error) = self.merge.advance() {
                self.failed = Some(error.into());
                break;
            }
        }
        batch.together.read();
        batch.keep_pages();
        for (key, value) in found {
            match batch.value(&key, value) {
                Ok(value) => self.ready.push_back((key, value)),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
    }
}

impl<const DOWN: bool> Scan for RangeScan<DOWN> {
    fn expect(&mut self, pairs: usize) {
        self.expected = Some(pairs);
    }

    fn next(&mut self) -> Result<Option<Pair>, EngineError> {
        loop {
            if let Some(pair) = self.ready.pop_front() {
                self.expected = self.expected.map(|left| left.saturating_sub(1));
                return Ok(Some(pair));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let Some(key) = self.merge.key() else {
                return Ok(None);
            };
            let value = match self.time.shown(self.merge.entry()) {
                Entry::Tombstone | Entry::Until(..) => None,
                Entry::Inline(value) => Some(value.to_vec()),
                Entry::Pointer { at, value_len } => {
                    let wanted = ValueRef { at, value_len, key };
                    let Some(value) = self.view.cached_value(&wanted, &self.reading) else {
                        self.look_ahead();
                        continue;
                    };
                    Some(value)
                }
            };
            let pair = value.map(|value| (key.to_vec(), value));
            self.merge.advance()?;
            if pair.is_some() {
                self.expected = self.expected.map(|left| left.saturating_sub(1));
                return Ok(pair);
            }
        }
    }
}

/// A value, or where it is.
enum Value {
    Here(Vec<u8>),
    Logged {
        at: Pointer,
        len: u32,
        /// The part that is read for it, unless it is in a window.
        part: Option<usize>,
    },
    Medium {
        at: Pointer,
        len: u32,
        /// The part that is its page.
        page: Option<usize>,
    },
}

impl Value {
    const fn len(&self) -> usize {
        match self {
            Self::Here(value) => value.len(),
            Self::Logged { len, .. } | Self::Medium { len, .. } => *len as usize,
        }
    }
}

/// Values that are read together.
struct Batch<'a> {
    view: &'a ReadView,
    reading: &'a Reading,
    together: Together,
    /// Pages of the medium log: by segment and first byte, their parts and where they end.
    pages: BTreeMap<(SegmentNumber, u32), (usize, u32)>,
}

impl Batch<'_> {
    /// The value of `entry`, to be read with the others if need be; `None` for a tombstone.
    fn take(&mut self, key: &[u8], entry: Entry<'_>) -> Option<Value> {
        match entry {
            Entry::Tombstone | Entry::Until(..) => None,
            Entry::Inline(value) => Some(Value::Here(value.to_vec())),
            Entry::Pointer { at, value_len }
                if self.view.version.medium_log().contains_key(&at.segment()) =>
            {
                let wanted = ValueRef { at, value_len, key };
                Some(match self.view.cached_value(&wanted, self.reading) {
                    Some(value) => Value::Here(value),
                    None => Value::Medium {
                        at,
                        len: value_len,
                        page: self.want_page(at, value_len),
                    },
                })
            }
            Entry::Pointer { at, value_len } => {
                let cached = self.reading.cache.value(self.reading.value_key(at));
                Some(match cached {
                    Some(value) => Value::Here(value.to_vec()),
                    None => Value::Logged {
                        at,
                        len: value_len,
                        part: self.want(&ValueRef { at, value_len, key }),
                    },
                })
            }
        }
    }

    /// Has the first record of `value` read with the others, if it is on the device only.
    fn want(&mut self, value: &ValueRef<'_>) -> Option<usize> {
        let version = &self.view.version;
        let segment = version.log_segment(value.at.segment())?.segment;
        let windows = &self.reading.windows;
        let geometry = windows.geometry();
        if value.at.offset() >= geometry.segment_bytes() || windows.has(&segment, value.at.offset())
        {
            return None;
        }
        let stored = version.stored(segment.number)?;
        Some(self.together.want(stored, value.first_read(geometry)))
    }

    /// Has the page of a medium value read with the others.
    fn want_page(&mut self, at: Pointer, value_len: u32) -> Option<usize> {
        let number = at.segment();
        let entry = self.view.version.medium_log().get(&number)?;
        let page = medium::pages(at.offset(), value_len, entry.segment.len)?;
        let together = &mut self.together;
        let known = self.pages.entry((number, page.start));
        let (part, _) = *known.or_insert_with(|| {
            let part = together.want(&entry.stored, page.clone());
            (part, page.end)
        });
        Some(part)
    }

    /// Puts the pages that were read into the cache.
    fn keep_pages(&self) {
        for ((number, from), (part, to)) in &self.pages {
            let entry = self.view.version.medium_log().get(number);
            let entry = entry.expect("it was looked up in this version");
            let name = name_of(&self.view.version, &entry.segment);
            let read = self.together.part(*part, *from, (to - from) as usize);
            if let Some(Ok(bytes)) = read.map(|part| part.bytes)
                && let Some(key) = medium::page_key(name, &(*from..*to))
            {
                self.reading.cache.keep_page(key, bytes.into());
            }
        }
    }

    /// A medium value, out of its page.
    fn medium_value(
        &self,
        key: &[u8],
        (at, len): (Pointer, u32),
        part: usize,
    ) -> Option<Result<Vec<u8>, LevelError>> {
        let entry = self.view.version.medium_log().get(&at.segment())?;
        let name = name_of(&self.view.version, &entry.segment);
        let record = medium::record_len(len as usize);
        let read = self.together.part(part, at.offset(), record)?;
        Some(match read.bytes {
            Ok(record) => medium::value_in(name, at.offset(), key, record).map(<[u8]>::to_vec),
            Err(error) => Err(LevelError::Device(error.clone())),
        })
    }

    fn value(&self, key: &[u8], value: Value) -> Result<Vec<u8>, EngineError> {
        match value {
            Value::Here(value) => Ok(value),
            Value::Medium { at, len, page } => {
                let read = page.and_then(|page| self.medium_value(key, (at, len), page));
                match read {
                    Some(value) => Ok(value?),
                    None => self.view.logged_value(key, at, len, self.reading),
                }
            }
            Value::Logged { at, len, part } => {
                let wanted = ValueRef {
                    at,
                    value_len: len,
                    key,
                };
                let source = ReadTogether {
                    log: VersionLog(&self.view.version),
                    together: &self.together,
                    part,
                };
                self.reading.value(&wanted, &source)
            }
        }
    }
}

/// A log of which a part was read with others.
struct ReadTogether<'a> {
    log: VersionLog<'a>,
    together: &'a Together,
    part: Option<usize>,
}

impl LogSource for ReadTogether<'_> {
    type Error = DeviceError;

    fn segment(&self, number: SegmentNumber) -> Option<LogSegment> {
        self.log.segment(number)
    }

    fn after(&self, segment: &LogSegment) -> Option<LogSegment> {
        self.log.after(segment)
    }

    fn read(&self, segment: &LogSegment, offset: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let part = self
            .part
            .and_then(|part| self.together.part(part, offset, out.len()));
        match part.filter(|part| part.segment == segment.number) {
            Some(part) => {
                out.copy_from_slice(part.bytes.map_err(Clone::clone)?);
                Ok(())
            }
            None => self.log.read(segment, offset, out),
        }
    }
}

/// Puts the leaves in which a scan of `range` begins into the cache, those that are not there in one
/// read. What cannot be read is left to the cursors, which will say so.
pub(crate) fn warm<const DOWN: bool>(version: &Version, range: &KeyRange, reading: &Reading) {
    let mut together = Together::default();
    let mut leaves: Vec<(Arc<SegmentReader>, usize)> = Vec::new();
    let mut bytes = 0;
    for (_, run) in version.runs() {
        let pieces = run.overlapping(range);
        let Some(entry) = (if DOWN { pieces.last() } else { pieces.first() }) else {
            continue;
        };
        let Ok(segment) = reader(entry, reading.region, &reading.cache) else {
            continue;
        };
        let piece = entry.segment.range.intersection(range);
        let near = if DOWN { piece.to } else { Some(piece.from) };
        let Some(leaf) = segment.first_leaf::<DOWN>(near.as_deref()) else {
            continue;
        };
        if !reading.cache.has(segment.cache_key(leaf)) {
            let span = segment.leaf_span(leaf);
            bytes += span.len() as u64;
            together.want(&entry.stored, span);
            leaves.push((segment.into_owned(), leaf));
        }
    }
    // Relaxed: nothing is ordered by it.
    let fetched = &reading.filters.fetched_bytes;
    fetched.fetch_add(bytes, Ordering::Relaxed);
    if together.count() < 2 {
        return;
    }
    together.read();
    for (part, (segment, leaf)) in leaves.iter().enumerate() {
        let span = segment.leaf_span(*leaf);
        let read = together.part(part, span.start, span.len());
        if let Some(Ok(bytes)) = read.map(|part| part.bytes)
            && let Ok(parsed) = segment.parse_leaf(*leaf, bytes)
        {
            reading
                .cache
                .keep_missed_leaf(segment.cache_key(*leaf), parsed);
        }
    }
}
