//! Walks through a level segment in key order.
//!
//! A cursor reads leaves ahead: each time it has to go to the device it reads twice as many bytes as
//! the time before, up to a limit. A compaction begins with long reads, and without a cache; a scan
//! begins with single leaves, which it takes from the cache and leaves there, and once it has gone on
//! for long enough to read several at a time it no longer disturbs the cache.

use std::sync::Arc;

use argosy_base::KeyRange;

use super::leaf::{Leaf, Record};
use super::reader::Chunk;
use super::{Entry, LevelError, ReadAt, SegmentName, SegmentReader};
use crate::cache::NodeCache;
use crate::merge::Source;

/// How far a cursor reads ahead, in bytes of leaves. A read takes at least one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Bytes of the first read.
    pub first: usize,
    /// Most bytes of a read.
    pub max: usize,
}

impl ReadAhead {
    /// For scans, many of which end soon.
    pub const SCAN: Self = Self {
        first: 0,
        max: 128 << 10,
    };
    /// For compactions, which read everything.
    pub const COMPACTION: Self = Self {
        first: 256 << 10,
        max: 256 << 10,
    };
}

/// A position in a segment, and what is at it.
pub struct LevelCursor<R> {
    segment: Arc<SegmentReader>,
    source: R,
    cache: Option<Arc<NodeCache>>,
    /// Bytes of the next read, and most bytes of any.
    ahead: ReadAhead,
    chunk: Option<Chunk>,
    /// The key behind the last that belongs.
    to: Option<Vec<u8>>,
    /// The leaf that the cursor is in, while it is not at its end.
    leaf: Option<Leaf>,
    /// The place of that leaf.
    at: usize,
    /// The present pair of that leaf, and the one behind the last that belongs.
    slot: usize,
    end: usize,
    record: Record,
}

impl<R: ReadAt> LevelCursor<R> {
    /// Which segment it goes through.
    pub(crate) fn name(&self) -> SegmentName {
        self.segment.name()
    }

    /// A cursor at the lowest key of `segment` in `range`, and, from there, through all of that range.
    pub fn new(
        segment: Arc<SegmentReader>,
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
            to: range.to.clone(),
            leaf: None,
            at: 0,
            slot: 0,
            end: 0,
            record: Record::default(),
        };
        if !range.is_empty() {
            cursor.seek(&range.from)?;
        }
        Ok(cursor)
    }

    /// Goes to the lowest key that is not below `key`, forwards or backwards. A key below the range
    /// that the cursor was made for is the caller's mistake, and shows what is outside of the range.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), LevelError> {
        self.leaf = None;
        if key > self.segment.last_key() {
            return Ok(());
        }
        let segment = self.segment.clone();
        let (at, leaf) = segment.find_leaf(key, |at| self.read(at))?;
        let slot = leaf.search(key).unwrap_or_else(|above| above);
        if slot < leaf.count() {
            self.enter(at, leaf, slot);
            Ok(())
        } else {
            self.enter_next(at, &leaf)
        }
    }

    /// Leaf `at`: out of what was read ahead, the cache, or the device.
    fn read(&mut self, at: usize) -> Result<Leaf, LevelError> {
        if let Some(chunk) = self.chunk.as_ref().filter(|chunk| chunk.holds(at)) {
            return chunk.leaf(&self.segment, at);
        }
        let key = self.segment.cache_key(at);
        if let Some(leaf) = self.cache.as_ref().and_then(|cache| cache.leaf(key)) {
            return Ok(leaf);
        }
        let behind = self.segment.leaves_within(at, self.ahead.first);
        let chunk = self.segment.read_leaves(at, behind, &self.source)?;
        let leaf = chunk.leaf(&self.segment, at)?;
        if behind > at + 1 {
            self.chunk = Some(chunk);
        } else if let Some(cache) = &self.cache {
            cache.keep_leaf(key, leaf.clone());
        }
        let node = leaf.bytes().len();
        self.ahead.first = (self.ahead.first.max(node) * 2).min(self.ahead.max);
        Ok(leaf)
    }

    /// Stands at pair `slot` of `leaf`, or at the end where that is outside of the range.
    fn enter(&mut self, at: usize, leaf: Leaf, slot: usize) {
        self.end = match &self.to {
            Some(to) if leaf.last_key() >= to.as_slice() => {
                leaf.search(to).unwrap_or_else(|above| above)
            }
            _ => leaf.count(),
        };
        self.at = at;
        self.slot = slot;
        self.leaf = (slot < self.end).then_some(leaf);
        if let Some(leaf) = &self.leaf {
            self.record = leaf.record(slot);
        }
    }

    /// Stands at the first pair behind `leaf`, which is at `at`.
    fn enter_next(&mut self, at: usize, leaf: &Leaf) -> Result<(), LevelError> {
        let next = at + 1;
        if next == self.segment.leaves() {
            return Ok(());
        }
        let above = self.read(next)?;
        // Untied neighbours were told apart by the separator between them.
        if self.segment.is_tied(next) && leaf.last_key() >= above.first_key() {
            let (name, start) = (self.segment.name(), self.segment.leaf_start(next));
            return Err(name.corrupt(start, "a leaf begins below the end of the one before"));
        }
        self.enter(next, above, 0);
        Ok(())
    }

    #[cold]
    fn next_leaf(&mut self) -> Result<(), LevelError> {
        match self.leaf.take() {
            // The range ends in this leaf.
            Some(leaf) if self.end < leaf.count() => Ok(()),
            Some(leaf) => self.enter_next(self.at, &leaf),
            None => Ok(()),
        }
    }
}

impl<R: ReadAt> Source for LevelCursor<R> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.leaf.as_ref().map(|leaf| self.record.key(leaf.bytes()))
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        let leaf = self.leaf.as_ref().expect("the cursor is not at its end");
        self.record.entry(leaf.bytes())
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        self.slot += 1;
        if self.slot < self.end
            && let Some(leaf) = &self.leaf
        {
            self.record = leaf.record(self.slot);
            return Ok(());
        }
        self.next_leaf()
    }
}

impl<R> std::fmt::Debug for LevelCursor<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = (self.segment.name(), self.at, self.slot);
        f.debug_tuple("LevelCursor").field(&place).finish()
    }
}
