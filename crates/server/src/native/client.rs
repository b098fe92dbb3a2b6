//! One client: its memory, the requests that wait for an answer, and how answers reach it.
//!
//! Invariants: what waits has a place of its own, which is used again only after its answer came; so
//! a late answer never reaches another request. A client that has gone is kept until the last of its
//! answers has come, but its memory is given back at once.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_memory::SharedMemory;
use argosy_wire::native::{
    ASLEEP_AT, Asleep, Flags, Garbage, PARKED_AT, Parking, RINGS_AT, ReplyHeader, Request,
    RequestReader, Shape, Status, write_reply,
};

use super::bell::ClientBell;
use super::share::{Share, is_large};
use super::snapshots::Held;
use crate::tasks::{Away, Task};

/// What a client is made of when it arrives at its thread.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Open while the client lives; `None` in tests.
    pub(super) socket: Option<UnixStream>,
    /// What it rings; `None` in tests.
    pub(super) bell: Option<ClientBell>,
    pub(super) memory: Arc<SharedMemory>,
    pub(super) shape: Shape,
    #[expect(dead_code, reason = "dropping it gives it back; `None` in tests")]
    pub(super) share: Option<Share>,
}

/// See the module documentation.
pub(super) struct Client {
    /// What it has while it is here.
    arrival: Option<Arrival>,
    shape: Shape,
    reader: RequestReader,
    /// Requests that wait for their answers, by place.
    pending: Vec<Option<Request>>,
    free: Vec<usize>,
    /// It has been answered since it was last looked whether it sleeps.
    answered: bool,
    /// Tasks of its requests for which the queue has no room; nothing is taken before they went.
    pub(super) stalled: VecDeque<Task>,
    /// A write of it that a worker carries out; nothing is taken before that was done.
    away: Option<Away>,
    /// Snapshots that it has opened.
    pub(super) snapshots: Held,
}

impl Client {
    pub(super) fn new(arrival: Arrival) -> Self {
        Self {
            shape: arrival.shape,
            reader: RequestReader::new(arrival.shape),
            arrival: Some(arrival),
            pending: Vec::new(),
            free: Vec::new(),
            answered: false,
            stalled: VecDeque::new(),
            away: None,
            snapshots: Held::default(),
        }
    }

    pub(super) const fn is_here(&self) -> bool {
        self.arrival.is_some()
    }

    pub(super) fn socket(&self) -> Option<&UnixStream> {
        self.arrival.as_ref()?.socket.as_ref()
    }

    fn memory(&self) -> Option<&SharedMemory> {
        self.arrival.as_ref().map(|here| &*here.memory)
    }

    /// Lets it go: its socket closes, its memory is given back.
    pub(super) fn leave(&mut self) {
        self.arrival = None;
    }

    /// Requests that wait.
    pub(super) fn in_flight(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    /// Whether there is a request that may be taken, with up to `in_flight_max` that wait.
    pub(super) fn has_next(&self, in_flight_max: usize) -> bool {
        let has_next = |memory| self.reader.has_next(memory);
        !self.is_held(in_flight_max) && self.memory().is_some_and(has_next)
    }

    /// Whether nothing may be taken for now.
    #[inline]
    pub(super) fn is_held(&self, in_flight_max: usize) -> bool {
        self.in_flight() >= in_flight_max
            || !self.stalled.is_empty()
            || self
                .away
                .as_ref()
                .is_some_and(|away| away.load(Ordering::Acquire))
    }

    /// Takes nothing more before the write that this is given to has been carried out.
    pub(super) fn send_away(&mut self) -> Away {
        // It has come back before: nothing was taken while it was away.
        let away = self.away.get_or_insert_default();
        away.store(true, Ordering::Relaxed);
        Arc::clone(away)
    }

    /// The next request, if there is one; its payload replaces what `payload` held.
    #[inline]
    pub(super) fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Request>, Garbage> {
        match &self.arrival {
            Some(here) => self.reader.next(&*here.memory, payload),
            None => Ok(None),
        }
    }

    /// Tells it up to where its requests have been taken.
    pub(super) fn publish(&mut self) {
        if let Some(here) = &self.arrival {
            self.reader.publish(&*here.memory);
        }
    }

    /// Keeps `request` until it is answered, under the place that is returned.
    #[inline]
    pub(super) fn keep(&mut self, request: Request) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.pending[place] = Some(request);
                place
            }
            None => {
                self.pending.push(Some(request));
                self.pending.len() - 1
            }
        }
    }

    /// What waited at `place`, which is free now.
    #[inline]
    pub(super) fn take(&mut self, place: usize) -> Request {
        let pending = self.pending[place].take();
        self.free.push(place);
        pending.expect("a place is kept until its answers have come")
    }

    /// Writes an answer into the client's slot.
    #[inline]
    pub(super) fn answer(&mut self, to: &Request, end: End, map: u32, parts: &[&[u8]]) {
        let Some(memory) = self.memory() else {
            return;
        };
        let reply = ReplyHeader {
            status: end.status,
            flags: end.flags,
            id: to.id,
            needed: 0,
            map,
        };
        write_reply(memory, self.shape, to.slot, reply, parts);
        self.answered = true;
    }

    /// Wakes its threads that sleep, if it has been answered.
    pub(super) fn wake(&mut self) {
        if !std::mem::take(&mut self.answered) {
            return;
        }
        if let Some(here) = &self.arrival {
            let parking = Parking {
                parked: here.memory.sign(PARKED_AT),
                rings: here.memory.sign(RINGS_AT),
            };
            parking.wake(|| here.memory.wake(RINGS_AT));
        }
    }

    /// Whether its connection is large, and nothing is under way on it.
    pub(super) fn is_large_and_idle(&self) -> bool {
        let is_large = self.is_here() && is_large(self.shape);
        is_large && self.in_flight() == 0 && !self.has_next(usize::MAX)
    }

    /// Where it is told whether it has to ring for its requests to be seen.
    pub(super) fn asleep(&self) -> Option<Asleep<'_>> {
        let here = self.arrival.as_ref()?;
        Some(Asleep(here.memory.sign(ASLEEP_AT)))
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) status: Status,
    pub(super) flags: Flags,
}

impl End {
    pub(super) const fn of(status: Status) -> Self {
        Self {
            status,
            flags: Flags(0),
        }
    }
}
