//! How a thread ends connections: when everything has been said, when a client had its time, at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Shutdown;

use super::{Arrival, LINGER, Worker};
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

    /// Has connections ended that a command of this thread has named: each by its thread.
    pub(super) fn hand_ends(&mut self) {
        let mut by_thread: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for id in self.parts.front.operators.ends.take() {
            let thread = self.parts.thread_of(id);
            by_thread.entry(thread).or_default().insert(id);
        }
        for (thread, numbers) in by_thread {
            if thread == self.parts.index {
                self.end_all(&numbers);
            } else {
                self.parts.mailboxes[thread].hand(Arrival::Ends(numbers));
            }
        }
    }

    /// Closes the connections of these numbers.
    pub(super) fn end_all(&mut self, numbers: &BTreeSet<u64>) {
        for slot in self.slots.numbers() {
            let is_meant = |connection: &Connection| numbers.contains(&connection.session.id());
            if self.slots.get(slot).is_some_and(is_meant) {
                self.close(slot);
            }
        }
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
