//! What a build does with medium values: the turn that its entries take, and the medium segments that a
//! flush makes beside its run, one at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Pointer, SegmentNumber};
use argosy_engine::EngineError;

use super::build::{Target, Tools};
use super::medium::MediumReads;
use crate::level::BuiltSegment;
use crate::level::medium::MediumBuilder;
use crate::names::{Entry, SegmentName};
use crate::segments::StoredSegment;
use crate::storage::Storage;

/// What a build does with medium values.
pub(crate) enum Values {
    /// They stay where they are.
    Stay,
    /// Those in the source go to the medium log.
    Apart(Apart),
    /// Those in the medium log are put in place.
    InPlace(MediumReads),
}

/// What became of an entry.
pub(super) enum Turned<'a> {
    /// This one is written.
    Entry(Entry<'a>),
    /// The value did not fit: this medium segment is finished, and the next one takes it.
    Full(Box<Finished>),
    /// A segment number is waited for.
    Waits,
    /// There is no room on the device.
    NoRoom,
}

impl Values {
    /// What is written for the present pair of the source, which binds `key` to `entry`.
    #[inline]
    pub(super) fn turn<'a>(
        &'a mut self,
        key: &[u8],
        entry: Entry<'a>,
        target: Target,
        tools: &mut Tools<'_>,
    ) -> Result<Turned<'a>, EngineError> {
        match (self, entry) {
            (Self::InPlace(reads), Entry::Pointer { at, value_len }) => {
                let value = reads.read(at, value_len, key)?;
                Ok(Turned::Entry(value.map_or(entry, Entry::Inline)))
            }
            (Self::Apart(apart), Entry::Inline(value)) if apart.takes(key, value) => {
                apart.put(key, value, target, tools)
            }
            (_, entry) => Ok(Turned::Entry(entry)),
        }
    }

    /// The source has gone on to the next pair.
    #[inline]
    pub(super) const fn advanced(&mut self) {
        if let Self::Apart(apart) = self {
            apart.taken = None;
        }
    }

    /// Finishes the medium segment that is being filled.
    pub(super) fn end(&mut self) -> Option<Finished> {
        match self {
            Self::Apart(apart) => apart.end(),
            _ => None,
        }
    }

    /// Whether a medium segment is being filled.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Apart(apart) if apart.open.is_some())
    }

    /// The number of the medium segment that was begun here and to which pointers have these high bits.
    pub(super) fn number_of(&self, high: SegmentNumber) -> Option<SegmentNumber> {
        match self {
            Self::Apart(apart) => apart.numbers.get(&high).copied(),
            _ => None,
        }
    }

    /// Gives up the segment that is being filled.
    pub(super) fn abandon(&mut self, storage: &mut Storage) {
        if let Self::Apart(apart) = self
            && let Some(open) = apart.open.take()
        {
            storage.abandon(open.stored.number());
        }
    }

    /// Values that went to the medium log, or came from there; and bytes of it that were read.
    pub(super) fn totals(&self) -> (u64, u64) {
        match self {
            Self::Stay => (0, 0),
            Self::Apart(apart) => (apart.values, 0),
            Self::InPlace(reads) => reads.totals(),
        }
    }
}

/// The medium segments of a flush.
pub(crate) struct Apart {
    /// Pairs of fewer bytes stay in the leaves.
    small_bytes: usize,
    open: Option<Open>,
    /// The numbers of all segments that were begun, by the high bits of pointers to them.
    numbers: BTreeMap<SegmentNumber, SegmentNumber>,
    /// Where the present pair's value is, if it was taken.
    taken: Option<Pointer>,
    values: u64,
}

/// The segment that is being filled. It has its place: pointers to it may hold that.
struct Open {
    builder: MediumBuilder,
    stored: Arc<StoredSegment>,
    high: SegmentNumber,
}

/// A segment that is full.
pub(super) type Finished = (BuiltSegment, Arc<StoredSegment>);

impl Apart {
    /// Takes values of pairs of at least `small_bytes`.
    #[must_use]
    pub(crate) const fn new(small_bytes: usize) -> Self {
        Self {
            small_bytes,
            open: None,
            numbers: BTreeMap::new(),
            taken: None,
            values: 0,
        }
    }

    /// Whether the pair is medium; what is large is not in a memtable.
    #[inline]
    const fn takes(&self, key: &[u8], value: &[u8]) -> bool {
        key.len() + value.len() >= self.small_bytes
    }

    /// Puts the present pair's value where it belongs, if it is not there already.
    fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        target: Target,
        tools: &mut Tools<'_>,
    ) -> Result<Turned<'static>, EngineError> {
        let value_len = u32::try_from(value.len()).expect("a medium value is shorter than a node");
        if let Some(at) = self.taken {
            return Ok(Turned::Entry(Entry::Pointer { at, value_len }));
        }
        let open = match &mut self.open {
            Some(open) => open,
            empty => {
                let Some(number) = tools.storage.allocate_number() else {
                    return Ok(Turned::Waits);
                };
                let stored = match tools.storage.allocate(number, tools.purpose) {
                    Ok(stored) => stored,
                    Err(error) if error.is_full() => return Ok(Turned::NoRoom),
                    Err(error) => return Err(error.into()),
                };
                let high = target.pointers.high_bits(&stored);
                self.numbers.insert(high, number);
                let name = SegmentName {
                    region: target.region,
                    number,
                    epoch: target.epoch,
                };
                empty.insert(Open {
                    builder: MediumBuilder::new(name, target.geometry.segment_bytes),
                    stored,
                    high,
                })
            }
        };
        let Some(offset) = open.builder.add(key, value) else {
            let finished = self.end().expect("it is open");
            return Ok(Turned::Full(Box::new(finished)));
        };
        let at = Pointer::new(open.high, offset);
        self.taken = Some(at);
        self.values += 1;
        Ok(Turned::Entry(Entry::Pointer { at, value_len }))
    }

    /// Finishes the segment that is being filled.
    fn end(&mut self) -> Option<Finished> {
        let open = self.open.take()?;
        Some((open.builder.finish(), open.stored))
    }
}
