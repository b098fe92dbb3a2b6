//! A copy that is too damaged to be used is *refilled*: set aside ([`set_aside`](argosy_engine::set_aside)) and begun
//! anew, empty. Then it fetches what the others have, like that of a new device.
//!
//! When that may be is for the primary to say ([`replication`](argosy_replication::primary), "Damaged copies").
//! Here it is done, in the background: it waits for the device. A copy is refilled once in the life of a
//! process; one that is damaged again waits for somebody to look.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, RegionId, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::catalog::discard_all_cut;
use argosy_engine::set_aside::SetAside;
use argosy_engine::{CopyError, CopyOf, Survivors};
use argosy_wire::message::Message;

use super::arriving::Landed;
use super::context::Context;
use super::counters::Counted;
use super::device_care::DeviceCare;
use super::failing::Failed;
use super::fetching::Fetching;
use super::follower::Follower;
use super::region::{Driver, Region};
use super::role;
use super::stage::Stage;
use super::views::Part;
use super::whole::WholeMark;
use super::windows::WindowsOf;

/// Pause between two attempts to begin a copy anew, where there is no room for it.
const AGAIN: Duration = Duration::from_millis(100);

/// What is set aside, by region.
pub(super) type SetAsides = BTreeMap<RegionId, SetAside>;

/// A copy that cannot be used.
pub(crate) struct Unusable {
    /// Why, for people.
    pub(crate) why: String,
    /// What is kept of it, where the catalog names it.
    left: Option<SetAside>,
    refill: Refill,
    /// The earliest time at which it is refilled, after there was no room.
    pub(super) again_at: Instant,
    /// What it had asked for, of no use any more: the slots are given back when it comes.
    fetching: Fetching,
}

impl Unusable {
    /// One that is damaged: it may be refilled if something of it is kept.
    pub(super) fn damaged(why: String, left: Option<SetAside>) -> Self {
        let refill = match left {
            Some(_) => Refill::Possible,
            None => Refill::No,
        };
        Self {
            why,
            left,
            refill,
            again_at: Instant::default(),
            fetching: Fetching::default(),
        }
    }

    /// One that may not be refilled. The space of `left` is not given to others meanwhile.
    pub(super) fn kept(why: String, left: Option<SetAside>) -> Self {
        Self {
            why,
            left,
            refill: Refill::No,
            again_at: Instant::default(),
            fetching: Fetching::default(),
        }
    }

    /// It had asked for `fetching`.
    pub(super) fn with(self, fetching: Fetching) -> Self {
        Self { fetching, ..self }
    }

    /// What `member` was asked for does not come any more.
    pub(super) fn source_lost(&mut self, member: ServerId) {
        self.fetching.forget_member(member);
    }

    /// What `from` was asked for has come in `slot`, if it was: the slot is free again.
    pub(super) fn give_back(&mut self, from: ServerId, slot: u8, context: &Context<'_>) {
        self.fetching.give_back(from, slot, context);
    }

    /// Whether it may be refilled.
    pub(super) fn is_damaged(&self) -> bool {
        self.refill != Refill::No
    }

    /// How long it is until it is refilled, if that was asked for.
    pub(super) fn refill_is_due_in(&self, now: Instant) -> Option<Duration> {
        let is_due = matches!(self.refill, Refill::Due(_));
        is_due.then(|| self.again_at.since(now))
    }

    /// The link to the primary is gone: what it has asked for may not be safe any more.
    pub(super) fn link_down(&mut self) {
        self.refill.take_back();
        self.fetching.forget();
    }

    /// There is no room for the new copy, which is tried again.
    pub(super) fn try_later(&mut self, error: &CopyError, context: &Context<'_>) {
        if self.again_at == Instant::default() {
            tracing::warn!(%error, "a copy cannot be begun anew now: it is tried again");
        }
        self.again_at = context.now() + AGAIN;
    }

    /// An empty copy in its place. Blocks.
    pub(super) fn begin_anew(
        &mut self,
        id: RegionId,
        context: &Context<'_>,
    ) -> Result<Follower, CopyError> {
        let world = context.world;
        let view = context.view(id);
        // The mark goes first: the empty copy must not be found beside it.
        let mark = WholeMark::renew(id, false, world)?;
        if let Some(left) = self.left.take() {
            let segments = left.segments();
            tracing::warn!(
                region = id.0,
                segments,
                "the copy is set aside, and filled anew from the other members"
            );
            match left.put_aside()? {
                Some(left) => context.device_care.keep_set_aside(left),
                None => tracing::warn!(
                    region = id.0,
                    "it had never been filled, and is given up: what it took the place of stays set aside"
                ),
            }
        }
        let of_region = WindowsOf {
            region: id,
            logs: context.memory.engine().logs(),
        };
        let needed = context.memory.engine().needs_memory(&Survivors::new());
        let builds = context.views.map().replication() == Replication::BuildIndex;
        let leads = view.part_of(context.id) == Part::Primary;
        let copy = CopyOf {
            store: &world.store,
            region: id,
            own_levels: (builds && !leads).then_some(context.id),
        };
        let replica = context
            .memory
            .engine()
            .create(&copy, of_region.fresh(needed, world)?)?;
        of_region.keep(world)?;
        if let Some(next) = context.memory.permits().forget(id) {
            context.wake(next);
        }
        context.count(Counted::RefilledCopies);
        let fetching = std::mem::take(&mut self.fetching);
        Ok(Follower::of(id, &view, replica, mark).in_place(fetching))
    }

