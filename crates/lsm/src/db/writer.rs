//! What is behind the writer lock: logs, memtables, and the view that readers are shown.
//!
//! A group of operations is written like this, under the lock:
//!
//! 1. There must be room in the memtable; where there is none it is frozen and a new one put in
//!    front of it, unless too many are waiting to be flushed, or the levels are behind. Then the
//!    writer is told to come back, and nothing has happened.
//! 2. The group is appended to the logs, all of it or nothing.
//! 3. Its operations are inserted into the memtable.
//! 4. Its last LSN is published: from here on readers see it.
//!
//! The lock is not held across a wait for the device, but where what a condition is about has changed since it was
//! looked up ([`condition`](super::condition)). The view is replaced under this lock only,
//! so memtables and version always belong together.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{
    EditSeq, FlushRange, KeyRange, LogId, Lsn, Moment, Pointer, RequestName, SegmentNumber,
};
use argosy_engine::{BatchError, BusyReason, EngineError, Op, WriteBatch};
use argosy_log::group::moment_of;
use argosy_log::writer::NoRoom;
use argosy_log::{Appended, GroupOp};

use super::installed::Installed;
use super::memtables::{LogsFrom, Memtables};
use super::server_memory::RegionMemory;
use super::spares::Spares;
use super::time::ToldTime;
use crate::duplicates::{Duplicates, Known};
use crate::edit::{LogPoint, LogSegment};
use crate::memtable::Memtable;
use crate::memtable::range_tombstones::bound_bytes;
use crate::names::Entry;
use crate::names::logs::{LARGE_LOG, LOGS, Logs, RECOVERY_LOG};
use crate::settings::{Mutants, Placement, Settings};
use crate::version::Version;
use crate::work::admission::{Admission, Owed, Share};
use crate::work::frozen::Frozen;

/// A log segment that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// The segment and its end.
    pub(super) point: LogPoint,
    /// No record in it has a higher LSN.
    pub(super) last: Lsn,
}

/// The state behind the writer lock.
pub(super) struct Writer {
    pub(super) logs: Logs,
    tables: Memtables,
    installed: Installed,
    mutants: Mutants,
    /// Writes into it wait.
    held: Option<KeyRange>,
    /// The last LSN that was appended.
    last: Lsn,
    /// The last LSN of what was found: all of that lies in segments that are sealed.
    found: Lsn,
    told: ToldBeside,
    /// Ranges that no one has begun to flush yet.
    flushes: VecDeque<FlushRange>,
    /// Log segments that have ended and whose edit has not been made.
    ended: VecDeque<Ended>,
    spares: Spares,
    /// Which writes are taken while the background is behind.
    pub(super) admission: Admission,
}

/// What the logs tell beside pairs.
struct ToldBeside {
    /// The region's time.
    time: ToldTime,
    /// Which requests were applied. Frozen memtables may share it.
    duplicates: Arc<Duplicates>,
}

/// What a write did to the logs, for the observer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Touched {
    /// Which logs were appended to, by [`LogId::index`].
    pub(super) logs: [bool; LOGS.len()],
}

/// What was rebuilt from the logs.
pub(super) struct Rebuilt {
    /// The memtables, oldest first.
    pub(super) tables: VecDeque<Frozen>,
    /// The last LSN in them, or in the levels.
    pub(super) last: Lsn,
    /// Which requests were applied up to there.
    pub(super) duplicates: Arc<Duplicates>,
}

impl Writer {
    /// A writer that goes on behind what was `rebuilt`.
    pub(super) fn new(
        logs: Logs,
        installed: Installed,
        rebuilt: Rebuilt,
        memory: Arc<RegionMemory>,
        mutants: Mutants,
    ) -> Self {
        let Rebuilt {
            tables,
            last,
            duplicates,
        } = rebuilt;
        Self {
            logs,
            tables: Memtables::new(tables, memory),
            installed,
            mutants,
            held: None,
            last,
            found: last,
            told: ToldBeside {
                time: ToldTime::NONE,
                duplicates,
            },
            flushes: VecDeque::new(),
            ended: VecDeque::new(),
            spares: Spares::default(),
            admission: Admission::default(),
        }
    }

