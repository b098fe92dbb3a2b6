//! Everything that an engine does besides answering: flushes, compactions, commits.
//!
//! A step goes once through what is under way and moves each thing as far as that is possible
//! without waiting for a write:
//!
//! 1. *Logs*: full windows, and every `flush_interval` what is filled of the present ones, go to the
//!    device ([`LogFlusher`]).
//! 2. *Commits*: edits that became durable take effect: the new version is shown to readers, the
//!    retired memtable leaves, log segments may be written, the observer hears of it.
//! 3. *Space*: where the device is full, what may free some is begun ([`Space`]).
//! 4. *Jobs*: the oldest frozen memtable becomes a run of L1, once everything in it is committed;
//!    one part of one level at a time is merged into the level below. A step merges about
//!    `step_bytes` of one of them. What a job made is committed by one edit.
//! 5. *Upkeep* (`upkeep`): log segments that ended are sealed, new ones are declared before they are
//!    needed, and so are segment numbers.
//!
//! At most one flush, one compaction and one upkeep edit are on their way to being committed, so
//! the queue of edits is bounded by three (I8). A job under way is forgotten by a crash (I3).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use argosy_base::{EditSeq, Instant, KeyRange, Lsn, SegmentNumber};
use argosy_device::Purpose;
use argosy_engine::{EngineError, FlushRange, LogEnd, Progress};

use super::Lsm;
use super::logflush::LogFlusher;
use super::space::Space;
use super::stats::Counts;
use super::trim::{LastLsns, reach, trim};
use crate::compaction::build::{Below, Build, Stepped, Target, Tools};
use crate::compaction::pick::{Choice, Policy, pick};
use crate::compaction::plan::{Plan, move_down, shape};
use crate::compaction::sources::{MemtableSource, RunReading, RunSource};
use crate::edit::{Edit, LogPoint, LogSegment, RunId};
use crate::level::ReadAhead;
use crate::level::builder::Geometry;
use crate::merge::Merge;
use crate::storage::{Committed, Storage};

/// A memtable that is becoming a run.
pub(super) struct Flush {
    pub(super) build: Build<MemtableSource>,
    last: Lsn,
    /// The end of the large log below which its pointers lie.
    large: Option<LogEnd>,
}

/// A part of a level that is being merged into the next.
pub(super) struct Compaction {
    pub(super) build: Build<Merge<RunSource>>,
    plan: Plan,
}

/// What has to be done once an edit is durable.
#[derive(Default)]
pub(super) struct Effect {
    seq: EditSeq,
    /// It retires the oldest memtable.
    flush: bool,
    /// It is that of a compaction.
    compaction: bool,
    /// It is one of upkeep.
    pub(super) upkeep: bool,
    pub(super) sealed: Vec<SegmentNumber>,
    pub(super) added: Vec<LogSegment>,
    pub(super) mark: Option<SegmentNumber>,
}

/// See the module documentation.
pub(super) struct Background {
    pub(super) storage: Storage,
    pub(super) logs: LogFlusher,
    pub(super) flush: Option<Flush>,
    pub(super) compaction: Option<Compaction>,
    /// Edits on their way, in order.
    effects: VecDeque<Effect>,
    /// Marks that are durable here but perhaps not everywhere.
    pub(super) marks: VecDeque<(EditSeq, SegmentNumber)>,
    pub(super) lasts: LastLsns,
    /// A segment number for which the device had no room.
    pub(super) unused_number: Option<SegmentNumber>,
    next_run: u64,
    next_flush: Option<Instant>,
    /// The flush or the compaction goes first in the next step.
    compaction_first: bool,
    /// No level of the head version asks for a compaction.
    pub(super) at_rest: bool,
    /// What is done about a device that is full.
    pub(super) space: Space,
}

