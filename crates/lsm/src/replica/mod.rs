//! The passive member of a region: what a backup is, and how a primary's storage is opened before
//! it serves.
//!
//! A replica keeps what the primary sends and makes no decision of its own:
//!
//! 1. [`Replica::open`] replays the manifest, finds where the logs end from the device and from
//!    windows that survived a kill, and puts the end of each log into fresh windows.
//! 2. [`Replica::position`] says where it stands. To catch up, it is given a checkpoint:
//!    [`Replica::missing`] names the parts of segments that it does not hold,
//!    [`Replica::put_part`] takes them, and [`Replica::submit_edit`] applies the checkpoint.
//! 3. It then follows: segments arrive ahead of their edit ([`Replica::check`], [`Replica::rewrite`],
//!    [`Replica::put`]), edits are
//!    applied in order ([`Replica::submit_edit`]), ranges of the windows, which the primary writes
//!    one-sided, are made durable ([`Replica::flush`]). [`Replica::step`] tells what has been done.
//! 4. Windows are taken back by [`Replica::detach`]: the memory was revoked by whoever calls, and
//!    its valid bytes go on in fresh memory.
//! 5. One that builds its own levels ([`Replica::build_levels`]) takes the logs alone, and
//!    [`Replica::build`] does the rest.
//! 6. [`Replica::into_parts`] hands the storage on to an engine that serves.
//!
//! It is also a source for others: [`Replica::checkpoint`], [`Replica::read`].
//!
//! Invariants: an edit is applied only when every level segment that it names is held and every
//! log byte that it points to has been written here, and becomes current only when all of that is
//! durable (I3); for log bytes that means the seals and log points of the edit. What is written to
//! the device of a log is a prefix of each segment (I1); blocks there are not written twice unless
//! an unclean stop left it open whether they had been written.

mod build;
mod edits;
mod feeding;
mod fill;
mod flush;
mod localized;
mod places;
mod tables;
mod tail;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{
    DeviceSegment, EditSeq, Epoch, FlushRange, KeyRange, LogKind, LogPosition, Lsn, Position,
    RegionId, Remedy, SegmentNumber, Standing,
};
use argosy_device::{DeviceError, SharedMemory, Store, Ticket};
use argosy_log::behind::Behind;
use argosy_log::{Geometry, RecoverError};

use crate::cache::NodeCache;
use crate::edit::{Edit, LogPoint, LogSegment};
use crate::names::LevelError;
use crate::segments::StoredSegment;
use crate::set_aside::SetAside;
use crate::settings::Settings;
use crate::storage::{Storage, StorageError};
use crate::version::Version;

use fill::Fill;
pub use places::{Rewritten, Shipment};

/// Window memory of each log, by [`LogKind::index`], one for each slot.
pub type Slots = [Vec<Arc<SharedMemory>>; LogKind::ALL.len()];

/// What an earlier process left of window memory, likewise; `None` where a slot did not survive.
pub type Survivors = [Vec<Option<Arc<SharedMemory>>>; LogKind::ALL.len()];

/// Most flushes that wait for the edit that adds their segment.
pub const FLUSHES_MAX: usize = 64;

/// Why a replica did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicaError {
    /// The storage beneath; see the error's own remedy.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Durable log records are damaged. Give this copy up, or fetch the segment.
    #[error("{log}, {segment}, byte {offset}: {what}")]
    CorruptLog {
        /// The log.
        log: LogKind,
        /// The segment.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// What a killed process left in its windows is damaged in front of records that are whole: what is
    /// missing was acknowledged. Nothing was changed. Give up what lies behind
    /// ([`Settings::accept_loss`](crate::Settings::accept_loss)), or salvage.
    #[error(
        "{region}: a log window is damaged: {} is missing, and {} records from there on are whole, the first \
         at byte {} of {}",
        .behind.missing, .behind.records, .behind.offset, .behind.number
    )]
    DamagedWindow {
        /// The region.
        region: RegionId,
        /// What is missing, and what tells.
        behind: Behind,
    },
    /// A level segment is damaged here. Fetch it from another member.
    #[error(transparent)]
    CorruptLevel(#[from] LevelError),
    /// The bytes that came are not those that were announced. Ask for them again.
    #[error("{number}: what arrived is not what was sent ({what})")]
    Damaged {
        /// The segment.
        number: SegmentNumber,
        /// What does not match.
        what: &'static str,
    },
    /// The segment points into another one of which it is not known here where the sender has it, or
    /// that is not held here. Fetch it once an edit names it.
    #[error("{number} points into {to}, whose place is not known")]
    Unplaced {
        /// The segment.
        number: SegmentNumber,
        /// The other one; of a node of a tree that was shipped, what the pointer says.
        to: SegmentNumber,
    },
    /// The edit names a segment, or log bytes, that are not held here. Examine it again.
    #[error("{edit} names {number}, which is not held up to byte {to}")]
    Missing {
        /// The edit.
        edit: EditSeq,
        /// The segment.
        number: SegmentNumber,
        /// Byte behind the last that it needs.
        to: u32,
    },
    /// The segment is not held here, or not so far. Whoever asked needs a newer checkpoint.
    #[error("{number} is not here up to byte {to}")]
    Gone {
        /// The segment.
        number: SegmentNumber,
        /// Byte behind the last that was asked for.
        to: u32,
    },
    /// The request does not fit what this replica knows: whoever sent it is at fault.
    #[error("{number}: {what}")]
    Refused {
        /// The segment that it is about.
        number: SegmentNumber,
        /// What does not fit.
        what: &'static str,
    },
}

