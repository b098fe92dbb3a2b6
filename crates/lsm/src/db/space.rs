//! What an engine does about a device that is full, so that it serves writers again by itself.
//!
//! A device is full when only the reserve is left, here or at a member of the group. Then:
//!
//! 1. Writers of new data are turned away; deletes go on, out of the reserve
//!    ([`Purpose`] says who may take how much of it).
//! 2. The active memtable is frozen although it is not full, so that its deletes reach the levels,
//!    and its log goes. While one pass is under way no other begins, and between two of them is as
//!    much time as the last one took: what a few deletes free is worth only so much work.
//! 3. Levels are merged although they are not full, as long as that may free anything
//!    ([`Policy::reclaim`](crate::compaction::pick::Policy::reclaim)).
//!    Then segments that are short are packed into fewer. Every flush may bring short ones, in a pass
//!    or not, so packing begins anew with each.
//! 4. A merge needs room for what it writes before it frees what it read. Parts are cut so narrow
//!    that they read half as many segments as there is room for, and few while the device is full.
//!    A job that finds no room all the same gives back what it has, so that another may end; the
//!    next part is half as wide, and where it cannot be, the one behind it: a part of a full segment
//!    may need two where there is room for one, while others are short. Packing, too, goes on behind
//!    what won nothing. It needs least and frees most, so it has some room of its own
//!    ([`Purpose::Pack`]): one segment is enough to pack two into it. If a whole round of parts finds no room, or
//!    there is none for merges at all, packing goes first, in any level, and goes through all of them. It may
//!    then take the last segment, which is otherwise kept for manifests: a manifest seldom needs one, and without
//!    it the device would stay full for good.
//! 5. What a member holds is what the last edit that it applied names, and what has arrived for
//!    later ones. While little is left anywhere, no flush or merge begins before every member has
//!    applied the edit of the one before. Otherwise a backup could need room for several at once, or
//!    for a checkpoint that names nothing it has, beside all that it has.
//! 6. Where levels are compacted whole, that is done only while there is room for a second copy of
//!    what is merged; otherwise, and on a full device, parts are, as above.
//!
//! What is in the large log is freed by whole segments: once no key points into one any more. Where
//! nothing else is left to be done, what lives in the emptiest of them is moved ([`super::gc`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use argosy_base::{EditSeq, Instant, LogKind};
use argosy_device::{Purpose, Room};

use super::Lsm;
use super::background::Background;
use super::jobs::Jobs;
use super::site::Site;
use super::stats::Counts;
use crate::compaction::medium::{MediumExtent, is_apart};
use crate::compaction::pick::Place;
use crate::compaction::values::{Apart, Values};
use crate::compaction::whole::index_segments;
use crate::memtable::Memtable;
use crate::settings::{Compaction as Way, FULL_PART_MAX};
use crate::storage::Storage;

/// Segments that are packed at a time, at most.
const PACK_MAX: usize = 16;

/// How often a part is halved, at most.
const NARROWER_MAX: u32 = 16;

/// Where a part of a level ends.
#[derive(Clone, Debug)]
pub(super) struct PartEnd {
    /// The level from which it is merged down. 0: L1 is packed, within itself.
    pub(super) level: u8,
    /// The key behind its last; `None` where it reaches to the end of the level.
    pub(super) key: Option<Vec<u8>>,
}

impl PartEnd {
    /// Where the next part of the level begins, if there is one.
    fn place(self) -> Option<Place> {
        let level = self.level;
        self.key.map(|key| Place { level, key })
    }

    /// Where packing of all levels continues: behind this part, or else in the level above; behind L1 nowhere.
    fn next_to_pack(self) -> Option<Place> {
        let above = (self.level > 0).then(|| Place {
            level: self.level - 1,
            key: Vec::new(),
        });
        self.place().or(above)
    }
}

