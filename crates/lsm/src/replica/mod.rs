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
//! 3. It then follows: segments arrive ahead of their edit ([`Replica::rewrite`], [`Replica::put`]), edits are
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
mod error;
mod feeding;
mod fill;
mod flush;
mod held;
mod localized;
mod logs;
mod needs;
mod places;
mod tables;
mod tail;

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{
    DeviceSegment, EditSeq, FlushRange, Position, RegionId, SegmentNumber, Standing,
};
use argosy_device::{Buffer, Store};
use argosy_engine::set_aside::SetAside;
use argosy_engine::{Checkpoint, CopyError, CopyEvent, Stored};
use argosy_memory::SharedMemory;

use crate::cache::NodeCache;
use crate::edit::{Edit, LogPoint, LogSegment};
use crate::memtable::needed::Needed;
use crate::names::logs::LOGS;
use crate::settings::Settings;
use crate::storage::{Storage, StorageError};
use crate::stored::StoredVersion;
use crate::version::Version;
use crate::version::outgoing::{goes_out, send_out};
use fill::Fill;
use logs::Logs;
use places::Incoming;

pub use error::ReplicaError;
pub use places::{Rewritten, Shipment};
pub(crate) use tail::holds_a_window;

/// Window memory of each log, by [`LogId::index`](argosy_base::LogId::index), one for each slot.
pub type Slots = [Vec<Arc<SharedMemory>>; LOGS.len()];

/// What an earlier process left of window memory, likewise; `None` where a slot did not survive.
pub type ReplicaSurvivors = [Vec<Option<Arc<SharedMemory>>>; LOGS.len()];

/// Most flushes that wait for the edit that adds their segment.
pub const FLUSHES_MAX: usize = 64;

