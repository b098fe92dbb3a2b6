//! Walks through a level segment in key order, or from the highest key down.
//!
//! A cursor reads leaves ahead: each time it has to go to the device it reads twice as many bytes as
//! the time before, up to a limit. A compaction begins with long reads, and without a cache; a scan
//! begins with single leaves, which it takes from the cache and leaves there, and once it has gone on
//! for long enough to read several at a time it no longer disturbs the cache. While a compaction merges
//! what was read, the device reads what comes next, as far as there is memory for that.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::KeyRange;

use super::nodes::missed;
use crate::cache::{CacheKey, Lookup, NodeCache};
use crate::level::reader::{Chunk, ChunkAhead};
use crate::level::stand::Stand;
use crate::level::{Leaf, ReadAt, SegmentReader};
use crate::merge::Source;
use crate::names::{Entry, LevelError, SegmentName};

/// How far a cursor reads ahead, in bytes of leaves. A read takes at least one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Bytes of the first read.
    pub first: usize,
    /// Most bytes of a read.
    pub max: usize,
    /// Most reads that are begun before their leaves are wanted. Only a walk upwards through all of its range begins
    /// any.
    pub begun: usize,
}

impl ReadAhead {
    /// For scans, many of which end soon.
    pub const SCAN: Self = Self {
        first: 0,
        max: 128 << 10,
        begun: 0,
    };
    /// For a reader of all of one run.
    pub(crate) const COMPACTION: Self = Self::long(LONG_BEGUN);
    /// For runs that are a small part of what a merge reads.
    const SHORT: Self = Self {
        first: 64 << 10,
        max: 64 << 10,
        begun: 1,
    };

    const fn long(begun: usize) -> Self {
        Self {
            first: 256 << 10,
            max: 256 << 10,
            begun,
        }
    }

    /// How a merge reads its runs, given how many bytes it reads of each. A short run gets short reads, one of them
    /// begun ahead. The long runs share [`LONG_BEGUN`] long reads that are begun ahead: the merge needs those soon.
    pub(crate) fn of_merge(bytes: &[u64]) -> impl Iterator<Item = Self> {
        let most = bytes.iter().copied().max().unwrap_or(0);
        let is_long = move |bytes: u64| bytes >= most / LONG_SHARE;
        let long = bytes.iter().filter(|bytes| is_long(**bytes)).count();
        let way = match LONG_BEGUN / long.max(1) {
            0 => Self::SHORT,
            begun => Self::long(begun),
        };
        bytes.iter().map(move |bytes| match is_long(*bytes) {
            true => way,
            false => Self::SHORT,
        })
    }
}

/// Long reads that a merge begins before it needs them, of all its runs together.
const LONG_BEGUN: usize = 4;
/// A run is long if it has at least this part of the bytes of the longest.
const LONG_SHARE: u64 = 4;

/// A position in a segment, and what is at it. Goes up, or with the parameter
/// [`DOWN`](crate::level::stand::DOWN) down.
pub struct LevelCursor<R, const DOWN: bool = false> {
    segment: Arc<SegmentReader>,
    source: R,
    cache: Option<Arc<NodeCache>>,
    /// Bytes of the next read, and most bytes of any.
    ahead: ReadAhead,
    chunk: Option<Chunk>,
    /// The leaves behind those, on their way, in order.
    next: VecDeque<ChunkAhead>,
    /// The leaf behind the last that belongs to the range, where reads are begun ahead.
    end: usize,
    stand: Stand<DOWN>,
    /// The place of the leaf that the cursor is in.
    at: usize,
    /// All leaves that belong to the range have been read, or are on their way.
    is_ending: bool,
}

/// A segment that was opened. A read of the first leaves of a range may have begun.
pub(crate) struct Opened {
    pub(crate) segment: Arc<SegmentReader>,
    first: Option<ChunkAhead>,
}

impl Opened {
    /// No read has begun.
    pub(crate) const fn of(segment: Arc<SegmentReader>) -> Self {
        Self {
            segment,
            first: None,
        }
    }

