//! Snapshots that clients open: which ones a connection has, and how they are given back when it ends.
//!
//! They are bounded where they are, by number in each region and by memory, and each has a lease. What is kept
//! here only ends them sooner: a client that is gone, whether it said so or was killed, has none any more.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_engine::Reach;
use argosy_wire::native::{Flags, Request};

use crate::service::{Lease, ReplySink, ReplyTo, Request as Ask, Response, Service, SnapshotId};

/// Most snapshots of a connection that are remembered: a region has no more open. The oldest of more ends
/// with its lease.
const HELD_MAX: usize = 64;

/// The snapshots that a connection has opened.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<SnapshotId>);

impl Held {
    fn add(&mut self, id: SnapshotId) {
        if self.0.len() == HELD_MAX {
            self.0.pop_front();
        }
        self.0.push_back(id);
    }

    /// Takes note of what is asked of a snapshot.
    pub(super) fn asked(&mut self, ask: &Ask<'_>) {
        if let Ask::Snapshot {
            id: Some(id),
            lease: Lease::Close,
        } = ask
        {
            self.0.retain(|held| held != id);
        }
    }

    /// Takes note of an answer. One that was opened for a client that has gone is given back at once.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        response: &Response,
        is_here: bool,
        service: &dyn Service,
    ) {
        let Response::Snapshot(Some(id)) = response else {
            return;
        };
        if request.flags.has(Flags::OPEN) {
            self.add(*id);
        }
        if !is_here {
            self.give_back(service);
        }
    }

    /// Closes all of them.
    pub(super) fn give_back(&mut self, service: &dyn Service) {
        if self.0.is_empty() {
            return;
        }
        let nobody: Arc<dyn ReplySink> = Arc::new(Nobody);
        for id in self.0.drain(..) {
            let (id, lease) = (Some(id), Lease::Close);
            // Where this does not get through, the lease ends by itself.
            let request = Ask::Snapshot { id, lease };
            let _ = service.call(request, Reach::Device, ReplyTo::new(&nobody, 0));
        }
        service.flush();
    }
}

/// Has no use for answers.
struct Nobody;

impl ReplySink for Nobody {
    fn deliver(&self, _: u64, _: Response) {}
}
