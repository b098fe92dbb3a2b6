//! The link to one peer: a message ring in each direction, and landing slots for segments.
//!
//! Each side owns an [inbox](super::inbox) that the other writes, one-sided, and nobody else.
//!
//! A *session* is one side's number, another one whenever its side of the link has broken, or its
//! process is another. (On a device that was put in the place of another it is the same by chance,
//! once in 65536.) A link opens like this, on each side for itself and in any order:
//!
//! 1. Write the own session as `wish`, and the peer's that was accepted, into the peer's inbox.
//! 2. When a new wish stands in the own inbox: replace the inbox, and the landing slots, by fresh
//!    memory, which revokes the old; then write the wish back as `accept`.
//! 3. When the own session stands in the own inbox as `accept`, beside the wish that was accepted:
//!    begin to connect to the peer's fresh memory. (Not before the last hello has ended:
//!    the writes of two connections land in any order, and an older hello that lands last would
//!    take back what the newer one says.)
//! 4. When that has been connected to, and the own inbox still says so: the link is open. A hello that is written
//!    meanwhile gives the connections up, as the peer's memory may be another one by then.
//!
//! So a link has at most two attempts to connect under way. One that has failed is begun anew at the next beat, and not
//! before. While they are under way nothing is looked at before the fabric rings.
//!
//! When anything fails, or a new wish arrives on an open link, the link is down: it takes a new
//! session, and makes its memory fresh again. So whatever the peer wrote under an open link of
//! before is gone, and its next write fails and makes it break as well; and a peer that was still
//! about to open finds fresh memory for the session that it wished for. Both sides therefore agree
//! on when a link was reset, and no message of an earlier link is ever read on a later one. Messages
//! arrive in order, each once, until the link is down.
//!
//! Where there is no room for fresh memory, the old is revoked all the same, and the link stays down: memory is asked
//! for again at growing intervals (`opening`). A wish counts as accepted only once the memory for it is there, and a
//! peer that finds no inbox looks for it again. Memory that was revoked is never offered again. Of what the peer has
//! said last in it, one private copy is made, by which everything is judged: what a late write still puts there is
//! seen by nobody.
//!
//! A ring message is short (`RingShape::payload_max`). A longer payload, of a call or an answer, goes as several
//! ring messages, and is put together by the reader; see `long`. What has no bound does not come
//! here: edits and checkpoints are sent in parts.

mod deferred;
mod holdings;
mod long;
mod opening;
mod pulse;
mod queue;
mod reading;
mod refusals;
mod sent;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Epoch, Instant, RegionId, ServerId};
use argosy_fabric::{Fabric, FabricError, RemoteMemory};
use argosy_memory::{MemoryError, SharedMemory, WindowStore};
use argosy_wire::message::Message;
use argosy_wire::ring::{Header, RingError, RingShape, RingWriter};

pub(crate) use self::deferred::Admission;
use self::deferred::Deferred;
pub(crate) use self::holdings::Holdings;
use self::opening::{Closed, MemoryWanted};
use self::pulse::Pulse;
use self::reading::Reading;
pub(crate) use self::refusals::CannotOpen;
use self::refusals::Refusals;
pub(crate) use self::sent::SentBytes;
use super::Mutants;
use super::inbox::{BEAT, HEAD, Inbox, RING};

/// Slots into which the peer ships segments as it finishes them.
pub const SHIP_SLOTS: u8 = 2;
/// Slots into which the peer writes what was fetched from it; numbered behind the ship slots.
pub const FETCH_SLOTS: u8 = 2;

/// How long a message may take to arrive, once its first bytes are there: its writer has died in
/// the middle, or the bytes are damaged.
const ARRIVAL_MAX: Duration = Duration::from_secs(2);
/// A peer that shows no sign of life for this long is said to be silent: many missed beats.
const SILENT_AFTER: Duration = Duration::from_secs(2);
/// A peer that has shown no sign of life for so long is given no requests, which might be lost with it.
const QUIET_AFTER: Duration = Duration::from_millis(500);
/// How often a peer is looked for that offers no inbox, and an idle link is tried.
const BEAT_EVERY: Duration = Duration::from_millis(100);

