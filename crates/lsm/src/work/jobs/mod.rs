//! Flushes and compactions of one region: work that turns memtables into runs, and levels into
//! larger ones.
//!
//! Who has jobs done is either an engine, which ships what is built, or a backup that builds its
//! own levels ([`replica`](crate::replica)). Both hand in where things are ([`Site`]) and commit the
//! edits that come out:
//!
//! 1. The oldest frozen memtable becomes a run of L1, once everything in it is committed.
//! 2. One part of one level at a time is merged into the level below; or, where that is set, all of
//!    a level and of the one below, into a tree.
//!
//! Where a memtable removes ranges of keys, the edit that makes a run of it takes these keys out of all
//! older runs ([`cut`](crate::compaction::cut)). A merge under way would bring back what it has read of
//! them, so the edit waits for its end, and no other merge begins before, except those that make
//! the edit shorter (`counting`).
//!
//! What lets what begin:
//!
//! | | a flush | a merge | pairs that are bulk-loaded |
//! |---|---|---|---|
//! | no level asks for anything ([`Jobs::at_rest`]) | yes | no | yes |
//! | a flush is under way | no | yes, unless it waits to take keys out of runs | yes |
//! | a merge is under way | yes | no | no |
//! | pairs wait for the end of a merge | yes | no | yes, after it |
//! | pairs are being bulk-loaded | yes | no | no |
//! | the edit of a move is on its way | yes | no | yes |
//! | there is no room for now ([`Space`]) | no | no | as the device says |
//! | pairs were bulk-loaded last, and a merge is due | yes | yes | no |
//! | L1 or the device is full | in turns | in turns | no |
//!
//! A step merges about `step_bytes` of one of them. What a job made is committed by one edit; a job
//! under way is forgotten by a crash (I3).

mod counting;
mod flush;
mod merge;
mod passing;
mod turns;

use std::time::Duration;

use argosy_base::{EditSeq, Instant, Lsn, SegmentNumber};
use argosy_device::{DeviceError, Room};
use argosy_engine::{EngineError, LogEnd};

#[cfg(doc)]
use crate::compaction::why::Why;
use crate::edit::{Edit, Reference, RunId};
use crate::read::FilterCounts;
use crate::storage::Storage;
use crate::version::Version;
use crate::work::frozen::Frozen;
use crate::work::read_triggered::ReadTriggered;
use crate::work::site::Site;
use crate::work::space::Space;
use crate::work::truncation::LastLsns;

use counting::Remains;
use flush::Flush;
use merge::Compaction;
use turns::Turns;

/// What jobs are to know of the moment.
pub(crate) struct Now<'a> {
    /// The oldest memtable that waits, if everything in it is committed.
    pub(crate) frozen: Option<&'a Frozen>,
    /// Whether a log is durable up to here.
    pub(crate) is_durable: &'a dyn Fn(&LogEnd) -> bool,
    /// An edit of a flush is on its way.
    pub(crate) flush_committing: bool,
    /// An edit of a compaction is on its way.
    pub(crate) compaction_committing: bool,
}

/// What a step came to.
pub(crate) enum Made {
    /// Nothing could be done.
    Nothing,
    /// Some of a job was done.
    Progress,
    /// The oldest memtable is a run, once this edit is committed.
    Flushed(Edit),
    /// A part of a level was merged or moved, once this edit is committed.
    Compacted(Edit),
}

/// Something for which levels are merged although none is full. Each is there for as long as it is wanted.
///
/// | | is wanted by | [reasons](Why) that it brings |
/// |---|---|---|
/// | `Garbage` | garbage collection | [`Shadowed`](Why::Shadowed), [`Medium`](Why::Medium), [`Short`](Why::Short) |
/// | `Lower` | garbage collection | [`Lower`](Why::Lower) |
/// | `FullCompaction` | whoever requests one | [`Shadowed`](Why::Shadowed), [`Short`](Why::Short) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Dead values are to be found.
    Garbage,
    /// What lies above the last level is to go into that, since it frees space for less than moving values does.
    Lower,
    /// Everything is to lie in one level.
    FullCompaction,
}

/// The wishes that are there.
#[derive(Clone, Copy, Debug, Default)]
struct Wishes([bool; 3]);

impl Wishes {
    const fn has(self, wish: Wish) -> bool {
        self.0[wish as usize]
    }

    /// Returns whether that is new.
    const fn set(&mut self, wish: Wish, wanted: bool) -> bool {
        let before = std::mem::replace(&mut self.0[wish as usize], wanted);
        before != wanted
    }

    /// Whether space is to become free.
    const fn reclaim(self) -> bool {
        self.has(Wish::Garbage) || self.has(Wish::FullCompaction)
    }
}

/// See the module documentation.
pub(crate) struct Jobs {
    pub(crate) flush: Option<Flush>,
    pub(crate) compaction: Option<Compaction>,
    turns: Turns,
    /// No level of the head version asks for a compaction.
    pub(crate) at_rest: bool,
    wishes: Wishes,
    /// What is done about a device that is full.
    pub(crate) space: Space,
    pub(crate) read_triggered: ReadTriggered,
    /// The edit of the last job.
    pub(crate) last_edit: EditSeq,
    pub(crate) lasts: LastLsns,
    next_run: u64,
    remains: Remains,
    /// The planted mistake `count_twice`: what a merge dropped that was given up.
    counted_before: Vec<Reference>,
}

