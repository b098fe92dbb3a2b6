//! Requests that need the device, and the workers that carry them out.
//!
//! A thread that serves clients or other servers asks the service for what is in memory first. What needs the device
//! becomes a *task* in the one queue of all these threads. A worker takes the oldest, calls the service, which may
//! block it, and sends the answer where the task says. A worker without a task sleeps.
//!
//! Gets that wait one behind the other are taken together, up to [`GETS_MAX`]: they are looked up together, and read
//! in one submission to the device. So that they come together, a thread pushes what it finds in a round, and wakes a
//! worker at the round's end (`Tasks::ring`). A worker that leaves tasks behind wakes the next.
//!
//! The queue is bounded, in tasks and in bytes (I8). A thread whose task finds no room has two ways. Where it may
//! wait for the device, it carries the task out itself. Otherwise it keeps the task, takes nothing more from that
//! client, and is nudged when there is room. Threads that wait for room have an order: nobody's task goes into the
//! queue before that of the thread that has waited longest, so that a long one finds room, too.
//!
//! A thread that moves links and messages must not wait for the device at all: what it has for workers beside plain
//! requests is an *errand*, a piece of work in the same queue.
//!
//! Tasks have no order among them. Whoever needs one keeps back what must not overtake: a native client what it laid
//! behind a write (`Away`), a RESP session what concerns the same keys (`resp/holds.rs`).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use argosy_engine::Reach;
use argosy_wire::api::{Plan, Scratch};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::service::{Begun, KeyList, ReplySink, ReplyTo, Request, Service};

/// Bytes of tasks from which on no more are queued.
const BYTES_MAX: usize = 1 << 20;
/// Most gets that a worker takes at a time.
pub const GETS_MAX: usize = 32;
/// What an operation of a batch takes beside its key and its value.
const OP_BYTES: usize = 128;

/// Set while a write has been handed to the workers and has not been carried out.
pub(crate) type Away = Arc<AtomicBool>;

/// A request for a worker, and where its answer goes.
pub(crate) struct Task {
    plan: Plan,
    scratch: Scratch,
    pub(crate) reply: ReplyTo,
    /// Cleared when the request has been carried out.
    away: Option<Away>,
}

impl Task {
    pub(crate) fn new(request: Request<'_>, reply: ReplyTo) -> Self {
        let mut scratch = Scratch::default();
        Self {
            plan: scratch.keep(request),
            scratch,
            reply,
            away: None,
        }
    }

    /// The same, for a request whose client waits until it has been carried out.
    pub(crate) fn with_away(self, away: Option<Away>) -> Self {
        Self { away, ..self }
    }

    fn request(&self) -> Request<'_> {
        self.scratch.request(self.plan)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + scratch_bytes(&self.scratch)
    }
}

/// What a request keeps that is made of `scratch`.
pub(crate) fn scratch_bytes(scratch: &Scratch) -> usize {
    let Scratch {
        key,
        batch,
        range,
        keys,
    } = scratch;
    let ends = range.from.len() + range.to.as_ref().map_or(0, Vec::len);
    let batch = batch.bytes() + batch.len() * OP_BYTES;
    key.len() + keys.bytes() + batch + ends
}

/// Something else for a worker to do. What it answers, it sends itself.
pub(crate) struct Errand {
    run: Box<dyn FnOnce() + Send>,
    bytes: usize,
}

impl Errand {
    /// Has a worker do `run`.
    pub(crate) fn new(run: impl FnOnce() + Send + 'static) -> Self {
        Self {
            run: Box::new(run),
            bytes: size_of::<Self>(),
        }
    }

    /// Has a worker carry `request` out by `call`, and send what is answered at once.
    pub(crate) fn call(
        request: Request<'_>,
        reply: ReplyTo,
        call: impl FnOnce(Request<'_>, ReplyTo) -> Begun + Send + 'static,
    ) -> Self {
        let mut scratch = Scratch::default();
        let plan = scratch.keep(request);
        let bytes = size_of::<Task>() + scratch_bytes(&scratch);
        let run = move || {
            let begun = call(scratch.request(plan), reply.clone());
            if let Begun::Answered(response) = begun {
                reply.send(response);
            }
        };
        Self {
            bytes,
            ..Self::new(run)
        }
    }
}

/// What lies in the queue.
#[expect(
    clippy::large_enum_variant,
    reason = "almost all are tasks, which are not to cost an allocation more"
)]
pub(crate) enum Item {
    Task(Task),
    Errand(Errand),
}

