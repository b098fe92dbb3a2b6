//! Sorted lists and maps of which old and new states share what they have in common.
//!
//! A [`List`] is a tree, all leaves at one depth: of up to `LEAF_MAX` entries each. An upper node has up to
//! `UPPER_MAX` slots, of which each has the first key and the number of entries of what is below it. So an entry
//! is found by its place and by its key.
//!
//! 1. A clone is one reference to the root.
//! 2. Who changes a list copies the nodes on the way to the place, as far as others hold them, and changes the copies.
//!    So a change copies a leaf and a few narrow nodes, however long the list is: 2,000 entries have 3 levels, 60,000
//!    have 4, and a million has 5.
//! 3. A node that grows over its limit is split; one that falls below a quarter of it is joined with its neighbour.
//!    A list to whose end entries are added has full nodes.
//!
//! Invariants: no node is empty; every node but the root and those at the right edge is full to a quarter at least; a
//! slot tells the first key and the number of entries below it. The order of the entries is that of their owner, who
//! says where an entry is put.
//!
//! Bytes: an entry of 16 bytes takes 23 in full leaves and up to 40 in leaves that were split last (a slot of 32
//! bytes and 80 of the node for every 16 or 8 entries): 100 GB in 50,000 segments have a [`Map`] of 1.2 to 2 MB,
//! 1 TB has one of 12 to 20 MB. Leaves of which much was removed take more, at most twice as much.

mod map;
mod node;
pub(crate) mod work;

use std::fmt;
use std::ops::{Index, Range};

pub(crate) use map::Map;
pub(crate) use node::NodeKeys;
use node::{Child, Node, Of, Slots, child_of};

/// Most entries of a leaf. Few: an edit that touches entries all over a list copies a leaf for each of them.
const LEAF_MAX: usize = 16;

/// Most slots of an upper node. Narrow: each of them is copied for a change below it.
const UPPER_MAX: usize = 16;

/// Room that a copied node has for more slots, and how much it grows by.
const SPARE: usize = 4;

/// Bytes that an entry of type `T` takes in a list whose leaves are three quarters full, as they are on average
/// where entries come and go: 8 of them for the node and what is above it.
pub(crate) const fn slot_bytes<T>() -> usize {
    (size_of::<T>() + 8) * 4 / 3
}

/// What a list consists of.
pub trait Entry: Clone {
    /// What stands for an entry in upper nodes. Cheap to clone.
    type Key: Clone;
    /// What makes a search in a node faster, made when it is wanted first.
    type Aid: Clone;

    /// The key. Those of a list rise.
    fn key(&self) -> &Self::Key;

    /// Of the keys of a node.
    fn aid<'k>(keys: impl Iterator<Item = &'k Self::Key> + Clone) -> Self::Aid
    where
        Self::Key: 'k;
}

/// See the module documentation.
pub struct List<T: Entry> {
    root: Option<Node<T>>,
    len: usize,
}