/// What is known of the room, and what was done about it.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// The least room of any member; `None` before the first step.
    room: Option<Room>,
    full: bool,
    /// Up to here nothing is to be won in this pass by packing, or parts found no room although they
    /// were as narrow as can be.
    behind: Option<Place>,
    /// Packing came to the last segment and won nothing there.
    packed: bool,
    /// All parts of a level found no room, one after the other, or one found none for its first segment: packing
    /// goes first, from here on.
    pack_first: Option<Place>,
    /// How often all parts of a level found no room, one after the other, since one did.
    rounds: u32,
    /// Merges that found no room since the last that did.
    pub(super) narrower: u32,
    /// A job found no room: none is begun before this time.
    retry: Option<Instant>,
    /// When the pass under way began, with the memtable that it froze.
    pass: Option<Instant>,
    /// No pass begins before.
    next_pass: Option<Instant>,
    now: Instant,
    /// The edit of the last job is not applied by every member.
    ahead: bool,
}

impl Space {
    /// Whether there is none for new data.
    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    /// The least room of any member, as far as it is known.
    pub(super) const fn least_room(&self) -> Option<Room> {
        self.room
    }

    /// Segments that may be taken for `purpose`, at each member.
    pub(super) fn room_for(&self, purpose: Purpose) -> usize {
        let room = self.room.map(|room| room.for_purpose(purpose));
        room.map_or(usize::MAX, |segments| segments as usize)
    }

    /// Whether a merge or a flush may begin.
    pub(super) fn may_begin(&self) -> bool {
        self.retry.is_none_or(|at| at <= self.now) && !(self.ahead && self.is_little())
    }

    /// Whether little is left anywhere: less than twice what is kept from writers.
    fn is_little(&self) -> bool {
        let little = |room: Room| room.free <= 2 * room.reserve;
        self.full || self.room.is_some_and(little)
    }

    /// Whether a flush of `bytes` may write as many segments again beside those of the run: medium segments
    /// are not full where each ends with a leaf segment.
    pub(super) fn is_ample(&self, bytes: usize, segment_bytes: usize) -> bool {
        let segments = (bytes + bytes / 8) / segment_bytes + 2;
        !self.full && self.room_for(Purpose::Flush) >= 2 * segments
    }

    /// Bytes that a merge may write beside what it reads: as many as there are while the device is not
    /// full.
    pub(super) fn write_bytes(&self, segment_bytes: usize) -> u64 {
        let room = self.room_for(Purpose::Merge).saturating_sub(1);
        match self.full {
            true => room as u64 * segment_bytes as u64,
            false => u64::MAX,
        }
    }

    /// Segments that one merge may read.
    pub(super) fn part_segments(&self) -> usize {
        let half = self.room_for(Purpose::Merge) / 2;
        let most = if self.full { FULL_PART_MAX } else { half };
        (half.min(most) >> self.narrower).max(1)
    }

    /// Segments that a merge of whole levels may write: an eighth of the room is left to others. After
    /// one that found no room, parts are merged until one has found some, and while the device is full.
    pub(super) fn whole_segments(&self) -> usize {
        let room = self.room_for(Purpose::Merge);
        if self.narrower > 0 || self.full {
            0
        } else {
            room - room / 8
        }
    }

    /// Bytes of the segments into which neighbours are packed; 0 where that is done, or there is room.
    pub(super) const fn pack_bytes(&self, segment_bytes: usize) -> u64 {
        match self.full && !self.packed {
            true => segment_bytes as u64,
            false => 0,
        }
    }

    /// How many segments are packed at a time: half of the room that there is, or where that is little
    /// all of it, since they become fewer.
    pub(super) fn pack_segments(&self) -> usize {
        let room = self.room_for(Purpose::Pack);
        let most = (room / 2).max(room.min(LITTLE_ROOM) + 1);
        (most.min(PACK_MAX) >> self.narrower).max(2)
    }

    /// The place from which packing continues while it has precedence over other merges; `None` while it has none.
    pub(super) fn packs_first(&self) -> Option<&Place> {
        self.pack_first.as_ref().filter(|_| self.full)
    }