/// Sizes that all servers of a cluster share.
#[derive(Clone, Copy, Debug)]
pub struct LinkSettings {
    /// Bytes of a message ring: a power of two. A message has at most a quarter of it, and at most 64 KiB.
    pub ring_bytes: usize,
    /// Bytes of a landing slot: those of a segment.
    pub slot_bytes: usize,
    /// Most bytes of an edit or a checkpoint in one message; fewer where the ring takes fewer. At least 16.
    pub part_bytes: usize,
}

impl LinkSettings {
    /// Bytes of the memory that a server offers to one peer: an inbox and all landing slots.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.ring_bytes + (SHIP_SLOTS + FETCH_SLOTS) as usize * self.slot_bytes
    }
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// The link is down.
    #[error("the link is down")]
    Down,
    /// Too much waits for the peer to read.
    #[error("the peer does not keep up")]
    Full,
    /// It would never find room: nothing of it was sent.
    #[error("a message of {len} bytes is too long; {max} is the most")]
    TooLong {
        /// Bytes of the payload.
        len: usize,
        /// Most bytes of one.
        max: usize,
    },
}

/// What a link tells its node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkEvent {
    /// Messages can be sent and will arrive.
    Up,
    /// Whatever was sent may be lost.
    Down,
}

/// Why a link went down, for the log.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Fabric(#[from] FabricError),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("the peer began a new session")]
    NewSession,
    #[error("it was reset here: {0}")]
    Reset(&'static str),
    #[error("a message has been arriving for too long")]
    Stuck,
    #[error("the peer sent a message in parts that do not fit each other")]
    Parts,
}

/// A message whose bytes in a landing slot have to arrive first.
struct Behind {
    write: u64,
    header: Header,
    payload: Vec<u8>,
}

/// As what a segment was shipped. Who gives its slot back names it: nobody frees what was shipped there since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shipment {
    region: RegionId,
    epoch: Epoch,
    attempt: u64,
}

impl Shipment {
    /// That of a message with `header`, under `attempt`.
    pub(crate) const fn of(header: Header, attempt: u64) -> Self {
        Self {
            region: header.region,
            epoch: header.epoch,
            attempt,
        }
    }
}

/// What an open link writes to.
struct Open {
    inbox: Box<dyn RemoteMemory>,
    landing: Box<dyn RemoteMemory>,
    out: RingWriter,
    /// Messages that found no room in the ring, oldest first, and their bytes.
    backlog: VecDeque<(Header, Vec<u8>)>,
    backlog_bytes: usize,
    /// Messages that wait for what is landing, and their bytes.
    behind: VecDeque<Behind>,
    behind_bytes: usize,
    /// Calls of the peer that wait.
    deferred: Deferred,
    /// What was shipped into slots that the peer has not given back.
    ships: [Option<Shipment>; SHIP_SLOTS as usize],
    /// Own fetch slots into which the peer was asked to write.
    fetches_busy: u8,
    /// A write that was not waited for has failed: for the next step.
    failed: Option<FabricError>,
}

enum State {
    /// Waiting for the peer.
    Closed(Closed),
    Open(Box<Open>),
}

/// Whose side of a link it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// This server.
    pub(crate) me: ServerId,
    /// The other one.
    pub(crate) peer: ServerId,
}

/// The memory that a link offers to its peer.
struct Offered {
    memories: Arc<dyn WindowStore>,
    inbox: Inbox,
    landing: Arc<SharedMemory>,
    /// The peer's session that inbox and landing slots were made for; 0 at first.
    accepted: u32,
    /// Inbox and landing slots are revoked, and there was no memory for fresh ones.
    wanted: Option<MemoryWanted>,
    /// What was read of a landing slot.
    scratch: Vec<u8>,
}

/// What is amiss with a link.
#[derive(Debug, Default)]
struct Troubles {
    /// Why it is to break at the next step.
    reset_wanted: Option<&'static str>,
    /// What keeps it from opening.
    refusals: Refusals,
}

