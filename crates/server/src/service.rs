//! What a front end asks of a server, and nothing else that it knows of it.
//!
//! A request is answered at once where that needs no waiting; otherwise the service keeps what it
//! needs and delivers the answer later, from any thread, to the [`ReplySink`] under the token that
//! the caller chose. Every request is answered exactly once, within the service's deadline.
//! Whatever was called takes effect at the latest with the next [`Service::flush`], which a front
//! end calls once for all the requests that it has read in one round.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Direction, KeyRange, Lsn, Moment, Outcome};
use argosy_engine::{Changed, Wanted, WriteBatch, WriteOptions};

pub use argosy_base::KeyList;

/// One request. Borrows from the caller, so that an answer at once copies nothing.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// What `key` is bound to.
    Get {
        /// The key; the service checks its length.
        key: &'a [u8],
    },
    /// What `key` is bound to, and the version of that.
    GetVersion {
        /// The key; the service checks its length.
        key: &'a [u8],
    },
    /// What several keys are bound to: of the first of them, at least of one. Those of one region are
    /// looked up together, as of one moment.
    GetMany {
        /// The keys, at least one; the service checks their lengths.
        keys: &'a KeyList,
        /// How much of it.
        wanted: Wanted,
        /// As of which snapshot; `None`: now.
        at: Option<SnapshotId>,
    },
    /// Open a snapshot of all regions, under a number of the service's choice, or renew or close one.
    Snapshot {
        /// Which; `None` to open one.
        id: Option<SnapshotId>,
        /// What is to become of it.
        lease: Lease,
    },
    /// When what `key` is bound to expires, and how long it is. The value is not read where it lies apart.
    Expiry {
        /// The key; the service checks its length.
        key: &'a [u8],
    },
    /// Write a batch. Atomic within each region that its keys lie in, not across regions.
    Write {
        /// What to write.
        batch: &'a WriteBatch,
        /// When, and what to report. A condition is evaluated in each region for itself.
        options: WriteOptions,
    },
    /// Take pairs, by rising keys, straight into the levels: no log, no memtable. In each region that they lie
    /// in all of them or none, and only where no key from the first to the last of them is bound. Answered
    /// once every member has them, by [`Response::Written`].
    Ingest {
        /// Puts that do not expire.
        batch: &'a WriteBatch,
    },
    /// The first pairs of a range, over all regions.
    Scan {
        /// The range.
        range: &'a KeyRange,
        /// How much of it, and from which end.
        paging: Paging,
    },
    /// How many keys there are, as an estimate.
    Count,
    /// Look after every region as a whole, wherever its primary is. Answered by [`Response::Done`]; where that
    /// takes longer than the service's deadline, by an error, and what was begun goes on.
    Maintain {
        /// What is to be done.
        what: Maintenance,
    },
}

/// What is to be done with regions as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Make everything that was written before durable on every member.
    Flush,
    /// Merge everything into one level, on every member, and drop what is overwritten or deleted.
    Compact,
}

/// How a page of a range is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// From which end of the range.
    pub direction: Direction,
    /// Most pairs to return.
    pub pairs_max: usize,
    /// Stop behind the pair that brings keys and values to this many bytes.
    pub bytes_max: usize,
    /// Leave the values out: they are returned empty.
    pub keys_only: bool,
    /// As of which snapshot; `None`: now.
    pub at: Option<SnapshotId>,
}

/// The number of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

impl std::fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl SnapshotId {
    /// The snapshot that is displayed as `text`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok();
        number.filter(|_| digits).map(Self)
    }
}

/// What is to become of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It is opened, for so long.
    Open(Duration),
    /// It stays open for so long from now on.
    Renew(Duration),
    /// It ends.
    Close,
}

