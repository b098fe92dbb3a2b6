//! The client: where a request goes, when it is tried again, and how its answer is waited for.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Clock, Outcome};
use argosy_wire::api::{Maintenance, Request};
use argosy_wire::native::{Flags, Op, ReplyHeader, Status, put_pair};

use super::change::{Terms, WriteCondition};
use super::channel::Refused;
use super::clock::Monotonic;
use super::link::{Link, NoChannel, Size};
use super::long::long_in;
use super::meet::find;
use super::names::machine_random;
use super::run::{Caller, Sending};
use super::snapshot::Snapshot;
use super::ticket::{Ask, Completion, Ticket};
use super::verdict::{NoReply, Verdict};
use crate::error::ClientError;
use crate::kv::PutOnly;

/// Bytes of slot for an answer without a value.
pub(super) const BRIEF: usize = 256;

/// How a client behaves.
#[derive(Clone)]
pub struct Options {
    /// How long a request may take, connecting and trying again included.
    pub deadline: Duration,
    /// How long a thread that waits for an answer looks for it before it sleeps.
    pub spin: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers, from which the client takes the id under which its writes are sent again where nobody knows
    /// whether they were applied; `None`: writes have no names, and are not sent again.
    pub random: Option<RandomSource>,
}

/// Where random numbers come from; `None`: there are none.
pub type RandomSource = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            spin: Duration::from_micros(5),
            clock: Arc::new(Monotonic),
            random: Some(Arc::new(machine_random)),
        }
    }
}

/// A client of a cluster over the native protocol. Cheap to clone; its clones, and all threads that
/// use them, share its connections.
///
/// ```no_run
/// use argosy_client::native::{Ask, Client};
///
/// let client = Client::connect("127.0.0.1:7379")?;
/// client.put(b"ship/argo", b"fifty oars")?;
///
/// // Several requests in flight from one thread.
/// let keys = [&b"ship/argo"[..], b"ship/argos"];
/// let tickets: Vec<_> = keys
///     .iter()
///     .map(|key| client.submit(Ask::Get { key }))
///     .collect::<Result<_, _>>()?;
/// client.flush();
/// let mut value = Vec::new();
/// for ticket in tickets {
///     println!("{:?}: {} bytes", client.wait(ticket, &mut value)?, value.len());
/// }
/// # Ok::<(), argosy_client::ClientError>(())
/// ```
#[derive(Clone)]
pub struct Client {
    pub(super) caller: Caller,
}

