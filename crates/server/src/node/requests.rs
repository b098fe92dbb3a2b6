//! What a node keeps of requests that belongs to no region: those for other servers' regions, what answers hold, the
//! numbers of snapshots, and the queue of those that need the device.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use argosy_base::{Instant, ServerId};
use argosy_fabric::Fabric;
use parking_lot::{Mutex, MutexGuard};

use super::calls::Calls;
use super::waiting::Allowance;
use crate::service::{ReplySink, Response};
use crate::tasks::{Item, Tasks};

/// See the module documentation.
pub(super) struct Requests {
    /// What answers that wait for their commit hold.
    answers: Arc<Allowance>,
    calls: Mutex<Calls>,
    /// Whether calls wait for a primary. Set with the calls locked.
    queueing: AtomicBool,
    /// When deadlines were last looked at, in nanoseconds.
    swept: AtomicU64,
    snapshots: AtomicU32,
    /// Where other servers' requests go that need the device, if there are workers.
    workers: OnceLock<PeersTasks>,
}

/// The queue of tasks, for what other servers ask.
pub(super) struct PeersTasks {
    pub(super) tasks: Arc<Tasks>,
    /// As who the fabric's thread waits for room there.
    turn: usize,
    /// It does so.
    waits: AtomicBool,
}

impl PeersTasks {
    /// Hands over what a peer has asked for. False where there is no room, or others have waited for it longer: the
    /// fabric's thread is called once it is worth another try.
    pub(super) fn send(&self, item: impl Into<Item>) -> bool {
        let sent = self.tasks.send_in_turn(self.turn, item);
        if !sent {
            // Relaxed, as below: of one thread.
            self.waits.store(true, Ordering::Relaxed);
        }
        sent
    }

    /// A step of the fabric begins. Returns whether something had found no room in the one before.
    pub(super) fn begin_step(&self) -> bool {
        self.waits.swap(false, Ordering::Relaxed)
    }

    /// And ends. Where something `waited` before and nothing does any more, others need not wait behind it.
    pub(super) fn end_step(&self, waited: bool) {
        if waited && !self.waits.load(Ordering::Relaxed) {
            self.tasks.give_up(self.turn);
        }
        self.tasks.ring();
    }
}

/// Calls the fabric's thread of a server.
struct FabricBell {
    fabric: Arc<dyn Fabric>,
    id: ServerId,
}

impl ReplySink for FabricBell {
    /// Nothing is asked under its name.
    fn deliver(&self, _: u64, _: Response) {}

    fn nudge(&self) {
        self.fabric.notify(self.id);
    }
}

impl Requests {
    /// Those of a node whose answers may hold what `answers` allows.
    pub(super) fn new(answers: Arc<Allowance>) -> Self {
        Self {
            answers,
            calls: Mutex::default(),
            queueing: AtomicBool::new(false),
            swept: AtomicU64::new(0),
            snapshots: AtomicU32::new(0),
            workers: OnceLock::new(),
        }
    }

    /// What answers that wait for their commit hold.
    pub(super) fn answers(&self) -> &Allowance {
        &self.answers
    }

    /// Those that are with other servers.
    pub(super) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock()
    }

    /// Whether any call waits for a primary, or is being sent after it has. Asked behind a look at the region map.
    #[inline]
    pub(super) fn any_queueing(&self) -> bool {
        // SeqCst, as below: who finds none has seen no later map than whoever has a refused write wait after that
        // (`failover::may_return`).
        self.queueing.load(Ordering::SeqCst)
    }

    /// Whether any does, from now on. With the calls locked.
    pub(super) fn set_queueing(&self, any: bool) {
        if self.queueing.load(Ordering::Relaxed) != any {
            self.queueing.store(any, Ordering::SeqCst);
        }
    }

    /// Whether deadlines are to be looked at, for the first time in the span `every`.
    pub(super) fn begin_sweep(&self, now: Instant, every: Duration) -> bool {
        let last = Instant::from_nanos(self.swept.load(Ordering::Relaxed));
        let is_due = now.since(last) >= every;
        if is_due {
            self.swept.store(now.as_nanos(), Ordering::Relaxed);
        }
        is_due
    }

    /// The next number of a snapshot, from 0 at each start.
    pub(super) fn next_snapshot(&self) -> u32 {
        self.snapshots.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on other servers' requests that need the device go to the workers of `tasks`. Server `id` waits for
    /// room there, if it has to, at its bell in `fabric`.
    pub(super) fn set_tasks(&self, tasks: Arc<Tasks>, id: ServerId, fabric: Arc<dyn Fabric>) {
        // There is one queue.
        let _ = self.workers.set(PeersTasks {
            turn: tasks.join(Arc::new(FabricBell { fabric, id })),
            tasks,
            waits: AtomicBool::new(false),
        });
    }

    /// Where they go, if there are workers.
    pub(super) fn workers(&self) -> Option<&PeersTasks> {
        self.workers.get()
    }
}
