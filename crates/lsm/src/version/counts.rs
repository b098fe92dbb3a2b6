//! What an edit does to the counts of pointers, and to the parts of level segments that nobody has counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{KeyRange, SegmentNumber};

use super::apply::{EditError, Step};
use super::{LevelEntry, Uncounted, Version};
use crate::edit::{Edit, LevelSegment, MEDIUM_LOG, UNCOUNTED};
use crate::names::Form;
use crate::names::logs::LARGE_LOG;
use crate::segments::StoredSegment;
use crate::shared::Map;

/// What happens to a level segment of which the edit keeps parts uncounted.
#[derive(Default)]
pub(super) struct CutOff {
    /// The keys for which it stood; none in a checkpoint.
    pub(super) before: Vec<KeyRange>,
    /// Those for which it stands afterwards.
    pub(super) left: Vec<KeyRange>,
}

/// The level segments of which `edit` keeps parts uncounted.
pub(super) fn cut_off(edit: &Edit) -> BTreeMap<SegmentNumber, CutOff> {
    let added = edit.added.iter();
    let parts = added.filter(|(level, _, _)| *level == UNCOUNTED);
    parts
        .map(|(_, _, part)| (part.number, CutOff::default()))
        .collect()
}

/// Bytes of keys and values in one segment of the large or the medium log to which pointers of levels lead.
///
/// Invariant, recounted by `inspect verify` and the simulator: `total - dropped` is the sum over all
/// pointers into the segment that level segments hold inside of the ranges for which they stand, and that
/// [uncounted](Version::uncounted) parts hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogUse {
    /// Of all pointers that ever came into the levels.
    pub total: u64,
    /// Of those that have left them.
    pub dropped: u64,
}

impl LogUse {
    /// Bytes that pointers lead to now.
    #[must_use]
    pub const fn live(self) -> u64 {
        self.total.saturating_sub(self.dropped)
    }
}

/// What is known of the pointers into logs.
#[derive(Clone, Debug, Default)]
pub(super) struct LogUses {
    /// By segment of the large or the medium log. 24 bytes each, and one for each 2 MiB of large values.
    pub(super) uses: Map<SegmentNumber, LogUse>,
    /// What these add up to.
    pub(super) sums: LogRefs,
    /// Segments of the large log into which no level points.
    pub(super) unreferenced: Map<SegmentNumber, ()>,
}

/// Bytes of keys and values to which pointers of levels lead, by what they lead into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogRefs {
    /// Segments of the large log.
    pub(super) large: u64,
    /// Segments of the medium log.
    pub(super) medium: u64,
    /// Segments that are gone.
    pub(super) evacuated: u64,
}

/// Sums wrap around: an edit may say anything.
impl LogRefs {
    const fn with(self, other: Self) -> Self {
        Self {
            large: self.large.wrapping_add(other.large),
            medium: self.medium.wrapping_add(other.medium),
            evacuated: self.evacuated.wrapping_add(other.evacuated),
        }
    }

    const fn without(self, other: Self) -> Self {
        Self {
            large: self.large.wrapping_sub(other.large),
            medium: self.medium.wrapping_sub(other.medium),
            evacuated: self.evacuated.wrapping_sub(other.evacuated),
        }
    }
}

impl Version {
    /// Those into segment `number`.
    pub(super) fn refs_into(&self, number: SegmentNumber) -> LogRefs {
        let live = self.log_refs(number);
        let mut refs = LogRefs::default();
        if self.medium.segments().contains_key(&number) {
            refs.medium = live;
        } else if self.is_evacuated(number) {
            refs.evacuated = live;
        } else {
            refs.large = live;
        }
        refs
    }

    /// All of them, gone through.
    pub(super) fn refs_of_all(&self) -> LogRefs {
        let all = self
            .pointers
            .uses
            .keys()
            .map(|number| self.refs_into(*number));
        all.fold(LogRefs::default(), LogRefs::with)
    }
}

