//! What a front end asks of a server, and nothing else that it knows of it.
//!
//! A request is answered at once where that needs no waiting; otherwise the service keeps what it
//! needs and delivers the answer later, from any thread, to the [`ReplySink`] under the token that
//! the caller chose. Every request is answered exactly once, within the service's deadline.
//! Whatever was called takes effect at the latest with the next [`Service::flush`], which a front
//! end calls once for all the requests that it has read in one round.

use std::sync::Arc;

use argosy_base::Outcome;

pub use argosy_base::KeyList;
pub use argosy_wire::api::{Failure, Lease, Maintenance, Paging, Request, Response, SnapshotId};

/// The parts of a long value have been swept before its head was written.
pub(crate) fn too_slow() -> Failure {
    Failure::Unavailable {
        what: "the value took too long to be written: write it again".to_owned(),
        outcome: Outcome::NotApplied,
    }
}

/// What became of a request of a thread that must not wait: see [`Service::call_now`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It was answered.
    Answered(Response),
    /// Its answer will be delivered.
    Waits,
    /// Nothing was done: it has to be called by a thread that may wait for the device.
    Blocks,
}

impl Begun {
    /// The answer, if there is one.
    #[must_use]
    pub fn answered(self) -> Option<Response> {
        match self {
            Self::Answered(response) => Some(response),
            Self::Waits | Self::Blocks => None,
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
}

/// One section of what `INFO` shows: its title, then names and values.
pub type InfoSection = (&'static str, Vec<(String, String)>);

/// A server, as its front ends see it.
pub trait Service: Send + Sync {
    /// Carries out `request`. Returns the answer where it is known at once; otherwise it goes to
    /// `sink` under `token`.
    fn call(&self, request: Request<'_>, sink: &Arc<dyn ReplySink>, token: u64)
    -> Option<Response>;

    /// [`call`](Self::call), for a thread that must not wait for a device. A service that cannot tell
    /// whether it would says that it does.
    fn call_now(&self, request: Request<'_>, sink: &Arc<dyn ReplySink>, token: u64) -> Begun {
        let _ = (request, sink, token);
        Begun::Blocks
    }

    /// [`call`](Self::call)s for each of `keys` what it is bound to, and delivers what is known at once, under
    /// the token in the same place.
    fn get_each(&self, keys: &KeyList, tokens: &[u64], sink: &Arc<dyn ReplySink>) {
        for (key, token) in keys.iter().zip(tokens) {
            if let Some(response) = self.call(Request::Get { key }, sink, *token) {
                sink.deliver(*token, response);
            }
        }
    }

    /// Sets everything in motion that was called from this thread since the last flush.
    fn flush(&self);

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
