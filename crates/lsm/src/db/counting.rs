//! A job that counts the pointers of what removed ranges cut off.
//!
//! One segment at a time, whenever no merge is under way: the edit lets the parts go and drops their pointers
//! ([`uncounted`]), so that log segments to which nothing else points go with it.

use std::sync::Arc;

use argosy_engine::EngineError;

use super::jobs::Jobs;
use super::site::Site;
use super::stats::Counts;
use super::trim::{reach, trim};
use crate::compaction::uncounted;
use crate::edit::{Edit, Reference};

impl Jobs {
    /// Counts the pointers of a segment of which a removed range cut parts off. What is damaged stays as it
    /// is: it keeps the log segments that it points to.
    pub(super) fn count_cut_off(&mut self, site: &Site<'_>) -> Result<Option<Edit>, EngineError> {
        let head = Arc::clone(site.storage.head());
        let uncounted = head.uncounted();
        self.uncountable
            .retain(|number| uncounted.contains_key(number));
        let mut numbers = uncounted.keys();
        let Some(number) = numbers.find(|number| !self.uncountable.contains(*number)) else {
            return Ok(None);
        };
        let mut edit = site.storage.next_edit(site.epoch);
        let beyond = site.settings.mutants.count_clipped();
        if let Err(error) = uncounted::edit_of(&head, *number, beyond, &mut edit) {
            let error = error.into();
            if site.storage.damages().note(&head, &error).is_none() {
                return Err(error);
            }
            self.uncountable.insert(*number);
            return Ok(None);
        }
        self.last_edit = edit.seq;
        let reach = reach(site.settings.segment_bytes);
        trim(&head, reach, &mut self.lasts, &mut edit);
        Counts::add(&site.counts.segments_counted, 1);
        Ok(Some(edit))
    }
}

/// The planted mistake `count_twice`: drops once more what a merge dropped that was given up.
pub(super) fn count_again(
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
