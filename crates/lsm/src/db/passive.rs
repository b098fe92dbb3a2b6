//! A passive copy, as the owner of an engine has it: a [`Replica`] that can become an engine.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{
    AddressMode, DeviceSegment, EditSeq, FlushRange, Instant, Lsn, Position, RegionId,
    SegmentNumber, SegmentPart, ServerId, Standing,
};
use argosy_device::{Buffer, Store, Waker};
use argosy_engine::damage::DamagedSegment;
use argosy_engine::set_aside::SetAside;
use argosy_engine::shipment::{Rewritten, Shipment};
use argosy_engine::stats::Stats;
use argosy_engine::{
    Checkpoint, CopyError, CopyEvent, EngineError, Follower, LogSlots, NotPromoted, Promoted,
    Promoting, Promotion, Service, Snapshot, Stored, Windows,
};

use super::rebuilding::Turn;
use super::server_memory::ServerMemory;
use super::{Lsm, promote};
use crate::names::logs::LOGS;
use crate::replica::{Replica, ReplicaError, Slots};
use crate::set_aside;
use crate::version::Version;

/// A passive copy, and the memory of which it will have a part as a store.
pub(crate) struct Passive {
    replica: Replica,
    memory: Arc<ServerMemory>,
    /// Where it is to be promoted: its turn, or its place in the line.
    turn: Option<Turn>,
}

impl Passive {
    /// `replica`, as a server with this `memory` has it.
    pub(crate) const fn new(replica: Replica, memory: Arc<ServerMemory>) -> Self {
        Self {
            replica,
            memory,
            turn: None,
        }
    }
}

impl Follower for Passive {
    fn region(&self) -> RegionId {
        self.replica.region()
    }

    fn standing(&self) -> Standing {
        self.replica.standing()
    }

    fn become_ordinary(&mut self) {
        self.replica.become_ordinary();
    }

    fn begin_filling(&mut self) -> Result<(), CopyError> {
        Ok(self.replica.begin_filling()?)
    }

    fn edit(&self) -> EditSeq {
        self.replica.version().group_edit()
    }

    fn position(&self) -> Position {
        let mut position = self.replica.position();
        if self.replica.version().builds_levels() && !self.replica.builds_levels() {
            // Its levels are its own, from before the group ships the primary's.
            position.edit = EditSeq(0);
        }
        position
    }

    fn windows(&self) -> Windows {
        let slots = self.replica.windows();
        let of_log = |log| LogSlots {
            log,
            slots: slots[log.index()].clone(),
        };
        LOGS.map(of_log).to_vec()
    }

    fn detach(&mut self, fresh: Windows) -> Result<Position, CopyError> {
        self.turn = None;
        Ok(self.replica.detach(slots_of(fresh))?)
    }

    fn step(&mut self) -> Result<Vec<CopyEvent>, CopyError> {
        Ok(self.replica.step()?)
    }

    fn flush(&mut self, range: FlushRange) {
        self.replica.flush(range);
    }

    fn is_idle(&self) -> bool {
        self.replica.is_idle()
    }

    fn rest(&mut self) -> bool {
        self.replica.rest()
    }

    fn is_at_rest(&self) -> bool {
        self.replica.is_at_rest()
    }

    fn is_bare(&self) -> bool {
        self.replica.is_bare()
    }

    fn wake(&mut self) -> Result<(), CopyError> {
        Ok(self.replica.wake()?)
    }

    fn missing(&mut self, edit: &[u8]) -> Result<Vec<SegmentPart>, CopyError> {
        Ok(self.replica.missing(edit)?)
    }

    fn put_part(
        &mut self,
        number: SegmentNumber,
        from: u32,
        bytes: &Arc<Buffer>,
    ) -> Result<(), CopyError> {
        Ok(self.replica.put_part(number, from, bytes)?)
    }

    fn submit(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        Ok(self.replica.submit_edit(edit)?)
    }

    fn submit_adopted(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        Ok(self.replica.submit_adopted(edit)?)
    }

    fn checkpoint(&self) -> Checkpoint {
        self.replica.checkpoint()
    }

    fn adopt(&self, theirs: Vec<u8>) -> Result<Vec<u8>, CopyError> {
        Ok(self.replica.adopt(theirs)?)
    }

    fn read(&self, part: SegmentPart) -> Result<Buffer, CopyError> {
        let SegmentPart { number, from, to } = part;
        let len = to.checked_sub(from).ok_or(CopyError::Gone { number, to })?;
        Ok(self.replica.read(number, from, len)?)
    }

    fn stored(&self) -> Arc<dyn Stored> {
        self.replica.stored()
    }

    fn space_in_words(&self) -> String {
        self.replica.space_in_words()
    }

    fn take_memory(&mut self, now: Instant, waker: &Waker) -> Option<Duration> {
        let settings = &self.replica.settings().memtables;
        let table_bytes = self.memory.next_table_bytes(settings);
        let needed = self.replica.needed().bytes(table_bytes);
        if needed == 0 {
            return None;
        }
        let line = self.memory.line();
        let turn = self.turn.get_or_insert_with(|| line.join(waker));
        turn.take(needed, self.memory.room(settings), now)
    }

