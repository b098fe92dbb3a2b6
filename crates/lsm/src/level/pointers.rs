//! The pointers of a finished level segment, visited in place and changed where the visitor says so.
//!
//! A pointer is eight bytes of a node's record, at its end or in front of the expiry (see [`leaf`]): into the large
//! log or the medium log, from a leaf, or to a child, from an index node of a [`tree`](super::tree). Nodes lie back to
//! back from the segment's beginning to `leaves_len`, and each tells its own length: record 0 ends
//! where the node does.
//!
//! What changes is the pointer's eight bytes and the checksum of its node; lengths stay. A node is
//! checked before it is touched, so that damage is never given a checksum that hides it (I2).
//! Index, filter, table and footer hold no pointer and stay as they are: the references in the table
//! are numbers of log segments, wherever the pointers lead. [`SegmentName::checksum`] over all bytes
//! is a new one.

use argosy_base::{KeyRange, Kind, Pointer, SegmentNumber};
use argosy_device::Buffer;

use super::format::{FOOTER_BYTES, Footer};
use super::leaf;
use super::verify::leaves_of;
use crate::names::{Form, LevelError, SegmentName};

/// Where a pointer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// To a record of the large log, or of a medium segment.
    Log,
    /// To a node of a tree, one height below: in a segment that was finished before this one.
    Child,
}

/// What was done to a segment's pointers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// Pointers that were shown.
    pub pointers: u64,
    /// Those of them that are others now.
    pub changed: u64,
}

/// Why a visit ended early. Nodes before that place are changed already: throw the bytes away.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VisitError {
    /// The bytes are not those of a level segment of this name.
    #[error(transparent)]
    Damaged(#[from] LevelError),
    /// The visitor does not know where this pointer leads.
    #[error("{kind:?} pointer {at} leads nowhere that is known")]
    Unknown {
        /// Where it should lead.
        kind: PointerKind,
        /// The pointer.
        at: Pointer,
    },
}

/// Shows `visit` every pointer in `bytes`, all bytes of the finished segment `name`, and puts what it
/// returns in its place. The checksums of nodes that changed are made anew.
///
/// # Errors
/// [`VisitError`], where the bytes are damaged or `visit` returns `None`.
pub fn for_each_pointer_mut(
    name: SegmentName,
    bytes: &mut [u8],
    mut visit: impl FnMut(PointerKind, Pointer) -> Option<Pointer>,
) -> Result<Visited, VisitError> {
    let mut visited = Visited::default();
    for_each_node(name, bytes, |of, node| {
        of.visit(node, &mut visit, &mut visited)
    })?;
    Ok(visited)
}

/// Shows `visit` every node in `bytes`, all bytes of the finished segment `name`, where nodes may hold pointers.
fn for_each_node(
    name: SegmentName,
    bytes: &mut [u8],
    mut visit: impl FnMut(&Node, &mut [u8]) -> Result<(), VisitError>,
) -> Result<(), VisitError> {
    let (body, footer) = bytes
        .split_last_chunk_mut::<FOOTER_BYTES>()
        .ok_or_else(|| name.corrupt(0, "the segment has an impossible length"))?;
    let at = narrow(name, body.len())?;
    let footer = Footer::parse(footer, name, at)?;
    let nodes = body
        .get_mut(..footer.leaves_len as usize)
        .ok_or_else(|| name.corrupt(at, "the footer contradicts itself"))?;
    let (holds, leads) = match footer.form {
        Form::SelfContained | Form::Leaves => (Kind::Leaf, PointerKind::Log),
        Form::Index(_) => (Kind::Index, PointerKind::Child),
        Form::Medium => return Ok(()),
    };
    let mut from = 0;
    while from < nodes.len() {
        let offset = narrow(name, from)?;
        let len = leaf::node_len(&nodes[from..])
            .ok_or_else(|| name.corrupt(offset, "a node has no end in its segment"))?;
        let of = Node {
            name,
            offset,
            holds,
            leads,
        };
        visit(&of, &mut nodes[from..from + len])?;
        from += len;
    }
    Ok(())
}

/// Puts `dead` in place of the high bits of every pointer in `bytes` whose key is in none of `counted`.
/// `bytes` are all bytes of segment `name`, one with leaves.
///
/// # Errors
/// [`VisitError::Damaged`].
pub(crate) fn forget_uncounted(
    name: SegmentName,
    bytes: &mut [u8],
    counted: &[KeyRange],
    dead: SegmentNumber,
) -> Result<(), VisitError> {
    let counts = pointers_of(name, bytes, counted)?;
    if counts.iter().all(|(counts, _)| *counts) {
        return Ok(());
    }
    let mut counts = counts.into_iter();
    for_each_pointer_mut(name, bytes, |_, at| {
        Some(match counts.next() {
            Some((true, _)) => at,
            _ => Pointer::new(dead, at.offset()),
        })
    })
    .map(drop)
}

