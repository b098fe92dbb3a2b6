//! Sorted lists and maps of which old and new states share what they have in common.
//!
//! A [`List`] is a tree, all leaves at one depth: of up to [`LEAF_MAX`] entries each. An upper node has up to
//! [`UPPER_MAX`] slots, of which each has the first key and the number of entries of what is below it. So an entry
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
//! Bytes: an entry of 16 bytes takes 17 in full leaves and up to 35 in leaves that were split last (a slot of 32
//! bytes and 64 of the node for every 64 or 32 entries): 100 GB in 50,000 segments have a [`Map`] of 0.9 to 1.8 MB,
//! 1 TB has one of 9 to 18 MB. Leaves of which much was removed take more, at most four times as much.

mod map;

use std::fmt;
use std::ops::{Index, Range};
use std::sync::{Arc, OnceLock};

pub use map::Map;

/// Most entries of a leaf: few cache lines to search, and few bytes to copy.
const LEAF_MAX: usize = 64;

/// Most slots of an upper node. Narrow: each of them is copied for a change below it.
const UPPER_MAX: usize = 16;

/// Room that a copied node has for more slots, and how much it grows by.
const SPARE: usize = 4;

/// Bytes that an entry of type `T` takes in a list whose leaves are three quarters full, as they are on average
/// where entries come and go: what is above leaves is a 30th of it.
pub(crate) const fn slot_bytes<T>() -> usize {
    (size_of::<T>() + 2) * 4 / 3
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

/// A node, which others may hold too.
enum Node<T: Entry> {
    Leaf(Arc<Slots<T, T::Aid, LEAF_MAX>>),
    Upper(Arc<Slots<Child<T>, T::Aid, UPPER_MAX>>),
}

/// What a node has: up to `MAX` slots.
struct Slots<S, A, const MAX: usize> {
    slots: Vec<S>,
    aid: OnceLock<A>,
}

/// What an upper node knows of one below it.
struct Child<T: Entry> {
    /// Its first key.
    first: T::Key,
    /// How many entries are below it.
    len: usize,
    node: Node<T>,
}

/// The keys of a node, by slot.
pub struct Keys<'n, T: Entry>(Of<'n, T>);

enum Of<'n, T: Entry> {
    Leaf(&'n [T]),
    Upper(&'n [Child<T>]),
}

impl<'n, T: Entry> Keys<'n, T> {
    /// That of slot `at`.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize) -> &'n T::Key {
        match &self.0 {
            Of::Leaf(entries) => entries[at].key(),
            Of::Upper(children) => &children[at].first,
        }
    }
}

impl<S: Clone, A: Clone, const MAX: usize> Clone for Slots<S, A, MAX> {
    fn clone(&self) -> Self {
        work::add(self.slots.len());
        let mut slots = Vec::with_capacity(MAX.min(self.slots.len() + SPARE));
        slots.extend_from_slice(&self.slots);
        Self {
            slots,
            aid: self.aid.clone(),
        }
    }
}

impl<S: Clone, A: Clone, const MAX: usize> Slots<S, A, MAX> {
    fn of(slots: Vec<S>) -> Arc<Self> {
        Arc::new(Self {
            slots,
            aid: OnceLock::new(),
        })
    }

    /// The slots, to be changed, in a node that nobody else has.
    fn own(this: &mut Arc<Self>) -> &mut Vec<S> {
        let own = Arc::make_mut(this);
        own.aid = OnceLock::new();
        &mut own.slots
    }

    /// Puts a slot at `at`. What is too much goes into another node, which comes behind: as little as possible where
    /// the list grows at its end.
    fn insert(this: &mut Arc<Self>, at: usize, slot: S, grows: bool) -> Option<Arc<Self>> {
        let slots = Self::own(this);
        if slots.len() == slots.capacity() {
            slots.reserve_exact(SPARE);
        }
        slots.insert(at, slot);
        if slots.len() <= MAX {
            return None;
        }
        let keeps = match grows {
            true => MAX,
            false => slots.len() / 2,
        };
        Some(Self::of(slots.split_off(keeps)))
    }

