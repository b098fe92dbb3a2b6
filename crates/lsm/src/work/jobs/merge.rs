//! Merges: a part of a level, or all of one, goes into the level below.

use std::sync::Arc;

use argosy_base::{KeyRange, Moment, SegmentNumber};
use argosy_engine::{EngineError, Reach};
use argosy_log::value::reach;

use super::counting::count_again;
use super::flush::Flush;
use super::passing::{lose_damaged, open_part, shut_in};
use super::{Jobs, Made, Now, Wish};
use crate::addresses::Addressing;
use crate::compaction::below::Below;
use crate::compaction::build::{Build, RunShape, Stepped};
use crate::compaction::cut::{CUT_BYTES_MAX, Cut};
use crate::compaction::medium::{MediumExtent, MediumReads, is_in_place};
use crate::compaction::pick::l1_price;
use crate::compaction::plan::{MergePlan, is_cut, move_down, shape};
use crate::compaction::policy::{
    Aim, Choice, Growth, L1Policy, Packing, PartLimits, Picked, Policy,
};
use crate::compaction::values::Values;
use crate::compaction::why::Why;
use crate::damage::Shut;
use crate::edit::{Edit, MEDIUM_LOG};
use crate::merge::Merge;
use crate::read::ReadAhead;
use crate::read::sources::{RunInput, RunReading, RunSource};
use crate::storage::Storage;
use crate::work::site::Site;
use crate::work::space::PartEnd;
use crate::work::stats::Counts;
use crate::work::truncation::truncate_logs;

/// A part of a level that is being merged into the next.
pub(crate) struct Compaction {
    pub(crate) build: Build<Merge<RunSource>>,
    plan: MergePlan,
    pub(super) why: Why,
    /// What it reads stands for all keys of its segments.
    whole: bool,
    /// Where the part ends.
    pub(crate) end: PartEnd,
}

/// The part that a merge is about.
struct Part {
    why: Why,
    /// The upper level; 0: L1 is packed, within itself.
    level: u8,
    range: KeyRange,
}

impl Jobs {
    /// Begins what is [picked](Picked) next, if anything is.
    fn begin_compaction(&mut self, site: &Site<'_>, aim: Aim) -> Result<Made, EngineError> {
        let head = Arc::clone(site.storage.head());
        let shut = shut_in(site);
        let shape = shape(&head, &shut);
        let gathered = MergePlan::gather(&head, &shut, site.settings.levels.l1_runs);
        self.remains
            .sparse
            .retain(|number| head.stored(*number).is_some());
        let l1_runs = match gathered {
            // Merges do not get to the runs.
            Some(_) => site.settings.levels.l1_runs,
            None => self.read_triggered.runs_due(&shape, site.settings),
        };
        let policy = Policy {
            gather: gathered.as_ref().map(|(_, range)| range.clone()),
            nothing_shut: shut.is_empty(),
            ..self.policy(site, aim, l1_runs)
        };
        let picked = site.settings.levels.compaction.pick(&shape, &policy);
        let Some(Picked { why, choice }) = picked else {
            self.at_rest = true;
            self.read_triggered.rests(l1_price(&shape));
            return Ok(Made::Nothing);
        };
        let open = |level, range| open_part(&shape, level, range, &shut);
        let (plan, level, range) = match (choice, gathered) {
            (Choice::Move { level, segments }, _) => {
                let mut edit = site.storage.next_edit(site.epoch);
                self.last_edit = edit.seq;
                move_down(&head, level, &segments, &mut edit);
                Counts::add(&site.counts.merges.moves, segments.len() as u64);
                return Ok(Made::Compacted(edit));
            }
            (Choice::Merge { level, range }, _) => {
                let range = open(level, range);
                (MergePlan::new(&head, level, &range), level, range)
            }
            (Choice::WithinL1 { .. }, Some((plan, range))) => (plan, 1, range),
            (Choice::WithinL1 { range }, None) => {
                let range = open(0, range);
                (MergePlan::pack_l1(&head, &range), 0, range)
            }
        };
        self.begin_plan(site, Part { why, level, range }, plan, &shut)?;
        Ok(Made::Progress)
    }

