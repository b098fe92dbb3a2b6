//! What every client can do, over the Redis protocol: one connection to one server, which forwards
//! where another is the primary.
//!
//! A connection that broke is opened anew by the next request. No request is repeated by itself:
//! what became of it is said by its error.

use std::net::SocketAddr;

use argosy_base::limits::{BATCH_BYTES_MAX, BATCH_PAIRS_MAX, KEY_BYTES_MAX};
use argosy_base::{KeyRange, Outcome};

use super::connection::{Connection, RespError};
use super::parse::Reply;
use crate::error::ClientError;
use crate::kv::{Kv, Page, Pairs, PutOnly, Span, Write};

/// Most pairs that are asked for at once. So many of a usual length fit the longest reply.
const PAGE_PAIRS_MAX: usize = 1000;

/// How the server begins an error that is about the length of its reply.
const REPLY_TOO_LONG: &str = "max_reply_bytes";

/// What a server says of values of over 1 MiB that are too long for one reply together.
const TOO_LONG_TOGETHER: &str = "over 1048576 bytes";

/// A client over the Redis protocol.
#[derive(Debug)]
pub struct RespClient {
    addr: SocketAddr,
    connection: Option<Connection>,
    /// How many pairs fit a reply, as far as is known.
    page_pairs: usize,
    /// The snapshot that is read from.
    pub(super) snapshot: Option<String>,
}

impl RespClient {
    /// Connects to the server that listens at `addr`.
    ///
    /// # Errors
    /// [`ClientError::Lost`] where it cannot be reached.
    pub fn connect(addr: SocketAddr) -> Result<Self, ClientError> {
        let mut client = Self {
            addr,
            connection: None,
            page_pairs: PAGE_PAIRS_MAX,
            snapshot: None,
        };
        client.connection()?;
        Ok(client)
    }

    /// The server's address.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sends any command and returns whatever is answered, errors included.
    ///
    /// # Errors
    /// Where nothing is answered; the outcome is unknown once the command was sent.
    pub fn command(&mut self, words: &[&[u8]]) -> Result<Reply, ClientError> {
        let connection = self.connection()?;
        connection.call(words).map_err(|error| {
            self.connection = None;
            lost(&error, Outcome::Unknown)
        })
    }

    /// Sends commands together, and returns what is answered to each. A server reads on while it is not behind
    /// with its answers: these have to be short, or the commands few.
    ///
    /// # Errors
    /// Where one of them is not answered, or by an error: what became of the others is unknown.
    pub fn commands(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Reply>, ClientError> {
        let replies = self.replies(commands)?;
        for reply in &replies {
            if let Reply::Error(line) = reply {
                return Err(refusal(line.clone()));
            }
        }
        Ok(replies)
    }

    /// Sends commands together, and returns what is answered to each, errors included.
    ///
    /// # Errors
    /// Where one of them is not answered: what became of it and of those behind it is unknown.
    pub fn replies(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Reply>, ClientError> {
        let connection = self.connection()?;
        for words in commands {
            connection.push(words);
        }
        let sent = connection.flush();
        let replies = sent.and_then(|()| commands.iter().map(|_| connection.reply()).collect());
        replies.map_err(|error| {
            self.connection = None;
            lost(&error, Outcome::Unknown)
        })
    }

    /// The first key of `span`, if there is one; its value is not read.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn first_key(&mut self, span: &Span) -> Result<Option<Vec<u8>>, ClientError> {
        Ok(self.keys(span, 1)?.into_iter().next())
    }

    /// The first keys of `span`, at most `keys_max` and what a reply takes, whatever they are bound to. Their values
    /// are not read.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn keys(&mut self, span: &Span, keys_max: usize) -> Result<Vec<Vec<u8>>, ClientError> {
        if span.range.is_empty() || keys_max == 0 {
            return Ok(Vec::new());
        }
        let (from, to) = bounds(&span.range);
        let mut most = keys_max.min(PAGE_PAIRS_MAX);
        let reply = loop {
            let digits = most.to_string();
            let mut words = vec![
                &b"KV.RANGE"[..],
                &from,
                &to,
                b"LIMIT",
                digits.as_bytes(),
                b"KEYSONLY",
            ];
            if span.reverse {
                words.push(b"REV");
            }
            match self.read_seen(&words) {
                Err(error) if is_too_long(&error) && most > 1 => most /= 2,
                reply => break reply?,
            }
        };
        let Reply::Array(Some(keys)) = reply else {
            return Err(as_read(odd("KV.RANGE", &reply)));
        };
        let key = |reply| match reply {
            Reply::Bulk(Some(key)) => Ok(key),
            reply => Err(as_read(odd("KV.RANGE", &reply))),
        };
        keys.into_iter().map(key).collect()
    }

