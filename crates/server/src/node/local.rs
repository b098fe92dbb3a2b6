//! A region of which there is a copy here, with what may be used of the node.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, ServerId};
use argosy_engine::{BusyReason, EngineError, Progress, Reach};
use argosy_replication::primary::Event;
use argosy_wire::message::Message;

use super::background::{earlier, join};
use super::context::Context;
use super::failing::Failed;
use super::open::OpenRegion;
use super::region::{Driver, Region, engine_of};
use super::schedule::Left;
use super::sending::Wanted;
use super::serving::Serving;
use super::shipper::Granting;
use super::write::Retried;
use super::{awake, repairing, scrubbing, sweeping};
use crate::activity::Activity;
use crate::service::{Begun, ReplyTo, Request, Response};

/// How long a region rests, at most, that waits for the device, for room or for another region.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct LocalRegion<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) region: &'a Region,
}

impl<'a> LocalRegion<'a> {
    /// `region`, which is one of the `context`.
    pub(super) const fn new(context: &'a Context<'a>, region: &'a Region) -> Self {
        Self { context, region }
    }

    /// What it lacks to be as it should be, in words, where this server is its primary.
    pub(super) fn lacks(&self) -> Option<String> {
        match &*self.region.driver() {
            Driver::Primary(driver) => driver.lacks(self.context),
            Driver::Backup(_) | Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => None,
        }
    }

