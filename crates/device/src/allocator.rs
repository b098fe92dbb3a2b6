//! Who is using which segment: a count of references each, and a list of the free ones.
//!
//! A segment is *used* (referred to), *freed* (nobody refers to it any more, and it still takes room beneath), *free*
//! (it takes none), or *leaving*: its space is being given back, and then it is free. During recovery references are
//! counted as they are found; [`Allocator::finish_recovery`] makes everything else free. Segment 0
//! is always used.
//!
//! A segment is *quarantined* if it takes room beneath, nobody is known to refer to it, and a region that cannot be
//! read might. It counts as freed, but is used last, and only then gives its space back. Such a region may also name
//! segments to which nothing was written: while some are quarantined, the free ones are used from the end.
//!
//! Only free segments are handed out. They read as zeros, so nobody takes bytes of a former owner for the damaged end
//! of a log. They are a stack: the segment that came back last is used first, so a file stays compact. If only freed
//! segments are left, the [store](crate::Store) gives back the space of one at once.

use std::collections::VecDeque;

use argosy_base::DeviceSegment;

/// What a segment is wanted for, the dispensable first. Each may take what the ones before it have
/// to leave, so that a device that is full for writers still has room for what empties it:
///
/// ```text
/// free segments  0 ... R/16 ... R/8 ... 3R/8 ... R/2 ... 3R/4 ... R ...
///  Metadata      ├──────┼────────┼───────┼────────┼────────┼──────┼────
///  Pack                 ├────────┼───────┼────────┼────────┼──────┼────
///  Merge                         ├───────┼────────┼────────┼──────┼────
///  Flush                                 ├────────┼────────┼──────┼────
///  Opening                                        ├────────┼──────┼────
///  Log                                                     ├──────┼────
///  Write                                                          ├────
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// New data. It stops when only the reserve is left.
    Write,
    /// A log, without which a region takes no deletes.
    Log,
    /// The only segment of a recovery log, where it would hold all that is not in the levels:
    /// without it a region takes no write at all, not even one that would free space.
    Opening,
    /// The output of a flush, which lets the log go.
    Flush,
    /// The output of a merge, which frees more than it takes in the end.
    Merge,
    /// The output of a merge of short segments into fewer: it frees more than it takes at once.
    Pack,
    /// A manifest, without which nothing can be freed.
    Metadata,
}

impl Purpose {
    /// Of `reserve` segments, how many it leaves to others.
    pub(crate) const fn keeps(self, reserve: u32) -> u32 {
        match self {
            Self::Write => reserve,
            Self::Log => reserve - reserve / 4,
            Self::Opening => reserve / 2,
            Self::Flush => reserve / 8 * 3,
            Self::Merge => reserve / 8,
            Self::Pack => reserve / 16,
            Self::Metadata => 0,
        }
    }
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    references: Vec<u32>,
    free: Vec<DeviceSegment>,
    /// What was freed first in front.
    freed: VecDeque<DeviceSegment>,
    quarantined: Vec<DeviceSegment>,
    /// How often a segment was freed or taken.
    changes: u64,
    recovering: bool,
    used: u32,
    reserve: u32,
}

impl Allocator {
    /// `segments` segments of which nothing is known but that segment 0 is used; `reserve` of the
    /// free ones are handed out only to the purposes that may use the reserve.
    pub(crate) fn recovering(segments: u32, reserve: u32) -> Self {
        let mut references = vec![0; segments as usize];
        references[0] = 1;
        Self {
            references,
            free: Vec::new(),
            freed: VecDeque::new(),
            quarantined: Vec::new(),
            changes: 0,
            recovering: true,
            used: 1,
            reserve,
        }
    }

    /// Counts one more reference that recovery has found. False where there is no such segment.
    #[must_use]
    pub(crate) fn claim(&mut self, segment: DeviceSegment) -> bool {
        assert!(self.recovering, "segments are claimed during recovery");
        match self.references.get_mut(segment.0 as usize) {
            Some(count) if segment.0 != 0 => {
                self.used += u32::from(*count == 0);
                *count += 1;
                true
            }
            _ => false,
        }
    }

    /// Whether recovery has yet to end.
    pub(crate) const fn is_recovering(&self) -> bool {
        self.recovering
    }