    /// A message of the region's primary to a copy that could not be opened.
    pub(super) fn handle(&mut self, region: &Region, message: &Message<'_>, context: &Context<'_>) {
        let primary = region.view().primary;
        let (attempt, refill) = match *message {
            Message::Fetched { slot, .. } => return self.give_back(primary, slot, context),
            // It belongs to the link, and other regions need it.
            Message::Ship { attempt, slot, .. } => {
                let landed = Landed { attempt, slot };
                return context.send(primary, region.id(), &landed.stored());
            }
            Message::Prepare {
                attempt, refill, ..
            } => (attempt, refill),
            _ => return,
        };
        if refill && self.is_damaged() {
            self.refill = Refill::Due(attempt);
            return context.wake(region.id());
        }
        self.refill.take_back();
        let failed = Failed {
            attempt,
            damaged: self.is_damaged(),
            why: &self.why,
        };
        failed.tell(primary, region.id(), context);
    }
}

#[cfg(test)]
impl Unusable {
    /// Who was asked, and in which slot the answer comes.
    pub(super) fn asked(&self) -> Vec<(ServerId, u8)> {
        self.fetching.asked()
    }
}

/// Whether a failed copy may be refilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Refill {
    /// It has not failed for damage, or was refilled before.
    #[default]
    No,
    /// It is damaged.
    Possible,
    /// It is to be refilled, under this attempt.
    Due(u64),
}

impl Refill {
    /// The primary no longer asks for it.
    fn take_back(&mut self) {
        if let Self::Due(_) = self {
            *self = Self::Possible;
        }
    }
}

/// Whether the copy follows, and what may be done where it does not.
#[derive(Default)]
pub(super) struct CopyHealth {
    /// Why this copy has stopped following.
    failed: Option<String>,
    /// Whether it may be refilled.
    refill: Refill,
    /// It was refilled by this process.
    was_refilled: bool,
}

impl CopyHealth {
    /// Of a copy that was refilled.
    pub(super) fn refilled() -> Self {
        Self {
            was_refilled: true,
            ..Self::default()
        }
    }

    /// Why the copy has stopped following, if it has.
    pub(super) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Whether the copy has stopped following.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why the copy has stopped following.
    pub(super) fn into_why(self) -> String {
        self.failed.unwrap_or_default()
    }

    /// The copy stops following, because of `error`.
    pub(super) fn fail(&mut self, error: &dyn Display) {
        self.failed = Some(error.to_string());
    }

    /// The copy, which follows yet, is damaged.
    pub(super) fn found_damage(&mut self) {
        if self.failed.is_none() && !self.was_refilled {
            self.refill = Refill::Possible;
        }
    }

    /// Whether it was refilled by this process.
    pub(super) const fn was_refilled(&self) -> bool {
        self.was_refilled
    }

    /// Whether it has failed for damage, and may be refilled.
    pub(super) fn is_damaged(&self) -> bool {
        self.refill != Refill::No
    }

    /// The primary asks for it to be refilled, under `attempt`.
    pub(super) fn want_refill(&mut self, attempt: u64) {
        self.refill = Refill::Due(attempt);
    }

    /// The primary no longer asks for it to be refilled.
    pub(super) fn take_refill_back(&mut self) {
        self.refill.take_back();
    }

    /// The attempt under which it is to be refilled, if it is.
    pub(super) const fn due_refill(&self) -> Option<u64> {
        match self.refill {
            Refill::Due(attempt) => Some(attempt),
            Refill::No | Refill::Possible => None,
        }
    }
}

