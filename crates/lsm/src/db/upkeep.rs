//! Upkeep: what has to be declared before it is needed, and sealed when it is over.
//!
//! A writer must never wait for an edit. So the next segment of a log is declared while the windows
//! still fit the present one, and a block of segment numbers while half of the last one is left. Of a log that
//! is written faster than edits become durable several segments are declared at a time, so that one segment for
//! each edit does not bound how fast values are written. What
//! is declared is used only once every member has the edit ([`Background`](super::background::Background) sees to
//! that). Segments that have ended are sealed in their order.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{EditSeq, LogId, SegmentNumber};
use argosy_device::Purpose;
use argosy_engine::EngineError;
use argosy_log::value::reach;

use super::background::{Effect, Ground};
use super::demand::TAILS_MAX;
use super::gc::Gc;
use super::logflush::DurableEnds;
use super::writer::Ended;
use crate::edit::{Edit, LogSegment};
use crate::names::logs::{LOGS, RECOVERY_LOG};
use crate::storage::Storage;
use crate::version::Version;
use crate::work::truncation::truncate_logs;

/// What a segment of `log` is wanted for. Where the device is full only deletes are written, and
/// these go to the recovery log. `in_use`: it has a segment, or memtables depend on older ones.
pub(super) fn tail_purpose(log: LogId, in_use: bool) -> Purpose {
    match (log == RECOVERY_LOG, in_use) {
        (true, true) => Purpose::Log,
        (true, false) => Purpose::Opening,
        (false, _) => Purpose::Write,
    }
}

/// So many segments of each log are kept for members that are away, beside those that replay needs: what a
/// region writes in a while, and so few that one edit can remove all of them.
const KEPT_MAX: usize = 64;

/// See the module documentation.
pub(super) struct Upkeep {
    /// Marks that are durable here but perhaps not everywhere.
    marks: VecDeque<(EditSeq, SegmentNumber)>,
    /// A segment number for which the device had no room.
    unused_number: Option<SegmentNumber>,
}

impl Upkeep {
    /// Of an engine that begins with `version`.
    pub(super) fn new(version: &Version) -> Self {
        // What an earlier engine reserved was recorded before it was used, everywhere or not: this
        // one reserves its own.
        Self {
            marks: VecDeque::from([(version.seq(), version.mark())]),
            unused_number: None,
        }
    }

    /// The edit `seq` is durable here, and raises the mark if there is one.
    pub(super) fn committed(&mut self, seq: EditSeq, mark: Option<SegmentNumber>) {
        self.marks.extend(mark.map(|mark| (seq, mark)));
    }

    /// The edits up to `usable` may be relied on: the numbers that they reserve may be used. Returns whether there
    /// are any.
    pub(super) fn usable(&mut self, usable: EditSeq, storage: &mut Storage) -> bool {
        let mut any = false;
        while let Some((_, mark)) = self.marks.pop_front_if(|(seq, _)| *seq <= usable) {
            storage.mark_recorded(mark);
            any = true;
        }
        any
    }

    /// Seals, declares and reserves, by one edit. Returns it, unless there is nothing to be done.
    pub(super) fn step(
        &mut self,
        at: &mut Ground<'_>,
        logs: &DurableEnds,
        gc: &mut Gc,
    ) -> Result<Option<(Edit, Effect)>, EngineError> {
        let mut edit = at.storage.next_edit(at.lsm.serving.epoch());
        let mut effect = Effect::of_upkeep();
        seal_ended(at, logs, &mut edit, &mut effect);
        self.add_tails(at, gc, &mut edit, &mut effect)?;
        let few = at.storage.numbers_left() < at.lsm.settings.levels.number_block / 2;
        if few && self.marks.is_empty() {
            at.storage.raise_mark(&mut edit);
            effect.mark = edit.numbers.mark;
        }
        let idle = edit.logs.sealed.is_empty()
            && edit.logs.added.is_empty()
            && edit.numbers.mark.is_none();
        if idle && !at.jobs.space.is_full() && !gc.truncates {
            return Ok(None);
        }
        gc.truncates = false;
        // What an earlier engine began and nobody wrote to is in no flush's way.
        let head = Arc::clone(at.storage.head());
        let reach = reach(at.lsm.settings.layout.segment_bytes);
        truncate_logs(&head, reach, &mut at.jobs.lasts, &mut edit);
        if idle && edit.logs.removed.is_empty() {
            return Ok(None);
        }
        Ok(Some((edit, effect)))
    }

