//! The listening socket, in one thread's epoll set. Where the system is out of descriptors it is not
//! asked again for a while, since it would answer the same at once.

use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use argosy_base::Instant;
use argosy_wire::resp::{Encoder, Protocol};
use rustix::event::epoll;

/// The event of the listening socket.
pub(super) const LISTENER: u64 = u64::MAX;

/// How long no connection is accepted after the system was out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The listening socket, or the lack of one.
#[derive(Debug)]
pub(super) struct Acceptor {
    socket: Option<TcpListener>,
    again: Option<Instant>,
}

impl Acceptor {
    /// Watches `socket`, if there is one, in `epoll`.
    pub(super) fn new(socket: Option<TcpListener>, epoll: &OwnedFd) -> io::Result<Self> {
        if let Some(socket) = &socket {
            let data = epoll::EventData::new_u64(LISTENER);
            epoll::add(epoll, socket, data, epoll::EventFlags::IN)?;
        }
        Ok(Self {
            socket,
            again: None,
        })
    }

    /// Accepts no more. Clients are refused by the system from now on.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.again = None;
    }

    /// When [`resume`](Self::resume) is to be called.
    pub(super) const fn wants_call_at(&self) -> Option<Instant> {
        self.again
    }

    /// The next connection that waits, if one does.
    pub(super) fn accept(&mut self, epoll: &OwnedFd, now: Instant) -> Option<TcpStream> {
        loop {
            match self.socket.as_ref()?.accept() {
                Ok((stream, _)) => return Some(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!("resp: no connection can be accepted for now: {error}");
                    self.watch(epoll, epoll::EventFlags::empty());
                    self.again = Some(now + PAUSE);
                    return None;
                }
            }
        }
    }

    /// Accepts again, if a pause is over.
    pub(super) fn resume(&mut self, epoll: &OwnedFd, now: Instant) {
        if self.again.is_some_and(|again| again <= now) {
            self.again = None;
            self.watch(epoll, epoll::EventFlags::IN);
        }
    }

    fn watch(&self, epoll: &OwnedFd, interest: epoll::EventFlags) {
        if let Some(socket) = &self.socket {
            let data = epoll::EventData::new_u64(LISTENER);
            epoll::modify(epoll, socket, data, interest).expect("it is in the set");
        }
    }
}

/// The connection to be accepted is gone; the next one may be there.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

/// Tells a client that there are too many, and closes.
pub(super) fn refuse(mut stream: TcpStream, max: usize) {
    let mut text = Vec::new();
    Encoder::new(&mut text, Protocol::Resp2).error(&format!(
        "ERR max number of clients reached ({max}, maxclients)"
    ));
    // The socket is new, so this fits its buffer; if the client is gone, nobody misses it.
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(&text);
}