impl Driver {
    /// Refills a backup's copy. Blocks.
    pub(super) fn refill_now(&mut self, region: &Region, context: &Context<'_>) {
        let away = Self::AtDevice("its copy is begun anew");
        let (mut unusable, attempt) = match std::mem::replace(self, away) {
            Self::Failed(unusable) if let Refill::Due(attempt) = unusable.refill => {
                (*unusable, attempt)
            }
            Self::Backup(copy) if let Some(attempt) = copy.due_refill() => {
                (copy.into_unusable(), attempt)
            }
            other => {
                *self = other;
                return;
            }
        };
        match unusable.begin_anew(region.id(), context) {
            Ok(mut copy) => {
                context.turn(region.id(), role::Event::Refilled);
                copy.prepare_refilled(attempt, context);
                *self = Self::Backup(Box::new(copy));
            }
            Err(error) if error.is_full() => {
                unusable.refill = Refill::Due(attempt);
                unusable.try_later(&error, context);
                *self = Self::Failed(Box::new(unusable));
            }
            Err(error) => {
                tracing::error!(region = region.id().0, %error, "this copy cannot be begun anew");
                let why = format!("this server's copy cannot be begun anew: {error}");
                let failed = Failed {
                    attempt,
                    damaged: false,
                    why: &why,
                };
                failed.tell(region.view().primary, region.id(), context);
                let kept = Unusable::kept(why, unusable.left.take()).with(unusable.fetching);
                *self = Self::Failed(Box::new(kept));
            }
        }
    }
}

impl DeviceCare {
    /// Keeps what was set aside in place of what was set aside of the same region before.
    pub(super) fn keep_set_aside(&self, left: SetAside) {
        let region = left.region();
        if let Some(before) = self.set_asides().insert(region, left) {
            tracing::warn!(
                region = region.0,
                segments = before.segments(),
                "the copy that was set aside before is given up"
            );
            before.forget();
        }
    }

    /// Device segments of copies that are set aside, but for those of their manifests.
    pub(super) fn set_aside_segments(&self) -> usize {
        let set_aside = self.set_asides();
        set_aside.values().map(SetAside::segments).sum()
    }

    /// The regions of which a copy is set aside.
    pub(super) fn set_aside_regions(&self) -> Vec<RegionId> {
        self.set_asides().keys().copied().collect()
    }

    /// Where the device has no room, gives up what was kept of logs that were cut, once until there is room. Before the
    /// engines look, which turn writers away. In the background; blocks.
    pub(super) fn discard_cut_segments(&self, context: &Context<'_>) {
        let store = &context.world.store;
        let full = store.room().is_full();
        let was_full = self.look_whether_full(full);
        if was_full != full {
            // Others wait for the room; or have to turn writers away, those at rest, too.
            context.regions.steppers().wake_all();
        }
        if was_full || !full {
            return;
        }
        match discard_all_cut(store) {
            Ok(0) => {}
            Ok(segments) => tracing::warn!(
                segments,
                "the device is full: what was kept of logs that were cut is given up"
            ),
            Err(error) => tracing::warn!(%error, "cut segments cannot be given up"),
        }
    }

    /// Ends the [quarantine](argosy_device::Store::quarantine) once every copy that could not be read when the device
    /// was opened has been begun anew.
    pub(super) fn end_quarantine(&self, context: &Context<'_>) {
        let store = &context.world.store;
        let cannot_be_read = |region: &Arc<Region>| match &*region.driver() {
            Driver::Failed(_) | Driver::AtDevice(_) => true,
            Driver::Primary(driver) => matches!(driver.stage, Stage::Damaged(_)),
            Driver::Backup(_) | Driver::Absent => false,
        };
        if store.quarantined() > 0 && !context.regions.iter().any(cannot_be_read) {
            store.end_quarantine();
        }
    }

    /// Takes a copy that is set aside and no longer needed: the new copy has been whole, or else is being filled. Any
    /// other may be all that is left of its region.
    fn needless_set_aside(&self, context: &Context<'_>) -> Option<(RegionId, SetAside)> {
        let mut set_asides = self.set_asides();
        let is_filling = |id: &RegionId| {
            let region = context.region(*id);
            region.is_some_and(|region| match &*region.driver() {
                Driver::Backup(copy) => copy.is_being_filled(),
                Driver::Primary(driver) => driver.is_being_filled(),
                Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => false,
            })
        };
        let filled = set_asides.iter().find(|(_, left)| left.was_replaced());
        let needless = filled.or_else(|| set_asides.iter().find(|(id, _)| is_filling(id)));
        let id = *needless?.0;
        set_asides.remove_entry(&id)
    }

    /// Where the device has no room, gives up what is set aside: writing goes first. Returns whether anything
    /// was. In the background; blocks.
    pub(super) fn discard_set_aside(&self, context: &Context<'_>) -> bool {
        if !context.world.store.room().is_full() {
            return false;
        }
        let Some((region, mut left)) = self.needless_set_aside(context) else {
            return false;
        };
        let segments = left.segments();
        match left.discard() {
            Ok(()) => tracing::warn!(
                region = region.0,
                segments,
                "the device is full: the copy that was set aside is given up"
            ),
            // The next step tries again: there is no room beneath the device either.
            Err(error) if error.is_full() => {
                self.set_asides().insert(region, left);
                return false;
            }
            Err(error) => {
                tracing::warn!(region = region.0, %error, "what was set aside cannot be given up");
            }
        }
        true
    }
}
