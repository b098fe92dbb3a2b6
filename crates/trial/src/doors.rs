//! How clients ask: over the Redis protocol, through one server, or as native clients, which find the primaries
//! themselves. Both are asked the same, and answer the same.
//!
//! A Redis client stays with its server, whatever happens to that. A native client meets the cluster at a server; where
//! it is lost [`LOST_MAX`] times in a row, it meets it anew at the next one, as a program would.

use std::net::SocketAddr;
use std::time::Duration;

use argosy_base::Outcome;
use argosy_client::native::{Options, Terms, Told, ValueChange, WriteCondition};
use argosy_client::resp::Reply;
use argosy_client::{Client, ClientError, PutOnly, RespClient};

use crate::record::Op;

/// So many requests in a row are lost before a native client meets the cluster elsewhere.
const LOST_MAX: usize = 3;

/// How long a native client waits for an answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Which way a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// Over the Redis protocol, through the server of this number.
    Resp(u8),
    /// As a native client.
    Native,
}

/// What is asked of one key. Values are bytes; none stands for no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// What for.
    pub op: Op,
    /// What to bind the key to, where it is to be bound.
    pub value: Vec<u8>,
    /// What it has to be bound to, where that is asked.
    pub expected: Vec<u8>,
    /// Which element of the collection it is; empty where it is none.
    pub element: Vec<u8>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// What the key is bound to.
    Value(Option<Vec<u8>>),
    /// Whether it is, or before it was removed was, bound.
    Existed(bool),
    /// Whether a write was applied.
    Written(bool),
    /// It was applied, and this is what was there before.
    Swapped(Option<Vec<u8>>),
    /// The sum.
    Sum(i64),
}

/// One client.
pub(crate) trait Asker: Send {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// There is none. The error says what became of a write.
    fn ask(&mut self, key: &[u8], ask: &Ask) -> Result<Answer, ClientError>;
}

/// A client over the Redis protocol.
#[derive(Debug)]
pub(crate) struct Resp {
    addr: SocketAddr,
    client: Option<RespClient>,
}

impl Resp {
    /// Asks the server at `addr`.
    #[must_use]
    pub(crate) const fn at(addr: SocketAddr) -> Self {
        Self { addr, client: None }
    }

    fn client(&mut self) -> Result<&mut RespClient, ClientError> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => Ok(none.insert(RespClient::connect(self.addr)?)),
        }
    }
}

impl Asker for Resp {
    fn ask(&mut self, key: &[u8], ask: &Ask) -> Result<Answer, ClientError> {
        let (value, expected) = (&ask.value[..], &ask.expected[..]);
        let element = &ask.element[..];
        let words: &[&[u8]] = match ask.op {
            Op::Get => &[b"GET", key],
            Op::Exists => &[b"EXISTS", key],
            Op::Set => &[b"SET", key, value],
            Op::Swap => &[b"SET", key, value, b"GET"],
            Op::SetAbsent => &[b"SET", key, value, b"NX"],
            Op::SetPresent => &[b"SET", key, value, b"XX"],
            Op::SetEqual => &[b"SET", key, value, b"IFEQ", expected],
            Op::Delete => &[b"DEL", key],
            Op::Increment => &[b"INCR", key],
            Op::AddToField => &[b"HINCRBY", key, element, b"1"],
            Op::AddToScore => &[b"ZINCRBY", key, b"1", element],
            Op::AddMember => &[b"SADD", key, element],
            Op::RemoveMember => &[b"SREM", key, element],
            Op::HasMember => &[b"SISMEMBER", key, element],
            Op::Transact => return Err(not_of_a_key(ask.op)),
        };
        let reply = self.client()?.command(words)?;
        if let Reply::Error(line) = &reply {
            return Err(ClientError::of_error(line));
        }
        answer_of(ask.op, reply)
    }
}

/// What a client says that is asked for what it has no request for.
fn not_of_a_key(op: Op) -> ClientError {
    ClientError::Protocol {
        what: format!("{} is no request of this client for one key", op.name()),
        outcome: Outcome::NotApplied,
    }
}

/// The answer that a reply is.
fn answer_of(op: Op, reply: Reply) -> Result<Answer, ClientError> {
    match (op, reply) {
        (Op::Get, Reply::Bulk(value)) => Ok(Answer::Value(value)),
        (Op::Swap, Reply::Bulk(before)) => Ok(Answer::Swapped(before)),
        (
            Op::Exists | Op::Delete | Op::RemoveMember | Op::HasMember,
            Reply::Integer(count @ (0 | 1)),
        ) => Ok(Answer::Existed(count == 1)),
        (Op::AddMember, Reply::Integer(added @ (0 | 1))) => Ok(Answer::Existed(added == 0)),
        (Op::Set | Op::SetAbsent | Op::SetPresent | Op::SetEqual, Reply::Simple(_)) => {
            Ok(Answer::Written(true))
        }
        (Op::SetAbsent | Op::SetPresent | Op::SetEqual, Reply::Bulk(None)) => {
            Ok(Answer::Written(false))
        }
        (Op::Increment | Op::AddToField, Reply::Integer(sum)) => Ok(Answer::Sum(sum)),
        (Op::AddToScore, Reply::Bulk(Some(score))) => match whole(&score) {
            Some(sum) => Ok(Answer::Sum(sum)),
            None => Err(ClientError::Protocol {
                what: format!("{} told {score:?}", op.name()),
                outcome: Outcome::Unknown,
            }),
        },
        (op, reply) => Err(ClientError::Protocol {
            what: format!("{} was answered by {reply:?}", op.name()),
            outcome: Outcome::Unknown,
        }),
    }
}

