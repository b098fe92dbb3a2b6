//! What an engine shows of itself: snapshots and figures; and, to a driver whose region has other members, its
//! position, its version for a member to start from, and bytes of its segments.

use std::sync::Arc;

use argosy_base::{
    DeviceSegment, EditSeq, FlushRange, LogId, Lsn, Moment, SegmentNumber, SegmentPart,
};
use argosy_device::{Buffer, buffer};
use argosy_engine::source::{LogPlace, Next, Piece};
use argosy_engine::{Checkpoint, EngineError, Excess, Pin, PinnedCheckpoint, Source, Store};
use argosy_log::verify::{LogFault, SentBytes, check_sent};
use argosy_log::{LogLayout, LogWindows};

use super::{Cut, Lsm, bulk_load};
use crate::addresses::Addressing;
use crate::cache::{NodeCache, flushed};
use crate::damage::Damages;
use crate::edit::{LogPoint, LogSegment};
use crate::memory::Memory;
use crate::memtable::allocated;
use crate::names::LevelError;
use crate::names::logs::{LARGE_LOG, LOGS, has_log};
use crate::read::snapshot::LsmSnapshot;
use crate::read::{ReadView, ScanTime};
use crate::segments::StoredSegment;
use crate::version::outgoing::{goes_out, send_out};
use crate::version::{self, Version};

impl Source for Lsm {
    fn piece(&self, log: LogId, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next {
        if from >= end || !has_log(log) {
            return Next::End;
        }
        match self.segment_in_chain(log, from.ordinal) {
            Some(segment) => self
                .windows
                .of(log)
                .piece(&segment, from.offset, end, piece),
            // The log was truncated: everything in it is in the levels by now.
            None => Next::Skip(from.next_segment()),
        }
    }

    fn flushed_everywhere(&self, log: LogId, segment: SegmentNumber, to: u32) {
        if !has_log(log) {
            return;
        }
        let mut writer = self.lock();
        let log = writer.logs.log_mut(log);
        log.flushed_everywhere(segment, to);
        writer.note_durable();
        let asked = self.steps.logs().mark_asked();
        let waits = writer.marked(self.history.edits().everywhere()) < asked;
        drop(writer);
        if waits || self.windows.are_to_rest() {
            // What is durable everywhere now is marked by the next step.
            self.wake();
        }
    }

    fn edit_applied_everywhere(&self, seq: EditSeq) {
        let edits = self.history.edits();
        edits.note_everywhere(seq);
        let usable = edits.usable();
        self.lock().provide_spares(usable);
        self.wake();
    }

    fn is_at_rest(&self) -> bool {
        self.windows.are_at_rest() || self.settings.mutants.rest_early()
    }

    fn has_flushed(&self, range: &FlushRange) -> bool {
        let durable = self.steps.logs().durable();
        durable.covers(range.log, range.ordinal, range.to)
    }

    fn covers_flushed(&self) -> bool {
        let writer = self.lock();
        LOGS.iter().all(|log| writer.logs.log(*log).keeps_up())
    }

    fn checkpoint(&self) -> PinnedCheckpoint {
        let (version, points) = {
            let writer = self.lock();
            let version = self.shown.version();
            // Whatever every member had made durable may have left the windows: who starts from
            // here has to have it, in whichever segments that are not sealed it lies.
            let points = version.open_logs().map(|entry| {
                let LogSegment { log, number, .. } = entry.segment;
                let to = writer.logs.log(log).flushed_here(&entry.segment);
                LogPoint { log, number, to }
            });
            let points: Vec<_> = points.filter(|point| point.to > 0).collect();
            (version, points)
        };
        let mut edit = version.checkpoint_for_others();
        // Numbers of its own are of no meaning to others.
        edit.numbers.own_mark = None;
        edit.logs.points.extend(points);
        PinnedCheckpoint {
            checkpoint: Checkpoint {
                seq: edit.seq,
                bytes: edit.encode(),
            },
            pin: Pin::new(version),
        }
    }

    fn keep_log(&self, keep: bool) {
        self.history.keep_log(keep);
    }

    fn read(&self, part: SegmentPart, pins: &[Pin]) -> Option<Result<Buffer, EngineError>> {
        let SegmentPart { number, from, to } = part;
        let view = self.shown.view();
        let own = Some(&*view.version).filter(|version| version.stored(number).is_some());
        let pinned = || {
            let mut pinned = pins.iter().filter_map(Pin::get::<Version>);
            pinned.find(|version| version.stored(number).is_some())
        };
        let version = view.version.addresses().sender(own, pinned)?;
        if !goes_out(version, number, &(from..to)) {
            return None;
        }
        let stored = version.stored(number)?;
        let mut bytes = Buffer::zeroed(to.checked_sub(from)? as usize);
        let read = stored.read(from, &mut bytes).map_err(LevelError::from);
        let read = read.and_then(|()| match version.log_segment(number) {
            None => send_out(version, number, &mut bytes),
            Some(entry) => {
                let bytes = &bytes;
                self.check_log(&entry.segment, stored, SentBytes { from, bytes })
            }
        });
        Some(match read {
            Ok(()) => Ok(bytes),
            Err(error) => {
                let error = EngineError::from(error);
                self.damages().note(version, &error);
                Err(error)
            }
        })
    }

    fn places(&self) -> Vec<(SegmentNumber, DeviceSegment)> {
        let view = self.shown.view();
        let large = view.version.log(LARGE_LOG).iter();
        let medium = view.version.medium_log().values();
        let large = large.map(|entry| &entry.stored);
        let logs = large.chain(medium.map(|entry| &entry.stored));
        self.settings.layout.addresses.log_map(logs)
    }
}

impl Lsm {
    /// A view of everything up to the commit LSN.
    #[must_use]
    pub fn snapshot_of_committed(&self) -> LsmSnapshot {
        if self.serving.is_alone() {
            // It is committed at once.
            self.advance_ttl_clock();
        }
        // The time before the LSN: the record that tells it is covered.
        let time = self.history.time().of_scan(self.committed_lsn());
        let (lsn, view) = self.shown.committed();
        LsmSnapshot::new(view, lsn, Arc::clone(&self.reading), time)
    }

