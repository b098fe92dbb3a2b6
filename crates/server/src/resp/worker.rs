//! One thread of the front end: an epoll set, its connections, and rounds. A round, in steps:
//!
//! 1. Wait until a socket is ready or the bell rings; without either the thread sleeps and costs
//!    nothing.
//! 2. Read once from each ready socket; take the post; all connections that this concerns are
//!    *touched*. Those that hold much, or were sent much and have asked for more, *take turns*: a few of them take part
//!    in the round, and the others in later ones.
//! 3. Take and make the calls of every touched session, a bounded number each. When many bytes of long replies have
//!    been made in the round, the other sessions wait for the next one. What needs the device is handed to workers.
//! 4. Flush the service once, for all calls of the round. Answers that came meanwhile are taken, and
//!    may lead to more calls.
//! 5. Write once to each touched socket; ask epoll for what each session waits for now.
//!
//! Invariants: a session that has no room is not read from, so a client that does not read its
//! replies stops being served, and costs bounded memory. No lock is held while reading or writing a
//! socket. The slot of a connection is used again only when every call of it has been answered, so
//! a late answer never reaches another connection.

mod ending;
mod leaving;
mod mail;
mod memory;
mod parts;
mod round;
mod workspace;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use argosy_base::Instant;
use argosy_wire::resp::Protocol;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};

use super::accept::{Acceptor, LISTENER, refuse};
use super::front::{Client, Context};
use super::holds::Holding;
use super::pace::Pace;
use super::pool::POOL_BYTES_MAX;
use super::session::{CallToken, Session};
use super::slots::{Connection, Ended, FAIR_BYTES, Slots};
use super::slow_log::RoundMoment;
use crate::meter::{Op, Sampler, Timed};
use crate::service::{Begun, ReplyTo, Request};

use leaving::Leaving;
use mail::Mail;
pub(super) use parts::Parts;
use round::Round;
use workspace::Workspace;

/// Bytes read from a socket at a time.
const READ_BYTES: usize = 64 << 10;
/// Bytes that a thread keeps for itself, beside what its connections hold.
pub(super) const THREAD_BYTES: usize = READ_BYTES + POOL_BYTES_MAX;
/// Events taken from epoll at a time.
const EVENTS_MAX: usize = 256;
/// Connections accepted in a round, so that a flood of them leaves time for those that are there.
const ACCEPTS_MAX: usize = 64;
/// Calls of one session in a round, so that one long pipeline leaves time for the others.
const COST_MAX: usize = 4096;
/// Bytes of replies after which a session makes its next call in the next round, for the same reason.
const TURN_BYTES: usize = 64 << 10;
/// Connections in a round that take turns: those that ask for little wait for so many others at most.
const TURNS_MAX: usize = 8;
/// Bytes of long replies, those over [`FAIR_BYTES`], after which the remaining calls wait for the next round.
pub(super) const ROUND_BYTES: usize = 512 << 10;
/// With more connections in a round, each of them that takes no turn makes one call for a long reply.
const CROWD_MIN: usize = 64;
/// So many calls does a page of a scan count for.
const SCAN_COST: usize = 256;
/// Times that the post is looked through within one round.
const ANSWER_TURNS_MAX: usize = 4;
/// How long a client has to read our last words after we have ended a connection.
const LINGER: Duration = Duration::from_secs(1);
/// How long a client may be silent before the system asks whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(300);

/// The event of the bell.
const BELL: u64 = LISTENER - 1;
/// Bits of a token of the service that name the slot.
const SLOT_BITS: u32 = u64::BITS - CallToken::BITS;

/// What one thread hands to another.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A connection that was accepted, and its number.
    Connection(u64, TcpStream),
    /// The connections of these numbers are to be ended.
    Ends(BTreeSet<u64>),
}

/// One thread of the front end.
pub(super) struct Worker {
    parts: Parts,
    epoll: OwnedFd,
    acceptor: Acceptor,
    mail: Mail,
    slots: Slots,
    round: Round,
    leaving: Leaving,
    now: Instant,
    wall: Duration,
    workspace: Workspace,
    pace: Pace,
    sampler: Sampler,
}

