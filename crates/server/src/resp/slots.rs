//! The connections of one thread, each in a slot whose number names it to epoll and in the tokens of
//! its calls. A slot is used again only when its socket is closed and every call of it has been
//! answered: so a late answer never reaches another connection.
//!
//! What connections hold is counted here, towards the sum over all threads in [`FrontEnd`].

use std::net::TcpStream;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use rustix::io::ioctl_fionread;

use super::front::FrontEnd;
use super::session::Session;

/// Bytes that a connection may hold even while all together hold too much: with no more it is small,
/// and goes on (see `pace`). Enough for a short request and its reply.
pub(super) const FAIR_BYTES: usize = 16 << 10;

/// Whether a connection is among those that a round concerns, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// Nothing has happened to it.
    No,
    /// The present round, or else the next one.
    Now,
    /// A later one: it takes turns.
    Later,
}

/// What part a connection has in the present round.
#[derive(Debug)]
pub(super) struct Turn {
    /// Whether it is among those that the round concerns.
    touched: Touched,
    /// It takes its turn in this round.
    is_its: bool,
    /// It makes its calls in the next round, since this one has made enough.
    put_off: bool,
    /// Bytes of its output that count among those made in this round.
    made: usize,
}

impl Turn {
    /// Something has happened to the connection. Returns where it is to be noted, if it is not.
    pub(super) const fn touch(&mut self, takes_turns: bool) -> Touched {
        let touched = match (self.touched, takes_turns) {
            // Who has become small waits for no turn.
            (Touched::No | Touched::Later, false) => Touched::Now,
            (Touched::No, true) => Touched::Later,
            (Touched::Now, _) | (Touched::Later, true) => return Touched::No,
        };
        self.touched = touched;
        touched
    }

    /// Its turn comes. False where it does not wait for it any more.
    pub(super) fn begin(&mut self) -> bool {
        let waits = self.touched == Touched::Later;
        if waits {
            (self.touched, self.is_its) = (Touched::Now, true);
        }
        waits
    }

    /// Whether it takes its turn in this round.
    pub(super) const fn is_its(&self) -> bool {
        self.is_its
    }

    /// Whether it makes its calls in the next round.
    pub(super) const fn is_put_off(&self) -> bool {
        self.put_off
    }

    /// It makes them in the next round, or not.
    pub(super) const fn put_off(&mut self, put_off: bool) {
        self.put_off = put_off;
    }

    /// It waits for the next round, or, where it is to be `later`, for its turn in one.
    pub(super) const fn wait(&mut self, later: bool) {
        self.is_its = false;
        if later {
            self.touched = Touched::Later;
        }
    }

    /// It has made so many bytes of output. Returns by how many that is more than before in this round.
    pub(super) const fn made(&mut self, bytes: usize) -> usize {
        let more = bytes.saturating_sub(self.made);
        self.made = bytes;
        more
    }

    /// Its round ends.
    pub(super) const fn end(&mut self) {
        self.touched = Touched::No;
        self.is_its = false;
        self.made = 0;
    }
}

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
    /// What part it has in the present round.
    pub turn: Turn,
    pub ended: Ended,
    /// It waits until all connections together hold less.
    pub waits: bool,
    /// It held little when its last round ended.
    pub is_small: bool,
    /// It was sent much in its last round, and has asked for more: it takes turns as those do that hold much.
    pub goes_on: bool,
    /// Bytes read and written.
    pub moved: u64,
    /// When it was looked at last while its client was due.
    seen_due: Option<SeenDue>,
    /// Bytes held, as counted last.
    held: usize,
}

/// A connection as it was judged, its client being due.
#[derive(Clone, Copy, Debug)]
struct SeenDue {
    /// The number of the judgement.
    judgement: u64,
    /// Bytes that it had moved.
    moved: u64,
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
            turn: Turn {
                touched: Touched::No,
                is_its: false,
                put_off: false,
                made: 0,
            },
            ended: Ended::No,
            waits: false,
            is_small: true,
            goes_on: false,
            moved: 0,
            seen_due: None,
            held: 0,
        }
    }

    /// An answer came. It may have made room for, or be followed by, another call. Who has not asked for more takes no
    /// turns, though the answer was expected to be long.
    pub(super) fn answered(&mut self) {
        self.again = true;
        let is_last = !self.session.has_request();
        self.is_small |= is_last;
        self.goes_on &= !is_last;
    }

    /// Whether nothing happens before the client does something: it has replies to read, or it holds
    /// much by a request of which it has not sent the rest, and waits for no answer.
    pub(super) fn client_is_due(&self) -> bool {
        let Some(stream) = &self.stream else {
            return false;
        };
        if !self.session.output().is_empty() {
            return true;
        }
        let sends = !self.again && self.ended == Ended::No && self.session.is_idle();
        // What has come and was not read yet is the server's to read.
        let unread = || ioctl_fionread(stream).unwrap_or(u64::MAX);
        sends && self.held > FAIR_BYTES && unread() == 0
    }
}

/// The connections of one thread.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Bytes held by all of them, as counted last.
    held: usize,
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
            front.held.change(connection.held, 0);
            self.held -= connection.held;
            // Relaxed: a sum that nothing else depends on.
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
        front.held.change(before, connection.held);
        self.held = self.held - before + (input + output);
    }

    /// Bytes that the connections of this thread hold.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Looks at all open connections, the number of this look being `judgement`. Returns those whose
    /// clients were due at the look before, too, and have moved less than `rate_bytes` since.
    pub(super) fn judge(&mut self, judgement: u64, rate_bytes: u64) -> Vec<usize> {
        let mut still = Vec::new();
        for (slot, connection) in self.slots.iter_mut().enumerate() {
            let Some(connection) = connection else {
                continue;
            };
            let before = connection.seen_due.take();
            if !connection.client_is_due() {
                continue;
            }
            let moved = connection.moved;
            connection.seen_due = Some(SeenDue { judgement, moved });
            if before.is_some_and(|before| {
                before.judgement + 1 == judgement && moved - before.moved < rate_bytes
            }) {
                still.push(slot);
            }
        }
        still
    }

    /// Of the open connections that hold more than [`FAIR_BYTES`] and that `admit` admits, that which
    /// holds most: its slot and its number.
    pub(super) fn largest(
        &self,
        admit: impl Fn(usize, &Connection) -> bool,
    ) -> Option<(usize, u64)> {
        let connections = self.slots.iter().enumerate();
        let (slot, connection) = connections
            .filter_map(|(slot, connection)| Some((slot, connection.as_ref()?)))
            .filter(|(_, open)| open.stream.is_some() && open.held > FAIR_BYTES)
            .filter(|(slot, open)| admit(*slot, open))
            .max_by_key(|(_, open)| open.held)?;
        Some((slot, connection.session.id()))
    }

    /// Bytes that connection `id`, in `slot`, has read and written; `None` if it is gone or holds
    /// no more than [`FAIR_BYTES`].
    pub(super) fn moved(&self, slot: usize, id: u64) -> Option<u64> {
        let connection = self.get(slot)?;
        let same = connection.session.id() == id && connection.stream.is_some();
        (same && connection.held > FAIR_BYTES).then_some(connection.moved)
    }
}