    fn promote(self: Box<Self>, service: Service) -> Result<Promoted, Box<NotPromoted>> {
        match self.begin_promotion(service)? {
            Promotion::Waits(promoting) => promoting.finish(),
            Promotion::Done(promoted) => Ok(promoted),
        }
    }

    fn begin_promotion(self: Box<Self>, service: Service) -> Result<Promotion, Box<NotPromoted>> {
        let beside = Beside::of(&self.replica, self.turn);
        match promote::begin(self.replica, &self.memory, service) {
            Ok(promoting) => Box::new(BesidePromoting { promoting, beside }).step(),
            Err(error) => Err(beside.not_promoted(error)),
        }
    }

    fn set_aside(self: Box<Self>) -> Option<SetAside> {
        self.replica.set_aside()
    }

    fn rewrite(&mut self, shipment: &mut Shipment) -> Result<(), CopyError> {
        Ok(self.replica.rewrite(shipment)?)
    }

    fn put(&mut self, shipment: Shipment) -> Result<(), CopyError> {
        Ok(self.replica.put(shipment)?)
    }

    fn learn_places(&mut self, places: &[(SegmentNumber, DeviceSegment)]) {
        self.replica.learn_places(places);
    }

    fn addresses(&self) -> AddressMode {
        self.replica.settings().layout.addresses
    }

    fn take_rewritten(&mut self) -> Rewritten {
        self.replica.take_rewritten()
    }

    fn holds_unnamed(&self) -> bool {
        self.replica.holds_unnamed()
    }

    fn forget_unnamed(&mut self) {
        self.replica.forget_unnamed();
    }

    fn expect_checkpoint(&mut self) {
        self.replica.expect_checkpoint();
    }

    fn give_up_arrivals(&mut self) {
        self.replica.give_up_arrivals();
    }

    fn build_levels(&mut self, server: ServerId) -> Result<(), CopyError> {
        match self.replica.builds_levels() {
            true => Ok(()),
            false => Ok(self.replica.build_levels(server)?),
        }
    }

    fn builds_levels(&self) -> bool {
        self.replica.builds_levels()
    }

    fn is_building(&self) -> bool {
        self.replica.is_building()
    }

    fn take_work(&mut self) -> bool {
        self.replica.take_work()
    }

    fn build(&mut self, now: Instant) -> Result<bool, EngineError> {
        self.replica.build(now)
    }

    fn commit(&mut self, lsn: Lsn) {
        self.replica.commit(lsn);
    }

    fn compact(&mut self, upto: Lsn) {
        self.replica.compact(upto);
    }

    fn take_compacted(&mut self) -> Option<Lsn> {
        self.replica.take_compacted()
    }

    fn damaged_only_here(&self) -> Option<DamagedSegment> {
        self.replica.damaged_level_only_here()
    }

    fn stats(&self) -> Option<Stats> {
        self.replica.stats()
    }

    fn snapshot(&self) -> Option<Box<dyn Snapshot>> {
        self.replica.snapshot(self.memory.cache())
    }
}

/// What goes with a replica that is promoted.
struct Beside {
    /// The version before, and where it lies, for what is kept of a damaged copy.
    version: Arc<Version>,
    store: Arc<Store>,
    turn: Option<Turn>,
}

impl Beside {
    fn of(replica: &Replica, turn: Option<Turn>) -> Self {
        Self {
            version: Arc::clone(replica.version()),
            store: Arc::clone(replica.store()),
            turn,
        }
    }

    fn promoted(self, lsm: Lsm) -> Promoted {
        if let Some(turn) = self.turn {
            lsm.shown.rebuilt(turn);
        }
        let lsm = Arc::new(lsm);
        Promoted {
            cut: lsm.cut().cloned(),
            source: Some(Arc::<Lsm>::clone(&lsm)),
            store: lsm,
        }
    }

    fn not_promoted(self, error: ReplicaError) -> Box<NotPromoted> {
        let error = CopyError::from(error);
        let left = match error.is_damage() {
            true => set_aside::of_version(&self.store, &self.version),
            false => None,
        };
        Box::new(NotPromoted { error, left })
    }
}

/// A copy whose promotion waits for the device.
struct BesidePromoting {
    promoting: promote::Promoting,
    beside: Beside,
}

impl Promoting for BesidePromoting {
    fn step(self: Box<Self>) -> Result<Promotion, Box<NotPromoted>> {
        let Self { promoting, beside } = *self;
        match promoting.step() {
            Ok(promote::Step::Waits(promoting)) => {
                let promoting = *promoting;
                Ok(Promotion::Waits(Box::new(Self { promoting, beside })))
            }
            Ok(promote::Step::Done(lsm)) => Ok(Promotion::Done(beside.promoted(*lsm))),
            Err(error) => Err(beside.not_promoted(error)),
        }
    }

    fn finish(self: Box<Self>) -> Result<Promoted, Box<NotPromoted>> {
        let Self { promoting, beside } = *self;
        match promoting.finish() {
            Ok(lsm) => Ok(beside.promoted(lsm)),
            Err(error) => Err(beside.not_promoted(error)),
        }
    }
}

/// The memory of `windows`, as a replica has it.
pub(crate) fn slots_of(windows: Windows) -> Slots {
    let mut slots = Slots::default();
    for of_log in windows {
        slots[of_log.log.index()] = of_log.slots;
    }
    slots
}
