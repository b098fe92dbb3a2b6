//! When a server's threads continue: the one that moves links and messages, and those in the background, of which there
//! is one here.
//!
//! In production each does its steps while there is something to do, and then waits: the first until the bell of the
//! fabric rings, the others until a device, an engine or the node wakes one; and all until the moment at which, by what
//! the last step said, another one is due. In the seeds of [`Profile::WhenDue`](crate::profile::Profile) they are
//! stepped then, and at no other time, so that a ring that was forgotten shows: as a request that is not answered in
//! time, or a region that does not become whole.
//!
//! A step in the background always names a moment within a fifth of a second, for the node's chores. That moves no
//! region on: a region that nobody woke, that named no moment and that does not wait for the device is not stepped.
//! Where the other thread's step names no moment, it sleeps for [`LOOKS_AFTER`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::Instant;
use argosy_device::Waker;
use argosy_engine::Progress;
use argosy_fabric::Fabric;
use argosy_memory::Bell;

use super::Cluster;

/// How long a thread sleeps, at most, whose step has said of no moment that another one is due.
pub(crate) const LOOKS_AFTER: Duration = Duration::from_secs(30);

/// What wakes the thread in the background. A wake before it sleeps is not lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarm(Arc<AtomicBool>);

impl Alarm {
    pub(super) fn waker(&self) -> Waker {
        let woken = Arc::clone(&self.0);
        Arc::new(move || woken.store(true, Ordering::Relaxed))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// See the module documentation.
pub(super) struct Parked {
    fabric: Arc<dyn Fabric>,
    /// The bell before the last step of the first thread; `None`: it has had none.
    heard: Option<Bell>,
    /// When its next step is due, whoever rings.
    fabric_due: Instant,
    alarm: Alarm,
    background_due: Instant,
}

impl Parked {
    /// Both threads of a process that begins.
    pub(super) fn new(fabric: Arc<dyn Fabric>, alarm: Alarm) -> Self {
        Self {
            fabric,
            heard: None,
            fabric_due: Instant::default(),
            alarm,
            background_due: Instant::default(),
        }
    }
}

/// When the next step is due after one at `now` that made this progress.
fn due(now: Instant, progress: &Progress) -> Instant {
    match progress.made {
        true => now,
        false => now + progress.idle_for.unwrap_or(LOOKS_AFTER),
    }
}

impl Cluster {
    /// A step of the thread that moves links and messages, if it would do one. Returns whether anything was made.
    pub(crate) fn step_fabric(&mut self, server: usize) -> bool {
        let now = self.now();
        let when_due = self.when_due;
        let Some(up) = self.servers[server].up.as_mut().filter(|up| !up.stopped) else {
            return false;
        };
        let parked = &mut up.parked;
        let bell = parked.fabric.bell();
        if when_due && parked.heard == Some(bell) && now < parked.fabric_due {
            return false;
        }
        parked.heard = Some(bell);
        let progress = up.node.step_fabric(now);
        parked.fabric_due = due(now, &progress);
        progress.made
    }

    /// A step of a worker. Returns whether it found something to do.
    pub(crate) fn step_worker(&mut self, server: usize) -> bool {
        let up = self.servers[server].up.as_ref();
        up.filter(|up| !up.stopped)
            .is_some_and(|up| up.tasks.step(&*up.node))
    }

    /// The same of the thread in the background.
    pub(crate) fn step_background(&mut self, server: usize) -> bool {
        let now = self.now();
        let when_due = self.when_due;
        let Some(up) = self.servers[server].up.as_mut().filter(|up| !up.stopped) else {
            return false;
        };
        let parked = &mut up.parked;
        if !parked.alarm.take() && when_due && now < parked.background_due {
            return false;
        }
        let progress = up.node.step_background(now);
        parked.background_due = due(now, &progress);
        progress.made
    }
}
