//! A backup that builds its own levels: the papers' Build-Index baseline (Tebis §5, Talos §5).
//!
//! It takes the logs from the primary like every backup, and nothing else:
//!
//! ```text
//! primary ── log bytes ──▶ windows ── flush ──▶ device
//!                             │
//!                             └─ records, in LSN order ─▶ memtables ─▶ L1 ─▶ L2 ...   by itself
//! ```
//!
//! - Records are read from a range of the windows when it is flushed, from a private copy, or from
//!   the device when they were fetched; both logs together make one history ([`Feed`]). The primary
//!   is told that a range is flushed only when its records are in a memtable: where this backup does
//!   not keep up, the primary's windows stay occupied, and its writers wait.
//! - A memtable becomes a run once everything in it is committed, as far as the primary has told, and
//!   on its way to the device: what was found in windows only, when they were looked at, is not.
//! - The version has edits of its own, in a sequence of its own. What the primary's edits say of
//!   the logs is taken over, but not how far its levels need them, unless with a checkpoint
//!   ([`localized`](super::localized)); each such edit names the primary's
//!   ([`follows`](crate::edit::EditNumbers::follows)). When log segments go is decided here, by the own start of
//!   replay.
//! - Segments that are built here have numbers of this member's own range
//!   ([`SegmentNumber::first_own`]), and mean nothing to others, unless a primary that lost its
//!   copy adopts this one. What it adopted may come back to this member when it has lost its own copy:
//!   then it goes on behind these numbers ([`localized`](super::localized)).
//! - A checkpoint of the primary replaces the levels only where the logs that it names no longer
//!   reach back to the own start of replay.
//!
//! After every look at the logs (opening, a new attempt, a checkpoint) the memtables are built anew
//! from what was found.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use argosy_base::{EditSeq, Epoch, Instant, Lsn, SegmentNumber, ServerId};
use argosy_engine::stats::MemtableStats;
use argosy_engine::{EngineError, Snapshot};
use argosy_log::feed::Feed;
use argosy_log::{LogWindows, Replayed};

use super::tables::Tables;
use super::{Replica, ReplicaError};
use crate::cache::NodeCache;
use crate::damage::{DamagedSegment, Damages};
use crate::edit::{Edit, LogPoint, LogSegment};
use crate::names::logs::{LARGE_LOG, LOGS, Recovered};
use crate::read::snapshot::LsmSnapshot;
use crate::read::{FilterCounts, ReadView, Reading, ScanTime};
use crate::storage::Storage;
use crate::work::frozen::Frozen;
use crate::work::jobs::{Jobs, Made, Now, Wish};
use crate::work::site::Site;
use crate::work::stats::{Counts, Stats, level_stats};
use crate::work::truncation::LastLsns;
use crate::work::watch::Watch;

/// An edit that this member made by itself and that is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// It retires the memtables up to here.
    Flush {
        last: Lsn,
    },
    Compaction,
    /// It reserves numbers.
    Numbers,
}

/// How far a log segment has been fed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FedTo {
    pub(super) to: u32,
    /// The highest LSN in it so far.
    pub(super) last: Lsn,
}

/// Part of a log that is on the device and has to be fed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) segment: SegmentNumber,
    pub(super) to: u32,
}

/// What a backup has beside that builds its own levels.
pub(super) struct Builder {
    pub(super) jobs: Jobs,
    watch: Watch,
    counts: Counts,
    pub(super) feed: Feed<{ LOGS.len() }>,
    pub(super) tables: Tables,
    pub(super) fed: BTreeMap<SegmentNumber, FedTo>,
    /// What applied edits brought, and no flush.
    pub(super) due: VecDeque<Due>,
    /// What was in windows only when the logs were looked at: memtables know of it, and it becomes
    /// durable when it is flushed.
    in_windows: Vec<Due>,
    /// Everything up to here is committed.
    committed: Lsn,
    /// Own edits under way, in order.
    own: VecDeque<(EditSeq, Own)>,
    told: ToldWork,
    full_compaction: FullCompaction,
}

/// What [`Replica::take_work`] has told.
struct ToldWork {
    /// The last memtable.
    ripe: Lsn,
    /// An own edit was committed since then: levels may ask for more.
    changed: bool,
}

impl ToldWork {
    /// Whether there is something new to tell, of which nothing is new any more. `ripe`: a memtable may become a run.
    fn take_news(&mut self, ripe: Option<Lsn>) -> bool {
        let ripe = ripe.filter(|last| *last != self.ripe);
        self.ripe = ripe.unwrap_or(self.ripe);
        std::mem::take(&mut self.changed) || ripe.is_some()
    }
}