    /// The last LSN that was appended.
    pub(super) const fn last(&self) -> Lsn {
        self.last
    }

    /// The region's time, as it was appended.
    pub(super) const fn time(&self) -> Moment {
        self.told.time.time
    }

    /// What the region's time was found to be.
    pub(super) const fn set_time(&mut self, told: ToldTime) {
        self.told.time = told;
        self.installed.expired_lsn = told.lsn;
    }

    /// What is known of `request`.
    pub(super) fn look(&self, request: RequestName) -> Known {
        self.told.duplicates.look(request)
    }

    /// Appends that the region's time is `time`. The caller publishes the last LSN.
    pub(super) fn append_time(&mut self, time: Moment) -> Result<Touched, EngineError> {
        let lsn = self.last.next();
        self.logs
            .append_time(lsn, time)
            .map_err(|_| EngineError::Busy(BusyReason::LogWindows))?;
        self.last = lsn;
        self.told.time = ToldTime { time, lsn };
        self.note_ended();
        let mut touched = Touched::default();
        touched.logs[RECOVERY_LOG.index()] = true;
        Ok(touched)
    }

    /// What readers are to see now.
    pub(super) fn view(&self) -> crate::read::ReadView {
        let installed = &self.installed;
        crate::read::ReadView {
            memtables: self.tables.newest_first().cloned().collect(),
            version: Arc::clone(&installed.version),
            levels_lsn: installed.levels_lsn,
            expired_lsn: match self.mutants.keep_version() {
                true => Lsn(0),
                false => installed.expired_lsn,
            },
            bulk_loads: installed.bulk_loads,
        }
    }

    /// Makes sure that the active memtable takes `batch`, by freezing it where it does not.
    /// Returns whether it was frozen, so that the view has to be replaced.
    pub(super) fn make_room(
        &mut self,
        batch: &WriteBatch,
        settings: &Settings,
    ) -> Result<bool, BusyReason> {
        let needed: usize = batch
            .ops()
            .map(|op| {
                let entry = entry_of(&op, log_of(&op, settings), Pointer::default());
                Memtable::entry_bytes_max(op.key().len(), &entry)
            })
            .sum();
        let active = self.tables.active();
        let takes_ranges = || {
            let ranges = batch.ops().filter_map(|op| op.range());
            let bytes = ranges.map(|range| bound_bytes(&range)).sum();
            active.takes_ranges(batch.ranges_len(), bytes)
        };
        let fits = active.fits(needed)
            && (batch.ranges_len() == 0 || takes_ranges())
            && !self.tables.outgrows_memory(needed);
        if fits && self.active_log_bytes() < settings.memtables.log_bytes {
            return Ok(false);
        }
        // A memtable that is empty and full stands for records of time.
        if active.is_empty() && self.active_log_bytes() < settings.memtables.log_bytes {
            // A group that is larger than a whole memtable gets one of its own size.
            self.tables.replace_active(needed);
            return Ok(true);
        }
        self.freeze(needed, settings)?;
        Ok(true)
    }

    /// Freezes the active memtable and begins one that takes `needed` bytes.
    fn freeze(&mut self, needed: usize, settings: &Settings) -> Result<(), BusyReason> {
        if self.frozen_count() + 1 >= settings.memtables.count_max {
            return Err(BusyReason::Memtable);
        }
        if self.l1_runs() >= settings.levels.l1_runs_max {
            return Err(BusyReason::CompactionDebt);
        }
        let unsealed = self.ended.iter().map(|ended| ended.point);
        let told = !self.mutants.forget_unsealed();
        let unsealed = unsealed.filter(|point| point.log == LARGE_LOG && told);
        let frozen = |table| Frozen {
            table,
            last: self.last,
            large: self.logs.log(LARGE_LOG).end(),
            unsealed: unsealed.collect(),
            time: self.told.time.time,
            duplicates: Arc::clone(&self.told.duplicates),
        };
        let from = LogsFrom {
            bytes: self.logs.bytes(),
            tail: self.recovery_tail(),
        };
        self.tables.freeze(needed, from, frozen);
        Ok(())
    }