    /// Takes what `next` has, which comes behind; gives back what is too much.
    fn join(this: &mut Arc<Self>, mut next: Arc<Self>) -> Option<Arc<Self>> {
        let slots = Self::own(this);
        slots.append(Self::own(&mut next));
        let keeps = slots.len() / 2;
        (slots.len() > MAX).then(|| Self::of(slots.split_off(keeps)))
    }
}

impl<T: Entry> Clone for Child<T> {
    fn clone(&self) -> Self {
        Self {
            first: self.first.clone(),
            len: self.len,
            node: self.node.clone(),
        }
    }
}

impl<T: Entry> Child<T> {
    fn of(node: Node<T>) -> Self {
        Self {
            first: node.first().clone(),
            len: node.len(),
            node,
        }
    }

    /// After a change of what is below.
    fn refresh(&mut self) {
        self.first = self.node.first().clone();
    }
}

impl<T: Entry> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(leaf) => Self::Leaf(Arc::clone(leaf)),
            Self::Upper(upper) => Self::Upper(Arc::clone(upper)),
        }
    }
}

/// The child below which entry `at` is, and the place of the entry among those below it. An entry that would come
/// between two children is put behind the first one's.
fn child_of<T: Entry>(children: &[Child<T>], mut at: usize, inserts: bool) -> (usize, usize) {
    for (index, child) in children.iter().enumerate() {
        if at < child.len || inserts && at == child.len {
            return (index, at);
        }
        at -= child.len;
    }
    unreachable!("the entry is in the list")
}

impl<T: Entry> Node<T> {
    fn slots(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.slots.len(),
            Self::Upper(upper) => upper.slots.len(),
        }
    }

    /// Whether it has too few slots, if it is neither the root nor at the right edge.
    fn is_small(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.slots.len() < LEAF_MAX / 4,
            Self::Upper(upper) => upper.slots.len() < UPPER_MAX / 4,
        }
    }

    /// Entries below it.
    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.slots.len(),
            Self::Upper(upper) => upper.slots.iter().map(|child| child.len).sum(),
        }
    }

    fn first(&self) -> &T::Key {
        match self {
            Self::Leaf(leaf) => leaf.slots[0].key(),
            Self::Upper(upper) => &upper.slots[0].first,
        }
    }

    /// Puts `entry` at `at`; `grows`: at the end of the list. What is too much is in a node that comes behind.
    fn insert(&mut self, at: usize, entry: T, grows: bool) -> Option<Self> {
        match self {
            Self::Leaf(leaf) => Slots::insert(leaf, at, entry, grows).map(Self::Leaf),
            Self::Upper(upper) => {
                let (index, at) = child_of(&upper.slots, at, true);
                let child = &mut Slots::own(upper)[index];
                let split = child.node.insert(at, entry, grows).map(Child::of);
                child.len = child.len + 1 - split.as_ref().map_or(0, |split| split.len);
                child.refresh();
                let more = Slots::insert(upper, index + 1, split?, grows);
                more.map(Self::Upper)
            }
        }
    }

    /// Takes entry `at` out. The node may have too few slots then, or none.
    fn remove(&mut self, at: usize) -> T {
        match self {
            Self::Leaf(leaf) => Slots::own(leaf).remove(at),
            Self::Upper(upper) => {
                let (index, at) = child_of(&upper.slots, at, false);
                let children = Slots::own(upper);
                let child = &mut children[index];
                let removed = child.node.remove(at);
                child.len -= 1;
                if child.node.slots() == 0 {
                    children.remove(index);
                    return removed;
                }
                child.refresh();
                if child.node.is_small() {
                    fill_up(children, index);
                }
                removed
            }
        }
    }

    /// Puts `entry` in the place of entry `at`.
    fn replace(&mut self, at: usize, entry: T) -> T {
        match self {
            Self::Leaf(leaf) => std::mem::replace(&mut Slots::own(leaf)[at], entry),
            Self::Upper(upper) => {
                let (index, at) = child_of(&upper.slots, at, false);
                let child = &mut Slots::own(upper)[index];
                let replaced = child.node.replace(at, entry);
                child.refresh();
                replaced
            }
        }
    }
}