    /// What is picked by, where nothing is damaged and `l1_runs` runs of L1 start a compaction.
    fn policy(&self, site: &Site<'_>, aim: Aim, l1_runs: usize) -> Policy {
        let settings = site.settings;
        Policy {
            gather: None,
            sparse: self.remains.sparse.clone(),
            aim,
            l1: L1Policy {
                runs: l1_runs,
                is_read_triggered: self.read_triggered.is_due(),
            },
            growth: Growth {
                factor: settings.levels.growth_factor,
                l0_bytes: settings.memtables.bytes as u64,
            },
            part: PartLimits {
                bytes: settings.levels.part_bytes,
                segments_max: self.space.part_segments(),
                whole_segments_max: self.space.whole_segments(),
            },
            reclaim: self.space.is_full() || self.wishes.reclaim(),
            packing: Packing {
                bytes: match settings.mutants.skip_packing() {
                    true => 0,
                    false => self.space.pack_bytes(settings.layout.segment_bytes),
                },
                segments: self.space.pack_segments(),
                first: self.space.packs_first().cloned(),
            },
            nothing_shut: true,
            drain: self.drain_bytes(site),
            lowers: self.wishes.has(Wish::Lower),
            behind: self.space.behind(),
        }
    }

    /// Begins the merge of `plan`, of `part`, which passes over what is `shut`.
    fn begin_plan(
        &mut self,
        site: &Site<'_>,
        part: Part,
        mut plan: MergePlan,
        shut: &Shut,
    ) -> Result<(), EngineError> {
        let Part { why, level, range } = part;
        let head = site.storage.head();
        lose_damaged(site, &mut plan);
        let bytes: Vec<u64> = plan.inputs.iter().map(RunInput::bytes).collect();
        let reading = |ahead| RunReading {
            region: site.storage.region(),
            ahead,
            cache: None,
            reach: Reach::Device,
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
        let below = Below::new(head, deeper, &range);
        let mut read = plan.inputs.iter().flat_map(|run| &run.inputs);
        let whole = !read.any(|input| is_cut(&input.entry));
        // A part becomes part of a run, and a run has one tree at most.
        let shape = self.run_shape(site, range == KeyRange::all() && plan.target > level);
        let pointers = site.settings.layout.addresses.of_compaction();
        let target = site.target(plan.target, shape, pointers);
        let values = self.merged_values(site, &plan, shut);
        Counts::add(&site.counts.merges.begun, 1);
        Counts::add(&site.counts.merges.read_bytes, plan.bytes());
        self.compaction = Some(Compaction {
            build: Build::new(Merge::new(sources), target, below)
                .with(values)
                .of_levels(Arc::clone(head)),
            plan,
            why,
            whole,
            end: PartEnd {
                level,
                key: range.to,
            },
        });
        Ok(())
    }

    /// What a run is made as, or a part of one, where it is not `whole`. A full device has no room for index
    /// segments beside those with pairs.
    pub(super) fn run_shape(&self, site: &Site<'_>, whole: bool) -> RunShape {
        let compaction = site.settings.levels.compaction;
        compaction.shape(whole && !self.space.is_full())
    }

    pub(super) fn step_compaction(
        &mut self,
        site: &mut Site<'_>,
        now: &Now<'_>,
    ) -> Result<Made, EngineError> {
        if now.compaction_committing {
            return Ok(Made::Nothing);
        }
        if self.compaction.is_none()
            && let Some(edit) = self.remains.count(site, &mut self.lasts)?
        {
            self.last_edit = edit.seq;
            return Ok(Made::Compacted(edit));
        }
        let Some(compaction) = &mut self.compaction else {
            let cuts = self.flush.as_ref().is_some_and(Flush::is_to_cut);
            return if self.at_rest || cuts || !self.may_merge() {
                Ok(Made::Nothing)
            } else {
                match self.begin_compaction(site, Aim::Levels) {
                    Ok(made) => Ok(made),
                    Err(error) => self.pass_over(site.storage, error),
                }
            };
        };
        let written = compaction.build.outputs().len();
        let purpose = self.space.merge_purpose(compaction.why.packs(), written);
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
            why,
            whole,
            end,
        } = self.compaction.as_mut().expect("it is done");
        let read: usize = plan.inputs.iter().map(|run| run.inputs.len()).sum();
        if why.packs() && *whole && build.outputs().len() >= read {
            self.space.won_nothing(end.clone());
        }
        let mut edit = site.storage.next_edit(site.epoch);
        self.last_edit = edit.seq;
        site.tell_time(&mut edit, Moment(0));
        plan.take_away(&mut edit);
        for segment in build.outputs() {
            edit.added.push(site.placed(segment, plan.target, plan.run));
        }
        let (values, read_bytes) = build.medium_values();
        Counts::add(&site.counts.medium.placed, values);
        Counts::add(&site.counts.merges.read_bytes, read_bytes);
        let tree = build.tree();
        edit.trees
            .extend(tree.map(|tree| (plan.target, plan.run, tree)));
        let head = Arc::clone(site.storage.head());
        edit.references = build.references(&head)?;
        count_again(&mut edit.references, self.counted_before.drain(..));
        let reach = reach(site.settings.layout.segment_bytes);
        truncate_logs(&head, reach, &mut self.lasts, &mut edit);
        let freed = edit.removed.iter();
        let freed = freed.filter(|place| place.level == MEDIUM_LOG).count();
        Counts::add(&site.counts.medium.freed, freed as u64);
        Ok(edit)
    }

