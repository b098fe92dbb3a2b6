//! One region as this server holds it: its driver, its engine while it is served here, and what
//! waits for it.

mod care;
mod health;
mod membership;
mod pending;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use argosy_base::{Epoch, Instant, KeyRange, RegionId, ServerId};
use argosy_engine::long::{SweepPace, Sweeper, Uses};
use argosy_engine::scrub::{Pace as ScrubPace, Scrubber};
use argosy_engine::{EngineError, Stored};
use parking_lot::{Mutex, MutexGuard};

use super::bulk_load::BulkLoads;
use super::follower::Follower;
use super::gate::Gate;
use super::held::{Away, Holding};
use super::maintenance::Maintained;
use super::primary::PrimaryDriver;
use super::raised::{Flag, Raised};
use super::refilling::Unusable;
use super::repairing::Repairing;
use super::role::{self, Role};
use super::serving::Serving;
use super::snapshots::Snapshots;
use super::views::{Part, View};
use super::waiting::{Allowance, Waiting};
use crate::activity::Place;
use crate::service::{ReplyTo, Response};
use care::RegionCare;
use health::Health;
use membership::Membership;
use pending::Unfinished;

/// Why a server does not serve a region that it has a copy of, or none.
const NOT_PRIMARY: &str = "this server is not its primary";

/// How this server takes part in a region.
pub(crate) enum Driver {
    /// It is the primary, serving or about to.
    Primary(Box<PrimaryDriver>),
    /// It is a backup.
    Backup(Box<Follower>),
    /// It does something at the device, which the text names, and comes back: see [`held`](super::held).
    AtDevice(&'static str),
    /// Its copy cannot be used.
    Failed(Box<Unusable>),
    /// It has no copy.
    Absent,
}

/// Why a region is not open here, as readers are told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It may open later.
    Yet(String),
    /// This copy can never open.
    ForGood(String),
}

/// Where a region's work is charged, and how fast what it stores is looked after.
#[derive(Clone)]
pub(crate) struct Care {
    /// This server.
    pub(super) server: ServerId,
    pub(crate) place: Place,
    pub(crate) scrub: ScrubPace,
    pub(crate) sweep: SweepPace,
    /// Where it says that it has something to ship.
    pub(super) dirty: Arc<Raised>,
    /// Where it says that it has messages, or answers, to move on.
    pub(super) active: Arc<Raised>,
}

/// One region. See the module documentation.
pub(crate) struct Region {
    id: RegionId,
    range: KeyRange,
    membership: Membership,
    /// Where its work is charged.
    place: Place,
    /// There while the region is open here.
    engine: ArcSwapOption<Serving>,
    /// What every answer passes that shows data.
    gate: Gate,
    driver: Mutex<Driver>,
    at_device: BesideDriver,
    /// Why there is no engine, as the driver has said last: whoever asks does not wait for its step.
    closed: ArcSwap<Closed>,
    pending: Unfinished,
    care: RegionCare,
    state: State,
}

/// What there is besides while the driver is at the device.
#[derive(Default)]
struct BesideDriver {
    /// The driver, while its promotion waits. Of the steppers, one of which has the region at a time.
    away: Mutex<Option<Away>>,
    /// What has come for the driver.
    holding: Mutex<Holding>,
}

/// What is known of a region, and what is to be done for it.
struct State {
    health: Health,
    /// Raised when something was appended that has not been shipped.
    dirty: Flag,
    /// Raised when the thread that moves links and messages has something to do for it.
    active: Flag,
    /// When it was written to last, in nanoseconds.
    written_at: AtomicU64,
    /// The earliest time at which its driver adapts, after that failed, in nanoseconds.
    adapts_at: AtomicU64,
}

impl Region {
    /// What its answers hold while they wait is taken from `allowance`.
    pub(crate) fn new(
        map: &argosy_coordinator::Region,
        driver: Driver,
        care: Care,
        gate: Gate,
        allowance: &Arc<Allowance>,
    ) -> Self {
        let closed = match &driver {
            Driver::Primary(_) => Closed::Yet("it is being opened".into()),
            Driver::Backup(_) => Closed::Yet(NOT_PRIMARY.into()),
            Driver::AtDevice(what) => Closed::Yet((*what).into()),
            Driver::Failed(copy) => Closed::ForGood(copy.why.clone()),
            Driver::Absent => Closed::Yet(NOT_PRIMARY.into()),
        };
        let usable = !matches!(driver, Driver::Failed(_));
        let looked_after = RegionCare::new(care.scrub, care.sweep);
        Self {
            id: map.id,
            range: map.range.clone(),
            membership: Membership::new(care.server, View::of(map), usable),
            place: care.place,
            engine: ArcSwapOption::empty(),
            gate,
            driver: Mutex::new(driver),
            at_device: BesideDriver::default(),
            closed: ArcSwap::from_pointee(closed),
            pending: Unfinished::new(allowance, looked_after.uses()),
            care: looked_after,
            state: State {
                health: Health::default(),
                dirty: Flag::new(map.id, &care.dirty),
                active: Flag::new(map.id, &care.active),
                written_at: AtomicU64::new(0),
                adapts_at: AtomicU64::new(0),
            },
        }
    }

