//! What compactions and scans read from: memtables and runs, as sorted sources for a merge.
//!
//! A [`MemtableSource`] shows of each key the newest entry at or below an LSN, and so does a
//! [`MemtableDownSource`], from the highest key down; unless a range tombstone that came since shadows
//! it. Of runs, which are older than all of these, only what is left between the tombstones' ranges is read.
//!
//! A [`RunSource`] goes through the segments of a run, within their bounds, one after the other, either way. It opens
//! each when the one before has ended, so that a run of any length costs one cursor. Those of a tree are reached
//! through its index nodes; those that lead to one segment are kept for the next.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use argosy_base::{KeyRange, Lsn, Pointer, RegionId, SegmentNumber};
use argosy_engine::Reach;

use super::cursor::{LevelCursor, Opened, ReadAhead};
use super::scan::Begun;
use super::tree_cursor::{Path, TreeCursor, Way};
use super::{leaf_home, passing_reader, reader};
use crate::cache::NodeCache;
use crate::memtable::{DownCursor, Memtable, MemtableCursor, RangeTombstones};
use crate::merge::Source;
use crate::names::{Entry, Form, LevelError, SegmentName};
use crate::segments::StoredSegment;
use crate::segments::fetch::{Fetch, Reached};
use crate::version::{LevelEntry, RunTree, Version};

/// The newest entries of a memtable at or below an LSN.
pub(crate) struct MemtableSource {
    cursor: MemtableCursor,
    lsn_max: Lsn,
    /// The key behind the last that belongs.
    to: Option<Vec<u8>>,
    /// The present key, kept to recognise its older entries.
    key: Vec<u8>,
    ended: bool,
    /// Which range tombstones shadow entries.
    tombstones: Option<Arc<RangeTombstones>>,
}

impl MemtableSource {
    /// The entries of `table` in `range`, as of `lsn_max`.
    #[must_use]
    pub(crate) fn new(table: &Arc<Memtable>, lsn_max: Lsn, range: &KeyRange) -> Self {
        Self::without(table, lsn_max, range, None)
    }