    /// How many bytes a merge may write whose purpose is that the medium log becomes shorter; `None`
    /// while it need not.
    fn drain_bytes(&self, site: &Site<'_>) -> Option<u64> {
        let over = MediumExtent::of(site.storage.head(), site.settings).is_over();
        let wanted = over
            || self.wishes.has(Wish::Garbage)
            || self.space.is_full()
            || self.read_triggered.values_are_due();
        wanted.then(|| self.space.write_bytes(site.settings.layout.segment_bytes))
    }

    /// The compaction found no room: the next one is narrower.
    fn give_up_compaction(&mut self, storage: &mut Storage) {
        if let Some(compaction) = &self.compaction {
            let written = compaction.build.outputs().len();
            let end = compaction.end.clone();
            self.space.found_none(end, compaction.why.packs(), written);
        }
        self.abandon_compaction(storage);
        self.space.give_up();
    }

    /// Where the merge of `plan` puts medium values.
    fn merged_values(&self, site: &Site<'_>, plan: &MergePlan, shut: &Shut) -> Values {
        let head = site.storage.head();
        let extent = MediumExtent::of(head, site.settings);
        let bytes = plan.bytes() + plan.medium_bytes();
        let in_place = is_in_place(plan.target, &extent)
            && !plan.points_into(shut)
            && bytes <= self.space.write_bytes(site.settings.layout.segment_bytes);
        match in_place.then(|| MediumReads::of(head, plan)).flatten() {
            Some(reads) => Values::InPlace(reads),
            None => Values::Stay,
        }
    }

    /// A merge ended at damage to what it reads: the next ones pass over that. Any other error stays one.
    fn pass_over(
        &mut self,
        storage: &mut Storage,
        error: EngineError,
    ) -> Result<Made, EngineError> {
        let head = storage.head();
        let is_read = |number: &SegmentNumber| head.finished_segment(*number).is_some();
        let damages = storage.damages();
        let Some(number) = damages.note(head, &error).filter(is_read) else {
            return Err(error);
        };
        damages.shut(number);
        self.abandon_compaction(storage);
        self.at_rest = false;
        Ok(Made::Progress)
    }

    /// Begins a merge where an edit with `cut` would name too many bounds of segments, if there is any merge that
    /// makes fewer.
    pub(super) fn shorten(
        &mut self,
        cut: &Cut,
        site: &mut Site<'_>,
        now: &Now<'_>,
    ) -> Result<Made, EngineError> {
        let may_merge = !now.compaction_committing && self.may_merge();
        if !may_merge || cut.bytes() <= CUT_BYTES_MAX {
            return Ok(Made::Nothing);
        }
        match self.begin_compaction(site, Aim::ShortCut) {
            Ok(made) => Ok(made),
            Err(error) => self.pass_over(site.storage, error),
        }
    }
}
