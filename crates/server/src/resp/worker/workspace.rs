//! Memory that a thread works with, for one connection at a time.

use std::io::{self, Read};
use std::net::TcpStream;

use argosy_wire::api::Scratch;

use super::READ_BYTES;
use crate::resp::pool::Pool;
use crate::resp::session::Session;

/// See the module documentation.
pub(super) struct Workspace {
    /// What requests borrow.
    scratch: Scratch,
    /// Buffers that sessions borrow for a round.
    pool: Pool,
    /// What was read from a socket.
    read: Vec<u8>,
}

impl Workspace {
    pub(super) fn new() -> Self {
        Self {
            scratch: Scratch::default(),
            pool: Pool::default(),
            read: vec![0; READ_BYTES],
        }
    }

    /// Reads at most `most` bytes once, for `session`, or, where that is `None`, to forget them. Returns how many.
    pub(super) fn receive(
        &mut self,
        stream: &mut TcpStream,
        session: Option<&mut Session>,
        most: usize,
    ) -> io::Result<usize> {
        let bytes = stream.read(&mut self.read[..most])?;
        if let Some(session) = session.filter(|_| bytes > 0) {
            session.borrow_buffers(&mut self.pool);
            session.receive(&self.read[..bytes]);
        }
        Ok(bytes)
    }

    /// Has `session` work with buffers of the pool.
    pub(super) fn lend(&mut self, session: &mut Session) -> &mut Scratch {
        session.borrow_buffers(&mut self.pool);
        &mut self.scratch
    }

    /// Takes buffers back; where memory is scarce, as many as goes.
    pub(super) fn take_back(&mut self, session: &mut Session, pressed: bool) {
        session.return_buffers(&mut self.pool, pressed);
    }
}
