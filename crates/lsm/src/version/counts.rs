//! What an edit does to the counts of pointers, and to the parts of level segments that nobody has counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{KeyRange, LogKind, SegmentNumber};

use super::apply::{EditError, Step};
use super::{LevelEntry, Uncounted};
use crate::edit::{Edit, LevelSegment, MEDIUM_LOG, UNCOUNTED};
use crate::level::Form;
use crate::storage::StoredSegment;

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

    /// Keeps a part of a level segment that the edit removes or clips, or that a checkpoint states, until
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
        let clipped = || {
            self.edit
                .clipped
                .iter()
                .any(|(place, _)| place.number == number)
        };
        let (in_level, stored) = match before {
            Some(before) => before,
            None if self.placed.contains_key(&number) || clipped() => {
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
            self.next.log_uses.insert(number, used);
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
        let logs = self.edit.logs_removed.iter().map(|(_, number)| *number);
        let counted = self.edit.references.iter().map(|touched| touched.number);
        let touched: BTreeSet<_> = counted.chain(added).chain(removed).chain(logs).collect();
        for number in touched {
            let live = self.next.log_refs(number);
            let log = self.next.log_segment(number).map(|entry| entry.segment.log);
            let is_medium = self.next.medium.contains_key(&number);
            let unused = is_medium && live == 0;
            self.ensure(!unused, "nothing points into a medium segment", number)?;
            let held = is_medium || log == Some(LogKind::Large);
            let known = held || self.next.is_evacuated(number) || live == 0;
            self.ensure(
                known,
                "a level points into a log segment that is gone",
                number,
            )?;
            if live == 0 && !held {
                self.next.log_uses.remove(&number);
            }
        }
        Ok(())
    }
}