/// See the module documentation.
pub(crate) struct Link {
    ends: Ends,
    settings: LinkSettings,
    fabric: Arc<dyn Fabric>,
    offered: Offered,
    reading: Reading,
    troubles: Troubles,
    /// The own session.
    session: u32,
    state: State,
    /// Numbers the writes to the peer.
    write: u64,
    pulse: Pulse,
    sent: SentBytes,
    mutants: Mutants,
}

impl Link {
    /// A link that is down. `session` is far from those that the last process of this server has
    /// used.
    pub(crate) fn new(
        ends: Ends,
        settings: LinkSettings,
        fabric: Arc<dyn Fabric>,
        memories: Arc<dyn WindowStore>,
        session: u32,
    ) -> Result<Self, MemoryError> {
        let shape = RingShape::new(settings.ring_bytes);
        let mut link = Self {
            ends,
            settings,
            fabric,
            offered: Offered {
                memories,
                inbox: Inbox(Arc::new(SharedMemory::anonymous(RING))),
                landing: Arc::new(SharedMemory::anonymous(RING)),
                accepted: 0,
                wanted: None,
                scratch: Vec::new(),
            },
            reading: Reading::new(shape, 0),
            troubles: Troubles::default(),
            session,
            state: State::Closed(Closed::until(Instant::default())),
            write: 0,
            pulse: Pulse::default(),
            sent: SentBytes::default(),
            mutants: Mutants::default(),
        };
        link.renew_memory().map_err(|broken| match broken {
            Broken::Memory(error) => error,
            other => unusable(&other),
        })?;
        Ok(link)
    }

    /// Plants mistakes, from now on.
    pub(crate) const fn plant(&mut self, mutants: Mutants) {
        self.mutants = mutants;
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// The own session: another one whenever the link has been reset.
    pub(crate) const fn session(&self) -> u32 {
        self.session
    }

    /// The peer's session that the own memory was made for.
    pub(crate) const fn peer_session(&self) -> u32 {
        self.offered.accepted
    }

    /// Whether the peer has shown no sign of life for long: it is stopped, killed, or out of reach.
    /// Its memory may take writes all the same.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        !self.is_open() || self.pulse.is_missing(now)
    }

    /// What keeps the link from opening, as far as that is known.
    pub(crate) fn cannot_open(&self, now: Instant) -> CannotOpen {
        match self.is_open() {
            true => CannotOpen::Unknown,
            false => self.troubles.refusals.told(now),
        }
    }