    /// Whether the active memtable takes more than it may by now.
    pub(super) fn is_beyond_memory(&self) -> bool {
        self.tables.is_beyond_memory()
    }

    /// The tail segment of the recovery log, by its place in the chain.
    fn recovery_tail(&self) -> Option<u64> {
        self.logs.log(RECOVERY_LOG).end().map(|end| end.ordinal)
    }

    /// Bytes of both logs that the active memtable stands for.
    fn active_log_bytes(&self) -> u64 {
        self.tables.active_log_bytes(self.logs.bytes())
    }

    /// Freezes the active memtable although it is not full. One that is empty counts where a segment of the log goes
    /// with it: records of time and marks fill that, too.
    pub(super) fn freeze_now(&mut self, settings: &Settings) -> bool {
        let frees = self.active_log_bytes() >= settings.layout.segment_bytes as u64
            || self.tables.spans_segments(self.recovery_tail());
        (frees || !self.tables.active().is_empty()) && self.freeze(0, settings).is_ok()
    }

    /// Bytes of logs that the active memtable stands for; 0 while another one waits to be flushed.
    pub(super) fn only_active_log_bytes(&self) -> u64 {
        self.tables.only_active_log_bytes(self.logs.bytes())
    }

    /// What the background owes, where `space` is for the space that the region takes.
    pub(super) fn owed(&self, space: Share, settings: &Settings) -> Owed {
        let memtables = self.tables.used_bytes() as u64;
        let l0 = self.tables.bytes_each(settings.memtables.bytes) as u64;
        let most = settings.memtables.count_max as u64 * l0;
        let runs = |count: usize| count as u64;
        Owed {
            memtables: Share::of(memtables, most - l0 / 2, most),
            runs: Share::of(
                runs(self.l1_runs()),
                runs(
                    settings
                        .levels
                        .l1_runs
                        .midpoint(settings.levels.l1_runs_max),
                ),
                runs(settings.levels.l1_runs_max),
            ),
            space,
        }
    }

    /// Sorted runs in L1.
    pub(super) fn l1_runs(&self) -> usize {
        self.installed.l1_runs()
    }

