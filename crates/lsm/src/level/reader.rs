//! Finds keys in a finished level segment.
//!
//! A reader keeps the segment's index, filter and footer in memory, all checked when it is opened. A
//! lookup asks the filter, then the index, and needs one leaf.
//! Where the index cannot tell between neighbours (keys that share their first 64 bytes and more), it
//! compares with the first keys of a few leaves.
//!
//! Of a leaf segment of a tree a reader keeps filter and footer. There is no index in it: its leaves are
//! found through the [`tree`](super::tree).

use std::ops::Range;

use argosy_base::range::is_below;
use argosy_base::{BLOCK_SIZE, KeyRange, Kind, SEGMENT_SIZE, SegmentNumber};
use argosy_device::{BegunRead, Buffer};

use super::format::{BLOCK, FOOTER_BYTES, Footer, Table};
use super::index::Index;
use super::{Leaf, ReadAt};
use crate::filter::{Filter, KeyHash};
use crate::names::{Form, LevelError, SegmentName};

/// A level segment, open for reading. Never changes.
#[derive(Debug)]
pub struct SegmentReader {
    name: SegmentName,
    footer: Footer,
    table: Table,
    index: Index,
    filter: Filter,
}

impl SegmentReader {
    /// Opens segment `name` of `len` bytes: reads and checks what follows its leaves, in one or two
    /// reads.
    ///
    /// # Errors
    /// [`LevelError::Corrupt`] where the bytes are not that segment's, or `len` is not its length;
    /// [`LevelError::UnknownVersion`] where another version of Argosy wrote it.
    pub fn open(
        name: SegmentName,
        len: u32,
        source: &(impl ReadAt + ?Sized),
    ) -> Result<Self, LevelError> {
        let bytes = len as usize;
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_SIZE) || bytes > SEGMENT_SIZE {
            return Err(name.corrupt(0, "the segment has an impossible length"));
        }
        let mut last = Buffer::for_reading(BLOCK_SIZE);
        source.read_at(len - BLOCK, &mut last)?;
        let (front, footer) = last
            .split_last_chunk::<FOOTER_BYTES>()
            .expect("a block is longer than a footer");
        let at = len - BLOCK + offset(front.len() as u64);
        let footer = Footer::parse(footer, name, at)?;
        let from = footer.leaves_len - footer.leaves_len % BLOCK;
        if from >= len - BLOCK {
            return Self::parse(name, footer, from, &last);
        }
        let mut tail = Buffer::for_reading((len - from) as usize);
        let (front, back) = tail.split_at_mut((len - from - BLOCK) as usize);
        source.read_at(from, front)?;
        back.copy_from_slice(&last);
        Self::parse(name, footer, from, &tail)
    }

    /// Checks `tail`, the segment's bytes from byte `from` on.
    fn parse(
        name: SegmentName,
        footer: Footer,
        from: u32,
        tail: &[u8],
    ) -> Result<Self, LevelError> {
        let [index_at, filter_at, table_at, table_end] = footer.bounds();
        let part = |begin: u64, end: u64| {
            let range = (offset(begin) - from) as usize..(offset(end) - from) as usize;
            &tail[range]
        };
        let identity = |kind, at| name.identity(kind, offset(at));
        let node_bytes = footer.node_bytes as usize;
        let index = match footer.form {
            Form::SelfContained => Index::parse(
                part(index_at, filter_at),
                identity(Kind::Index, index_at),
                node_bytes,
            )
            .map_err(|what| name.corrupt(offset(index_at), what))?,
            Form::Leaves => Index::default(),
            Form::Index(_) | Form::Medium => {
                return Err(name.corrupt(0, "a segment without pairs where leaves should be"));
            }
        };
        let filter = Filter::parse(part(filter_at, table_at), identity(Kind::Filter, filter_at))
            .map_err(|what| name.corrupt(offset(filter_at), what))?;
        let table = Table::parse(part(table_at, table_end), name, offset(table_at))?;
        let footer_at = u64::from(from) + (tail.len() - FOOTER_BYTES) as u64;
        let padding = part(table_end, footer_at);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(name.corrupt(offset(table_end), "a segment's padding is not zero"));
        }
        let indexed =
            || index.count() == footer.leaves as usize && index.leaves_end() == footer.leaves_len;
        let agree =
            (footer.form == Form::Leaves || indexed()) && filter.is_of(footer.entries as usize);
        if !agree {
            return Err(name.corrupt(offset(index_at), "the footer contradicts the index"));
        }
        Ok(Self {
            name,
            footer,
            table,
            index,
            filter,
        })
    }

    /// Which segment this is.
    #[must_use]
    pub const fn name(&self) -> SegmentName {
        self.name
    }

    /// How many pairs and tombstones it holds.
    #[must_use]
    pub const fn entries(&self) -> u32 {
        self.footer.entries
    }

    /// How many of these are tombstones.
    #[must_use]
    pub const fn tombstones(&self) -> u32 {
        self.footer.tombstones
    }

    /// The lowest key.
    #[must_use]
    pub fn first_key(&self) -> &[u8] {
        &self.table.first_key
    }

    /// The highest key.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.table.last_key
    }

    /// The log segments that it points into, where its footer lists them (where pointers hold places), in ascending
    /// order, each with the bytes of the keys and values whose pointers lead there.
    #[must_use]
    pub fn log_refs(&self) -> &[(SegmentNumber, u64)] {
        &self.table.log_refs
    }

    /// Whether it is self-contained or the leaf segment of a tree.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.footer.form
    }

    /// How many leaves its index leads to: at least one, but none in a segment of a tree.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.index.count()
    }

    /// Leaves that the footer counts.
    pub(super) const fn leaves_counted(&self) -> u32 {
        self.footer.leaves
    }

    /// Bytes of a node.
    pub(super) const fn node_bytes(&self) -> u32 {
        self.footer.node_bytes
    }

    /// Whether `key` is among those from its first to its last.
    #[inline]
    #[must_use]
    pub(crate) fn spans(&self, key: &[u8]) -> bool {
        !is_below(key, self.first_key()) && !is_below(self.last_key(), key)
    }

    /// Refuses a segment of a tree, which has to be read through the tree.
    pub(crate) fn ensure_indexed(&self) -> Result<(), LevelError> {
        match self.footer.form {
            Form::SelfContained => Ok(()),
            _ => Err(self
                .name
                .corrupt(0, "a segment of a tree where one with an index should be")),
        }
    }

    /// Bytes of its leaves, which is about what a compaction of it reads.
    #[must_use]
    pub(crate) const fn leaves_bytes(&self) -> u32 {
        self.footer.leaves_len
    }

    /// Bytes that the reader keeps in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.index.memory_bytes()
            + self.filter.memory_bytes()
            + self.table.first_key.capacity()
            + self.table.last_key.capacity()
            + self.table.log_refs.capacity() * size_of::<(SegmentNumber, u64)>()
    }

    /// How many of these are its filter's.
    #[must_use]
    pub fn filter_bytes(&self) -> usize {
        self.filter.memory_bytes()
    }

    /// Whether the segment may hold the key with this hash. `false` is certain.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        self.filter.may_contain(hash)
    }

    /// The leaf that holds `key` if any does, and its place. If none does, the lowest key above it is
    /// in that leaf, or else is the first of the next one.
    pub(crate) fn find_leaf<E>(
        &self,
        key: &[u8],
        mut read: impl FnMut(usize) -> Result<Leaf, E>,
    ) -> Result<(usize, Leaf), E> {
        let (mut low, mut high) = self.index.find(key);
        let mut known = None;
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let leaf = read(middle)?;
            if leaf.compare(0, key).is_le() {
                (low, known) = (middle, Some(leaf));
            } else {
                high = middle - 1;
            }
        }
        let leaf = match known {
            Some(leaf) => leaf,
            None => read(low)?,
        };
        Ok((low, leaf))
    }

    /// The place of the leaf in which a walk begins at `bound`, or at its end where there is none:
    /// upwards, or with the parameter [`DOWN`](super::stand::DOWN) downwards. `None`: in no leaf, or only
    /// leaves can tell.
    pub(crate) fn first_leaf<const DOWN: bool>(&self, bound: Option<&[u8]>) -> Option<usize> {
        if self.footer.form != Form::SelfContained {
            return None;
        }
        match bound.filter(|key| *key <= self.last_key()) {
            Some(key) => {
                let (low, high) = self.index.find(key);
                (low == high).then_some(low)
            }
            None => DOWN.then(|| self.leaves() - 1),
        }
    }

    /// How many of its leaves may have keys of `range`; all where its index is elsewhere.
    pub(crate) fn leaves_in(&self, range: &KeyRange) -> usize {
        self.leaves_of(range).len()
    }

    /// The leaves that may have keys of `range`; all where its index is elsewhere.
    pub(crate) fn leaves_of(&self, range: &KeyRange) -> Range<usize> {
        let place = |key: &[u8]| match key {
            key if key <= self.first_key() => 0,
            key if key > self.last_key() => self.leaves(),
            key => self.index.find(key).0,
        };
        if self.footer.form != Form::SelfContained {
            return 0..self.leaves();
        }
        let first = place(&range.from);
        let behind = range.to.as_deref().map_or(self.leaves(), place);
        first..(behind + 1).min(self.leaves())
    }

    /// Leaf `index`, read from `source` and checked.
    pub(crate) fn read_leaf(
        &self,
        index: usize,
        source: &(impl ReadAt + ?Sized),
    ) -> Result<Leaf, LevelError> {
        self.read_leaves(index..index + 1, source)?
            .leaf(self, index)
    }

    /// Leaf `index`, which `bytes` are, checked.
    pub(crate) fn parse_leaf(&self, index: usize, bytes: &[u8]) -> Result<Leaf, LevelError> {
        let start = self.leaf_start(index);
        let leaf = Leaf::parse(bytes, self.name, start)?;
        let first = index > 0 || leaf.first_key() == self.first_key();
        let last = index + 1 < self.leaves() || leaf.last_key() == self.last_key();
        if first && last && self.index.admits(index, &leaf) {
            Ok(leaf)
        } else {
            let what = "a leaf's keys are not where the index says";
            Err(self.name.corrupt(start, what))
        }
    }

    /// Reads `leaves`, of which there is at least one, in one read.
    pub(crate) fn read_leaves(
        &self,
        leaves: Range<usize>,
        source: &(impl ReadAt + ?Sized),
    ) -> Result<Chunk, LevelError> {
        let Range { start: at, end } = self.blocks_of(&leaves);
        let mut bytes = Buffer::for_reading((end - at) as usize);
        source.read_at(at, &mut bytes)?;
        Ok(Chunk { leaves, at, bytes })
    }

    /// Begins to read `leaves`, of which there is at least one. `None`: there is no memory for that.
    pub(crate) fn begin_leaves(
        &self,
        leaves: Range<usize>,
        source: &(impl ReadAt + ?Sized),
    ) -> Option<ChunkAhead> {
        let Range { start: at, end } = self.blocks_of(&leaves);
        let bytes = Buffer::for_reading_ahead((end - at) as usize)?;
        let reading = source.begin_read(at, bytes);
        Some(ChunkAhead {
            leaves,
            at,
            reading,
        })
    }

    /// The blocks in which `leaves` lie.
    fn blocks_of(&self, leaves: &Range<usize>) -> Range<u32> {
        let end = self.index.span(leaves.end - 1).end;
        self.index.span(leaves.start).start / BLOCK * BLOCK..end.next_multiple_of(BLOCK)
    }

    /// How many leaves, from the first on, may have keys below `to`.
    pub(crate) fn leaves_below(&self, to: Option<&[u8]>) -> usize {
        match to {
            Some(key) if key <= self.first_key() => 0,
            Some(key) if key <= self.last_key() => self.index.find(key).1 + 1,
            _ => self.leaves(),
        }
    }

    /// The leaf behind those from `from` on that `bytes` can hold; at least one leaf is taken.
    pub(crate) fn leaves_within(&self, from: usize, bytes: usize) -> usize {
        let start = self.index.span(from).start as usize;
        let mut to = from + 1;
        while to < self.leaves() && self.index.span(to).end as usize - start <= bytes {
            to += 1;
        }
        to
    }

    /// The lowest of the leaves up to `last` that `bytes` can hold; at least `last` is taken.
    pub(crate) fn leaves_before(&self, last: usize, bytes: usize) -> usize {
        let end = self.index.span(last).end as usize;
        let mut from = last;
        while from > 0 && end - self.index.span(from - 1).start as usize <= bytes {
            from -= 1;
        }
        from
    }

    /// Where leaf `index` begins in the segment.
    pub(crate) fn leaf_start(&self, index: usize) -> u32 {
        self.index.span(index).start
    }

    /// The bytes of leaf `index` in the segment.
    pub(crate) fn leaf_span(&self, index: usize) -> Range<u32> {
        self.index.span(index)
    }

    /// Whether the index cannot tell where the keys of leaf `index` begin.
    pub(crate) fn is_tied(&self, index: usize) -> bool {
        self.index.is_tied(index)
    }
}