impl From<Task> for Item {
    fn from(task: Task) -> Self {
        Self::Task(task)
    }
}

impl From<Errand> for Item {
    fn from(errand: Errand) -> Self {
        Self::Errand(errand)
    }
}

impl Item {
    fn is_get(&self) -> bool {
        matches!(self, Self::Task(task) if task.plan == Plan::Get)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Task(task) => task.bytes(),
            Self::Errand(errand) => errand.bytes,
        }
    }
}

/// The queue. See the module documentation.
#[derive(Default)]
pub struct Tasks {
    queue: Mutex<Queue>,
    /// Workers without a task sleep on it.
    bell: Condvar,
    /// Tasks were pushed, and no worker has been woken since. Changed under the lock.
    pushed: AtomicBool,
    /// A task found no room, and nobody has said since that there is some. Changed under the lock.
    full: AtomicBool,
    tasks_max: usize,
    /// Threads that carry them out.
    workers: AtomicUsize,
    /// The threads that wait for room.
    threads: Mutex<Vec<Arc<dyn ReplySink>>>,
    done: AtomicU64,
    batches: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Item>,
    bytes: usize,
    /// Threads whose last task found no room, in the order in which they came.
    turns: VecDeque<usize>,
    /// Workers that sleep.
    idle: usize,
    closed: bool,
}

impl Queue {
    /// Takes the oldest task, and the gets behind it if it is one.
    fn take(&mut self, batch: &mut Vec<Item>) {
        while let Some(task) = self.tasks.front()
            && (batch.is_empty() || task.is_get() && batch[0].is_get() && batch.len() < GETS_MAX)
        {
            self.bytes -= task.bytes();
            batch.extend(self.tasks.pop_front());
        }
    }
}

/// What a queue tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Threads that carry requests out.
    pub workers: usize,
    /// Requests that wait for a worker.
    pub queued: usize,
    /// Requests that were carried out.
    pub done: u64,
    /// How often a worker took one, or several gets together.
    pub batches: u64,
    /// Requests that found no room at first.
    pub queue_full: u64,
}