    /// Begins to read the first leaves of `range`, as far as there is memory for that.
    pub(crate) fn begin<R: ReadAt>(
        segment: Arc<SegmentReader>,
        source: &R,
        range: &KeyRange,
        ahead: ReadAhead,
    ) -> Self {
        let leaves = segment.leaves_of(range);
        let to = segment.leaves_within(leaves.start, ahead.first);
        let leaves = leaves.start..to.min(leaves.end);
        let first = match leaves.is_empty() {
            true => None,
            false => segment.begin_leaves(leaves, source),
        };
        Self { segment, first }
    }
}

impl<R: ReadAt> LevelCursor<R> {
    /// A cursor at the lowest key of `segment` in `range`, and, from there, through all of that range.
    ///
    /// # Errors
    /// When the first leaf cannot be read, or is not what the index says.
    pub fn new(
        segment: Arc<SegmentReader>,
        source: R,
        cache: Option<Arc<NodeCache>>,
        range: &KeyRange,
        ahead: ReadAhead,
    ) -> Result<Self, LevelError> {
        Self::either_way(segment, source, cache, range, ahead)
    }

    /// Goes to the lowest key that is not below `key`, forwards or backwards. A key below the range
    /// that the cursor was made for is the caller's mistake, and shows what is outside of the range.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn seek(&mut self, key: &[u8]) -> Result<(), LevelError> {
        self.go_to(Some(key))
    }
}

impl<R: ReadAt, const DOWN: bool> LevelCursor<R, DOWN> {
    /// A cursor at the first key of `segment` in `range` on its way, and, from there, through all of
    /// that range.
    ///
    /// # Errors
    /// When the first leaf cannot be read, or is not what the index says.
    pub(crate) fn either_way(
        segment: Arc<SegmentReader>,
        source: R,
        cache: Option<Arc<NodeCache>>,
        range: &KeyRange,
        ahead: ReadAhead,
    ) -> Result<Self, LevelError> {
        Self::opened(Opened::of(segment), source, cache, range, ahead)
    }

    /// The same, of a segment of which something may be on its way.
    ///
    /// # Errors
    /// As [`either_way`](Self::either_way).
    pub(crate) fn opened(
        Opened { segment, first }: Opened,
        source: R,
        cache: Option<Arc<NodeCache>>,
        range: &KeyRange,
        ahead: ReadAhead,
    ) -> Result<Self, LevelError> {
        segment.ensure_indexed()?;
        let mut cursor = Self {
            segment,
            source,
            cache,
            ahead,
            chunk: None,
            next: first.into_iter().collect(),
            end: 0,
            stand: Stand::new(range),
            at: 0,
            is_ending: false,
        };
        if !DOWN && ahead.begun > 0 {
            cursor.end = cursor.segment.leaves_below(range.to.as_deref());
        }
        if !range.is_empty() {
            cursor.go_to(Stand::<DOWN>::near(range))?;
        }
        Ok(cursor)
    }

    /// Which segment it goes through.
    pub(crate) fn name(&self) -> SegmentName {
        self.segment.name()
    }

    /// Goes to the first key on this way from `bound` on; see [`Stand::first_of`].
    fn go_to(&mut self, bound: Option<&[u8]>) -> Result<(), LevelError> {
        self.stand.end();
        let segment = self.segment.clone();
        let inside = bound.filter(|key| *key <= segment.last_key());
        let (at, leaf) = match inside {
            Some(key) => segment.find_leaf(key, |at| self.read(at))?,
            // All keys lie below the bound.
            None if DOWN => {
                let last = segment.leaves() - 1;
                (last, self.read(last)?)
            }
            None => return Ok(()),
        };
        match Stand::<DOWN>::first_of(&leaf, inside) {
            Some(slot) => {
                self.enter(at, leaf, slot);
                Ok(())
            }
            None => self.enter_next(at, &leaf),
        }
    }

