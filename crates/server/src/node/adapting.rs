//! How a region's driver takes another part while the server runs.
//!
//! A [`View`] is replaced at once, and with it the [`role`]: from then on nothing is shown by a server
//! that is not the primary any more. The driver follows in the background, since that waits for the device: until its
//! *seat*, the epoch for which it was made, is that of the view, it neither takes nor sends anything, and what comes
//! for it is [held](super::held).
//!
//! ```text
//! driver \ part    the primary                         a backup, or nothing
//! Primary          goes on with another group,         its store becomes a copy again (demotion)
//!                  or is demoted, and promoted anew
//! Backup           its copy waits to be promoted       its copy is detached, and follows whoever prepares it
//! Failed           stays, or waits to be refilled      stays
//! Absent           -                                   a copy is made, for a backup
//! ```
//!
//! The primary and a copy may take their places in any order, and what is said to one that has not is not heard. So
//! each begins when it has: the primary prepares whom it has a link to, and a copy says that it is *seated*, and is
//! prepared again. Links, which all regions share, stay up.
//!
//! A copy that is detached has taken its windows back: whoever wrote to them cannot any more (invariant I6). Only then
//! does the server [say](super::to_master) where the copy stands, so that what it says stays true until it is prepared.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::{CopyError, CopyOf, Survivors};
use argosy_wire::message::Message;

use super::context::Context;
use super::follower::Follower;
use super::local::LocalRegion;
use super::primary::PrimaryDriver;
use super::refilling::Unusable;
use super::region::{Driver, send_all};
use super::role;
use super::serving::Serving;
use super::stage::Stage;
use super::views::{Part, View};
use super::whole::WholeMark;
use super::windows::WindowsOf;

/// Between two attempts to adapt, where an edit was being applied, or there was no memory or no room.
const AGAIN: Duration = Duration::from_millis(10);
/// What a driver does meanwhile, for people.
const WHAT: &str = "its group has changed";

/// What became of an attempt to adapt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The driver is what the view says, and nobody has heard of it.
    Begins,
    /// Its group alone has changed: whoever it speaks to goes on.
    GoesOn,
    /// It is as before, and is tried again.
    Later,
}

/// A driver behind an attempt to adapt it.
struct Adapted {
    driver: Driver,
    how: How,
}

impl Adapted {
    const fn begins(driver: Driver) -> Self {
        let how = How::Begins;
        Self { driver, how }
    }

    const fn goes_on(driver: Driver) -> Self {
        let how = How::GoesOn;
        Self { driver, how }
    }

    const fn later(driver: Driver) -> Self {
        let how = How::Later;
        Self { driver, how }
    }
}

/// Has the driver of a region take the part that the view says, if it has another one. Returns whether it did anything.
/// In the background; blocks.
pub(super) fn adapt(local: &LocalRegion<'_>, now: Instant) -> bool {
    let LocalRegion { context, region } = *local;
    let view = Arc::clone(&region.view());
    if region.is_seated() || region.adapts_at() > now {
        return false;
    }
    let how = match stays_absent(local, &view) {
        true => How::GoesOn,
        false => local.at_device(WHAT, |driver| {
            let before = std::mem::replace(driver, Driver::AtDevice(WHAT));
            let adapted = (Adapter { local }).adapted(before, &view);
            *driver = adapted.driver;
            adapted.how
        }),
    };
    if how == How::Later {
        region.adapt_again_at(now + AGAIN);
        return false;
    }
    if matches!(&*region.driver(), Driver::Failed(_)) {
        region.turn(role::Event::Failed);
    }
    region.seat(&view);
    if how == How::Begins {
        begin(local, &view);
    }
    region.active().raise();
    context.world.fabric.notify(context.id);
    context.wake(region.id());
    true
}

/// Whether there is no copy, and `view` asks for none. Nothing is done at the device then, so that nobody takes it for
/// a copy that is there.
fn stays_absent(local: &LocalRegion<'_>, view: &View) -> bool {
    let LocalRegion { context, region } = *local;
    let is_absent = !region.has_copy();
    is_absent && view.part_of(context.id) != Part::Backup
}

