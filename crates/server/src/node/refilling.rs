//! A copy that is too damaged to be used is *refilled*: set aside ([`set_aside`](argosy_lsm::set_aside)) and begun
//! anew, empty. Then it fetches what the others have, like that of a new device.
//!
//! When that may be is for the primary to say ([`replication`](argosy_replication::primary), "Damaged copies").
//! Here it is done, on the background thread: it waits for the device. A copy is refilled once in the life of a
//! process; one that is damaged again waits for somebody to look.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use argosy_base::{RegionId, Remedy};
use argosy_coordinator::Replication;
use argosy_device::{DeviceError, OpKind};
use argosy_lsm::cut_segments;
use argosy_lsm::log::Geometry;
use argosy_lsm::replica::{Replica, ReplicaError};
use argosy_lsm::set_aside::SetAside;
use argosy_lsm::storage::StorageError;
use argosy_replication::backup;
use argosy_replication::primary::Event;
use argosy_wire::message::Message;

use super::Node;
use super::context::Context;
use super::failing::Failed;
use super::follower::{Fetches, Follower};
use super::primary::{PrimaryDriver, Stage};
use super::region::{Driver, Region};
use super::whole::WholeMark;
use super::windows::{fresh_windows, keep_windows};

/// What is set aside, by region.
pub(super) type SetAsides = BTreeMap<RegionId, SetAside>;

/// A copy that cannot be used.
pub(crate) struct Unusable {
    /// Why, for people.
    pub(crate) why: String,
    /// What is kept of it, where the catalog names it.
    left: Option<SetAside>,
    refill: Refill,
    /// What it had asked for, of no use any more: the slots are given back when it comes.
    pub(super) fetches: Fetches,
}

impl Unusable {
    /// One that is damaged: it may be refilled if something of it is kept.
    pub(super) const fn damaged(why: String, left: Option<SetAside>) -> Self {
        let refill = match left {
            Some(_) => Refill::Possible,
            None => Refill::No,
        };
        Self {
            why,
            left,
            refill,
            fetches: Fetches::new(),
        }
    }

    /// One that may not be refilled. The space of `left` is not given to others meanwhile.
    pub(super) const fn kept(why: String, left: Option<SetAside>) -> Self {
        Self {
            why,
            left,
            refill: Refill::No,
            fetches: Fetches::new(),
        }
    }

    /// Whether it may be refilled.
    pub(super) fn is_damaged(&self) -> bool {
        self.refill != Refill::No
    }

    /// Whether it is to be refilled.
    pub(super) const fn is_due(&self) -> bool {
        matches!(self.refill, Refill::Due(_))
    }

    /// A message of the region's primary to a copy that could not be opened.
    pub(super) fn handle(&mut self, region: &Region, message: &Message<'_>, context: &Context<'_>) {
        let Message::Prepare {
            attempt, refill, ..
        } = *message
        else {
            return;
        };
        if refill && self.is_damaged() {
            self.refill = Refill::Due(attempt);
            return (context.node.world.waker)();
        }
        let failed = Failed {
            attempt,
            damaged: self.is_damaged(),
            why: &self.why,
        };
        failed.tell(region.primary, region.id, context);
    }
}

/// Whether a failed copy may be refilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Refill {
    /// It has not failed for damage, or was refilled before.
    #[default]
    No,
    /// It is damaged.
    Possible,
    /// It is to be refilled, under this attempt.
    Due(u64),
}

/// Whether `error` says that what is stored is damaged, and the device is otherwise good.
pub(super) fn is_damage(error: &ReplicaError) -> bool {
    let unreadable = matches!(
        error,
        ReplicaError::Storage(StorageError::Device(DeviceError::Io {
            op: OpKind::Read,
            ..
        }))
    );
    error.remedy() == Remedy::Repair || unreadable
}

impl Follower {
    /// An empty copy in place of the unusable one, of which `left` is kept. Blocks.
    fn begin_anew(
        left: SetAside,
        fetches: Fetches,
        context: &Context<'_>,
    ) -> Result<Self, ReplicaError> {
        let (node, id) = (context.node, left.region());
        let (settings, world) = (&node.settings, &node.world);
        let region = node.map.region(id).expect("it has a copy of the region");
        // The mark goes first: the empty copy must not be found beside it.
        let mark = WholeMark::renew(id, false, world)?;
        left.name()?;
        tracing::warn!(
            region = id.0,
            segments = left.segments(),
            "the damaged copy is set aside, and filled anew from the other members"
        );
        let geometry = Geometry::of(&settings.engine);
        let windows = fresh_windows(id, &geometry, world)?;
        let mut replica = Replica::create(&world.store, id, windows, &settings.engine)?;
        // Until the catalog names another copy, this one may not be given up.
        node.keep_set_aside(left);
        if node.map.replication() == Replication::BuildIndex && region.primary != node.id {
            replica.build_levels(node.id)?;
        }
        keep_windows(id, &geometry, world)?;
        replica.charge_to(&context.cache());
        let refilled = &node.counters.refilled_copies;
        refilled.fetch_add(1, Ordering::Relaxed);
        let mut copy = Self::of(region, replica, mark);
        copy.was_refilled = true;
        copy.fetches = fetches;
        Ok(copy)
    }

    /// Whether the copy has failed and is to be refilled.
    pub(super) const fn refill_is_due(&self) -> bool {
        matches!(self.refill, Refill::Due(_))
    }

