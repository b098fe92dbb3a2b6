//! Everything that an engine does besides answering: flushes, compactions, commits.
//!
//! A step goes once through what is under way and moves each thing as far as that is possible
//! without waiting for a write:
//!
//! 1. *Logs*, unless somebody makes them durable apart from this ([`log_work`](super::log_work)).
//! 2. *Commits*: edits that became durable take effect: the new version is shown to readers, the
//!    retired memtable leaves, log segments may be written, the observer hears of it.
//! 3. *Space*: where the device is full, what may free some is begun ([`space`](super::space)).
//!    What reads have spent triggers merges ([`read_triggered`](crate::work::read_triggered)).
//! 4. *Jobs*: memtables become runs, and levels are merged ([`jobs`](crate::work::jobs)).
//!    In turns with merges, sorted pairs that were handed in become segments ([`bulk_load`](super::bulk_load)).
//! 5. *Upkeep* (`upkeep`): log segments that ended are sealed, new ones are declared before they are
//!    needed, and so are segment numbers.
//!
//! At most one flush, one compaction, one upkeep edit and one of a bulk load are on their way to being committed,
//! so the queue of edits is bounded by four (I8). A job under way is forgotten by a crash (I3).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::{EditSeq, Instant, Lsn, SegmentNumber};
use argosy_engine::{EngineError, LogEnd, Progress, Store as _};

use super::Lsm;
use super::bulk_load::{BulkLoadJob, BulkLoadStep, Taken};
use super::full_compaction::FullCompaction;
use super::gc::Gc;
use super::logflush::DurableEnds;
use super::upkeep::{Upkeep, note_kept};
use crate::edit::{Edit, LogSegment};
use crate::names::logs::LOGS;
use crate::storage::{Committed, Storage, StorageError};
use crate::work::admission::Worked;
use crate::work::freed::pointed_to;
use crate::work::jobs::{Jobs, Made, Now};
use crate::work::site::Site;
use crate::work::stats::Counts;

/// What has to be done once an edit is durable.
#[derive(Default)]
pub(super) struct Effect {
    seq: EditSeq,
    /// It retires the oldest memtable.
    flush: bool,
    /// It is that of a compaction.
    compaction: bool,
    /// It is one of upkeep.
    upkeep: bool,
    /// It brings pairs into the levels that no memtable had.
    bulk_load: bool,
    pub(super) sealed: Vec<SegmentNumber>,
    pub(super) added: Vec<LogSegment>,
    pub(super) mark: Option<SegmentNumber>,
}

/// See the module documentation.
pub(super) struct Background {
    pub(super) storage: Storage,
    pub(super) jobs: Jobs,
    gc: Gc,
    /// Pairs that become segments without a memtable.
    bulk_load_job: BulkLoadJob,
    /// The full compaction, where one was requested.
    full_compaction: FullCompaction,
    upkeep: Upkeep,
    /// Edits on their way, in order.
    effects: VecDeque<Effect>,
    /// Bytes worked off that writers were paid for.
    paid_bytes: u64,
    /// What reads had done at the last step.
    reads: u64,
}

impl Effect {
    /// That of the edit of a bulk load.
    fn of_bulk_load() -> Self {
        Self {
            bulk_load: true,
            ..Self::default()
        }
    }

    /// That of an edit of upkeep.
    pub(super) fn of_upkeep() -> Self {
        Self {
            upkeep: true,
            ..Self::default()
        }
    }
}

impl Background {
    /// The background of an engine that begins behind `last`.
    pub(super) fn new(storage: Storage, last: Lsn) -> Self {
        let upkeep = Upkeep::new(storage.head());
        let jobs = Jobs::new(&storage, last);
        let gc = Gc::new(storage.settings().layout.segment_bytes);
        Self {
            storage,
            jobs,
            gc,
            bulk_load_job: BulkLoadJob::default(),
            full_compaction: FullCompaction::default(),
            upkeep,
            effects: VecDeque::new(),
            paid_bytes: 0,
            reads: 0,
        }
    }

    /// The storage, without the work that was under way: it is given up, and so are the edits that no append has begun
    /// to write. Blocks.
    pub(super) fn into_storage(self) -> Result<Storage, StorageError> {
        let mut storage = self.storage;
        storage.abandon_all();
        storage.end_queue()?;
        Ok(storage)
    }

    /// See [`Lsm::device_segments`].
    pub(super) fn device_segments(&self) -> usize {
        self.storage.device_segments()
    }

