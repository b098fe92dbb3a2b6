//! What a thread of the front end is made of, and how it calls the service.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::Clock;
use argosy_engine::Reach;

use super::Arrival;
use crate::mailbox::Mailbox;
use crate::resp::front::FrontEnd;
use crate::service::{Begun, ReplyTo, Request, Service};
use crate::tasks::Tasks;

/// What a worker is made of.
pub(in crate::resp) struct Parts {
    /// Its place among the workers.
    pub index: usize,
    /// Where it accepts connections, if it is the one that does.
    pub socket: Option<TcpListener>,
    pub front: Arc<FrontEnd>,
    /// Of all workers, by place.
    pub mailboxes: Vec<Arc<Mailbox<Arrival>>>,
    pub service: Arc<dyn Service>,
    /// Where what needs the device goes; `None`: the thread waits for the device itself.
    pub tasks: Option<Arc<Tasks>>,
    pub clock: Arc<dyn Clock>,
    /// How long finishing may take when stopping.
    pub drain: Duration,
}

impl Parts {
    /// The thread that the connection of number `id` belongs to.
    pub(super) fn thread_of(&self, id: u64) -> usize {
        let count = self.mailboxes.len() as u64;
        usize::try_from(id % count).expect("below the number of threads")
    }

    /// Calls the service. What needs the device goes to a worker that has room for it.
    pub(super) fn call(&self, request: Request<'_>, reply: ReplyTo) -> Begun {
        let call = |reach, reply| self.service.call(request, reach, reply);
        match &self.tasks {
            Some(tasks) => tasks.call_or_push(request, reply, call),
            None => call(Reach::Device, reply),
        }
    }

    /// Sets in motion what was called in a round.
    pub(super) fn flush(&self) {
        if let Some(tasks) = &self.tasks {
            tasks.ring();
        }
        self.service.flush();
    }
}