/// Puts the nodes of `own` that are not damaged in place of those of `bytes`. Both are all bytes of the finished
/// segment `name`, and differ in pointers alone.
///
/// # Errors
/// [`VisitError::Damaged`], where `bytes` are.
pub(crate) fn keep_whole_nodes(
    name: SegmentName,
    own: &[u8],
    bytes: &mut [u8],
) -> Result<(), VisitError> {
    for_each_node(name, bytes, |of, node| {
        let from = of.offset as usize;
        if let Some(own) = own
            .get(from..from + node.len())
            .filter(|own| of.is_whole(own))
        {
            node.copy_from_slice(own);
        }
        Ok(())
    })
}

/// Whether a pointer of `bytes`, all bytes of segment `name`, one with leaves, has `dead` as high bits although its
/// key is in one of `counted`.
///
/// # Errors
/// [`VisitError::Damaged`].
pub(crate) fn lacks_counted(
    name: SegmentName,
    bytes: &[u8],
    counted: &[KeyRange],
    dead: SegmentNumber,
) -> Result<bool, VisitError> {
    let pointers = pointers_of(name, bytes, counted)?;
    let mut pointers = pointers.iter();
    Ok(pointers.any(|(counts, at)| *counts && at.segment() == dead))
}

/// The pointers of leaves, in their order, each with whether its key is in one of `counted`.
fn pointers_of(
    name: SegmentName,
    bytes: &[u8],
    counted: &[KeyRange],
) -> Result<Vec<(bool, Pointer)>, VisitError> {
    let leaves = leaves_of(name, &Buffer::from_slice(bytes));
    let leaves = leaves.map_err(|_| name.corrupt(0, "the segment's footer or index"))?;
    let mut pointers = Vec::new();
    for (_, leaf) in leaves {
        let leaf = leaf?;
        for pair in 0..leaf.count() {
            if let Some((at, _)) = leaf.entry(pair).pointer() {
                let key = leaf.key(pair);
                let counts = counted.iter().any(|range| range.contains(&key));
                pointers.push((counts, at));
            }
        }
    }
    Ok(pointers)
}

/// What a node is.
struct Node {
    name: SegmentName,
    offset: u32,
    holds: Kind,
    leads: PointerKind,
}

impl Node {
    /// What the first four of its bytes should be.
    fn checksum(&self, node: &[u8]) -> u32 {
        let identity = self.name.identity(self.holds, self.offset);
        identity.checksum(&node[4..])
    }

    fn is_whole(&self, node: &[u8]) -> bool {
        self.checksum(node).to_le_bytes() == node[..4]
    }

    fn visit(
        &self,
        node: &mut [u8],
        visit: &mut impl FnMut(PointerKind, Pointer) -> Option<Pointer>,
        visited: &mut Visited,
    ) -> Result<(), VisitError> {
        let damaged = |what| self.name.corrupt(self.offset, what);
        if !self.is_whole(node) {
            return Err(damaged("a node's checksum does not match").into());
        }
        let before = visited.changed;
        for slot in 0..leaf::slot_count(node) {
            let record = leaf::record_at(node, slot);
            let record = record.ok_or_else(|| damaged("a node's record is malformed"))?;
            let Some(range) = record.pointer_range() else {
                continue;
            };
            let stored = node[range.clone()].first_chunk().copied();
            let at = Pointer::from_raw(u64::from_le_bytes(stored.unwrap_or_default()));
            let kind = self.leads;
            let new = visit(kind, at).ok_or(VisitError::Unknown { kind, at })?;
            visited.pointers += 1;
            if new != at {
                visited.changed += 1;
                node[range].copy_from_slice(&new.to_raw().to_le_bytes());
            }
        }
        if visited.changed > before {
            let crc = self.checksum(node);
            node[..4].copy_from_slice(&crc.to_le_bytes());
        }
        Ok(())
    }
}

fn narrow(name: SegmentName, at: usize) -> Result<u32, LevelError> {
    u32::try_from(at).map_err(|_| name.corrupt(0, "the segment has an impossible length"))
}

#[cfg(test)]
#[path = "pointers_tests.rs"]
mod tests;