impl From<DeviceError> for ReplicaError {
    fn from(error: DeviceError) -> Self {
        Self::Storage(StorageError::Device(error))
    }
}

impl From<RecoverError<DeviceError>> for ReplicaError {
    fn from(error: RecoverError<DeviceError>) -> Self {
        match error {
            RecoverError::Read { source, .. } => source.into(),
            RecoverError::Corrupt {
                log,
                segment,
                offset,
                what,
                ..
            } => Self::CorruptLog {
                log,
                segment,
                offset,
                what,
            },
        }
    }
}

impl ReplicaError {
    /// What the caller does next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Storage(error) => error.remedy(),
            Self::CorruptLog { .. } | Self::CorruptLevel(_) | Self::DamagedWindow { .. } => {
                Remedy::Repair
            }
            Self::Damaged { .. } | Self::Missing { .. } | Self::Unplaced { .. } => Remedy::Retry,
            Self::Gone { .. } | Self::Refused { .. } => Remedy::Correct,
        }
    }
}

/// Something that has been done, told by [`Replica::step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEvent {
    /// All bytes of a level segment that was put have reached the device (not: are durable).
    SegmentStored(SegmentNumber),
    /// The edit is durable here and part of the version, and its append has its witness.
    EditApplied(EditSeq),
    /// The range is durable here.
    Flushed(FlushRange),
    /// The windows do not hold this range: whoever asked for the flush is at fault, or was
    /// overtaken by a detach. Start over with the member that sent it.
    FlushRefused(FlushRange),
}

/// What is left of a replica for the engine that takes over.
pub struct Parts {
    /// The storage, with nothing under way.
    pub storage: Storage,
    /// The windows; they hold the end of each log.
    pub windows: Slots,
    /// Where the replica stood.
    pub position: Position,
}

/// A region's passive member. See the module documentation.
pub struct Replica {
    storage: Storage,
    geometry: Geometry,
    windows: Slots,
    /// Found by the last scan of the logs.
    lsn: Lsn,
    /// By [`LogKind::index`]: the segment in which the log ended at the last scan, or goes on.
    ends: [Option<SegmentNumber>; LogKind::ALL.len()],
    /// Log segments that are not known to be complete, those of a checkpoint to come included.
    fills: BTreeMap<SegmentNumber, Fill>,
    /// Level segments that no edit has named yet.
    arrivals: BTreeMap<SegmentNumber, Arrival>,
    /// What the parts that [`Replica::missing`] named belong to.
    expected: BTreeMap<SegmentNumber, edits::Expected>,
    /// Where pointers hold places: the keys whose pointers count, of each level segment that the edit adds
    /// which was examined last.
    counted: BTreeMap<SegmentNumber, Vec<KeyRange>>,
    /// The level segments that the edit which was examined last adds.
    named: BTreeSet<SegmentNumber>,
    /// Where the primary has the segments of its large and medium log, where pointers hold places.
    log_map: places::LogMap,
    /// What was rewritten and not yet told.
    rewritten: Rewritten,
    /// Edits under way, in order.
    submitted: VecDeque<edits::Submitted>,
    /// Edits that are committed and not told yet, in order; `None` for this member's own.
    applied: VecDeque<Option<EditSeq>>,
    /// Flushes of segments that are not known yet.
    waiting: VecDeque<FlushRange>,
    /// Flushes whose bytes are on their way.
    flights: Vec<flush::Flight>,
    /// Events that the next step tells.
    events: Vec<ReplicaEvent>,
    /// The sync that the flushes it covers wait for.
    sync: Option<Ticket>,
    /// What makes levels here, where they are not the primary's.
    builder: Option<Box<build::Builder>>,
}