/// What is left of a replica for the engine that takes over.
pub struct ReplicaParts {
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
    logs: Logs,
    incoming: Incoming,
    /// Edits under way, in order.
    submitted: VecDeque<edits::Submitted>,
    /// Edits that are committed and not told yet, in order; `None` for this member's own.
    applied: VecDeque<Option<EditSeq>>,
    /// Events that the next step tells.
    events: Vec<CopyEvent>,
    /// What makes levels here, where they are not the primary's.
    builder: Option<Box<build::Builder>>,
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
        survivors: &ReplicaSurvivors,
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
        Self::of(storage, windows, &ReplicaSurvivors::default())
    }

    /// Begins to [create](Self::create) a copy. It is there once it [is idle](Self::is_idle), after some
    /// [steps](Self::step).
    pub(crate) fn begin(
        store: &Arc<Store>,
        region: RegionId,
        windows: Slots,
        settings: &Settings,
    ) -> Result<Self, ReplicaError> {
        let storage = Storage::begin(store, region, settings)?;
        Self::of(storage, windows, &ReplicaSurvivors::default())
    }

    /// Blocks until the device has done what the next step waits for.
    ///
    /// # Errors
    /// The device's, also that it is full.
    pub(crate) fn wait_for_device(&self) -> Result<(), ReplicaError> {
        self.storage.check_room()?;
        Ok(self.storage.wait_for_data()?)
    }

    fn of(
        storage: Storage,
        windows: Slots,
        survivors: &ReplicaSurvivors,
    ) -> Result<Self, ReplicaError> {
        let geometry = storage.settings().layout.log_geometry();
        let mut replica = Self {
            logs: Logs::new(storage.region(), geometry, windows),
            incoming: Incoming::default(),
            submitted: VecDeque::new(),
            applied: VecDeque::new(),
            events: Vec::new(),
            builder: None,
            storage,
        };
        replica.rescan(survivors)?;
        Ok(replica)
    }

    /// The copy that an engine leaves that has ended: with its storage, of which nothing is under way, and what its
    /// windows hold. `windows` is fresh, zero memory. No level is read. Blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn of_ended(
        mut storage: Storage,
        windows: Slots,
        left: &ReplicaSurvivors,
    ) -> Result<Self, ReplicaError> {
        storage.restart_numbers();
        let mut replica = Self::of(storage, windows, left)?;
        if let Some(first) = replica.storage.own_range() {
            // The copy did so before it became an engine.
            replica.build_levels_from(first)?;
        }
        Ok(replica)
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

    /// Says that the copy, of no member, is being filled, durable on return; nothing where it is begun anew or put
    /// back. Blocks.
    ///
    /// # Errors
    /// The device's; where it is full, call it again.
    pub fn begin_filling(&mut self) -> Result<(), ReplicaError> {
        let mut committed = Vec::new();
        let begun = self.storage.begin_filling(&mut committed);
        for edit in committed {
            self.committed(edit.notice.seq)?;
        }
        Ok(begun?)
    }

    /// The settings with which it was opened.
    #[must_use]
    pub(crate) const fn settings(&self) -> &Settings {
        self.storage.settings()
    }

    pub(crate) const fn store(&self) -> &Arc<Store> {
        self.storage.store()
    }

    /// What the copy consists of now.
    #[must_use]
    pub fn stored(&self) -> Arc<dyn Stored> {
        let (version, damages) = (Arc::clone(self.version()), Arc::clone(self.damages()));
        Arc::new(StoredVersion::new(version, damages, self.settings()))
    }

    /// The version after the last edit that was applied.
    #[must_use]
    pub const fn version(&self) -> &Arc<Version> {
        self.storage.current()
    }

    /// What the last scan of the logs found that an engine rebuilds in memtables.
    pub(crate) const fn needed(&self) -> &Needed {
        &self.logs.needed
    }

    /// The windows, as the primary writes them.
    #[must_use]
    pub const fn windows(&self) -> &Slots {
        &self.logs.windows
    }

    /// Where the replica stands. The ends of the logs are those that were found when it was
    /// opened, detached, or had applied a checkpoint: what the primary wrote to the windows since
    /// then is not looked at.
    #[must_use]
    pub fn position(&self) -> Position {
        let version = self.storage.current();
        Position {
            edit: version.group_edit(),
            lsn: self.logs.lsn,
            logs: self.logs.positions(version),
        }
    }

    /// The edit that states this replica's whole version and the ends of its logs, for another
    /// member to start from: with the parts that [`read`](Self::read) gives it, that member then
    /// holds the same history.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        let edit = self.whole_edit();
        Checkpoint {
            seq: edit.seq,
            bytes: edit.encode(),
        }
    }

    /// The checkpoint with which this replica comes to hold what another member has, encoded. `theirs` is that
    /// member's checkpoint, encoded. It is the result, unless this replica's version is later. Then the result is this
    /// replica's own checkpoint, with the ends of the logs that `theirs` states.
    ///
    /// # Errors
    /// [`StorageError::Malformed`] when the bytes are no edit.
    pub fn adopt(&self, theirs: Vec<u8>) -> Result<Vec<u8>, ReplicaError> {
        let edit = Edit::decode(&theirs).map_err(StorageError::from)?;
        let mut own = self.whole_edit();
        if edit.seq >= own.seq {
            return Ok(theirs);
        }
        let open = own.logs.added.iter().filter(|log| log.end.is_none());
        let open: Vec<SegmentNumber> = open.map(|log| log.number).collect();
        let further = edit.logs.points.into_iter();
        own.logs
            .points
            .extend(further.filter(|point| open.contains(&point.number)));
        Ok(own.encode())
    }

    /// [`checkpoint`](Self::checkpoint), decoded.
    fn whole_edit(&self) -> Edit {
        let current = self.storage.current();
        let mut edit = Edit {
            seq: current.group_edit(),
            ..current.checkpoint()
        };
        edit.numbers.follows = None;
        edit.numbers.own_mark = None;
        edit.logs.points.extend(self.logs.declared(current));
        for entry in current.open_logs() {
            let LogSegment { log, number, .. } = entry.segment;
            let to = self.logs.fills.get(&number).map_or(0, Fill::held);
            if to > 0 {
                edit.logs.points.push(LogPoint { log, number, to });
            }
        }
        edit
    }

    /// Makes `range` of the windows durable, as it is. [`step`](Self::step) tells when it is. The
    /// primary's writes of the range have completed.
    pub fn flush(&mut self, range: FlushRange) {
        self.logs.flush(range, &self.storage, &mut self.events);
    }

    /// Gives the memory of the windows back, where everything in them is durable here; nobody writes to them before
    /// [`wake`](Self::wake). Returns whether it did.
    pub fn rest(&mut self) -> bool {
        let settled = self.logs.are_settled();
        for memory in self.logs.windows.iter().flatten().filter(|_| settled) {
            // What the system does not take back stays.
            let _ = memory.release();
        }
        settled
    }

    /// Whether the windows have no memory.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        !self.logs.have_memory()
    }

    /// Whether [`wake`](Self::wake) reads the device.
    #[must_use]
    pub const fn is_bare(&self) -> bool {
        self.logs.bare
    }

    /// Takes memory for the windows again. They are empty, or hold what lies in front of the end of the log in its
    /// window, where the last scan found them without memory. Blocks.
    ///
    /// # Errors
    /// Where there is none: call it again. The device's.
    pub fn wake(&mut self) -> Result<(), ReplicaError> {
        self.logs
            .windows
            .iter()
            .flatten()
            .try_for_each(|memory| memory.allocate())?;
        self.logs.fill_bare()
    }

    /// Starts the flushes that waited for an edit.
    fn start_waiting(&mut self) {
        self.logs.start_waiting(&self.storage, &mut self.events);
    }

    /// Goes over to `fresh` windows, zero memory, after whoever calls has revoked the old ones:
    /// finds where the logs end, and has the fresh windows hold that end. Level segments that
    /// arrived stay for the next checkpoint; flushes that waited are forgotten. An edit under way is
    /// committed, and told by the position alone. Blocks.
    ///
    /// # Errors
    /// The logs', when what was durable is damaged; the device's.
    pub fn detach(&mut self, fresh: Slots) -> Result<Position, ReplicaError> {
        self.logs.check_windows(&fresh);
        // The position tells what this member has, too: its last append gets its witness first.
        self.step_storage()?;
        while self.storage.unwitnessed() > 0 {
            self.storage.wait_for_device()?;
            self.step_storage()?;
        }
        // An event that came later would be taken for that of the next checkpoint.
        self.events
            .retain(|event| !matches!(event, CopyEvent::EditApplied(_)));
        let old = std::mem::replace(&mut self.logs.windows, fresh);
        let survivors = old.map(|slots| slots.into_iter().map(Some).collect());
        self.logs.waiting.clear();
        self.incoming.forget_places();
        self.expect_checkpoint();
        if self.builder.is_some() {
            // They were fetched for a checkpoint that replaces the levels; the next may keep them, or
            // not be needed.
            self.give_up_arrivals();
        }
        self.rescan(&survivors)?;
        Ok(self.position())
    }

    /// Finds the ends of the logs anew, after a checkpoint brought other segments and bytes. The
    /// primary does not write to the windows at this time.
    pub(super) fn refresh(&mut self) -> Result<(), ReplicaError> {
        self.rescan(&self.logs.survivors())
    }

    fn rescan(&mut self, survivors: &ReplicaSurvivors) -> Result<(), ReplicaError> {
        let builder = self.builder.as_deref_mut();
        self.logs.scan(&mut self.storage, builder, survivors)
    }

    /// Bytes `from..from + len`, whole blocks, of segment `number`, for another member. Behind the
    /// end of a log they are zero; pointers of a level segment hold numbers.
    ///
    /// # Errors
    /// [`CopyError::Gone`] when the segment is not held, or not so far; the device's;
    /// [`ReplicaError::CorruptLevel`]; [`ReplicaError::CorruptLog`] where a record is damaged that
    /// is durable here.
    pub fn read(&self, number: SegmentNumber, from: u32, len: u32) -> Result<Buffer, ReplicaError> {
        let to = from.saturating_add(len);
        let gone = ReplicaError::from(CopyError::Gone { number, to });
        let version = self.storage.current();
        let stored = version.stored(number).ok_or(gone.clone())?;
        if to as usize > SEGMENT_SIZE || from != block_down(from) || len != block_down(len) {
            return Err(gone);
        }
        let Some(entry) = version.log_segment(number) else {
            if !goes_out(version, number, &(from..to)) {
                return Err(gone);
            }
            let mut bytes = Buffer::zeroed(len as usize);
            stored.read(from, &mut bytes)?;
            send_out(version, number, &mut bytes)?;
            return Ok(bytes);
        };
        self.logs.read(&entry.segment, stored, from, to)
    }

    /// What takes space here beside the version, in words for a report.
    #[must_use]
    pub fn space_in_words(&self) -> String {
        let builder = self.builder.as_deref();
        let arrivals = self.incoming.arrivals.keys().copied();
        let (named, unnamed): (Vec<_>, Vec<_>) =
            arrivals.partition(|n| self.incoming.named.contains(n));
        format!(
            "at edit {}, {} segments; arrived and named {named:?}, not named {unnamed:?}; logs being \
             filled {:?}; pending {}; {}",
            self.storage.current().seq(),
            self.storage.current().table().len(),
            self.logs.fills.keys(),
            self.storage.pending().count(),
            builder.map_or_else(String::new, |builder| builder.jobs.space_in_words())
        )
    }

    /// The primary has these segments of its large and medium log in these places. They go into the log map.
    pub fn learn_places(&mut self, places: &[(SegmentNumber, DeviceSegment)]) {
        self.incoming.learn_places(places);
    }

    /// How many segments the log map knows.
    #[must_use]
    pub fn log_map_len(&self) -> usize {
        self.incoming.log_map.len()
    }

    /// The index map: level segments that arrived ahead of their edit, by the sender's place.
    pub fn index_map(&self) -> impl Iterator<Item = (DeviceSegment, SegmentNumber)> + '_ {
        self.incoming.index_map()
    }

    /// What was rewritten since this was last asked.
    pub fn take_rewritten(&mut self) -> Rewritten {
        std::mem::take(&mut self.incoming.rewritten)
    }

    /// Rewrites the pointers of `shipment`, which was [checked](Shipment::check), from the sender's
    /// places to this member's. Nothing is done where they hold numbers.
    ///
    /// # Errors
    /// [`CopyError::Unplaced`] when it points to what this member does not know yet: it can be
    /// fetched when an edit names it. [`CopyError::Damaged`] when it is no level segment.
    pub fn rewrite(&mut self, shipment: &mut Shipment) -> Result<(), ReplicaError> {
        self.incoming.rewrite(shipment, &self.storage)
    }

    /// Goes on with edits and flushes as far as that is possible without waiting.
    ///
    /// # Errors
    /// The device's, final: open the replica anew. Those of the logs, after a checkpoint.
    pub fn step(&mut self) -> Result<Vec<CopyEvent>, ReplicaError> {
        self.tell_arrivals()?;
        self.step_storage()?;
        self.start_waiting();
        if let Some(builder) = &mut self.builder {
            builder.feed_from(&self.storage, &mut self.logs)?;
        }
        self.logs.step_flushes(&self.storage, &mut self.events)?;
        Ok(std::mem::take(&mut self.events))
    }

    pub(super) fn step_storage(&mut self) -> Result<(), ReplicaError> {
        for edit in self.storage.step()? {
            self.committed(edit.notice.seq)?;
        }
        // What the others rely on is lost here by no damage that nobody sees.
        while self.applied.len() > self.storage.unwitnessed() {
            let told = self.applied.pop_front().flatten();
            self.events.extend(told.map(CopyEvent::EditApplied));
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
            && self.logs.flights.is_empty()
            && self.logs.waiting.is_empty()
            && self.applied.is_empty()
            && self.events.is_empty()
    }

    /// Hands the storage to an engine that serves. Edits under way are committed first, segments
    /// that no edit names are given up. Blocks where something is under way.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn into_parts(mut self) -> Result<ReplicaParts, ReplicaError> {
        for edit in self.storage.settle()? {
            self.committed(edit.notice.seq)?;
        }
        self.storage.abandon_all();
        self.storage.restart_numbers();
        Ok(ReplicaParts {
            position: self.position(),
            storage: self.storage,
            windows: self.logs.windows,
        })
    }

    /// Tells of level segments whose bytes have reached the device.
    fn tell_arrivals(&mut self) -> Result<(), ReplicaError> {
        for (number, arrival) in self.incoming.arrivals.iter_mut().filter(|(_, a)| !a.told) {
            match arrival.stored.settled() {
                None => {}
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(())) => {
                    arrival.told = true;
                    self.events.push(CopyEvent::SegmentStored(*number));
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
