//! Which regions have something to do in the background, and which of them a stepper takes next.
//!
//! A region that has nothing to do costs nothing: no stepper looks at it. It becomes ready when somebody wakes it, when
//! the moment comes that its last step named, and, where that step said so, when the device has done something. Each
//! region is with one stepper at most.
//!
//! | state    | woken | taken    | returned                          |
//! |----------|-------|----------|-----------------------------------|
//! | resting  | ready |          |                                   |
//! | ready    | ready | stepping |                                   |
//! | stepping | again |          | ready if it has more to do, or resting |
//! | again    | again |          | ready                             |
//!
//! Ready regions are taken in the order in which they became ready, so none waits behind more than one step of each
//! other. What belongs to no region, such as the room of the device, is work of the same kind: [`Work::Chores`].
//! Logs are made durable by a thread of their own ([`Crew::Logs`]): all steppers may be at merges.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use argosy_base::{Instant, RegionId};
use argosy_device::Waker;
use parking_lot::{Mutex, MutexGuard};

use super::World;

/// What a stepper takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// What belongs to no region.
    Chores,
    /// What makes the logs of one region durable.
    Logs(RegionId),
    /// The engine, the copy and the care of one region.
    Region(RegionId),
}

impl Work {
    const fn crew(self) -> Crew {
        match self {
            Self::Logs(_) => Crew::Logs,
            Self::Chores | Self::Region(_) => Crew::Steppers,
        }
    }
}

/// Threads that do the same kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crew {
    /// One thread.
    Logs,
    /// As many as are configured.
    Steppers,
}

impl Crew {
    const ALL: [Self; 2] = [Self::Logs, Self::Steppers];
}

/// What a step leaves to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// There is more to do at once.
    pub(super) more: bool,
    /// When there is something to do next, if nobody wakes it before.
    pub(super) due: Option<Instant>,
    /// Whether it waits for the device.
    pub(super) device: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Resting,
    Ready,
    Stepping,
    Again,
}

#[derive(Debug, Default)]
struct Slot {
    state: State,
    due: Option<Instant>,
    /// How often the device had done something when a stepper took it.
    device: u64,
}

/// What one crew has before it.
#[derive(Debug, Default)]
struct Queue {
    /// In state `Ready`, in the order in which they came to it.
    ready: VecDeque<Work>,
    /// The moments of the slots.
    due: BTreeSet<(Instant, Work)>,
}

/// See the module documentation.
#[derive(Debug, Default)]
struct Schedule {
    slots: BTreeMap<Work, Slot>,
    /// By [`Crew`].
    queues: [Queue; Crew::ALL.len()],
    /// Those that wait for the device.
    at_device: BTreeSet<Work>,
    /// How often the device has done something.
    device: u64,
}

impl Schedule {
    /// Everything is ready: first the chores, then the regions.
    fn new(regions: impl Iterator<Item = RegionId>) -> Self {
        let mut schedule = Self::default();
        let of_region = |region| [Work::Logs(region), Work::Region(region)];
        for work in std::iter::once(Work::Chores).chain(regions.flat_map(of_region)) {
            schedule.slots.insert(work, Slot::default());
            schedule.wake(work);
        }
        schedule
    }

    fn queue(&mut self, crew: Crew) -> &mut Queue {
        &mut self.queues[crew as usize]
    }

    fn is_ready(&self, crew: Crew) -> bool {
        !self.queues[crew as usize].ready.is_empty()
    }

    /// Has a step of `work` follow. Returns whether it became ready by that.
    fn wake(&mut self, work: Work) -> bool {
        let Some(slot) = self.slots.get_mut(&work) else {
            return false;
        };
        match slot.state {
            State::Resting => {
                slot.state = State::Ready;
                self.queue(work.crew()).ready.push_back(work);
                true
            }
            State::Stepping => {
                slot.state = State::Again;
                false
            }
            State::Ready | State::Again => false,
        }
    }