impl<T: Entry> List<T> {
    /// One without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: None, len: 0 }
    }

    /// How many entries it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The leaf that has entry `at`, which there is, and the place in it.
    fn leaf(&self, mut at: usize) -> (&[T], usize) {
        let mut node = self.root.as_ref().expect("there is such an entry");
        loop {
            work::add(1);
            match node {
                Node::Leaf(leaf) => return (&leaf.slots, at),
                Node::Upper(upper) => {
                    let (index, below) = child_of(&upper.slots, at, false);
                    (node, at) = (&upper.slots[index].node, below);
                }
            }
        }
    }

    /// Entry `at`.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&T> {
        if at >= self.len {
            return None;
        }
        let (leaf, at) = self.leaf(at);
        Some(&leaf[at])
    }

    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.get(self.len.wrapping_sub(1))
    }

    /// How many entries at the front have keys for which `holds` is true: it is for none behind the first for
    /// which it is not.
    #[must_use]
    pub fn partition_point(&self, holds: impl Fn(&T::Key) -> bool) -> usize {
        self.locate(holds).0
    }

    /// What [`partition_point`](Self::partition_point) and [`last_of`](Self::last_of) find.
    #[inline]
    #[must_use]
    pub(super) fn locate(&self, holds: impl Fn(&T::Key) -> bool) -> (usize, Option<&T>) {
        let Some(mut node) = self.root.as_ref() else {
            return (0, None);
        };
        let mut before = 0;
        loop {
            work::add(1);
            match node {
                Node::Leaf(leaf) => {
                    let place = leaf.slots.partition_point(|entry| holds(entry.key()));
                    let last = place.checked_sub(1).map(|last| &leaf.slots[last]);
                    return (before + place, last);
                }
                Node::Upper(upper) => {
                    let index = upper.slots.partition_point(|child| holds(&child.first));
                    let Some(index) = index.checked_sub(1) else {
                        return (before, None);
                    };
                    let passed = upper.slots[..index].iter();
                    before += passed.map(|child| child.len).sum::<usize>();
                    node = &upper.slots[index].node;
                }
            }
        }
    }

    /// The last entry of those at the front for whose keys `holds` is true, as
    /// [`partition_point`](Self::partition_point) finds them.
    #[inline]
    #[must_use]
    pub(crate) fn last_of(&self, holds: impl Fn(&T::Key) -> bool) -> Option<&T> {
        let mut node = self.root.as_ref()?;
        loop {
            work::add(1);
            match node {
                Node::Leaf(leaf) => {
                    let place = leaf.slots.partition_point(|entry| holds(entry.key()));
                    return leaf.slots.get(place.checked_sub(1)?);
                }
                Node::Upper(upper) => {
                    let index = upper.slots.partition_point(|child| holds(&child.first));
                    node = &upper.slots[index.checked_sub(1)?].node;
                }
            }
        }
    }

    /// The entry to which `choose` leads: of each node on the way the slot that it chooses, which there is.
    #[inline]
    #[must_use]
    pub fn find<'l>(
        &'l self,
        choose: impl Fn(&T::Aid, &NodeKeys<'l, T>) -> usize,
    ) -> Option<&'l T> {
        let mut node = self.root.as_ref()?;
        loop {
            work::add(1);
            match node {
                Node::Leaf(leaf) => {
                    let keys = || leaf.slots.iter().map(T::key);
                    let aid = leaf.aid.get_or_init(|| T::aid(keys()));
                    return leaf
                        .slots
                        .get(choose(aid, &NodeKeys(Of::Leaf(&leaf.slots))));
                }
                Node::Upper(upper) => {
                    let keys = || upper.slots.iter().map(|child| &child.first);
                    let aid = upper.aid.get_or_init(|| T::aid(keys()));
                    let index = choose(aid, &NodeKeys(Of::Upper(&upper.slots)));
                    node = &upper.slots.get(index)?.node;
                }
            }
        }
    }

    /// The entries, in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        self.range(0..self.len)
    }

    /// The entries at `places`, as far as there are such.
    #[must_use]
    pub fn range(&self, places: Range<usize>) -> Iter<'_, T> {
        let end = places.end.min(self.len);
        Iter {
            list: self,
            left: places.start.min(end)..end,
            front: Near {
                begin: 0,
                entries: &[],
            },
            back: Near {
                begin: 0,
                entries: &[],
            },
        }
    }

    /// Puts `entry` at place `at`, before the one that is there; at most behind the last one.
    pub fn insert(&mut self, at: usize, entry: T) {
        assert!(at <= self.len, "there is no gap in a list");
        let grows = at == self.len;
        self.len += 1;
        let Some(root) = &mut self.root else {
            self.root = Some(Node::Leaf(Slots::of(vec![entry])));
            return;
        };
        if let Some(more) = root.insert(at, entry, grows) {
            let first = Child::of(root.clone());
            *root = Node::Upper(Slots::of(vec![first, Child::of(more)]));
        }
    }

    /// Puts `entry` behind the last one.
    pub fn push(&mut self, entry: T) {
        self.insert(self.len, entry);
    }

    /// Takes entry `at` out, which there is.
    pub fn remove(&mut self, at: usize) -> T {
        assert!(at < self.len, "there is such an entry");
        let root = self.root.as_mut().expect("it has entries");
        let removed = root.remove(at);
        self.len -= 1;
        while let Some(Node::Upper(upper)) = &self.root
            && let [only] = upper.slots.as_slice()
        {
            self.root = Some(only.node.clone());
        }
        if self.len == 0 {
            self.root = None;
        }
        removed
    }

    /// Puts `entry` in the place of entry `at`, which there is.
    pub fn replace(&mut self, at: usize, entry: T) -> T {
        assert!(at < self.len, "there is such an entry");
        let root = self.root.as_mut().expect("it has entries");
        root.replace(at, entry)
    }
}

impl<T: Entry> Clone for List<T> {
    fn clone(&self) -> Self {
        Self {
            root: self.root.clone(),
            len: self.len,
        }
    }
}

impl<T: Entry> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Entry + fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<T: Entry> Index<usize> for List<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        self.get(at).expect("there is such an entry")
    }
}

impl<T: Entry> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut list = Self::new();
        entries.into_iter().for_each(|entry| list.push(entry));
        list
    }
}

impl<'l, T: Entry> IntoIterator for &'l List<T> {
    type Item = &'l T;
    type IntoIter = Iter<'l, T>;

    fn into_iter(self) -> Iter<'l, T> {
        self.iter()
    }
}

/// Entries of a list, in order.
pub struct Iter<'l, T: Entry> {
    list: &'l List<T>,
    /// The places of those to come.
    left: Range<usize>,
    /// The leaf in which the first of them was looked for last, and the place of its first entry.
    front: Near<'l, T>,
    /// The same of the last of them.
    back: Near<'l, T>,
}

/// A leaf, and the place of its first entry.
struct Near<'l, T> {
    begin: usize,
    entries: &'l [T],
}

impl<T> Copy for Near<'_, T> {}

impl<T> Clone for Near<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Entry> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self {
            left: self.left.clone(),
            ..*self
        }
    }
}

impl<'l, T: Entry> Iter<'l, T> {
    /// The entry at `at`, which is in `leaf`, or else in another one, which takes its place.
    fn look(list: &'l List<T>, leaf: &mut Near<'l, T>, at: usize) -> &'l T {
        work::add(1);
        let Near { begin, entries } = *leaf;
        let inside = at.checked_sub(begin).and_then(|inside| entries.get(inside));
        inside.unwrap_or_else(|| {
            let (entries, inside) = list.leaf(at);
            let begin = at - inside;
            *leaf = Near { begin, entries };
            &entries[inside]
        })
    }
}

impl<'l, T: Entry> Iterator for Iter<'l, T> {
    type Item = &'l T;

    fn next(&mut self) -> Option<&'l T> {
        let at = self.left.next()?;
        Some(Self::look(self.list, &mut self.front, at))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<&'l T> {
        let at = self.left.nth(n)?;
        Some(Self::look(self.list, &mut self.front, at))
    }

    fn count(self) -> usize {
        self.left.len()
    }
}

impl<T: Entry> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let at = self.left.next_back()?;
        Some(Self::look(self.list, &mut self.back, at))
    }
}

impl<T: Entry> ExactSizeIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests;
