//! Counts the pointers into logs that a build adds to the levels, and those that it drops from them.
//!
//! ```text
//! flush    source: a memtable      what is written with a pointer is added
//! merge    source: levels          what is shadowed, expired or put in place is dropped;
//!                                  a pointer that passes from one level segment to another is neither
//! ```
//!
//! Counts belong to the build: when that is given up, they are gone with it, and when it is done its edit
//! carries them, by log segment ([`Edit::references`](crate::edit::Edit::references)). So a pointer is
//! counted once, by the edit that names the segments without it.
//!
//! Bounded by the build: one entry for each log segment of which it adds or drops a pointer.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Pointer, SegmentNumber};

use crate::edit::Reference;
use crate::merge::Source;
use crate::version::Version;

/// Bytes of keys and values behind pointers that came and went.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    added: u64,
    dropped: u64,
}

/// Bytes of keys and values behind the pointers of one level segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pointed {
    /// Those into the large log.
    pub(super) large_bytes: u64,
    /// Those into the medium log.
    pub(super) medium_bytes: u64,
}

/// What a pair of the source became.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// Bytes of its key.
    pub(super) key_len: usize,
    /// Its pointer in the source, and the bytes of the value.
    pub(super) before: Option<(Pointer, u32)>,
    /// Its pointer as it was written, if one was.
    pub(super) after: Option<(Pointer, u32)>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct PointerCounts {
    /// The version whose levels the source is; `None`: none of the source's pointers is counted yet.
    levels: Option<Arc<Version>>,
    /// By the high bits of pointers.
    changes: BTreeMap<SegmentNumber, Change>,
    /// Of the segment that is being filled.
    segment: Pointed,
    /// A planted mistake: a pointer that is not written counts as added.
    unwritten: bool,
}

impl PointerCounts {
    /// Counts a merge of levels of `version`.
    pub(super) fn of_levels(version: Arc<Version>) -> Self {
        Self {
            levels: Some(version),
            ..Self::default()
        }
    }

    /// Plants the mistake `count_unwritten`.
    pub(super) const fn count_unwritten(&mut self, planted: bool) {
        self.unwritten = planted;
    }

    /// The source's present pair was written like this, or left out.
    #[inline]
    pub(super) fn passed(&mut self, pair: Passed) {
        if pair.before.is_none() && pair.after.is_none() {
            return;
        }
        let bytes = |value_len: u32| pair.key_len as u64 + u64::from(value_len);
        if let Some((at, value_len)) = pair.after {
            let bytes = bytes(value_len);
            match self.is_medium(at, pair.before.is_some()) {
                true => self.segment.medium_bytes += bytes,
                false => self.segment.large_bytes += bytes,
            }
        }
        let stays = self.levels.is_some() && pair.before == pair.after;
        if stays {
            return;
        }
        let unwritten = pair
            .before
            .filter(|_| self.unwritten && self.levels.is_none());
        if let Some((at, value_len)) = pair.after.or(unwritten) {
            self.changes.entry(at.segment()).or_default().added += bytes(value_len);
        }
        if let Some((at, value_len)) = pair.before.filter(|_| self.levels.is_some()) {
            self.dropped(at.segment(), bytes(value_len));
        }
    }

    /// Whether `at` leads into the medium log. What a flush puts there was no pointer before.
    fn is_medium(&self, at: Pointer, was_pointer: bool) -> bool {
        let Some(version) = &self.levels else {
            return !was_pointer;
        };
        let medium = version.medium_log();
        !medium.is_empty()
            && version
                .resolve(at)
                .is_some_and(|at| medium.contains_key(&at.segment()))
    }

    fn dropped(&mut self, high: SegmentNumber, bytes: u64) {
        self.changes.entry(high).or_default().dropped += bytes;
    }

    /// A segment is finished. Returns what its pointers lead to.
    pub(super) const fn end_segment(&mut self) -> Pointed {
        std::mem::replace(
            &mut self.segment,
            Pointed {
                large_bytes: 0,
                medium_bytes: 0,
            },
        )
    }

    /// All changes, once the build is done, with what was shadowed in `source`. `number_of` tells the
    /// numbers of the segments that high bits of pointers stand for.
    ///
    /// # Errors
    /// The high bits that it has no number for.
    pub(super) fn references(
        &mut self,
        source: &mut dyn Source,
        number_of: impl Fn(SegmentNumber) -> Option<SegmentNumber>,
    ) -> Result<Vec<Reference>, SegmentNumber> {
        source.take_shadowed(&mut |high, bytes| self.dropped(high, bytes));
        let mut changes: BTreeMap<SegmentNumber, Change> = BTreeMap::new();
        for (high, change) in &self.changes {
            let sum = changes.entry(number_of(*high).ok_or(*high)?).or_default();
            sum.added += change.added;
            sum.dropped += change.dropped;
        }
        let reference = |(number, change): (SegmentNumber, Change)| Reference {
            number,
            added: change.added,
            dropped: change.dropped,
        };
        Ok(changes.into_iter().map(reference).collect())
    }
}