impl Worker {
    pub(super) fn new(mut parts: Parts) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mailbox = Arc::clone(&parts.mailboxes[parts.index]);
        let readable = epoll::EventFlags::IN;
        epoll::add(
            &epoll,
            mailbox.bell(),
            epoll::EventData::new_u64(BELL),
            readable,
        )?;
        let acceptor = Acceptor::new(parts.socket.take(), &epoll)?;
        Ok(Self {
            now: parts.clock.now(),
            wall: wall(),
            mail: Mail::new(&mailbox),
            parts,
            epoll,
            acceptor,
            slots: Slots::default(),
            round: Round::default(),
            leaving: Leaving::default(),
            workspace: Workspace::new(),
            pace: Pace::default(),
            sampler: Sampler::default(),
        })
    }

    /// Serves until told to stop.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.is_done() {
            if let Err(error) = self.wait(&mut events) {
                // A set of descriptors that we own cannot fail to be waited for.
                panic!("resp: epoll failed: {error}");
            }
            self.now = self.parts.clock.now();
            self.wall = wall();
            for event in events.drain(..) {
                self.on_event(event);
            }
            self.serve();
        }
        for slot in self.slots.numbers() {
            self.close(slot);
        }
    }

    fn is_done(&self) -> bool {
        let stop_by = self.leaving.stop_by();
        stop_by.is_some_and(|stop_by| self.now >= stop_by || self.slots.is_empty())
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let timeout = if self.round.has_work() || !self.mail.may_sleep() {
            Some(Duration::ZERO)
        } else {
            let (leaving, pace) = (self.leaving.wants_call_at(), self.wants_pace_at());
            [leaving, self.acceptor.wants_call_at(), pace]
                .into_iter()
                .flatten()
                .min()
                // One more, since epoll counts whole milliseconds and may wake a little early.
                .map(|until| until - self.now + Duration::from_millis(1))
        };
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_millis()) * 1_000_000,
        });
        let room = rustix::buffer::spare_capacity(events);
        let result = epoll::wait(&self.epoll, room, timeout.as_ref());
        let rung = events.iter().any(|event| event.data.u64() == BELL);
        self.mail.awake(rung);
        match result {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn on_event(&mut self, event: epoll::Event) {
        let (data, flags) = (event.data.u64(), event.flags);
        match data {
            BELL => {}
            LISTENER => self.accept(),
            slot => {
                let slot = usize::try_from(slot).expect("a slot is an index");
                // The connection may have been closed by an earlier event of this round.
                if self.slots.get(slot).is_none() {
                    return;
                }
                self.touch(slot);
                if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.close(slot);
                } else if flags.intersects(epoll::EventFlags::IN) {
                    self.read(slot);
                }
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            match self.acceptor.accept(&self.epoll, self.now) {
                Some(stream) => self.admit(stream),
                None => return,
            }
        }
    }

    /// Gives a new connection to the thread whose turn it is, or refuses it.
    fn admit(&mut self, stream: TcpStream) {
        let front = &self.parts.front;
        let max = front.settings.policy.connections_max;
        // Relaxed: only this thread raises it, and being late by one that closes is no harm.
        if front.open.load(Ordering::Relaxed) >= max {
            front.refused.fetch_add(1, Ordering::Relaxed);
            refuse(stream, max);
            return;
        }
        front.open.fetch_add(1, Ordering::Relaxed);
        let id = front.next_connection();
        let turn = self.parts.thread_of(id);
        if turn == self.parts.index {
            self.add(id, stream);
        } else {
            self.parts.mailboxes[turn].hand(Arrival::Connection(id, stream));
        }
    }

    fn add(&mut self, id: u64, stream: TcpStream) {
        let front = Arc::clone(&self.parts.front);
        let slot = self.slots.next();
        match self.register(slot, id, &stream) {
            Ok(()) if slot < 1 << SLOT_BITS => {}
            result => {
                // The client is gone already, or there are too many for the bits of a token.
                tracing::debug!("resp: connection {id} was not taken: {result:?}");
                front.clients().remove(&id);
                front.open.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
        let session = Session::new(id, front.settings.limits);
        self.slots.put(Connection::new(stream, session));
        if self.leaving.stop_by().is_some() {
            self.end_input(slot);
        }
    }

    fn register(&self, slot: usize, id: u64, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
        let client = Client {
            address: stream.peer_addr()?.to_string(),
            local_address: stream.local_addr()?.to_string(),
            since: self.now,
            protocol: Protocol::Resp2.number(),
            ..Client::default()
        };
        let data = epoll::EventData::new_u64(slot as u64);
        epoll::add(&self.epoll, stream, data, epoll::EventFlags::IN)?;
        self.parts.front.clients().insert(id, client);
        Ok(())
    }

    fn read(&mut self, slot: usize) {
        let pressed = self.parts.front.is_pressed();
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let lingering = connection.ended == Ended::Lingering;
        if !lingering && (connection.ended == Ended::Input || !connection.session.wants_input()) {
            return;
        }
        let is_small = connection.is_small;
        // What it has sent before is carried out first, so that no more than one read is kept while it is put off.
        if !lingering
            && (connection.turn.is_put_off() || !self.pace.may_go_on(slot, is_small, pressed))
        {
            return;
        }
        let Some(stream) = &mut connection.stream else {
            return;
        };
        // Who is small is not made large by one read.
        let most = match pressed && !self.pace.is_runner(slot) {
            true => FAIR_BYTES,
            false => READ_BYTES,
        };
        let session = (!lingering).then_some(&mut connection.session);
        match self.workspace.receive(stream, session, most) {
            Ok(0) if lingering => self.close(slot),
            Ok(0) => self.end_input(slot),
            Ok(_) if lingering => {}
            Ok(bytes) => {
                connection.moved += bytes as u64;
                self.slots.count(slot, &self.parts.front);
            }
            Err(error) if is_passing(&error) => {}
            Err(_) => self.close(slot),
        }
    }

    /// The client sends no more, or is not listened to any more.
    fn end_input(&mut self, slot: usize) {
        if let Some(connection) = self.slots.get_mut(slot)
            && connection.ended == Ended::No
        {
            connection.ended = Ended::Input;
            connection.session.end_of_input();
            // The calls of this round may have been made already, and only the next one finds the end.
            connection.again = true;
            self.touch(slot);
        }
    }

    /// Does what the events and the post of a round ask for.
    fn serve(&mut self) {
        self.expire();
        self.take_post();
        self.round.begin();
        self.give_first_turns();
        let mut begun = 0;
        for _ in 0..ANSWER_TURNS_MAX {
            // Sessions are gone through by index: their calls may touch none, but answers may.
            let mut calls = 0;
            while !self.must_write_first(begun)
                && (begun < self.round.touched().len() || self.give_turn())
            {
                calls += self.call(self.round.touched()[begun]);
                begun += 1;
            }
            if calls > 0 {
                self.parts.flush();
            }
            if !self.take_post() {
                break;
            }
            begun = 0;
        }
        let touched = self.round.end();
        for slot in &touched {
            if !self.wait_for_next(*slot) {
                self.finish_round(*slot);
                self.slots.count(*slot, &self.parts.front);
            }
        }
        self.evict();
        self.hand_ends();
        self.keep_pace();
        self.round.reuse(touched);
    }

    /// Takes the post. Returns whether there were answers.
    fn take_post(&mut self) -> bool {
        let mut post = self.mail.take();
        let any = !post.answers.is_empty();
        for (token, response) in post.answers.drain(..) {
            let (meter, clock) = (&self.parts.front.meter, &self.parts.clock);
            self.sampler.answered(token, meter, || clock.now());
            let slot = usize::try_from(token >> CallToken::BITS).expect("a slot is an index");
            let token = CallToken::from_raw(token & ((1 << CallToken::BITS) - 1));
            let connection = self
                .slots
                .get_mut(slot)
                .expect("a slot is kept until its calls have been answered");
            let session = &mut connection.session;
            session.tick(RoundMoment {
                now: self.now,
                wall: self.wall,
            });
            session.answer(&self.parts.front, token, response);
            connection.answered();
            self.touch(slot);
        }
        for arrival in post.arrivals.drain(..) {
            match arrival {
                Arrival::Connection(id, stream) => self.add(id, stream),
                Arrival::Ends(numbers) => self.end_all(&numbers),
            }
        }
        if std::mem::take(&mut post.stop) && self.leaving.stop_by().is_none() {
            self.acceptor.close();
            self.leaving.stop(self.now + self.parts.drain);
            for slot in self.slots.numbers() {
                self.end_input(slot);
            }
        }
        self.mail.reuse(post);
        any
    }

    /// Takes and makes the calls of a session. Returns how many.
    fn call(&mut self, slot: usize) -> usize {
        let pressed = self.parts.front.is_pressed();
        let Some(connection) = self.slots.get_mut(slot) else {
            return 0;
        };
        let has_time = connection.turn.is_its() || self.round.has_time();
        let may_go_on = self.pace.may_go_on(slot, connection.is_small, pressed);
        // Replies that wait are written all the same.
        let put_off = may_go_on && !has_time && connection.session.output().is_empty();
        connection.turn.put_off(put_off);
        if !has_time || !may_go_on {
            // It has to be looked at again once it may.
            connection.again = true;
            return 0;
        }
        connection.again = false;
        if connection.stream.is_none() {
            return 0;
        }
        let parts = &self.parts;
        let context = Context {
            front: &parts.front,
            service: &*parts.service,
            now: self.now,
            wall: self.wall,
        };
        let is_scarce =
            pressed || !connection.turn.is_its() && self.round.touched().len() > CROWD_MIN;
        let session = &mut connection.session;
        let scratch = self.workspace.lend(session);
        let mut calls = 0;
        let mut cost = 0;
        while let Some(call) = session.next_call(&context, scratch) {
            let token = call.token;
            cost += match call.request {
                Request::Scan { .. } => SCAN_COST,
                _ => 1,
            };
            let named = (slot as u64) << CallToken::BITS | token.get();
            let timed = self.sampler.wants().then(|| Timed {
                op: Op::of(&call.request),
                command: call.command,
            });
            let begun = parts.call(call.request, ReplyTo::new(self.mail.sink(), named));
            let holding = Holding::of(&call.request, &begun);
            if let Begun::Answered(response) = begun {
                session.answer(&parts.front, token, response);
                if let Some(timed) = timed {
                    let took = parts.clock.now().since(self.now);
                    parts.front.meter.observe(timed, took);
                }
            } else {
                session.hold(token, holding, &parts.front);
                if let Some(timed) = timed {
                    self.sampler.wait(named, timed, self.now);
                }
            }
            calls += 1;
            // Replies are written before more is asked for, while memory or time is scarce the sooner.
            let most = if is_scarce { FAIR_BYTES } else { TURN_BYTES };
            if cost >= COST_MAX || session.output().len() > most {
                connection.again = true;
                break;
            }
        }
        let bytes = session.output().len();
        if bytes > FAIR_BYTES {
            // A round makes the calls of a session more than once, and writes its output once.
            self.round.make(connection.turn.made(bytes));
        }
        let commands = session.take_commands();
        // Relaxed: a counter for people.
        parts.front.commands.add(commands);
        self.slots.count(slot, &self.parts.front);
        calls
    }

    /// Writes what a touched session has to say, and waits for what it needs next.
    fn finish_round(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        connection.turn.end();
        let Some(stream) = &mut connection.stream else {
            self.slots.forget_if_answered(slot, &self.parts.front);
            return;
        };
        let output = connection.session.output();
        let is_long = output.len() > FAIR_BYTES;
        if !output.is_empty() {
            match stream.write(output) {
                Ok(bytes) => {
                    connection.session.wrote(bytes);
                    connection.moved += bytes as u64;
                }
                Err(error) if is_passing(&error) => {}
                Err(_) => return self.close(slot),
            }
        }
        if connection.session.is_finished() && connection.ended != Ended::Lingering {
            return self.end(slot);
        }
        let pressed = self.parts.front.is_pressed();
        let more = connection.again || connection.session.can_go_on();
        if connection.ended != Ended::Lingering {
            // Also where there is more: what it holds decides whether it takes turns, and whether it goes on.
            self.workspace.take_back(&mut connection.session, pressed);
        }
        let (input, output) = connection.session.memory_bytes();
        connection.is_small = input + output + connection.session.expected_bytes() <= FAIR_BYTES;
        // Also where its socket has taken all of it.
        connection.goes_on = is_long && connection.session.has_request();
        connection.waits = !self.pace.may_go_on(slot, connection.is_small, pressed);
        let waits = connection.waits;
        if waits {
            self.pace.hold(slot);
        }
        self.watch(slot);
        if more && !waits {
            self.touch(slot);
        }
    }

    /// Asks epoll for what the connection waits for now.
    fn watch(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let session = &connection.session;
        let mut interest = epoll::EventFlags::empty();
        if connection.ended == Ended::Lingering
            || connection.ended == Ended::No && session.wants_input() && !connection.waits
        {
            interest |= epoll::EventFlags::IN;
        }
        if !session.output().is_empty() {
            interest |= epoll::EventFlags::OUT;
        }
        if interest == connection.interest {
            return;
        }
        connection.interest = interest;
        if let Some(stream) = &connection.stream {
            let data = epoll::EventData::new_u64(slot as u64);
            epoll::modify(&self.epoll, stream, data, interest).expect("it is in the set");
        }
    }
}

/// The present time of day, for `TIME`.
fn wall() -> Duration {
    let time = clock_gettime(ClockId::Realtime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Nothing is wrong with the socket: try again at the next event.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