    /// The region's time, as far as it is committed.
    #[must_use]
    pub fn committed_time(&self) -> Moment {
        self.history.time().as_of(self.committed_lsn())
    }

    /// A view of everything that is committed, of an engine that commits by itself, as of this moment of the
    /// clock. Where a read of it comes upon a pair that has expired since the region's time was told last, it
    /// has it told anew: not before, so that who only reads writes nothing.
    #[must_use]
    pub fn snapshot_now(self: &Arc<Self>) -> LsmSnapshot {
        let engine = Arc::clone(self);
        let time = ScanTime {
            tell: Some(Box::new(move |expiry| engine.reached(expiry))),
            ..self.history.time().of_all()
        };
        let (lsn, view) = self.shown.committed();
        LsmSnapshot::new(view, lsn, Arc::clone(&self.reading), time)
    }

    /// The version that readers see now.
    #[must_use]
    pub fn version(&self) -> Arc<Version> {
        self.shown.version()
    }

    /// The version that is current, once everything up to `lsn` is in its levels. `None`: it is not; what has
    /// to be flushed for it is on its way.
    pub fn version_with(&self, lsn: Lsn) -> Option<Arc<Version>> {
        let writer = self.lock();
        // What is shown changes under the lock only.
        let view = self.shown.view_to_keep();
        if view.levels_lsn >= lsn {
            return Some(Arc::clone(&view.version));
        }
        let waits = writer.frozen_up_to().is_some_and(|last| last >= lsn);
        if !waits && !writer.holds_entries() {
            // What is above the levels bound nothing.
            return Some(Arc::clone(&view.version));
        }
        drop(writer);
        if !waits {
            self.freeze_now();
        }
        None
    }

    /// A view of what `version`, a pinned one, holds in its levels, at the time that edits tell.
    #[must_use]
    pub fn snapshot_of(&self, version: &Arc<Version>) -> LsmSnapshot {
        let lsn = Lsn(version.replay_from().0.saturating_sub(1));
        let view = ReadView {
            memtables: Vec::new(),
            version: Arc::clone(version),
            levels_lsn: lsn,
            expired_lsn: Lsn(0),
            bulk_loads: 0,
        };
        let time = ScanTime {
            now: version.time(),
            ..ScanTime::default()
        };
        LsmSnapshot::new(Arc::new(view), lsn, Arc::clone(&self.reading), time)
    }

    /// The windows of each log, by [`LogId::index`].
    #[must_use]
    pub fn windows(&self) -> [Arc<LogWindows>; LOGS.len()] {
        self.windows.of_logs()
    }

    /// The segment of `log` with this place in its chain, if it belongs to the version.
    fn segment_in_chain(&self, log: LogId, ordinal: u64) -> Option<LogSegment> {
        let view = self.shown.view();
        let chain = view.version.log(log);
        let at = chain.partition_point(|segment| segment.ordinal < ordinal);
        let entry = chain.get(at)?;
        (entry.segment.ordinal == ordinal).then_some(entry.segment)
    }

    fn check_log(
        &self,
        segment: &LogSegment,
        stored: &StoredSegment,
        sent: SentBytes<'_>,
    ) -> Result<(), LevelError> {
        let of = LogLayout {
            region: self.region(),
            geometry: self.settings.layout.log_geometry(),
        };
        let durable = self.lock().logs.log(segment.log).flushed_here(segment);
        let mut read = |_: &LogSegment, at, out: &mut [u8]| stored.read_copied(at, out);
        match check_sent(of, segment, durable, &mut read, sent)? {
            None => Ok(()),
            Some(LogFault {
                number,
                offset,
                what,
            }) => Err(LevelError::Corrupt {
                segment: number,
                offset,
                what,
            }),
        }
    }

    /// What the levels hold, in one number: see [`Version::levels_digest`].
    #[must_use]
    pub fn levels_digest(&self) -> u64 {
        self.shown.view().version.levels_digest()
    }

    /// What the history was cut off from when this engine was opened, if it was.
    #[must_use]
    pub const fn cut(&self) -> Option<&Cut> {
        self.history.cut()
    }

    /// What the store takes of memory: the region's windows, the cache, which regions may share, and
    /// memtables and buffers of all stores of the process.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            windows: self.settings.layout.windows_bytes() as u64,
            versions: self.shown.view().version.memory_bytes() as u64,
            ..process_memory(&self.reading.cache)
        }
    }

    /// Has this engine's cache give way to what is resident beyond `budget` bytes.
    #[must_use]
    pub fn excess(&self, budget: usize) -> Excess {
        Excess::new(Arc::<NodeCache>::clone(&self.reading.cache), budget)
    }

    /// What of the region was found damaged here, by reads, merges and a scrub.
    #[must_use]
    pub fn damages(&self) -> &Arc<Damages> {
        &self.reading.damages
    }
}

/// What all stores of the process take of memory, with `cache`; windows are not counted.
pub(crate) fn process_memory(cache: &NodeCache) -> Memory {
    let cache = cache.stats();
    Memory {
        memtables: allocated::bytes() as u64,
        windows: 0,
        cache: cache.bytes,
        pinned: cache.pinned_bytes,
        versions: version::held_bytes() as u64,
        buffers: (buffer::allocated_bytes().saturating_sub(flushed::kept_bytes())
            + bulk_load::held_bytes()) as u64,
    }
}