    /// Has `work` wait for the device: another thread is about to ask something of it.
    fn await_device(&mut self, work: Work) {
        let Some(slot) = self.slots.get_mut(&work) else {
            return;
        };
        match slot.state {
            State::Resting => _ = self.at_device.insert(work),
            State::Stepping => slot.state = State::Again,
            State::Ready | State::Again => {}
        }
    }

    /// The device has done something. Returns for whom something became ready by that.
    fn device_done(&mut self) -> Vec<Crew> {
        self.device += 1;
        let waiting = std::mem::take(&mut self.at_device).into_iter();
        let woken: Vec<Work> = waiting.filter(|work| self.wake(*work)).collect();
        let is_woken = |crew: &Crew| woken.iter().any(|work| work.crew() == *crew);
        Crew::ALL.into_iter().filter(is_woken).collect()
    }

    /// Makes ready what is due for `crew` at `now`.
    fn look_at(&mut self, crew: Crew, now: Instant) {
        while let Some((at, work)) = self.queue(crew).due.first().copied() {
            if at > now {
                return;
            }
            self.queue(crew).due.pop_first();
            if let Some(slot) = self.slots.get_mut(&work) {
                slot.due = None;
            }
            self.wake(work);
        }
    }

    /// Takes what has been ready the longest for `crew`. It is returned by [`put_back`](Self::put_back).
    fn take(&mut self, crew: Crew) -> Option<Work> {
        let work = self.queue(crew).ready.pop_front()?;
        let slot = self.slots.get_mut(&work)?;
        slot.state = State::Stepping;
        slot.device = self.device;
        if let Some(at) = slot.due.take() {
            self.queue(work.crew()).due.remove(&(at, work));
        }
        self.at_device.remove(&work);
        Some(work)
    }

    fn put_back(&mut self, work: Work, left: Left) {
        let Some(slot) = self.slots.get_mut(&work) else {
            return;
        };
        // What the device did during the step may have come after the step looked.
        let missed = left.device && slot.device != self.device;
        let again = left.more || missed || slot.state == State::Again;
        slot.state = State::Resting;
        slot.due = left.due;
        if let Some(at) = left.due {
            self.queue(work.crew()).due.insert((at, work));
        }
        if left.device {
            self.at_device.insert(work);
        }
        if again {
            self.wake(work);
        }
    }
}

/// The schedule of a server, for all of its threads.
pub(super) struct Steppers {
    schedule: Mutex<Schedule>,
    /// Wakes a thread of a crew that sleeps.
    wakers: Wakers,
    /// How often a region, or its logs, was taken.
    #[cfg(test)]
    region_steps: std::sync::atomic::AtomicU64,
}

/// What wakes the threads of a node that sleep.
#[derive(Clone)]
pub struct Wakers {
    /// One that calls [`Node::step_logs`](super::Node::step_logs).
    pub logs: Waker,
    /// One that calls [`Node::step_next`](super::Node::step_next).
    pub steppers: Waker,
}

impl Wakers {
    /// Both wake the one thread that there is: it calls [`Node::step_background`](super::Node::step_background).
    #[must_use]
    pub fn of_one(waker: Waker) -> Self {
        Self {
            logs: Arc::clone(&waker),
            steppers: waker,
        }
    }

    fn wake(&self, crew: Crew) {
        match crew {
            Crew::Logs => (self.logs)(),
            Crew::Steppers => (self.steppers)(),
        }
    }
}

impl Steppers {
    /// Those of a server with these regions: everything is ready. From now on the device wakes whoever waits for it.
    pub(super) fn of(world: &World, regions: impl Iterator<Item = RegionId>) -> Arc<Self> {
        let steppers = Arc::new(Self {
            schedule: Mutex::new(Schedule::new(regions)),
            wakers: world.wakers.clone(),
            #[cfg(test)]
            region_steps: Default::default(),
        });
        world.store.set_waker({
            let steppers = Arc::clone(&steppers);
            Arc::new(move || steppers.device_done())
        });
        steppers
    }