    /// The same, without those that `tombstones` shadow, all of which the reader sees.
    #[must_use]
    pub(crate) fn without(
        table: &Arc<Memtable>,
        lsn_max: Lsn,
        range: &KeyRange,
        tombstones: Option<Arc<RangeTombstones>>,
    ) -> Self {
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
            tombstones,
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
                if !is_shadowed(self.tombstones.as_deref(), key, lsn) {
                    return;
                }
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

/// Whether one of `tombstones` shadows the entry of `key` with this LSN.
#[inline]
fn is_shadowed(tombstones: Option<&RangeTombstones>, key: &[u8], lsn: Lsn) -> bool {
    tombstones.is_some_and(|tombstones| tombstones.newest(key, Some(lsn), Lsn(u64::MAX)).is_some())
}

/// The newest entries of a memtable at or below an LSN, from the highest key down.
pub(crate) struct MemtableDownSource {
    cursor: DownCursor,
    /// Which range tombstones shadow entries.
    tombstones: Option<Arc<RangeTombstones>>,
    /// The lowest key that belongs.
    from: Vec<u8>,
}

impl MemtableDownSource {
    /// The entries of `table` in `range`, as of `lsn_max`, without those that `tombstones` shadow, all of which
    /// the reader sees.
    #[must_use]
    pub(crate) fn without(
        table: &Memtable,
        lsn_max: Lsn,
        range: &KeyRange,
        tombstones: Option<Arc<RangeTombstones>>,
    ) -> Self {
        let mut cursor = table.down(lsn_max);
        if let Some(to) = &range.to {
            cursor.seek(to);
        }
        let from = range.from.clone();
        let mut source = Self {
            cursor,
            tombstones,
            from,
        };
        source.step();
        source
    }

    /// Goes to the next entry that is seen.
    fn step(&mut self) {
        self.cursor.advance();
        while self.tombstones.is_some()
            && let (Some((key, _)), Some(lsn)) = (self.present(), self.cursor.lsn())
            && is_shadowed(self.tombstones.as_deref(), key, lsn)
        {
            self.cursor.advance();
        }
    }

    fn present(&self) -> Option<(&[u8], Entry<'_>)> {
        let entry = self.cursor.entry();
        entry.filter(|(key, _)| *key >= self.from.as_slice())
    }
}

impl Source for MemtableDownSource {
    fn key(&self) -> Option<&[u8]> {
        self.present().map(|(key, _)| key)
    }

    fn entry(&self) -> Entry<'_> {
        let (_, entry) = self.present().expect("the source is not at its end");
        entry
    }

    fn advance(&mut self) -> Result<(), LevelError> {
        if self.present().is_some() {
            self.step();
        }
        Ok(())
    }
}

/// A segment of a run, within its bounds or less, that a merge reads.
#[derive(Clone, Debug)]
pub struct Input {
    /// The segment.
    pub entry: LevelEntry,
    /// The keys of it that are read.
    pub range: KeyRange,
}

/// What a merge reads of a run: segments in key order, and the tree that leads to some of them.
#[derive(Clone, Debug)]
pub struct RunInput {
    /// At least one.
    pub inputs: Vec<Input>,
    /// The run's tree, where it has one.
    pub tree: Option<Arc<RunTree>>,
}

impl RunInput {
    /// Bytes of the segments.
    pub(crate) fn bytes(&self) -> u64 {
        let lengths = self.inputs.iter();
        lengths
            .map(|input| u64::from(input.entry.segment.len))
            .sum()
    }
}

/// What a version's rules exclude.
pub(crate) const NO_TREE: &str = "a segment of a tree in a run without one";

/// How a run is read.
#[derive(Clone)]
pub(crate) struct RunReading {
    /// The region, part of the identity of its segments.
    pub region: RegionId,
    /// How far ahead.
    pub ahead: ReadAhead,
    /// Through which cache; compactions use none.
    pub cache: Option<Arc<NodeCache>>,
    /// Whether it goes to the device. Of trees nothing is shown without that.
    pub reach: Reach,
    /// Where pointers hold places: the version by which they become numbers. `None`: they are shown
    /// as they stand.
    pub resolve: Option<Arc<Version>>,
    /// Shadowed pointers are counted: the merge drops them.
    pub counts: bool,
}

/// A position in an input: in a self-contained segment, or in a tree.
enum InputCursor<const DOWN: bool> {
    Alone(LevelCursor<Reached, DOWN>),
    Tree(TreeCursor<Arc<RunTree>, Arc<StoredSegment>, DOWN>),
}

impl<const DOWN: bool> InputCursor<DOWN> {
    fn name(&self) -> SegmentName {
        match self {
            Self::Alone(cursor) => cursor.name(),
            Self::Tree(cursor) => cursor.name(),
        }
    }

    /// Whether all that is left of it has been read or is on its way, where reads are begun ahead.
    #[inline]
    const fn is_ending(&self) -> bool {
        match self {
            Self::Alone(cursor) => cursor.is_ending(),
            Self::Tree(_) => false,
        }
    }
}

impl<const DOWN: bool> Source for InputCursor<DOWN> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Alone(cursor) => cursor.key(),
            Self::Tree(cursor) => cursor.key(),
        }
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        match self {
            Self::Alone(cursor) => cursor.entry(),
            Self::Tree(cursor) => cursor.entry(),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        match self {
            Self::Alone(cursor) => cursor.advance(),
            Self::Tree(cursor) => cursor.advance(),
        }
    }
}

/// Inputs of a run, in key order.
enum Inputs {
    Listed(std::vec::IntoIter<Input>),
    /// Of the run at place `run` of a version's runs what is in `range`; `left` are the places of its
    /// segments to come.
    OfRun {
        version: Arc<Version>,
        run: usize,
        left: Range<usize>,
        range: KeyRange,
        /// What shadows all of their keys that it has.
        tombstones: Option<Arc<RangeTombstones>>,
        /// Parts of the last segment that are left between these.
        parts: VecDeque<Input>,
    },
}