/// The driver of a region has taken its place under `view`: speaks to whoever it has to do with.
fn begin(local: &LocalRegion<'_>, view: &View) {
    let LocalRegion { context, region } = *local;
    match view.part_of(context.id) {
        Part::Primary => {
            let mut driver = region.driver();
            for peer in context.others(region.id()) {
                let is_open = context.link(peer).is_open();
                if is_open {
                    local.tell_driver(&mut driver, peer, true);
                }
            }
        }
        Part::Backup if view.is_led => {
            context.send(view.primary, region.id(), &Message::Seated);
        }
        Part::Backup | Part::Nothing => {}
    }
}

/// Makes drivers of other parts.
struct Adapter<'a> {
    local: &'a LocalRegion<'a>,
}

impl Adapter<'_> {
    fn adapted(&self, driver: Driver, view: &View) -> Adapted {
        let part = view.part_of(self.local.context.id);
        match driver {
            Driver::Primary(driver) => self.primary_adapted(*driver, part, view),
            Driver::Backup(copy) if part == Part::Backup && copy.follows(view) => {
                Adapted::goes_on(Driver::Backup(Box::new(self.follows_on(*copy, view))))
            }
            Driver::Backup(copy) => self.backup_adapted(*copy, part, view),
            Driver::Failed(unusable) => Adapted::begins(Driver::Failed(unusable)),
            Driver::Absent if part == Part::Backup => self.made(view),
            Driver::Absent => Adapted::goes_on(Driver::Absent),
            Driver::AtDevice(what) => Adapted::later(Driver::AtDevice(what)),
        }
    }

    fn primary_adapted(&self, mut driver: PrimaryDriver, part: Part, view: &View) -> Adapted {
        if part == Part::Primary && driver.group.since() == view.since && driver.is_serving() {
            driver.regroup(view, self.local.context);
            return Adapted::goes_on(Driver::Primary(Box::new(driver)));
        }
        let copy = match self.demoted(driver, view) {
            Ok(copy) => copy,
            Err(unusable) => return Adapted::begins(Driver::Failed(unusable)),
        };
        self.backup_adapted(copy, part, view)
    }

    /// The copy that the store of a primary was.
    fn demoted(&self, driver: PrimaryDriver, view: &View) -> Result<Follower, Box<Unusable>> {
        let LocalRegion { context, region } = *self.local;
        region.end_serving();
        let mut due = Vec::new();
        region
            .waiting()
            .give_up("another server serves the region now; retry", &mut due);
        send_all(due);
        if let Some(next) = context.memory.permits().forget(region.id()) {
            context.wake(next);
        }
        let (stage, mark) = driver.into_parts();
        match stage {
            Stage::Opening(copy) => Ok(*copy),
            Stage::Damaged(unusable) => Err(unusable),
            Stage::Closed(why) => Err(Box::new(Unusable::kept(why, None))),
            Stage::Serving(engine) => self.demote(&engine, mark, view),
        }
    }

    fn demote(
        &self,
        engine: &Serving,
        mark: Option<WholeMark>,
        view: &View,
    ) -> Result<Follower, Box<Unusable>> {
        let LocalRegion { context, region } = *self.local;
        let id = region.id();
        let failed = |error: &CopyError, left| {
            tracing::error!(region = id.0, %error, "this store cannot become a copy again");
            let why = format!("its store cannot become a copy again: {error}");
            Box::new(match error.is_damage() {
                true => Unusable::damaged(why, left),
                false => Unusable::kept(why, left),
            })
        };
        let of_region = WindowsOf {
            region: id,
            logs: context.memory.engine().logs(),
        };
        let world = context.world;
        let mark = mark.map_or_else(|| WholeMark::renew(id, false, world), Ok);
        let mark = mark.map_err(|error| failed(&error.into(), None))?;
        let fresh = of_region.fresh(true, world);
        let fresh = fresh.map_err(|error| failed(&error.into(), None))?;
        let replica = engine.demote(fresh);
        let replica = replica.map_err(|not| failed(&not.error, not.left))?;
        let kept = of_region.keep(world);
        kept.map_err(|error| failed(&error.into(), None))?;
        tracing::info!(region = id.0, epoch = view.epoch.0, "region handed over");
        Ok(Follower::of(id, view, replica, mark).with_fresh_windows())
    }

    /// A backup's copy whose group alone has changed.
    fn follows_on(&self, mut copy: Follower, view: &View) -> Follower {
        let context = self.local.context;
        if !view.has_member(context.id) {
            copy.not_whole(context);
        }
        copy
    }

    /// A copy that nobody has written to before under `view`.
    fn backup_adapted(&self, mut copy: Follower, part: Part, view: &View) -> Adapted {
        let LocalRegion { context, region } = *self.local;
        let id = region.id();
        if copy.failed().is_some() {
            return Adapted::begins(Driver::Backup(Box::new(copy)));
        }
        match copy.sit(view, context) {
            Ok(true) => {}
            Ok(false) => return Adapted::later(Driver::Backup(Box::new(copy))),
            Err(error) => {
                copy.fail_by(&error, context);
                return Adapted::begins(Driver::Backup(Box::new(copy)));
            }
        }
        // It may have been the primary's.
        if let Some(server) = self.own_levels(view)
            && copy.failed().is_none()
            && let Err(error) = copy.build_levels(server)
        {
            copy.fail_by(&error, context);
        }
        if part != Part::Primary || copy.failed().is_some() {
            return Adapted::begins(Driver::Backup(Box::new(copy)));
        }
        if !copy.replica().is_at_rest() {
            context.memory.permits().take_anyway(id);
        }
        let builds = context.views.map().replication() == Replication::BuildIndex;
        let mutants = context.settings.replication_mutants;
        let mut driver = PrimaryDriver::new(id, view, Ok(copy), builds, mutants);
        if context.leases().binds(id) {
            driver.wait_for_lease();
        }
        Adapted::begins(Driver::Primary(Box::new(driver)))
    }

    /// A copy of a region of which this server has none.
    fn made(&self, view: &View) -> Adapted {
        let LocalRegion { context, region } = *self.local;
        let id = region.id();
        let copy = CopyOf {
            store: &context.world.store,
            region: id,
            own_levels: self.own_levels(view),
        };
        match made(&copy, view, context) {
            Ok(copy) => Adapted::begins(Driver::Backup(Box::new(copy))),
            Err(error) if error.is_full() => Adapted::later(Driver::Absent),
            Err(error) => {
                tracing::error!(region = id.0, %error, "a copy cannot be made");
                let why = format!("a copy cannot be made: {error}");
                Adapted::begins(Driver::Failed(Box::new(Unusable::kept(why, None))))
            }
        }
    }

    /// As which server a copy builds levels of its own, if it does.
    fn own_levels(&self, view: &View) -> Option<ServerId> {
        let me = self.local.context.id;
        let builds = self.local.context.views.map().replication() == Replication::BuildIndex;
        (builds && view.part_of(me) != Part::Primary).then_some(me)
    }
}

/// A new copy of a region of which this server has none. Blocks.
fn made(copy: &CopyOf<'_>, view: &View, context: &Context<'_>) -> Result<Follower, CopyError> {
    let (world, engine) = (context.world, context.memory.engine());
    let of_region = WindowsOf {
        region: copy.region,
        logs: engine.logs(),
    };
    let mark = WholeMark::renew(copy.region, false, world)?;
    let needed = engine.needs_memory(&Survivors::new());
    let replica = engine.create(copy, of_region.fresh(needed, world)?)?;
    of_region.keep(world)?;
    Ok(Follower::of(copy.region, view, replica, mark))
}
