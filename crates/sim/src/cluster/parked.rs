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

use super::halting::StepKind;

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

    /// Whether the thread that moves links and messages would do a step now, which it does then.
    pub(super) fn is_fabric_awake(&mut self, now: Instant) -> bool {
        let bell = self.fabric.bell();
        let sleeps = self.heard == Some(bell) && now < self.fabric_due;
        self.heard = Some(bell);
        !sleeps
    }

    /// Whether the thread in the background would do a step now, which it does then.
    pub(super) fn is_background_awake(&self, now: Instant) -> bool {
        self.alarm.take() || now >= self.background_due
    }

    /// How a step at `now` went.
    pub(super) fn stepped(&mut self, kind: StepKind, now: Instant, progress: &Progress) {
        match kind {
            StepKind::Fabric => self.fabric_due = due(now, progress),
            StepKind::Background => self.background_due = due(now, progress),
            // It is stepped whenever it has something to do.
            StepKind::Worker => {}
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
