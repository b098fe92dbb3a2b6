//! Upkeep: what has to be declared before it is needed, and sealed when it is over.
//!
//! A writer must never wait for an edit. So the next segment of a log is declared while the windows
//! still fit the present one, and a block of segment numbers while half of the last one is left. Of a log that
//! is written faster than edits become durable several segments are declared at a time, so that one segment for
//! each edit does not bound how fast values are written. What
//! is declared is used only once every member has the edit ([`Background`] sees to that). Segments
//! that have ended are sealed in their order.

use std::sync::Arc;

use argosy_base::{LogKind, Lsn};
use argosy_device::Purpose;
use argosy_engine::EngineError;
use argosy_log::value::reach;

use super::Lsm;
use super::background::{Background, Effect};
use super::demand::TAILS_MAX;
use super::writer::Ended;
use crate::edit::{Edit, LogSegment};
use crate::work::trim::trim;

/// What a segment of `log` is wanted for. Where the device is full only deletes are written, and
/// these go to the recovery log. `in_use`: it has a segment, or memtables depend on older ones.
pub(super) const fn tail_purpose(log: LogKind, in_use: bool) -> Purpose {
    match log {
        LogKind::Recovery if in_use => Purpose::Log,
        LogKind::Recovery => Purpose::Opening,
        LogKind::Large => Purpose::Write,
    }
}

impl Background {
    /// Seals, declares and reserves, by one edit, unless one is on its way.
    pub(super) fn upkeep(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        if self.is_committing(|effect| effect.upkeep) {
            return Ok(false);
        }
        let mut edit = self.storage.next_edit(lsm.epoch);
        let mut effect = Effect::of_upkeep();
        self.seal_ended(lsm, &mut edit, &mut effect);
        self.add_tails(lsm, &mut edit, &mut effect)?;
        let few = self.storage.numbers_left() < lsm.settings.number_block / 2;
        if few && self.marks.is_empty() {
            self.storage.raise_mark(&mut edit);
            effect.mark = edit.mark;
        }
        let idle = edit.logs_sealed.is_empty() && edit.logs_added.is_empty() && edit.mark.is_none();
        if idle && !self.jobs.space.is_full() && !self.gc.trims {
            return Ok(false);
        }
        self.gc.trims = false;
        // What an earlier engine began and nobody wrote to is in no flush's way.
        let head = Arc::clone(self.storage.head());
        let reach = reach(lsm.settings.segment_bytes);
        trim(&head, reach, &mut self.jobs.lasts, &mut edit);
        if idle && edit.logs_removed.is_empty() {
            return Ok(false);
        }
        self.commit(lsm, edit, effect)?;
        Ok(true)
    }

    /// Seals what has ended and is durable up to its end, together with everything that was written
    /// before it, also to the other log: a power loss must not cut the history below what is
    /// sealed, because LSNs behind the cut are used again.
    fn seal_ended(&mut self, lsm: &Lsm, edit: &mut Edit, effect: &mut Effect) {
        let head = self.storage.head();
        let writer = lsm.lock();
        let durable = writer.logs.durable(writer.last());
        for log in LogKind::ALL {
            let ended = writer.ended().filter(|ended| ended.point.log == log);
            for Ended { point, last } in ended {
                let entry = head.log_segment(point.number);
                let ordinal = entry.expect("a tail is in the version").segment.ordinal;
                if *last > durable || !self.logs.is_durable(log, ordinal, point.to) {
                    break;
                }
                edit.logs_sealed.push(*point);
                effect.sealed.push(point.number);
                self.jobs.lasts.set(point.number, *last);
            }
        }
    }

    /// Declares the next segments of each log that will need one soon.
    fn add_tails(
        &mut self,
        lsm: &Lsm,
        edit: &mut Edit,
        effect: &mut Effect,
    ) -> Result<(), EngineError> {
        let (segment_bytes, most) = (lsm.settings.segment_bytes as u64, self.tails_max());
        for log in LogKind::ALL {
            let (wanted, base_lsn) = {
                let mut writer = lsm.lock();
                let wanted = writer.ask_for_segments(log, segment_bytes, most);
                (wanted, writer.last().next())
            };
            for _ in 0..wanted {
                let Some(segment) = self.next_tail(lsm, (log, base_lsn), edit)? else {
                    break;
                };
                edit.logs_added.push(segment);
                effect.added.push(segment);
            }
        }
        Ok(())
    }

    /// How many segments of a log may be declared at a time: next to nothing of what the region takes, so that they
    /// do not count for [`max_space_amplification`](crate::Settings::max_space_amplification), and one where less than
    /// a quarter of the device is free.
    fn tails_max(&self) -> u64 {
        let store = self.storage.store();
        let is_ample = !self.jobs.space.is_full() && store.room().free >= store.total() / 4;
        match is_ample {
            true => TAILS_MAX.min(1 + self.storage.head().table().len() as u64 / 64),
            false => 1,
        }
    }

    /// The segment with which `log` goes on behind its last one and those that `edit` adds to it; `None` where
    /// there is no number or no room for it.
    fn next_tail(
        &mut self,
        lsm: &Lsm,
        (log, base_lsn): (LogKind, Lsn),
        edit: &Edit,
    ) -> Result<Option<LogSegment>, EngineError> {
        let kept = self.unused_number.take();
        let Some(number) = kept.or_else(|| self.storage.allocate_number()) else {
            return Ok(None);
        };
        let in_use = {
            let writer = lsm.lock();
            writer.has_segment(log) || writer.holds_entries()
        };
        let purpose = self.gc.tail_purpose(log, tail_purpose(log, in_use));
        // Each member allocates this segment, too, out of the room that its flushes and merges need.
        if self.jobs.space.room_for(purpose) == 0 {
            self.unused_number = Some(number);
            return Ok(None);
        }
        match self.storage.allocate(number, purpose) {
            Ok(_) => {}
            Err(error) if error.is_full() => {
                self.unused_number = Some(number);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let last = self.storage.head().log(log).last();
        let last = last.map(|last| last.segment.ordinal);
        let mut added = edit.logs_added.iter().rev();
        let added = added.find(|added| added.log == log);
        let last = added.map(|added| added.ordinal).or(last);
        Ok(Some(LogSegment {
            log,
            ordinal: last.map_or(0, |last| last + 1),
            number,
            epoch: lsm.epoch,
            base_lsn,
            end: None,
        }))
    }
}
