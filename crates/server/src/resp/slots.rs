//! The connections of one thread, each in a slot whose number names it to epoll and in the tokens of
//! its calls. A slot is used again only when its socket is closed and every call of it has been
//! answered: so a late answer never reaches another connection.
//!
//! What connections hold is counted here, towards the sum over all threads in [`FrontEnd`].

use std::net::TcpStream;
use std::sync::atomic::Ordering;

use rustix::event::epoll;

use super::front::FrontEnd;
use super::session::Session;

/// Bytes that a connection may hold even while all together hold too much.
pub(super) const FAIR_BYTES: usize = 16 << 10;

/// A connection with its socket.
#[derive(Debug)]
pub(super) struct Connection {
    /// `None`: closed, and kept only until its calls have been answered.
    pub stream: Option<TcpStream>,
    pub session: Session,
    /// What epoll watches for.
    pub interest: epoll::EventFlags,
    /// There may be calls to take in the next round without any event.
    pub again: bool,
    /// It is among those that the present round concerns.
    pub touched: bool,
    pub ended: Ended,
    /// It waits until all connections together hold less.
    pub waits: bool,
    /// Bytes read and written.
    pub moved: u64,
    /// Bytes held, as counted last.
    held: usize,
}

/// How far a connection has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Not at all.
    No,
    /// The client sends no more, or is not listened to any more.
    Input,
    /// We send no more, and wait until the client has read it and closes.
    Lingering,
}

impl Connection {
    /// A connection that was registered for input.
    pub(super) const fn new(stream: TcpStream, session: Session) -> Self {
        Self {
            stream: Some(stream),
            session,
            interest: epoll::EventFlags::IN,
            again: false,
            touched: false,
            ended: Ended::No,
            waits: false,
            moved: 0,
            held: 0,
        }
    }
}

/// The connections of one thread.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
}

impl Slots {
    /// All slots there have ever been.
    pub(super) fn numbers(&self) -> std::ops::Range<usize> {
        0..self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Connection> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The slot that the next connection is put in.
    pub(super) fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Puts a connection in the slot that [`next`](Self::next) gave.
    pub(super) fn put(&mut self, connection: Connection) {
        match self.free.pop() {
            Some(slot) => self.slots[slot] = Some(connection),
            None => self.slots.push(Some(connection)),
        }
    }

    /// Empties the slot, unless its connection is open or has calls without an answer.
    pub(super) fn forget_if_answered(&mut self, slot: usize, front: &FrontEnd) {
        if let Some(connection) = self.get(slot)
            && connection.stream.is_none()
            && connection.session.in_flight() == 0
        {
            // Relaxed: sums that nothing else depends on.
            front
                .memory_bytes
                .fetch_sub(connection.held, Ordering::Relaxed);
            front.open.fetch_sub(1, Ordering::Relaxed);
            self.slots[slot] = None;
            self.free.push(slot);
        }
    }

    /// Counts what a connection holds by now.
    pub(super) fn count(&mut self, slot: usize, front: &FrontEnd) {
        let Some(connection) = self.get_mut(slot) else {
            return;
        };
        let (input, output) = connection.session.memory_bytes();
        let before = std::mem::replace(&mut connection.held, input + output);
        let total = &front.memory_bytes;
        // Relaxed: each thread adds and takes off its own, and the sum is a bound that may be passed
        // by what the threads do at the same time.
        if connection.held > before {
            total.fetch_add(connection.held - before, Ordering::Relaxed);
        } else if connection.held < before {
            total.fetch_sub(before - connection.held, Ordering::Relaxed);
        }
    }

    /// The open connection that holds most of those that `admit` admits, by slot and bytes: its
    /// slot and its number.
    pub(super) fn largest(&self, admit: impl Fn(usize, usize) -> bool) -> Option<(usize, u64)> {
        let connections = self.slots.iter().enumerate();
        let (slot, connection) = connections
            .filter_map(|(slot, connection)| Some((slot, connection.as_ref()?)))
            .filter(|(slot, open)| open.stream.is_some() && admit(*slot, open.held))
            .max_by_key(|(_, open)| open.held)?;
        Some((slot, connection.session.id()))
    }

    /// Bytes that connection `id`, in `slot`, has read and written; `None` if it is gone or holds
    /// nothing.
    pub(super) fn moved(&self, slot: usize, id: u64) -> Option<u64> {
        let connection = self.get(slot)?;
        let same = connection.session.id() == id && connection.stream.is_some();
        (same && connection.held > 0).then_some(connection.moved)
    }
}
