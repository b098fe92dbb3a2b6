//! How a connection of a simulated world is made.
//!
//! 1. A *question* goes to the peer. It may be lost.
//! 2. The peer compares the descriptor with what it grants. Where that is one, it has its end of the connection from
//!    then on, and a revocation severs it. A peer whose process has ended refuses.
//! 3. The *answer* goes back, and rings the caller.
//! 4. The caller polls. A connection that has failed since is none.
//!
//! ```text
//! moving ────────▶ ended     the answer arrives
//! moving ◀──────▶ held      at a cut, or a peer that is stopped, and until that is undone
//! moving ────────▶ lost      the question is lost, or the peer has no power
//! held, lost ────▶ ended     the caller gives up
//! ```
//!
//! Invariant: what is lost or held is given up in the end, so that each handshake ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use argosy_base::{Incarnation, ServerId};

use super::world::{AtCut, Connection, ConnectionId, Event, World};
use crate::{Descriptor, FabricError};

/// What the caller learns of memory that it has connected to.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) incarnation: Incarnation,
    pub(super) len: usize,
}

/// What makes a connection.
#[derive(Clone, Debug)]
pub(super) enum Leg {
    /// The question reaches the peer.
    Question,
    /// The answer reaches the caller.
    Answer(Result<Opened, FabricError>),
    /// The caller gives up, if nothing moves.
    GiveUp,
}

/// Where the question, or the answer, is.
#[derive(Debug)]
enum Way {
    /// On its way.
    Moving,
    /// At a cut, or at a peer that is stopped.
    Held(Leg),
    /// Nowhere.
    Lost,
    /// The caller has the answer.
    Ended(Result<Opened, FabricError>),
}

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) from: ServerId,
    pub(super) to: ServerId,
    descriptor: Descriptor,
    /// Bytes that the caller needs.
    least: usize,
    way: Way,
    /// Whether the caller is about to give up.
    wearing: bool,
}

// --- As the caller sees it ---

impl World {
    /// Begins to connect `from` to memory of `to`.
    pub(super) fn connect(
        &mut self,
        from: ServerId,
        to: ServerId,
        descriptor: Descriptor,
        least: usize,
    ) -> ConnectionId {
        self.counters.connections.begun += 1;
        let id = ConnectionId(self.enter());
        let handshake = Handshake {
            from,
            to,
            descriptor,
            least,
            way: Way::Moving,
            wearing: false,
        };
        self.handshakes.insert(id, handshake);
        if self.random.percent(self.settings.lost_percent) {
            self.stay(id, Way::Lost);
        } else {
            self.send(id, Leg::Question);
        }
        id
    }

    /// What has come of it; `None` before its end.
    pub(super) fn poll_connect(&mut self, id: ConnectionId) -> Result<Option<Opened>, FabricError> {
        let Some(handshake) = self.handshakes.get(&id) else {
            return Err(FabricError::Broken);
        };
        let Way::Ended(result) = &handshake.way else {
            return Ok(None);
        };
        let opened = result.clone();
        self.handshakes.remove(&id);
        let opened = opened?;
        let failed = self.connections.get(&id).map(|made| made.failed.clone());
        match failed.unwrap_or(Some(FabricError::Broken)) {
            None => Ok(Some(opened)),
            Some(error) => {
                self.close(id);
                Err(error)
            }
        }
    }

    /// The caller wants it no more.
    pub(super) fn drop_connect(&mut self, id: ConnectionId) {
        if self.handshakes.remove(&id).is_some() {
            self.counters.connections.dropped += 1;
            self.close(id);
        }
    }
}

// --- On the way ---

impl World {
    pub(super) fn happen_connect(&mut self, id: ConnectionId, leg: Leg) {
        let Some(handshake) = self.handshakes.get(&id) else {
            return;
        };
        let (from, to) = (handshake.from, handshake.to);
        match leg {
            Leg::GiveUp => self.give_up(id),
            Leg::Question if self.is_cut(from, to) || self.does_nothing(to) => {
                self.counters.held += 1;
                self.stay(id, Way::Held(leg));
            }
            Leg::Question => self.ask(id),
            Leg::Answer(_) if self.is_cut(to, from) => {
                self.counters.held += 1;
                self.stay(id, Way::Held(leg));
            }
            Leg::Answer(result) => self.end_handshake(id, result),
        }
    }

