//! One connection of the Redis protocol, as far as clients of ours need it: RESP2, blocking,
//! pipelined.
//!
//! Commands are collected by [`Connection::push`], sent by [`Connection::flush`], and their replies
//! read one by one, in order, by [`Connection::reply`]. A caller keeps what is in flight small
//! enough for the socket buffers: nothing is read while sending.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::parse::{Parsed, Parser, Reply};

/// How long a connection waits for the server, in connecting and in each read. A server answers
/// every request within its own deadline, which is shorter.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// How much room is kept for what comes next: what a long value took is given back.
const KEPT_BYTES: usize = 4 << 20;

/// Why there is no reply. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum RespError {
    /// The connection failed, or the server did not answer in time.
    #[error("the connection to {addr} failed")]
    Connection {
        /// The server's address.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The server sent something that is not RESP.
    #[error("the server at {addr} sent what is not RESP: {what}")]
    Protocol {
        /// The server's address.
        addr: SocketAddr,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// A reply whose value still lies in the connection's buffer: what a hot loop looks at.
#[derive(Debug, PartialEq, Eq)]
pub enum BriefReply<'a> {
    /// The value, or nil.
    Bulk(Option<&'a [u8]>),
    /// Anything else.
    Other(Reply),
}

/// A connection to one server.
#[derive(Debug)]
pub struct Connection {
    addr: SocketAddr,
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
    /// Start of what was not parsed yet, in `input`.
    start: usize,
    /// What has come of a reply that is not whole.
    parser: Parser,
}

impl Connection {
    /// Connects to `addr`.
    pub fn open(addr: SocketAddr) -> Result<Self, RespError> {
        let failed = |source| RespError::Connection { addr, source };
        let stream = TcpStream::connect_timeout(&addr, TIMEOUT).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
        Ok(Self {
            addr,
            stream,
            output: Vec::new(),
            input: Vec::new(),
            start: 0,
            parser: Parser::default(),
        })
    }

    /// Adds a command to what the next [`flush`](Self::flush) sends.
    pub fn push(&mut self, words: &[&[u8]]) {
        number(&mut self.output, b'*', words.len());
        for word in words {
            number(&mut self.output, b'$', word.len());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Bytes that the next [`flush`](Self::flush) sends.
    #[must_use]
    pub const fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Sends what was pushed.
    pub fn flush(&mut self) -> Result<(), RespError> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        self.output.shrink_to(KEPT_BYTES);
        sent.map_err(|source| self.failed(source))
    }

    /// The next reply.
    pub fn reply(&mut self) -> Result<Reply, RespError> {
        match self.brief_reply()? {
            BriefReply::Bulk(value) => Ok(Reply::Bulk(value.map(<[u8]>::to_vec))),
            BriefReply::Other(reply) => Ok(reply),
        }
    }

    /// The next reply; a value is not copied.
    pub fn brief_reply(&mut self) -> Result<BriefReply<'_>, RespError> {
        loop {
            let (used, parsed) = self
                .parser
                .parse(&self.input[self.start..])
                .map_err(|what| self.garbled(what))?;
            let base = self.start;
            self.start += used;
            match parsed {
                Some(Parsed::Bulk(span)) => {
                    let value = span.map(|(from, to)| &self.input[base + from..base + to]);
                    return Ok(BriefReply::Bulk(value));
                }
                Some(Parsed::Other(reply)) => return Ok(BriefReply::Other(reply)),
                None => self.fill()?,
            }
        }
    }

    /// Sends one command and waits for its reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Reply, RespError> {
        self.push(words);
        self.flush()?;
        self.reply()
    }

    /// Sends bytes as they are: for tests that do not speak RESP.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), RespError> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|source| self.failed(source))
    }

    /// Reads more, after dropping what was parsed.
    fn fill(&mut self) -> Result<(), RespError> {
        self.input.drain(..self.start);
        self.start = 0;
        if self.input.is_empty() {
            self.input.shrink_to(KEPT_BYTES);
        }
        let old = self.input.len();
        self.input.resize(old + READ_BYTES, 0);
        let read = loop {
            match self.stream.read(&mut self.input[old..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.input.truncate(old + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: io::Error) -> RespError {
        RespError::Connection {
            addr: self.addr,
            source,
        }
    }

    const fn garbled(&self, what: &'static str) -> RespError {
        RespError::Protocol {
            addr: self.addr,
            what,
        }
    }
}

/// Writes `sign`, `n` in decimal, and the end of the line.
fn number(output: &mut Vec<u8>, sign: u8, n: usize) {
    let mut digits = [0; 20];
    let (mut left, mut at) = (n, digits.len());
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).expect("a digit is small");
        left /= 10;
        if left == 0 {
            break;
        }
    }
    output.push(sign);
    output.extend_from_slice(&digits[at..]);
    output.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
