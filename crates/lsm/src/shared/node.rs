//! Nodes of a [list](super::List): leaves, what is above them, and how they are copied, split and joined.
//!
//! A node is changed in place while nobody else holds it, and in a copy otherwise. What becomes too much goes into a
//! node behind; what becomes too little is joined with a neighbour.

use std::sync::{Arc, OnceLock};

use super::{Entry, LEAF_MAX, SPARE, UPPER_MAX, work};

/// A node, which others may hold too.
pub(super) enum Node<T: Entry> {
    Leaf(Arc<Slots<T, T::Aid, LEAF_MAX>>),
    Upper(Arc<Slots<Child<T>, T::Aid, UPPER_MAX>>),
}

/// What a node has: up to `MAX` slots.
pub(super) struct Slots<S, A, const MAX: usize> {
    pub(super) slots: Vec<S>,
    pub(super) aid: OnceLock<A>,
}

/// What an upper node knows of one below it.
pub(super) struct Child<T: Entry> {
    /// Its first key.
    pub(super) first: T::Key,
    /// How many entries are below it.
    pub(super) len: usize,
    pub(super) node: Node<T>,
}

/// The keys of a node, by slot.
pub struct NodeKeys<'n, T: Entry>(pub(super) Of<'n, T>);

pub(super) enum Of<'n, T: Entry> {
    Leaf(&'n [T]),
    Upper(&'n [Child<T>]),
}

impl<'n, T: Entry> NodeKeys<'n, T> {
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
        work::allocated(size_of::<Self>() + slots.capacity() * size_of::<S>());
        slots.extend_from_slice(&self.slots);
        Self {
            slots,
            aid: self.aid.clone(),
        }
    }
}

impl<S: Clone, A: Clone, const MAX: usize> Slots<S, A, MAX> {
    pub(super) fn of(slots: Vec<S>) -> Arc<Self> {
        work::allocated(size_of::<Self>() + slots.capacity() * size_of::<S>());
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
    pub(super) fn of(node: Node<T>) -> Self {
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
pub(super) fn child_of<T: Entry>(
    children: &[Child<T>],
    mut at: usize,
    inserts: bool,
) -> (usize, usize) {
    for (index, child) in children.iter().enumerate() {
        if at < child.len || inserts && at == child.len {
            return (index, at);
        }
        at -= child.len;
    }
    unreachable!("the entry is in the list")
}

impl<T: Entry> Node<T> {
    pub(super) fn slots(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.slots.len(),
            Self::Upper(upper) => upper.slots.len(),
        }
    }

    /// Whether it has too few slots, if it is neither the root nor at the right edge.
    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.slots.len() < LEAF_MAX / 4,
            Self::Upper(upper) => upper.slots.len() < UPPER_MAX / 4,
        }
    }

    /// Entries below it.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.slots.len(),
            Self::Upper(upper) => upper.slots.iter().map(|child| child.len).sum(),
        }
    }

    pub(super) fn first(&self) -> &T::Key {
        match self {
            Self::Leaf(leaf) => leaf.slots[0].key(),
            Self::Upper(upper) => &upper.slots[0].first,
        }
    }

    /// Puts `entry` at `at`; `grows`: at the end of the list. What is too much is in a node that comes behind.
    pub(super) fn insert(&mut self, at: usize, entry: T, grows: bool) -> Option<Self> {
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
    pub(super) fn remove(&mut self, at: usize) -> T {
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
    pub(super) fn replace(&mut self, at: usize, entry: T) -> T {
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
