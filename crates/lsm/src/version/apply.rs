//! What an edit means: the step from one version to the next.
//!
//! Nothing here panics on an edit, whatever it says: a refusal names the edit and what does not
//! fit, and the version that was there stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::{EditSeq, KeyRange, LogId, SegmentNumber};

use super::counts::{CutOff, cut_off};
use super::{Level, LevelEntry, LogEntry, RunTree, Uncounted, Version};
use crate::addresses::Addressing;
use crate::edit::{
    Edit, LEVELS_MAX, LevelSegment, LogPoint, LogSegment, MEDIUM_LOG, Place, RunId, UNCOUNTED,
};
use crate::names::logs::LARGE_LOG;
use crate::names::{Form, Tree};
use crate::segments::StoredSegment;
use crate::shared::List;

/// Segments that are not in the version yet, by number.
pub(super) type Stored = BTreeMap<SegmentNumber, Arc<StoredSegment>>;

/// Why an edit cannot be applied. The version is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// Edits are missing before it, or it was applied already. Fetch what is between.
    #[error("{edit} cannot follow {version}")]
    OutOfOrder {
        /// The edit.
        edit: EditSeq,
        /// The last edit of the version.
        version: EditSeq,
    },
    /// A segment that it adds is not held here. Fetch it first.
    #[error("{edit} adds {number}, which is not here")]
    NotHeld {
        /// The edit.
        edit: EditSeq,
        /// The segment.
        number: SegmentNumber,
    },
    /// It does not fit this version: whoever made it has another one. Start from a checkpoint.
    #[error("{edit} does not fit: {what} ({number})")]
    Unfit {
        /// The edit.
        edit: EditSeq,
        /// What does not fit.
        what: &'static str,
        /// The segment that it is about; 0 where it is about none.
        number: SegmentNumber,
    },
}

/// The version after `edit`, as [`Version::apply`] makes it, without a look at all that the version has.
pub(super) fn after(old: &Version, edit: &Edit, new: &Stored) -> Result<Version, EditError> {
    if !edit.checkpoint && !edit.seq.may_follow(old.seq()) {
        return Err(EditError::OutOfOrder {
            edit: edit.seq,
            version: old.seq(),
        });
    }
    let start = match edit.checkpoint {
        true => Version::empty(old.region, old.addresses()),
        false => old.clone(),
    };
    let mut step = Step {
        old,
        edit,
        new,
        next: start,
        touched: 0,
        placed: BTreeMap::new(),
        cut: cut_off(edit),
        taken: BTreeMap::new(),
        overlap: None,
    };
    step.numbers()?;
    step.levels()?;
    step.references()?;
    step.logs()?;
    step.finish()?;
    Ok(step.next)
}

/// An edit that is being applied.
pub(super) struct Step<'a> {
    pub(super) old: &'a Version,
    pub(super) edit: &'a Edit,
    new: &'a Stored,
    pub(super) next: Version,
    /// The levels that changed: bit n for level n.
    touched: u32,
    /// What the edit added so far: where, and the first entry of it.
    pub(super) placed: BTreeMap<SegmentNumber, ((u8, RunId), Arc<LevelSegment>)>,
    /// The segments of which parts become uncounted.
    pub(super) cut: BTreeMap<SegmentNumber, CutOff>,
    /// The entries of segments that are removed or trimmed, until they are.
    taken: BTreeMap<Place, Vec<LevelEntry>>,
    /// A segment that begins before the one in front of it ends.
    overlap: Option<SegmentNumber>,
}