impl Lease {
    /// The longest lease.
    pub const LONGEST: Duration = Duration::from_secs(3600);
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To [`Request::Get`]: the value, or `None` where the key is not bound.
    Value(Option<Vec<u8>>),
    /// To [`Request::GetVersion`].
    Versioned {
        /// The value, or `None` where the key is not bound.
        value: Option<Vec<u8>>,
        /// No write of the key has a higher LSN: for [`Condition::Version`](argosy_engine::Condition::Version).
        version: Lsn,
    },
    /// To [`Request::GetMany`]: of the first of the keys, in their order, at least of one. Whoever wants
    /// more asks again for the others.
    Values(Vec<Option<Vec<u8>>>),
    /// To [`Request::Snapshot`]: which; `None` where it was not open, in every region.
    Snapshot(Option<SnapshotId>),
    /// To [`Request::Expiry`].
    Expiry {
        /// Bytes of the value, or `None` where the key is not bound.
        len: Option<u64>,
        /// When that expires, if it does.
        at: Option<Moment>,
        /// The region's time.
        now: Moment,
    },
    /// To [`Request::Write`] and [`Request::Ingest`].
    Written {
        /// Whether the condition held everywhere and the batch was written.
        applied: bool,
        /// Per operation, whether its key was bound before, where a condition, `return_previous`
        /// or a delete made the engine look; empty otherwise.
        existed: Vec<bool>,
        /// Per operation, what its key was bound to before, where that was asked for.
        previous: Vec<Option<Vec<u8>>>,
        /// What a change told, unless its condition failed.
        changed: Option<Changed>,
    },
    /// To [`Request::Scan`].
    Page {
        /// Pairs in the order of their keys, or from the highest down.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Where to go on, or `None` at the end of the range. Upwards the keys from this one on have
        /// not been read, downwards those below it: see [`KeyRange::go_on_at`].
        next: Option<Vec<u8>>,
    },
    /// To [`Request::Count`].
    Count(u64),
    /// To [`Request::Maintain`].
    Done,
    /// The request was not, or not surely, carried out.
    Failed(ServiceError),
}

impl Response {
    /// Bytes of memory that it holds, beside its own size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const PAIR_BYTES: usize = size_of::<(Vec<u8>, Vec<u8>)>();
        const VALUE_BYTES: usize = size_of::<Option<Vec<u8>>>();
        match self {
            Self::Value(value) | Self::Versioned { value, .. } => {
                value.as_ref().map_or(0, Vec::len)
            }
            Self::Values(values) => {
                values.len() * VALUE_BYTES + values.iter().flatten().map(Vec::len).sum::<usize>()
            }
            Self::Written {
                existed,
                previous,
                changed,
                ..
            } => {
                let values = previous.iter().flatten().map(Vec::len).sum::<usize>();
                let told = match changed {
                    Some(Changed::Value(value)) => value.len(),
                    _ => 0,
                };
                existed.len() + previous.len() * VALUE_BYTES + values + told
            }
            Self::Page { pairs, next } => {
                let both = pairs.iter().map(|(key, value)| key.len() + value.len());
                let next = next.as_ref().map_or(0, Vec::len);
                pairs.len() * PAIR_BYTES + both.sum::<usize>() + next
            }
            Self::Count(_) | Self::Expiry { .. } | Self::Snapshot(_) | Self::Done => 0,
            Self::Failed(error) => error.what().len(),
        }
    }
}

/// Why a request failed, split by what the client does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The request is over a limit or makes no sense. Correct it. Nothing was written.
    #[error("{0}")]
    Invalid(String),
    /// A member of the region is missing, or the region is not open yet. Try again later.
    #[error("{what} ({outcome})")]
    Unavailable {
        /// What is missing, and what would help.
        what: String,
        /// For a write, whether it was applied. For a read, [`Outcome::NotApplied`].
        outcome: Outcome,
    },
    /// The region takes no writes for now: windows, memory or device are full. Try again later.
    #[error("{what} ({outcome})")]
    Busy {
        /// What is full.
        what: String,
        /// Whether the write was applied.
        outcome: Outcome,
    },
    /// Storage failed. An operator has to look.
    #[error("{what} ({outcome})")]
    Storage {
        /// Which device, segment and byte, and what is wrong.
        what: String,
        /// Whether the write was applied.
        outcome: Outcome,
    },
}

impl ServiceError {
    /// The parts of a long value have been swept before its head was written.
    pub(crate) fn too_slow() -> Self {
        Self::Unavailable {
            what: "the value took too long to be written: write it again".to_owned(),
            outcome: Outcome::NotApplied,
        }
    }

    /// What is wrong, in words.
    #[must_use]
    pub fn what(&self) -> &str {
        match self {
            Self::Invalid(what)
            | Self::Unavailable { what, .. }
            | Self::Busy { what, .. }
            | Self::Storage { what, .. } => what,
        }
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
