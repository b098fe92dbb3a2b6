//! What other servers ask of regions that this one is the primary of. The thread of the fabric carries out what memory
//! is enough for. It reads no device: the rest is for workers ([`crate::tasks`]).
//!
//! - Reads of keys become tasks. They may be carried out later than what comes behind them; who has sent them knows.
//! - A write is carried out where it stands among what that server sends. One that needs the device waits in the
//!   region's queue ([`super::waiting`]), with what comes behind it, and a worker carries on with the queue.
//! - Pages of scans, and whatever else needs the device, are errands.
//!
//! Where workers have no room, the call waits at its link, in front of what comes behind it.

use std::sync::{Arc, Weak};

use argosy_engine::Reach;

use super::Node;
use super::local::LocalRegion;
use super::region::Region;
use crate::service::{Begun, ReplyTo, Request};
use crate::tasks::{Errand, Task};

/// See the module documentation.
#[derive(Clone, Copy)]
pub(super) struct PeersCalls<'a> {
    node: &'a Node,
}

impl<'a> PeersCalls<'a> {
    /// Those to `node`.
    pub(super) const fn of(node: &'a Node) -> Self {
        Self { node }
    }

    /// Carries out a request of another server for `region`. `None`: nothing was done, workers have no room for it.
    pub(super) fn call(
        self,
        region: &Arc<Region>,
        request: Request<'_>,
        reply: ReplyTo,
    ) -> Option<Begun> {
        let context = &self.node.context();
        let local = LocalRegion::new(context, region);
        let workers = self.node.requests.workers();
        // One without workers is a test's. Planted: so is one with them.
        let planted = self.node.settings.mutants.read_on_fabric();
        let Some(workers) = workers.filter(|_| !planted) else {
            return Some(local.call(request, Reach::Device, reply));
        };
        let follows = !request.reads_keys() && region.waiting().is_for_device();
        if !follows {
            match local.call(request, Reach::Memory, reply.clone()) {
                Begun::NeedsDevice => {}
                begun => return Some(begun),
            }
        }
        if follows || matches!(request, Request::Write { .. }) {
            let begun = local.queue_of_peer(request, reply);
            self.carry_on_at_device(region);
            return Some(begun);
        }
        let sent = match request.reads_keys() {
            true => workers.send(Task::new(request, reply)),
            false => workers.send(self.errand(region, request, reply)),
        };
        sent.then_some(Begun::NeedsDevice)
    }

    fn errand(self, region: &Arc<Region>, request: Request<'_>, reply: ReplyTo) -> Errand {
        let (node, region) = (Weak::clone(&self.node.me), Arc::clone(region));
        Errand::call(request, reply, move |request, reply| {
            // A node that is gone answers nobody.
            node.upgrade().map_or(Begun::Waits, |node| {
                let context = &node.context();
                LocalRegion::new(context, &region).call(request, Reach::Device, reply)
            })
        })
    }

    /// Carries out what waits in `region`, as far as memory is enough. Returns whether anything was.
    pub(super) fn retry_in_memory(self, local: &LocalRegion<'_>, region: &Arc<Region>) -> bool {
        if !region.waiting().is_queueing() {
            return false;
        }
        let reach = match self.node.settings.mutants.read_on_fabric() {
            true => Reach::Device,
            false => Reach::Memory,
        };
        let retried = local.retry_queued(reach);
        if retried.needs_device {
            self.carry_on_at_device(region);
        }
        retried.made
    }

    /// Has a worker carry out what waits in `region`, or, where there is no room for that, a stepper.
    fn carry_on_at_device(self, region: &Arc<Region>) {
        if !region.waiting().ask_worker() {
            return;
        }
        let (me, its) = (Weak::clone(&self.node.me), Arc::clone(region));
        let errand = Errand::new(move || {
            let Some(node) = me.upgrade() else {
                return;
            };
            its.waiting().worker_comes();
            let context = &node.context();
            let local = LocalRegion::new(context, &its);
            if local.retry_queued(Reach::Device).made {
                local.pump();
            }
            if its.waiting().is_queueing() {
                context.wake(its.id());
            }
        });
        if !self.node.tasks().is_some_and(|tasks| tasks.send(errand)) {
            region.waiting().worker_comes();
            self.node.context().wake(region.id());
        }
    }
}