impl Effect {
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
        let version = storage.head();
        let runs = version.level(1).map_or(&[][..], |level| &level.runs);
        let next_run = runs.iter().map(|run| run.id.0 + 1).max().unwrap_or(1);
        // What an earlier engine reserved was recorded before it was used, everywhere or not: this
        // one reserves its own.
        let marks = VecDeque::from([(version.seq(), version.mark())]);
        Self {
            storage,
            logs: LogFlusher::default(),
            flush: None,
            compaction: None,
            effects: VecDeque::new(),
            marks,
            lasts: LastLsns::new(last),
            unused_number: None,
            next_run,
            next_flush: None,
            compaction_first: false,
            at_rest: false,
            space: Space::default(),
        }
    }

    /// See [`Lsm::device_segments`].
    pub(super) fn device_segments(&self) -> usize {
        self.storage.device_segments()
    }

    /// One step.
    pub(super) fn step(&mut self, lsm: &Lsm, now: Instant) -> Result<Progress, EngineError> {
        let mut made = self.step_logs(lsm, now)?;
        made |= self.step_commits(lsm)?;
        self.look_for_space(lsm, now);
        made |= self.step_jobs(lsm)?;
        made |= self.upkeep(lsm)?;
        lsm.pending.store(self.pending(), Ordering::Relaxed);
        let due = self.next_flush.map(|at| at.since(now));
        Ok(Progress {
            made,
            idle_for: due.map(|due| due.max(Duration::from_millis(1))),
        })
    }

    /// Jobs and edits under way, and whether a compaction may have to be begun.
    fn pending(&self) -> usize {
        let jobs = usize::from(self.flush.is_some()) + usize::from(self.compaction.is_some());
        jobs + self.effects.len() + usize::from(!self.at_rest)
    }

    /// Makes everything durable that has been appended, and waits for it.
    pub(super) fn flush_blocking(&mut self, lsm: &Lsm) -> Result<(), EngineError> {
        lsm.force_flushes(&mut lsm.lock());
        self.submit_flushes(lsm);
        let store = Arc::clone(self.storage.store());
        let done = self.logs.wait(&store)?;
        self.flushed(lsm, &done);
        Ok(())
    }

    // --- Logs ---

    pub(super) fn step_logs(&mut self, lsm: &Lsm, now: Instant) -> Result<bool, EngineError> {
        let interval = lsm.settings.flush_interval;
        let due = *self.next_flush.get_or_insert(now + interval);
        let asked = lsm.flush_asked.swap(false, Ordering::AcqRel);
        let mut made = false;
        if asked || now >= due || self.waits_for_log() {
            made |= lsm.force_flushes(&mut lsm.lock());
            self.next_flush = Some(now + interval);
        }
        made |= self.submit_flushes(lsm);
        let (done, moved) = self.logs.step(self.storage.store())?;
        self.flushed(lsm, &done);
        Ok(made || moved)
    }

    fn submit_flushes(&mut self, lsm: &Lsm) -> bool {
        let mut any = false;
        loop {
            let (range, windows) = {
                let mut writer = lsm.lock();
                let Some(range) = writer.next_flush() else {
                    return any;
                };
                (range, Arc::clone(writer.logs.log(range.log).windows()))
            };
            let version = Arc::clone(self.storage.current());
            let bytes = self.logs.submit(range, &windows, &version);
            Counts::add(&lsm.counts.log_write_bytes, bytes);
            any = true;
        }
    }

    fn flushed(&self, lsm: &Lsm, done: &[FlushRange]) {
        if done.is_empty() {
            return;
        }
        let mut writer = lsm.lock();
        for range in done {
            let log = writer.logs.log_mut(range.log);
            log.flushed_locally(range.segment, range.to);
            if lsm.observer.is_none() {
                log.flushed_everywhere(range.segment, range.to);
            }
        }
    }

    /// Whether a flush job is finished but for the log bytes that it points to.
    fn waits_for_log(&self) -> bool {
        self.flush.as_ref().is_some_and(|flush| {
            let large = flush.large.filter(|end| !self.is_durable(end));
            large.is_some() && flush.build.is_done()
        })
    }

    fn is_durable(&self, end: &LogEnd) -> bool {
        self.logs.is_durable(end.log, end.ordinal, end.end)
    }

    // --- Commits ---

    fn step_commits(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        let committed = self.storage.step()?;
        let any = !committed.is_empty();
        for edit in committed {
            self.committed(lsm, edit);
        }
        let everywhere = EditSeq(lsm.edits_everywhere.load(Ordering::Acquire));
        let mut provided = false;
        while let Some((_, mark)) = self.marks.pop_front_if(|(seq, _)| *seq <= everywhere) {
            self.storage.mark_recorded(mark);
            provided = true;
        }
        Ok(any || provided)
    }

    fn committed(&mut self, lsm: &Lsm, edit: Committed) {
        self.at_rest = false;
        let seq = edit.notice.seq;
        let effect = self.effects.pop_front().expect("every edit has its effect");
        assert_eq!(effect.seq, seq, "edits are committed in order");
        Counts::add(&lsm.counts.edits, 1);
        let before = {
            let mut writer = lsm.lock();
            let version = writer.install(edit.version, effect.flush);
            for number in effect.sealed {
                writer.sealed(number);
            }
            for segment in effect.added {
                writer.add_spare(seq, segment);
            }
            (version, lsm.show(&writer))
        };
        // A retired memtable and freed segments, unless someone still reads them.
        drop(before);
        if effect.flush {
            self.flush = None;
        }
        if effect.compaction {
            self.compaction = None;
            self.space.narrower = 0;
        }
        self.marks.extend(effect.mark.map(|mark| (seq, mark)));
        if let Some(observer) = &lsm.observer {
            observer.edit_committed(&edit.notice);
        } else {
            lsm.edits_everywhere.store(seq.0, Ordering::Release);
        }
        let everywhere = EditSeq(lsm.edits_everywhere.load(Ordering::Acquire));
        lsm.lock().provide_spares(everywhere);
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
        edit.durable = Some(durable.max(self.storage.head().durable()));
        let effect = Effect {
            seq: edit.seq,
            ..effect
        };
        self.storage.commit(&edit)?;
        self.effects.push_back(effect);
        Ok(())
    }

    pub(super) fn is_committing(&self, which: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(which)
    }

    // --- Jobs ---

    /// Moves one job: the flush, or where that waits, the compaction; in turns while L1 or the
    /// device is full.
    fn step_jobs(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        let runs = self
            .storage
            .head()
            .level(1)
            .map_or(0, |level| level.runs.len());
        let behind = runs >= lsm.settings.l1_runs_max;
        self.compaction_first = (behind || self.space.is_full()) && !self.compaction_first;
        if self.compaction_first && self.step_compaction(lsm)? {
            return Ok(true);
        }
        if self.step_flush(lsm)? {
            return Ok(true);
        }
        Ok(!self.compaction_first && self.step_compaction(lsm)?)
    }

    fn target(&self, lsm: &Lsm) -> Target {
        Target {
            region: self.storage.region(),
            epoch: lsm.epoch,
            geometry: Geometry {
                node_bytes: lsm.settings.node_bytes,
                segment_bytes: lsm.settings.segment_bytes,
            },
        }
    }

    fn begin_flush(&mut self, lsm: &Lsm) -> bool {
        let frozen = lsm.lock().oldest_frozen().cloned();
        let Some(frozen) =
            frozen.filter(|frozen| frozen.last.0 <= lsm.committed.load(Ordering::Acquire))
        else {
            return false;
        };
        if !self.may_flush(&frozen.table) {
            return false;
        }
        let all = KeyRange::all();
        let source = MemtableSource::new(&frozen.table, frozen.last, &all);
        let below = Below::new(self.storage.head(), 1, &all);
        self.flush = Some(Flush {
            build: Build::new(source, self.target(lsm), below),
            last: frozen.last,
            large: frozen.large,
        });
        true
    }

    fn step_flush(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        if self.flush.is_none() && !self.begin_flush(lsm) {
            return Ok(false);
        }
        if self.is_committing(|effect| effect.flush) {
            return Ok(false);
        }
        let purpose = self.flush_purpose();
        let flush = self.flush.as_mut().expect("it was begun");
        let mut tools = Tools {
            storage: &mut self.storage,
            observer: lsm.observer.as_deref(),
            purpose,
            step_bytes: lsm.settings.step_bytes,
        };
        let stepped = flush.build.step(&mut tools)?;
        if stepped == Stepped::DeviceFull {
            self.give_up_flush();
            return Ok(false);
        }
        if stepped != Stepped::Done {
            return Ok(stepped == Stepped::Progress);
        }
        let flush = self.flush.as_ref().expect("it was begun");
        if flush.large.is_some_and(|end| !self.is_durable(&end)) {
            return Ok(false);
        }
        self.commit_flush(lsm)?;
        Ok(true)
    }

    fn commit_flush(&mut self, lsm: &Lsm) -> Result<(), EngineError> {
        let flush = self.flush.as_ref().expect("it is done");
        let mut edit = self.storage.next_edit(lsm.epoch);
        edit.replay_from = Some(flush.last.next());
        let run = RunId(self.next_run);
        self.next_run += 1;
        for segment in flush.build.outputs() {
            Counts::add(&lsm.counts.segment_write_bytes, segment.len.into());
            edit.added.push((1, run, segment.clone()));
        }
        edit.log_points.extend(flush.large.map(|end| LogPoint {
            log: end.log,
            number: end.segment,
            to: end.end,
        }));
        let head = Arc::clone(self.storage.head());
        // What is sealed is durable on whoever applied the seal, and needs no point.
        let is_open = |number| {
            let entry = head.log_segment(number);
            entry.is_some_and(|entry| entry.segment.end.is_none())
        };
        edit.log_points.retain(|point| is_open(point.number));
        let reach = reach(lsm.settings.segment_bytes);
        trim(&head, std::iter::empty(), reach, &mut self.lasts, &mut edit);
        Counts::add(&lsm.counts.flushes, 1);
        let effect = Effect {
            flush: true,
            ..Effect::default()
        };
        self.commit(lsm, edit, effect)
    }

    fn begin_compaction(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        let head = Arc::clone(self.storage.head());
        let policy = Policy {
            l1_runs: lsm.settings.l1_runs,
            growth_factor: lsm.settings.growth_factor,
            l0_bytes: lsm.settings.l0_bytes as u64,
            part_bytes: lsm.settings.compaction_part_bytes,
            segments_max: self.space.part_segments(),
            reclaim: self.space.is_full(),
            pack_bytes: self.space.pack_bytes(lsm.settings.segment_bytes),
            pack_segments: self.space.pack_segments(),
        };
        match pick(&shape(&head), &policy) {
            Choice::Rest => {
                self.at_rest = true;
                Ok(false)
            }
            Choice::Move { level, segments } => {
                let mut edit = self.storage.next_edit(lsm.epoch);
                move_down(&head, level, &segments, &mut edit);
                Counts::add(&lsm.counts.moves, segments.len() as u64);
                let effect = Effect {
                    compaction: true,
                    ..Effect::default()
                };
                self.commit(lsm, edit, effect)?;
                Ok(true)
            }
            Choice::Merge { level, range } => {
                let plan = Plan::new(&head, level, &range);
                let reading = RunReading {
                    region: self.storage.region(),
                    ahead: ReadAhead::COMPACTION,
                    cache: None,
                };
                let sources = plan
                    .inputs
                    .iter()
                    .map(|pieces| RunSource::new(reading.clone(), pieces.clone()))
                    .collect::<Result<_, _>>()?;
                let below = Below::new(&head, plan.target + 1, &range);
                Counts::add(&lsm.counts.compactions, 1);
                Counts::add(&lsm.counts.compaction_read_bytes, plan.bytes());
                self.compaction = Some(Compaction {
                    build: Build::new(Merge::new(sources), self.target(lsm), below),
                    plan,
                });
                Ok(true)
            }
        }
    }

    fn step_compaction(&mut self, lsm: &Lsm) -> Result<bool, EngineError> {
        if self.is_committing(|effect| effect.compaction) {
            return Ok(false);
        }
        if self.compaction.is_none() {
            return if self.at_rest || !self.space.may_compact() {
                Ok(false)
            } else {
                self.begin_compaction(lsm)
            };
        }
        let compaction = self.compaction.as_mut().expect("it was begun");
        let mut tools = Tools {
            storage: &mut self.storage,
            observer: lsm.observer.as_deref(),
            purpose: Purpose::Merge,
            step_bytes: lsm.settings.step_bytes,
        };
        let stepped = compaction.build.step(&mut tools)?;
        if stepped == Stepped::DeviceFull {
            self.give_up_compaction();
            return Ok(false);
        }
        if stepped == Stepped::Done {
            self.commit_compaction(lsm)?;
            return Ok(true);
        }
        Ok(stepped == Stepped::Progress)
    }

    fn commit_compaction(&mut self, lsm: &Lsm) -> Result<(), EngineError> {
        let compaction = self.compaction.as_ref().expect("it is done");
        let read = compaction.plan.inputs.iter().map(Vec::len).sum();
        self.space.merged(read, compaction.build.outputs().len());
        let mut edit = self.storage.next_edit(lsm.epoch);
        compaction.plan.take_away(&mut edit);
        for segment in compaction.build.outputs() {
            Counts::add(&lsm.counts.segment_write_bytes, segment.len.into());
            edit.added
                .push((compaction.plan.target, RunId(0), segment.clone()));
        }
        let head = Arc::clone(self.storage.head());
        let removed = compaction.plan.removed(&head);
        let reach = reach(lsm.settings.segment_bytes);
        trim(&head, removed, reach, &mut self.lasts, &mut edit);
        let effect = Effect {
            compaction: true,
            ..Effect::default()
        };
        self.commit(lsm, edit, effect)
    }
}
