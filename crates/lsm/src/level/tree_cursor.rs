//! Walks through one leaf segment of a tree in key order, down from the root.
//!
//! A cursor keeps the *path*: the index node that it came through at each height, and which child. The
//! next leaf is the next child of the lowest node that has one. Leaves of a segment lie back to back
//! in key order, so as many of the present node's next children as the read-ahead allows are read
//! at once. The path can be handed on to the cursor for the next segment, which then reads only the
//! nodes that are new.

use std::sync::Arc;

use argosy_base::KeyRange;
use argosy_device::Buffer;

use super::leaf::{Leaf, Record};
use super::tree::{self, Child, IndexNode, LeafHome, Parent, TreeSegments};
use super::{Entry, LevelError, ReadAhead, ReadAt, SegmentName};
use crate::cache::NodeCache;
use crate::merge::Source;

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
pub struct Path {
    steps: Vec<Step>,
}

/// A tree, and a way down that is known of it.
#[derive(Clone, Debug, Default)]
pub struct Way<T> {
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

/// A position in a leaf segment of a tree, and what is at it.
pub struct TreeCursor<T, S> {
    segments: T,
    home: LeafHome<S>,
    cache: Option<Arc<NodeCache>>,
    ahead: ReadAhead,
    chunk: Option<Chunk>,
    /// The key behind the last that belongs.
    to: Option<Vec<u8>>,
    path: Path,
    /// The leaf that the cursor is in, while it is not at its end.
    leaf: Option<Leaf>,
    slot: usize,
    end: usize,
    record: Record,
}

impl<T: TreeSegments, S: ReadAt> TreeCursor<T, S> {
    /// A cursor at the lowest key of `range`, and, from there, through all of it. `range` is among the
    /// keys that the segment `home` of the tree stands for.
    ///
    /// # Errors
    /// When a node cannot be read, or is not what its parent says.
    pub fn new(
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
            to: range.to.clone(),
            path,
            leaf: None,
            slot: 0,
            end: 0,
            record: Record::default(),
        };
        if !range.is_empty() {
            cursor.seek(&range.from)?;
        }
        Ok(cursor)
    }

    /// The segment that it goes through.
    #[must_use]
    pub const fn name(&self) -> SegmentName {
        self.home.name
    }

    /// Where the cursor is, for the next one.
    #[must_use]
    pub fn into_path(self) -> Path {
        self.path
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), LevelError> {
        let child = self.descend(|node| node.find(key))?;
        let leaf = self.read(child)?;
        let slot = leaf.search(key).unwrap_or_else(|above| above);
        if slot < leaf.count() {
            self.enter(leaf, slot);
            Ok(())
        } else {
            self.next_child()
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
                    tree::index_node(&self.segments, child, height, parent, cache)?
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
        let len = self.len_ahead(child);
        let leaf = if len > child.len {
            let (bytes, from) = tree::read(child, len, self.home.len, &self.home.bytes)?;
            let first = &bytes[from..from + child.len as usize];
            let leaf = tree::parse_leaf(first, child, self.parent(), self.home.name)?;
            self.chunk = Some(Chunk {
                first: child,
                len,
                bytes,
                from,
            });
            leaf
        } else {
            tree::leaf(child, self.parent(), &self.home, self.cache.as_deref())?
        };
        self.ahead.first = (self.ahead.first.max(child.len as usize) * 2).min(self.ahead.max);
        Ok(leaf)
    }

    /// Bytes of `child`, which the path leads to, and of the leaves behind it that are read with it.
    fn len_ahead(&self, child: Child) -> u32 {
        let Some((node, slot)) = self.parent() else {
            return child.len;
        };
        let mut len = child.len;
        for next in slot + 1..node.count() {
            let next = node.child(next);
            let follows = next.at.segment() == child.at.segment()
                && next.at.offset() == child.at.offset() + len;
            if !follows || (len + next.len) as usize > self.ahead.first {
                break;
            }
            len += next.len;
        }
        len
    }

    /// Stands at pair `slot` of `leaf`, or at the end where that is outside of the range.
    fn enter(&mut self, leaf: Leaf, slot: usize) {
        self.end = match &self.to {
            Some(to) if leaf.last_key() >= to.as_slice() => {
                leaf.search(to).unwrap_or_else(|above| above)
            }
            _ => leaf.count(),
        };
        self.slot = slot;
        self.leaf = (slot < self.end).then_some(leaf);
        if let Some(leaf) = &self.leaf {
            self.record = leaf.record(slot);
        }
    }

    /// Stands at the first pair of the next leaf, or at the end where that is outside of the range:
    /// what lies there may be gone.
    fn next_child(&mut self) -> Result<(), LevelError> {
        self.leaf = None;
        let has_next = |step: &Step| step.slot + 1 < step.node.count();
        let Some(index) = self.path.steps.iter().position(has_next) else {
            return Ok(());
        };
        let step = &mut self.path.steps[index];
        let separator = step.node.separator(step.slot + 1);
        if self
            .to
            .as_ref()
            .is_some_and(|to| separator >= to.as_slice())
        {
            return Ok(());
        }
        step.slot += 1;
        let child = step.node.child(step.slot);
        let height = u8::try_from(index).expect("a tree has few heights");
        let child = self.descend_from(child, height, |_| 0)?;
        let leaf = self.read(child)?;
        self.enter(leaf, 0);
        Ok(())
    }

    #[cold]
    fn next_leaf(&mut self) -> Result<(), LevelError> {
        match self.leaf.take() {
            // The range ends in this leaf.
            Some(leaf) if self.end < leaf.count() => Ok(()),
            Some(_) => self.next_child(),
            None => Ok(()),
        }
    }
}

impl<T: TreeSegments, S: ReadAt> Source for TreeCursor<T, S> {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.leaf.as_ref().map(|leaf| self.record.key(leaf.bytes()))
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        let leaf = self.leaf.as_ref().expect("the cursor is not at its end");
        self.record.entry(leaf.bytes())
    }

    #[inline]
    fn advance(&mut self) -> Result<(), LevelError> {
        self.slot += 1;
        if self.slot < self.end
            && let Some(leaf) = &self.leaf
        {
            self.record = leaf.record(self.slot);
            return Ok(());
        }
        self.next_leaf()
    }
}

impl<T, S> std::fmt::Debug for TreeCursor<T, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TreeCursor({:?}, {})", self.home.name, self.slot)
    }
}