    fn connection(&mut self) -> Result<&mut Connection, ClientError> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            closed => {
                let opened = Connection::open(self.addr);
                let opened = opened.map_err(|error| lost(&error, Outcome::NotApplied))?;
                Ok(closed.insert(opened))
            }
        }
    }

    /// Sends a command that reads, from the snapshot if there is one.
    fn read_seen(&mut self, words: &[&[u8]]) -> Result<Reply, ClientError> {
        let Some(name) = self.snapshot.clone() else {
            return self.read(words);
        };
        let mut words = words.to_vec();
        words.extend([&b"SNAPSHOT"[..], name.as_bytes()]);
        self.read(&words)
    }

    /// Sends a command that reads.
    pub(super) fn read(&mut self, words: &[&[u8]]) -> Result<Reply, ClientError> {
        let reply = self.command(words).map_err(as_read)?;
        match reply {
            Reply::Error(line) => Err(as_read(refusal(line))),
            reply => Ok(reply),
        }
    }

    /// Sends a command that writes.
    fn write(&mut self, words: &[&[u8]]) -> Result<Reply, ClientError> {
        match self.command(words)? {
            Reply::Error(line) => Err(refusal(line)),
            reply => Ok(reply),
        }
    }
}

impl Kv for RespClient {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        let name: &[u8] = match self.snapshot {
            Some(_) => b"KV.GET",
            None => b"GET",
        };
        match self.read_seen(&[name, key])? {
            Reply::Bulk(value) => Ok(value),
            reply => Err(as_read(odd("GET", &reply))),
        }
    }

    fn multi_get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut values = Vec::with_capacity(keys.len());
        let mut left = keys;
        let mut at_once = self.page_pairs;
        while !left.is_empty() {
            let (now, behind) = left.split_at(at_once.min(left.len()));
            let words: Vec<_> = std::iter::once(&b"MGET"[..])
                .chain(now.iter().copied())
                .collect();
            match self.read(&words) {
                Ok(Reply::Array(Some(items))) if items.len() == now.len() => {
                    for item in items {
                        match item {
                            Reply::Bulk(value) => values.push(value),
                            item => return Err(as_read(odd("MGET", &item))),
                        }
                    }
                    left = behind;
                }
                Ok(reply) => return Err(as_read(odd("MGET", &reply))),
                Err(error) if now.len() > 1 && (is_too_long(&error) || are_long(&error)) => {
                    at_once = now.len() / 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(values)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
        match self.write(&[b"SET", key, value])? {
            Reply::Simple(_) => Ok(()),
            reply => Err(odd("SET", &reply)),
        }
    }

    fn put_only(&mut self, only: PutOnly, key: &[u8], value: &[u8]) -> Result<bool, ClientError> {
        let condition: &[u8] = match only {
            PutOnly::IfAbsent => b"NX",
            PutOnly::IfPresent => b"XX",
        };
        match self.write(&[b"SET", key, value, condition])? {
            Reply::Simple(_) => Ok(true),
            Reply::Bulk(None) => Ok(false),
            reply => Err(odd("SET", &reply)),
        }
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        match self.write(&[b"DEL", key])? {
            Reply::Integer(count) => Ok(count > 0),
            reply => Err(odd("DEL", &reply)),
        }
    }

    fn write_many(&mut self, writes: &[Write<'_>]) -> Result<(), ClientError> {
        let mut left = writes;
        let mut written = false;
        while !left.is_empty() {
            let (now, behind) = left.split_at(run_of(left));
            let puts = now[0].1.is_some();
            let mut words: Vec<&[u8]> = vec![if puts { b"MSET" } else { b"DEL" }];
            for (key, value) in now {
                words.push(key);
                words.extend(value);
            }
            match self.write(&words) {
                Ok(Reply::Simple(_) | Reply::Integer(_)) => {}
                Ok(reply) => return Err(odd("a batch", &reply)),
                Err(error) if written => return Err(error.after_a_part()),
                Err(error) => return Err(error),
            }
            written = true;
            left = behind;
        }
        Ok(())
    }

    fn page(&mut self, span: &Span, pairs_max: usize) -> Result<Page, ClientError> {
        if span.range.is_empty() || pairs_max == 0 {
            return Ok(Page::default());
        }
        let (from, to) = bounds(&span.range);
        let mut most = pairs_max;
        loop {
            let limit = most.min(self.page_pairs);
            let digits = limit.to_string();
            let words: [&[u8]; 6] = [b"KV.RANGE", &from, &to, b"LIMIT", digits.as_bytes(), b"REV"];
            let words = &words[..if span.reverse { 6 } else { 5 }];
            let reply = match self.read_seen(words) {
                Err(error) if is_too_long(&error) && limit > 1 => {
                    self.page_pairs = limit / 2;
                    continue;
                }
                Err(error) if are_long(&error) && limit > 1 => {
                    most = limit / 2;
                    continue;
                }
                other => other?,
            };
            let pairs = pairs_of(reply).map_err(|reply| as_read(odd("KV.RANGE", &reply)))?;
            let rest = match pairs.last() {
                Some((last, _)) if pairs.len() >= limit => span.behind(last),
                _ => None,
            };
            return Ok(Page { pairs, rest });
        }
    }
}

/// The pairs of a flat array, or the reply that is none.
fn pairs_of(reply: Reply) -> Result<Pairs, Reply> {
    let Reply::Array(Some(items)) = reply else {
        return Err(reply);
    };
    if items.len() % 2 == 1 {
        return Err(Reply::Array(Some(items)));
    }
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        match (key, value) {
            (Reply::Bulk(Some(key)), Reply::Bulk(Some(value))) => pairs.push((key, value)),
            (key, _) => return Err(key),
        }
    }
    Ok(pairs)
}

/// How many of `writes`, of which there is one, fit one command: all puts or all deletes, and
/// within the limits of a batch.
fn run_of(writes: &[Write<'_>]) -> usize {
    let puts = writes[0].1.is_some();
    let mut bytes = 0;
    let fits = |(key, value): &&Write<'_>| {
        bytes += key.len() + value.map_or(0, <[u8]>::len);
        value.is_some() == puts && bytes <= BATCH_BYTES_MAX
    };
    let run = writes.iter().take(BATCH_PAIRS_MAX).take_while(fits).count();
    // A pair that is too long by itself is refused by the server, which says why.
    run.max(1)
}

/// The bounds of `KV.RANGE`, where an empty bound, `-` and `+` are none. A bound that is one of the
/// two signs is replaced by one that no key lies between: the sign below it, and more bytes of 0xff
/// than a key has.
fn bounds(range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let plain = |bound: &[u8]| match bound {
        [sign @ (b'-' | b'+')] => {
            let mut below = vec![0xff; KEY_BYTES_MAX + 1];
            below[0] = sign - 1;
            below
        }
        bound => bound.to_vec(),
    };
    let to = range.to.as_deref().unwrap_or_default();
    (plain(&range.from), plain(to))
}

/// The error that the server's line stands for.
impl ClientError {
    /// What the error that a server has answered, without its sign, means.
    #[must_use]
    pub fn of_error(line: &str) -> Self {
        refusal(line.to_owned())
    }
}

fn refusal(line: String) -> ClientError {
    let outcome = [Outcome::Applied, Outcome::NotApplied, Outcome::Unknown]
        .into_iter()
        .find(|outcome| line.ends_with(&format!("({outcome})")));
    let (word, text) = line.split_once(' ').unwrap_or((&line, ""));
    let what = outcome.map_or(text, |outcome| {
        let end = text.len().saturating_sub(outcome.to_string().len() + 2);
        text.get(..end).unwrap_or(text).trim_end()
    });
    let what = what.to_owned();
    match word {
        "TRYAGAIN" | "UNCERTAIN" | "LOADING" => ClientError::Unavailable {
            what,
            outcome: outcome.unwrap_or(Outcome::NotApplied),
        },
        "MISCONF" => ClientError::Storage {
            what,
            outcome: outcome.unwrap_or(Outcome::Unknown),
        },
        "ERR" => ClientError::Invalid { what },
        "WRONGTYPE" => ClientError::WrongType { what },
        _ => ClientError::Invalid { what: line },
    }
}

fn is_too_long(error: &ClientError) -> bool {
    matches!(error, ClientError::Invalid { what } if what.contains(REPLY_TOO_LONG))
}

fn are_long(error: &ClientError) -> bool {
    matches!(error, ClientError::Invalid { what } if what.contains(TOO_LONG_TOGETHER))
}

pub(super) fn odd(command: &str, reply: &Reply) -> ClientError {
    ClientError::Protocol {
        what: format!("{command} was answered by {reply:?}"),
        outcome: Outcome::Unknown,
    }
}

fn lost(error: &RespError, outcome: Outcome) -> ClientError {
    match error {
        RespError::Connection { addr, source } => ClientError::Lost {
            what: format!("the connection to {addr} failed: {source}"),
            outcome,
        },
        RespError::Protocol { .. } => ClientError::Protocol {
            what: error.to_string(),
            outcome,
        },
    }
}

/// A read changes nothing, whatever became of it.
pub(super) fn as_read(error: ClientError) -> ClientError {
    let outcome = Outcome::NotApplied;
    match error {
        ClientError::Lost { what, .. } => ClientError::Lost { what, outcome },
        ClientError::Protocol { what, .. } => ClientError::Protocol { what, outcome },
        ClientError::Storage { what, .. } => ClientError::Storage { what, outcome },
        other => other,
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
