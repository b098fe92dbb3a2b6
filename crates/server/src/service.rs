//! What a front end asks of a server, and nothing else that it knows of it.
//!
//! A request is answered at once where that needs no waiting; otherwise the service keeps what it
//! needs and delivers the answer later, from any thread, to the [`ReplySink`] under the token that
//! the caller chose. How far a request may go is a parameter, [`Reach`]: a thread that must not wait
//! for the device asks memory first, and hands what needs the device to [workers](crate::tasks).
//! Every request is answered exactly once, within the service's deadline.
//! Whatever was called takes effect at the latest with the next [`Service::flush`], which a front
//! end calls once for all the requests that it has read in one round.

use std::sync::Arc;

use argosy_base::{Instant, Outcome, RegionId};
use argosy_engine::Reach;

pub use argosy_base::KeyList;
pub use argosy_wire::api::{Failure, Lease, Maintenance, Paging, Request, Response, SnapshotId};

/// The parts of a long value have been swept before its head was written.
pub(crate) fn too_slow() -> Failure {
    Failure::Unavailable {
        what: "the value took too long to be written: write it again".to_owned(),
        outcome: Outcome::NotApplied,
    }
}

/// What became of a request that a [`Service`] was called with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It was answered.
    Answered(Response),
    /// It was carried out, or comes before every later request about its keys. Its answer will be delivered.
    Waits,
    /// It was sent to another server, which carries writes out in the order in which they were sent, but may read
    /// later. Its answer will be delivered.
    Sent,
    /// Nothing was done: it needs the device, which is out of reach.
    NeedsDevice,
}

impl Begun {
    /// The answer, if there is one.
    #[must_use]
    pub fn answered(self) -> Option<Response> {
        match self {
            Self::Answered(response) => Some(response),
            Self::Waits | Self::Sent | Self::NeedsDevice => None,
        }
    }
}

impl From<Option<Response>> for Begun {
    #[inline]
    fn from(answer: Option<Response>) -> Self {
        answer.map_or(Self::Waits, Self::Answered)
    }
}

/// Where late answers go.
pub trait ReplySink: Send + Sync {
    /// Takes the answer to the request that was given `token`. Called once a request, from any
    /// thread; must not block.
    fn deliver(&self, token: u64, response: Response);

    /// Has the owner look again at what it waits for. Must not block.
    fn nudge(&self) {}
}

/// Where the answer to one request goes.
#[derive(Clone)]
pub struct ReplyTo {
    pub(crate) sink: Arc<dyn ReplySink>,
    pub(crate) token: u64,
    /// When it is given up, where the request has waited already.
    pub(crate) deadline: Option<Instant>,
}

impl ReplyTo {
    /// To `sink`, under `token`.
    #[must_use]
    pub fn new(sink: &Arc<dyn ReplySink>, token: u64) -> Self {
        Self {
            sink: Arc::clone(sink),
            token,
            deadline: None,
        }
    }

    /// Delivers the answer.
    pub fn send(self, response: Response) {
        self.sink.deliver(self.token, response);
    }
}

/// One section of what `INFO` shows: its title, then names and values.
pub type InfoSection = (&'static str, Vec<(String, String)>);

/// A server, as its front ends see it.
pub trait Service: Send + Sync {
    /// Carries out `request`. Returns the answer where it is known at once; otherwise it goes to `reply`. Within
    /// [`Reach::Device`] it may block its thread for a device read, and never returns [`Begun::NeedsDevice`].
    /// Of a request for several regions that does not say so, the parts may block it in any case.
    fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun;

    /// Gets each of `keys`, within [`Reach::Device`], and sends every answer that is known at once to the reply in
    /// the same place.
    fn get_each(&self, keys: &KeyList, replies: &[ReplyTo]) {
        for (key, reply) in keys.iter().zip(replies) {
            let begun = self.call(Request::Get { key }, Reach::Device, reply.clone());
            if let Begun::Answered(response) = begun {
                reply.clone().send(response);
            }
        }
    }

    /// Sets everything in motion that was called from this thread since the last flush.
    fn flush(&self);

    /// The region that `key` lies in, as far as is known here.
    fn region_of(&self, key: &[u8]) -> RegionId {
        let _ = key;
        RegionId(0)
    }

    /// What the server knows of itself, by section; the first is `argosy`.
    fn info(&self) -> Vec<InfoSection>;

    /// Whether the server does what it is there for.
    fn ready(&self) -> Readiness;
}

/// Whether a server does what it is there for; by default it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Why reads of a region that it is primary of are not answered; `None`: they are.
    pub reads: Option<String>,
    /// Why writes to such a region are not acknowledged; `None`: they are, and reads are answered.
    pub writes: Option<String>,
    /// What a region that it is primary of lacks; `None`: all of them serve with every member.
    pub lacks: Option<String>,
    /// Whatever is not as it should be, though reads and writes may go on all the same.
    pub degraded: Vec<String>,
}
