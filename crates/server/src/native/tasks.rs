//! Requests that may have to wait for the device, and the workers that carry them out.
//!
//! A thread of the front end never reads from the device: what it cannot carry out without becomes a
//! [`Task`] in the one queue of all threads. A worker takes the oldest, calls the service, which may
//! block it, and delivers the answer to the mailbox of the thread that the request came from. A worker
//! without a task sleeps.
//!
//! The queue is bounded, in tasks and in bytes (I8). A thread whose task finds no room keeps it, takes
//! nothing more from that client, and is nudged when there is room. What a client can have waiting so
//! is no more than what it had in its own ring. Threads with such tasks have an order: nobody's task
//! goes into the queue before that of the thread that has waited longest, so that a long one finds
//! room, too.
//!
//! Gets that a thread takes from one client in one round are one task, up to some: they are looked up together,
//! and read with few calls of the system.
//!
//! Tasks have no order among them. A write among them is waited for by what its client laid behind it
//! ([`Away`]): so the writes of one client are carried out in the order in which they were laid.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use argosy_base::KeyRange;
use argosy_engine::{Wanted, WriteBatch, WriteOptions};

use super::client::Arrival;
use crate::mailbox::Mailbox;
use crate::service::{
    KeyList, Lease, Maintenance, Paging, ReplySink, Request, Service, SnapshotId,
};

/// Bytes of tasks from which on no more are queued.
const BYTES_MAX: usize = 1 << 20;
/// Most gets of one task.
const GETS_MAX: usize = 16;
/// What a task takes beside the bytes of its request.
const TASK_BYTES: usize = 128;

/// Set while a write has been handed to the workers and has not been carried out.
pub(super) type Away = Arc<AtomicBool>;

/// What a worker is to ask of the service.
#[derive(Debug)]
pub(super) enum Work {
    Get {
        token: u64,
        key: Vec<u8>,
    },
    Gets {
        /// One for each key, at least one.
        tokens: Vec<u64>,
        keys: KeyList,
    },
    Look {
        token: u64,
        key: Vec<u8>,
    },
    GetVersion {
        token: u64,
        key: Vec<u8>,
    },
    GetMany {
        token: u64,
        keys: KeyList,
        wanted: Wanted,
        at: Option<SnapshotId>,
    },
    Snapshot {
        token: u64,
        id: Option<SnapshotId>,
        lease: Lease,
    },
    Maintain {
        token: u64,
        what: Maintenance,
    },
    Scan {
        token: u64,
        range: KeyRange,
        paging: Paging,
    },
    Write {
        token: u64,
        batch: WriteBatch,
        options: WriteOptions,
        away: Away,
    },
}

/// Work, and where the answers go.
pub(super) struct Task {
    pub(super) work: Work,
    pub(super) sink: Arc<dyn ReplySink>,
}

impl Task {
    fn bytes(&self) -> usize {
        TASK_BYTES
            + match &self.work {
                Work::Get { key, .. } | Work::Look { key, .. } | Work::GetVersion { key, .. } => {
                    key.len()
                }
                Work::GetMany { keys, .. } => keys.bytes(),
                Work::Gets { tokens, keys } => keys.bytes() + (tokens.len() - 1) * TASK_BYTES,
                Work::Snapshot { .. } | Work::Maintain { .. } => 0,
                Work::Scan { range, .. } => {
                    range.from.len() + range.to.as_ref().map_or(0, Vec::len)
                }
                Work::Write { batch, .. } => batch.bytes() + batch.len() * TASK_BYTES,
            }
    }

    /// The tokens of what is answered.
    pub(super) fn tokens(&self) -> &[u64] {
        match &self.work {
            Work::Gets { tokens, .. } => tokens,
            Work::Get { token, .. }
            | Work::Look { token, .. }
            | Work::GetVersion { token, .. }
            | Work::GetMany { token, .. }
            | Work::Snapshot { token, .. }
            | Work::Maintain { token, .. }
            | Work::Scan { token, .. }
            | Work::Write { token, .. } => std::slice::from_ref(token),
        }
    }

