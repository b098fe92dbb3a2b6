//! How a link opens: sessions, hellos, and fresh memory; see [`super`] for the protocol.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Incarnation, Instant};
use argosy_fabric::{Fabric, FabricError, MemoryKey, RemoteMemory};
use argosy_memory::{MemoryError, SharedMemory};
use argosy_wire::ring::{RingShape, RingWriter};

use super::{
    BEAT_EVERY, Broken, Deferred, Ends, FETCH_SLOTS, Link, LinkEvent, Open, Reading, SHIP_SLOTS,
    State,
};
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

    /// Steps 1 and 3 of opening.
    pub(super) fn try_open(
        &mut self,
        now: Instant,
        events: &mut Vec<LinkEvent>,
    ) -> Result<bool, Broken> {
        let State::Closed {
            inbox,
            hello,
            next_try,
        } = &mut self.state
        else {
            return Ok(false);
        };
        let mut failed = false;
        if let Some(remote) = inbox {
            while let Some(done) = remote.poll() {
                failed |= done.result.is_err();
                if *hello == Some(done.seq) {
                    *hello = None;
                }
            }
        }
        if failed {
            (*inbox, *hello) = (None, None);
        }
        let due = now >= *next_try;
        if due {
            *next_try = now + BEAT_EVERY;
        }
        if inbox.is_none() {
            if !due {
                return Ok(false);
            }
            let bytes = RING + self.settings.ring_bytes;
            match meet(&*self.fabric, self.ends, keys::inbox(self.ends.me), bytes) {
                Ok(remote) => *inbox = Some(remote),
                Err(FabricError::NotThere { .. } | FabricError::Revoked | FabricError::Broken) => {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
            self.say_hello();
            return Ok(true);
        }
        if self.offered.inbox.hello()
            != (Hello {
                wish: self.offered.accepted,
                accept: self.session,
            })
        {
            // Tell again from time to time: the peer may have renewed its inbox in between.
            if due {
                self.say_hello();
            }
            return Ok(false);
        }
        if matches!(self.state, State::Closed { hello: Some(_), .. }) {
            return Ok(false);
        }
        self.finish_opening(now, events)
    }

    /// The peer has made room for the own session: its inbox, and landing slots, are fresh.
    fn finish_opening(
        &mut self,
        now: Instant,
        events: &mut Vec<LinkEvent>,
    ) -> Result<bool, Broken> {
        let inbox_bytes = RING + self.settings.ring_bytes;
        let landing_bytes = usize::from(SHIP_SLOTS + FETCH_SLOTS) * self.settings.slot_bytes;
        let connect = |key, least| meet(&*self.fabric, self.ends, key, least);
        let (Ok(inbox), Ok(landing)) = (
            connect(keys::inbox(self.ends.me), inbox_bytes),
            connect(keys::landing(self.ends.me), landing_bytes),
        ) else {
            return Ok(false);
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
        self.pulse.hear(now);
        self.say_hello();
        events.push(LinkEvent::Up);
        Ok(true)
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
            State::Closed {
                inbox: Some(remote),
                hello,
                ..
            } => {
                *hello = Some(seq);
                if remote.write(HELLO, &bytes, seq).is_err()
                    && let State::Closed { inbox, hello, .. } = &mut self.state
                {
                    (*inbox, *hello) = (None, None);
                }
            }
            // A failure is found when it is polled.
            State::Open(open) => drop(open.inbox.write(HELLO, &bytes, seq)),
            State::Closed { inbox: None, .. } => return,
        }
        self.fabric.notify(self.ends.peer);
    }
}

/// Connects to memory by which two servers meet: its descriptor is in no message. The session in the hello says which
/// link it is of.
fn meet(
    fabric: &dyn Fabric,
    ends: Ends,
    key: MemoryKey,
    least: usize,
) -> Result<Box<dyn RemoteMemory>, FabricError> {
    let found = fabric.find(ends.peer, key)?;
    fabric.connect(ends.peer, found, least)
}
