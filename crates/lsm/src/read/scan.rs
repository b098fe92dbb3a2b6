//! The pairs of a range, and what is read of the device for them at once.
//!
//! A scan waits for the device where it begins, in each run, and where a value lies in a log and not in
//! the cache. One after the other these waits are most of its time. So it reads together, in one
//! submission each:
//!
//! - the leaves in which it begins (`warm`), through the cache, each with those behind it that it will
//!   come to, as far as its caller said how many pairs it will take ([`Scan::expect`]): so it begins only
//!   when it is asked for the first;
//! - from the first value on that is not in memory, those of the pairs that follow: as many as will be
//!   taken, or more each time, if nobody said how many that is. Of the medium log, whose values are in order,
//!   pages are read, each once; one of which several values are wanted is kept, of others the value.
//!
//! What goes on in order, leaf after leaf of a run, is read ahead by the
//! [cursor](super::cursor) of that run.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use argosy_base::{KeyRange, Lsn, Pointer, SegmentNumber};
use argosy_engine::{EngineError, Reach, Scan};
use argosy_log::ValueRef;

use super::medium::page_key;
use super::{ReadView, Reading, ScanTime, VersionLog, read_log, reader};
use crate::cache::{CacheKey, Lookup, NodeCache};
use crate::level::{SegmentReader, medium};
use crate::merge::{Merge, Source};
use crate::names::{Entry, LevelError, SegmentName};
use crate::segments::fetch::Fetch;
use crate::storage::Together;
use crate::version::{LevelEntry, LogEntry, Run, Version};

/// Pairs that are looked at together the first time, where nobody said how many will be taken.
const AHEAD_FIRST: usize = 8;
/// Most pairs that are looked at together.
const AHEAD_MAX: usize = 128;
/// No more are looked at once their values have so many bytes.
const AHEAD_BYTES: usize = 256 << 10;
/// Most leaves of a run that are read where a scan begins.
const LEAVES_MAX: usize = 4;

type Pair = (Vec<u8>, Vec<u8>);
pub(crate) type RangeMerge<const DOWN: bool> = Merge<Box<dyn Source + Send>, DOWN>;

/// The pairs of a range.
pub struct RangeScan<const DOWN: bool> {
    range: KeyRange,
    /// What is newer is not shown.
    lsn: Lsn,
    /// What is to come, once a pair was asked for.
    merge: Option<RangeMerge<DOWN>>,
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
    /// Values are wanted.
    values: bool,
    /// How far it goes.
    reach: Reach,
}

/// How much a scan takes, and from where.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    /// How many pairs will be taken, if somebody said so.
    pub(crate) expected: Option<usize>,
    /// Whether it goes to the device.
    pub(crate) reach: Reach,
}

impl<const DOWN: bool> RangeScan<DOWN> {
    /// The pairs of `range` that `view` shows as of `lsn` and `time`.
    pub(crate) fn new(
        range: KeyRange,
        view: Arc<ReadView>,
        reading: Arc<Reading>,
        lsn: Lsn,
        time: Arc<ScanTime>,
    ) -> Self {
        Self {
            range,
            lsn,
            merge: None,
            view,
            reading,
            time,
            ready: VecDeque::new(),
            failed: None,
            expected: None,
            ahead: AHEAD_FIRST,
            values: true,
            reach: Reach::Device,
        }
    }