    /// Declares the next segments of each log that will need one soon.
    fn add_tails(
        &mut self,
        at: &mut Ground<'_>,
        gc: &Gc,
        edit: &mut Edit,
        effect: &mut Effect,
    ) -> Result<(), EngineError> {
        let lsm = at.lsm;
        let (segment_bytes, most) = (lsm.settings.layout.segment_bytes as u64, tails_max(at));
        for log in LOGS {
            let (wanted, base_lsn) = {
                let mut writer = lsm.lock();
                let wanted = writer.ask_for_segments(log, segment_bytes, most);
                (wanted, writer.last().next())
            };
            for _ in 0..wanted {
                let Some(number) = self.allocate(at, gc, log)? else {
                    break;
                };
                let segment = LogSegment {
                    log,
                    ordinal: next_ordinal(at.storage.head(), edit, log),
                    number,
                    epoch: lsm.serving.epoch(),
                    base_lsn,
                    end: None,
                };
                edit.logs.added.push(segment);
                effect.added.push(segment);
            }
        }
        Ok(())
    }

    /// A segment for `log`; `None` where there is no number or no room for it.
    fn allocate(
        &mut self,
        at: &mut Ground<'_>,
        gc: &Gc,
        log: LogId,
    ) -> Result<Option<SegmentNumber>, EngineError> {
        let kept = self.unused_number.take();
        let Some(number) = kept.or_else(|| at.storage.allocate_number()) else {
            return Ok(None);
        };
        let in_use = {
            let writer = at.lsm.lock();
            writer.has_segment(log) || writer.holds_entries()
        };
        let purpose = gc.tail_purpose(log, tail_purpose(log, in_use));
        // Each member allocates this segment, too, out of the room that its flushes and merges need.
        if at.jobs.space.room_for(purpose) == 0 {
            self.unused_number = Some(number);
            return Ok(None);
        }
        match at.storage.allocate(number, purpose) {
            Ok(_) => Ok(Some(number)),
            Err(error) if error.is_full() => {
                self.unused_number = Some(number);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Seals what has ended and is durable up to its end, together with everything that was written
/// before it, also to the other log: a power loss must not cut the history below what is
/// sealed, because LSNs behind the cut are used again.
fn seal_ended(at: &mut Ground<'_>, logs: &DurableEnds, edit: &mut Edit, effect: &mut Effect) {
    let head = at.storage.head();
    let writer = at.lsm.lock();
    let durable = writer.logs.durable(writer.last());
    for log in LOGS {
        let ended = writer.ended().filter(|ended| ended.point.log == log);
        for Ended { point, last } in ended {
            let entry = head.log_segment(point.number);
            let ordinal = entry.expect("a tail is in the version").segment.ordinal;
            if *last > durable || !logs.covers(log, ordinal, point.to) {
                break;
            }
            edit.logs.sealed.push(*point);
            effect.sealed.push(point.number);
            at.jobs.lasts.set(point.number, *last);
        }
    }
}

/// Sees to it that the logs are kept for members that are away, where that is wanted and there is ample room.
pub(super) fn note_kept(at: &mut Ground<'_>) {
    let keeps = at.lsm.history.keeps_log() && is_ample(at);
    at.jobs.lasts.keep(if keeps { KEPT_MAX } else { 0 });
}

/// Whether at least a quarter of the device is free.
fn is_ample(at: &Ground<'_>) -> bool {
    let store = at.storage.store();
    !at.jobs.space.is_full() && store.room().free >= store.total() / 4
}

/// How many segments of a log may be declared at a time: next to nothing of what the region takes, so that they
/// do not count for [`amplification_max`](crate::SpaceSettings::amplification_max), and one where less than
/// a quarter of the device is free.
fn tails_max(at: &Ground<'_>) -> u64 {
    match is_ample(at) {
        true => TAILS_MAX.min(1 + at.storage.head().table().len() as u64 / 64),
        false => 1,
    }
}

/// The ordinal of the segment with which `log` continues behind its last one and those that `edit` adds to it.
fn next_ordinal(head: &Version, edit: &Edit, log: LogId) -> u64 {
    let last = head.log(log).last().map(|last| last.segment.ordinal);
    let mut added = edit.logs.added.iter().rev();
    let added = added.find(|added| added.log == log);
    let last = added.map(|added| added.ordinal).or(last);
    last.map_or(0, |last| last + 1)
}