impl Tasks {
    /// A queue of at most `tasks_max` requests, at least one.
    #[must_use]
    pub fn new(tasks_max: usize) -> Self {
        Self {
            tasks_max: tasks_max.max(1),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic aborts the process; in tests the queue is consistent after every line.
        self.queue.lock()
    }

    /// A number for a thread that waits for room, and is nudged when there is some.
    pub(crate) fn join(&self, thread: Arc<dyn ReplySink>) -> usize {
        let mut threads = self.threads.lock();
        threads.push(thread);
        threads.len() - 1
    }

    /// Hands a task over. Gives it back where there is no room, or a thread waits for room.
    pub(crate) fn push(&self, task: Task) -> Option<Task> {
        match self.push_item(task.into()) {
            Some(Item::Task(task)) => Some(task),
            _ => None,
        }
    }

    /// Hands an errand over. Returns whether there was room.
    pub(crate) fn send(&self, errand: Errand) -> bool {
        self.push_item(errand.into()).is_none()
    }

    fn push_item(&self, task: Item) -> Option<Item> {
        let mut queue = self.lock();
        if !queue.turns.is_empty() || !self.has_room(&queue, &task) {
            drop(queue);
            self.count_refusal();
            return Some(task);
        }
        self.add(&mut queue, task);
        None
    }

    /// Has `request` be carried out by `call`, which is told how far it may reach: in memory, or by a worker
    /// ([`Begun::NeedsDevice`]). Where there is no room for it, by this thread.
    ///
    /// Whoever calls this wakes a worker when a round of calls is over.
    pub fn call_or_push(
        &self,
        request: Request<'_>,
        reply: ReplyTo,
        call: impl Fn(Reach, ReplyTo) -> Begun,
    ) -> Begun {
        match call(Reach::Memory, reply.clone()) {
            Begun::NeedsDevice => match self.push(Task::new(request, reply)) {
                None => Begun::NeedsDevice,
                Some(task) => call(Reach::Device, task.reply),
            },
            begun => begun,
        }
    }

    /// Hands a task of `thread` over. Gives it back where there is no room, or another thread has
    /// waited for room longer: the thread is nudged once it is worth another try.
    pub(crate) fn push_in_turn(&self, thread: usize, task: Task) -> Option<Task> {
        match self.push_item_in_turn(thread, task.into()) {
            Some(Item::Task(task)) => Some(task),
            _ => None,
        }
    }

    /// The same of an errand, or of a task. Returns whether it was taken.
    pub(crate) fn send_in_turn(&self, thread: usize, item: impl Into<Item>) -> bool {
        self.push_item_in_turn(thread, item.into()).is_none()
    }

    fn push_item_in_turn(&self, thread: usize, task: Item) -> Option<Item> {
        let mut queue = self.lock();
        let has_turn = queue.turns.front().is_none_or(|first| *first == thread);
        if !has_turn || !self.has_room(&queue, &task) {
            if !queue.turns.contains(&thread) {
                queue.turns.push_back(thread);
            }
            if has_turn {
                self.full.store(true, Ordering::Relaxed);
            }
            return Some(task);
        }
        self.add(&mut queue, task);
        queue.turns.pop_front();
        let others = !queue.turns.is_empty();
        drop(queue);
        if others {
            self.nudge();
        }
        None
    }

    fn has_room(&self, queue: &Queue, task: &Item) -> bool {
        let is_full = queue.tasks.len() >= self.tasks_max || queue.bytes + task.bytes() > BYTES_MAX;
        !is_full || queue.tasks.is_empty()
    }

    fn add(&self, queue: &mut Queue, task: Item) {
        queue.bytes += task.bytes();
        queue.tasks.push_back(task);
        self.pushed.store(true, Ordering::Relaxed);
    }

    /// Wakes a worker for what this thread has pushed.
    #[inline]
    pub(crate) fn ring(&self) {
        // Relaxed: the thread that pushed sees its own store, or a later one of whoever rang for it.
        if !self.pushed.load(Ordering::Relaxed) {
            return;
        }
        let queue = self.lock();
        self.pushed.store(false, Ordering::Relaxed);
        let wakes = queue.idle > 0 && !queue.tasks.is_empty();
        drop(queue);
        if wakes {
            self.bell.notify_one();
        }
    }

    /// `thread` no longer has a task that waits for room.
    pub(crate) fn give_up(&self, thread: usize) {
        let mut queue = self.lock();
        queue.turns.retain(|other| *other != thread);
        let others = !queue.turns.is_empty();
        drop(queue);
        if others {
            self.nudge();
        }
    }

    /// Whether the last task found no room, and none has become free since.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Counts a task that has to wait for room.
    pub(crate) fn count_refusal(&self) {
        // Relaxed, as everywhere below: counters for people.
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// What it tells of itself.
    #[must_use]
    pub fn counts(&self) -> TaskCounts {
        TaskCounts {
            workers: self.workers.load(Ordering::Relaxed),
            queued: self.lock().tasks.len(),
            done: self.done.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            queue_full: self.refusals.load(Ordering::Relaxed),
        }
    }

    /// Carries out the oldest task, and gets behind it if it is one. Returns whether there was a task.
    pub fn step(&self, service: &dyn Service) -> bool {
        let mut batch = Vec::new();
        let queue = self.lock();
        self.take(queue, &mut batch);
        let any = !batch.is_empty();
        self.carry_out(&mut batch, service);
        any
    }

    /// Steps until the queue is closed, and sleeps while there is nothing to do.
    fn work(&self, service: &dyn Service) {
        let mut batch = Vec::with_capacity(GETS_MAX);
        loop {
            let mut queue = self.lock();
            while queue.tasks.is_empty() && !queue.closed {
                queue.idle += 1;
                self.bell.wait(&mut queue);
                queue.idle -= 1;
            }
            if queue.closed {
                return;
            }
            self.take(queue, &mut batch);
            self.carry_out(&mut batch, service);
        }
    }

    /// Takes what a worker carries out next, and wakes another worker for the rest.
    fn take(&self, mut queue: MutexGuard<'_, Queue>, batch: &mut Vec<Item>) {
        queue.take(batch);
        let was_full = !batch.is_empty() && self.full.swap(false, Ordering::Relaxed);
        let wakes = queue.idle > 0 && !queue.tasks.is_empty();
        drop(queue);
        if wakes {
            self.bell.notify_one();
        }
        if was_full {
            self.nudge();
        }
    }

    /// Asks, and sends what is answered at once. Leaves `batch` empty.
    fn carry_out(&self, batch: &mut Vec<Item>, service: &dyn Service) {
        let count = batch.len();
        if count == 0 {
            return;
        }
        if count == 1
            && let Some(item) = batch.pop()
        {
            match item {
                Item::Task(task) => self.carry_out_one(task, service),
                Item::Errand(errand) => (errand.run)(),
            }
        } else {
            let gets = batch.drain(..).filter_map(|item| match item {
                Item::Task(task) => Some((task.scratch.key, task.reply)),
                Item::Errand(_) => None,
            });
            let (keys, replies): (Vec<_>, Vec<_>) = gets.unzip();
            let keys = KeyList::of(keys.iter().map(Vec::as_slice));
            service.get_each(&keys, &replies);
        }
        self.done.fetch_add(count as u64, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        service.flush();
    }

    fn carry_out_one(&self, task: Task, service: &dyn Service) {
        let begun = service.call(task.request(), Reach::Device, task.reply.clone());
        if let Begun::Answered(response) = begun {
            task.reply.send(response);
        }
        if let Some(away) = task.away {
            // Whoever sees this sees the write's effect.
            away.store(false, Ordering::Release);
            self.nudge();
        }
    }

    /// Has the threads that wait look at their clients again.
    fn nudge(&self) {
        let threads = self.threads.lock();
        threads.iter().for_each(|thread| thread.nudge());
    }

    /// Sends the workers away once they have finished what they are at. What waits is dropped.
    fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.tasks.clear();
        queue.bytes = 0;
        drop(queue);
        self.bell.notify_all();
    }
}

/// Threads that carry out the tasks of a queue. Dropping it sends them away once they have finished what they are at;
/// what waits is dropped.
pub struct Workers {
    tasks: Arc<Tasks>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads that call `service`.
    ///
    /// # Errors
    /// Where the system has no more threads.
    pub fn start(tasks: &Arc<Tasks>, count: usize, service: &Arc<dyn Service>) -> io::Result<Self> {
        let mut workers = Self {
            tasks: Arc::clone(tasks),
            threads: Vec::new(),
        };
        for index in 0..count {
            let (queue, service) = (Arc::clone(tasks), Arc::clone(service));
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || queue.work(&*service))?;
            workers.threads.push(thread);
            // Relaxed: a number for people.
            tasks.workers.fetch_add(1, Ordering::Relaxed);
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.tasks.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::fake::Fake;
    use crate::service::Response;

    struct Nowhere;

    impl ReplySink for Nowhere {
        fn deliver(&self, _: u64, _: Response) {}
    }

    /// A task with a key of so many bytes.
    fn task(bytes: usize) -> Task {
        let nowhere: Arc<dyn ReplySink> = Arc::new(Nowhere);
        let key = &vec![b'k'; bytes];
        Task::new(Request::GetVersion { key }, ReplyTo::new(&nowhere, 0))
    }

    #[test]
    fn a_long_task_finds_room_before_those_that_came_behind_it() {
        let (tasks, fake) = (Tasks::new(8), Fake::new());
        let [one, two, three] = [(); 3].map(|()| tasks.join(Arc::new(Nowhere)));
        let is_taken = |thread, bytes| tasks.push_in_turn(thread, task(bytes)).is_none();
        assert!(is_taken(two, 1));
        assert!(
            !is_taken(one, 2 * BYTES_MAX),
            "it needs the queue for itself"
        );
        assert!(tasks.is_full());
        assert!(!is_taken(two, 1), "it is not its turn");
        assert!(tasks.step(&fake));
        assert!(!is_taken(two, 1), "nor is it with room");
        assert!(!tasks.is_full(), "the one whose turn it is may try");
        assert!(is_taken(one, 2 * BYTES_MAX));
        assert!(!is_taken(three, 1), "another came before");
        assert!(!is_taken(two, 1), "there is no room");
        assert!(tasks.is_full());
        assert!(tasks.step(&fake));
        // Who goes away is not waited for.
        tasks.give_up(two);
        assert!(is_taken(three, 1) && is_taken(one, 1));
        assert_eq!(tasks.counts().queued, 2);
    }
}