    /// The same, as far as `reach` goes.
    pub(crate) fn within(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Goes through the next pairs, and reads the values of theirs together that are not in memory.
    fn look_ahead(&mut self) {
        let Some(merge) = &mut self.merge else {
            return;
        };
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
            && let Some(key) = merge.key()
        {
            if let Some(value) = batch.take(key, self.time.shown(merge.entry())) {
                bytes += value.len();
                found.push((key.to_vec(), value));
            }
            if let Err(error) = merge.advance() {
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

    fn leave_values_out(&mut self) {
        self.values = false;
    }

    fn next(&mut self) -> Result<Option<Pair>, EngineError> {
        self.reading.check_serving()?;
        let next = self.next_pair();
        if self.reach == Reach::Memory {
            // Whatever is wrong: who reads it from the device will see.
            return next.map_err(|_| EngineError::NotInMemory);
        }
        self.reading.damages.noting(&self.view.version, next)
    }
}

impl<const DOWN: bool> RangeScan<DOWN> {
    fn next_pair(&mut self) -> Result<Option<Pair>, EngineError> {
        loop {
            if let Some(pair) = self.ready.pop_front() {
                self.expected = self.expected.map(|left| left.saturating_sub(1));
                return Ok(Some(pair));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let merge = match &mut self.merge {
                Some(merge) => merge,
                none => {
                    let walk = Walk {
                        expected: self.expected,
                        reach: self.reach,
                    };
                    let (range, lsn) = (&self.range, self.lsn);
                    none.insert(self.view.merge(range, walk, lsn, &self.reading)?)
                }
            };
            let Some(key) = merge.key() else {
                return Ok(None);
            };
            let value = match self.time.shown(merge.entry()) {
                Entry::Tombstone | Entry::Until(..) => None,
                _ if !self.values => Some(Vec::new()),
                Entry::Inline(value) => Some(value.to_vec()),
                Entry::Pointer { at, value_len } => {
                    let wanted = ValueRef { at, value_len, key };
                    match (self.view.cached_value(&wanted, &self.reading), self.reach) {
                        (Some(value), _) => Some(value),
                        (None, Reach::Memory) => {
                            // It may be in a window.
                            let fetch = Fetch::Memory;
                            Some(self.view.logged_value(&wanted, &self.reading, fetch)?)
                        }
                        (None, Reach::Device) => {
                            self.look_ahead();
                            continue;
                        }
                    }
                }
            };
            let pair = value.map(|value| (key.to_vec(), value));
            merge.advance()?;
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
    /// Pages of the medium log, by segment and first byte.
    pages: BTreeMap<(SegmentNumber, u32), Page>,
}

/// A page of the medium log that is read.
struct Page {
    part: usize,
    span: Range<u32>,
    /// How many values of it are wanted.
    values: usize,
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
                    None => {
                        self.want_page(at, value_len);
                        Value::Medium { at, len: value_len }
                    }
                })
            }
            Entry::Pointer { at, value_len } => {
                let wanted = ValueRef { at, value_len, key };
                if let Some(value) = self.view.cached_large_value(&wanted, self.reading) {
                    return Some(Value::Here(value));
                }
                self.reading.cache.count(Lookup::Value, false);
                Some(Value::Logged {
                    at,
                    len: value_len,
                    part: self.want(&wanted),
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
    fn want_page(&mut self, at: Pointer, value_len: u32) {
        let number = at.segment();
        let Some(entry) = self.view.version.medium_log().get(&number) else {
            return;
        };
        let Some(span) = medium::pages(at.offset(), value_len, entry.segment.len) else {
            return;
        };
        let together = &mut self.together;
        let page = self.pages.entry((number, span.start));
        let page = page.or_insert_with(|| Page {
            part: together.want(&entry.stored, span.clone()),
            span,
            values: 0,
        });
        page.values += 1;
    }

    /// Puts the pages that were read for several values into the cache.
    fn keep_pages(&self) {
        for ((number, from), page) in self.pages.iter().filter(|(_, page)| page.values > 1) {
            let read = self.together.part(page.part, *from, page.span.len());
            if let Some(Ok(bytes)) = read.map(|part| part.bytes)
                && let Some(key) = page_key(self.name_of(*number), &page.span)
            {
                self.reading.cache.keep_page(key, bytes.into());
            }
        }
    }

    fn name_of(&self, number: SegmentNumber) -> SegmentName {
        let entry = self.view.version.medium_log().get(&number);
        let entry = entry.expect("it was looked up in this version");
        self.view.version.name_of(&entry.segment)
    }

    /// A medium value, out of the page that was read for it. It is kept by itself if nothing else of the page
    /// was wanted.
    fn medium_value(&self, wanted: &ValueRef<'_>) -> Option<Result<Vec<u8>, LevelError>> {
        let at = wanted.at;
        let start = at.offset() - at.offset() % medium::PAGE_BYTES;
        let page = self.pages.get(&(at.segment(), start))?;
        let record = medium::record_len(wanted.value_len as usize);
        let read = self.together.part(page.part, at.offset(), record)?;
        let (_, medium) = self.view.medium_value(wanted)?;
        self.reading.filters.count_followed(1);
        let value = match read.bytes {
            Ok(record) => medium::value_in(medium.name, at.offset(), wanted.key, record),
            Err(error) => Err(LevelError::Device(error.clone())),
        };
        if let Ok(value) = value
            && page.values == 1
            && let Some(read) = self.together.part(page.part, start, page.span.len())
            && let Ok(bytes) = read.bytes
        {
            medium.keep(value, bytes, &self.reading.cache);
        }
        Some(value.map(<[u8]>::to_vec))
    }

    fn value(&self, key: &[u8], value: Value) -> Result<Vec<u8>, EngineError> {
        match value {
            Value::Here(value) => Ok(value),
            Value::Medium { at, len: value_len } => {
                let wanted = ValueRef { at, value_len, key };
                match self.medium_value(&wanted) {
                    Some(value) => Ok(value?),
                    None => self.view.logged_value(&wanted, self.reading, Fetch::Device),
                }
            }
            Value::Logged { at, len, part } => {
                let wanted = ValueRef {
                    at,
                    value_len: len,
                    key,
                };
                let version = &*self.view.version;
                let read = |entry: &LogEntry, offset, out: &mut [u8]| {
                    let read = part.and_then(|part| self.together.part(part, offset, out.len()));
                    match read.filter(|read| read.segment == entry.segment.number) {
                        Some(read) => {
                            out.copy_from_slice(read.bytes.map_err(Clone::clone)?);
                            Ok(())
                        }
                        None => read_log(entry, offset, out),
                    }
                };
                self.reading.value(&wanted, &VersionLog { version, read })
            }
        }
    }
}

/// A run in which a scan begins.
pub(crate) struct Begun<'v> {
    pub(crate) run: &'v Run,
    /// Its place among the version's runs.
    pub(crate) place: usize,
    /// The places of its segments that have keys of the range; not empty.
    pub(crate) places: Range<usize>,
}

impl<'v> Begun<'v> {
    /// The segment in which it begins.
    fn first<const DOWN: bool>(&self) -> &'v LevelEntry {
        let at = if DOWN {
            self.places.end - 1
        } else {
            self.places.start
        };
        &self.run.segments[at]
    }

    /// About how many pairs the run has: how many of those that a scan takes come from it depends on that.
    fn weight<const DOWN: bool>(&self) -> u64 {
        u64::from(self.first::<DOWN>().segment.entries) * self.run.segments.len() as u64
    }
}

/// The runs of `version` that have keys of `range`.
pub(crate) fn begun<'v>(version: &'v Version, range: &KeyRange) -> Vec<Begun<'v>> {
    let runs = version.runs().enumerate().map(|(place, (_, run))| Begun {
        run,
        place,
        places: run.places_overlapping(range),
    });
    runs.filter(|begun| !begun.places.is_empty()).collect()
}

/// Puts the leaves in which a scan of `range` begins in `runs` into the cache, and those behind them that it
/// comes to if `expected` pairs are taken; those that are not there, in one read. What cannot be read is left
/// to the cursors, which will say so.
pub(crate) fn warm<const DOWN: bool>(
    runs: &[Begun<'_>],
    range: &KeyRange,
    expected: Option<usize>,
    reading: &Reading,
) {
    let mut together = Together::default();
    let mut wanted: Vec<Leaves> = Vec::new();
    let of_all: u64 = runs.iter().map(|begun| begun.weight::<DOWN>()).sum();
    for begun in runs {
        let share = u128::from(begun.weight::<DOWN>()) * expected.unwrap_or(0) as u128;
        let share = usize::try_from(share / u128::from(of_all.max(1))).unwrap_or(usize::MAX);
        let entry = begun.first::<DOWN>();
        let Ok(segment) = reader(entry, reading.region, &reading.cache, Fetch::Device) else {
            continue;
        };
        let bounds = entry.segment.range.intersection(range);
        if let Some(leaves) = missing::<DOWN>(&segment, &bounds, share, &reading.cache) {
            let span = segment.leaf_span(leaves.start).start..segment.leaf_span(leaves.end - 1).end;
            let part = together.want(&entry.stored, span);
            let segment = segment.into_owned();
            wanted.push(Leaves {
                segment,
                leaves,
                part,
            });
        }
    }
    if wanted.is_empty() {
        return;
    }
    together.read();
    let bytes: u64 = wanted
        .iter()
        .map(|leaves| leaves.keep(&together, &reading.cache))
        .sum();
    reading.filters.count_fetched(bytes);
}

/// The leaves of `segment` in which a scan of `bounds` begins that takes `share` pairs of it: those from the
/// first to the last that are not in `cache`.
fn missing<const DOWN: bool>(
    segment: &SegmentReader,
    bounds: &KeyRange,
    share: usize,
    cache: &NodeCache,
) -> Option<Range<usize>> {
    let near = if DOWN {
        bounds.to.as_deref()
    } else {
        Some(&*bounds.from)
    };
    let first = segment.first_leaf::<DOWN>(near)?;
    let has = |leaf| cache.has(CacheKey::leaf(segment.name(), leaf));
    let per_leaf = (segment.entries() as usize)
        .div_ceil(segment.leaves())
        .max(1);
    // It begins somewhere in the first leaf: in the middle, if nobody looks.
    let behind = share.saturating_add(per_leaf / 2) / per_leaf;
    let behind = behind.min(LEAVES_MAX - 1);
    let leaves = if DOWN {
        first.saturating_sub(behind)..first + 1
    } else {
        first..(first + behind + 1).min(segment.leaves())
    };
    let from = leaves.clone().find(|leaf| !has(*leaf))?;
    let last = leaves.rev().find(|leaf| !has(*leaf))?;
    Some(from..last + 1)
}

/// Leaves of a segment that are read together with others.
struct Leaves {
    segment: Arc<SegmentReader>,
    leaves: Range<usize>,
    /// The part that they are.
    part: usize,
}

impl Leaves {
    /// Puts those into `cache` that were not there. Returns their bytes.
    fn keep(&self, together: &Together, cache: &NodeCache) -> u64 {
        let mut kept = 0;
        for leaf in self.leaves.clone() {
            let key = CacheKey::leaf(self.segment.name(), leaf);
            let span = self.segment.leaf_span(leaf);
            if cache.has(key) {
                continue;
            }
            kept += span.len() as u64;
            let read = together.part(self.part, span.start, span.len());
            if let Some(Ok(bytes)) = read.map(|part| part.bytes)
                && let Ok(parsed) = self.segment.parse_leaf(leaf, bytes)
            {
                cache.keep_missed_leaf(key, parsed);
            }
        }
        kept
    }
}
