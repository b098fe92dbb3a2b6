//! Pointers that hold places: what [`AddressMode::Rewrite`] asks of a member.
//!
//! A pointer inside a level segment is 64 bits: the segment that it leads to in the high 43, the
//! byte in it in the low 21. In [`AddressMode::Logical`] the high bits are the segment's *number*,
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
//! The checksum of a whole segment, as edits state it, is that of the bytes as they were first
//! built: a member that rewrote has other bytes. What it has is verified by the checksums inside the
//! segment. Segments without pointers are equal everywhere.
//!
//! A place is only believed while the segment whose place it is lives: a level segment that points
//! into a log segment is in no version without it.

use argosy_base::{AddressMode, DeviceSegment, Pointer, SegmentNumber};

use crate::edit::LevelSegment;
use crate::level::pointers::{PointerKind, VisitError, Visited, for_each_pointer_mut};
use crate::level::{LevelError, SegmentName};
use crate::version::Version;

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

/// Which high bits take the place of which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Sorted by what is replaced.
    logs: Vec<(SegmentNumber, SegmentNumber)>,
}

impl Translation {
    /// Replaces the first of each pair by the second in pointers into the large log.
    pub(crate) fn new(mut logs: Vec<(SegmentNumber, SegmentNumber)>) -> Self {
        logs.sort_unstable();
        Self { logs }
    }

    /// `at` with the other high bits; `None` where these are not known.
    #[inline]
    fn apply(&self, kind: PointerKind, at: Pointer) -> Option<Pointer> {
        let known = match kind {
            PointerKind::Log => &self.logs,
            // No tree is built where pointers hold places.
            PointerKind::Child => return None,
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
        mut spared: impl FnMut() -> bool,
    ) -> Result<Visited, VisitError> {
        for_each_pointer_mut(name, bytes, |kind, at| {
            let to = self.apply(kind, at)?;
            Some(if spared() { at } else { to })
        })
    }
}

/// The name of `segment`, as `version`'s region knows it.
#[must_use]
pub fn name_of(version: &Version, segment: &LevelSegment) -> SegmentName {
    SegmentName {
        region: version.region(),
        number: segment.number,
        epoch: segment.epoch,
    }
}

/// Puts segment numbers in place of this member's places in `bytes`, which are all bytes of segment
/// `number` of `version` as they lie on the device: the form in which they go to other members, and
/// in which members' bytes are equal. Nothing is done where pointers hold numbers already, or where
/// `number` is no level segment.
///
/// # Errors
/// The bytes are damaged, or a pointer leads to a place where `version` has nothing.
pub fn translate_out(
    version: &Version,
    number: SegmentNumber,
    bytes: &mut [u8],
) -> Result<(), LevelError> {
    if version.addresses() == AddressMode::Logical {
        return Ok(());
    }
    let Some(entry) = version.level_segment(number) else {
        return Ok(());
    };
    if !has_pointers(&entry.segment) {
        return Ok(());
    }
    let name = name_of(version, &entry.segment);
    let visited = for_each_pointer_mut(name, bytes, |_, at| version.resolve(at));
    visited.map(drop).map_err(|error| level_error(name, error))
}

/// Whether the bytes of `segment` differ from member to member, where pointers hold places.
#[must_use]
pub fn has_pointers(segment: &LevelSegment) -> bool {
    !segment.log_refs.is_empty()
}

/// Whether other members can have bytes `from..to` of segment `number` of `version`: a level segment
/// whose pointers are translated goes out as a whole.
pub(crate) fn goes_out(version: &Version, number: SegmentNumber, (from, to): (u32, u32)) -> bool {
    version.addresses() == AddressMode::Logical
        || version.level_segment(number).is_none_or(|entry| {
            !has_pointers(&entry.segment) || (from, to) == (0, entry.segment.len)
        })
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