impl Client {
    /// Connects to the cluster of the server at `address`: `host:port` where it speaks the Redis
    /// protocol, or the path of the socket where native clients meet it. The server has to run on
    /// this host.
    ///
    /// # Errors
    /// [`ClientError::Lost`] where it cannot be reached, [`ClientError::Unsupported`] where it serves
    /// no native clients.
    pub fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_with(address, Options::default())
    }

    /// [`connect`](Self::connect), behaving otherwise.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(address: &str, options: Options) -> Result<Self, ClientError> {
        let deadline = options.clock.now() + options.deadline;
        let link = Link::new(find(address)?);
        let first = link.channel(Size::Usual, &*options.clock, deadline);
        let first =
            first.map_err(|(NoChannel::Pause(_, error) | NoChannel::Refused(error))| error)?;
        let client = Self {
            caller: Caller::new(options, link),
        };
        client.caller.learn(&first.channel, deadline)?;
        Ok(client)
    }

    /// The same client with another deadline for its requests.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            caller: self.caller.with_deadline(deadline),
        }
    }

    /// What `key` is bound to. A value of over 1 MiB is read in parts, each within the deadline.
    ///
    /// # Errors
    /// See [`ClientError`]; so for all methods.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        let mut value = Vec::new();
        let ticket = self.submit(Ask::Get { key })?;
        match self.wait(ticket, &mut value)? {
            Completion::Value => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// Binds `key` to `value`, which has at most 64 MiB. One of over 1 MiB is written in parts, each within
    /// the deadline, and becomes visible with the last of them.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
        self.write_on(key, Some(value), Terms::default())?;
        Ok(())
    }

    /// Binds `key` to `value` on a condition. Returns whether it held.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn put_only(&self, only: PutOnly, key: &[u8], value: &[u8]) -> Result<bool, ClientError> {
        let only = match only {
            PutOnly::IfAbsent => WriteCondition::Absent,
            PutOnly::IfPresent => WriteCondition::Present,
        };
        let terms = Terms {
            only,
            ..Terms::default()
        };
        Ok(self.write_on(key, Some(value), terms)?.applied)
    }

    /// Removes `key`. Returns whether it was bound.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn delete(&self, key: &[u8]) -> Result<bool, ClientError> {
        self.remove(key)
    }

    /// Returns once everything that was written before, by anybody, is durable on every member of its region.
    /// What this client has submitted and not waited for need not be among it.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`], or [`ClientError::Lost`] at the deadline, where a member is away or does not
    /// keep up: it goes on all the same, and whoever asks again waits for the rest. [`ClientError::Storage`]
    /// where a primary's device has failed.
    pub fn make_durable(&self) -> Result<(), ClientError> {
        self.maintain(Maintenance::Flush)
    }

    /// Runs a full compaction: each region is merged into one level, without the entries that were overwritten or
    /// deleted. Returns when every member has the result. It reads and writes all data: give it a long
    /// [deadline](Self::with_deadline), or ask again.
    ///
    /// # Errors
    /// As [`make_durable`](Self::make_durable); [`ClientError::Unavailable`] where a device is full.
    pub fn compact(&self) -> Result<(), ClientError> {
        self.maintain(Maintenance::Compact)
    }

    fn maintain(&self, what: Maintenance) -> Result<(), ClientError> {
        let mut body = Vec::new();
        Request::Maintain { what }.encode(&mut body);
        let parts: [&[u8]; 1] = [&body];
        // Any server will do.
        let mut sending = Sending {
            op: Op::Maintain,
            flags: Flags::default(),
            key: b"",
            parts: &parts,
            reply_bytes: BRIEF,
        };
        let mut payload = Vec::new();
        self.caller
            .run(&mut sending, self.caller.deadline_from_now(), &mut payload)?;
        Ok(())
    }

    /// Opens a snapshot with a lease of so long, in whole milliseconds, rounded up; an hour where it is more.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`ClientError::Unavailable`] where a region is not open, or has too many.
    pub fn snapshot(&self, lease: Duration) -> Result<Snapshot, ClientError> {
        Snapshot::open(self.clone(), lease)
    }

    /// Sends a request without waiting for its answer, of a value of at most 1 MiB. Waits only where there is
    /// no room for it. A
    /// server that sleeps is woken by [`flush`](Self::flush), or by who [waits](Self::wait) for it.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`] where too many are in flight that nobody has waited for.
    pub fn submit(&self, ask: Ask<'_>) -> Result<Ticket, ClientError> {
        let deadline = self.caller.deadline_from_now();
        let mut pair = PairBuffer::default();
        let parts = parts_of(ask, &mut pair);
        let sending = self.sending(ask, &parts);
        let flight = self.caller.send(&sending, deadline)?;
        let key = matches!(ask, Ask::Get { .. }).then(|| ask.key().to_vec());
        Ok(Ticket {
            flight,
            key,
            deadline,
        })
    }

    /// Wakes all servers that sleep over requests that were submitted: once, behind the last of them.
    pub fn flush(&self) {
        self.caller.shared.known.load().ring();
    }

    /// The answer to a request, if it has come; a value replaces what `value` held. Not to be asked
    /// again after that. The parts of a value of over 1 MiB are waited for, and so is the region map where the server
    /// has been quiet for half a second.
    ///
    /// # Errors
    /// Those of the request.
    pub fn poll(
        &self,
        ticket: &mut Ticket,
        value: &mut Vec<u8>,
    ) -> Result<Option<Completion>, ClientError> {
        let write = ticket.key.is_none();
        ticket.flight.channel().ring();
        match ticket.flight.poll(value) {
            Ok(None) if self.caller.now() >= ticket.deadline => Err(self.caller.too_late(write)),
            Ok(None) => {
                ticket.flight.channel().look_for_life();
                let (flight, deadline) = (&mut ticket.flight, ticket.deadline);
                if self.caller.has_lost(flight, deadline) && !flight.has_answer() {
                    return self.settle_lost(ticket, NoReply::Moved, value).map(Some);
                }
                Ok(None)
            }
            Ok(Some(reply)) => self.settle(ticket, reply, value).map(Some),
            Err(refused) => {
                let lost = match refused {
                    Refused::NotTaken => NoReply::NotTaken,
                    _ => NoReply::Lost,
                };
                self.settle_lost(ticket, lost, value).map(Some)
            }
        }
    }

    /// Waits for the answer to a request; a value replaces what `value` held.
    ///
    /// # Errors
    /// Those of the request.
    pub fn wait(&self, mut ticket: Ticket, value: &mut Vec<u8>) -> Result<Completion, ClientError> {
        match self
            .caller
            .await_reply(&mut ticket.flight, ticket.deadline, value)
        {
            Ok(reply) => self.settle(&ticket, reply, value),
            Err(lost) => self.settle_lost(&ticket, lost, value),
        }
    }

    fn sending<'a>(&self, ask: Ask<'a>, parts: &'a [&'a [u8]]) -> Sending<'a> {
        let (op, flags, reply_bytes) = match ask {
            Ask::Get { .. } => (Op::Get, Flags::default(), self.caller.shared.guess.bytes()),
            Ask::Put { only, .. } => {
                let flags = match only {
                    None => Flags::default(),
                    Some(PutOnly::IfAbsent) => Flags::IF_ABSENT,
                    Some(PutOnly::IfPresent) => Flags::IF_PRESENT,
                };
                (Op::Put, flags, BRIEF)
            }
            Ask::Delete { .. } => (Op::Delete, Flags::default(), BRIEF),
        };
        Sending {
            op,
            flags,
            key: ask.key(),
            parts,
            reply_bytes,
        }
    }

    /// What a reply to a ticket means. A read that has to be asked again is.
    fn settle(
        &self,
        ticket: &Ticket,
        reply: ReplyHeader,
        value: &mut Vec<u8>,
    ) -> Result<Completion, ClientError> {
        match (
            &ticket.key,
            self.caller.judge(reply, value, ticket.key.is_none()),
        ) {
            (Some(key), Verdict::Final) => self.read(key, reply, value),
            (None, Verdict::Final) => answer_of(reply),
            (Some(_), Verdict::Larger(_) | Verdict::Elsewhere | Verdict::Again(_)) => {
                if reply.status == Status::WrongServer {
                    self.caller
                        .relearn(ticket.flight.channel(), ticket.deadline);
                }
                self.caller.shared.guess.learn(reply.needed);
                let grown = self.caller.shared.guess.bytes().max(reply.needed);
                self.read_again(ticket, grown, value)
            }
            (None, Verdict::Elsewhere) => {
                self.caller
                    .relearn(ticket.flight.channel(), ticket.deadline);
                Err(ClientError::Unavailable {
                    what: "the region has moved to another server; try again".to_owned(),
                    outcome: Outcome::NotApplied,
                })
            }
            (None, Verdict::Again(error)) | (_, Verdict::Failed(error)) => Err(error),
            (None, Verdict::Larger(_)) => Err(odd("a write was answered at length")),
        }
    }

    /// What becomes of a ticket to which no reply came. A read is asked again, if there is time.
    fn settle_lost(
        &self,
        ticket: &Ticket,
        lost: NoReply,
        value: &mut Vec<u8>,
    ) -> Result<Completion, ClientError> {
        let is_read = ticket.key.is_some();
        Err(match lost {
            NoReply::Late => self.caller.too_late(!is_read),
            _ if is_read => {
                return self.read_again(ticket, self.caller.shared.guess.bytes(), value);
            }
            NoReply::Lost => self.caller.lost(true),
            NoReply::NotTaken => self.caller.lost(false),
            NoReply::Moved => Caller::moved(),
        })
    }

    fn read_again(
        &self,
        ticket: &Ticket,
        reply_bytes: usize,
        value: &mut Vec<u8>,
    ) -> Result<Completion, ClientError> {
        let key = ticket.key.as_deref().expect("a read has a key");
        let mut sending = Sending {
            op: Op::Get,
            flags: Flags::default(),
            key,
            parts: &[key],
            reply_bytes,
        };
        let reply = self.caller.run(&mut sending, ticket.deadline, value)?;
        self.read(key, reply, value)
    }

    /// What the reply to a get of `key` tells, with the whole value where that is in parts.
    fn read(
        &self,
        key: &[u8],
        reply: ReplyHeader,
        value: &mut Vec<u8>,
    ) -> Result<Completion, ClientError> {
        if reply.status != Status::Long {
            return answer_of(reply);
        }
        Ok(match self.caller.whole(key, long_in(value)?, None)? {
            Some(whole) => {
                *value = whole;
                Completion::Value
            }
            None => Completion::Absent,
        })
    }
}

fn answer_of(reply: ReplyHeader) -> Result<Completion, ClientError> {
    Ok(match reply.status {
        Status::Value => Completion::Value,
        Status::Absent => Completion::Absent,
        Status::Refused => Completion::Refused,
        Status::Done => Completion::Done {
            existed: reply.flags.has(Flags::EXISTED),
        },
        other => return Err(odd(&format!("a request was answered by {other:?}"))),
    })
}

pub(super) fn odd(what: &str) -> ClientError {
    ClientError::Protocol {
        what: what.to_owned(),
        outcome: Outcome::Unknown,
    }
}

/// Room for what stands in front of a put's value.
#[derive(Default)]
struct PairBuffer(Vec<u8>);

fn parts_of<'a>(ask: Ask<'a>, pair: &'a mut PairBuffer) -> [&'a [u8]; 2] {
    match ask {
        Ask::Get { key } | Ask::Delete { key } => [key, b""],
        Ask::Put { key, value, .. } => {
            pair.0.reserve_exact(key.len() + 2);
            put_pair(key, &mut pair.0);
            [&pair.0, value]
        }
    }
}