/// A level segment that arrived ahead of its edit.
struct Arrival {
    epoch: Epoch,
    len: u32,
    checksum: u32,
    stored: Arc<StoredSegment>,
    /// The end of its write has been told.
    told: bool,
    /// A checkpoint decides: if it does not name the segment, it goes.
    stale: bool,
    /// It was asked for by its number, so what it leads to is what the segment of that number leads to.
    fetched: bool,
    /// Where the primary has it, if the primary shipped it.
    theirs: Option<DeviceSegment>,
    /// This member's places of the segments that its pointers lead to.
    uses: Vec<(SegmentNumber, DeviceSegment)>,
}

impl Replica {
    /// Opens the region, or makes it where the catalog does not know it (only after
    /// [`Store::finish_recovery`]). `windows` is fresh, zero memory; `survivors` what an earlier
    /// process left. Blocks.
    ///
    /// # Errors
    /// The manifest's or logs', when what was durable is damaged; the device's.
    ///
    /// # Panics
    /// When the windows are not those that the settings ask for.
    pub fn open(
        store: &Arc<Store>,
        region: RegionId,
        windows: Slots,
        survivors: &Survivors,
        settings: &Settings,
    ) -> Result<Self, ReplicaError> {
        let storage = match store.region(region) {
            Some(entry) => Storage::open(store, &entry, settings)?,
            None => Storage::create(store, region, settings)?,
        };
        Self::of(storage, windows, survivors)
    }

