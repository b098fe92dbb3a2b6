//! Merging sorted sources into one: every key once, bound to what its newest source says.
//!
//! The sources stand in a list, sorted by the key that each is at, among equal keys the newest
//! first. All of them go through their keys upwards, or all downwards. The head of the list is the
//! merge's present pair. A step moves the head's source on and puts it back where it belongs, comparing
//! from the front: sources are few, one of them is mostly far longer than the others, and then one
//! comparison is all a step costs. The first bytes of each key stand in the list, as a number, so that
//! most comparisons touch nothing else. Nothing is allocated.
//!
//! A source that has ended leaves the list. Sources at the same key as the head are moved on
//! together with it, so what they say is never seen; a comparison that finds two neighbours equal
//! is remembered, so that this costs nothing where there are none.

use std::cmp::Ordering;

use argosy_base::SegmentNumber;
use argosy_base::range::wide_head;

use crate::names::{Entry, LevelError};

/// Pairs in strictly ascending key order: a memtable, a run of a level, or a merge of several. Or all
/// in strictly descending order, where that is said.
pub(crate) trait Source {
    /// The key that the source is at, or `None` at its end.
    fn key(&self) -> Option<&[u8]>;

    /// What that key is bound to. A source that is at its end may panic.
    fn entry(&self) -> Entry<'_>;

    /// Goes to the next key. A source that is at its end stays there. After an error the source is
    /// not used any more.
    fn advance(&mut self) -> Result<(), LevelError>;

    /// Goes to the next key, like [`advance`](Self::advance), where a newer source has the present one: its
    /// entry here is shadowed.
    fn advance_shadowed(&mut self) -> Result<(), LevelError> {
        self.advance()
    }

    /// Tells `count` the high bits of each pointer that was shadowed since this was asked last, and the
    /// bytes of its key and value. For sources that count.
    fn take_shadowed(&mut self, count: &mut dyn FnMut(SegmentNumber, u64)) {
        let _ = count;
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        (**self).key()
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        (**self).entry()
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        (**self).advance()
    }

    #[inline]
    fn advance_shadowed(&mut self) -> Result<(), LevelError> {
        (**self).advance_shadowed()
    }

    fn take_shadowed(&mut self, count: &mut dyn FnMut(SegmentNumber, u64)) {
        (**self).take_shadowed(count);
    }
}

/// Several sources as one: ascending ones, or with the parameter [`DOWN`](crate::level::stand::DOWN)
/// descending ones.
#[derive(Debug)]
pub(crate) struct Merge<S, const DOWN: bool = false> {
    /// Newest first.
    sources: Vec<S>,
    /// The sources that have not ended, by (key, age).
    order: Vec<Place>,
}

/// A source's place in the order.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Of the key that the source is at.
    head: u128,
    source: usize,
    /// Whether the next source in the order is at the same key.
    same_as_next: bool,
}

impl<S: Source> Merge<S> {
    /// Merges ascending `sources`, newest first: where several have a key, the first of them is
    /// believed. Each stands where the merge is to begin.
    #[must_use]
    pub(crate) fn new(sources: Vec<S>) -> Self {
        Self::either_way(sources)
    }
}

impl<S: Source, const DOWN: bool> Merge<S, DOWN> {
    /// As [`new`](Merge::new), of sources that all go this merge's way.
    #[must_use]
    pub(crate) fn either_way(sources: Vec<S>) -> Self {
        let mut merge = Self {
            order: Vec::with_capacity(sources.len()),
            sources,
        };
        for source in (0..merge.sources.len()).rev() {
            let place = Place {
                head: 0,
                source,
                same_as_next: false,
            };
            merge.order.insert(0, place);
            merge.settle(0);
        }
        merge
    }

    /// Puts the source at `position` of the order where its key belongs, at `position` or behind;
    /// the sources behind `position` are in order.
    #[inline]
    fn settle(&mut self, position: usize) {
        let Self { sources, order } = self;
        let source = order[position].source;
        let Some(key) = sources[source].key() else {
            order.remove(position);
            return;
        };
        let own = wide_head(key);
        let mut at = position;
        let mut same_as_before = false;
        let mut same_as_next = false;
        while let Some(next) = order.get(at + 1).copied() {
            let compared = own.cmp(&next.head).then_with(|| {
                let other = sources[next.source].key();
                key.cmp(other.expect("a source in the order has not ended"))
            });
            match if DOWN { compared.reverse() } else { compared } {
                Ordering::Less => break,
                Ordering::Equal if source < next.source => {
                    same_as_next = true;
                    break;
                }
                ordering => same_as_before = ordering == Ordering::Equal,
            }
            order[at] = next;
            at += 1;
        }
        if at > position {
            order[at - 1].same_as_next = same_as_before;
        }
        order[at] = Place {
            head: own,
            source,
            same_as_next,
        };
    }

    /// Moves the source at `position` of the order on by one pair, which is shadowed by the head's unless
    /// it is that.
    #[inline]
    fn advance_at(&mut self, position: usize) -> Result<(), LevelError> {
        let source = self.order[position].source;
        match position {
            0 => self.sources[source].advance()?,
            _ => self.sources[source].advance_shadowed()?,
        }
        self.settle(position);
        Ok(())
    }
}

impl<S: Source, const DOWN: bool> Source for Merge<S, DOWN> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.order
            .first()
            .and_then(|place| self.sources[place.source].key())
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.sources[self.order[0].source].entry()
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        let Some(head) = self.order.first().copied() else {
            return Ok(());
        };
        let mut more = head.same_as_next;
        while more {
            more = self.order[1].same_as_next;
            self.advance_at(1)?;
        }
        self.advance_at(0)
    }

    fn take_shadowed(&mut self, count: &mut dyn FnMut(SegmentNumber, u64)) {
        for source in &mut self.sources {
            source.take_shadowed(count);
        }
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
