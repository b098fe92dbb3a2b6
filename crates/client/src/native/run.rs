//! How a request is sent, waited for, and tried again.
//!
//! A request goes to the server that the region map names. Where that cannot be met, says that the region is another
//! server's, or does not answer for long, the map is fetched: from the server itself where it has answered, and
//! otherwise from the others, one after the other, by one thread at a time. What is known is never replaced by an
//! older map. Then the request is tried again, after a pause that grows, until its deadline: a read in any case, a
//! write as long as it surely had no effect. A write that may have been applied is sent again under a name only
//! ([`names`](super::names)).
//!
//! A server that is stopped, or cut off, takes requests into its memory and answers none. So a request that has had no
//! answer for a while is compared with the map (`Patience`): where that has another epoch of its region by then, a read
//! is sent to the new primary, and a write ends as *unknown*. What the old one has taken it may have applied; what it
//! takes later is of an epoch that is over.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use arc_swap::ArcSwap;
use argosy_base::{Epoch, Instant, Outcome, RegionId};
use argosy_wire::native::{Flags, Op, RegionMap, ReplyHeader, Status, message_bytes, read_failure};
use parking_lot::Mutex;

use super::channel::{Channel, Lay, Refused};
use super::client::{Options, odd};
use super::known::{Guess, Known, Seat};
use super::link::{Link, NoChannel, Open, Size};
use super::names::Names;
use super::ticket::Flight;
use super::verdict::{
    Failed, NoReply, Verdict, outcome_of, too_large, too_many, unserved, verdict_of,
};
use crate::error::ClientError;

/// How long a thread sleeps before it looks whether the server still lives.
const LOOK_FOR_LIFE: Duration = Duration::from_millis(10);
/// Pause before a request is tried again that the server could not carry out; it doubles.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest such pause.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(50);
/// How long room in a ring is waited for before it is looked for again: it is not told of.
const ROOM_PAUSE: Duration = Duration::from_micros(200);
/// Longest that a server has to welcome this client, before the map is asked for elsewhere.
const MEET_TIME: Duration = Duration::from_secs(1);
/// Longest that a server has to tell the region map.
const MAP_TIME: Duration = Duration::from_millis(250);
/// How long an answer is waited for before it is looked whether another server serves the region by now.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often that is looked for then, by all threads together.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of slot for the region map, at first.
const MAP_BYTES: usize = 16 << 10;

/// A request, for as long as it is tried.
pub(super) struct Sending<'a> {
    pub(super) op: Op,
    pub(super) flags: Flags,
    /// A key of the region that it goes to.
    pub(super) key: &'a [u8],
    pub(super) parts: &'a [&'a [u8]],
    pub(super) reply_bytes: usize,
}

/// A request that was sent.
pub(super) struct Sent {
    pub(super) flight: Flight,
    /// It is about one region; otherwise it fails where regions have moved, so that it is split anew.
    pub(super) alone: bool,
}

/// What sends the requests of a client and waits for their answers. Clones have the same connections.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) shared: Arc<Inner>,
    /// How long a request may take.
    deadline: Duration,
}

/// What all clones of a client share.
pub(super) struct Inner {
    pub(super) options: Options,
    pub(super) known: ArcSwap<Known>,
    /// Bytes of slot that values have needed of late.
    pub(super) guess: Guess,
    /// The same for a pair of a scan.
    pub(super) pair_bytes: AtomicUsize,
    /// Those of writes.
    pub(super) names: Names,
    /// Held while a server is asked.
    turn: Mutex<Turn>,
}

/// Which of the servers is to be asked for the map.
#[derive(Debug, Default)]
struct Turn {
    /// The one that was asked last, by its place.
    last: usize,
    /// When that was.
    asked: Option<Instant>,
}

/// How long a server that does not answer is waited for before it is looked whether others know of another primary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// When it is looked next.
    look_at: Option<Instant>,
}

impl Patience {
    /// Whether it is over; it begins when this is asked first. If so, a shorter one begins.
    fn is_over(&mut self, now: Instant) -> bool {
        let is_over = *self.look_at.get_or_insert(now + PATIENCE) <= now;
        if is_over {
            self.look_at = Some(now + LOOK_EVERY);
        }
        is_over
    }
}

impl Caller {
    /// Asks the server of `link` at first.
    pub(super) fn new(options: Options, link: Link) -> Self {
        Self {
            deadline: options.deadline,
            shared: Arc::new(Inner {
                options,
                known: ArcSwap::from_pointee(Known::at_first(link)),
                guess: Guess::default(),
                pair_bytes: AtomicUsize::new(256),
                names: Names::default(),
                turn: Mutex::default(),
            }),
        }
    }

