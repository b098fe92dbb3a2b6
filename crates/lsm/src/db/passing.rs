//! How merges pass over what is damaged ([`damage`](crate::damage)), and wait for the device.

use argosy_base::{KeyRange, SegmentNumber};
use argosy_engine::EngineError;

use super::jobs::{Jobs, Made};
use super::site::Site;
use crate::compaction::medium::{MediumReads, Standing, is_in_place};
use crate::compaction::pick::{Shape, overlapping};
use crate::compaction::plan::Plan;
use crate::compaction::values::Values;
use crate::damage::Shut;
use crate::storage::Storage;

impl Jobs {
    /// Where the merge of `plan` puts medium values.
    pub(super) fn merged_values(&self, site: &Site<'_>, plan: &Plan, shut: &Shut) -> Values {
        let head = site.storage.head();
        let standing = Standing::of(head, site.settings);
        let bytes = plan.bytes() + plan.medium_bytes();
        let in_place = is_in_place(plan.target, &standing)
            && !plan.points_into(shut)
            && bytes <= self.space.write_bytes(site.settings.segment_bytes);
        match in_place.then(|| MediumReads::of(head, plan)).flatten() {
            Some(reads) => Values::InPlace(reads),
            None => Values::Stay,
        }
    }

    /// A merge ended at damage to what it reads: the next ones pass over that. Any other error stays one.
    pub(super) fn pass_over(
        &mut self,
        storage: &mut Storage,
        error: EngineError,
    ) -> Result<Made, EngineError> {
        let head = storage.head();
        let is_read = |number: &SegmentNumber| {
            head.medium_log().contains_key(number) || head.level_segment(*number).is_some()
        };
        let damages = storage.damages();
        let Some(number) = damages.note(head, &error).filter(is_read) else {
            return Err(error);
        };
        damages.shut(number);
        self.abandon_compaction(storage);
        self.at_rest = false;
        Ok(Made::Progress)
    }

    /// Blocks until a write of a job under way has ended. `false`: there is none.
    pub(super) fn wait_for_device(&self) -> Result<bool, EngineError> {
        let compaction = self.compaction.as_ref();
        if compaction.map_or(Ok(false), |it| it.build.wait_for_device())? {
            return Ok(true);
        }
        let flush = self.flush.as_ref();
        flush.map_or(Ok(false), |it| it.build.wait_for_device())
    }
}

/// The part of `range` that merges of `level` may read, around the first segment of that level in it.
pub(super) fn open_part(shape: &Shape<'_>, level: u8, range: KeyRange, shut: &Shut) -> KeyRange {
    if shut.is_empty() {
        return range;
    }
    let both = [level, level + 1].map(|level| shape.levels.get(usize::from(level) - 1));
    let firsts = both.into_iter().flatten().filter_map(|runs| {
        let firsts = runs
            .iter()
            .filter_map(|run| overlapping(run, &range).first());
        firsts
            .map(|piece| piece.range.from.clone().max(range.from.clone()))
            .min()
    });
    let first = firsts.into_iter().next();
    first.map_or_else(|| range.clone(), |first| shut.open_around(&range, &first))
}
