//! What jobs do about a device that is full or nearly full: which of them may begin, and what they may use
//! ([`space`](crate::work::space)).

use std::time::Duration;

use argosy_base::{EditSeq, Instant};
use argosy_device::{Purpose, Room};

use super::{Jobs, Wish};
use crate::compaction::medium::{MediumExtent, is_apart};
use crate::compaction::values::{Apart, Values};
use crate::memtable::Memtable;
use crate::names::logs::LOGS;
use crate::storage::Storage;
use crate::work::site::Site;

impl Jobs {
    /// Whether a flush of `table` may begin: there is room for its bytes, an eighth for indexes and
    /// filters, and the last segment, which is not full. That is a bound and no measure; where
    /// nothing else can make room it is tried all the same. On a full device what frees more
    /// goes first: merges, as long as they find room, unless the flush lets a long log go.
    pub(crate) fn may_flush(&self, table: &Memtable, storage: &Storage) -> bool {
        let merging = self.compaction.is_some();
        let space = &self.space;
        let bytes = table.used_bytes();
        let settings = storage.settings();
        let segments = (bytes + bytes / 8) / settings.segment_bytes + 1;
        let shape = settings.compaction.shape(!space.is_full());
        let segments = segments + shape.index_segments(segments);
        let head = storage.head();
        let logs = LOGS.iter().flat_map(|log| head.log(*log));
        let sealed = logs.filter(|entry| entry.segment.end.is_some()).count();
        let wins = sealed > segments;
        if space.is_full() && !wins && (merging || !self.at_rest && space.narrower == 0) {
            return false;
        }
        space.may_begin() && (self.is_alone() || space.room_for(Purpose::Flush) >= segments)
    }

    /// Whether nothing but a flush can make room.
    const fn is_alone(&self) -> bool {
        self.at_rest && self.compaction.is_none()
    }

    /// Where a flush of `bytes` puts medium values. A device that is nearly full has no room for segments
    /// beside those of the run.
    pub(crate) fn flushed_values(&self, site: &Site<'_>, bytes: usize) -> Values {
        let extent = MediumExtent::of(site.storage.head(), site.settings);
        let apart = is_apart(site.settings, &extent)
            && self.space.is_ample(bytes, site.settings.segment_bytes);
        match apart {
            true => Values::Apart(Apart::new(site.settings.small_bytes)),
            false => Values::Stay,
        }
    }

    /// How many bytes a merge may write whose purpose is that the medium log becomes shorter; `None`
    /// while it need not.
    pub(crate) fn drain_bytes(&self, site: &Site<'_>) -> Option<u64> {
        let over = MediumExtent::of(site.storage.head(), site.settings).is_over();
        let wanted = over
            || self.wishes.has(Wish::Collect)
            || self.space.is_full()
            || self.paid.values_are_due();
        wanted.then(|| self.space.write_bytes(site.settings.segment_bytes))
    }

    /// What a flush may use: the room that is kept for merges only where there are none.
    pub(crate) const fn flush_purpose(&self) -> Purpose {
        if self.is_alone() {
            Purpose::Merge
        } else {
            Purpose::Flush
        }
    }

    /// Takes note of the least room that a device of the group has, and of whether one is full.
    /// Returns whether that has changed.
    pub(crate) fn note_room(&mut self, now: Instant, least: Room, full: bool) -> bool {
        let changed = self.space.note(now, least, full);
        if changed {
            self.at_rest = false;
        }
        changed
    }

    /// Takes note of the last edit that every member has applied.
    pub(crate) fn note_applied(&mut self, everywhere: EditSeq) {
        self.space.note_ahead(self.last_edit > everywhere);
    }

    /// On a full device: whether a pass over everything that may free space should begin now, with
    /// the flush of a memtable that is not full. `frozen` says whether one waits already.
    pub(crate) fn wants_pass(&mut self, now: Instant, interval: Duration, frozen: bool) -> bool {
        self.is_idle() && !frozen && self.space.wants_pass(now, interval)
    }

    /// The pass has begun.
    pub(crate) fn pass_begun(&mut self, now: Instant) {
        self.space.pass_begun(now);
    }

    /// The flush found no room.
    pub(crate) fn give_up_flush(&mut self, storage: &mut Storage) {
        self.abandon_flush(storage);
        self.space.give_up();
    }

    /// The compaction found no room: the next one is narrower.
    pub(crate) fn give_up_compaction(&mut self, storage: &mut Storage) {
        if let Some(compaction) = &self.compaction {
            let written = compaction.build.outputs().len();
            let end = compaction.end.clone();
            self.space.found_none(end, compaction.why.packs(), written);
        }
        self.abandon_compaction(storage);
        self.space.give_up();
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
