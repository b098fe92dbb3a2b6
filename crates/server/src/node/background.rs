//! What moves engines, copies and their care on: the steps of the threads in the background.
//!
//! What is ready is taken from the [schedule](super::schedule), by any of these threads. A region is with one of them
//! at a time, so whatever it does at the device is done by one thread, and a merge of one region holds up no other as
//! long as a thread is free.

use std::time::Duration;

use argosy_base::Instant;
use argosy_engine::Progress;

use super::Node;
use super::local::LocalRegion;
use super::schedule::{Crew, Left, Work};

/// How long the chores rest, at most.
const CHORES_EVERY: Duration = Duration::from_millis(200);

impl Node {
    /// Does the chores, and a step of everything that is ready in the background. For whoever moves a node with one
    /// thread.
    pub fn step_background(&self, now: Instant) -> Progress {
        self.context().set_now(now);
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
        self.context().set_now(now);
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
        self.memory.trim_allocator(&self.world);
        let Some(work) = self.regions.steppers().take(crew) else {
            return false;
        };
        let context = &self.context();
        let left = match work {
            Work::Chores => self.do_chores(now),
            Work::Logs(id) => match self.regions.get(id) {
                Some(region) => LocalRegion::new(context, region).step_logs(now),
                None => Left::default(),
            },
            Work::Region(id) => match self.regions.get(id) {
                Some(region) => LocalRegion::new(context, region).step(now),
                None => Left::default(),
            },
        };
        self.regions.steppers().put_back(work, left);
        if left.more && matches!(work, Work::Region(_)) {
            self.regions.note_move();
            // The room of the device, and what others are told of it, may have changed.
            self.regions.steppers().wake(Work::Chores);
        }
        left.more
    }

    /// What belongs to no region.
    fn do_chores(&self, now: Instant) -> Left {
        let context = &self.context();
        let care = &self.device_care;
        care.discard_cut_segments(context);
        let mut made = self.world.store.give_back_freed(now);
        made |= care.discard_set_aside(context);
        care.end_quarantine(context);
        care.tell_room(context);
        self.telling.tell_troubles(&self.reports(), now);
        self.memory.look(now, context);
        self.links.flush();
        self.world.ledger.settle(now);
        if care.has_just_failed(self.world.store.failure().is_some()) {
            self.regions.steppers().wake_all();
        }
        Left {
            more: made,
            due: Some(now + CHORES_EVERY),
            device: false,
        }
    }
}

/// Adds what another part of a step has done.
pub(super) fn join(progress: &mut Progress, other: Progress) {
    progress.made |= other.made;
    progress.device |= other.device;
    progress.idle_for = earlier(progress.idle_for, other.idle_for);
}

/// The shorter of two rests.
pub(super) fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
