//! Garbage collection of the large log.
//!
//! A segment of the large log is free once no level points into it ([`truncation`](crate::work::truncation)), or
//! nothing in it lives. What levels point to is known: every edit says how many bytes of pointers come into the levels
//! and leave them, by log segment, and the version has both sums ([`LogUse`](crate::version::LogUse)). A merge drops
//! the pointers of overwritten and deleted values, and its edit records their bytes. But one live value keeps its whole
//! segment. So:
//!
//! 1. A [`Census`] of the version tells how much space the region takes, and how much of it lives, as far
//!    as samples tell ([`shadowed`](crate::work::shadowed)). Near
//!    [`Settings::space_bound`](crate::Settings::space_bound) the region *collects garbage*, until it is
//!    well below.
//! 2. [`choose`] says how: by *moving* what lives in the segment in which least does, or, where nothing is
//!    left to be moved, by *merging* levels although they are not full. The last level and the one above it
//!    are merged beside that, as long as it finds or frees a byte for less. Where pointers hold places, merges
//!    come first while much of what levels point to may be overwritten, or what was moved waits for them.
//! 3. To move, the victim is read record by record. A value lives if its key is bound to this very
//!    record, which is looked up for all records of a step at once: no place of a log is used twice as
//!    long as anything refers to it. What lives is written again, as an ordinary write, under the one
//!    condition that the key is still bound to that record: looked up without the writer lock, asked
//!    again under it. So a move loses against every write that came between, and is never seen by
//!    anyone: a snapshot goes on with the view that it has, and the segments of that stay until it is
//!    gone (I1).
//! 4. Victims are chosen among the segments that were there when an [`Episode`] began, and another one
//!    begins only when more has died since: what is moved may lie as loosely as before, and must not
//!    be moved again for that.
//! 5. When the moved values are in the levels the victim is *evacuated*: it goes, although levels point into
//!    it, since newer entries shadow all these pointers. Where pointers hold places it goes when merges have
//!    dropped the last of them, like any other.
//!
//! Only who serves a region moves; backups get the moved values as log records like all others. A
//! backup that builds its own levels takes the census of its own version, and merges. Writers become slower the
//! nearer the region comes to its bound ([`admission`](crate::work::admission)).
//!
//! Bounded: a step (of which up to eight are made at a time, the further the region is beyond its
//! bound) looks at about [`step_bytes`](crate::LevelSettings::step_bytes) of a victim, or writes as much; one
//! window of it is in memory. A move finds room in windows and memtable or waits like any writer, and on a full
//! device its log segments come out of the reserve, as the output of flushes does. What is forgotten in
//! a crash is which victims were read to their end: they are read once more, and nothing in them lives.
//! A victim that is damaged is left as it is: whoever reads what lives in it is told.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use argosy_base::{EditSeq, LogId, Lsn, Moment, Pointer, SegmentNumber};
use argosy_device::Purpose;
use argosy_engine::{BatchError, EngineError, Expiry, WriteBatch};
use argosy_log::sweep::{Sweep, SweepError};
use argosy_log::value::reach;

use super::Lsm;
use super::background::Ground;
use super::write::Appender;
use crate::edit::{Edit, LogSegment};
use crate::names::OwnedEntry;
use crate::names::logs::LARGE_LOG;
use crate::read::ReadView;
use crate::segments::StoredSegment;
use crate::segments::fetch::Fetch;
use crate::storage::Storage;
use crate::version::Version;
use crate::work::admission::Share;
use crate::work::census::{Census, Choice, Episode, Pressure, Wanted, choose};
use crate::work::jobs::Wish;
use crate::work::settled::SettledLogs;
use crate::work::shadowed::ShadowEstimate;
use crate::work::stats::Counts;
use crate::work::truncation::{LastLsns, unknown_beginning};
use crate::work::watch::look_at_beginning;

/// A value that is to be written again, if it lives.
struct Move {
    at: Pointer,
    key: Vec<u8>,
    /// `None`: it has expired, and is removed; or, before that is known, it has yet to be read.
    value: Option<Vec<u8>>,
    expiry: Option<Moment>,
}

