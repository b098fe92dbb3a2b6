//! Flushes: the oldest frozen memtable becomes a run of L1.

use std::sync::Arc;

use argosy_base::{KeyRange, Lsn, Moment};
use argosy_device::Purpose;
use argosy_engine::{EngineError, LogEnd};
use argosy_log::value::reach;

use super::{Jobs, Made, Now};
use crate::addresses::Addressing;
use crate::compaction::below::Below;
use crate::compaction::build::{Build, Stepped};
use crate::compaction::cut::Cut;
use crate::compaction::medium::{MediumExtent, is_apart};
use crate::compaction::values::{Apart, Values};
use crate::duplicates::Duplicates;
use crate::edit::{Edit, LogPoint, RunId};
use crate::memtable::Memtable;
use crate::names::logs::LOGS;
use crate::read::sources::MemtableSource;
use crate::storage::Storage;
use crate::work::frozen::Frozen;
use crate::work::site::Site;
use crate::work::stats::Counts;
use crate::work::truncation::truncate_logs;

/// A memtable that is becoming a run.
pub(crate) struct Flush {
    pub(crate) build: Build<MemtableSource>,
    last: Lsn,
    /// The end of the large log below which its pointers lie.
    large: Option<LogEnd>,
    /// The ends of earlier segments of the large log that were not sealed when it was frozen.
    unsealed: Vec<LogPoint>,
    /// The region's time when it was frozen.
    time: Moment,
    /// Which requests had been applied when it was frozen.
    duplicates: Arc<Duplicates>,
    /// The keys that it removes from all older runs.
    deleted: Vec<KeyRange>,
}

impl Flush {
    /// Whether it is finished but for the log bytes that it points to.
    pub(super) fn waits_for_log(&self, is_durable: &dyn Fn(&LogEnd) -> bool) -> bool {
        let large = self.large.filter(|end| !is_durable(end));
        large.is_some() && self.build.is_done()
    }

    /// Whether it is finished, and waits to take keys out of the runs.
    pub(super) fn is_to_cut(&self) -> bool {
        !self.deleted.is_empty() && self.build.is_done()
    }
}

impl Jobs {
    fn begin_flush(&mut self, site: &Site<'_>, frozen: Option<&Frozen>) -> bool {
        let Some(frozen) = frozen else {
            return false;
        };
        if !self.may_flush(&frozen.table, site.storage) {
            return false;
        }
        let all = KeyRange::all();
        let range_tombstones = frozen.table.range_tombstones();
        let deleted = range_tombstones
            .as_ref()
            .map_or(&[][..], |tombstones| tombstones.union());
        let deleted = match site.settings.mutants.drop_ranges() {
            true => Vec::new(),
            false => deleted.to_vec(),
        };
        let source = MemtableSource::without(&frozen.table, frozen.last, &all, range_tombstones);
        let below = Below::new(site.storage.head(), 1, &all);
        let pointers = site.settings.layout.addresses.of_flush();
        let target = site.target(1, self.run_shape(site, true), pointers);
        let values = self.flushed_values(site, frozen.table.used_bytes());
        let mut build = Build::new(source, target, below).with(values);
        build.count_unwritten(site.settings.mutants.count_unwritten());
        self.flush = Some(Flush {
            build,
            last: frozen.last,
            large: frozen.large,
            unsealed: frozen.unsealed.clone(),
            time: frozen.time,
            duplicates: Arc::clone(&frozen.duplicates),
            deleted,
        });
        true
    }

    pub(super) fn step_flush(
        &mut self,
        site: &mut Site<'_>,
        now: &Now<'_>,
    ) -> Result<Made, EngineError> {
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
                let cut = Cut::new(site.storage.head(), &flush.deleted);
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
        edit.numbers.replay_from = Some(flush.last.next());
        site.tell_time(&mut edit, flush.time);
        site.tell_duplicates(&mut edit, &flush.duplicates);
        let run = RunId(self.next_run);
        self.next_run += 1;
        for segment in flush.build.outputs() {
            edit.added.push(site.placed(segment, 1, run));
        }
        let (values, _) = flush.build.medium_values();
        Counts::add(&site.counts.medium.written, values);
        let tree = flush.build.tree();
        edit.trees.extend(tree.map(|tree| (1, run, tree)));
        edit.logs.points.append(&mut flush.unsealed);
        edit.logs.points.extend(flush.large.map(|end| LogPoint {
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
        edit.logs.points.retain(|point| is_open(point.number));
        cut.take_away(&mut edit);
        cut.note_sparse(&head, &mut self.remains.sparse);
        edit.references = flush.build.references(&head)?;
        let reach = reach(site.settings.layout.segment_bytes);
        truncate_logs(&head, reach, &mut self.lasts, &mut edit);
        Counts::add(&site.counts.flushes, 1);
        Ok(edit)
    }

    /// Whether a flush of `table` may begin: there is room for its bytes, an eighth for indexes and
    /// filters, and the last segment, which is not full. That is a bound and no measure; where
    /// nothing else can make room it is tried all the same. On a full device what frees more
    /// goes first: merges, as long as they find room, unless the flush lets a long log go.
    fn may_flush(&self, table: &Memtable, storage: &Storage) -> bool {
        let merging = self.compaction.is_some();
        let space = &self.space;
        let bytes = table.used_bytes();
        let settings = storage.settings();
        let segments = (bytes + bytes / 8) / settings.layout.segment_bytes + 1;
        let shape = settings.levels.compaction.shape(!space.is_full());
        let segments = segments + shape.index_segments(segments);
        let head = storage.head();
        let logs = LOGS.iter().flat_map(|log| head.log(*log));
        let sealed = logs.filter(|entry| entry.segment.end.is_some()).count();
        let wins = sealed > segments;
        if space.is_full() && !wins && (merging || !self.at_rest && space.narrower == 0) {
            return false;
        }
        space.may_begin() && (self.is_alone() || space.room_for(Purpose::Flush) >= segments)
    }

    /// Whether nothing but a flush can make room.
    const fn is_alone(&self) -> bool {
        self.at_rest && self.compaction.is_none()
    }

    /// Where a flush of `bytes` puts medium values. A device that is nearly full has no room for segments
    /// beside those of the run.
    fn flushed_values(&self, site: &Site<'_>, bytes: usize) -> Values {
        let extent = MediumExtent::of(site.storage.head(), site.settings);
        let apart = is_apart(site.settings, &extent)
            && self
                .space
                .is_ample(bytes, site.settings.layout.segment_bytes);
        match apart {
            true => Values::Apart(Apart::new(site.settings.values.small_bytes)),
            false => Values::Stay,
        }
    }

    /// What a flush may use: the room that is kept for merges only where there are none.
    const fn flush_purpose(&self) -> Purpose {
        if self.is_alone() {
            Purpose::Merge
        } else {
            Purpose::Flush
        }
    }

    /// The flush found no room.
    fn give_up_flush(&mut self, storage: &mut Storage) {
        self.abandon_flush(storage);
        self.space.give_up();
    }
}
