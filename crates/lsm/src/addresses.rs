//! Pointers that hold places: what [`AddressMode::Rewrite`](argosy_base::AddressMode) asks of a member.
//!
//! A pointer inside a level segment is 64 bits: the segment that it leads to in the high 43, the
//! byte in it in the low 21. In [`Logical`](argosy_base::AddressMode) mode the high bits are the segment's *number*,
//! which means the same on all members. In `Rewrite` they are the *device segment* in which the
//! segment lies on the member that holds the bytes. Everything else names segments by number in both
//! modes: edits, manifests, messages, the names under which checksums are made, the lists of
//! referenced log segments in footers, memtables, and the caches.
//!
//! Pointers change where they pass from one to the other:
//!
//! ```text
//! memtable ──flush──▶ level segment ──get, scan──▶ entry
//!  number              own place                    number          (Build, Version::resolve)
//!
//! primary's segment ──ship──▶ backup's segment                      (Replica::rewrite:
//!  primary's place             own place                             log map and index map)
//!
//! member's segment ──read──▶ fetched bytes ──put──▶ other member's segment
//!  its place                  number                own place       (translate_out, Replica::put_part)
//! ```
//!
//! Compactions read places and write places. Shipped segments travel as they were built, and the
//! receiver rewrites them. Fetched ones travel in neutral form, with numbers: the member that gives
//! them may have them from a third one, under a primary that is no more.
//!
//! Segments of the medium log hold no pointers. They are shipped ahead of the leaves that point to them,
//! and their places are then told like those of the large log.
//!
//! The checksum of a whole segment, as edits state it, is that of the bytes as they were first
//! built: a member that rewrote has other bytes. What it has is verified by the checksums inside the
//! segment. Segments without pointers are equal everywhere.
//!
//! A place is only believed while the segment whose place it is lives: no pointer counts that leads into a log
//! segment that is gone. Entries outside of the keys for which a level segment stands do not count, and their
//! pointers may lead anywhere: in neutral form they are 0. Index segments of a tree may outlive leaf
//! segments that they lead to; their footers list the numbers.

use argosy_base::{DeviceSegment, Pointer, SegmentNumber};

use crate::edit::LevelSegment;
use crate::level::pointers::{PointerKind, VisitError, Visited, for_each_pointer_mut};
use crate::names::{LevelError, SegmentName};

/// The place that `at` holds, where pointers hold places.
#[must_use]
pub fn place_in(at: Pointer) -> Option<DeviceSegment> {
    u32::try_from(at.segment().0).ok().map(DeviceSegment)
}

/// `place`, as the high bits of a pointer hold it.
#[must_use]
pub const fn as_high_bits(place: DeviceSegment) -> SegmentNumber {
    SegmentNumber(place.0 as u64)
}

/// The high bits of pointers that do not count, in neutral form: no segment has this number, and no log
/// segment lies in this place.
pub(crate) const DEAD: SegmentNumber = SegmentNumber(0);

/// Which high bits take the place of which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Of pointers into the large and the medium log, sorted by what is replaced.
    logs: Vec<(SegmentNumber, SegmentNumber)>,
    /// Of pointers to nodes of a tree.
    nodes: Vec<(SegmentNumber, SegmentNumber)>,
}

impl Translation {
    /// Replaces the first of each pair by the second, in pointers into the large and medium log and in
    /// pointers to nodes of a tree.
    pub(crate) fn new(
        mut logs: Vec<(SegmentNumber, SegmentNumber)>,
        mut nodes: Vec<(SegmentNumber, SegmentNumber)>,
    ) -> Self {
        logs.sort_unstable();
        nodes.sort_unstable();
        Self { logs, nodes }
    }

    /// `at` with the other high bits; `None` where these are not known.
    #[inline]
    fn apply(&self, kind: PointerKind, at: Pointer) -> Option<Pointer> {
        if at.segment() == DEAD {
            return Some(at);
        }
        let known = match kind {
            PointerKind::Log => &self.logs,
            PointerKind::Child => &self.nodes,
        };
        let found = known.binary_search_by_key(&at.segment(), |(from, _)| *from);
        let (_, to) = known[found.ok()?];
        Some(Pointer::new(to, at.offset()))
    }

    /// Rewrites every pointer in `bytes`, all bytes of segment `name`; those in between that are
    /// counted off by `spared` stay as they are, which is a planted mistake.
    ///
    /// # Errors
    /// The bytes are damaged, or a pointer is not known; they are of no use any more.
    pub(crate) fn rewrite(
        &self,
        name: SegmentName,
        bytes: &mut [u8],
        mut spared: impl FnMut(PointerKind, Pointer) -> bool,
    ) -> Result<Visited, VisitError> {
        for_each_pointer_mut(name, bytes, |kind, at| {
            let to = self.apply(kind, at)?;
            Some(if spared(kind, at) { at } else { to })
        })
    }
}

/// What pointers to a node of a tree hold whose segment `number` has left the version that the bytes
/// are for: no place, and nothing that is followed.
#[must_use]
pub fn as_gone(number: SegmentNumber) -> SegmentNumber {
    const GONE: u64 = 1 << 42;
    SegmentNumber((number.0 | GONE).min(SegmentNumber::MAX.0))
}

/// Whether the bytes of `segment` differ from member to member, where pointers hold places.
#[must_use]
pub const fn has_pointers(segment: &LevelSegment) -> bool {
    segment.points_into_logs() || segment.form.is_index()
}

/// What is wrong with segment `name`, where a visit of its pointers ended early.
pub(crate) fn level_error(name: SegmentName, error: VisitError) -> LevelError {
    match error {
        VisitError::Damaged(error) => error,
        VisitError::Unknown { .. } => {
            name.corrupt(0, "a pointer leads to a place where the region has nothing")
        }
    }
}