    /// The same with another deadline.
    pub(super) fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            deadline,
        }
    }

    /// The present moment.
    pub(super) fn now(&self) -> Instant {
        self.shared.options.clock.now()
    }

    /// When a request that begins now is given up.
    pub(super) fn deadline_from_now(&self) -> Instant {
        self.now() + self.deadline
    }

    pub(super) fn lost(&self, write: bool) -> ClientError {
        ClientError::Lost {
            what: "the server was lost while it worked on this; try again".to_owned(),
            outcome: outcome_of(write),
        }
    }

    /// The end of a write whose server is quiet, and leads the region no more.
    pub(super) fn moved() -> ClientError {
        ClientError::Lost {
            what: "the server does not answer, and its region has another primary by now"
                .to_owned(),
            outcome: Outcome::Unknown,
        }
    }

    pub(super) fn too_late(&self, write: bool) -> ClientError {
        ClientError::Lost {
            what: format!("no answer came within {:?}", self.deadline),
            outcome: outcome_of(write),
        }
    }

    /// Sends a request and waits for its answer, and does so again while that is harmless and of use.
    pub(super) fn run(
        &self,
        sending: &mut Sending<'_>,
        deadline: Instant,
        payload: &mut Vec<u8>,
    ) -> Result<ReplyHeader, ClientError> {
        let flight = self.send(sending, deadline)?;
        let alone = true;
        Ok(self.finish(sending, Sent { flight, alone }, deadline, payload)?)
    }

    /// [`run`](Self::run), for a request that was sent already.
    pub(super) fn finish(
        &self,
        sending: &mut Sending<'_>,
        Sent { flight, alone }: Sent,
        deadline: Instant,
        payload: &mut Vec<u8>,
    ) -> Result<ReplyHeader, Failed> {
        let write = sending.op.is_write();
        let mut pause = RETRY_PAUSE_MIN;
        let mut sent = Some(flight);
        loop {
            let mut flight = match sent.take() {
                Some(flight) => flight,
                None => self.send(sending, deadline)?,
            };
            let reply = match self.await_reply(&mut flight, deadline, payload) {
                Ok(reply) => reply,
                Err(NoReply::NotTaken) => continue,
                Err(NoReply::Lost | NoReply::Moved) if !write => continue,
                Err(NoReply::Lost) => return Err(self.lost(true).into()),
                // What was laid may have been carried out, or may be yet.
                Err(NoReply::Moved) => return Err(Self::moved().into()),
                Err(NoReply::Late) => return Err(self.too_late(write).into()),
            };
            match self.judge(reply, payload, write) {
                Verdict::Final => return Ok(reply),
                // It was done: it is not done again.
                Verdict::Larger(_) if write => {
                    return Err(odd("a write was answered at length").into());
                }
                Verdict::Larger(bytes) => sending.reply_bytes = bytes,
                Verdict::Failed(error) => return Err(error.into()),
                Verdict::Elsewhere => {
                    self.relearn(flight.channel(), deadline);
                    self.pause(&mut pause, deadline, unserved)?;
                    if !alone {
                        return Err(Failed::Parted(unserved()));
                    }
                }
                Verdict::Again(error) => {
                    self.pause(&mut pause, deadline, || error)?;
                    self.relearn(flight.channel(), deadline);
                }
            }
        }
    }

    /// Waits a little; `error` where there is no time left.
    fn pause(
        &self,
        pause: &mut Duration,
        deadline: Instant,
        error: impl FnOnce() -> ClientError,
    ) -> Result<(), ClientError> {
        if self.now() + *pause >= deadline {
            return Err(error());
        }
        std::thread::park_timeout(*pause);
        *pause = (*pause * 2).min(RETRY_PAUSE_MAX);
        Ok(())
    }

    /// Lays a request where its key belongs, waiting for a connection and for room.
    pub(super) fn send(&self, sending: &Sending<'_>, deadline: Instant) -> Result<Flight, Failed> {
        let mut size = Size::Usual;
        let mut patience = Patience::default();
        loop {
            let known = self.shared.known.load();
            let seat = known.seat_of(sending.key);
            let link = known.link_of(sending.key);
            let until = deadline.min(self.now() + MEET_TIME);
            let open = link.channel(size, &*self.shared.options.clock, until);
            let Open { channel, behind } = match open {
                Ok(open) => open,
                Err(NoChannel::Refused(error)) => return Err(error.into()),
                Err(NoChannel::Pause(until, error)) => {
                    let now = self.now();
                    if until >= deadline || now >= deadline {
                        return Err(error.into());
                    }
                    if !self.look_elsewhere(
                        |other| Arc::ptr_eq(other, link),
                        Duration::ZERO,
                        deadline,
                    ) {
                        std::thread::park_timeout(until.since(self.now()));
                    }
                    continue;
                }
            };
            let lay = Lay {
                op: sending.op,
                flags: sending.flags,
                region: seat.region,
                epoch: seat.epoch,
                parts: sending.parts,
                reply_bytes: sending.reply_bytes,
            };
            if !channel.fits(&lay) && size == Size::Usual {
                size = Size::Large;
                continue;
            }
            if let Some(behind) = behind {
                self.wait_for_writes(&behind, seat, deadline)?;
                if self.shared.known.load().has_moved(seat) {
                    continue;
                }
            }
            match channel.lay(&lay) {
                Ok(place) => return Ok(Flight::new(channel, place, Some(seat))),
                Err(Refused::Lost | Refused::NotTaken) => {}
                Err(Refused::TooLarge) => return Err(Failed::TooLarge(too_large(&channel))),
                Err(Refused::TooMany) => return Err(too_many().into()),
                Err(Refused::Full) => {
                    self.wait_for_room(&channel, deadline)?;
                    if patience.is_over(self.now()) {
                        self.has_moved(seat, &channel, deadline);
                    }
                }
            }
        }
    }

    /// Waits until the writes that were laid in `channel` so far have been answered, or until the region at `seat` has
    /// moved. A request that was made after these writes may be laid in the other channel to the same server only then.
    fn wait_for_writes(
        &self,
        channel: &Arc<Channel>,
        seat: Seat,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let mut patience = Patience::default();
        let next = channel.next_id();
        let began = self.now();
        channel.ring();
        while channel.is_writing(next) {
            let now = self.now();
            if now >= deadline {
                return Err(ClientError::Unavailable {
                    what: "an earlier write to this server has no answer yet; try again".to_owned(),
                    outcome: Outcome::NotApplied,
                });
            }
            if now.since(began) < self.shared.options.spin {
                std::hint::spin_loop();
                continue;
            }
            if patience.is_over(now) && self.has_moved(seat, channel, deadline) {
                break;
            }
            channel.sleep(LOOK_FOR_LIFE.min(deadline.since(now)), || {
                !channel.is_writing(next)
            });
            if self.now().since(now) >= LOOK_FOR_LIFE / 2 {
                channel.look_for_life();
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, channel: &Channel, deadline: Instant) -> Result<(), ClientError> {
        channel.ring();
        let left = deadline.since(self.now());
        if left.is_zero() {
            return Err(ClientError::Unavailable {
                what: "the server does not keep up; try again".to_owned(),
                outcome: Outcome::NotApplied,
            });
        }
        channel.sleep(left.min(ROOM_PAUSE), || false);
        channel.look_for_life();
        Ok(())
    }

    /// Waits for the reply to a request in flight. The wait ends without one if the server is quiet and the region has
    /// moved.
    pub(super) fn await_reply(
        &self,
        flight: &mut Flight,
        deadline: Instant,
        payload: &mut Vec<u8>,
    ) -> Result<ReplyHeader, NoReply> {
        let (mut began, mut has_lost) = (None, false);
        flight.channel().ring();
        loop {
            match flight.poll(payload) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) if has_lost => return Err(NoReply::Moved),
                Ok(None) => {}
                Err(Refused::NotTaken) => return Err(NoReply::NotTaken),
                Err(_) => return Err(NoReply::Lost),
            }
            let now = self.now();
            let began = *began.get_or_insert(now);
            if now >= deadline {
                return Err(NoReply::Late);
            }
            if now.since(began) < self.shared.options.spin {
                std::hint::spin_loop();
                continue;
            }
            has_lost = self.has_lost(flight, deadline);
            if has_lost {
                // The answer may have come while others were asked.
                continue;
            }
            let channel = flight.channel();
            channel.sleep(LOOK_FOR_LIFE.min(deadline.since(now)), || {
                flight.has_answer()
            });
            if self.now().since(now) >= LOOK_FOR_LIFE / 2 {
                channel.look_for_life();
            }
        }
    }

    /// Whether the server of a request in flight has been quiet for long, and no longer leads the request's region.
    pub(super) fn has_lost(&self, flight: &mut Flight, deadline: Instant) -> bool {
        let seat = flight
            .seat()
            .filter(|_| flight.patience().is_over(self.now()));
        seat.is_some_and(|seat| self.has_moved(seat, flight.channel(), deadline))
    }

    /// What a reply calls for.
    pub(super) fn judge(&self, reply: ReplyHeader, payload: &[u8], write: bool) -> Verdict {
        match reply.status {
            Status::Done | Status::Absent | Status::Refused => Verdict::Final,
            Status::Value => {
                self.shared.guess.learn(message_bytes(payload.len()));
                Verdict::Final
            }
            Status::Values | Status::Page | Status::Map | Status::Answer | Status::Long => {
                Verdict::Final
            }
            Status::TooSmall => Verdict::Larger(reply.needed),
            Status::WrongServer => Verdict::Elsewhere,
            Status::Failed => match read_failure(payload) {
                Ok(failure) => verdict_of(failure, write),
                Err(error) => Verdict::Failed(odd(&error.to_string())),
            },
        }
    }

    /// Whether what is at `seat` has moved, by what is known or what others say than the server of `channel`. They are
    /// asked now and then.
    fn has_moved(&self, seat: Seat, channel: &Arc<Channel>, deadline: Instant) -> bool {
        let has_moved = || self.shared.known.load().has_moved(seat);
        has_moved()
            || self.look_elsewhere(|link| link.has(channel), LOOK_EVERY, deadline) && has_moved()
    }

    /// Asks the server of `channel` for the region map, and others where it knows no other one than this client.
    pub(super) fn relearn(&self, channel: &Arc<Channel>, deadline: Instant) {
        let before = self.shared.known.load().fingerprint();
        let until = deadline.min(self.now() + MAP_TIME);
        let told = self.learn(channel, until);
        if told.is_err() || self.shared.known.load().fingerprint() == before {
            self.look_elsewhere(|link| link.has(channel), Duration::ZERO, deadline);
        }
    }

    /// Asks the next server, of those but `that`, which answers for the region map. Returns whether it is another one
    /// than was known. Nothing is asked while another thread asks, nor within the span `every` behind that.
    fn look_elsewhere(
        &self,
        that: impl Fn(&Arc<Link>) -> bool,
        every: Duration,
        deadline: Instant,
    ) -> bool {
        let Some(mut turn) = self.shared.turn.try_lock() else {
            return false;
        };
        if turn
            .asked
            .is_some_and(|asked| self.now().since(asked) < every)
        {
            return false;
        }
        let known = self.shared.known.load_full();
        let links: Vec<_> = known.links.values().filter(|link| !that(link)).collect();
        for _ in 0..links.len() {
            let now = self.now();
            if now >= deadline {
                break;
            }
            turn.last = turn.last.wrapping_add(1);
            let until = deadline.min(now + MAP_TIME);
            let link = links[turn.last % links.len()];
            let open = link.channel(Size::Usual, &*self.shared.options.clock, until);
            if let Ok(open) = open
                && self.learn(&open.channel, until).is_ok()
            {
                break;
            }
        }
        turn.asked = Some(self.now());
        self.shared.known.load().fingerprint() != known.fingerprint()
    }

    /// Fetches the region map over `channel`.
    pub(super) fn learn(
        &self,
        channel: &Arc<Channel>,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let mut payload = Vec::new();
        let mut reply_bytes = MAP_BYTES.min(channel.reply_bytes_max());
        loop {
            let lay = Lay {
                op: Op::Map,
                flags: Flags::default(),
                region: RegionId(0),
                epoch: Epoch(0),
                parts: &[],
                reply_bytes,
            };
            let mut flight = match channel.lay(&lay) {
                Ok(place) => Flight::new(Arc::clone(channel), place, None),
                Err(Refused::Full) => {
                    self.wait_for_room(channel, deadline)?;
                    continue;
                }
                Err(Refused::TooMany) => return Err(too_many()),
                Err(Refused::TooLarge) => return Err(too_large(channel)),
                Err(Refused::Lost | Refused::NotTaken) => return Err(self.lost(false)),
            };
            let reply = match self.await_reply(&mut flight, deadline, &mut payload) {
                Ok(reply) => reply,
                Err(NoReply::Late) => return Err(self.too_late(false)),
                Err(_) => return Err(self.lost(false)),
            };
            match reply.status {
                Status::Map => break,
                Status::TooSmall => reply_bytes = reply.needed,
                other => return Err(odd(&format!("the region map was answered by {other:?}"))),
            }
        }
        let map = RegionMap::decode(&payload).map_err(|error| odd(&error.to_string()))?;
        let fingerprint = RegionMap::fingerprint(&payload);
        let cluster = channel.cluster();
        self.shared.known.rcu(|old| {
            if old.is_newer_than(&map, cluster) {
                return Arc::clone(old);
            }
            old.replaced_by(&map, fingerprint, cluster)
        });
        Ok(())
    }
}