    /// What a merge may use, which `packs` or not, and has `written` some segments. The last segment of all is for one
    /// that nothing else can take the place of, and that has taken none.
    pub(super) fn merge_purpose(&self, packs: bool, written: usize) -> Purpose {
        let has_none = written == 0 && self.room_for(Purpose::Pack) == 0;
        let is_last = has_none && self.packs_first().is_some();
        match packs {
            true if is_last => Purpose::Metadata,
            true => Purpose::Pack,
            false => Purpose::Merge,
        }
    }

    /// Where parts begin.
    pub(super) fn behind(&self) -> Option<Place> {
        self.behind.clone().filter(|_| self.full)
    }

    /// What was packed up to there is as many segments as before.
    pub(super) fn won_nothing(&mut self, end: PartEnd) {
        if self.pack_first.is_some() {
            self.pack_first = end.next_to_pack();
            return;
        }
        match end.place() {
            Some(place) => self.behind = Some(place),
            None => self.packed = true,
        }
    }

    /// A merge found room.
    pub(super) const fn found_room(&mut self) {
        self.narrower = 0;
        self.rounds = 0;
    }

    /// A merge of what ends there found no room, after it had `written` some segments: the next one is narrower, or
    /// elsewhere.
    fn found_none(&mut self, end: PartEnd, packs: bool, written: usize) {
        if packs && self.pack_first.is_some() {
            self.pack_first = end.next_to_pack();
            return;
        }
        if self.part_segments() > 1 {
            self.narrower = (self.narrower + 1).min(NARROWER_MAX);
            return;
        }
        let next = end.place();
        let is_round = next <= self.behind;
        if is_round {
            self.rounds = (self.rounds + 1).min(ROUNDS_MAX);
        }
        if is_round || written == 0 {
            self.pack_first = Some(Place::LOWEST);
        }
        self.behind = next;
    }

    /// A pass over everything begins, or a flush brings segments that may be short.
    pub(super) fn begin_anew(&mut self) {
        (self.packed, self.behind) = (false, None);
        if let Some(place) = &mut self.pack_first {
            *place = Place::LOWEST;
        }
    }

    /// A job found no room.
    fn give_up(&mut self) {
        self.retry = Some(self.now + RETRY * (1 << self.rounds));
    }
}

/// Segments of room that are little.
const LITTLE_ROOM: usize = 4;

/// How often the time between two tries is doubled, at most.
const ROUNDS_MAX: u32 = 6;

/// Between two tries of what found no room.
const RETRY: Duration = Duration::from_millis(100);

/// Least time between two passes, where logs are flushed more seldom.
const PASSES_APART_MIN: Duration = Duration::from_secs(1);

