//! Medium pairs: where a flush or a merge puts their values.
//!
//! A medium value is written twice at most, however many levels there are: beside the run that its
//! memtable becomes, as one of a sorted run of the medium log, and in place at the last level. The levels
//! between have pointers, which are merged at a fraction of the cost of values.
//!
//! ```text
//! memtable ── flush ──▶ L1: pointers ── merge ──▶ L2: pointers ── merge ──▶ L3, the last: values
//!                │                                                  ▲
//!                └────▶ medium segments, in key order ──────────────┘ read ahead, one chunk for each run
//! ```
//!
//! - [`is_apart`] and [`is_in_place`] decide, of what a version is like. Values go apart where a level
//!   between spares rewriting them: with less than three levels none does, and a pointer would only cost
//!   readers a second look at the device.
//! - What is pointed to has to be told to other members before the pointers: where pointers hold places, the
//!   medium segment that a leaf segment points into is finished before it.
//! - Each run that a merge reads points into its own medium segments in their order. So a chunk of each is
//!   enough ([`MediumReads`]), and what all of them may take together is bounded (I9).
//! - A medium segment goes with the last pointer into it, by the edit that takes that away
//!   ([`truncation`](crate::work::truncation)): no garbage of it is ever collected.
//! - The medium log has a bound: [`MediumExtent`]. Beyond, flushes leave values in the leaves, and levels are
//!   merged although they are not full, until it has become shorter.

use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{Pointer, SegmentNumber};
use argosy_device::Buffer;

use super::plan::MergePlan;
use crate::level::ReadAt as _;
use crate::level::medium::{record_len, value_in};
use crate::names::{LevelError, SegmentName};
use crate::segments::StoredSegment;
use crate::settings::{Placement, Settings};
use crate::version::Version;

/// Bytes that are read ahead in all medium segments together, of one merge.
const AHEAD_BYTES: usize = 4 << 20;
/// Least and most bytes that are read at a time.
const CHUNK_BYTES: (usize, usize) = (16 << 10, 256 << 10);

/// What the choice of a place for medium values depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediumExtent {
    /// Levels that there are, the last of which is not empty.
    pub levels: usize,
    /// Bytes of device that the medium log takes.
    pub bytes: u64,
    /// Bytes that it may take.
    pub bound: u64,
}

impl MediumExtent {
    /// That of `version`.
    #[must_use]
    pub(crate) fn of(version: &Version, settings: &Settings) -> Self {
        let levels = version.levels();
        let level_bytes: u64 = levels.iter().map(|level| level.bytes()).sum();
        Self {
            levels: levels.len(),
            bytes: version.medium_log().len() as u64 * settings.layout.segment_bytes as u64,
            bound: settings.medium_log_bound(level_bytes),
        }
    }

    /// Whether the medium log is longer than it may be.
    #[must_use]
    pub(crate) const fn is_over(&self) -> bool {
        self.bytes > self.bound
    }
}

/// Whether a flush puts medium values apart.
#[must_use]
pub(crate) fn is_apart(settings: &Settings, extent: &MediumExtent) -> bool {
    settings.values.placement == Placement::Hybrid
        && extent.levels >= settings.values.medium_levels_min
        && extent.bound > 0
        && !extent.is_over()
}

/// Whether a merge into `target` puts medium values in place: it is the last level, or will be.
#[must_use]
pub(crate) const fn is_in_place(target: u8, extent: &MediumExtent) -> bool {
    target as usize >= extent.levels
}

/// A medium segment that a merge reads.
struct Known {
    /// What pointers to it begin with.
    high: SegmentNumber,
    name: SegmentName,
    len: u32,
    stored: Arc<StoredSegment>,
    chunk: Option<Chunk>,
}

/// Bytes that were read together.
struct Chunk {
    from: usize,
    bytes: Buffer,
    /// When it was used last.
    used: u64,
}

impl Chunk {
    fn get(&self, from: usize, len: usize) -> Option<&[u8]> {
        let at = from.checked_sub(self.from)?;
        self.bytes.get(at..at + len)
    }
}

/// The medium values that a merge puts in place, read ahead.
pub(crate) struct MediumReads {
    version: Arc<Version>,
    /// The medium segments that pointers have led to so far, by their high bits.
    known: Vec<Known>,
    /// Bytes that are read at a time: the fewer, the more segments have keys of the merge.
    chunk_bytes: usize,
    /// Bytes of the chunks that are held: [`AHEAD_BYTES`] at most, and one more chunk.
    held_bytes: usize,
    now: u64,
    /// Values that were taken, and bytes that were read.
    values: u64,
    read_bytes: u64,
}