/// A place in a segment, which is known to be far smaller than 4 GiB.
fn offset(at: u64) -> u32 {
    u32::try_from(at).expect("places in a segment were checked against its length")
}

/// Leaves that were read together and are not checked yet.
#[derive(Debug)]
pub(crate) struct Chunk {
    leaves: Range<usize>,
    at: u32,
    bytes: Buffer,
}

/// Leaves whose read was begun.
#[derive(Debug)]
pub(crate) struct ChunkAhead {
    leaves: Range<usize>,
    at: u32,
    reading: BegunRead,
}

impl ChunkAhead {
    /// The leaf behind them.
    pub(crate) const fn end(&self) -> usize {
        self.leaves.end
    }

    /// Whether leaf `index` is among them.
    pub(crate) fn holds(&self, index: usize) -> bool {
        self.leaves.contains(&index)
    }

    /// The leaves, once they were read from `source`, where that was begun.
    pub(crate) fn finish(self, source: &(impl ReadAt + ?Sized)) -> Result<Chunk, LevelError> {
        let Self {
            leaves,
            at,
            reading,
        } = self;
        let bytes = reading.finish(|bytes| source.read_at(at, bytes))?;
        Ok(Chunk { leaves, at, bytes })
    }
}

impl Chunk {
    /// The leaf behind them.
    pub(crate) const fn end(&self) -> usize {
        self.leaves.end
    }

    /// Whether leaf `index` was read.
    pub(crate) fn holds(&self, index: usize) -> bool {
        self.leaves.contains(&index)
    }

    /// Leaf `index`, which was read, checked.
    pub(crate) fn leaf(&self, of: &SegmentReader, index: usize) -> Result<Leaf, LevelError> {
        let span = of.index.span(index);
        let bytes = &self.bytes[(span.start - self.at) as usize..(span.end - self.at) as usize];
        of.parse_leaf(index, bytes)
    }
}