impl Jobs {
    /// Whether a flush of `table` may begin: there is room for its bytes, an eighth for indexes and
    /// filters, and the last segment, which is not full. That is a bound and no measure; where
    /// nothing else can make room it is tried all the same. On a full device what frees more
    /// goes first: merges, as long as they find room, unless the flush lets a long log go.
    pub(super) fn may_flush(&self, table: &Memtable, storage: &Storage) -> bool {
        let merging = self.compaction.is_some();
        let space = &self.space;
        let bytes = table.used_bytes();
        let settings = storage.settings();
        let mut segments = (bytes + bytes / 8) / settings.segment_bytes + 1;
        if settings.compaction == Way::WholeLevel && !space.full {
            segments += index_segments(segments);
        }
        let head = storage.head();
        let logs = LogKind::ALL.iter().flat_map(|log| head.log(*log));
        let sealed = logs.filter(|entry| entry.segment.end.is_some()).count();
        let wins = sealed > segments;
        if space.full && !wins && (merging || !self.at_rest && space.narrower == 0) {
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
    pub(super) fn flushed_values(&self, site: &Site<'_>, bytes: usize) -> Values {
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
    pub(super) fn drain_bytes(&self, site: &Site<'_>) -> Option<u64> {
        let over = MediumExtent::of(site.storage.head(), site.settings).is_over();
        let wanted = over || self.collects || self.space.is_full() || self.paid.values_are_due();
        wanted.then(|| self.space.write_bytes(site.settings.segment_bytes))
    }

    /// What a flush may use: the room that is kept for merges only where there are none.
    pub(super) const fn flush_purpose(&self) -> Purpose {
        if self.is_alone() {
            Purpose::Merge
        } else {
            Purpose::Flush
        }
    }

    /// Takes note of the least room that a device of the group has, and of whether one is full.
    /// Returns whether that has changed.
    pub(crate) fn note_room(&mut self, now: Instant, least: Room, full: bool) -> bool {
        let space = &mut self.space;
        space.now = now;
        space.room = Some(least);
        let changed = space.full != full;
        if changed {
            space.full = full;
            space.begin_anew();
            self.at_rest = false;
        }
        if !full {
            space.pass = None;
        }
        changed
    }

    /// Takes note of the last edit that every member has applied.
    pub(crate) fn note_applied(&mut self, everywhere: EditSeq) {
        self.space.ahead = self.last_edit > everywhere;
    }

    /// On a full device: whether a pass over everything that may free space should begin now, with
    /// the flush of a memtable that is not full. `frozen` says whether one waits already.
    pub(crate) fn wants_pass(&mut self, now: Instant, interval: Duration, frozen: bool) -> bool {
        if !self.is_idle() || frozen {
            return false;
        }
        if let Some(began) = self.space.pass.take() {
            let took = now.since(began).max(interval);
            self.space.next_pass = Some(now + took);
        }
        self.space.next_pass.is_none_or(|at| at <= now)
    }

    /// The pass has begun.
    pub(crate) fn pass_begun(&mut self, now: Instant) {
        self.space.pass = Some(now);
        self.space.begin_anew();
    }

    /// The flush found no room.
    pub(super) fn give_up_flush(&mut self, storage: &mut Storage) {
        self.abandon_flush(storage);
        self.space.give_up();
    }

    /// The compaction found no room: the next one is narrower.
    pub(super) fn give_up_compaction(&mut self, storage: &mut Storage) {
        if let Some(compaction) = &self.compaction {
            let written = compaction.build.outputs().len();
            let end = compaction.end.clone();
            self.space.found_none(end, compaction.packs, written);
        }
        self.abandon_compaction(storage);
        self.space.give_up();
    }
}

impl Background {
    /// On a full device: gives up what an opening has cut off and kept. Whether that is under way.
    fn gives_up_cut_segments(&mut self, lsm: &Lsm) -> bool {
        let (store, region) = (Arc::clone(self.storage.store()), self.storage.region());
        let cut = self.storage.kept_cut();
        let given_up = cut.give_up(&store, region) as u64;
        Counts::add(&lsm.counts.cut_segments_given_up, given_up);
        cut.are_leaving()
    }

    /// Looks how much room there is, and begins what may make some.
    pub(super) fn look_for_space(&mut self, lsm: &Lsm, now: Instant) {
        let own = self.storage.store().room();
        if own.is_full() && self.gives_up_cut_segments(lsm) {
            // Writers are not turned away before that has ended.
            return;
        }
        let members = lsm.members_room();
        let full = own.is_full() || members.is_some_and(|room| room.is_full());
        let least = members.filter(|room| room.free < own.free);
        if self.jobs.note_room(now, least.unwrap_or(own), full) {
            lsm.set_full(full);
        }
        let everywhere = lsm.edits_everywhere.load(Ordering::Acquire);
        self.jobs.note_applied(EditSeq(everywhere));
        let interval = lsm.settings.flush_interval.min(PASSES_APART_MIN);
        if full
            && self
                .jobs
                .wants_pass(now, interval, lsm.lock().frozen_count() > 0)
            && lsm.freeze_now()
        {
            self.jobs.pass_begun(now);
        }
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