    /// Sends on its way what is held of those.
    pub(super) fn release(&mut self, is: impl Fn(&Handshake) -> bool) {
        let matching = self
            .handshakes
            .iter_mut()
            .filter(|(_, handshake)| is(handshake));
        let mut released = Vec::new();
        for (id, handshake) in matching {
            match std::mem::replace(&mut handshake.way, Way::Moving) {
                Way::Held(leg) => released.push((*id, leg)),
                other => handshake.way = other,
            }
        }
        for (id, leg) in released {
            self.schedule(self.now, Event::Connect(id, leg));
        }
    }

    fn send(&mut self, id: ConnectionId, leg: Leg) {
        let due = self.now + self.delay();
        self.schedule(due, Event::Connect(id, leg));
    }

    fn does_nothing(&self, server: ServerId) -> bool {
        self.servers
            .get(&server)
            .is_some_and(|server| server.stopped)
    }

    /// Nothing moves on by itself any more: the caller will give up.
    fn stay(&mut self, id: ConnectionId, way: Way) {
        let handshake = self.handshake(id);
        handshake.way = way;
        if !std::mem::replace(&mut handshake.wearing, true) {
            let due = self.now + self.random.span(self.settings.break_max);
            self.schedule(due, Event::Connect(id, Leg::GiveUp));
        }
    }

    fn give_up(&mut self, id: ConnectionId) {
        let handshake = self.handshake(id);
        handshake.wearing = false;
        if matches!(handshake.way, Way::Held(_) | Way::Lost) {
            self.counters.connections.unheard += 1;
            self.close(id);
            self.end_handshake(id, Err(FabricError::Broken));
        }
    }

    /// The question has reached the peer.
    fn ask(&mut self, id: ConnectionId) {
        let handshake = &self.handshakes[&id];
        let peer = self.servers.get(&handshake.to);
        if peer.is_some_and(|peer| !peer.powered) {
            return self.stay(id, Way::Lost);
        }
        let result = match peer {
            Some(peer) if !peer.running => Err(FabricError::Broken),
            _ => self.accept(id),
        };
        self.counters.connections.refused += u64::from(result.is_err());
        self.send(id, Leg::Answer(result));
    }

    /// The peer compares, and makes its end of the connection.
    fn accept(&mut self, id: ConnectionId) -> Result<Opened, FabricError> {
        let Handshake {
            from,
            to,
            descriptor: Descriptor { key, grant },
            least,
            ..
        } = self.handshakes[&id];
        let peer = self.servers.get(&to);
        let memory = peer.and_then(|peer| peer.granted.get(&key));
        let memory =
            memory.filter(|memory| memory.grantee() == Some(from) && memory.access() == grant);
        let memory = Arc::clone(memory.ok_or(FabricError::Revoked)?);
        let len = memory.len();
        if len < least {
            let peer = to;
            return Err(FabricError::TooShort {
                peer,
                key,
                len,
                least,
            });
        }
        let opened = Opened {
            incarnation: memory.incarnation(),
            len,
        };
        let connection = Connection {
            from,
            to,
            access: memory.access(),
            memory,
            writes: BTreeMap::new(),
            ended: VecDeque::new(),
            last_seq: None,
            last_landing: self.now,
            severed: false,
            failed: None,
            closed: false,
            at_cut: AtCut::default(),
        };
        self.connections.insert(id, connection);
        Ok(opened)
    }

    /// The caller has the answer, and is woken.
    fn end_handshake(&mut self, id: ConnectionId, result: Result<Opened, FabricError>) {
        let handshake = self.handshake(id);
        handshake.way = Way::Ended(result);
        let caller = handshake.from;
        self.happen_ring(caller, caller);
    }

    fn handshake(&mut self, id: ConnectionId) -> &mut Handshake {
        self.handshakes
            .get_mut(&id)
            .expect("one that is being made")
    }
}
