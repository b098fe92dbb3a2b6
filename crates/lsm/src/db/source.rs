//! What an engine shows of itself: snapshots and figures; and, to a driver whose region has other members, its
//! position, its version for a member to start from, and bytes of its segments.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::{
    DeviceSegment, Direction, EditSeq, KeyRange, LogKind, Lsn, Moment, SegmentNumber,
};
use argosy_device::{Buffer, buffer};
use argosy_engine::source::{LogPlace, Next, Piece};
use argosy_engine::{EngineError, Snapshot, Source, Store};
use argosy_log::LogWindows;
use argosy_log::verify::{LogFault, check_sent};

use super::{Cut, Lsm, bulk, count, stats};
use crate::addresses::Addressing;
use crate::cache::flushed;
use crate::damage::Damages;
use crate::edit::{Edit, LogPoint, LogSegment};
use crate::excess::Excess;
use crate::memory::Memory;
use crate::memtable::allocated;
use crate::names::LevelError;
use crate::read::snapshot::{Kept, LsmSnapshot, kept_by};
use crate::read::{ReadView, ScanTime};
use crate::segments::StoredSegment;
use crate::version::Version;
use crate::version::outgoing::{goes_out, send_out};
use crate::work::stats::Stats;

/// A version that a member is catching up to. Its segments stay while this is held (I1).
#[derive(Clone)]
pub struct Pinned(Arc<Version>);

impl Source for Lsm {
    fn piece(&self, log: LogKind, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next {
        if from >= end {
            return Next::End;
        }
        match self.segment_in_chain(log, from.ordinal) {
            Some(segment) => self.windows[log.index()].piece(&segment, from.offset, end, piece),
            // It was trimmed: everything in it is in the levels by now.
            None => Next::Skip(from.next_segment()),
        }
    }
}

impl Lsm {
    /// A view of everything that was appended, committed or not: what it shows may be told only once
    /// its LSN is committed.
    #[must_use]
    pub fn snapshot_of_all(&self) -> LsmSnapshot {
        // The LSN before the view: whatever it covers is in that. The time before the LSN: the record
        // that tells it is covered.
        let time = self.time.of_all();
        let lsn = self.visible();
        LsmSnapshot::new(self.view.load_full(), lsn, Arc::clone(&self.reading), time)
    }

    /// A view of everything up to the commit LSN.
    #[must_use]
    pub fn snapshot_of_committed(&self) -> LsmSnapshot {
        if self.observer.is_none() {
            // It is committed at once.
            self.go_on();
        }
        // The time before the LSN: the record that tells it is covered.
        let time = self.time.of_scan(self.committed_lsn());
        loop {
            let lsn = self.committed_lsn();
            let view = self.view.load_full();
            // A memtable leaves only once it is committed: then the commit LSN has risen, too.
            if view.levels_lsn <= lsn {
                let reading = Arc::clone(&self.reading);
                return LsmSnapshot::new(view, lsn, reading, time);
            }
        }
    }

    /// The region's time, as far as it is committed.
    #[must_use]
    pub fn committed_time(&self) -> Moment {
        self.time.as_of(self.committed_lsn())
    }

    /// What `snapshots` of this region keep that it has done with itself.
    #[must_use]
    pub fn kept_by(&self, snapshots: &[Arc<LsmSnapshot>]) -> Kept {
        kept_by(snapshots, &self.view.load())
    }

    /// A view of everything that is committed, of an engine that commits by itself, as of this moment of the
    /// clock. Where a read of it comes upon a pair that has expired since the region's time was told last, it
    /// has it told anew: not before, so that who only reads writes nothing.
    #[must_use]
    pub fn snapshot_now(self: &Arc<Self>) -> LsmSnapshot {
        let engine = Arc::clone(self);
        let time = ScanTime {
            tell: Some(Box::new(move |expiry| engine.reached(expiry))),
            ..self.time.of_all()
        };
        loop {
            let lsn = self.committed_lsn();
            let view = self.view.load_full();
            // As above.
            if view.levels_lsn <= lsn {
                return LsmSnapshot::new(view, lsn, Arc::clone(&self.reading), time);
            }
        }
    }

