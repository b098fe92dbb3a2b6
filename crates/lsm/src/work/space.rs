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
//!    ([`Policy::reclaim`](crate::compaction::policy::Policy::reclaim)).
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
//! nothing else is left to be done, what lives in the emptiest of them is moved by garbage collection, where somebody
//! serves.

use std::time::Duration;

use argosy_base::Instant;
use argosy_device::{Purpose, Room};

use crate::compaction::policy::Place;
use crate::settings::FULL_PART_MAX;

/// Segments that are packed at a time, at most.
const PACK_MAX: usize = 16;

/// How often a part is halved, at most.
const NARROWER_MAX: u32 = 16;

/// Where a part of a level ends.
#[derive(Clone, Debug)]
pub(crate) struct PartEnd {
    /// The level from which it is merged down. 0: L1 is packed, within itself.
    pub(crate) level: u8,
    /// The key behind its last; `None` where it reaches to the end of the level.
    pub(crate) key: Option<Vec<u8>>,
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
    pub(crate) narrower: u32,
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
    pub(crate) const fn is_full(&self) -> bool {
        self.full
    }

    /// The least room of any member, as far as it is known.
    pub(crate) const fn least_room(&self) -> Option<Room> {
        self.room
    }

    /// Segments that may be taken for `purpose`, at each member.
    pub(crate) fn room_for(&self, purpose: Purpose) -> usize {
        let room = self.room.map(|room| room.for_purpose(purpose));
        room.map_or(usize::MAX, |segments| segments as usize)
    }

    /// Whether a merge or a flush may begin.
    pub(crate) fn may_begin(&self) -> bool {
        self.retry.is_none_or(|at| at <= self.now) && !(self.ahead && self.is_little())
    }

    /// Whether little is left anywhere: less than twice what is kept from writers.
    fn is_little(&self) -> bool {
        let little = |room: Room| room.free <= 2 * room.reserve;
        self.full || self.room.is_some_and(little)
    }

    /// Whether a flush of `bytes` may write as many segments again beside those of the run: medium segments
    /// are not full where each ends with a leaf segment.
    pub(crate) fn is_ample(&self, bytes: usize, segment_bytes: usize) -> bool {
        let segments = (bytes + bytes / 8) / segment_bytes + 2;
        !self.full && self.room_for(Purpose::Flush) >= 2 * segments
    }

    /// Bytes that a merge may write beside what it reads: as many as there are while the device is not
    /// full.
    pub(crate) fn write_bytes(&self, segment_bytes: usize) -> u64 {
        let room = self.room_for(Purpose::Merge).saturating_sub(1);
        match self.full {
            true => room as u64 * segment_bytes as u64,
            false => u64::MAX,
        }
    }

    /// Segments that one merge may read.
    pub(crate) fn part_segments(&self) -> usize {
        let half = self.room_for(Purpose::Merge) / 2;
        let most = if self.full { FULL_PART_MAX } else { half };
        (half.min(most) >> self.narrower).max(1)
    }

    /// Segments that a merge of whole levels may write: an eighth of the room is left to others. After
    /// one that found no room, parts are merged until one has found some, and while the device is full.
    pub(crate) fn whole_segments(&self) -> usize {
        let room = self.room_for(Purpose::Merge);
        if self.narrower > 0 || self.full {
            0
        } else {
            room - room / 8
        }
    }

    /// Bytes of the segments into which neighbours are packed; 0 where that is done, or there is room.
    pub(crate) const fn pack_bytes(&self, segment_bytes: usize) -> u64 {
        match self.full && !self.packed {
            true => segment_bytes as u64,
            false => 0,
        }
    }

    /// How many segments are packed at a time: half of the room that there is, or where that is little
    /// all of it, since they become fewer.
    pub(crate) fn pack_segments(&self) -> usize {
        let room = self.room_for(Purpose::Pack);
        let most = (room / 2).max(room.min(LITTLE_ROOM) + 1);
        (most.min(PACK_MAX) >> self.narrower).max(2)
    }

    /// The place from which packing continues while it has precedence over other merges; `None` while it has none.
    pub(crate) fn packs_first(&self) -> Option<&Place> {
        self.pack_first.as_ref().filter(|_| self.full)
    }

    /// What a merge may use, which `packs` or not, and has `written` some segments. The last segment of all is for one
    /// that nothing else can take the place of, and that has taken none.
    pub(crate) fn merge_purpose(&self, packs: bool, written: usize) -> Purpose {
        let has_none = written == 0 && self.room_for(Purpose::Pack) == 0;
        let is_last = has_none && self.packs_first().is_some();
        match packs {
            true if is_last => Purpose::Metadata,
            true => Purpose::Pack,
            false => Purpose::Merge,
        }
    }

    /// Where parts begin.
    pub(crate) fn behind(&self) -> Option<Place> {
        self.behind.clone().filter(|_| self.full)
    }

    /// What was packed up to there is as many segments as before.
    pub(crate) fn won_nothing(&mut self, end: PartEnd) {
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
    pub(crate) const fn found_room(&mut self) {
        self.narrower = 0;
        self.rounds = 0;
    }

    /// A merge of what ends there found no room, after it had `written` some segments: the next one is narrower, or
    /// elsewhere.
    pub(crate) fn found_none(&mut self, end: PartEnd, packs: bool, written: usize) {
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

    /// Takes note of the least room of any member, and of whether a device is full. Returns whether that has changed.
    pub(crate) fn note(&mut self, now: Instant, least: Room, full: bool) -> bool {
        self.now = now;
        self.room = Some(least);
        let changed = self.full != full;
        if changed {
            self.full = full;
            self.begin_anew();
        }
        if !full {
            self.pass = None;
        }
        changed
    }

    /// Takes note of whether some member has yet to apply the edit of the last job.
    pub(crate) const fn note_ahead(&mut self, ahead: bool) {
        self.ahead = ahead;
    }

    /// Whether a pass should begin, where none is under way any more.
    pub(crate) fn wants_pass(&mut self, now: Instant, interval: Duration) -> bool {
        if let Some(began) = self.pass.take() {
            let took = now.since(began).max(interval);
            self.next_pass = Some(now + took);
        }
        self.next_pass.is_none_or(|at| at <= now)
    }

    /// A pass over everything has begun.
    pub(crate) fn pass_begun(&mut self, now: Instant) {
        self.pass = Some(now);
        self.begin_anew();
    }

    /// A pass over everything begins, or a flush brings segments that may be short.
    pub(crate) fn begin_anew(&mut self) {
        (self.packed, self.behind) = (false, None);
        if let Some(place) = &mut self.pack_first {
            *place = Place::LOWEST;
        }
    }

    /// A job found no room.
    pub(crate) fn give_up(&mut self) {
        self.retry = Some(self.now + RETRY * (1 << self.rounds));
    }
}

/// Segments of room that are little.
const LITTLE_ROOM: usize = 4;

/// How often the time between two tries is doubled, at most.
const ROUNDS_MAX: u32 = 6;

/// Between two tries of what found no room.
const RETRY: Duration = Duration::from_millis(100);