impl Inputs {
    /// Takes the first one, or the last.
    fn next<const DOWN: bool>(&mut self) -> Option<Input> {
        match self {
            Self::Listed(inputs) if DOWN => inputs.next_back(),
            Self::Listed(inputs) => inputs.next(),
            Self::OfRun {
                version,
                run,
                left,
                range,
                tombstones,
                parts,
            } => loop {
                let part = match DOWN {
                    true => parts.pop_back(),
                    false => parts.pop_front(),
                };
                if part.is_some() {
                    return part;
                }
                let place = if DOWN { left.next_back() } else { left.next() };
                let entry = version.runs().nth(*run)?.1.segments.get(place?)?;
                let range = entry.segment.range.intersection(range);
                let input = |range| Input {
                    entry: entry.clone(),
                    range,
                };
                match tombstones {
                    None => return Some(input(range)),
                    Some(tombstones) => parts.extend(tombstones.left_of(&range).map(input)),
                }
            },
        }
    }
}

/// What comes after the present input.
enum Upcoming {
    /// Nobody has looked.
    Unknown,
    /// There is none.
    Nothing,
    /// This input. A read of its first leaves may have begun.
    Input(Input, Option<Opened>),
}

/// The entries of some inputs of a run: in order, or with the parameter
/// [`DOWN`](crate::level::stand::DOWN) from the highest key down.
pub(crate) struct RunSource<const DOWN: bool = false> {
    reading: RunReading,
    tree: Option<Arc<RunTree>>,
    /// The way to the last input of the tree.
    path: Path,
    /// What comes after the present input, and after that.
    upcoming: Upcoming,
    inputs: Inputs,
    cursor: Option<InputCursor<DOWN>>,
    /// The present entry's pointer, if it was resolved.
    resolved: Option<Pointer>,
    /// Bytes of keys and values behind shadowed pointers, by their high bits: for a merge, which drops them.
    shadowed: BTreeMap<SegmentNumber, u64>,
}

impl RunSource {
    /// The entries of `input`, in order.
    ///
    /// # Errors
    /// When the first segment cannot be read.
    pub(crate) fn new(reading: RunReading, input: RunInput) -> Result<Self, LevelError> {
        Self::either_way(reading, input)
    }
}

impl<const DOWN: bool> RunSource<DOWN> {
    /// The entries of `input`, which are in order, on this source's way.
    ///
    /// # Errors
    /// When the first segment on that way cannot be read.
    pub(crate) fn either_way(reading: RunReading, input: RunInput) -> Result<Self, LevelError> {
        let inputs = Inputs::Listed(input.inputs.into_iter());
        Self::through(reading, input.tree, inputs)
    }

    /// The entries of `range` in a run of `version` that none of `tombstones` shadows, on this source's way.
    /// Segments are looked up as they are reached: to begin costs no more in a long range than in a short one.
    ///
    /// # Errors
    /// As [`either_way`](Self::either_way).
    pub(crate) fn in_range(
        reading: RunReading,
        version: &Arc<Version>,
        begun: &Begun<'_>,
        range: &KeyRange,
        tombstones: Option<&Arc<RangeTombstones>>,
    ) -> Result<Self, LevelError> {
        let inputs = Inputs::OfRun {
            version: Arc::clone(version),
            run: begun.place,
            left: begun.places.clone(),
            range: range.clone(),
            tombstones: tombstones.cloned(),
            parts: VecDeque::new(),
        };
        Self::through(reading, begun.run.tree.clone(), inputs)
    }