impl Move {
    fn add_to(&self, batch: &mut WriteBatch) -> Result<(), BatchError> {
        match &self.value {
            Some(value) => {
                let expiry = self.expiry.map_or(Expiry::Never, Expiry::At);
                batch.put_any(&self.key, value, expiry)
            }
            None => batch.delete_any(&self.key),
        }
    }
}

/// The segment that is being read.
struct Victim {
    sweep: Sweep,
    stored: Arc<StoredSegment>,
    /// What lived when it was looked up.
    moves: VecDeque<Move>,
    /// What the levels bound then.
    levels: (Lsn, u64),
    ended: bool,
    /// Several at a time are too much for the log's windows.
    one_by_one: bool,
}

/// What became of an attempt to write moves.
enum Rewritten {
    Done,
    /// They have to be looked up again.
    Again,
    /// There is no room now.
    Busy,
    /// There never is.
    TooLarge,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Gc {
    pressure: Pressure,
    episode: Episode,
    choice: Choice,
    /// When that was chosen.
    chosen_at: Option<(EditSeq, bool)>,
    victim: Option<Victim>,
    /// Read to their end, and waiting for a flush, or for merges.
    moved: BTreeSet<SegmentNumber>,
    /// Not to be tried again.
    skipped: BTreeSet<SegmentNumber>,
    /// The version in which all segments' beginnings are known that matter.
    known_at: Option<EditSeq>,
    shadows: ShadowEstimate,
    /// What may be moved.
    settled: Arc<SettledLogs>,
    /// Merges into the last level are worth while.
    lowers: bool,
    /// It became known that segments are free.
    pub(super) truncates: bool,
}

impl Gc {
    /// Of a region whose segments have so many bytes.
    pub(super) fn new(segment_bytes: usize) -> Self {
        Self {
            settled: Arc::new(SettledLogs::new(segment_bytes as u64)),
            ..Self::default()
        }
    }

    /// Follows `edit`, which led to `version`.
    pub(super) fn follow(&mut self, edit: &Edit, version: &Version, lasts: &LastLsns) {
        Arc::make_mut(&mut self.settled).follow(edit, version, lasts);
        self.shadows.follow(edit, version);
    }

    /// Steps that are due in one step of the background.
    pub(super) fn steps(&self) -> usize {
        self.pressure.steps()
    }

    /// Victims under way.
    pub(super) fn pending(&self) -> usize {
        usize::from(self.victim.is_some())
    }

    /// Bytes of segments that go with the next flush, or once merges have gone on.
    fn going(&self, segment_bytes: u64) -> u64 {
        self.moved.len() as u64 * segment_bytes
    }

    /// What a segment of the large log is wanted for, in place of `otherwise`: what is moved comes out
    /// of the reserve.
    pub(super) const fn tail_purpose(&self, log: LogId, otherwise: Purpose) -> Purpose {
        match (log, &self.victim) {
            (LARGE_LOG, Some(_)) => Purpose::Flush,
            _ => otherwise,
        }
    }

    /// The victim is left as it is.
    fn skip(&mut self) {
        let victim = self.victim.take();
        self.skipped
            .extend(victim.map(|victim| victim.sweep.segment().number));
        self.chosen_at = None;
    }

