//! Writes that are sent again: under which names, and until when.
//!
//! A client takes an id for itself, and counts its writes. A write that is waited for goes out under such a name, and
//! is written at most once under it, so it may be sent again:
//!
//! 1. As long as it surely had no effect it is tried again as every request is ([`run`](super::run)).
//! 2. Where it is not known what became of it, since the connection broke, the primary died, or the answer says so, it
//!    is sent again under the same name, after a pause that grows, until its deadline. The region answers that it was
//!    written before, or writes it now.
//! 3. A region that has forgotten the name says so. Where the write was sent once only it was not applied: the client
//!    takes another id, and sends it under a new name. Otherwise nobody knows, and the caller is told that.
//!
//! What is told: *applied*, where any attempt was. *Not applied*, where the only attempt was refused. *Unknown*
//! otherwise: where the deadline passed, and where a condition does not hold after an attempt that was in doubt, since
//! that one may still be under way.
//!
//! An id begins with a moment. Where fresh ids are taken for forgotten ones this client's clock is behind: each further
//! one is taken for a moment further ahead.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use argosy_base::{ClientId, Instant, Moment, Outcome, RequestName, WriteBatch, WriteOptions};
use argosy_wire::api::{Request, Response};
use argosy_wire::native::{Flags, Op, ReplyHeader};
use parking_lot::Mutex;

use super::change::read;
use super::client::Options;
use super::run::{Caller, Sending};
use crate::error::ClientError;

/// How often a write gets a new name that was not sent before.
const NAMES_MAX: u32 = 16;
/// How far the second id is ahead that is taken since the first was forgotten; the next is ahead twice as far.
const AHEAD_MILLIS: u64 = 1000;
/// No id is further ahead: regions refuse what is ahead by an hour.
const AHEAD_MILLIS_MAX: u64 = 30 * 60 * 1000;
/// Pause before a write is sent again; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The names of a client's writes.
#[derive(Debug, Default)]
pub(super) struct Names {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The id; 0 before the first, and after it was forgotten.
    client: ClientId,
    /// The last number that was given out under it.
    seq: u64,
    /// How far ahead the next id is taken.
    ahead: u64,
}

impl Names {
    /// The next name; `None` where this client takes none.
    fn next(&self, options: &Options) -> Option<RequestName> {
        let source = options.random.as_ref()?;
        let mut state = self.state.lock();
        if state.client == ClientId(0) {
            let moment = Moment(options.clock.wall().0 + state.ahead);
            state.client = ClientId::taken_at(moment, source()?);
            state.seq = 0;
        }
        state.seq += 1;
        Some(RequestName {
            client: state.client,
            seq: state.seq,
        })
    }

    /// A region has forgotten `request`: the next name has another id.
    fn forgotten(&self, request: RequestName) {
        let mut state = self.state.lock();
        if state.client != request.client {
            return;
        }
        // The first of its numbers: the id itself is too low.
        state.ahead = match request.seq {
            1 => (2 * state.ahead).clamp(AHEAD_MILLIS, AHEAD_MILLIS_MAX),
            _ => state.ahead,
        };
        state.client = ClientId(0);
    }
}

/// Random numbers of the machine.
pub(super) fn machine_random() -> Option<u64> {
    let mut bytes = [0; 8];
    let mut source = File::open("/dev/urandom").ok()?;
    source.read_exact(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// What a write was answered.
pub(super) struct Answer {
    pub(super) reply: ReplyHeader,
    pub(super) response: Response,
}

/// A write of one region, which is waited for.
pub(super) struct Writing<'a> {
    /// A key of the region.
    pub(super) key: &'a [u8],
    pub(super) flags: Flags,
    pub(super) batch: WriteBatch,
    pub(super) options: WriteOptions,
    pub(super) reply_bytes: usize,
}

/// What is known of a write after an attempt.
enum Attempted {
    Answered(Answer),
    Failed(ClientError),
    /// The region has forgotten the name, and nothing was sent under it before.
    NewName,
}

impl Caller {
    /// Has a write carried out, and sends it again while nobody knows whether it was.
    pub(super) fn write(&self, mut writing: Writing<'_>) -> Result<Answer, ClientError> {
        let deadline = self.deadline_from_now();
        for _ in 0..NAMES_MAX {
            let name = self.shared.names.next(&self.shared.options);
            if let Some(name) = name {
                writing.batch.name(name);
            }
            match self.write_under(&writing, name, deadline) {
                Attempted::Answered(answer) => return Ok(answer),
                Attempted::Failed(error) => return Err(error),
                Attempted::NewName => {}
            }
        }
        Err(ClientError::Unavailable {
            what: "the region takes every client id for an old one; compare the clocks".to_owned(),
            outcome: Outcome::NotApplied,
        })
    }

    fn write_under(
        &self,
        writing: &Writing<'_>,
        name: Option<RequestName>,
        deadline: Instant,
    ) -> Attempted {
        let mut body = Vec::new();
        Request::Write {
            batch: &writing.batch,
            options: writing.options,
        }
        .encode(&mut body);
        let mut sending = Sending {
            op: Op::Write,
            flags: writing.flags,
            key: writing.key,
            parts: &[&body],
            reply_bytes: writing.reply_bytes,
        };
        let mut doubt = None;
        let mut pause = PAUSE_MIN;
        let mut payload = Vec::new();
        loop {
            let ended = self.run(&mut sending, deadline, &mut payload);
            let ended = ended.and_then(|reply| {
                let response = read(&payload)?;
                Ok(Answer { reply, response })
            });
            let error = match ended {
                Ok(answer) => return answered(answer, doubt),
                Err(error) => error,
            };
            if let (ClientError::Forgotten { .. }, None, Some(name)) = (&error, &doubt, name) {
                self.shared.names.forgotten(name);
                return Attempted::NewName;
            }
            let in_doubt = error.outcome() == Outcome::Unknown;
            let again = matches!(
                error,
                ClientError::Lost { .. } | ClientError::Unavailable { .. }
            );
            if !in_doubt {
                return Attempted::Failed(doubt.unwrap_or(error));
            }
            if !again || name.is_none() || self.now() + pause >= deadline {
                return Attempted::Failed(error);
            }
            doubt = Some(error);
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// What an answer means after attempts in `doubt`.
fn answered(answer: Answer, doubt: Option<ClientError>) -> Attempted {
    match (&answer.response, doubt) {
        // An earlier attempt may be under way still, and the condition hold for that.
        (Response::Written { applied: false, .. }, Some(doubt)) => Attempted::Failed(doubt),
        _ => Attempted::Answered(answer),
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