    /// Carries out a request for the region, whose primary this server is.
    pub(super) fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        let begun = self.call_if_open(request, reach, reply);
        begun.unwrap_or_else(|_| Begun::Answered(self.not_open()))
    }

    /// The same, where the region is open; otherwise `reply` comes back.
    pub(super) fn call_if_open(
        &self,
        request: Request<'_>,
        reach: Reach,
        reply: ReplyTo,
    ) -> Result<Begun, ReplyTo> {
        self.context.world.ledger.at(self.region.place());
        let guard = self.region.engine();
        match &*guard {
            Some(engine) => Ok(self.open(engine).call(request, reach, reply)),
            None => Err(reply),
        }
    }

    /// The region, which `engine` serves here.
    pub(super) const fn open<'b>(&self, engine: &'b Arc<Serving>) -> OpenRegion<'b>
    where
        'a: 'b,
    {
        OpenRegion {
            context: self.context,
            region: self.region,
            engine,
        }
    }

    /// Carries the driver on, and sends the answers that are due. Returns whether anything was done.
    pub(super) fn pump(&self) -> bool {
        let Self { context, region } = *self;
        let before = context.world.ledger.at(region.place());
        let (made, has_more) = match &mut *region.driver() {
            _ if !region.is_seated() => (false, false),
            Driver::Primary(driver) => {
                let made = driver.pump(context);
                self.publish(driver);
                (made, driver.has_more())
            }
            Driver::Backup(copy) => (copy.step(context), copy.has_more()),
            Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => (false, false),
        };
        debug_assert!(region.role_fits(), "{:?} {}", region.role(), region.id());
        if !made {
            context.world.ledger.at(before);
        }
        if region.release() || has_more {
            region.active().raise();
        }
        region.bulk_loads().answer(self);
        region.maintained().answer(self);
        made
    }

    /// Queues a request of another server behind those of its writes that need the device, or, if it needs that
    /// itself, for a worker.
    pub(super) fn queue_of_peer(&self, request: Request<'_>, reply: ReplyTo) -> Begun {
        let guard = self.region.engine();
        match &*guard {
            Some(engine) => self.open(engine).queue_of_peer(request, reply),
            None => Begun::Answered(self.not_open()),
        }
    }

    /// Carries out what waits for room or for the device, as far as `reach` goes.
    pub(super) fn retry_queued(&self, reach: Reach) -> Retried {
        let engine = engine_of(self.region);
        engine.map_or_else(Retried::default, |engine| {
            self.open(&engine).retry_queued(reach)
        })
    }

    /// Gives up requests that are past their deadline.
    pub(super) fn expire(&self, now: Instant, due: &mut Vec<(ReplyTo, Response)>) {
        let region = self.region;
        region.bulk_loads().expire(region, now, due);
        region.maintained().expire(self, now, due);
        if region.waiting().len() == 0 {
            return;
        }
        let why = self.lacks();
        let why = why.unwrap_or_else(|| "the region does not keep up".into());
        let why = format!("{}: {why}; retry", region.id());
        let reason = region.waiting().busy.unwrap_or(BusyReason::LogWindows);
        let busy =
            engine_of(region).map_or_else(|| why.clone(), |engine| self.busy_text(&engine, reason));
        let before = due.len();
        region.waiting().expire(now, &why, &busy, due);
        if due.len() > before {
            region.health().gave_up(now);
        }
    }

    /// Moves the engine or the copy on, and its care. In the background.
    pub(super) fn step(&self, now: Instant) -> Left {
        let Self { context, region } = *self;
        context.device_care.discard_cut_segments(context);
        let mut progress = match region.is_away() {
            // What others ask for can be read once the driver is back.
            true => Progress::default(),
            false => context.device_care.fetches().serve(self),
        };
        if let Some(engine) = engine_of(region) {
            let before = context.world.ledger.at(region.place());
            match self.step_engine(&engine, now) {
                Ok(step) => {
                    if !step.made {
                        context.world.ledger.at(before);
                    }
                    join(&mut progress, step);
                }
                Err(error) => region.failed(&error),
            }
        }
        progress.made |= self.work_at_device(now);
        progress.idle_for = earlier(progress.idle_for, work_is_due_in(region, now));
        if !region.is_seated() && !region.is_away() {
            progress.idle_for = earlier(progress.idle_for, Some(region.adapts_at().since(now)));
        }
        if let Driver::Backup(copy) = &mut *region.driver() {
            progress.idle_for = earlier(progress.idle_for, copy.report_is_due_in(now));
            join(&mut progress, copy.build(now, context));
        }
        progress.made |= self.pump();
        progress.made |= context.requests.serve_line(self);
        if region.waiting().is_queueing() && self.retry_queued(Reach::Device).made {
            progress.made |= self.pump();
        }
        awake::take_turns(self, now);
        progress.idle_for = earlier(
            progress.idle_for,
            scrubbing::step(region, now, &context.world.ledger),
        );
        join(&mut progress, repairing::step(self, now));
        progress.idle_for = earlier(
            progress.idle_for,
            sweeping::step(region, now, context.world),
        );
        progress.device |= waits(region);
        context.links.flush();
        context.world.ledger.settle(now);
        if progress.device {
            progress.idle_for = earlier(progress.idle_for, Some(LOOK_AGAIN));
        }
        Left {
            more: progress.made,
            due: progress.idle_for.map(|idle| now + idle),
            device: progress.device,
        }
    }

    /// Makes the logs durable, and has what follows from that done.
    pub(super) fn step_logs(&self, now: Instant) -> Left {
        let Self { context, region } = *self;
        let Some(engine) = engine_of(region) else {
            return Left::default();
        };
        let ledger = &context.world.ledger;
        ledger.at(region.place());
        ledger.turn_to(Activity::LogReplication);
        let progress = match engine.step_logs(now) {
            Ok(progress) => progress,
            Err(error) => {
                // One that serves no more was closed.
                if region.is_open() {
                    region.failed(&error);
                }
                return Left::default();
            }
        };
        if progress.made {
            self.pump();
            context.links.flush();
            context.wake(region.id());
        }
        ledger.settle(now);
        Left {
            more: progress.made,
            due: progress.idle_for.map(|idle| now + idle),
            device: progress.device,
        }
    }

    fn step_engine(&self, engine: &Serving, now: Instant) -> Result<Progress, EngineError> {
        let _span = self.context.world.ledger.during(Activity::Compaction);
        engine.step(now)
    }

    /// Tells the `driver` of the region that the link to `peer` is up, or down.
    pub(super) fn tell_driver(&self, driver: &mut Driver, peer: ServerId, is_up: bool) {
        let (context, primary) = (self.context, self.region.view().primary);
        let member = peer;
        match driver {
            Driver::Primary(driver) if is_up => driver.handle(Event::LinkUp { member }, context),
            Driver::Primary(driver) => driver.handle(Event::LinkDown { member }, context),
            Driver::Backup(copy) if primary == peer && !is_up => copy.link_down(context),
            Driver::Failed(copy) if primary == peer && !is_up => copy.link_down(),
            Driver::Backup(_) | Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => {}
        }
    }

    /// A message about the region, for its driver.
    pub(super) fn handle_message(
        &self,
        driver: &mut Driver,
        peer: ServerId,
        message: &Message<'_>,
    ) {
        let Self { context, region } = *self;
        match driver {
            Driver::Primary(_) if *message == Message::Seated => {
                self.tell_driver(driver, peer, false);
                self.tell_driver(driver, peer, true);
            }
            Driver::Primary(driver) if let Message::MoreWanted { attempt, seq, to } = *message => {
                driver.more_wanted(peer, Wanted { attempt, seq, to }, context);
            }
            Driver::Primary(driver)
                if let Message::Failed {
                    attempt,
                    damaged,
                    why,
                } = *message =>
            {
                let failed = Failed {
                    attempt,
                    damaged,
                    why: &why,
                };
                driver.member_failed(peer, &failed, context);
            }
            Driver::Primary(driver) => {
                if let Message::Report {
                    attempt, windows, ..
                } = message
                {
                    let (region, member) = (region.id(), peer);
                    let backup = Granting {
                        region,
                        member,
                        windows,
                    };
                    driver.windows_granted(*attempt, &backup, context.settings.mutants);
                }
                match primary_event(peer, message) {
                    Some(event) => driver.handle(event, context),
                    None => driver.handle_as_follower(peer, message, context),
                }
            }
            Driver::Backup(copy) => copy.handle(peer, message, context),
            Driver::Failed(unusable) if peer == region.view().primary => {
                unusable.handle(region, message, context);
            }
            Driver::Failed(_) | Driver::AtDevice(_) | Driver::Absent => {}
        }
    }
}

