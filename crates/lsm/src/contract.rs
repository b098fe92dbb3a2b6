//! The engine and its passive copies, as a server has them.

use std::sync::Arc;

use argosy_base::{
    AddressMode, DeviceSegment, EditSeq, FlushRange, Instant, Lsn, Position, RegionId,
    SegmentNumber, SegmentPart, Standing,
};
use argosy_device::{Buffer, RegionEntry, Store};
use argosy_engine::damage::DamagedSegment;
use argosy_engine::memory::Memory;
use argosy_engine::set_aside::SetAside;
use argosy_engine::shipment::{Rewritten, Shipment};
use argosy_engine::stats::Stats;
use argosy_engine::{
    Cache, Checkpoint, CopyError, CopyEvent, CopyOf, Engine, EngineError, Follower, LogSlots,
    LogSpec, NotPromoted, Promoted, Service, Snapshot, Stored, Windows,
};

use crate::cache::NodeCache;
use crate::db::{Lsm, process_memory};
use crate::names::logs::LOGS;
use crate::replica::{Replica, ReplicaSurvivors, Slots, holds_a_window};
use crate::set_aside;
use crate::settings::Settings;

impl argosy_engine::Settings for Settings {
    fn start(&self) -> Arc<dyn Engine> {
        Arc::new(Started {
            cache: Arc::new(NodeCache::with_lent(self.cache_bytes, self.cache_lent)),
            logs: self.layout.logs(),
            settings: self.clone(),
        })
    }
}

/// The engine of one server.
struct Started {
    settings: Settings,
    logs: [LogSpec; LOGS.len()],
    /// Of all regions of the server.
    cache: Arc<NodeCache>,
}

impl Started {
    fn follower(
        &self,
        mut replica: Replica,
        copy: &CopyOf<'_>,
    ) -> Result<Box<dyn Follower>, CopyError> {
        if let Some(server) = copy.own_levels {
            replica.build_levels(server)?;
        }
        replica.charge_to(&self.cache);
        Ok(Box::new(Passive {
            replica,
            cache: Arc::clone(&self.cache),
        }))
    }
}

impl Engine for Started {
    fn logs(&self) -> &[LogSpec] {
        &self.logs
    }

    fn addresses(&self) -> AddressMode {
        self.settings.layout.addresses
    }

    fn cache(&self) -> Arc<dyn Cache> {
        Arc::<NodeCache>::clone(&self.cache)
    }

    fn memory(&self) -> Memory {
        process_memory(&self.cache)
    }

    fn needs_memory(&self, left: &argosy_engine::Survivors) -> bool {
        let slots = left.iter().flat_map(|log| &log.slots);
        slots.flatten().any(holds_a_window)
    }

    fn open(
        &self,
        copy: &CopyOf<'_>,
        windows: Windows,
        left: argosy_engine::Survivors,
    ) -> Result<Box<dyn Follower>, CopyError> {
        let (windows, left) = (slots_of(windows), survivors_of(left));
        let replica = Replica::open(copy.store, copy.region, windows, &left, &self.settings)?;
        self.follower(replica, copy)
    }

    fn create(&self, copy: &CopyOf<'_>, windows: Windows) -> Result<Box<dyn Follower>, CopyError> {
        let windows = slots_of(windows);
        let replica = Replica::create(copy.store, copy.region, windows, &self.settings)?;
        self.follower(replica, copy)
    }

    fn claim(&self, store: &Arc<Store>, entry: &RegionEntry) -> SetAside {
        let segment_bytes = u32::try_from(self.settings.layout.segment_bytes);
        let segment_bytes = segment_bytes.expect("settings are validated");
        set_aside::claim(store, entry, segment_bytes)
    }
}

/// A passive copy, and the cache that it will have as a store.
struct Passive {
    replica: Replica,
    cache: Arc<NodeCache>,
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

    fn promote(self: Box<Self>, service: Service) -> Result<Promoted, Box<NotPromoted>> {
        let Self { replica, cache } = *self;
        let version = Arc::clone(replica.version());
        let store = Arc::clone(replica.store());
        match Lsm::promote(replica, &cache, service) {
            Ok(lsm) => {
                let lsm = Arc::new(lsm);
                Ok(Promoted {
                    cut: lsm.cut().cloned(),
                    source: Some(Arc::<Lsm>::clone(&lsm)),
                    store: lsm,
                })
            }
            Err(error) => {
                let error = CopyError::from(error);
                let left = match error.is_damage() {
                    true => set_aside::of_version(&store, &version),
                    false => None,
                };
                Err(Box::new(NotPromoted { error, left }))
            }
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
        self.replica.snapshot(&self.cache)
    }
}

/// The memory of `windows`, as a replica has it.
fn slots_of(windows: Windows) -> Slots {
    let mut slots = Slots::default();
    for of_log in windows {
        slots[of_log.log.index()] = of_log.slots;
    }
    slots
}

/// What is left of windows, as a replica has it.
///
/// # Panics
/// When a region has no such log.
#[must_use]
pub fn survivors_of(left: argosy_engine::Survivors) -> ReplicaSurvivors {
    let mut survivors = ReplicaSurvivors::default();
    for of_log in left {
        survivors[of_log.log.index()] = of_log.slots;
    }
    survivors
}
