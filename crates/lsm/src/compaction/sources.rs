//! What compactions and scans read from: memtables and runs, as sorted sources for a merge.
//!
//! A [`MemtableSource`] shows of each key the newest entry at or below an LSN. A [`RunSource`] goes
//! through the pieces of a run one after the other and opens each when the one before has ended, so
//! that a run of any length costs one cursor.

use std::sync::Arc;

use argosy_base::{KeyRange, Lsn, Pointer, RegionId};

use super::plan::Input;
use crate::cache::NodeCache;
use crate::level::{Entry, LevelCursor, LevelError, ReadAhead};
use crate::memtable::{Memtable, MemtableCursor};
use crate::merge::Source;
use crate::read::{SegmentSource, passing_reader, reader};
use crate::version::Version;

/// The newest entries of a memtable at or below an LSN.
pub struct MemtableSource {
    cursor: MemtableCursor,
    lsn_max: Lsn,
    /// The key behind the last that belongs.
    to: Option<Vec<u8>>,
    /// The present key, kept to recognise its older entries.
    key: Vec<u8>,
    ended: bool,
}

impl MemtableSource {
    /// The entries of `table` in `range`, as of `lsn_max`.
    #[must_use]
    pub fn new(table: &Arc<Memtable>, lsn_max: Lsn, range: &KeyRange) -> Self {
        let mut cursor = table.cursor();
        if range.from.is_empty() {
            cursor.seek_to_first();
        } else {
            cursor.seek(&range.from, lsn_max);
        }
        let mut source = Self {
            cursor,
            lsn_max,
            to: range.to.clone(),
            key: Vec::new(),
            ended: range.is_empty(),
        };
        source.settle();
        source
    }

    /// Goes on from where the cursor is to the first entry that is seen and of another key.
    fn settle(&mut self) {
        while let Some((key, lsn, _)) = self.cursor.entry() {
            // No key is empty, so the first one differs from the empty one kept at first.
            if lsn <= self.lsn_max && key != self.key.as_slice() {
                if self.to.as_ref().is_some_and(|to| key >= to.as_slice()) {
                    break;
                }
                self.key.clear();
                self.key.extend_from_slice(key);
                return;
            }
            self.cursor.advance();
        }
        self.ended = true;
    }
}

impl Source for MemtableSource {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        (!self.ended).then_some(self.key.as_slice())
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        let (_, _, entry) = self.cursor.entry().expect("the source is not at its end");
        entry
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        if !self.ended {
            self.cursor.advance();
            self.settle();
        }
        Ok(())
    }
}

/// How a run is read.
#[derive(Clone)]
pub struct RunReading {
    /// The region, part of the identity of its segments.
    pub region: RegionId,
    /// How far ahead.
    pub ahead: ReadAhead,
    /// Through which cache; compactions use none.
    pub cache: Option<Arc<NodeCache>>,
    /// Where pointers hold places: the version by which they become numbers. `None`: they are shown
    /// as they stand.
    pub resolve: Option<Arc<Version>>,
}

/// The entries of some pieces of a run.
pub struct RunSource {
    reading: RunReading,
    /// What comes after the present piece.
    pieces: std::vec::IntoIter<Input>,
    cursor: Option<LevelCursor<SegmentSource>>,
    /// The present entry's pointer, if it was resolved.
    resolved: Option<Pointer>,
}

impl RunSource {
    /// The entries of `pieces`, which are in key order.
    ///
    /// # Errors
    /// When the first piece cannot be read.
    pub fn new(reading: RunReading, pieces: Vec<Input>) -> Result<Self, LevelError> {
        let mut source = Self {
            reading,
            pieces: pieces.into_iter(),
            cursor: None,
            resolved: None,
        };
        source.open_next()?;
        source.resolve()?;
        Ok(source)
    }

    /// Resolves the present entry's pointer, where that is asked for.
    fn resolve(&mut self) -> Result<(), LevelError> {
        let (Some(version), Some(cursor)) = (&self.reading.resolve, &self.cursor) else {
            return Ok(());
        };
        self.resolved = match cursor.entry() {
            Entry::Pointer { at, .. } => {
                let what = "a pointer leads to a place where the region has nothing";
                let unknown = || cursor.name().corrupt(0, what);
                Some(version.resolve(at).ok_or_else(unknown)?)
            }
            Entry::Inline(_) | Entry::Tombstone => None,
        };
        Ok(())
    }

    /// Opens pieces until one has an entry.
    fn open_next(&mut self) -> Result<(), LevelError> {
        self.cursor = None;
        for piece in self.pieces.by_ref() {
            let segment = match &self.reading.cache {
                Some(cache) => reader(&piece.entry, self.reading.region, cache)?.into_owned(),
                None => passing_reader(&piece.entry, self.reading.region)?,
            };
            let cursor = LevelCursor::new(
                segment,
                SegmentSource(Arc::clone(&piece.entry.stored)),
                self.reading.cache.clone(),
                &piece.range,
                self.reading.ahead,
            )?;
            if cursor.key().is_some() {
                self.cursor = Some(cursor);
                break;
            }
        }
        Ok(())
    }
}

impl Source for RunSource {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.cursor.as_ref().and_then(Source::key)
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        let cursor = self.cursor.as_ref();
        match (
            cursor.expect("the source is not at its end").entry(),
            self.resolved,
        ) {
            (Entry::Pointer { value_len, .. }, Some(at)) => Entry::Pointer { at, value_len },
            (entry, _) => entry,
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        if let Some(cursor) = &mut self.cursor {
            cursor.advance()?;
            if cursor.key().is_none() {
                self.open_next()?;
            }
            self.resolve()?;
        }
        Ok(())
    }
}
