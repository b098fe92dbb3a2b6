//! One connection to one server: requests laid, answers taken. Shared by all threads of the client.
//!
//! A thread that waits for an answer looks for it itself, under the lock, and sleeps without it. A
//! request that is given up keeps its slot until its answer has come: the server may still write it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::{Epoch, RegionId, Shared};
use argosy_memory::SharedMemory;
use argosy_wire::native::{
    ASLEEP_AT, Asleep, Flags, Garbage, Laid, LayError, Op, PARKED_AT, Parking, RENDEZVOUS_AT,
    RINGS_AT, ReplyHeader, Request, RequestWriter, Shape, Slot, Unrung, read_reply,
};
use parking_lot::{Mutex, MutexGuard};
use rustix::net::{RecvFlags, recv};

use super::meet::Met;
use super::slots::Slots;

/// Most requests of a channel that have not been waited for.
pub(super) const IN_FLIGHT_MAX: usize = 1024;

/// Why a request was not laid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no room now; there will be when answers have come.
    Full,
    /// Too many are in flight: wait for some of them first.
    TooMany,
    /// It or its reply does not fit this channel, whatever else is in it.
    TooLarge,
    /// The connection is lost. What was laid may have been carried out.
    Lost,
    /// The server has ended the connection, and what was laid was never taken, nor ever will be.
    NotTaken,
}

/// What is to be laid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lay<'a> {
    pub(super) op: Op,
    pub(super) flags: Flags,
    pub(super) region: RegionId,
    pub(super) epoch: Epoch,
    pub(super) parts: &'a [&'a [u8]],
    /// Bytes of slot for the reply.
    pub(super) reply_bytes: usize,
}

/// How far a request has come.
#[derive(Debug)]
enum State {
    Sent(Slot, Laid),
    /// Answered, and taken out of its slot to make room.
    Taken(ReplyHeader, Vec<u8>),
    /// Nobody waits for it any more.
    Abandoned(Slot),
}

#[derive(Debug)]
struct Waiting {
    id: u32,
    /// It changes something.
    write: bool,
    state: State,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Channel {
    memory: SharedMemory,
    bell: OwnedFd,
    socket: UnixStream,
    shape: Shape,
    /// The name of the server's cluster.
    cluster: u128,
    /// Something was laid since the bell was last looked at.
    unrung: Unrung,
    /// A write was laid since all of them were last found answered. Changed under the lock.
    wrote: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    writer: RequestWriter,
    slots: Slots,
    waiting: Vec<Option<Waiting>>,
    free: Vec<usize>,
    abandoned: Vec<usize>,
    next_id: u32,
    /// Counts what was laid, and wraps.
    laid: u32,
    /// It is of no more use.
    lost: bool,
    /// The server has closed it, and looks at the memory no more.
    closed: bool,
}

impl Channel {
    pub(super) fn new(met: Met) -> Arc<Self> {
        Arc::new(Self {
            memory: met.memory,
            bell: met.bell,
            socket: met.socket,
            shape: met.shape,
            cluster: met.cluster,
            unrung: Unrung::default(),
            wrote: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                writer: RequestWriter::new(met.shape),
                slots: Slots::new(met.shape.replies()),
                waiting: Vec::new(),
                free: Vec::new(),
                abandoned: Vec::new(),
                next_id: 1,
                laid: 0,
                lost: false,
                closed: false,
            }),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic while it was held left at worst a request that nobody waits for.
        self.inner.lock()
    }

    /// The name of the server's cluster.
    pub(super) const fn cluster(&self) -> u128 {
        self.cluster
    }

    /// Longest reply that fits, whatever else is in flight.
    pub(super) const fn reply_bytes_max(&self) -> usize {
        self.shape.replies()
    }

    /// Whether `lay` fits, once nothing else is in flight.
    pub(super) fn fits(&self, lay: &Lay<'_>) -> bool {
        let len: usize = lay.parts.iter().map(|part| part.len()).sum();
        len <= self.shape.payload_max() && lay.reply_bytes <= self.shape.replies()
    }

    /// Whether there may be a write without an answer. One load.
    pub(super) fn may_be_writing(&self) -> bool {
        // Relaxed: of two requests that have an order the later one's thread knows of the earlier one.
        self.wrote.load(Ordering::Relaxed)
    }

    /// The number of the next request.
    pub(super) fn next_id(&self) -> u32 {
        self.inner().next_id
    }