    /// Whether the device is written still.
    pub(super) fn check_device(&self) -> Result<(), EngineError> {
        match self.storage.store().failure() {
            None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    /// One step.
    pub(super) fn step(&mut self, lsm: &Lsm, now: Instant) -> Result<Progress, EngineError> {
        let logs = lsm.steps.logs().step_if_together(lsm, now)?;
        let mut made = logs.made;
        made |= self.step_commits(lsm)?;
        if self.storage.damages().step(self.storage.head(), now) {
            self.jobs.try_again();
        }
        lsm.space
            .look(&mut ground(&mut self.storage, &mut self.jobs, lsm), now);
        self.jobs.note_reads(&lsm.reading.filters, &self.storage);
        note_kept(&mut ground(&mut self.storage, &mut self.jobs, lsm));
        let committing = self.is_committing(|_| true);
        made |= self.full_compaction.step(lsm, &mut self.jobs, committing);
        made |= self.step_jobs(lsm)?;
        made |= self.step_bulk_load(lsm)?;
        for _ in 0..self.moves_due(lsm) {
            let mut ground = ground(&mut self.storage, &mut self.jobs, lsm);
            if !self.gc.step(&mut ground)? {
                break;
            }
            made = true;
        }
        made |= self.step_upkeep(lsm)?;
        made |= self.pay(lsm);
        lsm.freeze_beyond_memory();
        lsm.shown.settle_pinned();
        let pending = self.pending() + usize::from(lsm.bulk_loads.waits());
        lsm.steps.set_pending(pending);
        self.ask_for_log(lsm);
        let device = pending > 0 || logs.device || !self.storage.is_idle();
        let rests = self.rests(lsm) && !device;
        Ok(Progress {
            made,
            device,
            idle_for: logs
                .idle_for
                .or((!rests).then_some(lsm.settings.logs.flush_interval)),
        })
    }

    /// Whether there is nothing to do before somebody wakes the region: no work, no damage that is tried again, no room
    /// that may come, no memtable of a snapshot that may be closed, and nothing was read since the last step. From then
    /// on reads wake it.
    fn rests(&mut self, lsm: &Lsm) -> bool {
        let reads = lsm.reading.filters.all();
        let was_read = std::mem::replace(&mut self.reads, reads) != reads;
        let works = lsm.background_pending() > 0 || lsm.full_compaction.is_pending();
        let is_full = self.storage.store().room().is_full() || self.jobs.space.is_full();
        let looks = !self.storage.damages().is_empty() || lsm.shown.pins_any();
        let rests = !was_read && !works && !is_full && !looks;
        if rests {
            lsm.reading.filters.rouser.rest();
        }
        rests
    }

    /// Steps of garbage collection that are due.
    fn moves_due(&self, lsm: &Lsm) -> usize {
        // What is moved goes through memtables, which shadow what is being bulk-loaded.
        if self.jobs.is_bulk_loading() || self.clears_for_bulk_load(lsm) {
            return 0;
        }
        // Merges that are behind come first.
        let is_behind = lsm.lock().l1_runs() > lsm.settings.levels.l1_runs;
        match is_behind && self.jobs.read_triggered.is_merging() {
            true => 1,
            false => self.gc.steps(),
        }
    }

    /// Whether a flush or a merge runs ahead of a part for which memtables were frozen. Values that are moved in the
    /// meantime would land in the next memtable, in the way of the part again. Moves continue where these jobs find no
    /// room, since moves free some.
    fn clears_for_bulk_load(&self, lsm: &Lsm) -> bool {
        let works = || self.jobs.compaction.is_some() || lsm.lock().oldest_frozen().is_some();
        lsm.bulk_loads.has_frozen() && self.jobs.space.may_begin() && works()
    }

    /// Pays for writes with what was worked off. Returns whether another step is due for those who wait.
    fn pay(&mut self, lsm: &Lsm) -> bool {
        let total = lsm.counts.worked_bytes.load(Ordering::Relaxed);
        let worked = Worked {
            bytes: total - std::mem::replace(&mut self.paid_bytes, total),
            has_more: self.pending() > 0,
        };
        let segment_bytes = lsm.settings.layout.segment_bytes as u64;
        let space = self.gc.owed(self.storage.head(), segment_bytes);
        let mut writer = lsm.lock();
        let owed = writer.owed(space, &lsm.settings);
        writer.admission.worked(&owed, worked)
    }

    /// Jobs and edits under way, and whether a compaction may have to be begun.
    fn pending(&self) -> usize {
        self.jobs.pending() + self.gc.pending() + self.effects.len()
    }

    /// Makes everything durable that has been appended, says so on the device, and waits for it.
    pub(super) fn flush_blocking(&mut self, lsm: &Lsm) -> Result<(), EngineError> {
        lsm.steps.logs().flush_blocking(lsm)?;
        self.declare_durable(lsm)
    }

    /// Has the ends of the logs say that all of them is durable, so that damage to them is no torn tail: of both,
    /// since one that lands on the wrong block takes away what it speaks of.
    fn declare_durable(&self, lsm: &Lsm) -> Result<(), EngineError> {
        let marks: Vec<_> = {
            let writer = lsm.lock();
            let last = writer.last();
            let logs = LOGS.map(|log| writer.logs.log(log));
            let written = logs.iter().any(|log| log.end().is_some());
            let logs = logs.iter().filter(|_| written);
            logs.filter_map(|log| log.mark_behind_end(last)).collect()
        };
        let store = self.storage.store();
        for (segment, offset, block) in marks {
            if let Some(entry) = self.storage.current().log_segment(segment) {
                let len = block.len();
                let written = entry.stored.write(offset, Arc::new(block), 0..len);
                store.wait(&written)?;
            }
        }
        Ok(store.wait(&store.sync())?)
    }

    /// Whether a flush job is finished but for the log bytes that it points to.
    fn waits_for_log(&self, lsm: &Lsm) -> bool {
        let durable = lsm.steps.logs().durable();
        self.jobs.waits_for_log(&|end| is_durable(durable, end))
    }

    /// Has the log flushed for as long as a flush waits for it.
    fn ask_for_log(&self, lsm: &Lsm) {
        if lsm.steps.logs().set_awaited(self.waits_for_log(lsm)) {
            lsm.wake();
        }
    }

    // --- Commits ---

    fn step_commits(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        let committed = self.storage.step()?;
        let any = !committed.is_empty();
        for edit in committed {
            self.committed(lsm, edit);
        }
        let witnessed = self.storage.witnessed();
        lsm.history.edits().note_witnessed(witnessed);
        let mut everywhere = lsm.history.edits().usable();
        let mut provided = lsm.lock().provide_spares(everywhere);
        if lsm.settings.mutants.number_early() {
            everywhere = self.storage.current().seq();
        }
        provided |= self.upkeep.usable(everywhere, &mut self.storage);
        Ok(any || provided)
    }

    fn committed(&mut self, lsm: &Lsm, edit: Committed) {
        self.jobs.at_rest = false;
        let seq = edit.notice.seq;
        let effect = self.effects.pop_front().expect("every edit has its effect");
        assert_eq!(effect.seq, seq, "edits are committed in order");
        let parts = self.bulk_load_job.committed(seq, &mut self.jobs);
        Counts::add(&lsm.counts.edits, 1);
        let before = {
            let mut writer = lsm.lock();
            let version = writer.install(edit.version, effect.flush);
            if effect.bulk_load {
                writer.bulk_loaded();
            }
            if parts.is_some() {
                writer.hold(None);
            }
            for number in effect.sealed {
                writer.sealed(number);
            }
            for segment in effect.added {
                writer.add_spare(seq, segment);
            }
            (version, lsm.shown.replace(&writer))
        };
        if let (_, Some(retired)) = &before.0 {
            lsm.shown.keep(&retired.table);
        }
        // A retired memtable and freed segments, unless someone still reads them.
        drop(before);
        if effect.flush {
            self.jobs.flush_committed();
        }
        if effect.compaction {
            self.jobs.compaction_committed();
        }
        self.upkeep.committed(seq, effect.mark);
        if let Some(observer) = lsm.serving.observer() {
            observer.edit_committed(&edit.notice);
        } else {
            lsm.history.edits().note_everywhere(seq);
        }
        if lsm.settings.mutants.provide_early() {
            lsm.lock().provide_spares(seq);
        }
        if let Some(parts) = parts {
            lsm.bulk_loads.end(&parts, Taken::Done, seq);
        }
    }

    /// Hands `edit` to the storage. Its seq and epoch are set already.
    pub(super) fn commit(
        &mut self,
        lsm: &Lsm,
        mut edit: Edit,
        effect: Effect,
    ) -> Result<(), EngineError> {
        let durable = {
            let writer = lsm.lock();
            writer.logs.durable(writer.last())
        };
        edit.numbers.durable = Some(durable.max(self.storage.head().durable()));
        let effect = Effect {
            seq: edit.seq,
            ..effect
        };
        Counts::add(&lsm.counts.gc.evacuated, edit.evacuated.len() as u64);
        let before = Arc::clone(self.storage.head());
        self.storage.commit(&edit)?;
        self.gc.follow(&edit, self.storage.head(), &self.jobs.lasts);
        if lsm.settings.check_frees {
            let found = pointed_to(&before, self.storage.head(), &edit, &lsm.settings);
            assert!(found.is_none(), "I1: {} frees {found:?}", edit.seq);
        }
        self.effects.push_back(effect);
        Ok(())
    }

    fn is_committing(&self, which: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(which)
    }

    /// Waits until every edit that was handed in is durable, and has it take effect.
    pub(super) fn settle(&mut self, lsm: &Lsm) -> Result<(), EngineError> {
        for edit in self.storage.settle()? {
            self.committed(lsm, edit);
        }
        self.step_commits(lsm)?;
        Ok(())
    }

    // --- Jobs ---

    fn step_jobs(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        let frozen = lsm.lock().oldest_frozen().cloned();
        let committed = lsm.shown.marks().committed_lsn();
        let durable = lsm.steps.logs().durable();
        let now = Now {
            frozen: frozen.as_ref().filter(|frozen| frozen.last <= committed),
            is_durable: &|end| is_durable(durable, end),
            flush_committing: self.is_committing(|effect| effect.flush),
            compaction_committing: self.is_committing(|effect| effect.compaction),
        };
        let waited = self.jobs.waits_for_log(now.is_durable);
        let mut site = site(&mut self.storage, lsm);
        let (edit, effect) = match self.jobs.step(&mut site, &now)? {
            // The next step writes the log that the flush waits for from now on.
            Made::Nothing => return Ok(!waited && self.waits_for_log(lsm)),
            Made::Progress => return Ok(true),
            Made::Flushed(edit) => (
                edit,
                Effect {
                    flush: true,
                    ..Effect::default()
                },
            ),
            Made::Compacted(edit) => (
                edit,
                Effect {
                    compaction: true,
                    ..Effect::default()
                },
            ),
        };
        self.commit(lsm, edit, effect)?;
        Ok(true)
    }

    fn step_bulk_load(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        let gives_up = lsm.settings.mutants.bulk_load_gives_up() && lsm.bulk_loads.waits();
        if gives_up && !self.is_committing(|effect| effect.flush || effect.compaction) {
            self.jobs.levels_replaced(&mut self.storage);
        }
        let mut ground = ground(&mut self.storage, &mut self.jobs, lsm);
        match self.bulk_load_job.step(&mut ground)? {
            BulkLoadStep::Nothing => return Ok(false),
            BulkLoadStep::Some => {}
            BulkLoadStep::All(edit) => self.commit(lsm, *edit, Effect::of_bulk_load())?,
        }
        Ok(true)
    }

    /// Seals, declares and reserves, by one edit, unless one is on its way.
    pub(super) fn step_upkeep(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        if self.is_committing(|effect| effect.upkeep) {
            return Ok(false);
        }
        let mut ground = ground(&mut self.storage, &mut self.jobs, lsm);
        let made = self
            .upkeep
            .step(&mut ground, lsm.steps.logs().durable(), &mut self.gc)?;
        let Some((edit, effect)) = made else {
            return Ok(false);
        };
        self.commit(lsm, edit, effect)?;
        Ok(true)
    }
}

/// What parts of the background work on.
pub(super) struct Ground<'a> {
    pub(super) storage: &'a mut Storage,
    pub(super) jobs: &'a mut Jobs,
    pub(super) lsm: &'a Lsm,
}

fn ground<'a>(storage: &'a mut Storage, jobs: &'a mut Jobs, lsm: &'a Lsm) -> Ground<'a> {
    Ground { storage, jobs, lsm }
}

/// Where the jobs of `lsm` are done.
pub(super) fn site<'a>(storage: &'a mut Storage, lsm: &'a Lsm) -> Site<'a> {
    Site {
        storage,
        settings: &lsm.settings,
        epoch: lsm.serving.epoch(),
        observer: lsm.serving.observer(),
        cache: Some(&lsm.reading.cache),
        counts: &lsm.counts,
        time: lsm.committed_time(),
    }
}

fn is_durable(durable: &DurableEnds, end: &LogEnd) -> bool {
    durable.covers(end.log, end.ordinal, end.end)
}
