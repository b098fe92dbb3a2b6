//! How a link opens: sessions, hellos, and fresh memory; see [`super`] for the protocol.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Incarnation, Instant};
use argosy_fabric::{Connecting, Fabric, FabricError, MemoryKey, RemoteMemory};
use argosy_memory::{MemoryError, SharedMemory};
use argosy_wire::ring::{RingShape, RingWriter};

use super::refusals::Refusals;
use super::{
    BEAT_EVERY, Broken, Deferred, Ends, FETCH_SLOTS, Link, LinkEvent, Open, Reading, SHIP_SLOTS,
    State,
};
use crate::node::connection::Connection;
use crate::node::inbox::{HELLO, Hello, Inbox, RING};
use crate::node::keys;

/// Longest pause before memory is asked for again; the first is [`BEAT_EVERY`].
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// When memory is asked for again, and how long that is after the last time.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryWanted {
    at: Instant,
    pause: Duration,
}

impl MemoryWanted {
    /// There is none at `now`, and was none `before`.
    fn again(before: Option<Self>, now: Instant) -> Self {
        let pause = before.map_or(BEAT_EVERY, |wanted| (2 * wanted.pause).min(PAUSE_MAX));
        let at = now + pause;
        Self { at, pause }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.at
    }

    pub(super) const fn at(&self) -> Instant {
        self.at
    }
}

impl Link {
    /// Whether the peer has shown a sign of life after `at`.
    pub(crate) fn is_heard_after(&self, at: Instant) -> bool {
        self.is_open() && self.pulse.is_heard_after(at)
    }

    /// Takes inbox and landing slots back. What the peer has said last is copied once.
    fn revoke_memory(&mut self) {
        self.fabric.revoke(keys::inbox(self.ends.peer));
        self.fabric.revoke(keys::landing(self.ends.peer));
        let said = SharedMemory::anonymous(RING);
        said.store_u64(HELLO, self.offered.inbox.hello().word());
        self.offered.inbox = Inbox(Arc::new(said));
        self.offered.landing = Arc::new(SharedMemory::anonymous(RING));
    }

    /// Replaces inbox and landing slots by fresh memory, made for the session that the peer wished for last. What
    /// the peer said last stays.
    pub(super) fn renew_memory(&mut self) -> Result<(), Broken> {
        if self.mutants.keep_link_memory() {
            self.begin_reading(self.offered.inbox.hello().wish);
            return Ok(());
        }
        self.revoke_memory();
        let (inbox_key, landing_key) = (keys::inbox(self.ends.peer), keys::landing(self.ends.peer));
        let said = self.offered.inbox.hello();
        let inbox = self.create(inbox_key, RING + self.settings.ring_bytes)?;
        let slots = usize::from(SHIP_SLOTS + FETCH_SLOTS);
        let landing = self.create(landing_key, slots * self.settings.slot_bytes)?;
        inbox.store_u64(HELLO, said.word());
        let peer = self.ends.peer;
        self.fabric.grant(landing_key, Arc::clone(&landing), peer)?;
        self.fabric.grant(inbox_key, Arc::clone(&inbox), peer)?;
        self.offered.inbox = Inbox(inbox);
        self.offered.landing = landing;
        self.begin_reading(said.wish);
        Ok(())
    }

    /// There is memory for `session` of the peer, and nothing in it has been read.
    fn begin_reading(&mut self, session: u32) {
        self.offered.accepted = session;
        self.reading = Reading::new(RingShape::new(self.settings.ring_bytes), session);
    }

    /// Makes fresh memory, or sees to it that it is asked for again. Returns whether there is some.
    pub(super) fn try_renew(&mut self, now: Instant) -> bool {
        let before = self.offered.wanted.take();
        let (me, peer) = (self.ends.me.0, self.ends.peer.0);
        match self.renew_memory() {
            Ok(()) => {
                if before.is_some() {
                    tracing::info!(me, peer, "there is memory for the link again");
                }
                self.say_hello();
                true
            }
            Err(broken) => {
                if before.is_none() {
                    tracing::warn!(
                        me,
                        peer,
                        why = %broken,
                        "there is no memory for a link, which stays down: it is asked for again"
                    );
                }
                self.offered.wanted = Some(MemoryWanted::again(before, now));
                false
            }
        }
    }