/// A full compaction of what is built here, where one was requested.
#[derive(Default)]
struct FullCompaction {
    /// Everything up to here is to be merged, once it is in memtables.
    requested: Option<Lsn>,
    /// Everything up to here is being merged.
    merging: Option<Lsn>,
    /// Everything up to here has been, which was not told yet.
    merged: Option<Lsn>,
}

impl FullCompaction {
    /// Whether something that was requested is not merged yet.
    const fn is_pending(&self) -> bool {
        self.requested.is_some() || self.merging.is_some()
    }
}

impl Builder {
    fn new(storage: &Storage, last: Lsn) -> Self {
        let settings = storage.settings();
        Self {
            jobs: Jobs::new(storage, last),
            watch: Watch::default(),
            counts: Counts::default(),
            feed: Feed::new(storage.region(), settings.layout.log_geometry(), last),
            tables: Tables::new(settings, last, storage.head().duplicates()),
            fed: BTreeMap::new(),
            due: VecDeque::new(),
            in_windows: Vec::new(),
            committed: Lsn(0),
            own: VecDeque::new(),
            told: ToldWork {
                ripe: Lsn(0),
                changed: false,
            },
            full_compaction: FullCompaction::default(),
        }
    }

    /// Forgets the memtables: the history is looked at anew, from the start of replay.
    pub(super) fn begin_again(&mut self, storage: &mut Storage) {
        if !self.is_committing(|own| matches!(own, Own::Flush { .. })) {
            self.jobs.abandon_flush(storage);
        }
        let before = Lsn(storage.head().replay_from().0.saturating_sub(1));
        let known = storage.head().duplicates();
        self.tables = Tables::new(storage.settings(), before, known);
        // What was frozen for it is not any more.
        let full = &mut self.full_compaction;
        full.requested = full.requested.max(full.merging.take());
    }

    /// Begins, or ends, the full compaction that [`Replica::compact`] requested. Returns whether it did.
    fn step_full_compaction(&mut self, memtables_max: usize) -> bool {
        let (tables, full) = (&mut self.tables, &mut self.full_compaction);
        if full.merging.is_none()
            && full.requested.is_some_and(|upto| upto <= tables.last)
            && tables.frozen.len() + 1 < memtables_max
        {
            full.requested = None;
            full.merging = Some(tables.last);
            tables.freeze(0);
            self.jobs.wish(Wish::FullCompaction, true);
            return true;
        }
        let ends = tables.frozen.is_empty() && self.own.is_empty() && self.jobs.is_idle();
        let ended = full.merging.take_if(|_| ends);
        if ended.is_some() {
            self.jobs.wish(Wish::FullCompaction, false);
            full.merged = ended;
        }
        ended.is_some()
    }

    /// An operation of the history that is looked at anew.
    pub(super) fn replayed(&mut self, replayed: &Replayed<'_>) {
        self.tables.insert(replayed);
    }

    /// That was all of the history.
    pub(super) fn replayed_all(&mut self, storage: &Storage, recovered: &Recovered) {
        let last = recovered.last;
        let geometry = storage.settings().layout.log_geometry();
        self.feed = Feed::new(storage.region(), geometry, last);
        self.jobs.lasts = LastLsns::new(last);
        self.due.clear();
        // Of earlier segments everything is made durable at once.
        let in_windows = recovered.logs.iter().filter_map(|tail| {
            let (last, end) = tail.unflushed.last().zip(tail.end)?;
            (last.segment.ordinal == end.ordinal).then_some(Due {
                segment: last.segment.number,
                to: end.offset,
            })
        });
        self.in_windows = in_windows.collect();
        let head = storage.head();
        let sealed = LOGS.into_iter().flat_map(|log| head.log(log));
        let sealed = sealed.filter_map(|entry| Some((entry.segment.number, entry.segment.end?)));
        let open = recovered.logs.iter().flat_map(|tail| &tail.seals);
        let open = open.map(|seal| (seal.number, seal.to));
        let fed = sealed.chain(open);
        self.fed = fed
            .map(|(number, to)| (number, FedTo { to, last }))
            .collect();
    }

    /// An edit is on its way that needs log bytes below `to`. Until they are fed nobody knows what
    /// LSNs the segment holds.
    pub(super) fn needs(&mut self, segment: SegmentNumber, to: u32) {
        if self.fed.get(&segment).is_none_or(|fed| fed.to < to) {
            self.jobs.lasts.set(segment, Lsn(u64::MAX));
        }
    }

