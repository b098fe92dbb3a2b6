//! Walks through one leaf segment of a tree, in key order or from the highest key down. Its way to a
//! leaf leads from the root.
//!
//! A cursor keeps the *path*: the index node that it came through at each height, and which child. The
//! next leaf is the next child, on this walk's way, of the lowest node that has one. Leaves of a segment
//! lie back to back in key order, so as many of the present node's next children as the read-ahead
//! allows are read at once. The path can be handed on to the cursor for the next segment, which then reads only the
//! nodes that are new.

use std::sync::Arc;

use argosy_base::KeyRange;
use argosy_device::Buffer;

use super::cursor::ReadAhead;
use super::nodes::{index_node, leaf_of_tree};
use crate::cache::NodeCache;
use crate::level::stand::Stand;
use crate::level::tree::{self, Child, IndexNode, LeafHome, Parent, TreeSegments};
use crate::level::{Leaf, ReadAt};
use crate::merge::Source;
use crate::names::{Entry, LevelError, SegmentName};

/// A node that a cursor came through.
#[derive(Clone, Debug)]
struct Step {
    /// Where the node lies.
    at: Child,
    node: IndexNode,
    /// The child that the cursor went down to.
    slot: usize,
}

/// The nodes from the leaves' parent up to the root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    steps: Vec<Step>,
}

/// A tree, and a way down that is known of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way<T> {
    /// The tree's segments.
    pub segments: T,
    /// Where a cursor of the same tree was last; empty at first.
    pub path: Path,
}

/// Leaves that were read together and are not checked yet.
struct Chunk {
    first: Child,
    len: u32,
    bytes: Buffer,
    /// Where in `bytes` the first leaf begins.
    from: usize,
}

impl Chunk {
    fn get(&self, child: Child) -> Option<&[u8]> {
        if child.at.segment() != self.first.at.segment() {
            return None;
        }
        let skip = child.at.offset().checked_sub(self.first.at.offset())?;
        let inside = skip + child.len <= self.len;
        let from = self.from + skip as usize;
        inside.then(|| &self.bytes[from..from + child.len as usize])
    }
}

/// A position in a leaf segment of a tree, and what is at it. Goes up, or with the parameter
/// [`DOWN`](crate::level::stand::DOWN) down.
pub(crate) struct TreeCursor<T, S, const DOWN: bool = false> {
    segments: T,
    home: LeafHome<S>,
    cache: Option<Arc<NodeCache>>,
    ahead: ReadAhead,
    chunk: Option<Chunk>,
    path: Path,
    stand: Stand<DOWN>,
}

impl<T: TreeSegments, S: ReadAt> TreeCursor<T, S> {
    /// A cursor at the lowest key of `range`, and, from there, through all of it. `range` is among the
    /// keys that the segment `home` of the tree stands for.
    ///
    /// # Errors
    /// When a node cannot be read, or is not what its parent says.
    pub(crate) fn new(
        way: Way<T>,
        home: LeafHome<S>,
        cache: Option<Arc<NodeCache>>,
        range: &KeyRange,
        ahead: ReadAhead,
    ) -> Result<Self, LevelError> {
        Self::either_way(way, home, cache, range, ahead)
    }
}

impl<T: TreeSegments, S: ReadAt, const DOWN: bool> TreeCursor<T, S, DOWN> {
    /// As [`new`](TreeCursor::new), at the first key of `range` on this cursor's way.
    ///
    /// # Errors
    /// When a node cannot be read, or is not what its parent says.
    pub(crate) fn either_way(
        way: Way<T>,
        home: LeafHome<S>,
        cache: Option<Arc<NodeCache>>,
        range: &KeyRange,
        ahead: ReadAhead,
    ) -> Result<Self, LevelError> {
        let Way { segments, path } = way;
        let mut cursor = Self {
            segments,
            home,
            cache,
            ahead,
            chunk: None,
            path,
            stand: Stand::new(range),
        };
        if !range.is_empty() {
            cursor.go_to(Stand::<DOWN>::near(range))?;
        }
        Ok(cursor)
    }

    /// The segment that it goes through.
    #[must_use]
    pub(crate) const fn name(&self) -> SegmentName {
        self.home.name
    }

    /// Where the cursor is, for the next one.
    #[must_use]
    pub(crate) fn into_path(self) -> Path {
        self.path
    }

    /// Goes to the first key on this way from `bound` on; see [`Stand::first_of`].
    fn go_to(&mut self, bound: Option<&[u8]>) -> Result<(), LevelError> {
        let child = self.descend(|node| match bound {
            Some(key) if DOWN => node.find_below(key),
            Some(key) => node.find(key),
            None => Stand::<DOWN>::edge(node.count()),
        })?;
        let leaf = self.read(child)?;
        match Stand::<DOWN>::first_of(&leaf, bound) {
            Some(slot) => {
                self.stand.enter(leaf, slot);
                Ok(())
            }
            None => self.next_child(),
        }
    }

    /// Goes from the root down to the parent of leaves, each time to the child that `choose` names.
    /// Returns the leaf.
    fn descend(&mut self, choose: impl Fn(&IndexNode) -> usize) -> Result<Child, LevelError> {
        let (root, height) = tree::root(&self.segments, &self.home)?;
        self.descend_from(root, height, choose)
    }