    /// Its name.
    pub(crate) const fn id(&self) -> RegionId {
        self.id
    }

    /// Its keys.
    pub(crate) const fn range(&self) -> &KeyRange {
        &self.range
    }

    /// Where its work is charged.
    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    /// The engine, while it is open here.
    pub(crate) fn engine(&self) -> Guard<Option<Arc<Serving>>> {
        self.engine.load()
    }

    /// What every answer passes that shows data.
    pub(super) const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Raised when something was appended that has not been shipped.
    pub(super) const fn dirty(&self) -> &Flag {
        &self.state.dirty
    }

    /// Raised when the thread that moves links and messages has something to do for it.
    pub(super) const fn active(&self) -> &Flag {
        &self.state.active
    }

    /// It is written to `now`.
    pub(super) fn note_written(&self, now: Instant) {
        self.state
            .written_at
            .store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When it was written to last.
    pub(super) fn last_written(&self) -> Instant {
        Instant::from_nanos(self.state.written_at.load(Ordering::Relaxed))
    }

    /// What keeps it from taking writes.
    pub(super) const fn health(&self) -> &Health {
        &self.state.health
    }

    /// Sorted pairs that are being bulk-loaded.
    pub(super) const fn bulk_loads(&self) -> &BulkLoads {
        &self.pending.bulk_loads
    }

    /// What clients have asked to be done with all of it.
    pub(super) const fn maintained(&self) -> &Maintained {
        &self.pending.maintained
    }

    /// Those that clients keep open.
    pub(crate) const fn snapshots(&self) -> &Snapshots {
        &self.pending.snapshots
    }

    /// Who is at which parts of long values.
    pub(super) fn uses(&self) -> &Uses {
        self.care.uses()
    }

    /// Who stores it and who serves it.
    pub(crate) fn view(&self) -> Guard<Arc<View>> {
        self.membership.view()
    }

    /// Whether this server is its primary, by the view.
    pub(super) fn is_led_here(&self) -> bool {
        self.membership.is_led_here()
    }

    /// Whether `server` is its primary, chosen in the epoch `since`.
    pub(super) fn is_served_by(&self, server: ServerId, since: Epoch) -> bool {
        let view = self.view();
        view.part_of(server) == Part::Primary && view.since == since
    }

    /// Whether the driver was made for the present view. Until it is, nothing goes to it or comes from it.
    pub(super) fn is_seated(&self) -> bool {
        self.membership.is_seated()
    }

    /// The promotion under which the driver speaks and listens: the epoch in which its primary was chosen.
    pub(super) fn seated_since(&self) -> Epoch {
        self.membership.seated_since()
    }

    /// The driver was made for `view`.
    pub(super) fn seat(&self, view: &View) {
        self.membership.seat(view);
    }

    /// The earliest time at which the driver adapts to another view.
    pub(super) fn adapts_at(&self) -> Instant {
        Instant::from_nanos(self.state.adapts_at.load(Ordering::Relaxed))
    }

    /// It adapts no earlier than `at`.
    pub(super) fn adapt_again_at(&self, at: Instant) {
        self.state.adapts_at.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Whether the driver is what the role says; a copy that has just failed may still be on its way there.
    pub(super) fn role_fits(&self) -> bool {
        if !self.is_seated() {
            return true;
        }
        let shown = match &*self.driver() {
            Driver::AtDevice(_) => return true,
            Driver::Absent => Role::Outside,
            Driver::Primary(driver) if driver.failed().is_some() => Role::Failed,
            Driver::Primary(driver) if driver.is_serving() => Role::Primary,
            Driver::Primary(_) => Role::Opening,
            Driver::Backup(copy) if copy.failed().is_none() => Role::Backup,
            Driver::Backup(_) | Driver::Failed(_) => Role::Failed,
        };
        let role = self.role();
        // A copy that is not used is kept as a backup's.
        let is_kept = (shown, role) == (Role::Backup, Role::Outside);
        is_kept || [shown, Role::Failed].contains(&role)
    }

    /// Moves this server's role by the table, because of `event`. Returns the new one.
    pub(super) fn turn(&self, event: role::Event) -> Role {
        self.membership.turn(event)
    }

    /// What this server is to it.
    pub(crate) fn role(&self) -> Role {
        self.membership.role()
    }

    /// Replaces who stores it and who serves it. Where that is not this server any more it is closed.
    pub(super) fn set_view(&self, view: View) {
        let why = match self.membership.set_view(view) {
            Role::Primary => return,
            Role::Opening => "it is being opened",
            Role::Backup | Role::Outside | Role::Failed => "this server is not its primary",
        };
        self.end_serving();
        self.set_closed(Closed::Yet(why.into()));
    }

    /// Whether this server has a copy of it, of whatever worth.
    pub(super) fn has_copy(&self) -> bool {
        !matches!(&*self.driver(), Driver::Absent)
    }

    /// The driver. Taken before [`waiting`](Self::waiting) where both are needed.
    pub(crate) fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock()
    }

    /// Keeps the driver away while its promotion waits for the device.
    pub(super) fn keep_away(&self, away: Away) {
        *self.at_device.away.lock() = Some(away);
    }

    /// The driver whose promotion waits for the device, if it does.
    pub(super) fn take_away(&self) -> Option<Away> {
        self.at_device.away.lock().take()
    }

    /// Whether a promotion waits for the device.
    pub(super) fn is_away(&self) -> bool {
        self.at_device.away.lock().is_some()
    }

    /// What has come for the driver while it was at the device. Taken with no other lock held but the driver's.
    pub(super) fn holding(&self) -> MutexGuard<'_, Holding> {
        self.at_device.holding.lock()
    }