    /// Whether the peer has shown no sign of life for a while: it may be gone, or just slow.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        self.pulse.is_quiet(now)
    }

    /// Whether the peer has shown no sign of life for long, whether or not the link is open.
    pub(crate) fn is_missing(&self, now: Instant) -> bool {
        self.pulse.is_missing(now)
    }

    /// Whether the link is to break at the next step: what is sent now is lost.
    pub(crate) const fn is_about_to_break(&self) -> bool {
        self.troubles.reset_wanted.is_some()
    }

    /// Has the link break, and open anew, at the next step, because of `why`.
    pub(crate) fn reset(&mut self, why: &'static str) {
        self.troubles.reset_wanted = Some(why);
    }

    /// Bytes written into the peer's memory by this link.
    pub(crate) const fn sent(&self) -> &SentBytes {
        &self.sent
    }

    /// A ship slot that is free, or `None` while the peer stores what was shipped before.
    pub(crate) fn free_ship_slot(&self) -> Option<u8> {
        let State::Open(open) = &self.state else {
            return None;
        };
        let is_free = |slot: &u8| open.ships[usize::from(*slot)].is_none();
        (0..SHIP_SLOTS).find(is_free)
    }

    /// Takes a fetch slot for a part that the peer is asked for; `None` while all are taken. Regions
    /// share the slots of a link.
    pub(crate) fn take_fetch_slot(&mut self) -> Option<u8> {
        let State::Open(open) = &mut self.state else {
            return None;
        };
        let slot = (0..FETCH_SLOTS).find(|slot| open.fetches_busy & 1 << slot == 0)?;
        open.fetches_busy |= 1 << slot;
        Some(slot)
    }

    /// A fetch has ended, and what it brought has been copied.
    pub(crate) fn free_fetch_slot(&mut self, slot: u8) {
        if let State::Open(open) = &mut self.state
            && slot < FETCH_SLOTS
        {
            open.fetches_busy &= !(1 << slot);
        }
    }

    /// The peer gave the ship slot back in which `shipment` was. Where something else is there by now, or nothing, that
    /// changes nothing: it was said of an earlier attempt, or of an earlier link. Returns whether it is free by that.
    pub(crate) fn ship_slot_freed(&mut self, slot: u8, shipment: Shipment) -> bool {
        let State::Open(open) = &mut self.state else {
            return false;
        };
        let in_slot = open.ships.get_mut(usize::from(slot));
        let freed = in_slot.and_then(|of| of.take_if(|of| *of == shipment));
        freed.is_some()
    }

    /// Writes `bytes` into the peer's landing `slot`, and sends the message when they are there.
    pub(crate) fn land(
        &mut self,
        slot: u8,
        bytes: &[u8],
        header: Header,
        message: &Message<'_>,
    ) -> Result<(), SendError> {
        assert!(slot < SHIP_SLOTS + FETCH_SLOTS && bytes.len() <= self.settings.slot_bytes);
        let State::Open(open) = &mut self.state else {
            return Err(SendError::Down);
        };
        self.write += 1;
        let at = usize::from(slot) * self.settings.slot_bytes;
        if let Err(error) = open.landing.write(at, bytes, self.write) {
            return Err(if error == FabricError::Full {
                SendError::Full
            } else {
                SendError::Down
            });
        }
        self.sent.landed(slot < SHIP_SLOTS, bytes.len());
        if let Some(in_slot) = open.ships.get_mut(usize::from(slot)) {
            let attempt = match message {
                Message::Ship { attempt, .. } => *attempt,
                _ => 0,
            };
            *in_slot = Some(Shipment::of(header, attempt));
        }
        let mut payload = Vec::new();
        message.encode(&mut payload);
        open.behind_bytes += payload.len();
        open.behind.push_back(Behind {
            write: self.write,
            header,
            payload,
        });
        // Whoever lands it: the fabric thread sends the message when the bytes are there.
        self.fabric.notify(self.ends.me);
        Ok(())
    }

    /// Moves the link on. Call often; `events` receives what changed. Returns whether anything
    /// was done.
    pub(crate) fn step(&mut self, now: Instant, events: &mut Vec<LinkEvent>) -> bool {
        match self.try_step(now, events) {
            Ok(made) => made,
            Err(broken) => {
                self.break_down(now, &broken, events);
                true
            }
        }
    }

    /// The next message that has arrived, its payload in `payload`.
    pub(crate) fn next(&mut self, payload: &mut Vec<u8>) -> Option<Header> {
        if !self.is_open() {
            return None;
        }
        self.reading.next(&self.offered.inbox, payload)
    }

    fn try_step(&mut self, now: Instant, events: &mut Vec<LinkEvent>) -> Result<bool, Broken> {
        if let Some(why) = self.troubles.reset_wanted.take().filter(|_| self.is_open()) {
            return Err(Broken::Reset(why));
        }
        if let Some(wanted) = self.offered.wanted {
            return Ok(wanted.is_due(now) && self.try_renew(now));
        }
        let wish = self.offered.inbox.hello().wish;
        if wish != 0 && wish != self.offered.accepted {
            self.pulse.hear(now);
            if self.is_open() {
                self.break_down(now, &Broken::NewSession, events);
            } else {
                self.try_renew(now);
            }
            if self.offered.wanted.is_some() {
                return Ok(true);
            }
        }
        match &self.state {
            State::Closed(_) => self.try_open(now, events),
            State::Open(_) => self.step_open(now),
        }
    }

    fn step_open(&mut self, now: Instant) -> Result<bool, Broken> {
        let State::Open(open) = &mut self.state else {
            return Ok(false);
        };
        if let Some(error) = open.failed.take() {
            return Err(error.into());
        }
        let mut made = false;
        while let Some(done) = open.inbox.poll() {
            done.result?;
        }
        while let Some(done) = open.landing.poll() {
            done.result?;
            made = true;
            // Writes of one connection may end in any order; messages keep theirs.
            if let Some(behind) = open.behind.iter_mut().find(|b| b.write == done.seq) {
                behind.write = 0;
            }
        }
        while open.behind.front().is_some_and(|behind| behind.write == 0) {
            let behind = open.behind.pop_front().expect("there is a first one");
            open.behind_bytes -= behind.payload.len();
            open.backlog_bytes += behind.payload.len();
            open.backlog.push_back((behind.header, behind.payload));
        }
        let head = self.offered.inbox.0.load_u64(HEAD);
        open.out.set_head(head)?;
        let beat = self.offered.inbox.0.load_u64(BEAT);
        self.pulse.read(head, beat, now);
        self.reading.check(now)?;
        if let Some(head) = self.reading.head_to_tell() {
            self.write += 1;
            let told = write_to(&mut *open.inbox, HEAD, &head.to_le_bytes(), self.write)?;
            self.reading.told(head, told);
            self.pulse.put_off(now);
        } else if let Some(beat) = self.pulse.due(now) {
            self.write += 1;
            // Where it is not taken, other writes are under way, which are signs of life, too.
            if write_to(&mut *open.inbox, BEAT, &beat.to_le_bytes(), self.write)? {
                self.pulse.wrote(beat);
            }
            self.pulse.put_off(now);
        }
        self.flush();
        Ok(made)
    }

    fn break_down(&mut self, now: Instant, broken: &Broken, events: &mut Vec<LinkEvent>) {
        let next_try = if self.is_open() {
            tracing::info!(me = self.ends.me.0, peer = self.ends.peer.0, why = %broken, "link down");
            events.push(LinkEvent::Down);
            now
        } else {
            self.troubles.refusals.note(broken, now);
            // What cannot be used now cannot be used at once again.
            now + BEAT_EVERY
        };
        self.session = self.session.wrapping_add(1).max(1);
        self.state = State::Closed(Closed::until(next_try));
        self.try_renew(now);
    }

    /// When the link wants its next step, if nothing else happens.
    pub(crate) fn next_step(&self) -> Instant {
        if let Some(wanted) = &self.offered.wanted {
            return wanted.at();
        }
        match &self.state {
            State::Closed(closed) => closed.next_step(),
            // The peer makes room without ringing the bell. Writes that end ring it.
            State::Open(open) if !open.backlog.is_empty() => Instant::default(),
            State::Open(_) => self.pulse.next(),
        }
    }

    /// The bytes of one landing slot.
    pub(crate) fn read_slot(&mut self, slot: u8, len: usize) -> &[u8] {
        self.offered.scratch.resize(len, 0);
        self.offered.landing.read(
            usize::from(slot) * self.settings.slot_bytes,
            &mut self.offered.scratch,
        );
        &self.offered.scratch
    }
}

/// Writes into a peer's memory. Returns whether the fabric took it: while too many writes are under way it does
/// not, which is no failure. Nothing was written then, and it is tried again when one has ended.
fn write_to(
    remote: &mut dyn RemoteMemory,
    at: usize,
    bytes: &[u8],
    seq: u64,
) -> Result<bool, FabricError> {
    loop {
        match remote.write(at, bytes, seq) {
            Ok(()) => return Ok(true),
            Err(FabricError::Full) => {}
            Err(error) => return Err(error),
        }
        let mut any = false;
        while let Some(done) = remote.poll() {
            done.result?;
            any = true;
        }
        if !any {
            return Ok(false);
        }
    }
}

fn unusable(broken: &Broken) -> MemoryError {
    MemoryError::Unusable {
        path: "the fabric".into(),
        what: broken.to_string(),
    }
}

#[cfg(test)]
mod tests;
