//! What removed ranges cut off: a job that counts its pointers, and merges that keep it short.
//!
//! One segment at a time, whenever no merge is under way: the edit lets the parts go and drops their pointers
//! ([`uncounted`]), so that log segments to which nothing else points go with it.

use std::sync::Arc;

use argosy_engine::EngineError;
use argosy_log::value::reach;

use super::{Jobs, Made, Now};
use crate::compaction::cut::{CUT_BYTES_MAX, Cut};
use crate::compaction::policy::Aim;
use crate::compaction::uncounted;
use crate::edit::{Edit, Reference};
use crate::work::site::Site;
use crate::work::stats::Counts;
use crate::work::trim::trim;

impl Jobs {
    /// Counts the pointers of a segment of which a removed range cut parts off. What is damaged stays as it
    /// is: it keeps the log segments that it points to.
    pub(crate) fn count_cut_off(&mut self, site: &Site<'_>) -> Result<Option<Edit>, EngineError> {
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

    /// Begins a merge where an edit with `cut` would name too many pieces of segments, if there is any merge that
    /// makes fewer.
    pub(crate) fn shorten(
        &mut self,
        cut: &Cut,
        site: &mut Site<'_>,
        now: &Now<'_>,
    ) -> Result<Made, EngineError> {
        let may_merge = !now.compaction_committing && self.may_merge();
        if !may_merge || cut.bytes() <= CUT_BYTES_MAX {
            return Ok(Made::Nothing);
        }
        match self.begin_compaction(site, Aim::ShortCut) {
            Ok(made) => Ok(made),
            Err(error) => self.pass_over(site.storage, error),
        }
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
