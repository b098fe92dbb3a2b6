//! A thread of the native front end: a loop around [`Spinner::step`], which sleeps in epoll where
//! there is nothing to do. Its epoll set has its bell, its clients' bells and sockets, and on the first thread
//! the socket where clients meet the server.
//!
//! No request is missed, since both sides write before they read, with full fences between: see
//! `wire/native/signs.rs`.
//!
//! How long it looks for work before it sleeps follows from what it was good for: a sleep that was
//! shorter than [`Settings::spin`](super::Settings) doubles it, up to that; a longer one halves it, down
//! to nothing. So a thread whose clients come back at once saves both sides the way through the kernel,
//! and one on a busy machine takes no processor from them.
//!
//! While there is work, sockets are looked at once a [`LOOK_EVERY`].

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Clock, Instant};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::client::Arrival;
use super::front::Front;
use super::meet::Guest;
use super::spinner::Spinner;
use crate::mailbox::{Mailbox, Post};
use crate::service::{ReplySink, Service};
use crate::tasks::Tasks;

/// How often sockets are looked at while there is work.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long a client has to say what it would like.
const GUEST_TIME: Duration = Duration::from_secs(5);
/// Most clients that have come and not said what they would like.
const GUESTS_MAX: usize = 64;
/// Events taken from epoll at a time.
const EVENTS_MAX: usize = 64;

/// The event of the bell.
const BELL: u64 = u64::MAX;
/// The event of the socket where clients meet the server.
const LISTENER: u64 = u64::MAX - 1;
/// The event of a client's bell, whichever it is: all clients are looked at.
const RUNG: u64 = u64::MAX - 2;
/// Added to the number of a guest: its event.
const GUESTS: u64 = 1 << 48;

/// How long a thread looks for work before it sleeps.
#[derive(Clone, Copy, Debug)]
struct Patience {
    max: Duration,
    now: Duration,
}

impl Patience {
    const fn new(max: Duration) -> Self {
        Self { max, now: max }
    }

    /// Whether a thread sleeps that has found nothing for so long. One that was just told something
    /// looks at what it was told of first.
    fn is_over(&self, idle: Duration, told: bool) -> bool {
        !told && idle >= self.now
    }

    /// It has slept for so long.
    fn slept(&mut self, time: Duration) {
        let least = self.max / 8;
        self.now = if time <= self.max {
            (2 * self.now).clamp(least, self.max)
        } else if self.now <= least {
            Duration::ZERO
        } else {
            self.now / 2
        };
    }
}

