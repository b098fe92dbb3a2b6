//! A passive copy as it lies on this server: its storage, its windows, and whether it is whole.

use std::sync::Arc;

use argosy_base::{AddressMode, Descriptor, Epoch, RegionId, SegmentPart, ServerId, Standing};
use argosy_device::{Buffer, Store};
use argosy_engine::cut::Cut;
use argosy_engine::shipment::Shipment;
use argosy_engine::{
    self as engine, CopyError, LogSlots, LogSurvivors, Marks, NotPromoted, Observer, Service,
    Survivors, Windows,
};
use argosy_fabric::FabricError;
use argosy_memory::MemoryError;
use argosy_wire::message::Message;

use super::arriving::Shipped;
use super::awake::RegionPermit;
use super::context::Context;
use super::counters::Counted;
use super::serving::Serving;
use super::views::View;
use super::whole::WholeMark;
use super::windows::WindowsOf;
use super::{Mutants, World};
use crate::activity::Activity;

/// The copy as it lies here, and whose copy it is.
pub(super) struct LocalCopy {
    pub(super) region: RegionId,
    /// The epoch in which the primary was chosen: it writes in that.
    since: Epoch,
    pub(super) primary: ServerId,
    pub(super) replica: Box<dyn engine::Follower>,
    /// Whether it is whole.
    mark: WholeMark,
    /// What its primary may write to.
    granted: Vec<Descriptor>,
    /// Its windows are fresh: since they were made, nobody was let write to them, and no edit was applied.
    is_fresh: bool,
}

/// A copy that has become a store.
pub(super) struct Promoted {
    pub(super) engine: Arc<Serving>,
    /// The records that were cut off, if there were any.
    pub(super) cut: Option<Cut>,
    /// What says that the copy is whole.
    pub(super) mark: WholeMark,
}

/// A copy on its way to a store, which waits for the device.
pub(super) struct Promoting {
    at_device: Box<dyn engine::Promoting>,
    beside: Beside,
}

/// What goes with a copy that is promoted.
struct Beside {
    marks: Arc<Marks>,
    mark: WholeMark,
}

/// How far a copy has come on its way to a store.
pub(super) enum Promotion {
    /// It waits for the device.
    Waits(Promoting),
    /// It is one.
    Done(Promoted),
}

impl Beside {
    fn with(self, promotion: engine::Promotion) -> Promotion {
        match promotion {
            engine::Promotion::Waits(at_device) => Promotion::Waits(Promoting {
                at_device,
                beside: self,
            }),
            engine::Promotion::Done(mut promoted) => Promotion::Done(Promoted {
                cut: promoted.cut.take(),
                engine: Arc::new(Serving::new(promoted, self.marks)),
                mark: self.mark,
            }),
        }
    }
}

impl Promoting {
    /// Goes on as far as that is possible without waiting.
    pub(super) fn step(self) -> Result<Promotion, Box<NotPromoted>> {
        let Self { at_device, beside } = self;
        Ok(beside.with(at_device.step()?))
    }

    /// Goes on to the end. Blocks for the device.
    pub(super) fn finish(self) -> Result<Promotion, Box<NotPromoted>> {
        let Self { at_device, beside } = self;
        Ok(beside.with(engine::Promotion::Done(at_device.finish()?)))
    }
}

impl LocalCopy {
    /// The copy of `region`, which lies here as `replica`.
    pub(super) fn new(
        region: RegionId,
        view: &View,
        replica: Box<dyn engine::Follower>,
        mark: WholeMark,
    ) -> Self {
        Self {
            region,
            since: view.since,
            primary: view.primary,
            replica,
            mark,
            granted: Vec::new(),
            is_fresh: false,
        }
    }

    /// It was made with fresh windows.
    pub(super) fn with_fresh_windows(self) -> Self {
        Self {
            is_fresh: true,
            ..self
        }
    }

    /// An edit is about to be applied: where its logs end is to be found anew.
    pub(super) const fn note_change(&mut self, mutants: Mutants) {
        self.is_fresh &= mutants.trust_fresh();
    }

    /// What the copy is certain to hold.
    pub(super) fn standing(&self) -> Standing {
        match self.replica.standing() {
            Standing::PutBack => Standing::PutBack,
            _ if self.mark.is_set() => Standing::Whole,
            standing => standing,
        }
    }

    /// From now on it is a copy under `view`.
    pub(super) fn sit(&mut self, view: &View) {
        (self.since, self.primary) = (view.since, view.primary);
    }

    /// Whether it is a copy under the primary of `view`, chosen as there.
    pub(super) fn is_under(&self, view: &View) -> bool {
        (self.since, self.primary) == (view.since, view.primary)
    }

    /// Where it is no member's, it is being filled from now on, and is not whole, whatever an earlier process left.
    /// Blocks.
    ///
    /// # Errors
    /// What makes the copy fail; where the device is full it is tried again.
    pub(super) fn begin_filling(&mut self, context: &Context<'_>) -> Result<(), CopyError> {
        if context.view(self.region).has_member(context.id) {
            return Ok(());
        }
        self.not_whole(context.world)?;
        self.replica.begin_filling()
    }

    /// It is no longer certain to hold everything that is acknowledged.
    pub(super) fn not_whole(&mut self, world: &World) -> Result<(), MemoryError> {
        if self.mark.is_set() {
            self.mark = WholeMark::renew(self.region, false, world)?;
        }
        Ok(())
    }