    fn create(&self, key: MemoryKey, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        let memory = self.offered.memories.create(key.0, len)?;
        self.offered.memories.forget_survivors(key.0)?;
        Ok(memory)
    }

    /// Steps 1, 3 and 4 of opening.
    pub(super) fn try_open(
        &mut self,
        now: Instant,
        events: &mut Vec<LinkEvent>,
    ) -> Result<bool, Broken> {
        let State::Closed(closed) = &mut self.state else {
            return Ok(false);
        };
        closed.poll_hello();
        let due = now >= closed.next_try;
        if due {
            closed.next_try = now + BEAT_EVERY;
        }
        if !closed.inbox.is_made() {
            return self.meet(due);
        }
        let expected = Hello {
            wish: self.offered.accepted,
            accept: self.session,
        };
        if self.offered.inbox.hello() != expected {
            // Tell again from time to time: the peer may have renewed its inbox in between.
            if due {
                self.say_hello();
            }
            return Ok(false);
        }
        if closed.hello.is_some() {
            return Ok(false);
        }
        self.finish_opening(due, now, events)
    }

    /// Connects to the peer's inbox, and says hello there. To connect is begun only where that is `due`.
    fn meet(&mut self, due: bool) -> Result<bool, Broken> {
        let State::Closed(closed) = &mut self.state else {
            return Ok(false);
        };
        if closed.inbox.is_none() {
            if !due {
                return Ok(false);
            }
            let bytes = RING + self.settings.ring_bytes;
            match meet(&*self.fabric, self.ends, keys::inbox(self.ends.me), bytes) {
                Ok(connecting) => closed.inbox = Connection::Connecting(connecting),
                Err(error) => return not_yet(error),
            }
        }
        match closed.inbox.step() {
            Ok(true) => {
                self.say_hello();
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => not_yet(error),
        }
    }

    /// The peer has made room for the own session: its inbox, and landing slots, are fresh. Connects to both. What
    /// failed is begun anew when that is `due`: a peer that is gone still says in the own inbox that it is ready.
    fn finish_opening(
        &mut self,
        due: bool,
        now: Instant,
        events: &mut Vec<LinkEvent>,
    ) -> Result<bool, Broken> {
        let State::Closed(closed) = &mut self.state else {
            return Ok(false);
        };
        if matches!(closed.fresh, Fresh::Wanted) || due && matches!(closed.fresh, Fresh::Failed) {
            let inbox_bytes = RING + self.settings.ring_bytes;
            let landing_bytes = usize::from(SHIP_SLOTS + FETCH_SLOTS) * self.settings.slot_bytes;
            let connect = |key, least| meet(&*self.fabric, self.ends, key, least);
            let inbox = connect(keys::inbox(self.ends.me), inbox_bytes);
            let landing = connect(keys::landing(self.ends.me), landing_bytes);
            closed.fresh = match inbox.and_then(|inbox| Ok((inbox, landing?))) {
                Ok((inbox, landing)) => Fresh::Connecting {
                    inbox: Connection::Connecting(inbox),
                    landing: Connection::Connecting(landing),
                },
                Err(error) => {
                    closed.fresh = Fresh::Failed;
                    self.note_refusal(error, now);
                    return Ok(false);
                }
            };
        }
        let (inbox, landing) = match closed.fresh.take_made() {
            Ok(Some(made)) => made,
            Ok(None) => return Ok(false),
            Err(error) => {
                self.note_refusal(error, now);
                return Ok(false);
            }
        };
        let shape = RingShape::new(self.settings.ring_bytes);
        self.state = State::Open(Box::new(Open {
            inbox,
            landing,
            out: RingWriter::new(shape, Incarnation(self.session.into())),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            behind: VecDeque::new(),
            behind_bytes: 0,
            deferred: Deferred::default(),
            ships: [None; SHIP_SLOTS as usize],
            fetches_busy: 0,
            failed: None,
        }));
        self.troubles.refusals = Refusals::default();
        self.pulse.hear(now);
        self.say_hello();
        events.push(LinkEvent::Up);
        Ok(true)
    }

    /// The memory that the peer has made for the own session could not be connected to.
    fn note_refusal(&mut self, error: FabricError, now: Instant) {
        if let Err(broken) = not_yet(error) {
            self.troubles.refusals.note(&broken, now);
        }
    }

    /// Writes wish and accept into the peer's inbox.
    pub(super) fn say_hello(&mut self) {
        let words = Hello {
            wish: self.session,
            accept: self.offered.accepted,
        };
        self.write += 1;
        let (bytes, seq) = (words.word().to_le_bytes(), self.write);
        match &mut self.state {
            State::Closed(closed) => {
                if !closed.say_hello(&bytes, seq) {
                    return;
                }
            }
            // A failure is found when it is polled.
            State::Open(open) => drop(open.inbox.write(HELLO, &bytes, seq)),
        }
        self.fabric.notify(self.ends.peer);
    }
}

/// A link that is closed.
pub(super) struct Closed {
    /// Where the words are written.
    inbox: Connection,
    /// The last write of them, which has not ended yet.
    hello: Option<u64>,
    fresh: Fresh,
    next_try: Instant,
}

/// Inbox and landing slots of the peer.
type Made = (Box<dyn RemoteMemory>, Box<dyn RemoteMemory>);

/// The memory that the peer has made for the own session.
enum Fresh {
    /// It is connected to once the peer says that it is there.
    Wanted,
    Connecting {
        inbox: Connection,
        landing: Connection,
    },
    /// It could not be connected to: it is tried again later.
    Failed,
}

impl Fresh {
    /// Inbox and landing slots, once both have been connected to.
    fn take_made(&mut self) -> Result<Option<Made>, FabricError> {
        let Self::Connecting { inbox, landing } = self else {
            return Ok(None);
        };
        if let Err(error) = inbox.step().and_then(|_| landing.step()) {
            *self = Self::Failed;
            return Err(error);
        }
        if !inbox.is_made() || !landing.is_made() {
            return Ok(None);
        }
        Ok(match (std::mem::take(inbox), std::mem::take(landing)) {
            (Connection::Made(inbox), Connection::Made(landing)) => Some((inbox, landing)),
            _ => None,
        })
    }
}

impl Closed {
    /// One that tries to open at `next_try`.
    pub(super) const fn until(next_try: Instant) -> Self {
        Self {
            inbox: Connection::None,
            hello: None,
            fresh: Fresh::Wanted,
            next_try,
        }
    }

