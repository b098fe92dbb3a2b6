//! What jobs do about damage ([`damage`](crate::damage)).
//!
//! A merge that ends there is given up with all that it counted, so that what it would have dropped counts as before,
//! and the next merges pass over the segment: its pointers keep what they lead to. What removed ranges cut off of it
//! stays uncounted. Once a segment may be whole again all of that is tried again.

use argosy_base::{KeyRange, SegmentNumber};
use argosy_device::DeviceError;
use argosy_engine::EngineError;

use super::{Jobs, Made};
use crate::compaction::medium::{MediumExtent, MediumReads, is_in_place};
use crate::compaction::pieces::Levels;
use crate::compaction::plan::MergePlan;
use crate::compaction::values::Values;
use crate::damage::Shut;
use crate::storage::Storage;
use crate::version::Version;
use crate::work::site::Site;

impl Jobs {
    /// Where the merge of `plan` puts medium values.
    pub(crate) fn merged_values(&self, site: &Site<'_>, plan: &MergePlan, shut: &Shut) -> Values {
        let head = site.storage.head();
        let extent = MediumExtent::of(head, site.settings);
        let bytes = plan.bytes() + plan.medium_bytes();
        let in_place = is_in_place(plan.target, &extent)
            && !plan.points_into(shut)
            && bytes <= self.space.write_bytes(site.settings.segment_bytes);
        match in_place.then(|| MediumReads::of(head, plan)).flatten() {
            Some(reads) => Values::InPlace(reads),
            None => Values::Stay,
        }
    }

    /// A merge ended at damage to what it reads: the next ones pass over that. Any other error stays one.
    pub(crate) fn pass_over(
        &mut self,
        storage: &mut Storage,
        error: EngineError,
    ) -> Result<Made, EngineError> {
        let head = storage.head();
        let is_read = |number: &SegmentNumber| head.finished_segment(*number).is_some();
        let damages = storage.damages();
        let Some(number) = damages.note(head, &error).filter(is_read) else {
            return Err(error);
        };
        damages.shut(number);
        self.abandon_compaction(storage);
        self.at_rest = false;
        Ok(Made::Progress)
    }

    /// Notes what was `read` of the beginning of segment `number` of `version`, of the large log: whether that is
    /// the rest of a value. Where it cannot be read it counts as that. Returns it.
    pub(crate) fn note_beginning(
        &mut self,
        storage: &Storage,
        version: &Version,
        number: SegmentNumber,
        read: Result<bool, DeviceError>,
    ) -> Result<bool, EngineError> {
        let error = match read {
            Ok(inside) => {
                self.lasts.set_inside_value(number, inside);
                return Ok(inside);
            }
            Err(error) => EngineError::from(error),
        };
        if storage.damages().note(version, &error).is_none() {
            return Err(error);
        }
        self.lasts.set_unread(number);
        Ok(true)
    }

    /// Segments that were damaged may be whole again: what was passed over is due.
    pub(crate) fn try_again(&mut self) {
        self.at_rest = false;
        self.uncountable.clear();
        self.lasts.look_again();
    }
}

/// The part of `range` that merges of `level` may read, around the first segment of that level in it. Level 0 stands
/// for L1, merged into itself.
pub(crate) fn open_part(shape: &Levels<'_>, level: u8, range: KeyRange, shut: &Shut) -> KeyRange {
    if shut.is_empty() {
        return range;
    }
    let firsts = [level, level + 1].into_iter().filter_map(|level| {
        let runs = shape.runs(level).iter();
        let firsts = runs.filter_map(|run| run.within(&range).next());
        firsts
            .map(|piece| piece.range.from.clone().max(range.from.clone()))
            .min()
    });
    let first = firsts.into_iter().next();
    first.map_or_else(|| range.clone(), |first| shut.open_around(&range, &first))
}

/// What merges pass over.
pub(crate) fn shut_in(site: &Site<'_>) -> Shut {
    match site.settings.mutants.lose_damaged() {
        true => Shut::default(),
        false => site.storage.damages().shut_in(site.storage.head()),
    }
}

/// The planted mistake `lose_damaged`: `plan` reads nothing that is damaged, and consumes it all the same.
pub(crate) fn lose_damaged(site: &Site<'_>, plan: &mut MergePlan) {
    if !site.settings.mutants.lose_damaged() {
        return;
    }
    let damaged = site.storage.damages().list();
    let is_damaged = |number| damaged.iter().any(|known| known.number == number);
    for run in &mut plan.inputs {
        run.pieces
            .retain(|piece| !is_damaged(piece.entry.segment.number));
    }
    plan.inputs.retain(|run| !run.pieces.is_empty());
}
