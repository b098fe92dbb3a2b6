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

use std::sync::Arc;

use argosy_base::{AddressMode, DeviceSegment, Pointer, SegmentNumber};

use crate::edit::LevelSegment;
use crate::level::pointers::{PointerKind, VisitError, Visited, for_each_pointer_mut};
use crate::names::{LevelError, SegmentName};
use crate::segments::StoredSegment;
use crate::shared::Map;

/// What the address mode of a region decides. No other module compares modes.
pub(crate) trait Addressing: Copy {
    /// Whether pointers hold places.
    fn hold_places(self) -> bool;

    /// Whether a log segment may be removed while levels still hold pointers to it, all of them shadowed. Where
    /// pointers hold places, another segment may take its place.
    fn evacuates(self) -> bool {
        !self.hold_places()
    }

    /// Whether the bytes of `segment` differ from member to member.
    fn rewrites(self, segment: &LevelSegment) -> bool {
        self.hold_places() && has_pointers(segment)
    }

    /// The high bits of pointers to `stored`.
    fn high_bits(self, stored: &StoredSegment) -> SegmentNumber {
        match self.hold_places() {
            false => stored.number(),
            true => as_high_bits(stored.place()),
        }
    }

    /// The one of `all`, sorted by number, to which pointers with the high bits `high` lead.
    fn find<T>(
        self,
        high: SegmentNumber,
        all: &[T],
        stored: impl Fn(&T) -> &StoredSegment,
    ) -> Option<&T> {
        match self.hold_places() {
            false => {
                let found = all.binary_search_by_key(&high, |one| stored(one).number());
                found.ok().map(|at| &all[at])
            }
            true => (all.iter()).find(|one| as_high_bits(stored(one).place()) == high),
        }
    }

    /// The numbers and places of these log segments, by which other members rewrite pointers to them. Empty where
    /// pointers hold numbers.
    fn log_map<'s>(
        self,
        logs: impl Iterator<Item = &'s Arc<StoredSegment>>,
    ) -> Vec<(SegmentNumber, DeviceSegment)> {
        let place = |stored: &Arc<StoredSegment>| (stored.number(), stored.place());
        match self.hold_places() {
            false => Vec::new(),
            true => logs.map(place).collect(),
        }
    }

    /// The version from which a segment is read for another member: the present or a pinned one. The pinned one comes
    /// first where pointers hold places, since it has what its pointers lead to.
    fn sender<T>(self, present: Option<T>, pinned: impl FnOnce() -> Option<T>) -> Option<T> {
        match self.hold_places() {
            false => present.or_else(pinned),
            true => pinned().or(present),
        }
    }

    /// How a memtable's pointers become those of its run.
    fn of_flush(self) -> Pointers {
        match self.hold_places() {
            false => Pointers::Numbers,
            true => Pointers::ToPlaces,
        }
    }

    /// How the pointers of levels become those of other levels.
    fn of_compaction(self) -> Pointers {
        match self.hold_places() {
            false => Pointers::Numbers,
            true => Pointers::Places,
        }
    }
}

impl Addressing for AddressMode {
    fn hold_places(self) -> bool {
        self == Self::Rewrite
    }
}

/// How the pointers of a build's source become those of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointers {
    /// Both hold segment numbers.
    Numbers,
    /// The source, a memtable, holds numbers, and the outputs places.
    ToPlaces,
    /// Both hold places.
    Places,
}

impl Pointers {
    /// Whether the outputs hold places.
    pub(crate) fn hold_places(self) -> bool {
        self != Self::Numbers
    }

    /// Whether numbers become places.
    pub(crate) fn turn(self) -> bool {
        self == Self::ToPlaces
    }

    /// The high bits of the outputs' pointers to `stored`.
    pub(crate) fn high_bits(self, stored: &StoredSegment) -> SegmentNumber {
        match self.hold_places() {
            false => stored.number(),
            true => as_high_bits(stored.place()),
        }
    }
}

/// Segments by place, where pointers hold places; otherwise empty.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    mode: AddressMode,
    numbers: Map<DeviceSegment, SegmentNumber>,
}

impl Places {
    /// None yet, of a region whose pointers hold what `mode` says.
    pub(crate) fn new(mode: AddressMode) -> Self {
        Self {
            mode,
            numbers: Map::default(),
        }
    }

    pub(crate) const fn mode(&self) -> AddressMode {
        self.mode
    }

    /// Adds `stored`.
    pub(crate) fn insert(&mut self, stored: &StoredSegment) {
        if self.mode.hold_places() {
            self.numbers.insert(stored.place(), stored.number());
        }
    }

    /// Removes `stored`, unless another segment has taken its place.
    pub(crate) fn remove(&mut self, stored: &StoredSegment) {
        if self.number_at(stored.place()) == Some(stored.number()) {
            self.numbers.remove(&stored.place());
        }
    }

    /// The segment that lies in `place`.
    fn number_at(&self, place: DeviceSegment) -> Option<SegmentNumber> {
        self.numbers.get(&place).copied()
    }

    /// The pointer `at`, with the segment's number in it.
    #[inline]
    pub(crate) fn resolve(&self, at: Pointer) -> Option<Pointer> {
        match self.mode.hold_places() {
            false => Some(at),
            true => Some(Pointer::new(self.number_at(place_in(at)?)?, at.offset())),
        }
    }

    /// The high bits of pointers to segment `number`. `stored` says where it lies, if that is known.
    pub(crate) fn high_bits(
        &self,
        number: SegmentNumber,
        stored: Option<&Arc<StoredSegment>>,
    ) -> Option<SegmentNumber> {
        match self.mode.hold_places() {
            false => Some(number),
            true => Some(as_high_bits(stored?.place())),
        }
    }

    /// Whether they are exactly the segments of `table`, or none where pointers hold numbers.
    pub(crate) fn are_those_of(&self, table: &Map<SegmentNumber, Arc<StoredSegment>>) -> bool {
        let wanted = match self.mode.hold_places() {
            false => 0,
            true => table.len(),
        };
        let mut places = self.numbers.iter();
        self.numbers.len() == wanted
            && places.all(|(place, number)| {
                let stored = table.get(number);
                stored.is_some_and(|stored| stored.place() == *place)
            })
    }
}

/// The place that `at` holds, where pointers hold places.
#[must_use]
pub(crate) fn place_in(at: Pointer) -> Option<DeviceSegment> {
    u32::try_from(at.segment().0).ok().map(DeviceSegment)
}

/// `place`, as the high bits of a pointer hold it.
#[must_use]
pub(crate) const fn as_high_bits(place: DeviceSegment) -> SegmentNumber {
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
pub(crate) fn as_gone(number: SegmentNumber) -> SegmentNumber {
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