impl Jobs {
    /// No jobs yet, for a region whose history ends at `last`.
    pub(crate) fn new(storage: &Storage, last: Lsn) -> Self {
        Self {
            flush: None,
            compaction: None,
            turns: Turns::new(),
            at_rest: false,
            wishes: Wishes::default(),
            space: Space::default(),
            read_triggered: ReadTriggered::default(),
            last_edit: storage.head().seq(),
            lasts: LastLsns::new(last),
            next_run: storage.next_run(),
            remains: Remains::default(),
            counted_before: Vec::new(),
        }
    }

    /// From now on levels are merged for `wish`, or not.
    pub(crate) const fn wish(&mut self, wish: Wish, wanted: bool) {
        if self.wishes.set(wish, wanted) && wanted {
            self.at_rest = false;
        }
    }

    /// Whether nothing is under way, and no level asks for anything.
    pub(crate) const fn is_idle(&self) -> bool {
        self.at_rest && self.compaction.is_none() && self.flush.is_none() && !self.is_bulk_loading()
    }

    /// The levels have been replaced by others: what is under way is of no use.
    pub(crate) fn levels_replaced(&mut self, storage: &mut Storage) {
        self.abandon_flush(storage);
        self.abandon_compaction(storage);
        self.next_run = storage.next_run();
        self.at_rest = false;
    }

    /// What is done about space at present, and what is under way, in words for a report.
    pub(crate) fn space_in_words(&self) -> String {
        format!(
            "{:?}, at rest: {}, flushing: {}, compacting: {}",
            self.space,
            self.at_rest,
            self.flush.is_some(),
            self.compaction.is_some()
        )
    }

    /// Jobs under way, and whether a compaction may have to be begun.
    pub(crate) fn pending(&self) -> usize {
        let merges = usize::from(self.compaction.is_some()) + usize::from(self.is_bulk_loading());
        let jobs = usize::from(self.flush.is_some()) + merges;
        jobs + usize::from(!self.at_rest)
    }

    /// Whether a flush is finished but for the log bytes that it points to.
    pub(crate) fn waits_for_log(&self, is_durable: &dyn Fn(&LogEnd) -> bool) -> bool {
        let flush = self.flush.as_ref();
        flush.is_some_and(|flush| flush.waits_for_log(is_durable))
    }

    /// The edit of a flush is committed.
    pub(crate) fn flush_committed(&mut self) {
        self.flush = None;
        self.at_rest = false;
        self.space.begin_anew();
    }

    /// The edit of a compaction is committed.
    pub(crate) fn compaction_committed(&mut self) {
        self.compaction = None;
        self.turns.merge_committed();
        self.at_rest = false;
        self.space.found_room();
    }

    /// Whether pairs become segments without a memtable, or their edit is on its way.
    pub(crate) const fn is_bulk_loading(&self) -> bool {
        self.turns.is_bulk_loading()
    }

    /// Whether the next part may begin, if one waits (`wait`). Merges and parts take turns: if a merge is under way,
    /// the part comes after it, and no other merge begins before.
    pub(crate) const fn may_bulk_load(&mut self, wait: bool) -> bool {
        let merging = self.compaction.is_some();
        self.turns.may_bulk_load(wait, merging, self.at_rest)
    }

    /// Whether a merge may begin, as far as others let it.
    fn may_merge(&self) -> bool {
        self.turns.may_merge() && self.space.may_begin()
    }

    /// Pairs begin to become segments.
    pub(crate) const fn bulk_load_begun(&mut self) {
        self.turns.bulk_load_begun();
    }

    /// They are given up.
    pub(crate) const fn bulk_load_given_up(&mut self) {
        self.turns.bulk_load_given_up();
    }

    /// Their edit is committed.
    pub(crate) const fn bulk_load_committed(&mut self) {
        self.turns.bulk_load_committed();
    }

    /// Takes note of what reads have spent until now.
    pub(crate) fn note_reads(&mut self, filters: &FilterCounts, storage: &Storage) {
        let segment_bytes = storage.settings().layout.segment_bytes;
        if self
            .read_triggered
            .look(filters, storage.head(), segment_bytes)
        {
            self.at_rest = false;
        }
    }

    /// Gives up the flush under way.
    pub(crate) fn abandon_flush(&mut self, storage: &mut Storage) {
        if let Some(mut flush) = self.flush.take() {
            flush.build.abandon(storage);
        }
    }

    /// Gives up the compaction under way.
    pub(crate) fn abandon_compaction(&mut self, storage: &mut Storage) {
        if let Some(mut compaction) = self.compaction.take() {
            if storage.settings().mutants.count_twice() {
                let counted = compaction.build.references(storage.head());
                self.counted_before = counted.unwrap_or_default();
            }
            compaction.build.abandon(storage);
        }
    }

    /// The number of a new run, newer than all that there are.
    pub(crate) const fn take_run(&mut self) -> RunId {
        let run = RunId(self.next_run);
        self.next_run += 1;
        run
    }

    /// Moves one job: the flush, or where that waits, the compaction; in turns while L1 or the
    /// device is full.
    ///
    /// # Errors
    /// The device's; damage to what is read.
    pub(crate) fn step(&mut self, site: &mut Site<'_>, now: &Now<'_>) -> Result<Made, EngineError> {
        let behind = site.storage.l1_runs() >= site.settings.levels.l1_runs_max;
        let merge_is_first = self.turns.merge_is_first(behind || self.space.is_full());
        if merge_is_first {
            let made = self.step_compaction(site, now)?;
            if !matches!(made, Made::Nothing) {
                return Ok(made);
            }
        }
        let made = self.step_flush(site, now)?;
        if matches!(made, Made::Nothing) && !merge_is_first {
            return self.step_compaction(site, now);
        }
        Ok(made)
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
        self.remains.try_again();
        self.lasts.look_again();
    }
}

#[cfg(test)]
mod room_tests;
