//! The threads that step a node, and how they sleep.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use argosy_base::{Clock, ServerId};
use argosy_device::Waker;
use argosy_engine::Progress;
use argosy_fabric::Fabric;
use parking_lot::{Condvar, Mutex};

use super::{ClusterStep, StartError};
use crate::node::{Node, Wakers};

/// Longest sleep of a thread that steps.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Shortest sleep of the thread that moves what belongs to the cluster.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The threads that step a node.
pub(super) struct Threading {
    stopping: Arc<AtomicBool>,
    fabric: Arc<dyn Fabric>,
    /// Where steppers sleep.
    parker: Arc<Parker>,
    /// Where the thread sleeps that makes logs durable.
    log_parker: Arc<Parker>,
    /// Where the thread sleeps that moves what belongs to the cluster.
    cluster_parker: Arc<Parker>,
    id: ServerId,
    handles: Vec<JoinHandle<()>>,
}

impl Threading {
    /// Those of server `id`, none of which runs.
    pub(super) fn new(id: ServerId, fabric: &Arc<dyn Fabric>) -> Self {
        Self {
            stopping: Arc::default(),
            fabric: Arc::clone(fabric),
            parker: Arc::default(),
            log_parker: Arc::default(),
            cluster_parker: Arc::default(),
            id,
            handles: Vec::new(),
        }
    }

    /// What wakes them.
    pub(super) fn wakers(&self) -> Wakers {
        Wakers {
            logs: waker_of(&self.log_parker),
            steppers: waker_of(&self.parker),
        }
    }

    /// Starts the one that moves links and messages.
    pub(super) fn start_fabric(
        &mut self,
        node: &Arc<Node>,
        clock: &Arc<dyn Clock>,
        spin: Duration,
    ) -> Result<(), StartError> {
        let (n, c, stopping) = (
            Arc::clone(node),
            Arc::clone(clock),
            Arc::clone(&self.stopping),
        );
        let fabric = Arc::clone(&self.fabric);
        self.spawn("fabric", move || {
            fabric_loop(&n, &*c, &*fabric, spin, &stopping)
        })
    }

    /// Starts `count` that move engines and copies, and the one that makes logs durable.
    pub(super) fn start_steppers(
        &mut self,
        node: &Arc<Node>,
        clock: &Arc<dyn Clock>,
        count: NonZeroUsize,
    ) -> Result<(), StartError> {
        for number in 0..count.get() {
            let (n, c, stopping) = (
                Arc::clone(node),
                Arc::clone(clock),
                Arc::clone(&self.stopping),
            );
            let parker = Arc::clone(&self.parker);
            self.spawn(&format!("stepper-{number}"), move || {
                stepper_loop(|| n.step_next(c.now()), &parker, &stopping)
            })?;
        }
        let (n, c, stopping) = (
            Arc::clone(node),
            Arc::clone(clock),
            Arc::clone(&self.stopping),
        );
        let parker = Arc::clone(&self.log_parker);
        self.spawn("logs", move || {
            stepper_loop(|| n.step_logs(c.now()), &parker, &stopping)
        })
    }

    /// Starts the one that moves what belongs to the cluster: `steps`, each when it wants to be.
    pub(super) fn start_cluster(
        &mut self,
        clock: &Arc<dyn Clock>,
        mut steps: Vec<ClusterStep>,
    ) -> Result<(), StartError> {
        let (c, stopping) = (Arc::clone(clock), Arc::clone(&self.stopping));
        let parker = Arc::clone(&self.cluster_parker);
        self.spawn("cluster", move || {
            while !stopping.load(Ordering::Acquire) {
                let now = c.now();
                let due = steps.iter_mut().map(|step| step(now)).min();
                let sleep = due.map_or(SLEEP_MAX, |due| due.since(c.now()));
                parker.park(sleep.clamp(SLEEP_MIN, SLEEP_MAX));
            }
        })
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let handle = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .map_err(|source| StartError::System {
                what: "start a thread",
                source,
            })?;
        self.handles.push(handle);
        Ok(())
    }

    /// Stops them all, and waits for that.
    pub(super) fn stop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.fabric.notify(self.id);
        self.parker.wake();
        self.log_parker.wake();
        self.cluster_parker.wake();
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                tracing::error!("a thread panicked");
            }
        }
    }
}

fn fabric_loop(
    node: &Node,
    clock: &dyn Clock,
    fabric: &dyn Fabric,
    spin: Duration,
    stopping: &AtomicBool,
) {
    let mut idle_since = clock.now();
    while !stopping.load(Ordering::Acquire) {
        let bell = fabric.bell();
        let now = clock.now();
        let progress = node.step_fabric(now);
        if progress.made {
            idle_since = now;
        } else if now.since(idle_since) >= spin {
            fabric.park(bell, progress.idle_for.unwrap_or(SLEEP_MAX));
        } else {
            std::hint::spin_loop();
        }
    }
}

fn stepper_loop(step: impl Fn() -> Progress, parker: &Parker, stopping: &AtomicBool) {
    while !stopping.load(Ordering::Acquire) {
        let progress = step();
        if !progress.made {
            let sleep = progress.idle_for.unwrap_or(SLEEP_MAX);
            parker.park(sleep.min(SLEEP_MAX));
        }
    }
    // The others sleep on the same bell.
    parker.wake();
}

fn waker_of(parker: &Arc<Parker>) -> Waker {
    let parker = Arc::clone(parker);
    Arc::new(move || parker.wake())
}

/// Lets threads sleep until one of them is woken. A wake before the sleep is not lost.
#[derive(Debug, Default)]
struct Parker {
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Parker {
    fn wake(&self) {
        let mut woken = self.woken.lock();
        if !*woken {
            *woken = true;
            self.bell.notify_one();
        }
    }

    fn park(&self, timeout: Duration) {
        let mut woken = self.woken.lock();
        self.bell
            .wait_while_for(&mut woken, |woken| !*woken, timeout);
        *woken = false;
    }
}
