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
//! the edit shorter ([`counting`](super::counting)).
//!
//! A step merges about `step_bytes` of one of them. What a job made is committed by one edit; a job
//! under way is forgotten by a crash (I3).

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::{EditSeq, KeyRange, Lsn, Moment, SegmentNumber};
use argosy_engine::{EngineError, LogEnd};

use super::bulk::Ingesting;
use super::counting::count_again;
use super::paid::Paid;
use super::passing::{lose_damaged, open_part, shut_in};
use super::site::Site;
use super::space::{PartEnd, Space};
use super::stats::Counts;
use super::trim::{LastLsns, trim};
use super::writer::Frozen;
use crate::compaction::below::Below;
use crate::compaction::build::{Build, Pointers, Shape, Stepped};
use crate::compaction::cut::Cut;
use crate::compaction::pick::{Aim, Choice, Policy, l1_price, pick};
use crate::compaction::plan::{Plan, is_cut, move_down, shape};
use crate::compaction::whole::pick_whole;
use crate::damage::Shut;
use crate::edit::{Edit, LogPoint, MEDIUM_LOG, Reference, RunId};
use crate::log::value::reach;
use crate::merge::Merge;
use crate::read::ReadAhead;
use crate::read::sources::{MemtableSource, RunInput, RunReading, RunSource};
use crate::settings::Compaction as Way;
use crate::storage::Storage;

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

/// A memtable that is becoming a run.
pub(crate) struct Flush {
    pub(super) build: Build<MemtableSource>,
    last: Lsn,
    /// The end of the large log below which its pointers lie.
    large: Option<LogEnd>,
    /// The ends of earlier segments of the large log that were not sealed when it was frozen.
    unsealed: Vec<LogPoint>,
    /// The region's time when it was frozen.
    time: Moment,
    /// The keys that it removes from all older runs.
    erased: Vec<KeyRange>,
}

impl Flush {
    /// Whether it is finished, and waits to take keys out of the runs.
    fn is_to_cut(&self) -> bool {
        !self.erased.is_empty() && self.build.is_done()
    }
}

/// A part of a level that is being merged into the next.
pub(crate) struct Compaction {
    pub(super) build: Build<Merge<RunSource>>,
    plan: Plan,
    /// Its only purpose is that segments become fewer: nothing goes down.
    pub(super) packs: bool,
    /// What it reads stands for all keys of its segments.
    whole: bool,
    /// Where the part ends.
    pub(super) end: PartEnd,
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

/// See the module documentation.
pub(crate) struct Jobs {
    pub(super) flush: Option<Flush>,
    pub(crate) compaction: Option<Compaction>,
    /// Pairs that become segments without a memtable; no merge begins meanwhile.
    pub(super) bulk: Option<Ingesting>,
    /// Such pairs were the last: a merge that is due goes first.
    pub(super) merge_first: bool,
    /// No level of the head version asks for a compaction.
    pub(crate) at_rest: bool,
    /// Dead values are to be collected: levels are merged although they are not full.
    pub(super) collects: bool,
    /// The level above the last is merged, although it is not full.
    lowers: bool,
    /// Somebody wants everything in one level.
    asked: bool,
    /// What is done about a device that is full.
    pub(crate) space: Space,
    pub(super) paid: Paid,
    /// The edit of the last job.
    pub(super) last_edit: EditSeq,
    pub(crate) lasts: LastLsns,
    next_run: u64,
    /// Segments of which ranges that were removed left little, since the region was opened.
    sparse: BTreeSet<SegmentNumber>,
    /// The planted mistake `count_twice`: what a merge dropped that was given up.
    counted_before: Vec<Reference>,
    /// Segments whose pointers cannot be counted, since they are damaged.
    pub(super) uncountable: BTreeSet<SegmentNumber>,
    /// The flush or the compaction goes first in the next step.
    compaction_first: bool,
}

impl Jobs {
    /// No jobs yet, for a region whose history ends at `last`.
    pub(crate) fn new(storage: &Storage, last: Lsn) -> Self {
        Self {
            flush: None,
            compaction: None,
            bulk: None,
            merge_first: false,
            at_rest: false,
            collects: false,
            lowers: false,
            asked: false,
            space: Space::default(),
            paid: Paid::default(),
            last_edit: storage.head().seq(),
            lasts: LastLsns::new(last),
            next_run: storage.next_run(),
            sparse: BTreeSet::new(),
            counted_before: Vec::new(),
            uncountable: BTreeSet::new(),
            compaction_first: false,
        }
    }

    /// From now on levels are merged, or not, so that dead values are found.
    pub(crate) const fn collect(&mut self, collects: bool) {
        if collects && !self.collects {
            self.at_rest = false;
        }
        self.collects = collects;
    }