impl MediumReads {
    /// Those that the inputs of `plan`, one of `version`, point to; `None` where they point to none.
    #[must_use]
    pub(crate) fn of(version: &Arc<Version>, plan: &MergePlan) -> Option<Self> {
        if plan.medium_bytes() == 0 {
            return None;
        }
        let keys = plan.keys();
        let medium = version.medium_log().values();
        let beside = medium.filter(|entry| entry.segment.range.overlaps(&keys));
        let (least, most) = CHUNK_BYTES;
        let share = AHEAD_BYTES / beside.count().max(1) / BLOCK_SIZE * BLOCK_SIZE;
        Some(Self {
            version: Arc::clone(version),
            known: Vec::new(),
            chunk_bytes: share.clamp(least, most),
            held_bytes: 0,
            now: 0,
            values: 0,
            read_bytes: 0,
        })
    }

    /// The place in `known` of the medium segment to which pointers have these high bits, if they lead to
    /// one.
    #[inline]
    fn find(&mut self, high: SegmentNumber) -> Option<usize> {
        let found = self.known.binary_search_by_key(&high, |known| known.high);
        found.map_or_else(|at| self.meet(high, at), Some)
    }

    /// Looks up a segment that no pointer has led to before, which belongs to place `at`.
    #[cold]
    fn meet(&mut self, high: SegmentNumber, at: usize) -> Option<usize> {
        let version = &self.version;
        let number = version.resolve(Pointer::new(high, 0))?.segment();
        let entry = version.medium_log().get(&number)?;
        let known = Known {
            high,
            name: version.name_of(&entry.segment),
            len: entry.segment.len,
            stored: Arc::clone(&entry.stored),
            chunk: None,
        };
        self.known.insert(at, known);
        Some(at)
    }

    /// The value of `key`, of `value_len` bytes, if `at` leads into the medium log.
    ///
    /// # Errors
    /// When it does and the value is not there; the device's.
    #[inline]
    pub(crate) fn read(
        &mut self,
        at: Pointer,
        value_len: u32,
        key: &[u8],
    ) -> Result<Option<&[u8]>, LevelError> {
        let Some(index) = self.find(at.segment()) else {
            return Ok(None);
        };
        let (from, len) = (at.offset() as usize, record_len(value_len as usize));
        let held = self.known[index].chunk.as_ref();
        if held.is_none_or(|chunk| chunk.get(from, len).is_none()) {
            self.read_ahead(index, from, len)?;
        }
        self.now += 1;
        self.values += 1;
        let known = &mut self.known[index];
        let chunk = known.chunk.as_mut().expect("it was read");
        chunk.used = self.now;
        let record = chunk.get(from, len).expect("a chunk has the record");
        value_in(known.name, at.offset(), key, record).map(Some)
    }

    /// Reads a chunk that begins with the record of `len` bytes at `from`.
    #[cold]
    fn read_ahead(&mut self, index: usize, from: usize, len: usize) -> Result<(), LevelError> {
        let before = self.known[index].chunk.take();
        self.held_bytes -= before.map_or(0, |chunk| chunk.bytes.len());
        let chunk_bytes = self.chunk_bytes;
        while self.held_bytes > 0 && self.held_bytes + chunk_bytes > AHEAD_BYTES {
            self.let_go();
        }
        let known = &mut self.known[index];
        let begin = from / BLOCK_SIZE * BLOCK_SIZE;
        let needed = (from + len).next_multiple_of(BLOCK_SIZE);
        let end = (begin + chunk_bytes).max(needed);
        let end = end.min(known.len as usize);
        let offset = u32::try_from(begin).unwrap_or(u32::MAX);
        if needed > end {
            let what = "a pointer leads behind the end of a medium segment";
            return Err(known.name.corrupt(offset, what));
        }
        let mut bytes = Buffer::for_reading(end - begin);
        known.stored.read_at(offset, &mut bytes)?;
        self.read_bytes += bytes.len() as u64;
        self.held_bytes += bytes.len();
        known.chunk = Some(Chunk {
            from: begin,
            bytes,
            used: self.now,
        });
        Ok(())
    }

    /// Lets the chunk go that was used least recently: its run has gone on to another segment, or will be
    /// read again.
    fn let_go(&mut self) {
        let held = self.known.iter_mut().filter(|known| known.chunk.is_some());
        let used = |known: &&mut Known| known.chunk.as_ref().map(|chunk| chunk.used);
        if let Some(known) = held.min_by_key(used) {
            let chunk = known.chunk.take();
            self.held_bytes -= chunk.map_or(0, |chunk| chunk.bytes.len());
        }
    }

    /// Values that were taken, and bytes that were read.
    #[must_use]
    pub(crate) const fn totals(&self) -> (u64, u64) {
        (self.values, self.read_bytes)
    }
}

#[cfg(test)]
#[path = "medium_tests.rs"]
mod tests;