    /// When it wants its next step, if nothing else happens. The end of an attempt rings, and so does that of a hello.
    pub(super) const fn next_step(&self) -> Instant {
        self.next_try
    }

    /// Sees which hellos have ended. Where one has failed, the inbox is connected to anew.
    fn poll_hello(&mut self) {
        let Some(remote) = self.inbox.remote() else {
            return;
        };
        let mut failed = false;
        while let Some(done) = remote.poll() {
            failed |= done.result.is_err();
            if self.hello == Some(done.seq) {
                self.hello = None;
            }
        }
        if failed {
            (self.inbox, self.hello) = (Connection::None, None);
        }
    }

    /// Writes `words`, and sees whether that has ended at once. Returns whether there is an inbox to write them to.
    fn say_hello(&mut self, words: &[u8], seq: u64) -> bool {
        let Some(remote) = self.inbox.remote() else {
            return false;
        };
        self.hello = Some(seq);
        self.fresh = Fresh::Wanted;
        match remote.write(HELLO, words, seq) {
            Ok(()) => self.poll_hello(),
            Err(_) => (self.inbox, self.hello) = (Connection::None, None),
        }
        true
    }
}

/// What an attempt to meet comes to that failed so: it is tried again, with a new session where what is there cannot be
/// used.
fn not_yet(error: FabricError) -> Result<bool, Broken> {
    match error {
        FabricError::NotThere { .. } | FabricError::Revoked | FabricError::Broken => Ok(false),
        error => Err(error.into()),
    }
}

/// Begins to connect to memory by which two servers meet: its descriptor is in no message. The session in the hello
/// says which link it is of.
fn meet(
    fabric: &dyn Fabric,
    ends: Ends,
    key: MemoryKey,
    least: usize,
) -> Result<Box<dyn Connecting>, FabricError> {
    let found = fabric.find(ends.peer, key)?;
    Ok(fabric.connect(ends.peer, found, least))
}