    /// Appends `batch` and inserts it. The caller publishes the last LSN.
    pub(super) fn append(
        &mut self,
        batch: &WriteBatch,
        request: Option<RequestName>,
        settings: &Settings,
    ) -> Result<Touched, EngineError> {
        let mut touched = Touched::default();
        let active = self.tables.active();
        let ops = batch.ops().map(|op| GroupOp {
            op,
            log: log_of(&op, settings),
        });
        let insert = |appended: Appended<'_>| {
            let GroupOp { op, log } = appended.op;
            touched.logs[log.index()] = true;
            match op.range() {
                Some(range) => active.delete_range(&range, appended.lsn),
                None => active.insert(op.key(), appended.lsn, entry_of(&op, log, appended.at)),
            }
        };
        self.last = self
            .logs
            .append_group(self.last.next(), request, ops, insert)
            .map_err(|no_room| match no_room {
                NoRoom::Full => EngineError::Busy(BusyReason::LogWindows),
                NoRoom::TooLarge => EngineError::Limit(BatchError::TooManyBytes),
            })?;
        if let Some(request) = request {
            Arc::make_mut(&mut self.told.duplicates).note(request, self.last);
        }
        self.note_ended();
        Ok(touched)
    }

    /// Takes over which log segments have ended.
    fn note_ended(&mut self) {
        for log in LOGS {
            while let Some(point) = self.logs.log_mut(log).take_sealed() {
                // A group may straddle the end: then its last LSN is in the next segment.
                self.ended.push_back(Ended {
                    point,
                    last: self.last,
                });
            }
        }
    }

    /// Moves ranges that have to be flushed from the logs to the queue, and returns them. With
    /// `force`, the present windows' too, padded.
    pub(super) fn queue_flushes(&mut self, force: bool) -> Vec<FlushRange> {
        let mut ranges = Vec::new();
        for log in LOGS {
            while let Some(range) = self.logs.log_mut(log).take_flush(force) {
                ranges.push(range);
            }
        }
        self.flushes.extend(&ranges);
        ranges
    }

    /// Up to where a mark or an edit that every member has durable says so: no record up to there can be
    /// damaged and be taken for one that was never written.
    pub(super) fn marked(&self, everywhere: EditSeq) -> Lsn {
        let version = &self.installed.version;
        let by_edit = match version.seq() <= everywhere {
            true => version.durable(),
            false => Lsn(0),
        };
        self.found.max(self.logs.marked()).max(by_edit)
    }

    /// Something became durable on every member: the marks to come say so.
    pub(super) fn note_durable(&mut self) {
        let durable = self.logs.durable(self.last);
        for log in LOGS {
            self.logs.log_mut(log).set_durable(durable);
        }
    }

    /// Whether everything that was appended is durable on every member, and a log does not end in a mark that
    /// says so.
    pub(super) fn lacks_mark(&self) -> bool {
        let lacks = LOGS.map(|log| self.logs.log(log).lacks_mark());
        lacks.contains(&true) && self.logs.durable(self.last) == self.last
    }

    /// Appends a mark to each log that goes on behind its last one. Where there is no segment for it, the edit that
    /// seals the last one says the same. Returns how many were appended.
    pub(super) fn append_marks(&mut self) -> u64 {
        if self.logs.durable(self.last) == Lsn(0) {
            return 0;
        }
        self.note_durable();
        let mut appended = 0;
        for log in LOGS {
            let log = self.logs.log_mut(log);
            if !log.lacks_mark() {
                continue;
            }
            match log.append_mark() {
                Ok(()) => appended += 1,
                Err(_) if !log.has_segment() => log.seal(),
                Err(_) => {}
            }
        }
        self.note_ended();
        appended
    }

    /// The next range to flush.
    pub(super) fn next_flush(&mut self) -> Option<FlushRange> {
        self.flushes.pop_front()
    }

    /// The oldest memtable that waits to be flushed.
    pub(super) fn oldest_frozen(&self) -> Option<&Frozen> {
        self.tables.oldest_frozen()
    }

    /// The highest LSN in a memtable that waits to be flushed.
    pub(super) fn frozen_up_to(&self) -> Option<Lsn> {
        self.tables.newest_frozen().map(|frozen| frozen.last)
    }

    /// How many memtables wait to be flushed.
    pub(super) fn frozen_count(&self) -> usize {
        self.tables.frozen_count()
    }

    /// Bytes of memory of all memtables.
    pub(super) fn memtable_bytes(&self) -> usize {
        self.tables.memory_bytes()
    }

    /// Log segments that have ended and are in no edit yet, oldest first.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Ended> {
        self.ended.iter()
    }

    /// An edit is durable: `version` is what it led to. `retired`: it took the oldest memtable.
    /// Returns the version before, and the memtable, to be dropped without the lock.
    pub(super) fn install(
        &mut self,
        version: Arc<Version>,
        retired: bool,
    ) -> (Arc<Version>, Option<Frozen>) {
        let before = self.installed.replace(version, self.told.time.lsn);
        let frozen = retired.then(|| self.tables.retire());
        if let Some(frozen) = &frozen {
            self.installed.levels_lsn = frozen.last;
        }
        (before, frozen)
    }

    /// Lets go of memtables and version, since the engine has ended; `nothing` is what readers are shown. Returns the
    /// memtables.
    pub(super) fn end(&mut self, nothing: Arc<Version>) -> Memtables {
        self.installed.end(nothing);
        self.spares = Spares::default();
        self.tables.end()
    }

    /// An edit brought pairs into the levels that no memtable had.
    pub(super) const fn bulk_loaded(&mut self) {
        self.installed.bulk_loads += 1;
    }

    /// From now on writes into `range` wait, or none do.
    pub(super) fn hold(&mut self, range: Option<KeyRange>) {
        self.held = range;
    }

    /// Whether `batch` writes into a range of which writers wait.
    pub(super) fn holds(&self, batch: &WriteBatch) -> bool {
        let Some(held) = &self.held else { return false };
        batch.ops().any(|op| match op.range() {
            Some(range) => range.overlaps(held),
            None => held.contains(op.key()),
        })
    }

    /// The edit sealed this segment.
    pub(super) fn sealed(&mut self, number: SegmentNumber) {
        self.ended.retain(|ended| ended.point.number != number);
    }

    /// The edit `seq` added this segment; it may be written once every member has the edit.
    pub(super) fn add_spare(&mut self, seq: EditSeq, segment: LogSegment) {
        self.spares.add(seq, segment);
    }

    /// Gives the logs the segments whose edits everybody has.
    pub(super) fn provide_spares(&mut self, everywhere: EditSeq) -> bool {
        self.spares.provide(everywhere, &mut self.logs)
    }

    /// Whether anything is in memtables.
    pub(super) fn holds_entries(&self) -> bool {
        self.tables.hold_entries()
    }

    /// Whether `log` has a segment to write to, now or soon.
    pub(super) fn has_segment(&self, log: LogId) -> bool {
        self.spares.has(log) || self.logs.log(log).has_segment()
    }

    /// How many segments `log` needs, where none are on their way to it: at most `most`. They are asked for with that.
    pub(super) fn ask_for_segments(&mut self, log: LogId, segment_bytes: u64, most: u64) -> u64 {
        self.spares.ask(log, &self.logs, segment_bytes, most)
    }
}