    /// Whether a write in front of request `id` has no answer, and may still get one.
    pub(super) fn is_writing(&self, id: u32) -> bool {
        let inner = self.inner();
        if inner.lost {
            return false;
        }
        let (mut any, mut before) = (false, false);
        for waiting in inner.waiting.iter().flatten().filter(|it| it.write) {
            let (State::Sent(slot, _) | State::Abandoned(slot)) = &waiting.state else {
                continue;
            };
            let at = self.shape.replies_at() + slot.offset + RENDEZVOUS_AT;
            if self.memory.load_u64(at) == 0 {
                any = true;
                // The numbers of requests that wait lie close together.
                before |= (1..1 << 31).contains(&id.wrapping_sub(waiting.id));
            }
        }
        if !any {
            self.wrote.store(false, Ordering::Relaxed);
        }
        before
    }

    /// Whether it is of no more use.
    pub(super) fn is_lost(&self) -> bool {
        self.inner().lost
    }

    /// Lays a request. Returns the place under which its answer is asked for.
    pub(super) fn lay(&self, lay: &Lay<'_>) -> Result<usize, Refused> {
        let memory = &self.memory;
        let mut guard = self.inner();
        let inner = &mut *guard;
        if inner.lost {
            return Err(Refused::Lost);
        }
        if inner.waiting.len() - inner.free.len() >= IN_FLIGHT_MAX {
            inner.sweep(memory, self.shape);
            if inner.waiting.len() - inner.free.len() >= IN_FLIGHT_MAX {
                return Err(Refused::TooMany);
            }
        }
        if lay.reply_bytes > self.shape.replies() {
            return Err(Refused::TooLarge);
        }
        let slot = match inner.slots.take(lay.reply_bytes) {
            Some(slot) => slot,
            None => {
                inner.empty_slots(memory, self.shape);
                inner.slots.take(lay.reply_bytes).ok_or(Refused::Full)?
            }
        };
        memory.store(self.shape.replies_at() + slot.offset + RENDEZVOUS_AT, 0);
        let id = inner.next_id;
        let request = Request {
            op: lay.op,
            flags: lay.flags,
            id,
            region: lay.region,
            epoch: lay.epoch,
            slot,
        };
        let laid = match inner.writer.push(memory, request, lay.parts) {
            Ok(laid) => laid,
            Err(error) => {
                inner.slots.give_back(slot);
                // A NOOP may have been laid.
                self.unrung.add(&mut inner.laid);
                self.ring();
                return Err(match error {
                    LayError::Full => Refused::Full,
                    LayError::TooLarge { .. } => Refused::TooLarge,
                });
            }
        };
        inner.next_id = id.wrapping_add(1);
        let write = lay.op.is_write();
        if write {
            self.wrote.store(true, Ordering::Relaxed);
        }
        let place = inner.keep(Waiting {
            id,
            write,
            state: State::Sent(slot, laid),
        });
        self.unrung.add(&mut inner.laid);
        Ok(place)
    }

    /// Wakes the server's thread if it sleeps and something was laid since.
    pub(super) fn ring(&self) {
        if self.unrung.take() && Asleep(self.memory.sign(ASLEEP_AT)).has_to_be_rung() {
            // Any count but zero rings it; a failure means that it rings already.
            let _ = rustix::io::write(&self.bell, &1u64.to_le_bytes());
        }
    }

    /// The answer to what waits at `place`, if it has come: its payload replaces what `payload` held,
    /// and the place is free. `Err` where the connection is lost and none will come.
    pub(super) fn poll(
        &self,
        place: usize,
        payload: &mut Vec<u8>,
    ) -> Result<Option<ReplyHeader>, Refused> {
        let mut inner = self.inner();
        let answer = inner.poll(&self.memory, self.shape, place, payload);
        match answer {
            Ok(Some(reply)) => {
                inner.waiting[place] = None;
                inner.free.push(place);
                Ok(Some(reply))
            }
            Ok(None) if inner.lost => {
                let waiting = inner.waiting[place].take();
                inner.free.push(place);
                Err(match waiting {
                    Some(Waiting {
                        state: State::Sent(_, laid),
                        ..
                    }) if inner.closed && !laid.is_taken(&self.memory) => Refused::NotTaken,
                    _ => Refused::Lost,
                })
            }
            Ok(None) => Ok(None),
            Err(_) => {
                inner.lost = true;
                inner.waiting[place] = None;
                inner.free.push(place);
                Err(Refused::Lost)
            }
        }
    }