/// Whether something of `region` waits for the device, or for room.
fn waits(region: &Region) -> bool {
    let driver = match &*region.driver() {
        Driver::Primary(driver) => !driver.is_serving() && !driver.waits_for_memory(),
        Driver::Backup(copy) => copy.is_at_device(),
        Driver::AtDevice(_) => true,
        Driver::Failed(_) | Driver::Absent => false,
    };
    driver || region.waiting().is_queueing()
}

/// How long it is until the copy of `region` is refilled, if that was asked for, or asks for the memory that its
/// promotion takes.
fn work_is_due_in(region: &Region, now: Instant) -> Option<Duration> {
    match &*region.driver() {
        Driver::Primary(driver) => driver.work_is_due_in(now),
        Driver::Failed(copy) => copy.refill_is_due_in(now),
        Driver::Backup(_) | Driver::AtDevice(_) | Driver::Absent => None,
    }
}

/// What a backup's message means to the primary's machine; `None` where it is meant for the copy
/// of a primary that adopts.
fn primary_event(member: ServerId, message: &Message<'_>) -> Option<Event> {
    Some(match message {
        Message::Report {
            attempt,
            position,
            standing,
            ..
        } => Event::Report {
            member,
            attempt: *attempt,
            standing: *standing,
            position: *position,
        },
        Message::CaughtUp { attempt, position } => Event::CaughtUp {
            member,
            attempt: *attempt,
            position: *position,
        },
        Message::Applied { attempt, seq } => Event::EditApplied {
            member,
            attempt: *attempt,
            seq: *seq,
        },
        Message::CheckpointWanted { attempt } => Event::CheckpointWanted {
            member,
            attempt: *attempt,
        },
        Message::Flushed { attempt, range } => Event::Flushed {
            member,
            attempt: *attempt,
            range: *range,
        },
        Message::Awake { attempt } => Event::Awake {
            member,
            attempt: *attempt,
        },
        _ => return None,
    })
}
