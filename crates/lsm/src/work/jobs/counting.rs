//! What range tombstones cut off: a job that counts its pointers.
//!
//! One segment at a time, whenever no merge is under way: the edit lets the parts go and drops their pointers
//! ([`uncounted`]), so that log segments to which nothing else points go with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::SegmentNumber;
use argosy_engine::EngineError;
use argosy_log::value::reach;

use crate::compaction::uncounted;
use crate::edit::{Edit, Reference};
use crate::work::site::Site;
use crate::work::stats::Counts;
use crate::work::truncation::{LastLsns, truncate_logs};

/// What range tombstones have left of segments.
#[derive(Default)]
pub(super) struct Remains {
    /// Segments of which little is left, since the region was opened.
    pub(super) sparse: BTreeSet<SegmentNumber>,
    /// Segments whose pointers cannot be counted, since they are damaged.
    uncountable: BTreeSet<SegmentNumber>,
}

impl Remains {
    /// Segments that were damaged may be whole again.
    pub(super) fn try_again(&mut self) {
        self.uncountable.clear();
    }

    /// Counts the pointers of a segment of which a range tombstone cut parts off. What is damaged stays as it
    /// is: it keeps the log segments that it points to.
    pub(super) fn count(
        &mut self,
        site: &Site<'_>,
        lasts: &mut LastLsns,
    ) -> Result<Option<Edit>, EngineError> {
        let head = Arc::clone(site.storage.head());
        let uncounted = head.uncounted();
        self.uncountable
            .retain(|number| uncounted.contains_key(number));
        let mut numbers = uncounted.keys();
        let Some(number) = numbers.find(|number| !self.uncountable.contains(*number)) else {
            return Ok(None);
        };
        let mut edit = site.storage.next_edit(site.epoch);
        let beyond = site.settings.mutants.count_out_of_bounds();
        if let Err(error) = uncounted::edit_of(&head, *number, beyond, &mut edit) {
            let error = error.into();
            if site.storage.damages().note(&head, &error).is_none() {
                return Err(error);
            }
            self.uncountable.insert(*number);
            return Ok(None);
        }
        let reach = reach(site.settings.layout.segment_bytes);
        truncate_logs(&head, reach, lasts, &mut edit);
        Counts::add(&site.counts.segments_counted, 1);
        Ok(Some(edit))
    }
}

/// The planted mistake `count_twice`: drops once more what a merge dropped that was given up.
pub(crate) fn count_again(
    references: &mut Vec<Reference>,
    before: impl Iterator<Item = Reference>,
) {
    for counted in before {
        match references.binary_search_by_key(&counted.number, |again| again.number) {
            Ok(at) => references[at].dropped += counted.dropped,
            Err(at) => references.insert(at, counted),
        }
    }
}