    /// Asks, and delivers what is answered at once.
    fn carry_out(self, service: &dyn Service, done: impl Fn()) {
        let sink = self.sink;
        let ask = |request: Request<'_>, token: u64| {
            if let Some(response) = service.call(request, &sink, token) {
                sink.deliver(token, response);
            }
        };
        match self.work {
            Work::Get { token, key } => ask(Request::Get { key: &key }, token),
            Work::Gets { tokens, keys } => service.get_each(&keys, &tokens, &sink),
            Work::Look { token, key } => ask(Request::Expiry { key: &key }, token),
            Work::GetVersion { token, key } => ask(Request::GetVersion { key: &key }, token),
            Work::GetMany {
                token,
                keys,
                wanted,
                at,
            } => {
                let keys = &keys;
                ask(Request::GetMany { keys, wanted, at }, token);
            }
            Work::Snapshot { token, id, lease } => ask(Request::Snapshot { id, lease }, token),
            Work::Maintain { token, what } => ask(Request::Maintain { what }, token),
            Work::Scan {
                token,
                range,
                paging,
            } => {
                let range = &range;
                ask(Request::Scan { range, paging }, token);
            }
            Work::Write {
                token,
                batch,
                options,
                away,
            } => {
                let batch = &batch;
                ask(Request::Write { batch, options }, token);
                // Whoever sees this sees the write's effect.
                away.store(false, Ordering::Release);
                done();
            }
        }
        service.flush();
    }
}

/// The queue. See the module documentation.
#[derive(Default)]
pub(super) struct Tasks {
    queue: Mutex<Queue>,
    /// Workers without a task sleep on it.
    bell: Condvar,
    /// A task found no room, and nobody has said since that there is some. Changed under the lock.
    full: AtomicBool,
    tasks_max: usize,
    /// Threads that were given a number.
    threads: AtomicUsize,
    /// Of the threads that hand tasks over.
    mailboxes: Vec<Arc<Mailbox<Arrival>>>,
    done: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// Requests that these are.
    requests: usize,
    bytes: usize,
    /// Threads whose last task found no room, in the order in which they came.
    turns: VecDeque<usize>,
    /// Workers that sleep.
    idle: usize,
    closed: bool,
}

/// What a queue tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Requests that wait for a worker.
    pub queued: usize,
    /// Requests that were carried out.
    pub done: u64,
    /// Tasks that found no room at first.
    pub queue_full: u64,
}