    /// Log bytes below `to` are here with an edit that was applied.
    pub(super) fn has(&mut self, segment: SegmentNumber, to: u32) {
        if self.fed.get(&segment).is_none_or(|fed| fed.to < to) {
            self.due.push_back(Due { segment, to });
        }
    }

    fn is_committing(&self, which: impl Fn(&Own) -> bool) -> bool {
        self.own.iter().any(|(_, own)| which(own))
    }

    /// An own edit is durable.
    pub(super) fn committed(&mut self, seq: EditSeq, storage: &mut Storage) {
        let first = self.own.pop_front();
        let (expected, own) = first.expect("an edit is the primary's or an own one");
        assert_eq!(expected, seq, "edits are committed in order");
        self.told.changed = true;
        match own {
            Own::Flush { last } => {
                self.jobs.flush_committed();
                let frozen = &mut self.tables.frozen;
                while frozen.pop_front_if(|frozen| frozen.last <= last).is_some() {}
                let head = storage.head();
                self.fed
                    .retain(|number, _| head.log_segment(*number).is_some());
            }
            Own::Compaction => self.jobs.compaction_committed(),
            Own::Numbers => storage.own_mark_recorded(storage.current().own_mark()),
        }
    }
}

impl Replica {
    /// Builds levels of its own from now on, with numbers of `server`'s range, instead of taking
    /// the primary's. Blocks: the logs are read.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn build_levels(&mut self, server: ServerId) -> Result<(), ReplicaError> {
        self.build_levels_from(SegmentNumber::first_own(server))
    }

    /// The same with the range of numbers that begins at `first`.
    pub(super) fn build_levels_from(&mut self, first: SegmentNumber) -> Result<(), ReplicaError> {
        self.storage.number_for_itself(first);
        self.builder = Some(Box::new(Builder::new(&self.storage, self.logs.lsn)));
        self.logs.feeds = true;
        self.refresh()
    }

    /// What of the region was found damaged here.
    #[must_use]
    pub const fn damages(&self) -> &Arc<Damages> {
        self.storage.damages()
    }

    /// A level segment that is known to be damaged and that no other member has: it was built here, or the others have
    /// merged it since.
    #[must_use]
    pub fn damaged_level_only_here(&self) -> Option<DamagedSegment> {
        let damages = self.storage.damages();
        if damages.is_empty() {
            return None;
        }
        let head = self.storage.head();
        let only_here = |damaged: &DamagedSegment| {
            let number = damaged.number;
            damages.is_only_here(number) && head.finished_segment(number).is_some()
        };
        damages.list().into_iter().find(only_here)
    }

    /// Whether it builds levels of its own.
    #[must_use]
    pub const fn builds_levels(&self) -> bool {
        self.builder.is_some()
    }

    /// Everything up to `lsn` is committed, the primary says.
    pub fn commit(&mut self, lsn: Lsn) {
        if let Some(builder) = &mut self.builder {
            builder.committed = builder.committed.max(lsn);
        }
    }

    /// Requests a full compaction of everything up to `upto`, and of what else is here by then.
    pub fn compact(&mut self, upto: Lsn) {
        if let Some(builder) = &mut self.builder {
            let full = &mut builder.full_compaction;
            full.requested = full.requested.max(Some(upto));
            builder.told.changed = true;
        }
    }

    /// The last LSN of what a full compaction that was [requested](Self::compact) has merged, told once.
    pub fn take_compacted(&mut self) -> Option<Lsn> {
        self.builder.as_mut()?.full_compaction.merged.take()
    }

    /// What was built here, and what memtables hold; `None` where nothing is built.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        let builder = self.builder.as_deref()?;
        let tables = &builder.tables;
        let frozen = tables.frozen.iter().map(|frozen| frozen.table.len());
        Some(Stats {
            levels: level_stats(self.storage.current()),
            memtables: MemtableStats {
                bytes: tables.bytes(),
                entries: tables.active.len() + frozen.sum::<usize>(),
                frozen: tables.frozen.len(),
            },
            ..builder.counts.read()
        })
    }

    /// What a reader would see here, up to the last LSN that is in memtables: for tests and tools
    /// that compare members. `None` where nothing is built.
    #[must_use]
    pub fn snapshot(&self, cache: &Arc<NodeCache>) -> Option<Box<dyn Snapshot>> {
        let tables = &self.builder.as_deref()?.tables;
        let frozen = tables.frozen.iter().rev().map(|frozen| &frozen.table);
        let version = self.storage.current();
        let view = ReadView {
            memtables: std::iter::once(&tables.active)
                .chain(frozen)
                .cloned()
                .collect(),
            version: Arc::clone(version),
            levels_lsn: Lsn(version.replay_from().0.saturating_sub(1)),
            expired_lsn: Lsn(0),
            bulk_loads: 0,
        };
        let windows = self.logs.windows[LARGE_LOG.index()].clone();
        let windows = LogWindows::new(self.region(), LARGE_LOG, self.logs.geometry, windows);
        // Of what was not flushed, a memtable may know from the last look at the logs.
        let chain = version.log(LARGE_LOG).iter();
        let windows = windows.as_found(chain.map(|entry| entry.segment));
        let reading = Reading {
            region: self.region(),
            cache: Arc::clone(cache),
            windows: Arc::new(windows),
            filters: FilterCounts::default(),
            damages: Arc::clone(self.storage.damages()),
            ended: AtomicBool::new(false),
        };
        let time = ScanTime {
            now: tables.time.max(version.time()),
            ..ScanTime::default()
        };
        let snapshot = LsmSnapshot::new(Arc::new(view), tables.last, Arc::new(reading), time);
        Some(Box::new(snapshot))
    }

    /// Whether building goes on by itself, without news from the primary.
    #[must_use]
    pub fn is_building(&self) -> bool {
        self.builder.as_deref().is_some_and(|builder| {
            let ripe = self.ripe(builder).is_some();
            let asked = builder.full_compaction.is_pending();
            ripe || asked || builder.jobs.pending() > 0 || !builder.own.is_empty()
        })
    }

    /// The oldest memtable that waits, if it may become a run: everything in it is committed, and
    /// its records are on the device, or on their way. A run may hold pointers to them, or the
    /// first half of a batch.
    fn ripe<'b>(&self, builder: &'b Builder) -> Option<&'b Frozen> {
        let first = builder.tables.frozen.front()?;
        let ripe = first.last <= builder.committed && self.is_written(&builder.in_windows);
        ripe.then_some(first)
    }

    /// Whether nothing of `logs` is in windows only.
    fn is_written(&self, logs: &[Due]) -> bool {
        logs.iter().all(|due| {
            let fill = self.logs.fills.get(&due.segment);
            // One without is sealed, or gone.
            fill.is_none_or(|fill| fill.holds(due.to))
        })
    }

    /// Whether there is new work since this was asked last: whoever calls [`build`](Self::build) may
    /// be asleep.
    pub fn take_work(&mut self) -> bool {
        let ripe = self.builder.as_deref().and_then(|b| self.ripe(b));
        let ripe = ripe.map(|frozen| frozen.last);
        let Some(builder) = &mut self.builder else {
            return false;
        };
        builder.told.take_news(ripe)
    }

    /// Does a step of building: a piece of a flush or of a compaction. Returns whether anything was
    /// done. May block for reads.
    ///
    /// # Errors
    /// The device's, final; damage to levels.
    pub fn build(&mut self, now: Instant) -> Result<bool, EngineError> {
        let Some(mut builder) = self.builder.take() else {
            return Ok(false);
        };
        let built = self.build_with(&mut builder, now);
        self.builder = Some(builder);
        built
    }

    fn build_with(&mut self, builder: &mut Builder, now: Instant) -> Result<bool, EngineError> {
        let room = self.storage.store().room();
        builder.jobs.note_room(now, room, room.is_full());
        let settings = self.storage.settings().clone();
        let waits = !builder.tables.frozen.is_empty();
        if room.is_full()
            && builder
                .jobs
                .wants_pass(now, settings.logs.flush_interval, waits)
            && !builder.tables.active.is_empty()
        {
            builder.tables.freeze(0);
            builder.jobs.pass_begun(now);
        }
        // What a checkpoint brings to the logs is looked at only when it is applied.
        if self.is_catching_up() || !self.storage.takes_edits() {
            return Ok(false);
        }
        if self.storage.damages().step(self.storage.head(), now) {
            builder.jobs.try_again();
        }
        let mut made = builder.watch.look(&self.storage, &mut builder.jobs)?;
        made |= self.reserve_numbers(builder)?;
        made |= builder.step_full_compaction(settings.memtables.count_max);
        let is_ripe = self.ripe(builder).is_some();
        let first = builder.tables.frozen.front();
        let state = Now {
            frozen: first.filter(|_| is_ripe),
            is_durable: &|_| true,
            flush_committing: builder.is_committing(|own| matches!(own, Own::Flush { .. })),
            compaction_committing: builder.is_committing(|own| *own == Own::Compaction),
        };
        let epoch = self.storage.head().epoch().max(Epoch(1));
        // Everything that its own edits tell is committed.
        let time = self.storage.current().time();
        let mut site = Site {
            storage: &mut self.storage,
            settings: &settings,
            epoch,
            observer: None,
            cache: None,
            counts: &builder.counts,
            time,
        };
        let (edit, own) = match builder.jobs.step(&mut site, &state)? {
            Made::Nothing => return Ok(made),
            Made::Progress => return Ok(true),
            Made::Compacted(edit) => (edit, Own::Compaction),
            Made::Flushed(mut edit) => {
                let replay_from = edit.numbers.replay_from.expect("a flush raises it");
                edit.logs.points = self.points();
                let last = Lsn(replay_from.0 - 1);
                (edit, Own::Flush { last })
            }
        };
        self.commit_own(builder, edit, own)?;
        Ok(true)
    }

    /// How far the logs that are open have been written: what is flushed to levels has to be
    /// durable there, too, since their last edits may never be.
    fn points(&self) -> Vec<LogPoint> {
        let open = self.storage.head().open_logs();
        let written = open.filter_map(|entry| {
            let LogSegment { log, number, .. } = entry.segment;
            let to = self
                .logs
                .fills
                .get(&number)?
                .written_records(&self.logs.geometry);
            (to > 0).then_some(LogPoint { log, number, to })
        });
        written.collect()
    }

    fn reserve_numbers(&mut self, builder: &mut Builder) -> Result<bool, EngineError> {
        let few = self.storage.numbers_left() < self.storage.settings().levels.number_block / 2;
        if !few || builder.is_committing(|own| *own == Own::Numbers) {
            return Ok(false);
        }
        let epoch = self.storage.head().epoch().max(Epoch(1));
        let mut edit = self.storage.next_edit(epoch);
        self.storage.raise_own_mark(&mut edit);
        self.commit_own(builder, edit, Own::Numbers)?;
        Ok(true)
    }

    fn commit_own(
        &mut self,
        builder: &mut Builder,
        mut edit: Edit,
        own: Own,
    ) -> Result<(), EngineError> {
        let head = self.storage.head();
        if !head.builds_levels() {
            edit.numbers.follows = Some(head.group_edit());
        }
        self.storage.commit(&edit)?;
        builder.own.push_back((edit.seq, own));
        Ok(())
    }

    /// Whether `edit`, localized and the next one, replaces the levels.
    pub(super) fn replaces_levels(&self, edit: &Edit) -> bool {
        self.builder.is_some() && edit.checkpoint && {
            let head = self.storage.head();
            edit.numbers.replay_from != Some(head.replay_from())
                || edit.added != head.checkpoint().added
        }
    }

    /// Makes way for the levels of `edit`, localized.
    ///
    /// If the edit replaces the levels that are here, it may name numbers of this member's own range. An earlier copy
    /// on this server used those numbers, and this copy must never use them: it skips them. If a checkpoint keeps the
    /// levels, its numbers stand for the segments that are here, so arrivals under the same numbers are given up.
    pub(super) fn make_way(&mut self, edit: &Edit) {
        if !self.replaces_levels(edit) {
            if self.builder.is_some() && edit.checkpoint {
                self.give_up_doubles();
            }
            return;
        }
        let Some(behind) = self.storage.behind_own(edit) else {
            return;
        };
        self.storage.skip_own_numbers(behind);
        let mut added = edit.added.iter().map(|(_, _, segment)| segment.number);
        let is_built = |number: SegmentNumber| {
            let mut pending = self.storage.pending();
            pending.any(|built| built.number() == number)
                && !self.incoming.arrivals.contains_key(&number)
        };
        if added.any(is_built) {
            self.levels_replaced();
        }
    }

    /// They are replaced, or are about to be.
    pub(super) fn levels_replaced(&mut self) {
        if let Some(builder) = &mut self.builder {
            builder.jobs.levels_replaced(&mut self.storage);
        }
    }
}

impl Builder {
    /// Whether memtables have to become runs, or runs a level, before more is fed.
    pub(super) fn is_full(&self, storage: &Storage) -> bool {
        self.tables.is_full(storage.l1_runs())
    }
}