    /// Leaves the victim as it is where what was `looked` at is damaged.
    fn skip_damaged(
        &mut self,
        looked: Result<(), EngineError>,
        storage: &Storage,
    ) -> Result<bool, EngineError> {
        match looked {
            Ok(()) => {}
            // What memtables point to may be damaged in a segment that the version does not have yet.
            Err(error) if storage.damages().note(storage.current(), &error).is_some() => {
                self.skip()
            }
            Err(EngineError::Corrupt { .. }) => self.skip(),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// A step of garbage collection. Returns whether anything was done.
    pub(super) fn step(&mut self, at: &mut Ground<'_>) -> Result<bool, EngineError> {
        let shadows = &mut self.shadows;
        if shadows.look(at.storage.head(), &at.lsm.reading) || self.learn_beginning(at)? {
            return Ok(true);
        }
        if self.victim.is_none() {
            self.choose(at);
        }
        if self.victim.is_some() {
            return self.step_victim(at);
        }
        Ok(match self.choice {
            Choice::Merge => self.push(at),
            Choice::Flush => self.flush_moved(at),
            Choice::Rest | Choice::Move(_) => false,
        })
    }

    /// Finds out whether a segment that would be free otherwise begins with the rest of a value.
    fn learn_beginning(&mut self, at: &mut Ground<'_>) -> Result<bool, EngineError> {
        let current = at.storage.current();
        if self.known_at == Some(current.seq()) {
            return Ok(false);
        }
        let reach = reach(at.lsm.settings.layout.segment_bytes);
        let Some(segment) = unknown_beginning(current, reach, &at.jobs.lasts) else {
            self.known_at = Some(current.seq());
            return Ok(false);
        };
        let stored = current.stored(segment.number);
        let stored = stored.expect("the version names it");
        let read = look_at_beginning(at.lsm.region(), &at.lsm.settings, &segment, stored);
        let jobs = &mut at.jobs;
        let inside = jobs.note_beginning(at.storage, current, segment.number, read)?;
        self.truncates |= !inside;
        Ok(true)
    }

    /// Decides what is to be done, when the version has changed.
    fn choose(&mut self, at: &mut Ground<'_>) {
        let head = Arc::clone(at.storage.head());
        let full = at.jobs.space.is_full();
        // On a full device merges and flushes go first.
        let now = (head.seq(), full && !at.jobs.is_idle());
        if self.chosen_at == Some(now) {
            return;
        }
        self.chosen_at = Some(now);
        let here = |number: &SegmentNumber| head.log_segment(*number).is_some();
        self.moved.retain(here);
        self.skipped.retain(here);
        let shadowed = self.shadows.shadowed(&head);
        at.lsm.space.set_shadowed_bytes(shadowed.bytes);
        let lasts = &at.jobs.lasts;
        let settled = Arc::make_mut(&mut self.settled);
        settled.catch_up(&head, lasts);
        let settled = Arc::clone(&self.settled);
        let census = Census::of(&head, lasts, shadowed, settled, &at.lsm.settings);
        if census.evacuates {
            // What would be gone by now is kept by a value that reaches into it.
            let flushed = |number: &SegmentNumber| lasts.moved(*number) < Some(head.replay_from());
            self.skipped
                .extend(self.moved.extract_if(.., |number| flushed(number)));
        }
        let going = match census.evacuates {
            true => self.going(census.segment_bytes),
            false => 0,
        };
        let goal = self.pressure.goal(&census, going, &at.lsm.settings);
        let short = Self::short_segments(at) * census.segment_bytes;
        let (goal, refs_max) = match goal {
            0 => (short, census.segment_bytes / 4 * 3),
            _ => (goal.max(short), census.segment_bytes / 8 * 7),
        };
        let wanted = Wanted {
            goal,
            refs_max,
            moved: &self.moved,
            unflushed: self.unflushed(at) * census.segment_bytes,
            batch: self.pressure.batch(),
            active: at.lsm.lock().only_active_log_bytes(),
            flushes: self.pressure.is_over(census.allocated),
            skipped: &self.skipped,
        };
        let choice = choose(&census, &wanted, &mut self.episode);
        self.choice = match choice {
            _ if now.1 => Choice::Rest,
            choice => choice,
        };
        at.jobs.wish(Wish::Garbage, self.choice == Choice::Merge);
        let victim = match self.choice {
            Choice::Move(number) => Some(number),
            _ => None,
        };
        self.lowers = goal > 0 && census.evacuates && !now.1 && census.lowers(victim);
        at.jobs.wish(Wish::Lower, self.lowers);
        if let Choice::Move(number) = self.choice {
            let entry = head.log_segment(number).expect("the census names it");
            let geometry = at.lsm.settings.layout.log_geometry();
            self.victim = Some(Victim {
                sweep: Sweep::new(at.lsm.region(), geometry, entry.segment),
                stored: Arc::clone(&entry.stored),
                moves: VecDeque::new(),
                levels: (Lsn(0), 0),
                ended: false,
                one_by_one: false,
            });
        }
    }

    /// Segments that should be free on the device and are not: an eighth beside the reserve.
    fn short_segments(at: &Ground<'_>) -> u64 {
        let store = at.storage.store();
        let room = at.jobs.space.least_room().unwrap_or(store.room());
        let wanted = store.total() / 8 + room.reserve;
        u64::from(wanted.saturating_sub(room.free))
    }

    /// How far the region has come to where writers have to stop, and it can do something about it.
    pub(super) fn owed(&self, version: &Version, segment_bytes: u64) -> Share {
        if self.choice == Choice::Rest && self.victim.is_none() && !self.lowers {
            return Share::default();
        }
        let allocated = version.table().len() as u64 * segment_bytes;
        let going = self.going(segment_bytes);
        self.pressure.owed(allocated.saturating_sub(going))
    }

    /// Segments out of which all was moved, by writes that are in the active memtable.
    fn unflushed(&self, at: &Ground<'_>) -> u64 {
        let flushed = at.lsm.lock().frozen_up_to();
        let flushed = flushed.max(Some(Lsn(at.storage.head().replay_from().0 - 1)));
        let moved = self.moved.iter();
        let waits = |number: &&SegmentNumber| at.jobs.lasts.moved(**number) > flushed;
        moved.filter(waits).count() as u64
    }

    /// Has the active memtable flushed, where none waits for that already: the segments go with it out of
    /// which it has moved everything. Returns whether it was frozen.
    fn flush_moved(&mut self, at: &mut Ground<'_>) -> bool {
        let waits = at.jobs.space.is_full() || at.lsm.lock().frozen_count() > 0;
        let frozen = !waits && at.lsm.freeze_now();
        if frozen {
            self.chosen_at = None;
        }
        frozen
    }

    /// Has the memtable flushed in which what was moved waits, where merges alone do not help. Returns
    /// whether it was frozen.
    fn push(&mut self, at: &mut Ground<'_>) -> bool {
        if !at.jobs.is_idle() || at.jobs.space.is_full() || at.lsm.lock().frozen_count() > 0 {
            return false;
        }
        let head = at.storage.head();
        let waits = |number: &&SegmentNumber| head.log_refs(**number) > 0;
        let waiting: Vec<_> = self.moved.iter().filter(waits).copied().collect();
        if waiting.is_empty() || at.lsm.lock().holds_entries() {
            return !waiting.is_empty() && at.lsm.freeze_now();
        }
        // What is uncounted, or damaged, keeps them: they are not waited for.
        for number in waiting {
            self.moved.remove(&number);
            self.skipped.insert(number);
        }
        self.chosen_at = None;
        false
    }

    fn step_victim(&mut self, at: &mut Ground<'_>) -> Result<bool, EngineError> {
        let Some(victim) = &mut self.victim else {
            return Ok(false);
        };
        Counts::add(&at.lsm.counts.gc.steps, 1);
        if victim.moves.is_empty() && victim.ended {
            Counts::add(&at.lsm.counts.gc.segments, 1);
            let number = victim.sweep.segment().number;
            // Whatever took a value out of it has been written by now.
            let last = match at.lsm.settings.mutants.evacuate_early() {
                true => Lsn(0),
                false => at.lsm.lock().last(),
            };
            at.jobs.lasts.set_moved(number, last);
            self.moved.insert(number);
            self.truncates = true;
            self.victim = None;
            self.chosen_at = None;
            return Ok(true);
        }
        if victim.moves.is_empty() {
            let swept = victim.sweep(at.lsm);
            return self.skip_damaged(swept, at.storage);
        }
        match victim.rewrite(at.lsm)? {
            Rewritten::Done => Ok(true),
            Rewritten::Busy => Ok(false),
            Rewritten::Again => {
                let looked = victim.look_again(at.lsm);
                self.skip_damaged(looked, at.storage)
            }
            Rewritten::TooLarge if !victim.one_by_one => {
                victim.one_by_one = true;
                Ok(true)
            }
            Rewritten::TooLarge => {
                self.skip();
                Ok(true)
            }
        }
    }
}

impl Victim {
    /// Reads on, and looks up what it finds.
    fn sweep(&mut self, lsm: &Lsm) -> Result<(), EngineError> {
        let Self { sweep, stored, .. } = self;
        let from = sweep.offset();
        let mut read =
            |_: &LogSegment, offset: u32, out: &mut [u8]| stored.read_nearest(offset, out);
        let mut found = Vec::new();
        while ((sweep.offset() - from) as usize) < lsm.settings.levels.step_bytes {
            let number = sweep.segment().number;
            let swept = sweep.next(&mut read).map_err(|error| match error {
                SweepError::Read(error) => EngineError::Device(error),
                SweepError::Damaged { offset } => EngineError::Corrupt {
                    segment: number,
                    offset,
                    what: "no record",
                },
            })?;
            let Some(swept) = swept else {
                self.ended = true;
                break;
            };
            found.push(Move {
                at: swept.at,
                key: swept.key.to_vec(),
                value: swept.value.map(<[u8]>::to_vec),
                expiry: None,
            });
        }
        let bytes = u64::from(sweep.offset() - from);
        Counts::add(&lsm.counts.gc.read_bytes, bytes);
        Counts::add(&lsm.counts.worked_bytes, bytes);
        let view = lsm.shown.view_to_keep();
        let now = lsm.committed_time();
        self.levels = view.levels();
        for (one, entry) in bound(lsm, &view, found)? {
            let expiry = entry.expiry();
            let value = match one.value {
                _ if expiry.is_some_and(|expiry| expiry <= now) => None,
                Some(value) => Some(value),
                None => {
                    let value = view.value(&one.key, entry, &lsm.reading, Fetch::Device)?;
                    Some(value.expect("a pointer is no tombstone"))
                }
            };
            self.moves.push_back(Move {
                value,
                expiry,
                ..one
            });
        }
        Ok(())
    }

    /// A memtable went to the levels since the moves were looked up.
    fn look_again(&mut self, lsm: &Lsm) -> Result<(), EngineError> {
        let view = lsm.shown.view_to_keep();
        self.levels = view.levels();
        let moves: Vec<_> = self.moves.drain(..).collect();
        let before = moves.len();
        let kept = bound(lsm, &view, moves)?.into_iter().map(|(one, _)| one);
        self.moves = kept.collect();
        let lost = before - self.moves.len();
        Counts::add(&lsm.counts.gc.lost, lost as u64);
        Ok(())
    }

    /// Writes the first of the moves again, those whose keys are bound as they were.
    fn rewrite(&mut self, lsm: &Lsm) -> Result<Rewritten, EngineError> {
        let unconditional = lsm.settings.mutants.move_unconditionally();
        let mut appender = Appender::of(lsm);
        let view = lsm.shown.view_to_keep();
        if view.levels() != self.levels && !unconditional {
            return Ok(Rewritten::Again);
        }
        let mut batch = WriteBatch::new();
        let (mut taken, mut lost) = (0, 0);
        for one in &self.moves {
            let stands = match view.in_memory(&one.key, Lsn(u64::MAX)) {
                None => true,
                Some((_, entry)) => entry.pointer().is_some_and(|(at, _)| at == one.at),
            };
            if stands || unconditional {
                let enough = self.one_by_one || batch.bytes() >= lsm.settings.levels.step_bytes;
                if enough && !batch.is_empty() || one.add_to(&mut batch).is_err() {
                    break;
                }
            } else {
                lost += 1;
            }
            taken += 1;
        }
        if !batch.is_empty() {
            match appender.append_any(&batch) {
                Ok(()) => {}
                Err(EngineError::Busy(_)) => return Ok(Rewritten::Busy),
                Err(EngineError::Limit(_)) => return Ok(Rewritten::TooLarge),
                Err(error) => return Err(error),
            }
        }
        drop(appender);
        Counts::add(&lsm.counts.gc.lost, lost);
        Counts::add(&lsm.counts.gc.moved, batch.len() as u64);
        Counts::add(&lsm.counts.gc.moved_bytes, batch.bytes() as u64);
        Counts::add(&lsm.counts.worked_bytes, batch.bytes() as u64);
        self.moves.drain(..taken);
        Ok(Rewritten::Done)
    }
}

/// Those of `moves` whose keys are bound to their records, with what they are bound to.
fn bound(
    lsm: &Lsm,
    view: &ReadView,
    moves: Vec<Move>,
) -> Result<Vec<(Move, OwnedEntry)>, EngineError> {
    let keys: Vec<_> = moves.iter().map(|one| one.key.as_slice()).collect();
    let entries = view.locate_some(&keys, &lsm.reading)?;
    let bound = moves.into_iter().zip(entries).filter_map(|(one, entry)| {
        let entry = entry?;
        let (to, _) = entry.as_entry().pointer()?;
        (to == one.at).then_some((one, entry))
    });
    Ok(bound.collect())
}