    /// Begins the region anew, in place of a copy that cannot be used. Only after
    /// [`Store::finish_recovery`]. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn create(
        store: &Arc<Store>,
        region: RegionId,
        windows: Slots,
        settings: &Settings,
    ) -> Result<Self, ReplicaError> {
        let storage = Storage::create(store, region, settings)?;
        Self::of(storage, windows, &Survivors::default())
    }

    fn of(storage: Storage, windows: Slots, survivors: &Survivors) -> Result<Self, ReplicaError> {
        let geometry = storage.settings().log_geometry();
        let mut replica = Self {
            geometry,
            lsn: Lsn(0),
            ends: [None; LogKind::ALL.len()],
            fills: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            expected: BTreeMap::new(),
            counted: BTreeMap::new(),
            named: BTreeSet::new(),
            log_map: places::LogMap::new(),
            rewritten: Rewritten::default(),
            submitted: VecDeque::new(),
            applied: VecDeque::new(),
            waiting: VecDeque::new(),
            flights: Vec::new(),
            events: Vec::new(),
            sync: None,
            builder: None,
            windows,
            storage,
        };
        replica.check_windows(&replica.windows);
        replica.rescan(survivors)?;
        Ok(replica)
    }

    fn check_windows(&self, windows: &Slots) {
        for slots in windows {
            assert_eq!(slots.len(), self.geometry.slots(), "a memory for each slot");
            let fits = |memory: &Arc<SharedMemory>| memory.len() >= self.geometry.slot_bytes();
            assert!(slots.iter().all(fits), "a window fits each slot");
        }
    }

    /// Closes a damaged copy and returns what is kept of it; `None` if the catalog does not name the region.
    #[must_use]
    pub fn set_aside(self) -> Option<SetAside> {
        self.storage.set_aside()
    }

    /// The region.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        self.storage.region()
    }

    /// What the copy is certain to hold, as the catalog says; never [`Standing::Whole`].
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.storage.standing()
    }

    /// Says that the copy holds everything that was acknowledged. Later steps make that durable.
    pub fn become_ordinary(&mut self) {
        self.storage.become_ordinary();
    }

    /// The version after the last edit that was applied.
    #[must_use]
    pub const fn version(&self) -> &Arc<Version> {
        self.storage.current()
    }

    /// The windows, as the primary writes them.
    #[must_use]
    pub const fn windows(&self) -> &Slots {
        &self.windows
    }

    /// Where the replica stands. The ends of the logs are those that were found when it was
    /// opened, detached, or had applied a checkpoint: what the primary wrote to the windows since
    /// then is not looked at.
    #[must_use]
    pub fn position(&self) -> Position {
        let version = self.storage.current();
        let logs = LogKind::ALL.map(|log| {
            let number = self.ends[log.index()]?;
            let segment = version.log_segment(number)?.segment;
            let fill = self.fills.get(&number);
            let complete = segment.end.unwrap_or(self.geometry.segment_bytes());
            Some(LogPosition {
                ordinal: segment.ordinal,
                segment: number,
                end: fill.map_or(complete, |fill| fill.end.max(fill.durable)),
                flushed: fill.map_or(block_up(complete), |fill| fill.durable),
            })
        });
        Position {
            edit: version.group_edit(),
            lsn: self.lsn,
            logs,
        }
    }

    /// The log points of `version` for a checkpoint, none behind the bytes that this member holds. An edit may declare
    /// padding durable that lies behind the last record.
    fn declared(&self, version: &Version) -> impl Iterator<Item = LogPoint> {
        let points = version.log_points().filter_map(|point| {
            let held = self.fills.get(&point.number)?.held();
            let to = point.to.min(held);
            Some(LogPoint { to, ..point }.for_checkpoint())
        });
        points.filter(|point| point.to > 0)
    }

    /// The edit that states this replica's whole version and the ends of its logs, for another
    /// member to start from: with the parts that [`read`](Self::read) gives it, that member then
    /// holds the same history.
    #[must_use]
    pub fn checkpoint(&self) -> Edit {
        let current = self.storage.current();
        let mut edit = Edit {
            seq: current.group_edit(),
            follows: None,
            own_mark: None,
            ..current.checkpoint()
        };
        edit.log_points.extend(self.declared(current));
        for entry in current.open_logs() {
            let LogSegment { log, number, .. } = entry.segment;
            let to = self.fills.get(&number).map_or(0, Fill::held);
            if to > 0 {
                edit.log_points.push(LogPoint { log, number, to });
            }
        }
        edit
    }

    /// Goes on with edits and flushes as far as that is possible without waiting.
    ///
    /// # Errors
    /// The device's, final: open the replica anew. Those of the logs, after a checkpoint.
    pub fn step(&mut self) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        self.tell_arrivals()?;
        self.step_storage()?;
        self.start_waiting();
        self.feed()?;
        self.step_flushes()?;
        Ok(std::mem::take(&mut self.events))
    }

    pub(super) fn step_storage(&mut self) -> Result<(), ReplicaError> {
        for edit in self.storage.step()? {
            self.committed(edit.notice.seq)?;
        }
        // What the others rely on is lost here by no damage that nobody sees.
        while self.applied.len() > self.storage.unwitnessed() {
            let told = self.applied.pop_front().flatten();
            self.events.extend(told.map(ReplicaEvent::EditApplied));
        }
        Ok(())
    }

    /// Has `cache` give way to what the copy's versions take of memory.
    pub fn charge_to(&mut self, cache: &Arc<NodeCache>) {
        self.storage.charge_to(cache);
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.storage.is_idle()
            && self.flights.is_empty()
            && self.waiting.is_empty()
            && self.applied.is_empty()
            && self.events.is_empty()
    }

    /// Hands the storage to an engine that serves. Edits under way are committed first, segments
    /// that no edit names are given up. Blocks where something is under way.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn into_parts(mut self) -> Result<Parts, ReplicaError> {
        for edit in self.storage.settle()? {
            self.committed(edit.notice.seq)?;
        }
        let pending: Vec<_> = self.storage.pending().map(|s| s.number()).collect();
        for number in pending {
            self.storage.abandon(number);
        }
        self.storage.restart_numbers();
        Ok(Parts {
            position: self.position(),
            storage: self.storage,
            windows: self.windows,
        })
    }

    /// Tells of level segments whose bytes have reached the device.
    fn tell_arrivals(&mut self) -> Result<(), ReplicaError> {
        for (number, arrival) in self.arrivals.iter_mut().filter(|(_, a)| !a.told) {
            match arrival.stored.settled() {
                None => {}
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(())) => {
                    arrival.told = true;
                    self.events.push(ReplicaEvent::SegmentStored(*number));
                }
            }
        }
        Ok(())
    }
}

/// `offset`, rounded up to whole blocks.
const fn block_up(offset: u32) -> u32 {
    offset.next_multiple_of(BLOCK)
}

/// `offset`, rounded down to whole blocks.
const fn block_down(offset: u32) -> u32 {
    offset / BLOCK * BLOCK
}

/// Bytes of a block, as offsets in segments count them.
#[expect(clippy::cast_possible_truncation, reason = "4096 fits")]
const BLOCK: u32 = BLOCK_SIZE as u32;

#[cfg(test)]
mod tests;