    fn through(
        reading: RunReading,
        tree: Option<Arc<RunTree>>,
        inputs: Inputs,
    ) -> Result<Self, LevelError> {
        let mut source = Self {
            reading,
            tree,
            path: Path::default(),
            upcoming: Upcoming::Unknown,
            inputs,
            cursor: None,
            resolved: None,
            shadowed: BTreeMap::new(),
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
        self.resolved = match cursor.entry().pointer() {
            Some((at, _)) => {
                let what = "a pointer leads to a place where the region has nothing";
                let unknown = || cursor.name().corrupt(0, what);
                Some(version.resolve(at).ok_or_else(unknown)?)
            }
            None => None,
        };
        Ok(())
    }

    /// Opens inputs until one has an entry.
    fn open_next(&mut self) -> Result<(), LevelError> {
        loop {
            if let Some(InputCursor::Tree(cursor)) = self.cursor.take() {
                self.path = cursor.into_path();
            }
            let (input, opened) = match std::mem::replace(&mut self.upcoming, Upcoming::Unknown) {
                Upcoming::Unknown => match self.inputs.next::<DOWN>() {
                    Some(input) => (input, None),
                    None => break,
                },
                Upcoming::Nothing => break,
                Upcoming::Input(input, opened) => (input, opened),
            };
            let cursor = self.open(&input, opened)?;
            let has_entry = cursor.key().is_some();
            self.cursor = Some(cursor);
            if has_entry {
                break;
            }
        }
        Ok(())
    }

    /// Begins to read the next input: the present one's last leaves are on their way. Its reader has to be in memory.
    #[cold]
    fn look_ahead(&mut self) {
        let Some(input) = self.inputs.next::<DOWN>() else {
            self.upcoming = Upcoming::Nothing;
            return;
        };
        let reader = input.entry.stored.pinned_reader();
        let alone = reader.filter(|_| input.entry.segment.form == Form::SelfContained);
        let opened = alone.map(|reader| {
            let (reader, stored) = (Arc::clone(reader), &input.entry.stored);
            Opened::begin(reader, stored, &input.range, self.reading.ahead)
        });
        self.upcoming = Upcoming::Input(input, opened);
    }

    fn open(
        &mut self,
        input: &Input,
        opened: Option<Opened>,
    ) -> Result<InputCursor<DOWN>, LevelError> {
        let RunReading {
            region,
            ahead,
            cache,
            reach,
            ..
        } = &self.reading;
        let (cache, reach) = (cache.clone(), *reach);
        if input.entry.segment.form == Form::Leaves {
            if reach == Reach::Memory {
                return Err(LevelError::NotInMemory);
            }
            let tree = self.tree.as_deref();
            let home = leaf_home(&input.entry, tree, *region, Arc::clone(&input.entry.stored))?;
            let segments = self
                .tree
                .clone()
                .ok_or_else(|| home.name.corrupt(0, NO_TREE))?;
            let path = std::mem::take(&mut self.path);
            let way = Way { segments, path };
            let cursor = TreeCursor::either_way(way, home, cache, &input.range, *ahead)?;
            return Ok(InputCursor::Tree(cursor));
        }
        let opened = match (opened, &cache) {
            (Some(opened), _) => opened,
            (None, Some(cache)) => {
                let reader = reader(&input.entry, *region, cache, Fetch::within(reach))?;
                Opened::of(reader.into_owned())
            }
            (None, None) => Opened::of(passing_reader(&input.entry, *region)?),
        };
        let stored = Arc::clone(&input.entry.stored);
        let source = Reached { stored, reach };
        let cursor = LevelCursor::opened(opened, source, cache, &input.range, *ahead)?;
        Ok(InputCursor::Alone(cursor))
    }
}

impl<const DOWN: bool> Source for RunSource<DOWN> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.cursor.as_ref().and_then(Source::key)
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        let cursor = self.cursor.as_ref();
        let entry = cursor.expect("the source is not at its end").entry();
        match self.resolved {
            Some(at) => entry.moved_to(at),
            None => entry,
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        if let Some(cursor) = &mut self.cursor {
            cursor.advance()?;
            if cursor.key().is_none() {
                self.open_next()?;
            } else if cursor.is_ending() && matches!(self.upcoming, Upcoming::Unknown) {
                self.look_ahead();
            }
            self.resolve()?;
        }
        Ok(())
    }

    #[inline]
    fn advance_shadowed(&mut self) -> Result<(), LevelError> {
        if self.reading.counts
            && let Some(key) = self.key()
            && let Some((at, value_len)) = self.entry().pointer()
        {
            let bytes = key.len() as u64 + u64::from(value_len);
            *self.shadowed.entry(at.segment()).or_default() += bytes;
        }
        self.advance()
    }

    fn take_shadowed(&mut self, count: &mut dyn FnMut(SegmentNumber, u64)) {
        for (number, bytes) in std::mem::take(&mut self.shadowed) {
            count(number, bytes);
        }
    }
}