    /// Leaf `at`: out of what was read ahead, the cache, or the device.
    fn read(&mut self, at: usize) -> Result<Leaf, LevelError> {
        if let Some(chunk) = self.chunk.as_ref().filter(|chunk| chunk.holds(at)) {
            return chunk.leaf(&self.segment, at);
        }
        let key = CacheKey::leaf(self.segment.name(), at);
        if let Some(cache) = &self.cache {
            if let Some(leaf) = cache.leaf(key) {
                return Ok(leaf);
            }
            missed(Lookup::Leaf, &self.source, Some(cache))?;
        }
        if let Some(next) = self.next.pop_front_if(|next| next.holds(at)) {
            let chunk = next.finish(&self.source)?;
            let leaf = chunk.leaf(&self.segment, at)?;
            self.keep(chunk);
            return Ok(leaf);
        }
        // What is on its way is wanted no more.
        self.next.clear();
        let leaves = if DOWN {
            self.segment.leaves_before(at, self.ahead.first)..at + 1
        } else {
            at..self.segment.leaves_within(at, self.ahead.first)
        };
        let several = leaves.len() > 1;
        let chunk = self.segment.read_leaves(leaves, &self.source)?;
        let leaf = chunk.leaf(&self.segment, at)?;
        if several {
            self.keep(chunk);
        } else if let Some(cache) = &self.cache {
            cache.keep_leaf(key, leaf.clone());
        }
        let node = self.segment.leaf_span(at).len();
        self.ahead.first = (self.ahead.first.max(node) * 2).min(self.ahead.max);
        Ok(leaf)
    }

    /// Keeps what was read ahead, and begins to read what comes next.
    fn keep(&mut self, chunk: Chunk) {
        let mut from = self.next.back().map_or(chunk.end(), ChunkAhead::end);
        self.chunk = Some(chunk);
        while from < self.end && self.next.len() < self.ahead.begun {
            let to = self.segment.leaves_within(from, self.ahead.max);
            let leaves = from..to.min(self.end);
            from = leaves.end;
            match self.segment.begin_leaves(leaves, &self.source) {
                Some(next) => self.next.push_back(next),
                None => return,
            }
        }
        self.is_ending = self.ahead.begun > 0 && from >= self.end;
    }

    /// Whether all leaves that belong to the range have been read or are on their way, where reads are begun ahead.
    #[inline]
    pub(crate) const fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Stands at pair `slot` of `leaf`, or at the end where that is outside of the range.
    fn enter(&mut self, at: usize, leaf: Leaf, slot: usize) {
        self.at = at;
        self.stand.enter(leaf, slot);
    }

    /// Stands at the first pair behind `leaf`, which is at `at`, on this way.
    fn enter_next(&mut self, at: usize, leaf: &Leaf) -> Result<(), LevelError> {
        let Some(next) = Stand::<DOWN>::next(at, self.segment.leaves()) else {
            return Ok(());
        };
        let found = self.read(next)?;
        let (below, above, place) = if DOWN {
            (&found, leaf, at)
        } else {
            (leaf, &found, next)
        };
        // Untied neighbours were told apart by the separator between them.
        if self.segment.is_tied(place) && below.last_key() >= above.first_key() {
            let (name, start) = (self.segment.name(), self.segment.leaf_start(place));
            return Err(name.corrupt(start, "a leaf begins below the end of the one before"));
        }
        let slot = Stand::<DOWN>::edge(found.count());
        self.enter(next, found, slot);
        Ok(())
    }

    #[cold]
    fn next_leaf(&mut self) -> Result<(), LevelError> {
        match self.stand.leave() {
            Some(leaf) => self.enter_next(self.at, &leaf),
            None => Ok(()),
        }
    }
}

impl<R: ReadAt, const DOWN: bool> Source for LevelCursor<R, DOWN> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.stand.key()
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.stand.entry()
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        if self.stand.step() {
            return Ok(());
        }
        self.next_leaf()
    }
}

impl<R, const DOWN: bool> std::fmt::Debug for LevelCursor<R, DOWN> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = (self.segment.name(), self.at, self.stand.slot());
        f.debug_tuple("LevelCursor").field(&place).finish()
    }
}