impl Step<'_> {
    pub(super) fn unfit(&self, what: &'static str, number: SegmentNumber) -> EditError {
        EditError::Unfit {
            edit: self.edit.seq,
            what,
            number,
        }
    }

    pub(super) fn ensure(
        &self,
        holds: bool,
        what: &'static str,
        number: SegmentNumber,
    ) -> Result<(), EditError> {
        if holds {
            Ok(())
        } else {
            Err(self.unfit(what, number))
        }
    }

    /// The numbers of the version, which only rise.
    fn numbers(&mut self) -> Result<(), EditError> {
        let (rising, own_mark) = (self.next.rising, self.old.own_mark());
        let risen = rising.after(self.edit, own_mark);
        self.next.rising = risen.map_err(|what| self.unfit(what, SegmentNumber(0)))?;
        if let Some(table) = &self.edit.duplicates {
            self.next.duplicates = Arc::clone(table);
        }
        Ok(())
    }

    fn levels(&mut self) -> Result<(), EditError> {
        self.take_all()?;
        for place in &self.edit.removed {
            self.remove(*place)?;
        }
        let mut bounds: BTreeMap<Place, Vec<&KeyRange>> = BTreeMap::new();
        for (place, range) in &self.edit.bounds {
            bounds.entry(*place).or_default().push(range);
        }
        for (place, ranges) in bounds {
            self.set_bounds(place, &ranges)?;
        }
        self.drop_trees()?;
        for (level, run, tree) in &self.edit.trees {
            self.begin_tree(*level, *run, *tree)?;
        }
        for (level, run, segment) in &self.edit.added {
            self.add(*level, *run, segment)?;
        }
        Ok(())
    }

    /// The level that is about to change.
    fn level_mut(&mut self, level: u8) -> Result<&mut Level, EditError> {
        let fits = (1..=LEVELS_MAX).contains(&level);
        self.ensure(fits, "no such level", SegmentNumber(0))?;
        self.touched |= 1 << level;
        let count = self.next.levels.len().max(usize::from(level));
        self.next.levels.resize_with(count, Arc::default);
        Ok(Arc::make_mut(&mut self.next.levels[usize::from(level) - 1]))
    }

    /// The entries of the segment at `place`, which are out of their run; there is at least one.
    fn take_entries(&mut self, place: Place) -> Result<Vec<LevelEntry>, EditError> {
        let error = self.unfit("no such segment at this place", place.number);
        let entries = self.taken.remove(&place).ok_or(error)?;
        if let Some(cut) = self.cut.get_mut(&place.number) {
            let ranges = entries.iter().map(|entry| entry.segment.range.clone());
            cut.before.extend(ranges);
        }
        Ok(entries)
    }

    /// Takes what is removed or trimmed out of the runs.
    fn take_all(&mut self) -> Result<(), EditError> {
        let trimmed = self.edit.bounds.iter().map(|(place, _)| place);
        let mut named: BTreeMap<(u8, RunId), BTreeSet<SegmentNumber>> = BTreeMap::new();
        for place in self.edit.removed.iter().chain(trimmed) {
            if !matches!(place.level, MEDIUM_LOG | UNCOUNTED) {
                let run = (place.level, place.run);
                named.entry(run).or_default().insert(place.number);
            }
        }
        for ((level, run), numbers) in named {
            let Some(found) = self.level_mut(level)?.run_mut(run) else {
                continue;
            };
            let taken = numbers.into_iter().map(|number| {
                let place = Place { level, run, number };
                (place, found.take(number))
            });
            let taken: Vec<_> = taken.filter(|(_, entries)| !entries.is_empty()).collect();
            self.taken.extend(taken);
        }
        Ok(())
    }

    fn remove(&mut self, place: Place) -> Result<(), EditError> {
        if place.level == MEDIUM_LOG {
            let was_there = self.next.medium.remove(place.number);
            self.ensure(was_there, "no such segment of the medium log", place.number)?;
            self.leave(place.number);
            return Ok(());
        }
        if place.level == UNCOUNTED {
            let removed = self.next.uncounted.remove(&place.number);
            let missing = self.unfit("nothing of this segment is uncounted", place.number);
            if !removed.ok_or(missing)?.in_level {
                self.leave(place.number);
            }
            return Ok(());
        }
        if self
            .level_mut(place.level)?
            .take_index(place.run, place.number)
        {
            self.leave(place.number);
            return Ok(());
        }
        self.take_entries(place)?;
        if let Some(rest) = self.next.uncounted.get(&place.number) {
            let rest = Uncounted {
                in_level: false,
                ..rest.clone()
            };
            self.next.uncounted.insert(place.number, rest);
        } else {
            self.leave(place.number);
        }
        Ok(())
    }

    /// Puts an entry for each of `ranges` in the place of those that are at `place`.
    fn set_bounds(&mut self, place: Place, ranges: &[&KeyRange]) -> Result<(), EditError> {
        let entries = self.take_entries(place)?;
        for range in ranges {
            let holds = |entry: &&LevelEntry| entry.segment.range.intersection(range) == **range;
            let whole = entries.iter().find(holds).filter(|_| !range.is_empty());
            let error = self.unfit("new bounds are not within the old ones", place.number);
            let whole = whole.ok_or(error)?;
            let mut segment = LevelSegment::clone(&whole.segment);
            segment.range = KeyRange::clone(range);
            whole.stored.cut();
            let entry = LevelEntry {
                segment: Arc::new(segment),
                stored: Arc::clone(&whole.stored),
            };
            self.insert(place.level, place.run, entry)?;
        }
        Ok(())
    }

    /// Lets go of the trees of which nothing is left, before others take their place.
    fn drop_trees(&mut self) -> Result<(), EditError> {
        let touched = (1..=LEVELS_MAX).filter(|number| self.touched & 1 << number != 0);
        for number in touched.collect::<Vec<_>>() {
            let before = self.old.level(number).map_or(&[][..], |level| &level.runs);
            let mut failed = None;
            for run in &mut self.level_mut(number)?.runs {
                let index = before.iter().find(|before| before.id == run.id);
                let index = index.map_or(0, |before| before.index().len());
                failed = failed.or(run.drop_tree(index).err());
            }
            if let Some(what) = failed {
                return Err(self.unfit(what, SegmentNumber(0)));
            }
        }
        Ok(())
    }

    fn begin_tree(&mut self, level: u8, run: RunId, tree: Tree) -> Result<(), EditError> {
        let fits = level == 1 || run.0 == 0;
        self.ensure(fits, "only L1 has several runs", tree.root.segment())?;
        let region = self.old.region;
        let index = Vec::new();
        let new = RunTree {
            region,
            addresses: self.old.addresses(),
            tree,
            index,
        };
        let begun = self.level_mut(level)?.begin_tree(run, new);
        begun.map_err(|what| self.unfit(what, tree.root.segment()))
    }

    fn add(&mut self, level: u8, run: RunId, segment: &LevelSegment) -> Result<(), EditError> {
        let number = segment.number;
        let holds = !segment.range.is_empty() && segment.len > 0;
        self.ensure(holds, "a segment stands for no key", number)?;
        if level == MEDIUM_LOG || segment.form == Form::Medium {
            return self.add_medium(level, run, segment);
        }
        if level == UNCOUNTED {
            return self.add_uncounted(segment);
        }
        let bare = !segment.points_into_logs() && segment.entries == 0 && segment.tombstones == 0;
        let fits = bare || !segment.form.is_index();
        self.ensure(fits, "an index segment with entries", number)?;
        let fits = level == 1 || run.0 == 0;
        self.ensure(fits, "only L1 has several runs", number)?;
        let before = self.old.level(level).map_or(&[][..], |l| &l.runs);
        let known = before.iter().any(|r| r.id == run);
        let newest = before.last().is_none_or(|newest| run > newest.id);
        let fits = self.edit.checkpoint || known || newest;
        self.ensure(fits, "a new run is not the newest", number)?;
        let stored = match self.placed.get(&number) {
            Some((place, first)) => {
                let mut trimmed = segment.clone();
                trimmed.range = first.range.clone();
                let same = *place == (level, run) && trimmed == **first;
                self.ensure(same, "entries of a segment differ", number)?;
                self.next.table.get(&number).cloned()
            }
            None => None,
        };
        let stored = match stored {
            Some(stored) => stored,
            None => self.take_for_level(number)?,
        };
        let segment = Arc::new(segment.clone());
        let first = Arc::clone(&segment);
        self.placed.entry(number).or_insert(((level, run), first));
        self.insert(level, run, LevelEntry { segment, stored })
    }

    fn add_medium(
        &mut self,
        level: u8,
        run: RunId,
        segment: &LevelSegment,
    ) -> Result<(), EditError> {
        let number = segment.number;
        let fits = (level, run, segment.form) == (MEDIUM_LOG, RunId(0), Form::Medium)
            && !segment.points_into_logs()
            && segment.tombstones == 0;
        self.ensure(fits, "not a segment of the medium log", number)?;
        let stored = self.take(number)?;
        let segment = Arc::new(segment.clone());
        self.next.medium.insert(LevelEntry { segment, stored });
        Ok(())
    }

    /// Puts `entry` where its range belongs in the run, which is made where there is none.
    fn insert(&mut self, level: u8, run: RunId, entry: LevelEntry) -> Result<(), EditError> {
        let number = entry.segment.number;
        if entry.segment.form.is_index() {
            let inserted = self.level_mut(level)?.insert_index(run, entry);
            return inserted.map_err(|what| self.unfit(what, number));
        }
        if let Some(cut) = self.cut.get_mut(&number) {
            cut.left.push(entry.segment.range.clone());
        }
        let rest = self.next.uncounted.get(&number);
        let mut parts = rest.into_iter().flat_map(|rest| &rest.parts);
        let seen = parts.any(|part| part.segment.range.overlaps(&entry.segment.range));
        self.ensure(!seen, "a part that was cut off is seen again", number)?;
        let overlap = self.level_mut(level)?.run_or_new(run).put(entry);
        self.overlap = self.overlap.or(overlap);
        Ok(())
    }

    /// Where segment `number`, which the version is about to name, is stored.
    pub(super) fn take(&mut self, number: SegmentNumber) -> Result<Arc<StoredSegment>, EditError> {
        let fits = number < self.next.mark() || number.is_own();
        self.ensure(fits, "a segment number is above the mark", number)?;
        let (old, new) = (self.old.stored(number), self.new.get(&number));
        // What a checkpoint names may have arrived under a number that another segment has here. Any other edit that
        // names what is here moves it.
        let stored = match self.edit.checkpoint {
            true => new.or(old),
            false => old.or(new),
        };
        let stored = stored.cloned().ok_or(EditError::NotHeld {
            edit: self.edit.seq,
            number,
        })?;
        let before = self.next.table.insert(number, Arc::clone(&stored));
        self.ensure(before.is_none(), "a segment is there already", number)?;
        self.next.places.insert(&stored);
        Ok(stored)
    }

    /// The version no longer names segment `number`.
    fn leave(&mut self, number: SegmentNumber) {
        let gone = self.next.table.remove(&number);
        if let Some(stored) = gone {
            self.next.places.remove(&stored);
        }
    }

    fn logs(&mut self) -> Result<(), EditError> {
        for at in &self.edit.logs.sealed {
            self.seal(*at)?;
        }
        for log in &self.edit.logs.added {
            self.add_log(*log)?;
        }
        for point in &self.edit.logs.points {
            self.log_point(*point)?;
        }
        for (log, number) in &self.edit.logs.removed {
            self.remove_log(*log, *number)?;
        }
        self.evacuate()
    }

    fn log_point(&mut self, point: LogPoint) -> Result<(), EditError> {
        let unfit = self.unfit("a log point is in no log segment", point.number);
        let entry = self.next.log_segment(point.number).cloned();
        let fits = |e: &LogSegment| e.log == point.log && e.end.is_none_or(|end| point.to <= end);
        let mut entry = entry.filter(|entry| fits(&entry.segment)).ok_or(unfit)?;
        let chain = self.log_mut(point.log);
        let at = chain.partition_point(|segment| segment.ordinal < entry.segment.ordinal);
        entry.durable = entry.durable.max(point.to);
        chain.replace(at, entry);
        Ok(())
    }

    const fn log_mut(&mut self, log: LogId) -> &mut List<LogEntry> {
        &mut self.next.logs[log.index()]
    }

    fn seal(&mut self, at: LogPoint) -> Result<(), EditError> {
        let missing = self.unfit("no such tail to seal", at.number);
        let chain = self.log_mut(at.log);
        let first = chain.partition_point(|segment| segment.end.is_some());
        let mut entry = chain.get(first).cloned().ok_or(missing)?;
        if entry.segment.number != at.number {
            return Err(missing);
        }
        entry.segment.end = Some(at.to);
        chain.replace(first, entry);
        Ok(())
    }

    fn add_log(&mut self, segment: LogSegment) -> Result<(), EditError> {
        let number = segment.number;
        let last = self.log_mut(segment.log).last().map(|last| last.segment);
        let checkpoint = self.edit.checkpoint;
        let follows = match last {
            // Garbage collection leaves gaps in a chain, which a checkpoint states.
            Some(last) if checkpoint => segment.ordinal > last.ordinal,
            Some(last) => Some(segment.ordinal) == last.ordinal.checked_add(1),
            None => checkpoint || segment.ordinal == 0,
        };
        self.ensure(follows, "a log segment is out of its order", number)?;
        let rises = last.is_none_or(|last| {
            // One that was declared and never written to may count from an LSN that a power loss
            // took back.
            (segment.base_lsn >= last.base_lsn || last.end == Some(0))
                && segment.epoch >= last.epoch
                && (last.end.is_some() || segment.end.is_none())
        });
        self.ensure(rises, "a log segment does not follow the last", number)?;
        let stored = self.take(number)?;
        let entry = LogEntry {
            segment,
            stored,
            durable: 0,
        };
        self.log_mut(segment.log).push(entry);
        let before = last.map(|last| last.number);
        let next = &mut self.next;
        next.log_numbers.added(&next.logs, segment, before);
        Ok(())
    }

    fn remove_log(&mut self, log: LogId, number: SegmentNumber) -> Result<(), EditError> {
        let missing = self.unfit("no such sealed log segment to remove", number);
        let found = self.next.log_segment(number).map(|entry| entry.segment);
        let found = found.filter(|segment| segment.log == log && segment.end.is_some());
        let ordinal = found.ok_or(missing)?.ordinal;
        let chain = self.log_mut(log);
        let index = chain.partition_point(|segment| segment.ordinal < ordinal);
        let is_last = index + 1 == chain.len();
        chain.remove(index);
        self.next.log_numbers.removed(number);
        self.ensure(!is_last, "the last segment of a log stays", number)?;
        self.leave(number);
        Ok(())
    }

    /// Notes which of the segments that are gone levels may point into.
    fn evacuate(&mut self) -> Result<(), EditError> {
        for number in &self.edit.evacuated {
            let mut removed = self.edit.logs.removed.iter();
            let goes = self.edit.checkpoint || removed.any(|at| *at == (LARGE_LOG, *number));
            let fits = goes && self.next.stored(*number).is_none();
            self.ensure(fits, "what is evacuated is not removed", *number)?;
            let fits = self.next.addresses().evacuates();
            self.ensure(fits, "evacuated where pointers hold places", *number)?;
        }
        let next = &mut self.next;
        for number in &self.edit.evacuated {
            if next.log_refs(*number) > 0 {
                next.evacuated.insert(*number, ());
            }
        }
        for touched in &self.edit.references {
            if next.log_refs(touched.number) == 0 {
                next.evacuated.remove(&touched.number);
            }
        }
        Ok(())
    }

    /// Checks what was touched, and drops what became empty.
    fn finish(&mut self) -> Result<(), EditError> {
        for number in (1..=LEVELS_MAX).filter(|number| self.touched & 1 << number != 0) {
            let Some(level) = self.next.levels.get_mut(usize::from(number) - 1) else {
                continue;
            };
            let level = Arc::make_mut(level);
            level
                .runs
                .retain(|run| !run.segments.is_empty() || run.tree.is_some());
            if let Some(run) = level.runs.iter().find(|run| !run.is_whole()) {
                let root = run.tree.as_ref().map(|tree| tree.tree.root.segment());
                let number = root.unwrap_or(SegmentNumber(0));
                return Err(self.unfit("a tree is not whole", number));
            }
        }
        if let Some(number) = self.overlap {
            return Err(self.unfit("segments of a run overlap", number));
        }
        while self.next.levels.last().is_some_and(|l| l.runs.is_empty()) {
            self.next.levels.pop();
        }
        self.check_references()
    }
}
