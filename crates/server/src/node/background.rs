//! What moves engines, copies and their care on: the steps of the threads in the background.
//!
//! What is ready is taken from the [schedule](super::schedule), by any of these threads. A region is with one of them
//! at a time, so whatever it does at the device is done by one thread, and a merge of one region holds up no other as
//! long as a thread is free.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, RegionId};
use argosy_device::Waker;
use argosy_engine::{EngineError, Progress};

use super::Node;
use super::context::Context;
use super::region::{Driver, Region, engine_of};
use super::schedule::{Crew, Left, Work};
use super::serving::Serving;
use crate::activity::Activity;

/// How long the chores rest, at most.
const CHORES_EVERY: Duration = Duration::from_millis(200);
/// How long a region rests, at most, that waits for the device, for room or for another region.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Node {
    /// Does the chores, and a step of everything that is ready in the background. For whoever moves a node with one
    /// thread.
    pub fn step_background(&self, now: Instant) -> Progress {
        self.set_now(now);
        self.regions.steppers().wake(Work::Chores);
        let mut progress = Progress::default();
        for crew in [Crew::Logs, Crew::Steppers] {
            let mut made = false;
            for _ in 0..self.regions.steppers().ready(crew, now) {
                made |= self.step_one(crew, now);
            }
            join(&mut progress, self.progress(crew, made, now));
        }
        progress
    }

    /// Does a step of what has been ready the longest, but for logs. For each of several threads.
    pub fn step_next(&self, now: Instant) -> Progress {
        self.step_of(Crew::Steppers, now)
    }

    /// Does a step of the logs that have been ready the longest. For one thread, which no merge holds up.
    pub fn step_logs(&self, now: Instant) -> Progress {
        self.step_of(Crew::Logs, now)
    }

    fn step_of(&self, crew: Crew, now: Instant) -> Progress {
        self.set_now(now);
        let ready = self.regions.steppers().ready(crew, now) > 0;
        let made = ready && self.step_one(crew, now);
        self.progress(crew, made, now)
    }

    fn progress(&self, crew: Crew, made: bool, now: Instant) -> Progress {
        let due = self.regions.steppers().next_due(crew, now);
        Progress {
            made,
            idle_for: due.map(|due| due.since(now)),
            device: false,
        }
    }

    fn step_one(&self, crew: Crew, now: Instant) -> bool {
        self.memory.collect(&self.world);
        let Some(work) = self.regions.steppers().take(crew) else {
            return false;
        };
        let left = match work {
            Work::Chores => self.do_chores(now),
            Work::Logs(id) => match self.region(id) {
                Some(region) => self.step_logs_of(region, now),
                None => Left::default(),
            },
            Work::Region(id) => match self.region(id) {
                Some(region) => self.step_region(region, now),
                None => Left::default(),
            },
        };
        self.regions.steppers().put_back(work, left);
        if left.more && matches!(work, Work::Region(_)) {
            // The room of the device, and what others are told of it, may have changed.
            self.regions.steppers().wake(Work::Chores);
        }
        left.more
    }

    /// Has a step of `region` follow in the background.
    pub(super) fn wake(&self, region: RegionId) {
        self.regions.steppers().wake(Work::Region(region));
    }

    /// Has a step of the logs of `region` follow.
    pub(super) fn wake_logs(&self, region: RegionId) {
        self.regions.steppers().wake(Work::Logs(region));
    }

    /// Has a step of `region` follow once the device has done what this thread is about to ask of it: where the region
    /// is open, a step of its engine asks.
    pub(super) fn await_device(&self, region: &Region) {
        if !region.is_open() {
            self.regions
                .steppers()
                .await_device(Work::Region(region.id()));
        }
    }

    /// What has a step of `region` follow.
    pub(super) fn waker_of(&self, region: RegionId) -> Waker {
        let steppers = Arc::clone(self.regions.steppers());
        Arc::new(move || {
            steppers.wake(Work::Logs(region));
            steppers.wake(Work::Region(region));
        })
    }

    /// What belongs to no region.
    fn do_chores(&self, now: Instant) -> Left {
        self.discard_cut_segments();
        let mut made = self.world.store.give_back_freed(now);
        made |= self.discard_set_aside();
        self.end_quarantine();
        self.tell_room();
        self.tell_troubles(now);
        self.memory.look(now, &self.world);
        self.links.flush();
        self.world.ledger.settle(now);
        if self.has_just_failed() {
            self.regions.steppers().wake_all();
        }
        Left {
            more: made,
            due: Some(now + CHORES_EVERY),
            device: false,
        }
    }

    /// Moves the engine or the copy of one region on, and its care.
    fn step_region(&self, region: &Arc<Region>, now: Instant) -> Left {
        self.discard_cut_segments();
        let mut progress = self.serve_fetches(region.id());
        if let Some(engine) = engine_of(region) {
            let before = self.world.ledger.at(region.place());
            match self.step_engine(&engine, now) {
                Ok(step) => {
                    if !step.made {
                        self.world.ledger.at(before);
                    }
                    join(&mut progress, step);
                }
                Err(error) => region.failed(&error),
            }
        }
        progress.made |= self.work_at_device(region, now);
        progress.idle_for = earlier(progress.idle_for, refill_is_due_in(region, now));
        if let Driver::Backup(copy) = &mut *region.driver() {
            progress.idle_for = earlier(progress.idle_for, copy.report_is_due_in(now));
            join(&mut progress, copy.build(now, &Context { node: self }));
        }
        progress.made |= self.pump(region);
        if region.waiting().is_queueing() && self.retry_queued(region) {
            progress.made |= self.pump(region);
        }
        progress.idle_for = earlier(progress.idle_for, self.scrub(region, now));
        join(&mut progress, self.repair(region, now));
        progress.idle_for = earlier(progress.idle_for, self.sweep_parts(region, now));
        progress.device |= waits(region);
        self.links.flush();
        self.world.ledger.settle(now);
        if progress.device {
            progress.idle_for = earlier(progress.idle_for, Some(LOOK_AGAIN));
        }
        Left {
            more: progress.made,
            due: progress.idle_for.map(|idle| now + idle),
            device: progress.device,
        }
    }

    /// Makes the logs of one region durable, and has what follows from that done.
    fn step_logs_of(&self, region: &Region, now: Instant) -> Left {
        let Some(engine) = engine_of(region) else {
            return Left::default();
        };
        let ledger = &self.world.ledger;
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
            self.pump(region);
            self.links.flush();
            self.wake(region.id());
        }
        ledger.settle(now);
        Left {
            more: progress.made,
            due: progress.idle_for.map(|idle| now + idle),
            device: progress.device,
        }
    }

    fn step_engine(&self, engine: &Serving, now: Instant) -> Result<Progress, EngineError> {
        let _span = self.world.ledger.during(Activity::Compaction);
        engine.step(now)
    }
}

/// Whether something of `region` waits for the device, or for room.
fn waits(region: &Region) -> bool {
    let driver = match &*region.driver() {
        Driver::Primary(driver) => !driver.is_serving(),
        Driver::Backup(copy) => copy.is_at_device(),
        Driver::AtDevice(_) => true,
        Driver::Failed(_) => false,
    };
    driver || region.waiting().is_queueing()
}

/// How long it is until the copy of `region` is refilled, if that was asked for.
fn refill_is_due_in(region: &Region, now: Instant) -> Option<Duration> {
    match &*region.driver() {
        Driver::Primary(driver) => driver.refill_is_due_in(now),
        Driver::Failed(copy) => copy.refill_is_due_in(now),
        Driver::Backup(_) | Driver::AtDevice(_) => None,
    }
}

/// Adds what another part of a step has done.
fn join(progress: &mut Progress, other: Progress) {
    progress.made |= other.made;
    progress.device |= other.device;
    progress.idle_for = earlier(progress.idle_for, other.idle_for);
}

fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