    /// Has a step of `work` follow.
    pub(super) fn wake(&self, work: Work) {
        let is_ready = self.schedule().wake(work);
        if is_ready {
            self.wakers.wake(work.crew());
        }
    }

    /// Has a step of everything follow.
    pub(super) fn wake_all(&self) {
        let mut schedule = self.schedule();
        let all: Vec<Work> = schedule.slots.keys().copied().collect();
        for work in all {
            schedule.wake(work);
        }
        drop(schedule);
        Crew::ALL
            .into_iter()
            .for_each(|crew| self.wakers.wake(crew));
    }

    /// Has a step of `work` follow once the device has done something. To be called before the device is asked.
    pub(super) fn await_device(&self, work: Work) {
        self.schedule().await_device(work);
    }

    /// The device has done something.
    pub(super) fn device_done(&self) {
        let woken = self.schedule().device_done();
        woken.into_iter().for_each(|crew| self.wakers.wake(crew));
    }

    /// How much is ready for `crew` at `now`.
    pub(super) fn ready(&self, crew: Crew, now: Instant) -> usize {
        let mut schedule = self.schedule();
        schedule.look_at(crew, now);
        schedule.queue(crew).ready.len()
    }

    /// Takes what has been ready the longest for `crew`. Another thread of it is woken where more is ready.
    pub(super) fn take(&self, crew: Crew) -> Option<Work> {
        let mut schedule = self.schedule();
        let work = schedule.take(crew);
        let more = schedule.is_ready(crew);
        drop(schedule);
        #[cfg(test)]
        self.region_steps.fetch_add(
            u64::from(work.is_some_and(|work| work != Work::Chores)),
            std::sync::atomic::Ordering::Relaxed,
        );
        if more {
            self.wakers.wake(crew);
        }
        work
    }

    /// Returns what was taken.
    pub(super) fn put_back(&self, work: Work, left: Left) {
        self.schedule().put_back(work, left);
    }

    /// When something is due for `crew`, if nobody wakes anything before; `None`: never. Something that is ready is due
    /// now.
    pub(super) fn next_due(&self, crew: Crew, now: Instant) -> Option<Instant> {
        let mut schedule = self.schedule();
        match schedule.is_ready(crew) {
            true => Some(now),
            false => schedule.queue(crew).due.first().map(|(at, _)| *at),
        }
    }