    /// Whether there is something to poll for at `place`.
    pub(super) fn has_answer(&self, place: usize) -> bool {
        let inner = self.inner();
        match &inner.waiting[place] {
            Some(Waiting {
                state: State::Sent(slot, _),
                ..
            }) => {
                let at = self.shape.replies_at() + slot.offset + RENDEZVOUS_AT;
                inner.lost || self.memory.load_u64(at) != 0
            }
            _ => true,
        }
    }

    /// Nobody waits for what is at `place` any more.
    pub(super) fn abandon(&self, place: usize) {
        let mut inner = self.inner();
        let Some(waiting) = &mut inner.waiting[place] else {
            return;
        };
        match waiting.state {
            State::Sent(slot, _) => {
                waiting.state = State::Abandoned(slot);
                inner.abandoned.push(place);
            }
            State::Taken(..) | State::Abandoned(_) => {
                inner.waiting[place] = None;
                inner.free.push(place);
            }
        }
    }

    /// Sleeps until the server has answered something, or for `timeout`. `look` is asked once more
    /// before that, and keeps this thread awake by saying so.
    pub(super) fn sleep(&self, timeout: Duration, look: impl FnOnce() -> bool) {
        let parking = Parking {
            parked: self.memory.sign(PARKED_AT),
            rings: self.memory.sign(RINGS_AT),
        };
        parking.sleep(look, |seen| {
            self.memory.sleep_while(RINGS_AT, seen, timeout);
        });
    }

    /// Looks whether the server has gone. What it answered before is still taken.
    pub(super) fn look_for_life(&self) {
        let mut nothing = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (lost, closed) = match recv(&self.socket, &mut nothing, flags) {
            Ok((_, bytes)) => (bytes == 0, bytes == 0),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => (false, false),
            Err(errno) => (true, errno == rustix::io::Errno::CONNRESET),
        };
        if lost {
            let mut inner = self.inner();
            inner.lost = true;
            inner.closed |= closed;
        }
    }
}

impl Inner {
    fn keep(&mut self, waiting: Waiting) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.waiting[place] = Some(waiting);
                place
            }
            None => {
                self.waiting.push(Some(waiting));
                self.waiting.len() - 1
            }
        }
    }

    /// Takes the answer at `place` out of its slot, or from where it was taken to.
    fn poll(
        &mut self,
        memory: &impl Shared,
        shape: Shape,
        place: usize,
        payload: &mut Vec<u8>,
    ) -> Result<Option<ReplyHeader>, Garbage> {
        let waiting = self.waiting[place].as_mut().expect("somebody waits for it");
        match &mut waiting.state {
            State::Taken(reply, taken) => {
                std::mem::swap(payload, taken);
                Ok(Some(*reply))
            }
            State::Sent(slot, _) | State::Abandoned(slot) => {
                let reply = read_reply(memory, shape, *slot, waiting.id, payload)?;
                if reply.is_some() {
                    self.slots.give_back(*slot);
                }
                Ok(reply)
            }
        }
    }

    /// Frees the places of requests that were given up and have been answered since.
    fn sweep(&mut self, memory: &impl Shared, shape: Shape) {
        let mut payload = Vec::new();
        for place in std::mem::take(&mut self.abandoned) {
            match self.poll(memory, shape, place, &mut payload) {
                Ok(Some(_)) => {
                    self.waiting[place] = None;
                    self.free.push(place);
                }
                Ok(None) => self.abandoned.push(place),
                Err(_) => self.lost = true,
            }
        }
    }

    /// Takes all answers that have come out of their slots.
    fn empty_slots(&mut self, memory: &impl Shared, shape: Shape) {
        self.sweep(memory, shape);
        for place in 0..self.waiting.len() {
            let sent = |waiting: &Waiting| matches!(waiting.state, State::Sent(..));
            if !self.waiting[place].as_ref().is_some_and(sent) {
                continue;
            }
            let mut payload = Vec::new();
            match self.poll(memory, shape, place, &mut payload) {
                Ok(Some(reply)) => {
                    let waiting = self.waiting[place].as_mut();
                    waiting.expect("just polled").state = State::Taken(reply, payload);
                }
                Ok(None) => {}
                Err(_) => self.lost = true,
            }
        }
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
pub(super) mod tests;