/// What a thread is made of.
pub(super) struct Parts {
    pub(super) index: usize,
    /// Where clients meet the server, on the thread that takes them in.
    pub(super) listener: Option<UnixListener>,
    pub(super) front: Arc<Front>,
    /// Of all threads, by place.
    pub(super) mailboxes: Vec<Arc<Mailbox<Arrival>>>,
    pub(super) service: Arc<dyn Service>,
    /// Where what needs the device goes, if there are workers.
    pub(super) tasks: Option<Arc<Tasks>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// See the module documentation.
pub(super) struct Thread {
    parts: Parts,
    spinner: Spinner,
    mailbox: Arc<Mailbox<Arrival>>,
    epoll: Arc<OwnedFd>,
    post: Post<Arrival>,
    /// By their numbers, which rise.
    guests: VecDeque<(u64, Guest)>,
    next_guest: u64,
    /// Clients taken in so far: whose turn it is.
    taken_in: usize,
    stop_by: Option<Instant>,
}

impl Thread {
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let mailbox = Arc::clone(&parts.mailboxes[parts.index]);
        let readable = epoll::EventFlags::IN;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, mailbox.bell(), bell, readable)?;
        if let Some(listener) = &parts.listener {
            epoll::add(
                &epoll,
                listener,
                epoll::EventData::new_u64(LISTENER),
                readable,
            )?;
        }
        let sink = Arc::clone(&mailbox) as Arc<dyn ReplySink>;
        let service = Arc::clone(&parts.service);
        Ok(Self {
            spinner: Spinner::new(service, sink, Arc::clone(&parts.front), parts.tasks.clone()),
            parts,
            mailbox,
            epoll,
            post: Post::default(),
            guests: VecDeque::new(),
            next_guest: 0,
            taken_in: 0,
            stop_by: None,
        })
    }

    /// Serves until told to stop.
    pub(super) fn run(mut self) {
        let mut patience = Patience::new(self.parts.front.settings.spin);
        let mut now = self.parts.clock.now();
        let (mut busy_at, mut looked_at) = (now, now);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.is_done(now) {
            let stepped = self.spinner.step(now);
            let told = self.take_post(now);
            self.spinner.wake();
            now = self.parts.clock.now();
            self.spinner.settle(now);
            if stepped || told {
                busy_at = now;
            }
            if patience.is_over(now.since(busy_at), told) {
                self.sleep(now, &mut events);
                let slept_at = now;
                now = self.parts.clock.now();
                patience.slept(now.since(slept_at));
                (busy_at, looked_at) = (now, now);
            } else if now.since(looked_at) >= LOOK_EVERY {
                self.look(Some(Duration::ZERO), now, &mut events);
                looked_at = now;
            } else if !stepped {
                std::hint::spin_loop();
            }
        }
        self.spinner.leave_all();
    }

    fn is_done(&self, now: Instant) -> bool {
        let stopping = |stop_by| now >= stop_by || self.spinner.in_flight() == 0;
        self.stop_by.is_some_and(stopping)
    }

    /// Takes the post. Returns whether there was any.
    fn take_post(&mut self, now: Instant) -> bool {
        let mut post = std::mem::take(&mut self.post);
        self.mailbox.take(&mut post);
        let nudged = std::mem::take(&mut post.nudged);
        let any = nudged || !post.answers.is_empty() || !post.arrivals.is_empty() || post.stop;
        for (token, response) in post.answers.drain(..) {
            self.spinner.answer(token, response);
        }
        if nudged {
            self.spinner.make_room();
        }
        for arrival in post.arrivals.drain(..) {
            self.add(arrival);
        }
        if std::mem::take(&mut post.stop) && self.stop_by.is_none() {
            self.parts.listener = None;
            self.guests.clear();
            self.stop_by = Some(now + self.parts.front.settings.drain);
        }
        self.post = post;
        any
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, now: Instant, events: &mut Vec<epoll::Event>) {
        let timeout = if !self.spinner.may_sleep() || !self.mailbox.may_sleep() {
            Some(Duration::ZERO)
        } else {
            let guest = self.guests.front().map(|(_, guest)| guest.until);
            let next = [guest, self.stop_by].into_iter().flatten().min();
            next.map(|until| until.since(now) + Duration::from_millis(1))
        };
        let rung = self.look(timeout, now, events);
        self.spinner.awake();
        self.mailbox.awake(rung);
    }

    /// Takes what happened to sockets, waiting for `timeout`, or without an end. Returns whether the
    /// bell was rung.
    fn look(
        &mut self,
        timeout: Option<Duration>,
        now: Instant,
        events: &mut Vec<epoll::Event>,
    ) -> bool {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // A set of descriptors that we own cannot fail to be waited for.
            Err(errno) => panic!("native: epoll failed: {errno}"),
        }
        let mut rung = false;
        for event in events.drain(..) {
            match event.data.u64() {
                BELL => rung = true,
                RUNG => {}
                LISTENER => self.accept_clients(now),
                guest if guest >= GUESTS => self.hear(guest - GUESTS),
                // Nothing is said there any more: whatever it is, it is the end.
                number => {
                    let number = usize::try_from(number).expect("a client's number");
                    self.spinner.leave(number);
                }
            }
        }
        while self
            .guests
            .front()
            .is_some_and(|(_, guest)| guest.until <= now)
        {
            self.guests.pop_front();
        }
        rung
    }

    fn accept_clients(&mut self, now: Instant) {
        while let Some(listener) = &self.parts.listener {
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    if let Some(left_out) = self.parts.front.line(now) {
                        tracing::warn!(left_out, "native: no client can be taken in: {error}");
                    }
                    return;
                }
            };
            if self.guests.len() >= GUESTS_MAX {
                self.guests.pop_front();
            }
            let number = self.next_guest;
            self.next_guest += 1;
            let data = epoll::EventData::new_u64(GUESTS + number);
            let watched = socket.set_nonblocking(true).and_then(|()| {
                Ok(epoll::add(
                    &self.epoll,
                    &socket,
                    data,
                    epoll::EventFlags::IN,
                )?)
            });
            if watched.is_ok() {
                let guest = Guest::new(socket, now + GUEST_TIME);
                self.guests.push_back((number, guest));
            }
        }
    }

    /// Listens to a guest, and takes it in once it has said what it would like.
    fn hear(&mut self, number: u64) {
        let at = self.guests.iter().position(|(other, _)| *other == number);
        let Some(at) = at else {
            return;
        };
        let hello = match self.guests[at].1.listen() {
            Ok(None) => return,
            Ok(Some(hello)) => hello,
            Err(error) => {
                tracing::debug!("native: a client went before it was taken in: {error}");
                self.guests.remove(at);
                return;
            }
        };
        let (_, guest) = self.guests.remove(at).expect("it was there a moment ago");
        if epoll::delete(&self.epoll, &guest.socket).is_err() {
            return;
        }
        let turn = self.taken_in % self.parts.mailboxes.len();
        let mailbox = Arc::clone(&self.parts.mailboxes[turn]);
        let now = self.parts.clock.now();
        match guest.take_in(&hello, &self.parts.front, now) {
            Ok(arrival) => {
                self.taken_in += 1;
                if turn == self.parts.index {
                    self.add(arrival);
                } else {
                    mailbox.hand(arrival);
                }
            }
            Err(error) => {
                tracing::debug!("native: a client was not taken in: {error}");
                // Every thread makes room, if that was what it lacked; the client tries again.
                let mailboxes = self.parts.mailboxes.iter();
                mailboxes.for_each(|mailbox| mailbox.nudge());
            }
        }
    }

    fn add(&mut self, mut arrival: Arrival) {
        if self.stop_by.is_some() {
            return;
        }
        let bell = arrival.bell.as_mut();
        let heard = bell.is_some_and(|bell| bell.watch(&self.epoll, RUNG).is_ok());
        let number = self.spinner.add(arrival);
        let client = self.spinner.client(number);
        let socket = client.and_then(|client| client.socket());
        let data = epoll::EventData::new_u64(number as u64);
        let watched = heard
            && socket.is_some_and(|socket| {
                epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN).is_ok()
            });
        if !watched {
            self.spinner.leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_where_it_pays_and_ends_where_it_does_not() {
        let micros = Duration::from_micros;
        let mut patience = Patience::new(micros(16));
        for expected in [8, 4, 2, 0, 0] {
            patience.slept(micros(500));
            assert_eq!(patience.now, micros(expected));
        }
        assert!(patience.is_over(micros(0), false));
        assert!(!patience.is_over(micros(0), true), "it was nudged");
        for expected in [2, 4, 8, 16, 16] {
            patience.slept(micros(3));
            assert_eq!(patience.now, micros(expected));
        }
    }
}