impl Tasks {
    /// A queue of at most `tasks_max` requests, at least one, for the threads with these mailboxes.
    pub(super) fn new(tasks_max: usize, mailboxes: Vec<Arc<Mailbox<Arrival>>>) -> Self {
        Self {
            tasks_max: tasks_max.max(1),
            mailboxes,
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic aborts the process; in tests the queue is consistent after every line.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most gets of one task: one that is longer than the queue would wait for it to be empty.
    pub(super) fn gets_max(&self) -> usize {
        GETS_MAX.min(self.tasks_max / 4).max(1)
    }

    /// A number for a thread that hands tasks over.
    pub(super) fn join(&self) -> usize {
        self.threads.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a task of `thread` over. Gives it back where there is no room, or another thread has
    /// waited for room longer: the thread is nudged once it is worth another try.
    pub(super) fn push(&self, thread: usize, task: Task) -> Result<(), Task> {
        let mut queue = self.lock();
        let bytes = task.bytes();
        let requests = task.tokens().len();
        let is_full = queue.requests + requests > self.tasks_max || queue.bytes + bytes > BYTES_MAX;
        let has_room = !is_full || queue.tasks.is_empty();
        let has_turn = queue.turns.front().is_none_or(|first| *first == thread);
        if !has_room || !has_turn {
            if !queue.turns.contains(&thread) {
                queue.turns.push_back(thread);
            }
            if has_turn {
                self.full.store(true, Ordering::Relaxed);
            }
            return Err(task);
        }
        queue.bytes += bytes;
        queue.requests += requests;
        queue.tasks.push_back(task);
        queue.turns.pop_front();
        let others = !queue.turns.is_empty();
        let sleepers = queue.idle > 0;
        drop(queue);
        if sleepers {
            self.bell.notify_one();
        }
        if others {
            self.nudge();
        }
        Ok(())
    }

    /// `thread` no longer has a task that waits for room.
    pub(super) fn give_up(&self, thread: usize) {
        let mut queue = self.lock();
        queue.turns.retain(|other| *other != thread);
        let others = !queue.turns.is_empty();
        drop(queue);
        if others {
            self.nudge();
        }
    }

    /// Whether the last task found no room, and none has become free since.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Counts a task that has to wait for room.
    pub(super) fn count_refusal(&self) {
        // Relaxed, as everywhere below: counters for people.
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// What it tells of itself.
    pub(super) fn counts(&self) -> TaskCounts {
        TaskCounts {
            queued: self.lock().requests,
            done: self.done.load(Ordering::Relaxed),
            queue_full: self.refusals.load(Ordering::Relaxed),
        }
    }

    /// Carries out tasks until the queue is closed.
    pub(super) fn work(&self, service: &dyn Service) {
        while let Some(task) = self.next() {
            let requests = task.tokens().len() as u64;
            task.carry_out(service, || self.nudge());
            self.done.fetch_add(requests, Ordering::Relaxed);
        }
    }

    /// Carries out the oldest task, if there is one.
    #[cfg(test)]
    pub(super) fn work_once(&self, service: &dyn Service) -> bool {
        let is_empty = self.lock().tasks.is_empty();
        if !is_empty && let Some(task) = self.next() {
            task.carry_out(service, || self.nudge());
        }
        !is_empty
    }

    /// The oldest task, once there is one; `None` when the queue is closed.
    fn next(&self) -> Option<Task> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(task) = queue.tasks.pop_front() {
                queue.bytes -= task.bytes();
                queue.requests -= task.tokens().len();
                let was_full = self.full.swap(false, Ordering::Relaxed);
                drop(queue);
                if was_full {
                    self.nudge();
                }
                return Some(task);
            }
            queue.idle += 1;
            let woken = self.bell.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    /// Has the threads look at their clients again.
    fn nudge(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.nudge());
    }

    /// Sends the workers away once they have finished what they are at. What waits is dropped.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.tasks.clear();
        (queue.requests, queue.bytes) = (0, 0);
        drop(queue);
        self.bell.notify_all();
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
        Task {
            work: Work::Get {
                token: 0,
                key: vec![b'k'; bytes],
            },
            sink: Arc::new(Nowhere),
        }
    }

    #[test]
    fn a_long_task_finds_room_before_those_that_came_behind_it() {
        let (tasks, fake) = (Tasks::new(8, Vec::new()), Fake::new());
        let [one, two, three] = [(); 3].map(|()| tasks.join());
        let is_taken = |thread, bytes| tasks.push(thread, task(bytes)).is_ok();
        assert!(is_taken(two, 1));
        assert!(
            !is_taken(one, 2 * BYTES_MAX),
            "it needs the queue for itself"
        );
        assert!(tasks.is_full());
        assert!(!is_taken(two, 1), "it is not its turn");
        assert!(tasks.work_once(&fake));
        assert!(!is_taken(two, 1), "nor is it with room");
        assert!(!tasks.is_full(), "the one whose turn it is may try");
        assert!(is_taken(one, 2 * BYTES_MAX));
        assert!(!is_taken(three, 1), "another came before");
        assert!(!is_taken(two, 1), "there is no room");
        assert!(tasks.is_full());
        assert!(tasks.work_once(&fake));
        // Who goes away is not waited for.
        tasks.give_up(two);
        assert!(is_taken(three, 1) && is_taken(one, 1));
        assert_eq!(tasks.counts().queued, 2);
    }
}
