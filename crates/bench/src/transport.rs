//! How a client thread reaches the servers: over the Redis protocol, or in memory that it shares with
//! them.
//!
//! Either way requests are sent first and answered in order. Over the Redis protocol they gather until
//! `Way::flush`; natively each is on its way at once, but for scans, which are made when their turn
//! has come to be answered.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use argosy_client::native::{Ask, Client, Completion, Ticket};
use argosy_client::resp::{BriefReply, Connection, Reply};
use argosy_client::{KeyRange, Pairs, Span};

use crate::driver::DriverError;

/// Through which transport clients come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Memory that is shared with the servers.
    #[default]
    Native,
    /// The Redis protocol.
    Resp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Resp => "resp",
        })
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "native" => Ok(Self::Native),
            "resp" => Ok(Self::Resp),
            _ => Err(format!("'{text}' is no client; there are native and resp")),
        }
    }
}

/// The ways of one client thread.
pub(crate) enum Way {
    /// A connection to each server, opened when it is needed.
    Resp {
        servers: Vec<SocketAddr>,
        connections: Vec<Option<Connection>>,
    },
    /// A client of its own, and room for a value.
    Native { client: Client, value: Vec<u8> },
}

/// A request that was sent, or is to be made when its turn has come.
pub(crate) enum Sent {
    /// To this server.
    Resp(usize),
    Native(Ticket),
    Scan(Vec<u8>, usize),
    /// It could not be sent, and why.
    Failed(String),
}

/// What was answered.
#[derive(Debug)]
pub(crate) enum Got<'a> {
    Value(Option<&'a [u8]>),
    Written,
    Pairs(Pairs),
    Error(String),
    /// Something else, in words.
    Odd(String),
}

impl Way {
    /// A way through `transport` to `servers`.
    pub(crate) fn new(transport: Transport, servers: &[SocketAddr]) -> Result<Self, DriverError> {
        Ok(match transport {
            Transport::Resp => Self::Resp {
                servers: servers.to_vec(),
                connections: servers.iter().map(|_| None).collect(),
            },
            Transport::Native => Self::Native {
                client: Client::connect(&servers[0].to_string())?,
                value: Vec::new(),
            },
        })
    }

    pub(crate) fn get(&mut self, server: usize, key: &[u8]) -> Result<Sent, DriverError> {
        match self {
            Self::Native { client, .. } => Ok(submit(client, Ask::Get { key })),
            Self::Resp { .. } => self.push(server, &[b"GET", key]),
        }
    }

    pub(crate) fn put(
        &mut self,
        server: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<Sent, DriverError> {
        match self {
            Self::Native { client, .. } => {
                let only = None;
                Ok(submit(client, Ask::Put { key, value, only }))
            }
            Self::Resp { .. } => self.push(server, &[b"SET", key, value]),
        }
    }

    pub(crate) fn scan(
        &mut self,
        server: usize,
        from: &[u8],
        pairs: u64,
    ) -> Result<Sent, DriverError> {
        match self {
            Self::Native { .. } => {
                let pairs = usize::try_from(pairs).unwrap_or(usize::MAX);
                Ok(Sent::Scan(from.to_vec(), pairs))
            }
            Self::Resp { .. } => {
                let limit = pairs.to_string();
                self.push(
                    server,
                    &[b"KV.RANGE", from, b"", b"LIMIT", limit.as_bytes()],
                )
            }
        }
    }

    fn push(&mut self, server: usize, words: &[&[u8]]) -> Result<Sent, DriverError> {
        if let Self::Resp {
            servers,
            connections,
        } = self
        {
            let connection = match &mut connections[server] {
                Some(connection) => connection,
                closed => closed.insert(Connection::open(servers[server])?),
            };
            connection.push(words);
        }
        Ok(Sent::Resp(server))
    }

    /// Sends what has gathered.
    pub(crate) fn flush(&mut self) -> Result<(), DriverError> {
        match self {
            Self::Native { client, .. } => client.flush(),
            Self::Resp { connections, .. } => {
                for connection in connections.iter_mut().flatten() {
                    if connection.unsent() > 0 {
                        connection.flush()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The answer to the oldest request that has none.
    pub(crate) fn receive(&mut self, sent: Sent) -> Result<Got<'_>, DriverError> {
        match (self, sent) {
            (_, Sent::Failed(why)) => Ok(Got::Error(why)),
            (Self::Native { client, value }, Sent::Native(ticket)) => {
                Ok(match client.wait(ticket, value) {
                    Ok(Completion::Value) => Got::Value(Some(value)),
                    Ok(Completion::Absent) => Got::Value(None),
                    Ok(Completion::Done { .. }) => Got::Written,
                    Ok(Completion::Refused) => Got::Odd("a write was refused".to_owned()),
                    Err(error) => Got::Error(error.to_string()),
                })
            }
            (Self::Native { client, .. }, Sent::Scan(from, pairs)) => {
                Ok(scan(client, from, pairs).unwrap_or_else(|error| Got::Error(error.to_string())))
            }
            (Self::Resp { connections, .. }, Sent::Resp(server)) => {
                let connection = connections[server].as_mut().expect("was sent on");
                Ok(match connection.brief_reply()? {
                    BriefReply::Bulk(value) => Got::Value(value),
                    BriefReply::Other(Reply::Simple(_)) => Got::Written,
                    BriefReply::Other(Reply::Error(line)) => Got::Error(line),
                    BriefReply::Other(Reply::Array(Some(words))) => pairs_of(words),
                    BriefReply::Other(other) => Got::Odd(format!("{other:?}")),
                })
            }
            _ => unreachable!("what is sent one way is answered that way"),
        }
    }
}

fn submit(client: &Client, ask: Ask<'_>) -> Sent {
    match client.submit(ask) {
        Ok(ticket) => Sent::Native(ticket),
        Err(error) => Sent::Failed(error.to_string()),
    }
}

fn scan(
    client: &Client,
    from: Vec<u8>,
    pairs: usize,
) -> Result<Got<'static>, argosy_client::ClientError> {
    let mut left = Some(Span::of(KeyRange::new(from, None)));
    let mut found = Pairs::new();
    while let Some(span) = left {
        let page = client.page(&span, pairs - found.len())?;
        found.extend(page.pairs);
        left = page.rest.filter(|_| found.len() < pairs);
    }
    Ok(Got::Pairs(found))
}

/// The pairs of a flat array.
fn pairs_of(words: Vec<Reply>) -> Got<'static> {
    let mut pairs = Pairs::with_capacity(words.len() / 2);
    let mut words = words.into_iter();
    while let Some(key) = words.next() {
        match (key, words.next()) {
            (Reply::Bulk(Some(key)), Some(Reply::Bulk(Some(value)))) => pairs.push((key, value)),
            (key, value) => return Got::Odd(format!("a scan returned {key:?} and {value:?}")),
        }
    }
    Got::Pairs(pairs)
}
