//! Where a walk through leaves stands: what cursors over self-contained segments and over trees share.
//!
//! A walk goes up, from the lowest key of its range, or down, from the highest. Which way is part of its
//! type, so that no step has to ask. Inside a leaf it goes from slot to slot, up to the last that
//! belongs to the range; which leaf is next is known to the cursor.

use argosy_base::KeyRange;

use super::leaf::{KeyBuffer, Leaf};
use super::record::Record;
use crate::names::Entry;

/// The parameter of walks from the highest key down. Those without go up.
pub(crate) const DOWN: bool = true;

/// A pair of a leaf, or the end of the walk.
pub(crate) struct Stand<const DOWN: bool> {
    /// Where the range ends, on this way: up, the key behind the last that belongs; down, the lowest.
    far: Option<Vec<u8>>,
    /// The leaf that the walk is in, while it is not at its end.
    leaf: Option<Leaf>,
    /// The present pair of that leaf, and the last on this way that belongs.
    slot: usize,
    last: usize,
    record: Record,
    key: KeyBuffer,
}

impl<const DOWN: bool> Stand<DOWN> {
    /// The end of a walk through `range`.
    pub(crate) fn new(range: &KeyRange) -> Self {
        let far = if DOWN {
            Some(range.from.clone())
        } else {
            range.to.clone()
        };
        Self {
            far,
            leaf: None,
            slot: 0,
            last: 0,
            record: Record::default(),
            key: KeyBuffer::default(),
        }
    }

    /// The bound of `range` at which a walk through it begins.
    pub(crate) fn near(range: &KeyRange) -> Option<&[u8]> {
        if DOWN {
            range.to.as_deref()
        } else {
            Some(&range.from)
        }
    }

    /// The first pair of `leaf` on this way from `bound` on: up, the lowest that is not below it;
    /// down, the highest that is. Without a bound, the first of all.
    pub(crate) fn first_of(leaf: &Leaf, bound: Option<&[u8]>) -> Option<usize> {
        let Some(bound) = bound else {
            return Some(Self::edge(leaf.count()));
        };
        let above = leaf.search(bound).unwrap_or_else(|above| above);
        if DOWN {
            above.checked_sub(1)
        } else {
            (above < leaf.count()).then_some(above)
        }
    }

    /// The first of `count` on this way.
    pub(crate) const fn edge(count: usize) -> usize {
        if DOWN { count - 1 } else { 0 }
    }

    /// The one of `count` behind `at` on this way.
    pub(crate) fn next(at: usize, count: usize) -> Option<usize> {
        if DOWN {
            at.checked_sub(1)
        } else {
            Some(at + 1).filter(|next| *next < count)
        }
    }

    /// Whether everything on the other side of `key` is outside of the range: up, the keys from
    /// `key` on; down, those below it.
    pub(crate) fn ends_at(&self, key: &[u8]) -> bool {
        self.far
            .as_deref()
            .is_some_and(|far| if DOWN { key <= far } else { key >= far })
    }

    /// Stands at pair `slot` of `leaf`, or at the end where that is outside of the range.
    pub(crate) fn enter(&mut self, leaf: Leaf, slot: usize) {
        let place = |key: &[u8]| leaf.search(key).unwrap_or_else(|above| above);
        let inside;
        (inside, self.last) = if DOWN {
            let lowest = match &self.far {
                Some(from) if leaf.compare(0, from).is_lt() => place(from),
                _ => 0,
            };
            (slot >= lowest, lowest)
        } else {
            let end = match &self.far {
                Some(to) if leaf.compare(leaf.count() - 1, to).is_ge() => place(to),
                _ => leaf.count(),
            };
            (slot < end, end.saturating_sub(1))
        };
        self.slot = slot;
        self.leaf = inside.then_some(leaf);
        if let Some(leaf) = &self.leaf {
            self.record = leaf.record(slot);
            self.key.enter(leaf, slot, &self.record);
        }
    }

    /// Stands at the end.
    pub(crate) fn end(&mut self) {
        self.leaf = None;
    }

    /// Goes on to the next pair of the leaf. `false`: that was the last, or the walk is at its end.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        if self.slot != self.last
            && let Some(leaf) = &self.leaf
        {
            self.slot = if DOWN { self.slot - 1 } else { self.slot + 1 };
            self.record = leaf.record(self.slot);
            self.key.step(leaf, self.slot, &self.record);
            return true;
        }
        false
    }

    /// Stands at the end, and returns the leaf in which it stood, unless the range ends in that.
    pub(crate) fn leave(&mut self) -> Option<Leaf> {
        let leaf = self.leaf.take()?;
        let ends = if DOWN {
            self.ends_at(&leaf.first_key())
        } else {
            self.last + 1 < leaf.count()
        };
        (!ends).then_some(leaf)
    }

    /// The present key, or `None` at the end.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.leaf.is_some().then(|| self.key.get())
    }

    /// What the present key is bound to.
    #[inline]
    pub(crate) fn entry(&self) -> Entry<'_> {
        let leaf = self.leaf.as_ref().expect("the cursor is not at its end");
        self.record.entry(leaf.records())
    }

    /// The present slot.
    pub(crate) const fn slot(&self) -> usize {
        self.slot
    }
}