/// Joins child `index`, which has too few slots, with a neighbour, if it has one.
fn fill_up<T: Entry>(children: &mut Vec<Child<T>>, index: usize) {
    let first = index.saturating_sub(1);
    if first + 1 == children.len() {
        return;
    }
    let next = children.remove(first + 1).node;
    let child = &mut children[first];
    let more = match (&mut child.node, next) {
        (Node::Leaf(leaf), Node::Leaf(next)) => Slots::join(leaf, next).map(Node::Leaf),
        (Node::Upper(upper), Node::Upper(next)) => Slots::join(upper, next).map(Node::Upper),
        _ => unreachable!("all leaves are at one depth"),
    };
    child.len = child.node.len();
    if let Some(more) = more {
        children.insert(first + 1, Child::of(more));
    }
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
        let Some(mut node) = self.root.as_ref() else {
            return 0;
        };
        let mut before = 0;
        loop {
            work::add(1);
            match node {
                Node::Leaf(leaf) => {
                    return before + leaf.slots.partition_point(|entry| holds(entry.key()));
                }
                Node::Upper(upper) => {
                    let index = upper.slots.partition_point(|child| holds(&child.first));
                    let Some(index) = index.checked_sub(1) else {
                        return before;
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
    pub fn last_of(&self, holds: impl Fn(&T::Key) -> bool) -> Option<&T> {
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
    pub fn find<'l>(&'l self, choose: impl Fn(&T::Aid, &Keys<'l, T>) -> usize) -> Option<&'l T> {
        let mut node = self.root.as_ref()?;
        loop {
            work::add(1);
            match node {
                Node::Leaf(leaf) => {
                    let keys = || leaf.slots.iter().map(T::key);
                    let aid = leaf.aid.get_or_init(|| T::aid(keys()));
                    return leaf.slots.get(choose(aid, &Keys(Of::Leaf(&leaf.slots))));
                }
                Node::Upper(upper) => {
                    let keys = || upper.slots.iter().map(|child| &child.first);
                    let aid = upper.aid.get_or_init(|| T::aid(keys()));
                    let index = choose(aid, &Keys(Of::Upper(&upper.slots)));
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
            front: (0, &[]),
            back: (0, &[]),
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
    front: (usize, &'l [T]),
    /// The same of the last of them.
    back: (usize, &'l [T]),
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
    fn look(list: &'l List<T>, leaf: &mut (usize, &'l [T]), at: usize) -> &'l T {
        work::add(1);
        let (begin, entries) = *leaf;
        let inside = at.checked_sub(begin).and_then(|inside| entries.get(inside));
        inside.unwrap_or_else(|| {
            let (entries, inside) = list.leaf(at);
            *leaf = (at - inside, entries);
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

/// How much was done, for tests: entries that were copied or gone through, and nodes that were searched.
pub(crate) mod work {
    #[cfg(test)]
    thread_local! {
        static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[cfg(test)]
    pub(super) fn add(count: usize) {
        DONE.with(|done| done.set(done.get() + count));
    }

    #[cfg(not(test))]
    #[inline]
    pub(super) const fn add(_count: usize) {}

    /// What this thread does in `of`.
    #[cfg(test)]
    pub(crate) fn of<T>(what: impl FnOnce() -> T) -> (T, usize) {
        let before = DONE.with(std::cell::Cell::get);
        let made = what();
        (made, DONE.with(std::cell::Cell::get) - before)
    }
}

#[cfg(test)]
mod tests;