    /// Whether there is any of that.
    pub(super) fn holds(&self) -> bool {
        !self.holding().is_empty()
    }

    /// What reads this copy now and then. Taken with no other lock held but the driver's.
    pub(crate) fn scrubber(&self) -> MutexGuard<'_, Scrubber> {
        self.care.scrubber()
    }

    /// What repairs this copy. Taken with no other lock held.
    pub(super) fn repairing(&self) -> MutexGuard<'_, Repairing> {
        self.care.repairing()
    }

    /// What removes parts of long values. Taken with no other lock held but the driver's.
    pub(crate) fn sweeper(&self) -> MutexGuard<'_, Sweeper> {
        self.care.sweeper()
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.pending.waiting()
    }

    /// The own copy was promoted, as that of the primary of `since`: the region is open here, before its first write.
    /// Not where this server has another part in it meanwhile, or the same anew.
    pub(crate) fn serve(&self, engine: Arc<Serving>, since: Epoch) {
        if self.view().since != since || self.turn(role::Event::Opened) != Role::Primary {
            return;
        }
        self.gate.open(&engine, engine.last_lsn());
        self.sweeper().opened();
        self.engine.store(Some(engine));
    }

    /// The region is open here no more.
    pub(super) fn end_serving(&self) {
        self.gate.close();
        self.engine.store(None);
    }

    /// Whether it is open here.
    pub(crate) fn is_open(&self) -> bool {
        self.engine.load().is_some()
    }

    /// Why it is not open here.
    pub(crate) fn closed(&self) -> Arc<Closed> {
        self.closed.load_full()
    }

    /// From now on readers are told that it is not open because of `closed`.
    pub(crate) fn set_closed(&self, closed: Closed) {
        if **self.closed.load() != closed {
            self.closed.store(Arc::new(closed));
        }
    }

    /// The engine takes no more writes because of `error`; told once.
    pub(crate) fn failed(&self, error: &EngineError) {
        if self.health().failed(error) {
            tracing::error!(region = self.id.0, %error, "the engine takes no more writes");
        }
    }

    /// The error with which it has failed in that way.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.health().failure()
    }

    /// Sends the answers that were waiting for what is now committed, as far as they pass the gate. Returns whether
    /// requests wait for room.
    pub(crate) fn release(&self) -> bool {
        let Some(engine) = &*self.engine.load() else {
            return false;
        };
        let mut due = Vec::new();
        let is_queueing = {
            let mut waiting = self.waiting();
            if waiting.has_answers()
                && let Some(committed) = self.gate.show_up_to(engine)
            {
                waiting.release(committed, &mut due);
            }
            waiting.is_queueing()
        };
        if !due.is_empty() {
            self.health().acknowledged();
        }
        send_all(due);
        is_queueing
    }
}

/// Sends answers, outside every lock.
pub(crate) fn send_all(due: Vec<(ReplyTo, Response)>) {
    for (reply, response) in due {
        reply.send(response);
    }
}

/// The engine of a region that is open here.
pub(crate) fn engine_of(region: &Region) -> Option<Arc<Serving>> {
    region.engine.load_full()
}

/// What this copy consists of now.
pub(crate) fn copy_of(region: &Region) -> Option<Arc<dyn Stored>> {
    if let Some(engine) = engine_of(region) {
        return Some(engine.stored());
    }
    match &*region.driver() {
        Driver::Backup(copy) => Some(copy.replica().stored()),
        Driver::Primary(_) | Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => None,
    }
}
