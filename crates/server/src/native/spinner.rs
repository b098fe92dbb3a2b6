//! What a thread of the native front end does, without the thread: it looks for requests of its
//! clients, carries them out, and delivers late answers. A step does a bounded piece of that.

use std::sync::Arc;

use argosy_base::Instant;
use argosy_wire::native::Asleep;

use super::client::{Arrival, Client};
use super::front::Front;
use super::serve::{Desk, PLACE_BITS, parts_of};
use crate::service::{ReplySink, Response, Service};
use crate::tasks::Tasks;

/// Requests of one client in a step, so that one long pipeline leaves time for the others.
const REQUESTS_MAX: usize = 64;

/// See the module documentation.
pub struct Spinner {
    desk: Desk,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    /// Clients that have to be woken.
    answered: Vec<usize>,
    /// When the present step began.
    now: Instant,
}

impl Spinner {
    /// A spinner without clients. Late answers are expected to go from `sink` to
    /// [`answer`](Self::answer). What needs the device goes to `tasks`, if there are any.
    #[must_use]
    pub(super) fn new(
        service: Arc<dyn Service>,
        sink: Arc<dyn ReplySink>,
        front: Arc<Front>,
        tasks: Option<Arc<Tasks>>,
    ) -> Self {
        assert!(
            front.settings.in_flight_max < 1 << PLACE_BITS,
            "a token names the place of a request"
        );
        Self {
            desk: Desk::new(service, sink, front, tasks),
            clients: Vec::new(),
            free: Vec::new(),
            answered: Vec::new(),
            now: Instant::default(),
        }
    }

    /// Takes a client in. Returns its number.
    pub(super) fn add(&mut self, arrival: Arrival) -> usize {
        let client = Some(Client::new(arrival));
        match self.free.pop() {
            Some(number) => {
                self.clients[number] = client;
                number
            }
            None => {
                self.clients.push(client);
                self.clients.len() - 1
            }
        }
    }

    /// The client `number`, while it is here.
    pub(super) fn client(&self, number: usize) -> Option<&Client> {
        let client = self.clients.get(number)?.as_ref();
        client.filter(|client| client.is_here())
    }

    /// Lets a client go.
    pub(super) fn leave(&mut self, number: usize) {
        if let Some(Some(client)) = self.clients.get_mut(number) {
            client.leave();
            self.desk.forget_stalled(client, number);
            client.snapshots.give_back(&*self.desk.service);
            self.forget_if_answered(number);
        }
    }

    /// Lets all clients go.
    pub(super) fn leave_all(&mut self) {
        for number in 0..self.clients.len() {
            self.leave(number);
        }
    }

    /// Requests that wait for an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.clients.iter().flatten().map(Client::in_flight).sum()
    }

    /// Takes and carries out requests. Returns whether there were any.
    pub fn step(&mut self, now: Instant) -> bool {
        self.now = now;
        self.desk.tally.begin(now);
        self.desk.look_at_map();
        let mut any = self.retry_stalled();
        let mut called = false;
        for number in 0..self.clients.len() {
            let (taken, calls) = self.serve(number);
            any |= taken;
            called |= calls;
        }
        self.desk.ring();
        if called {
            self.desk.service.flush();
        }
        any
    }

    /// Hands over the tasks that found no room, oldest first. Returns whether any has gone.
    fn retry_stalled(&mut self) -> bool {
        let mut any = false;
        while let Some(number) = self.desk.next_stalled() {
            let client = self.clients[number].as_mut();
            let client = client.expect("whoever leaves is no longer stalled");
            if !self.desk.retry(client) {
                return any;
            }
            any = true;
        }
        any
    }

    /// Lets large connections go on which nothing is under way, while somebody wants their room.
    pub(super) fn make_room(&mut self) {
        let front = Arc::clone(&self.desk.front);
        for number in 0..self.clients.len() {
            if !front.shares.is_room_wanted(&front.settings) {
                return;
            }
            let client = self.clients[number].as_ref();
            if client.is_some_and(Client::is_large_and_idle) {
                front.count_evicted();
                self.leave(number);
            }
        }
    }

    /// Takes and carries out requests of one client. Returns whether there were any, and whether the
    /// service was called.
    fn serve(&mut self, number: usize) -> (bool, bool) {
        let Some(client) = &mut self.clients[number] else {
            return (false, false);
        };
        let in_flight_max = self.desk.front.settings.in_flight_max;
        let (mut any, mut called) = (false, false);
        for _ in 0..REQUESTS_MAX {
            if client.is_held(in_flight_max) {
                break;
            }
            match client.next(&mut self.desk.payload) {
                Ok(Some(request)) => {
                    any = true;
                    called |= self.desk.serve(client, number, request);
                }
                Ok(None) => break,
                Err(garbage) => {
                    self.desk.front.count_garbled();
                    if let Some(left_out) = self.desk.front.line(self.now) {
                        let client = number;
                        tracing::warn!(client, left_out, "native: a client was ended: {garbage}");
                    }
                    self.leave(number);
                    return (true, called);
                }
            }
        }
        // A NOOP may have been taken, and what it makes room for is waited for.
        client.publish();
        if any {
            self.answered.push(number);
        }
        (any, called)
    }

    /// Delivers a late answer.
    pub fn answer(&mut self, token: u64, response: Response) {
        let (number, place) = parts_of(token);
        let client = self.clients[number].as_mut();
        let client = client.expect("a client is kept until its requests have been answered");
        self.desk.tally.answered(token);
        self.desk.take_answer(client, place, response);
        self.answered.push(number);
        self.forget_if_answered(number);
    }

    /// Tells the meter what was answered in the round that ends at `now`.
    pub fn settle(&mut self, now: Instant) {
        self.desk.tally.settle(&self.desk.front.meter, now);
    }

    /// Wakes the clients that were answered and sleep.
    pub fn wake(&mut self) {
        for number in self.answered.drain(..) {
            if let Some(client) = &mut self.clients[number] {
                client.wake();
            }
        }
    }

    /// Says to all clients whether they have to ring. `false` where one of them has laid a request
    /// meanwhile: then nobody may sleep.
    pub(super) fn may_sleep(&self) -> bool {
        let in_flight_max = self.desk.front.settings.in_flight_max;
        let waits = |client: &Client| client.has_next(in_flight_max);
        Asleep::may_sleep(self.asleep(), || self.clients.iter().flatten().any(waits))
    }

    /// Says to all clients that they need not ring.
    pub(super) fn awake(&self) {
        self.asleep().for_each(Asleep::awake);
    }

    fn asleep(&self) -> impl Iterator<Item = Asleep<'_>> {
        self.clients.iter().flatten().filter_map(Client::asleep)
    }

    fn forget_if_answered(&mut self, number: usize) {
        if let Some(client) = &self.clients[number]
            && !client.is_here()
            && client.in_flight() == 0
        {
            self.clients[number] = None;
            self.free.push(number);
        }
    }
}

#[cfg(test)]
#[path = "spinner_tests.rs"]
mod tests;
