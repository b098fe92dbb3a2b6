//! How a thread ends connections: when everything has been said, when a client had its time, at once.

use std::net::Shutdown;

use super::{LINGER, Worker};
use crate::resp::slots::{Connection, Ended};

impl Worker {
    /// Everything has been said: closes, but gives the client time to read it where it may still be
    /// sending, since closing over unread input makes the kernel throw away what we wrote.
    pub(super) fn end(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let shut = match &connection.stream {
            Some(stream) if connection.ended == Ended::No => {
                stream.shutdown(Shutdown::Write).is_ok()
            }
            _ => false,
        };
        if !shut {
            return self.close(slot);
        }
        connection.ended = Ended::Lingering;
        let until = self.now + LINGER;
        self.leaving.linger(until, slot, connection.session.id());
        self.watch(slot);
    }

    /// Closes connections whose clients had their time, and accepts again after a pause.
    pub(super) fn expire(&mut self) {
        while let Some((slot, id)) = self.leaving.next(self.now) {
            let same = |connection: &Connection| connection.session.id() == id;
            if self.slots.get(slot).is_some_and(same) {
                self.close(slot);
            }
        }
        self.acceptor.resume(&self.epoll, self.now);
    }

    /// Closes the socket. The slot stays until all calls have been answered.
    pub(super) fn close(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        if let Some(stream) = connection.stream.take() {
            // Closing the descriptor takes it out of the set; nobody else holds it.
            drop(stream);
            connection.session.abandon();
            let id = connection.session.id();
            self.parts.front.clients().remove(&id);
        }
        self.slots.forget_if_answered(slot, &self.parts.front);
    }
}