    /// How often a region, or its logs, was taken.
    #[cfg(test)]
    pub(super) fn region_steps(&self) -> u64 {
        self.region_steps.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// When a region, or its logs, is due the next time, if nobody wakes any.
    #[cfg(test)]
    pub(super) fn region_due(&self) -> Option<Instant> {
        let schedule = self.schedule();
        let due = schedule.queues.iter().flat_map(|queue| &queue.due);
        let due = due.filter(|(_, work)| *work != Work::Chores);
        due.map(|(at, _)| *at).min()
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Work = Work::Region(RegionId(1));
    const B: Work = Work::Region(RegionId(2));

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// All of two regions and the chores at rest.
    fn resting() -> Schedule {
        let mut schedule = Schedule::new([RegionId(1), RegionId(2)].into_iter());
        for crew in Crew::ALL {
            while let Some(work) = schedule.take(crew) {
                schedule.put_back(work, Left::default());
            }
        }
        schedule
    }

    #[test]
    fn everything_is_ready_at_first_and_the_chores_come_before_regions() {
        let mut schedule = Schedule::new([RegionId(1), RegionId(2)].into_iter());
        let taken: Vec<_> = std::iter::from_fn(|| schedule.take(Crew::Steppers)).collect();
        assert_eq!(taken, [Work::Chores, A, B]);
    }

    #[test]
    fn a_region_is_with_one_stepper_and_is_stepped_again_if_it_was_woken_meanwhile() {
        let mut schedule = resting();
        assert!(schedule.wake(A));
        assert!(!schedule.wake(A), "it is ready already");
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
        assert!(!schedule.wake(A), "it is with a stepper");
        assert_eq!(schedule.take(Crew::Steppers), None);
        schedule.put_back(A, Left::default());
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
        schedule.put_back(A, Left::default());
        assert_eq!(schedule.take(Crew::Steppers), None);
    }

    #[test]
    fn what_has_more_to_do_goes_behind_what_is_ready() {
        let mut schedule = resting();
        schedule.wake(A);
        schedule.wake(B);
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
        let left = Left {
            more: true,
            ..Left::default()
        };
        schedule.put_back(A, left);
        assert_eq!(schedule.take(Crew::Steppers), Some(B));
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
    }

    #[test]
    fn a_moment_makes_ready_and_a_step_before_it_takes_it_back() {
        let mut schedule = resting();
        let left = Left {
            due: Some(at(10)),
            ..Left::default()
        };
        for work in [A, B] {
            schedule.wake(work);
            schedule.take(Crew::Steppers);
            schedule.put_back(work, left);
        }
        schedule.look_at(Crew::Steppers, at(9));
        assert_eq!(schedule.take(Crew::Steppers), None);
        schedule.wake(B);
        assert_eq!(schedule.take(Crew::Steppers), Some(B));
        schedule.put_back(B, Left::default());
        schedule.look_at(Crew::Steppers, at(10));
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
        assert_eq!(schedule.take(Crew::Steppers), None);
        assert!(schedule.queue(Crew::Steppers).due.is_empty());
    }

    #[test]
    fn the_device_wakes_those_alone_that_wait_for_it() {
        let mut schedule = resting();
        schedule.wake(A);
        schedule.take(Crew::Steppers);
        let left = Left {
            device: true,
            ..Left::default()
        };
        schedule.put_back(A, left);
        assert_eq!(schedule.device_done(), [Crew::Steppers]);
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
        schedule.put_back(A, Left::default());
        assert_eq!(schedule.device_done(), []);
        assert_eq!(schedule.take(Crew::Steppers), None);
    }

    #[test]
    fn what_the_device_does_during_a_step_is_not_lost() {
        let mut schedule = resting();
        schedule.wake(A);
        schedule.take(Crew::Steppers);
        // A write that the step has submitted ends after the step looked.
        assert_eq!(schedule.device_done(), []);
        let left = Left {
            device: true,
            ..Left::default()
        };
        schedule.put_back(A, left);
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
    }

    #[test]
    fn what_another_thread_asks_of_the_device_wakes_the_region_when_it_is_done() {
        let mut schedule = resting();
        schedule.await_device(A);
        assert_eq!(schedule.take(Crew::Steppers), None);
        assert_eq!(schedule.device_done(), [Crew::Steppers]);
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
        schedule.await_device(A);
        schedule.put_back(A, Left::default());
        assert_eq!(
            schedule.take(Crew::Steppers),
            Some(A),
            "the step may have looked before"
        );
    }

    #[test]
    fn logs_are_taken_by_their_own_crew_alone() {
        let mut schedule = resting();
        let logs = Work::Logs(RegionId(1));
        schedule.wake(logs);
        schedule.wake(A);
        assert_eq!(schedule.take(Crew::Steppers), Some(A));
        assert_eq!(schedule.take(Crew::Steppers), None);
        assert_eq!(schedule.take(Crew::Logs), Some(logs));
        let left = Left {
            due: Some(at(10)),
            device: true,
            ..Left::default()
        };
        schedule.put_back(logs, left);
        schedule.look_at(Crew::Steppers, at(10));
        assert_eq!(schedule.take(Crew::Steppers), None);
        assert_eq!(schedule.device_done(), [Crew::Logs]);
        assert_eq!(schedule.take(Crew::Logs), Some(logs));
    }

    #[test]
    fn what_is_not_known_is_not_woken() {
        let mut schedule = resting();
        assert!(!schedule.wake(Work::Region(RegionId(3))));
        assert_eq!(schedule.take(Crew::Steppers), None);
    }
}