    /// Makes everything free that was not claimed.
    pub(crate) fn finish_recovery(&mut self) {
        assert!(self.recovering, "recovery ends once");
        self.recovering = false;
        // The lowest is handed out first.
        let segments = (0..self.total()).rev().map(DeviceSegment);
        let free: Vec<_> = segments.filter(|s| self.references(*s) == 0).collect();
        self.free = free;
    }

    /// A free segment with one reference, if there is one that may be used for `purpose`. No more than
    /// `beneath` of the free and freed ones count: for the others the file system has no room.
    pub(crate) fn allocate(&mut self, purpose: Purpose, beneath: u32) -> Option<DeviceSegment> {
        assert!(
            !self.recovering,
            "nothing is allocated before recovery has ended"
        );
        if self.free().min(beneath) <= purpose.keeps(self.reserve) {
            return None;
        }
        let segment = self.free.pop()?;
        self.changes += 1;
        let count = &mut self.references[segment.0 as usize];
        assert_eq!(*count, 0, "a free segment is not referred to");
        *count = 1;
        self.used += 1;
        Some(segment)
    }

    /// One more reference to a segment in use.
    pub(crate) fn retain(&mut self, segment: DeviceSegment) {
        let count = &mut self.references[segment.0 as usize];
        assert!(*count > 0, "{segment} is not in use");
        *count += 1;
    }

    /// One reference less. If it was the last one the segment is freed.
    pub(crate) fn release(&mut self, segment: DeviceSegment) {
        assert!(segment.0 != 0, "segment 0 is always used");
        let count = &mut self.references[segment.0 as usize];
        assert!(*count > 0, "{segment} is not in use");
        *count -= 1;
        if *count == 0 {
            self.used -= 1;
            self.changes += 1;
            // What recovery frees is found at its end.
            if !self.recovering {
                self.freed.push_back(segment);
            }
        }
    }

    /// Takes the segment that was freed first: it is leaving, and nobody's until it is
    /// [given back](Self::give_back).
    pub(crate) fn take_freed(&mut self) -> Option<DeviceSegment> {
        self.freed.pop_front()
    }

    /// The same of one that is quarantined.
    pub(crate) fn take_quarantined(&mut self) -> Option<DeviceSegment> {
        self.quarantined.pop()
    }

    /// Makes a leaving segment free.
    pub(crate) fn give_back(&mut self, segment: DeviceSegment) {
        assert_eq!(
            self.references[segment.0 as usize], 0,
            "{segment} is in use"
        );
        self.free.push(segment);
    }

    /// These segments, by rising number, take room beneath: the free ones among them count as freed.
    pub(crate) fn are_written(&mut self, written: &[DeviceSegment]) {
        let is_written = |segment: &DeviceSegment| written.binary_search(segment).is_ok();
        let (freed, free) = self.free.iter().partition(|segment| is_written(segment));
        self.free = free;
        let freed: Vec<DeviceSegment> = freed;
        self.freed.extend(freed);
    }

    /// Quarantines all freed segments.
    pub(crate) fn quarantine(&mut self) {
        self.quarantined.extend(self.freed.drain(..));
        self.free.sort_unstable();
    }

    /// All quarantined segments are freed ones.
    pub(crate) fn end_quarantine(&mut self) {
        self.freed.extend(self.quarantined.drain(..));
        self.free.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Segments that nobody uses, but that take room beneath, without those that are quarantined.
    pub(crate) fn freed(&self) -> usize {
        self.freed.len()
    }

    /// Segments that are quarantined.
    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    /// Whether only freed and quarantined segments are left.
    pub(crate) fn lacks_free(&self) -> bool {
        self.free.is_empty() && self.freed.len() + self.quarantined.len() > 0
    }

    /// How often a segment was freed or taken.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// References to `segment`; 0 where it is free or does not exist.
    pub(crate) fn references(&self, segment: DeviceSegment) -> u32 {
        let count = self.references.get(segment.0 as usize);
        count.copied().unwrap_or(0)
    }

    /// Segments in use, segment 0 included.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Segments that may be taken.
    pub(crate) fn free(&self) -> u32 {
        let free = self.free.len() + self.freed.len() + self.quarantined.len();
        u32::try_from(free).expect("no more than there are segments")
    }

    /// The free segments that are kept back.
    pub(crate) const fn reserve(&self) -> u32 {
        self.reserve
    }

    /// All segments.
    pub(crate) fn total(&self) -> u32 {
        u32::try_from(self.references.len()).expect("built from a u32")
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