/// The whole number that a score is.
fn whole(score: &[u8]) -> Option<i64> {
    std::str::from_utf8(score).ok()?.parse().ok()
}

/// A native client.
pub(crate) struct Native {
    servers: Vec<SocketAddr>,
    at: usize,
    lost: usize,
    client: Option<Client>,
}

impl Native {
    /// Meets the cluster of `servers` at the one of number `first`.
    #[must_use]
    pub(crate) const fn at(servers: Vec<SocketAddr>, first: usize) -> Self {
        Self {
            servers,
            at: first,
            lost: 0,
            client: None,
        }
    }

    fn client(&mut self) -> Result<&Client, ClientError> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => {
                let options = Options {
                    deadline: DEADLINE,
                    ..Options::default()
                };
                let addr = self.servers[self.at].to_string();
                Ok(none.insert(Client::connect_with(&addr, options)?))
            }
        }
    }

    fn try_once(&mut self, key: &[u8], ask: &Ask) -> Result<Answer, ClientError> {
        let client = self.client()?;
        let value = &ask.value[..];
        let write = |terms| client.write_on(key, Some(value), terms);
        match ask.op {
            Op::Get => client.get(key).map(Answer::Value),
            Op::Exists => {
                let outline = client.outline(key)?;
                Ok(Answer::Existed(outline.is_some()))
            }
            Op::Set => client.put(key, value).map(|()| Answer::Written(true)),
            Op::Swap => {
                let previous = true;
                let terms = Terms {
                    previous,
                    ..Terms::default()
                };
                write(terms).map(|outcome| Answer::Swapped(outcome.previous))
            }
            Op::SetAbsent => client
                .put_only(PutOnly::IfAbsent, key, value)
                .map(Answer::Written),
            Op::SetPresent => client
                .put_only(PutOnly::IfPresent, key, value)
                .map(Answer::Written),
            Op::SetEqual => {
                let only = WriteCondition::Equals(&ask.expected);
                let terms = Terms {
                    only,
                    ..Terms::default()
                };
                write(terms).map(|outcome| Answer::Written(outcome.applied))
            }
            Op::Delete => client.delete(key).map(Answer::Existed),
            Op::Increment => match client.change(key, ValueChange::Add(1))? {
                Told::Number(sum) => Ok(Answer::Sum(sum)),
                Told::Value(value) => Err(ClientError::Protocol {
                    what: format!("an increment told {value:?}"),
                    outcome: Outcome::Unknown,
                }),
            },
            Op::AddToField
            | Op::AddToScore
            | Op::AddMember
            | Op::RemoveMember
            | Op::HasMember
            | Op::Transact => Err(not_of_a_key(ask.op)),
        }
    }
}

impl Asker for Native {
    fn ask(&mut self, key: &[u8], ask: &Ask) -> Result<Answer, ClientError> {
        let answer = self.try_once(key, ask);
        match &answer {
            Err(ClientError::Lost { .. }) => self.lost += 1,
            _ => self.lost = 0,
        }
        // Also a client that was never met has the next server tried.
        if self.lost == LOST_MAX || (self.client.is_none() && answer.is_err()) {
            self.lost = 0;
            self.client = None;
            self.at = (self.at + 1) % self.servers.len();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_answers_to_what_was_asked_only() {
        let nil = || Reply::Bulk(None);
        let ok = || Reply::Simple("OK".to_owned());
        assert_eq!(answer_of(Op::Get, nil()).unwrap(), Answer::Value(None));
        assert_eq!(answer_of(Op::Swap, nil()).unwrap(), Answer::Swapped(None));
        assert_eq!(answer_of(Op::Set, ok()).unwrap(), Answer::Written(true));
        let score = Reply::Bulk(Some(b"17".to_vec()));
        assert_eq!(answer_of(Op::AddToScore, score).unwrap(), Answer::Sum(17));
        let added = answer_of(Op::AddMember, Reply::Integer(1));
        assert_eq!(added.unwrap(), Answer::Existed(false));
        for op in [Op::SetAbsent, Op::SetPresent, Op::SetEqual] {
            assert_eq!(answer_of(op, ok()).unwrap(), Answer::Written(true));
            assert_eq!(answer_of(op, nil()).unwrap(), Answer::Written(false));
        }
        for (op, reply) in [
            (Op::Set, nil()),
            (Op::Get, ok()),
            (Op::Delete, Reply::Integer(2)),
            (Op::Increment, nil()),
            (Op::AddToScore, Reply::Bulk(Some(b"1.5".to_vec()))),
            (Op::AddMember, Reply::Integer(2)),
        ] {
            let error = answer_of(op, reply).unwrap_err();
            assert_eq!(error.outcome(), Outcome::Unknown);
        }
    }
}