    /// Changes over to fresh windows, after the old ones were revoked, and finds where its logs end; nothing is to be
    /// done where they still are fresh. The inner error says that there is no memory for them now. Blocks.
    ///
    /// # Errors
    /// What makes the copy fail.
    pub(super) fn detach(
        &mut self,
        context: &Context<'_>,
    ) -> Result<Result<Windows, MemoryError>, CopyError> {
        if self.is_fresh {
            return Ok(Ok(self.replica.windows()));
        }
        let engine = context.memory.engine();
        let of_region = WindowsOf {
            region: self.region,
            logs: engine.logs(),
        };
        let needed = engine.needs_memory(&as_left(self.replica.windows()));
        let fresh = match of_region.fresh(needed, context.world) {
            Ok(fresh) => fresh,
            Err(error) => return Ok(Err(error)),
        };
        self.replica.detach(fresh.clone())?;
        let kept = of_region.keep(context.world);
        self.is_fresh = kept.is_ok();
        Ok(kept.map(|()| fresh))
    }

    /// Sends `message` to its primary.
    pub(super) fn tell(&self, message: &Message<'_>, context: &Context<'_>) {
        context.send(self.primary, self.region, message);
    }

    /// Tells its primary where it stands.
    pub(super) fn report(&self, attempt: u64, context: &Context<'_>) {
        let report = Message::Report {
            attempt,
            position: self.replica.position(),
            standing: self.standing(),
            windows: self.granted.clone(),
        };
        self.tell(&report, context);
    }

    /// The primary says that the copy is whole.
    pub(super) fn became_whole(&mut self, store: &Store) {
        if !self.mark.is_set() {
            self.mark.set(store);
        }
        self.replica.become_ordinary();
    }

    /// Part of a segment, for a member that fetches it; `None` where it is not here. What cannot be read is noted.
    pub(super) fn read(&self, part: SegmentPart) -> Option<Result<Vec<u8>, String>> {
        match self.replica.read(part) {
            Ok(bytes) => Some(Ok(bytes.to_vec())),
            Err(CopyError::Gone { .. }) => None,
            Err(error) => {
                let why = error.to_string();
                self.replica.stored().note_damaged(part.number, &why);
                Some(Err(why))
            }
        }
    }

    /// Lets the primary write to `windows`.
    pub(super) fn grant(
        &mut self,
        windows: &Windows,
        context: &Context<'_>,
    ) -> Result<(), FabricError> {
        let logs = context.memory.engine().logs();
        let region = self.region;
        let of_region = WindowsOf { region, logs };
        self.is_fresh = context.settings.mutants.trust_fresh();
        self.granted = of_region.grant(windows, context.fabric(), self.primary)?;
        Ok(())
    }

    /// Takes the windows back: from now on the primary cannot write to them.
    pub(super) fn revoke_windows(&mut self, context: &Context<'_>) {
        self.granted.clear();
        let logs = context.memory.engine().logs();
        let region = self.region;
        for key in (WindowsOf { region, logs }).keys() {
            context.fabric().revoke(key);
        }
    }

    /// Checks a shipped segment, rewrites its pointers where they hold the sender's places, and
    /// begins to write it.
    pub(super) fn take_shipped(
        &mut self,
        shipped: &Shipped,
        bytes: Buffer,
        context: &Context<'_>,
    ) -> Result<(), CopyError> {
        let Shipped {
            segment,
            checksum,
            place,
            ..
        } = *shipped;
        let mut shipment = Shipment::new(segment, self.since, bytes, checksum, place);
        if !context.settings.mutants.trust_shipments() {
            shipment.check(self.region)?;
        }
        if self.replica.addresses() == AddressMode::Rewrite {
            let _span = context.ledger().during(Activity::Rewriting);
            self.replica.rewrite(&mut shipment)?;
        }
        self.replica.put(shipment)
    }

    /// Adds what was rewritten to the node's counters.
    pub(super) fn count_rewritten(&mut self, context: &Context<'_>) {
        let rewritten = self.replica.take_rewritten();
        let counters = context.telling.counters();
        for (what, more) in [
            (Counted::RewrittenSegments, rewritten.segments),
            (Counted::RewrittenBytes, rewritten.bytes),
            (Counted::RewrittenPointers, rewritten.pointers),
        ] {
            if more > 0 {
                counters.add(what, more);
            }
        }
    }

    /// Where that is planted: finds where the log ends, in windows to which their writer goes on writing.
    pub(super) fn keeps_grant(&mut self, context: &Context<'_>) -> bool {
        if !context.settings.mutants.keep_grant() {
            return false;
        }
        let same = self.replica.windows();
        same[0].slots[0].access() != 0 && self.replica.detach(same).is_ok()
    }

    /// Begins to turn the copy into a store that serves. Blocks for what is read.
    pub(super) fn promote(
        self,
        context: &Context<'_>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Promotion, Box<NotPromoted>> {
        let world = context.world;
        let marks = Arc::<Marks>::default();
        let service = Service {
            epoch: self.since,
            since: self.since,
            observer,
            clock: Some(Arc::clone(&world.clock)),
            waker: Some(context.waker_of(self.region)),
            marks: Arc::clone(&marks),
            room: Some(Arc::new(RegionPermit {
                region: self.region,
                permits: Arc::clone(context.memory.permits()),
            })),
        };
        let beside = Beside {
            marks,
            mark: self.mark,
        };
        Ok(beside.with(self.replica.begin_promotion(service)?))
    }
}

/// The windows of a copy, as what is left of them.
fn as_left(windows: Windows) -> Survivors {
    let left = |log: LogSlots| LogSurvivors {
        log: log.log,
        slots: log.slots.into_iter().map(Some).collect(),
    };
    windows.into_iter().map(left).collect()
}