    /// The version that readers see now.
    #[must_use]
    pub fn version(&self) -> Arc<Version> {
        Arc::clone(&self.view.load().version)
    }

    /// The version that is current, once everything up to `lsn` is in its levels. `None`: it is not; what has
    /// to be flushed for it is on its way.
    pub fn version_with(&self, lsn: Lsn) -> Option<Arc<Version>> {
        let writer = self.lock();
        // What is shown changes under the lock only.
        let view = self.view.load_full();
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
            ingests: 0,
        };
        let time = ScanTime {
            now: version.time(),
            ..ScanTime::default()
        };
        LsmSnapshot::new(Arc::new(view), lsn, Arc::clone(&self.reading), time)
    }

    /// Whether no key of `range` is bound, by what is visible.
    ///
    /// # Errors
    /// As those of a scan.
    pub fn is_unbound(&self, range: &KeyRange) -> Result<bool, EngineError> {
        let snapshot = self.snapshot_of_all();
        let mut scan = snapshot.scan(range, Direction::Up)?;
        Ok(scan.next()?.is_none())
    }

    /// The last edit that is durable here.
    #[must_use]
    pub fn edit(&self) -> EditSeq {
        self.view.load().version.seq()
    }

    /// The highest LSN up to which everything is durable on every member.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        let writer = self.lock();
        writer.logs.durable(writer.last())
    }

    /// The highest LSN up to which everything is durable on every member, and is known to have been: where a record
    /// up to here is damaged, whoever reads the logs after a loss of power finds that it was durable. Behind it a
    /// damaged record may look like one that was never written. Not above [`durable_lsn`](Self::durable_lsn).
    #[must_use]
    pub fn marked_lsn(&self) -> Lsn {
        if self.settings.mutants.forget_mark() {
            return self.durable_lsn();
        }
        self.lock().marked(self.edits.usable())
    }

    /// Whether every member is known to have applied `edit`, and all before.
    #[must_use]
    pub fn is_everywhere(&self, edit: EditSeq) -> bool {
        edit <= self.edits.everywhere()
    }

    /// The windows of each log, by [`LogKind::index`].
    #[must_use]
    pub fn windows(&self) -> [Arc<LogWindows>; LogKind::ALL.len()] {
        self.windows.clone()
    }

    /// The segment of `log` with this place in its chain, if it belongs to the version.
    fn segment_in_chain(&self, log: LogKind, ordinal: u64) -> Option<LogSegment> {
        let view = self.view.load();
        let chain = view.version.log(log);
        let at = chain.partition_point(|segment| segment.ordinal < ordinal);
        let entry = chain.get(at)?;
        (entry.segment.ordinal == ordinal).then_some(entry.segment)
    }

    /// Where the segments of the large and the medium log lie on this member's device, where pointers hold places:
    /// the log map that backups need to rewrite what they are sent. Otherwise empty.
    #[must_use]
    pub fn log_places(&self) -> Vec<(SegmentNumber, DeviceSegment)> {
        let view = self.view.load();
        let large = view.version.log(LogKind::Large).iter();
        let medium = view.version.medium_log().values();
        let large = large.map(|entry| &entry.stored);
        let logs = large.chain(medium.map(|entry| &entry.stored));
        self.settings.addresses.log_map(logs)
    }

    /// Whether a [`checkpoint`](Self::checkpoint) covers all of the logs that every other member
    /// has durable. If not, it will soon: a flush is under way here.
    #[must_use]
    pub fn covers_flushed(&self) -> bool {
        let writer = self.lock();
        LogKind::ALL
            .iter()
            .all(|log| writer.logs.log(*log).keeps_up())
    }

    /// The edit that states the present version and what is durable of its logs, encoded, for a
    /// member to start from; and a pin that keeps what it names.
    #[must_use]
    pub fn checkpoint(&self) -> (EditSeq, Vec<u8>, Pinned) {
        let (version, points) = {
            let writer = self.lock();
            let version = Arc::clone(&self.view.load().version);
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
        let mut edit = Edit {
            // Numbers of its own are of no meaning to others.
            own_mark: None,
            ..version.checkpoint_for_others()
        };
        edit.log_points.extend(points);
        (edit.seq, edit.encode(), Pinned(version))
    }

    /// Bytes `from..to`, whole blocks, of segment `number`, in the form in which they go to other
    /// members (`send_out`); from the present version or from one of `pinned`, which goes first where
    /// pointers hold places: it has what its pointers lead to. `None` where none of them has it. A
    /// segment of a log goes out only if all its records are whole that are durable here: who fetches it could
    /// not tell before it reads them.
    #[must_use]
    pub fn read_segment<'p>(
        &self,
        number: SegmentNumber,
        (from, to): (u32, u32),
        mut pinned: impl Iterator<Item = &'p Pinned>,
    ) -> Option<Result<Buffer, LevelError>> {
        let view = self.view.load();
        let own = Some(&view.version).filter(|version| version.stored(number).is_some());
        let holds = |pinned: &&Pinned| pinned.0.stored(number).is_some();
        let pinned = || pinned.find(holds).map(|pinned| &pinned.0);
        let version = view.version.addresses().sender(own, pinned)?;
        if !goes_out(version, number, &(from..to)) {
            return None;
        }
        let stored = version.stored(number)?;
        let mut bytes = Buffer::zeroed(to.checked_sub(from)? as usize);
        let read = stored.read(from, &mut bytes).map_err(LevelError::from);
        let read = read.and_then(|()| match version.log_segment(number) {
            None => send_out(version, number, &mut bytes),
            Some(entry) => self.check_log(&entry.segment, stored, (from, &bytes)),
        });
        let read = read.inspect_err(|error| {
            self.damages().note(version, &error.clone().into());
        });
        Some(read.map(|()| bytes))
    }

    fn check_log(
        &self,
        segment: &LogSegment,
        stored: &StoredSegment,
        sent: (u32, &[u8]),
    ) -> Result<(), LevelError> {
        let of = (self.region(), self.settings.log_geometry());
        let durable = self.lock().logs.log(segment.log).flushed_here(segment);
        let mut read = |_: &LogSegment, at, out: &mut [u8]| stored.read_copied(at, out);
        match check_sent(of, (segment, durable), &mut read, sent)? {
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

    /// Background work that is left: memtables to flush, compactions, edits under way, writes that
    /// are not committed. 0 once the region has come to rest, as of the last step.
    #[must_use]
    pub fn background_pending(&self) -> usize {
        let uncommitted = usize::from(self.last_lsn() > self.committed_lsn());
        let frozen = self.view.load().memtables.len() - 1;
        frozen + uncommitted + self.pending.load(Ordering::Relaxed)
    }

    /// What the history was cut off from when this engine was opened, if it was.
    #[must_use]
    pub const fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// What the engine has done and holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats::gather(self)
    }

    /// An estimate of the number of keys: entries of all levels and memtables, tombstones taken off twice. A key
    /// that stands in several places is counted several times; one that a range removed is counted until a merge
    /// where its segment has others too. Parts of long values are none.
    #[must_use]
    pub fn count_estimate(&self) -> u64 {
        count::estimate(&self.view.load(), &self.reading)
    }

    /// What the store takes of memory: the region's windows, the cache, which regions may share, and
    /// memtables and buffers of all stores of the process.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let cache = self.reading.cache.stats();
        Memory {
            memtables: allocated::bytes() as u64,
            windows: self.settings.windows_bytes() as u64,
            cache: cache.bytes,
            pinned: cache.pinned_bytes,
            versions: self.view.load().version.memory_bytes() as u64,
            buffers: (buffer::allocated_bytes().saturating_sub(flushed::kept_bytes())
                + bulk::held_bytes()) as u64,
        }
    }

    /// Has this engine's cache give way to what is resident beyond `budget` bytes.
    #[must_use]
    pub fn excess(&self, budget: usize) -> Excess {
        Excess::new(&self.reading.cache, budget)
    }

    /// What of the region was found damaged here, by reads, merges and a scrub.
    #[must_use]
    pub fn damages(&self) -> &Arc<Damages> {
        &self.reading.damages
    }
}