    /// Goes from `child`, a node of `height`, down to a leaf. Above it the path is right already.
    fn descend_from(
        &mut self,
        mut child: Child,
        height: u8,
        choose: impl Fn(&IndexNode) -> usize,
    ) -> Result<Child, LevelError> {
        for height in (1..=height).rev() {
            let index = usize::from(height) - 1;
            let known = self.path.steps.get(index).filter(|step| step.at == child);
            let node = match known {
                Some(step) => step.node.clone(),
                None => {
                    let above = self.path.steps.get(index + 1);
                    let parent = above.map(|step| (&step.node, step.slot));
                    let cache = self.cache.as_deref();
                    index_node(&self.segments, child, height, parent, cache)?
                }
            };
            let slot = choose(&node);
            let (at, below) = (child, node.child(slot));
            let step = Step { at, node, slot };
            if let Some(place) = self.path.steps.get_mut(index) {
                *place = step;
            } else {
                // Only at first, from the root down: what lies below is filled in next.
                let height = self.segments.tree().height;
                self.path.steps.resize(usize::from(height), step);
            }
            child = below;
        }
        Ok(child)
    }

    fn parent(&self) -> Parent<'_> {
        let step = self.path.steps.first()?;
        Some((&step.node, step.slot))
    }

    /// The leaf `child`: out of what was read ahead, the cache, or the device.
    fn read(&mut self, child: Child) -> Result<Leaf, LevelError> {
        tree::check_home(child, &self.home)?;
        if let Some(bytes) = self.chunk.as_ref().and_then(|chunk| chunk.get(child)) {
            return tree::parse_leaf(bytes, child, self.parent(), self.home.name);
        }
        let (first, len) = self.ahead_of(child);
        let leaf = if len > child.len {
            let (bytes, from) = tree::read(first, len, self.home.len, &self.home.bytes)?;
            let chunk = Chunk {
                first,
                len,
                bytes,
                from,
            };
            let bytes = chunk.get(child).expect("it is among what was read");
            let leaf = tree::parse_leaf(bytes, child, self.parent(), self.home.name)?;
            self.chunk = Some(chunk);
            leaf
        } else {
            leaf_of_tree(child, self.parent(), &self.home, self.cache.as_deref())?
        };
        self.ahead.first = (self.ahead.first.max(child.len as usize) * 2).min(self.ahead.max);
        Ok(leaf)
    }

    /// What is read together with `child`, which the path leads to: it and the leaves behind it, on
    /// this way, that lie at its side. The lowest of them, and their bytes.
    fn ahead_of(&self, child: Child) -> (Child, u32) {
        let (mut first, mut len) = (child, child.len);
        let Some((node, mut slot)) = self.parent() else {
            return (first, len);
        };
        while let Some(next) = Stand::<DOWN>::next(slot, node.count()) {
            slot = next;
            let next = node.child(next);
            let begins = first.at.offset();
            let follows = next.at.segment() == first.at.segment()
                && if DOWN {
                    next.at.offset() + next.len == begins
                } else {
                    next.at.offset() == begins + len
                };
            if !follows || (len + next.len) as usize > self.ahead.first {
                break;
            }
            len += next.len;
            if DOWN {
                first = next;
            }
        }
        (first, len)
    }

    /// Stands at the first pair of the next leaf, or at the end where that is outside of the range:
    /// what lies there may be gone.
    fn next_child(&mut self) -> Result<(), LevelError> {
        self.stand.end();
        let next = |step: &Step| Stand::<DOWN>::next(step.slot, step.node.count());
        let mut steps = self.path.steps.iter().enumerate();
        let Some((index, slot)) = steps.find_map(|(index, step)| Some((index, next(step)?))) else {
            return Ok(());
        };
        let step = &mut self.path.steps[index];
        // The boundary between the two children is the separator of the higher one.
        if self
            .stand
            .ends_at(&step.node.separator(slot.max(step.slot)))
        {
            return Ok(());
        }
        step.slot = slot;
        let child = step.node.child(slot);
        let height = u8::try_from(index).expect("a tree has few heights");
        let child = self.descend_from(child, height, |node| Stand::<DOWN>::edge(node.count()))?;
        let leaf = self.read(child)?;
        let slot = Stand::<DOWN>::edge(leaf.count());
        self.stand.enter(leaf, slot);
        Ok(())
    }

    #[cold]
    fn next_leaf(&mut self) -> Result<(), LevelError> {
        match self.stand.leave() {
            Some(_) => self.next_child(),
            None => Ok(()),
        }
    }
}

impl<T: TreeSegments, S: ReadAt, const DOWN: bool> Source for TreeCursor<T, S, DOWN> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.stand.key()
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.stand.entry()
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        if self.stand.step() {
            return Ok(());
        }
        self.next_leaf()
    }
}

impl<T, S, const DOWN: bool> std::fmt::Debug for TreeCursor<T, S, DOWN> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TreeCursor({:?}, {})", self.home.name, self.stand.slot())
    }
}
