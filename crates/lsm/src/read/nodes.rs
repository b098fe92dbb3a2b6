//! Reads nodes of level segments through the cache, and finds keys in them.
//!
//! A segment's own index, or the tree above it, leads to one leaf. A node comes from the cache or else from the
//! segment's bytes. It is checked when it comes from there: under its own identity, and against the separators of its
//! index or parent (I2).

use crate::cache::{CacheKey, Lookup, NodeCache};
use crate::level::tree::{self, Child, IndexNode, LeafHome, Parent, TreeSegments};
use crate::level::{Leaf, ReadAt, SegmentReader};
use crate::names::{LevelError, OwnedEntry, SegmentName};

/// What the cache knows the node `child` of segment `name` by.
const fn node_key(child: Child, name: SegmentName) -> CacheKey {
    CacheKey::Node {
        region: name.region,
        segment: name.number,
        offset: child.at.offset(),
    }
}

/// Counts what the cache did not have, where it is read.
///
/// # Errors
/// [`LevelError::NotInMemory`] where it is not.
pub(crate) fn missed(
    of: Lookup,
    source: &(impl ReadAt + ?Sized),
    cache: Option<&NodeCache>,
) -> Result<(), LevelError> {
    if !source.may_read() {
        return Err(LevelError::NotInMemory);
    }
    if let Some(cache) = cache {
        cache.count(of, false);
    }
    Ok(())
}

/// What `key` is bound to in `segment`, whose filter the caller has asked. The range of keys for which a version has
/// the segment stand is the caller's to respect, too.
///
/// # Errors
/// When a leaf cannot be read, or is not what the index says.
pub(crate) fn get_in_segment(
    segment: &SegmentReader,
    key: &[u8],
    source: &(impl ReadAt + ?Sized),
    cache: Option<&NodeCache>,
) -> Result<Option<OwnedEntry>, LevelError> {
    if !segment.spans(key) {
        return Ok(None);
    }
    segment.ensure_indexed()?;
    let read = |index| leaf_of_segment(segment, index, source, cache);
    let (_, leaf) = segment.find_leaf(key, read)?;
    Ok(leaf.get(key).map(|entry| entry.to_owned()))
}

/// Leaf `index` of `segment`.
fn leaf_of_segment(
    segment: &SegmentReader,
    index: usize,
    source: &(impl ReadAt + ?Sized),
    cache: Option<&NodeCache>,
) -> Result<Leaf, LevelError> {
    let key = CacheKey::leaf(segment.name(), index);
    if let Some(leaf) = cache.and_then(|cache| cache.leaf(key)) {
        return Ok(leaf);
    }
    missed(Lookup::Leaf, source, cache)?;
    let leaf = segment.read_leaf(index, source)?;
    if let Some(cache) = cache {
        cache.keep_leaf(key, leaf.clone());
    }
    Ok(leaf)
}

/// What `key` is bound to in `home`, the leaf segment of the tree that stands for it. The caller has
/// asked the segment's filter.
///
/// # Errors
/// When a node cannot be read, or is not what its parent says.
pub(crate) fn get_in_tree<T: TreeSegments, S: ReadAt>(
    segments: &T,
    home: &LeafHome<S>,
    key: &[u8],
    cache: Option<&NodeCache>,
) -> Result<Option<OwnedEntry>, LevelError> {
    let (mut child, height) = tree::root(segments, home)?;
    let mut above: Option<(IndexNode, usize)> = None;
    for height in (1..=height).rev() {
        let parent = above.as_ref().map(|(node, slot)| (node, *slot));
        let node = index_node(segments, child, height, parent, cache)?;
        let slot = node.find(key);
        child = node.child(slot);
        above = Some((node, slot));
    }
    let parent = above.as_ref().map(|(node, slot)| (node, *slot));
    let leaf = leaf_of_tree(child, parent, home, cache)?;
    Ok(leaf.get(key).map(|entry| entry.to_owned()))
}

/// The leaf `child` of `home`.
///
/// # Errors
/// When it cannot be read, or is not what its parent says.
pub(super) fn leaf_of_tree<S: ReadAt>(
    child: Child,
    parent: Parent<'_>,
    home: &LeafHome<S>,
    cache: Option<&NodeCache>,
) -> Result<Leaf, LevelError> {
    tree::check_home(child, home)?;
    let key = node_key(child, home.name);
    if let Some(leaf) = cache.and_then(|cache| cache.leaf(key)) {
        return Ok(leaf);
    }
    missed(Lookup::Leaf, &home.bytes, cache)?;
    let (bytes, from) = tree::read(child, child.len, home.len, &home.bytes)?;
    let bytes = &bytes[from..from + child.len as usize];
    let leaf = tree::parse_leaf(bytes, child, parent, home.name)?;
    if let Some(cache) = cache {
        cache.keep_leaf(key, leaf.clone());
    }
    Ok(leaf)
}

/// The index node `child` of `height`.
///
/// # Errors
/// When it cannot be read, or is not what its parent says.
pub(crate) fn index_node<T: TreeSegments>(
    segments: &T,
    child: Child,
    height: u8,
    parent: Parent<'_>,
    cache: Option<&NodeCache>,
) -> Result<IndexNode, LevelError> {
    let (name, len, source) = segments
        .index(child.at, height)
        .ok_or_else(|| child.corrupt("the index leads to a segment that its tree does not have"))?;
    let key = node_key(child, name);
    if let Some(node) = cache.and_then(|cache| cache.index_node(key)) {
        return Ok(IndexNode(node));
    }
    missed(Lookup::Index, &source, cache)?;
    let (bytes, from) = tree::read(child, child.len, len, &source)?;
    let offset = child.at.offset();
    let node = IndexNode::parse(&bytes[from..from + child.len as usize], name, offset)?;
    if parent.is_some_and(|(above, slot)| !above.admits_index(slot, &node)) {
        return Err(child.corrupt("an index node's separators are not where its parent says"));
    }
    if let Some(cache) = cache {
        cache.keep_leaf(key, node.0.clone());
    }
    Ok(node)
}