    /// Closes a copy that has failed for damage, and returns what is kept of it.
    pub(super) fn into_unusable(self) -> Unusable {
        let why = self.failed.unwrap_or_default();
        let mut unusable = Unusable::damaged(why, self.replica.set_aside());
        unusable.fetches = self.fetches;
        unusable
    }

    /// Whether it has failed for damage, and may be refilled.
    pub(super) fn is_damaged(&self) -> bool {
        self.refill != Refill::No
    }
}

impl PrimaryDriver {
    /// The own copy is too damaged to be used.
    pub(super) fn own_damaged(&mut self, unusable: Unusable, context: &Context<'_>) {
        tracing::error!(
            region = self.region.0,
            why = unusable.why,
            "the copy of this server is damaged"
        );
        let alone = context.backups(self.region).next().is_none();
        if self.was_refilled || alone || !unusable.is_damaged() {
            self.stage = Stage::Closed(format!("this server's copy is damaged: {}", unusable.why));
            return;
        }
        self.stage = Stage::Damaged(Box::new(unusable));
        self.machine.step(Event::OwnDamaged, &mut self.actions);
        self.act(context);
    }

    /// Refills the own copy. Blocks.
    pub(super) fn refill_now(&mut self, context: &Context<'_>) {
        let closed = Stage::Closed("its copy is begun anew".into());
        let unusable = match std::mem::replace(&mut self.stage, closed) {
            Stage::Damaged(unusable) => unusable,
            other => {
                self.stage = other;
                return;
            }
        };
        self.was_refilled = true;
        let Some(left) = unusable.left else {
            return;
        };
        match Follower::begin_anew(left, unusable.fetches, context) {
            Ok(copy) => {
                let position = copy.position();
                self.stage = Stage::Opening(Box::new(copy));
                self.machine
                    .step(Event::Refilled { position }, &mut self.actions);
                self.act(context);
            }
            Err(error) => {
                tracing::error!(region = self.region.0, %error, "this copy cannot be begun anew");
                self.stage = Stage::Closed(format!("its copy cannot be begun anew: {error}"));
            }
        }
    }
}

impl Driver {
    /// Refills a backup's copy. Blocks.
    pub(super) fn refill_now(&mut self, region: &Region, context: &Context<'_>) {
        let away = Self::AtDevice("its copy is begun anew");
        let (unusable, attempt) = match std::mem::replace(self, away) {
            Self::Failed(unusable) if let Refill::Due(attempt) = unusable.refill => {
                (*unusable, attempt)
            }
            Self::Backup(copy) if let Refill::Due(attempt) = copy.refill => {
                (copy.into_unusable(), attempt)
            }
            other => {
                *self = other;
                return;
            }
        };
        let anew = match unusable.left {
            Some(left) => Follower::begin_anew(left, unusable.fetches, context),
            None => return *self = Self::failed(unusable.why),
        };
        match anew {
            Ok(mut copy) => {
                copy.step_machine(backup::Event::Prepare { attempt }, context);
                *self = Self::Backup(Box::new(copy));
            }
            Err(error) => {
                tracing::error!(region = region.id.0, %error, "this copy cannot be begun anew");
                let why = format!("this server's copy cannot be begun anew: {error}");
                let failed = Failed {
                    attempt,
                    damaged: false,
                    why: &why,
                };
                failed.tell(region.primary, region.id, context);
                *self = Self::failed(why);
            }
        }
    }

    fn failed(why: String) -> Self {
        Self::Failed(Box::new(Unusable::kept(why, None)))
    }
}

impl Node {
    fn set_asides(&self) -> MutexGuard<'_, SetAsides> {
        let set_aside = self.set_aside.lock();
        set_aside.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was set aside in place of what was set aside of the same region before.
    fn keep_set_aside(&self, left: SetAside) {
        if let Some(before) = self.set_asides().insert(left.region(), left) {
            before.forget();
        }
    }

    /// Device segments of copies that are set aside, but for those of their manifests.
    #[must_use]
    pub fn set_aside_segments(&self) -> usize {
        let set_aside = self.set_asides();
        set_aside.values().map(SetAside::segments).sum()
    }

    /// The regions of which a copy is set aside.
    #[must_use]
    pub fn set_aside_regions(&self) -> Vec<RegionId> {
        self.set_asides().keys().copied().collect()
    }

    /// Where the device has no room, gives up what was kept of logs that were cut, once until there is room. Before the
    /// engines look, which turn writers away. For the background thread; blocks.
    pub(super) fn discard_cut_segments(&self) {
        let store = &self.world.store;
        let full = store.room().is_full();
        if self.was_full.swap(full, Ordering::Relaxed) || !full {
            return;
        }
        match cut_segments::discard_all(store) {
            Ok(0) => {}
            Ok(segments) => tracing::warn!(
                segments,
                "the device is full: what was kept of logs that were cut is given up"
            ),
            Err(error) => tracing::warn!(%error, "cut segments cannot be given up"),
        }
    }

    /// Where the device has no room, gives up what is set aside: writing goes first. Returns whether anything
    /// was. For the background thread; blocks.
    pub(super) fn discard_set_aside(&self) -> bool {
        if !self.world.store.room().is_full() {
            return false;
        }
        let Some((region, left)) = self.set_asides().pop_first() else {
            return false;
        };
        let segments = left.segments();
        match left.discard() {
            Ok(()) => tracing::warn!(
                region = region.0,
                segments,
                "the device is full: the copy that was set aside is given up"
            ),
            Err(error) => {
                tracing::warn!(region = region.0, %error, "what was set aside cannot be given up");
            }
        }
        true
    }
}