    /// From now on what lies above the last level is merged into that, or not, although it is not full.
    pub(crate) const fn lower(&mut self, lowers: bool) {
        if lowers && !self.lowers {
            self.at_rest = false;
        }
        self.lowers = lowers;
    }

    /// From now on levels are merged, or not, until everything lies in one.
    pub(crate) const fn merge_all(&mut self, asked: bool) {
        if asked && !self.asked {
            self.at_rest = false;
        }
        self.asked = asked;
    }

    /// Whether nothing is under way, and no level asks for anything.
    pub(crate) const fn is_idle(&self) -> bool {
        self.at_rest && self.compaction.is_none() && self.flush.is_none() && self.bulk.is_none()
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
        let merges = usize::from(self.compaction.is_some()) + usize::from(self.bulk.is_some());
        let jobs = usize::from(self.flush.is_some()) + merges;
        jobs + usize::from(!self.at_rest)
    }

    /// Whether a flush is finished but for the log bytes that it points to.
    pub(crate) fn waits_for_log(&self, is_durable: &dyn Fn(&LogEnd) -> bool) -> bool {
        self.flush.as_ref().is_some_and(|flush| {
            let large = flush.large.filter(|end| !is_durable(end));
            large.is_some() && flush.build.is_done()
        })
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
        self.merge_first = false;
        self.at_rest = false;
        self.space.found_room();
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
    pub(super) const fn take_run(&mut self) -> RunId {
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
        let behind = site.storage.l1_runs() >= site.settings.l1_runs_max;
        self.compaction_first = (behind || self.space.is_full()) && !self.compaction_first;
        if self.compaction_first {
            let made = self.step_compaction(site, now)?;
            if !matches!(made, Made::Nothing) {
                return Ok(made);
            }
        }
        let made = self.step_flush(site, now)?;
        if matches!(made, Made::Nothing) && !self.compaction_first {
            return self.step_compaction(site, now);
        }
        Ok(made)
    }

    fn begin_flush(&mut self, site: &Site<'_>, frozen: Option<&Frozen>) -> bool {
        let Some(frozen) = frozen else {
            return false;
        };
        if !self.may_flush(&frozen.table, site.storage) {
            return false;
        }
        let all = KeyRange::all();
        let erasures = frozen.table.erasures();
        let erased = erasures.as_ref().map_or(&[][..], |erased| erased.union());
        let erased = match site.settings.mutants.drop_ranges() {
            true => Vec::new(),
            false => erased.to_vec(),
        };
        let source = MemtableSource::without(&frozen.table, frozen.last, &all, erasures);
        let below = Below::new(site.storage.head(), 1, &all);
        let pointers = Pointers::of_flush(site.settings.addresses);
        let target = site.target(1, self.run_shape(site), pointers);
        let values = self.flushed_values(site, frozen.table.used_bytes());
        let mut build = Build::new(source, target, below).with(values);
        build.count_unwritten(site.settings.mutants.count_unwritten());
        self.flush = Some(Flush {
            build,
            last: frozen.last,
            large: frozen.large,
            unsealed: frozen.unsealed.clone(),
            time: frozen.time,
            erased,
        });
        true
    }

    fn step_flush(&mut self, site: &mut Site<'_>, now: &Now<'_>) -> Result<Made, EngineError> {
        if self.flush.is_none() && !self.begin_flush(site, now.frozen) {
            return Ok(Made::Nothing);
        }
        if now.flush_committing {
            return Ok(Made::Nothing);
        }
        let purpose = self.flush_purpose();
        let flush = self.flush.as_mut().expect("it was begun");
        let stepped = flush.build.step(&mut site.tools(purpose))?;
        Counts::add(&site.counts.worked_bytes, flush.build.take_worked());
        match stepped {
            Stepped::DeviceFull => {
                self.give_up_flush(site.storage);
                Ok(Made::Nothing)
            }
            Stepped::Progress => Ok(Made::Progress),
            Stepped::Waiting => Ok(Made::Nothing),
            Stepped::Done if flush.large.is_some_and(|end| !(now.is_durable)(&end)) => {
                Ok(Made::Nothing)
            }
            Stepped::Done if flush.is_to_cut() && self.compaction.is_some() => Ok(Made::Nothing),
            Stepped::Done => {
                let cut = Cut::new(site.storage.head(), &flush.erased);
                match self.shorten(&cut, site, now)? {
                    Made::Nothing => Ok(Made::Flushed(self.flush_edit(site, &cut)?)),
                    made => Ok(made),
                }
            }
        }
    }

    fn flush_edit(&mut self, site: &Site<'_>, cut: &Cut) -> Result<Edit, EngineError> {
        let flush = self.flush.as_mut().expect("it is done");
        let mut edit = site.storage.next_edit(site.epoch);
        self.last_edit = edit.seq;
        edit.replay_from = Some(flush.last.next());
        site.tell_time(&mut edit, flush.time);
        let run = RunId(self.next_run);
        self.next_run += 1;
        for segment in flush.build.outputs() {
            edit.added.push(site.placed(segment, (1, run)));
        }
        let (values, _) = flush.build.medium_values();
        Counts::add(&site.counts.medium_written, values);
        let tree = flush.build.tree();
        edit.trees.extend(tree.map(|tree| (1, run, tree)));
        edit.log_points.append(&mut flush.unsealed);
        edit.log_points.extend(flush.large.map(|end| LogPoint {
            log: end.log,
            number: end.segment,
            to: end.end,
        }));
        let head = Arc::clone(site.storage.head());
        // What is sealed is durable on whoever applied the seal, and needs no point.
        let is_open = |number| {
            let entry = head.log_segment(number);
            entry.is_some_and(|entry| entry.segment.end.is_none())
        };
        edit.log_points.retain(|point| is_open(point.number));
        cut.take_away(&mut edit);
        cut.note_sparse(&head, &mut self.sparse);
        edit.references = flush.build.references(&head)?;
        let reach = reach(site.settings.segment_bytes);
        trim(&head, reach, &mut self.lasts, &mut edit);
        Counts::add(&site.counts.flushes, 1);
        Ok(edit)
    }

    pub(super) fn begin_compaction(
        &mut self,
        site: &Site<'_>,
        aim: Aim,
    ) -> Result<Made, EngineError> {
        let head = Arc::clone(site.storage.head());
        let settings = site.settings;
        let shut = shut_in(site);
        if let Some((plan, range)) = Plan::gather(&head, &shut, settings.l1_runs) {
            self.begin_plan(site, (1, &range), plan, &shut)?;
            return Ok(Made::Progress);
        }
        self.sparse.retain(|number| head.stored(*number).is_some());
        let shape = shape(&head, &shut);
        let policy = Policy {
            sparse: self.sparse.clone(),
            aim,
            l1_runs: self.paid.runs_due(&shape, settings),
            l1_paid: self.paid.is_due(),
            growth_factor: settings.growth_factor,
            l0_bytes: settings.l0_bytes as u64,
            part_bytes: settings.compaction_part_bytes,
            segments_max: self.space.part_segments(),
            whole_segments_max: self.space.whole_segments(),
            reclaim: self.space.is_full() || self.collects || self.asked,
            pack_bytes: match settings.mutants.skip_packing() {
                true => 0,
                false => self.space.pack_bytes(settings.segment_bytes),
            },
            pack_segments: self.space.pack_segments(),
            pack_first: self.space.packs_first().cloned(),
            nothing_shut: shut.is_empty(),
            drain: self.drain_bytes(site),
            lowers: self.lowers,
            behind: self.space.behind(),
        };
        let choice = match settings.compaction {
            Way::WholeLevel if shut.is_empty() => pick_whole(&shape, &policy),
            Way::Partial | Way::WholeLevel => pick(&shape, &policy),
        };
        let packs = matches!(choice, Choice::Pack { .. } | Choice::PackL1 { .. });
        let (level, range) = match choice {
            Choice::Rest => {
                self.at_rest = true;
                self.paid.rests(l1_price(&shape));
                return Ok(Made::Nothing);
            }
            Choice::Move { level, segments } => {
                let mut edit = site.storage.next_edit(site.epoch);
                self.last_edit = edit.seq;
                move_down(&head, level, &segments, &mut edit);
                Counts::add(&site.counts.moves, segments.len() as u64);
                return Ok(Made::Compacted(edit));
            }
            Choice::Merge { level, range } | Choice::Pack { level, range } => (level, range),
            Choice::PackL1 { range } => (0, range),
        };
        let range = open_part(&shape, level, range, &shut);
        let plan = match level {
            0 => Plan::pack_l1(&head, &range),
            _ => Plan::new(&head, level, &range),
        };
        self.begin_plan(site, (level, &range), plan, &shut)?;
        self.compaction.as_mut().expect("it was begun").packs = packs;
        Ok(Made::Progress)
    }

    /// Begins the merge of `plan`, of a part of a level, which passes over what is `shut`.
    fn begin_plan(
        &mut self,
        site: &Site<'_>,
        (level, range): (u8, &KeyRange),
        mut plan: Plan,
        shut: &Shut,
    ) -> Result<(), EngineError> {
        let head = site.storage.head();
        lose_damaged(site, &mut plan);
        let bytes: Vec<u64> = plan.inputs.iter().map(RunInput::bytes).collect();
        let reading = |ahead| RunReading {
            region: site.storage.region(),
            ahead,
            cache: None,
            resolve: None,
            counts: true,
        };
        let inputs = plan.inputs.iter().zip(ReadAhead::of_merge(&bytes));
        let sources = inputs
            .map(|(input, ahead)| RunSource::new(reading(ahead), input.clone()))
            .collect::<Result<_, _>>()?;
        // What is gathered in a level lies on older runs of that. Packing of L1 takes all of its runs.
        let deeper = match plan.target > level {
            true => plan.target + 1,
            false => level,
        };
        let below = Below::new(head, deeper, range);
        let mut read = plan.inputs.iter().flat_map(|run| &run.pieces);
        let whole = !read.any(|piece| is_cut(&piece.entry));
        // A part becomes part of a run, and a run has one tree at most.
        let shape = match *range == KeyRange::all() && plan.target > level {
            true => self.run_shape(site),
            false => Shape::SelfContained,
        };
        let pointers = Pointers::of_compaction(site.settings.addresses);
        let target = site.target(plan.target, shape, pointers);
        let values = self.merged_values(site, &plan, shut);
        Counts::add(&site.counts.compactions, 1);
        Counts::add(&site.counts.compaction_read_bytes, plan.bytes());
        self.compaction = Some(Compaction {
            build: Build::new(Merge::new(sources), target, below)
                .with(values)
                .of_levels(Arc::clone(head)),
            plan,
            packs: false,
            whole,
            end: PartEnd {
                level,
                key: range.to.clone(),
            },
        });
        Ok(())
    }

    /// What a whole run is made as. A full device has no room for index segments beside those with
    /// pairs.
    fn run_shape(&self, site: &Site<'_>) -> Shape {
        match site.settings.compaction {
            Way::WholeLevel if !self.space.is_full() => Shape::Tree,
            Way::WholeLevel | Way::Partial => Shape::SelfContained,
        }
    }

    fn step_compaction(&mut self, site: &mut Site<'_>, now: &Now<'_>) -> Result<Made, EngineError> {
        if now.compaction_committing {
            return Ok(Made::Nothing);
        }
        if self.compaction.is_none()
            && let Some(edit) = self.count_cut_off(site)?
        {
            return Ok(Made::Compacted(edit));
        }
        let Some(compaction) = &mut self.compaction else {
            let cuts = self.flush.as_ref().is_some_and(Flush::is_to_cut);
            let waits = cuts || self.bulk.is_some();
            return if self.at_rest || waits || !self.space.may_begin() {
                Ok(Made::Nothing)
            } else {
                match self.begin_compaction(site, Aim::Levels) {
                    Ok(made) => Ok(made),
                    Err(error) => self.pass_over(site.storage, error),
                }
            };
        };
        let written = compaction.build.outputs().len();
        let purpose = self.space.merge_purpose(compaction.packs, written);
        let stepped = match compaction.build.step(&mut site.tools(purpose)) {
            Ok(stepped) => stepped,
            Err(error) => return self.pass_over(site.storage, error),
        };
        Counts::add(&site.counts.worked_bytes, compaction.build.take_worked());
        match stepped {
            Stepped::DeviceFull => {
                self.give_up_compaction(site.storage);
                Ok(Made::Nothing)
            }
            Stepped::Done => Ok(Made::Compacted(self.compaction_edit(site)?)),
            Stepped::Progress => Ok(Made::Progress),
            Stepped::Waiting => Ok(Made::Nothing),
        }
    }

    fn compaction_edit(&mut self, site: &Site<'_>) -> Result<Edit, EngineError> {
        let Compaction {
            build,
            plan,
            packs,
            whole,
            end,
        } = self.compaction.as_mut().expect("it is done");
        let read: usize = plan.inputs.iter().map(|run| run.pieces.len()).sum();
        if *packs && *whole && build.outputs().len() >= read {
            self.space.won_nothing(end.clone());
        }
        let mut edit = site.storage.next_edit(site.epoch);
        self.last_edit = edit.seq;
        site.tell_time(&mut edit, Moment(0));
        plan.take_away(&mut edit);
        for segment in build.outputs() {
            edit.added
                .push(site.placed(segment, (plan.target, plan.run)));
        }
        let (values, read_bytes) = build.medium_values();
        Counts::add(&site.counts.medium_placed, values);
        Counts::add(&site.counts.compaction_read_bytes, read_bytes);
        let tree = build.tree();
        edit.trees
            .extend(tree.map(|tree| (plan.target, plan.run, tree)));
        let head = Arc::clone(site.storage.head());
        edit.references = build.references(&head)?;
        count_again(&mut edit.references, self.counted_before.drain(..));
        let reach = reach(site.settings.segment_bytes);
        trim(&head, reach, &mut self.lasts, &mut edit);
        let freed = edit.removed.iter();
        let freed = freed.filter(|place| place.level == MEDIUM_LOG).count();
        Counts::add(&site.counts.medium_freed, freed as u64);
        Ok(edit)
    }
}