impl Step<'_> {
    /// Where segment `number` is stored, which comes into a level. Parts of it may be uncounted.
    pub(super) fn take_for_level(
        &mut self,
        number: SegmentNumber,
    ) -> Result<Arc<StoredSegment>, EditError> {
        let apart = self.next.uncounted.get(&number);
        let Some(rest) = apart.filter(|rest| !rest.in_level) else {
            return self.take(number);
        };
        let mut rest = rest.clone();
        rest.in_level = true;
        let stored = Arc::clone(&rest.parts[0].stored);
        self.next.uncounted.insert(number, rest);
        Ok(stored)
    }

    /// Keeps a part of a level segment that the edit removes or trims, or that a checkpoint states, until
    /// its pointers are counted.
    pub(super) fn add_uncounted(&mut self, segment: &LevelSegment) -> Result<(), EditError> {
        let number = segment.number;
        let fits = matches!(segment.form, Form::SelfContained | Form::Leaves)
            && segment.points_into_logs();
        self.ensure(fits, "it has no pointers that could be counted", number)?;
        let range = &segment.range;
        let cut = &self.cut[&number];
        let within = |whole: &KeyRange| whole.intersection(range) == *range;
        let was_seen = self.edit.checkpoint || cut.before.iter().any(within);
        let seen = cut.left.iter().any(|left| left.overlaps(range));
        self.ensure(was_seen && !seen, "a part is not cut off", number)?;
        let before = self.next.uncounted.get(&number);
        let mut parts = before.into_iter().flat_map(|rest| &rest.parts);
        let twice = parts.any(|part| part.segment.range.overlaps(range));
        self.ensure(!twice, "a part is cut off twice", number)?;
        let before = before.map(|rest| (rest.in_level, Arc::clone(&rest.parts[0].stored)));
        let trimmed = || {
            self.edit
                .bounds
                .iter()
                .any(|(place, _)| place.number == number)
        };
        let (in_level, stored) = match before {
            Some(before) => before,
            None if self.placed.contains_key(&number) || trimmed() => {
                let stored = self.next.stored(number).cloned();
                (true, stored.ok_or(self.unfit("it is in no level", number))?)
            }
            None => (false, self.take(number)?),
        };
        let part = LevelEntry {
            segment: Arc::new(segment.clone()),
            stored,
        };
        let rest = self.next.uncounted.get(&number).cloned();
        let mut rest = rest.unwrap_or(Uncounted {
            parts: Vec::new(),
            in_level,
        });
        rest.parts.push(part);
        self.next.uncounted.insert(number, rest);
        Ok(())
    }

    /// Counts the pointers that come and go.
    pub(super) fn references(&mut self) -> Result<(), EditError> {
        let rise = self
            .edit
            .references
            .is_sorted_by(|a, b| a.number < b.number);
        self.ensure(rise, "references are not in order", SegmentNumber(0))?;
        for reference in &self.edit.references {
            let number = reference.number;
            let mut used = self.next.log_use(number);
            let total = used.total.checked_add(reference.added);
            let dropped = used.dropped.checked_add(reference.dropped);
            let sums = total
                .zip(dropped)
                .filter(|(total, dropped)| dropped <= total);
            let error = self.unfit("more pointers are dropped than there are", number);
            (used.total, used.dropped) = sums.ok_or(error)?;
            self.next.pointers.uses.insert(number, used);
        }
        Ok(())
    }

    /// Checks the log segments of which pointers came or went, and those that are new or gone.
    pub(super) fn check_references(&mut self) -> Result<(), EditError> {
        let added = self.edit.added.iter();
        let added = added.filter(|(level, _, _)| *level == MEDIUM_LOG);
        let added = added.map(|(_, _, segment)| segment.number);
        let removed = self.edit.removed.iter();
        let removed = removed.filter(|place| place.level == MEDIUM_LOG);
        let removed = removed.map(|place| place.number);
        let logs = self.edit.logs.removed.iter().map(|(_, number)| *number);
        let new = self.edit.logs.added.iter().map(|log| log.number);
        let counted = self.edit.references.iter().map(|touched| touched.number);
        let touched = counted.chain(added).chain(removed).chain(logs).chain(new);
        let touched: BTreeSet<_> = touched.collect();
        for number in touched {
            let live = self.next.log_refs(number);
            let log = self.next.log_segment(number).map(|entry| entry.segment.log);
            let is_medium = self.next.medium.segments().contains_key(&number);
            let unused = is_medium && live == 0;
            self.ensure(!unused, "nothing points into a medium segment", number)?;
            let held = is_medium || log == Some(LARGE_LOG);
            let known = held || self.next.is_evacuated(number) || live == 0;
            self.ensure(
                known,
                "a level points into a log segment that is gone",
                number,
            )?;
            if live == 0 && !held {
                self.next.pointers.uses.remove(&number);
            }
            self.sum_up(number);
        }
        Ok(())
    }

    /// Keeps what is known of all log segments in step with segment `number`, which the edit concerns.
    fn sum_up(&mut self, number: SegmentNumber) {
        let before = match self.edit.checkpoint {
            true => LogRefs::default(),
            false => self.old.refs_into(number),
        };
        let after = self.next.refs_into(number);
        let pointers = &mut self.next.pointers;
        pointers.sums = pointers.sums.without(before).with(after);
        let log = self.next.log_segment(number);
        let is_large = log.is_some_and(|entry| entry.segment.log == LARGE_LOG);
        if is_large && after.large == 0 {
            self.next.pointers.unreferenced.insert(number, ());
        } else {
            self.next.pointers.unreferenced.remove(&number);
        }
    }
}
