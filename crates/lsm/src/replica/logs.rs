//! The logs of a copy: its windows, and how far it has the segments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use argosy_base::{FlushRange, LogId, LogPosition, Lsn, PerLog, RegionId, SegmentNumber};
use argosy_device::Ticket;
use argosy_log::Geometry;
use argosy_memory::SharedMemory;

use super::edits::one_segment;
use super::fill::Fill;
use super::flush::Flight;
use super::needs::LogNeed;
use super::{ReplicaSurvivors, Slots, block_down, block_up};
use crate::edit::LogPoint;
use crate::memtable::needed::Needed;
use crate::names::logs::LOGS;
use crate::version::Version;

/// See the module documentation.
pub(super) struct Logs {
    pub(super) region: RegionId,
    pub(super) geometry: Geometry,
    pub(super) windows: Slots,
    /// Found by the last scan of the logs.
    pub(super) lsn: Lsn,
    /// By [`LogId::index`](argosy_base::LogId::index): the segment in which the log ended at the last scan, or goes on.
    pub(super) ends: [Option<SegmentNumber>; LOGS.len()],
    /// Log segments that are not known to be complete, those of a checkpoint to come included.
    pub(super) fills: BTreeMap<SegmentNumber, Fill>,
    /// Flushes of segments that are not known yet.
    pub(super) waiting: VecDeque<FlushRange>,
    /// Flushes whose bytes are on their way.
    pub(super) flights: Vec<Flight>,
    /// The sync that the flushes it covers wait for.
    pub(super) sync: Option<Ticket>,
    /// A flush is told only once its records are in memtables.
    pub(super) feeds: bool,
    /// The last scan found windows without memory: they lack what lies in front of the end of the log in its window.
    /// The device has all of that.
    pub(super) bare: bool,
    /// What the last scan found that memtables would have to hold.
    pub(super) needed: Needed,
}

impl Logs {
    /// Of a region that was not scanned yet.
    pub(super) fn new(region: RegionId, geometry: Geometry, windows: Slots) -> Self {
        let logs = Self {
            region,
            geometry,
            windows,
            lsn: Lsn(0),
            ends: [None; LOGS.len()],
            fills: BTreeMap::new(),
            waiting: VecDeque::new(),
            flights: Vec::new(),
            sync: None,
            feeds: false,
            bare: false,
            needed: Needed::default(),
        };
        logs.check_windows(&logs.windows);
        logs
    }

    /// # Panics
    /// When the windows are not those that the settings ask for.
    pub(super) fn check_windows(&self, windows: &Slots) {
        for slots in windows {
            assert_eq!(slots.len(), self.geometry.slots(), "a memory for each slot");
            let fits = |memory: &Arc<SharedMemory>| memory.len() >= self.geometry.slot_bytes();
            assert!(slots.iter().all(fits), "a window fits each slot");
        }
    }

    /// Whether the windows have memory. All have, or none.
    pub(super) fn have_memory(&self) -> bool {
        self.windows
            .iter()
            .flatten()
            .all(|memory| memory.is_allocated())
    }

    /// Whether everything that the windows are known to hold is durable here.
    pub(super) fn are_settled(&self) -> bool {
        let is_durable = |fill: &Fill| block_up(fill.end) <= fill.durable;
        let is_flushing = !self.waiting.is_empty() || !self.flights.is_empty();
        !is_flushing && self.fills.values().all(is_durable)
    }

    /// The windows as they are, to be scanned.
    pub(super) fn survivors(&self) -> ReplicaSurvivors {
        let slots = |slots: &Vec<Arc<SharedMemory>>| slots.iter().cloned().map(Some).collect();
        [slots(&self.windows[0]), slots(&self.windows[1])]
    }

    /// Where each log ended at the last scan.
    pub(super) fn positions(&self, version: &Version) -> PerLog<LogPosition> {
        let position = |log: LogId| {
            let number = self.ends[log.index()]?;
            let segment = version.log_segment(number)?.segment;
            let fill = self.fills.get(&number);
            let complete = segment.end.unwrap_or(self.geometry.segment_bytes());
            let at = LogPosition {
                ordinal: segment.ordinal,
                segment: number,
                end: fill.map_or(complete, |fill| fill.end.max(fill.durable)),
                flushed: fill.map_or(block_up(complete), |fill| fill.durable),
            };
            Some((log, at))
        };
        LOGS.into_iter().filter_map(position).collect()
    }

    /// The log points of `version` for a checkpoint, none behind the bytes that this member holds. An edit may declare
    /// padding durable that lies behind the last record.
    pub(super) fn declared(&self, version: &Version) -> impl Iterator<Item = LogPoint> {
        let points = version.log_points().filter_map(|point| {
            let held = self.fills.get(&point.number)?.held();
            let to = point.to.min(held);
            Some(LogPoint { to, ..point }.for_checkpoint())
        });
        points.filter(|point| point.to > 0)
    }

    /// From where on bytes are missing, if any are.
    pub(super) fn missing(&self, need: &LogNeed, head: &Version) -> Option<u32> {
        let LogNeed { segment, to, ends } = need;
        let held = head.log_segment(segment.number);
        let held = held.filter(|entry| one_segment(&entry.segment, segment));
        let sealed = held.and_then(|entry| entry.segment.end);
        // A sealed segment is here up to its end. That nothing lies behind that is for the version
        // to say.
        if *to == 0 || sealed.is_some_and(|end| *to <= end) {
            return None;
        }
        // Whole blocks go to the device, once: what follows in the last one has to be here, too. In
        // the windows it may still be on its way.
        let whole = if *ends { *to } else { block_up(*to) };
        let fill = self.fills.get(&segment.number);
        let fill = fill.filter(|fill| one_segment(&fill.segment, segment));
        match fill {
            // This copy has cut it, and others have more: the promotion came to nothing.
            None => Some(sealed.map_or(0, block_down)),
            Some(fill) if fill.holds(*to) => None,
            Some(fill) if fill.end >= whole && self.in_windows(fill, *to) => None,
            Some(fill) => Some(fill.written),
        }
    }
}