/// The log in which an operation's record goes.
pub(super) fn log_of(op: &Op<'_>, settings: &Settings) -> LogId {
    let Op::Put { key, value, .. } = op else {
        return RECOVERY_LOG;
    };
    let pair = key.len() + value.len();
    let large = pair > settings.layout.node_bytes / 4
        || match settings.values.placement {
            Placement::InPlace => false,
            Placement::Separated => true,
            Placement::Hybrid => pair >= settings.values.large_bytes,
        };
    if large { LARGE_LOG } else { RECOVERY_LOG }
}

/// What an operation whose record went to `log`, at `at`, binds its key to.
fn entry_of<'a>(op: &Op<'a>, log: LogId, at: Pointer) -> Entry<'a> {
    match (*op, log) {
        (Op::Delete { .. } | Op::DeleteRange { .. }, _) => Entry::Tombstone,
        (Op::Put { value, expiry, .. }, RECOVERY_LOG) => {
            Entry::Inline(value).until(moment_of(expiry))
        }
        (Op::Put { value, expiry, .. }, _) => {
            let value_len = u32::try_from(value.len()).expect("a value is short");
            Entry::Pointer { at, value_len }.until(moment_of(expiry))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_decides_by_the_size_of_the_pair() {
        let put = |len: usize, placement| {
            let settings = Settings::default().with(|of| {
                of.values.placement = placement;
                of.layout.node_bytes = 8192;
            });
            let value = vec![0; len];
            log_of(
                &Op::Put {
                    key: b"k",
                    value: &value,
                    expiry: argosy_engine::Expiry::Never,
                },
                &settings,
            )
        };
        assert_eq!(put(998, Placement::Hybrid), RECOVERY_LOG);
        assert_eq!(put(999, Placement::Hybrid), LARGE_LOG);
        assert_eq!(put(2047, Placement::InPlace), RECOVERY_LOG);
        assert_eq!(
            put(2048, Placement::InPlace),
            LARGE_LOG,
            "over a quarter of a node"
        );
        assert_eq!(put(0, Placement::Separated), LARGE_LOG);
        let delete = Op::Delete { key: b"k" };
        let settings = Settings::default().with(|of| of.values.placement = Placement::Separated);
        assert_eq!(log_of(&delete, &settings), RECOVERY_LOG);
    }
}
