//! The state of a simulated world: servers, connections, and what is due when. What
//! then happens is in [`super::happen`], and how connections are made in [`super::connect`].
//!
//! A write becomes one event *land* for each of its pieces and, once the last has landed, one
//! event *acknowledge*. A refusal travels back as an event *fail*. Each goes along a link between
//! two servers; on a cut link it is held, and begins to wear the connection out (event *snap*).
//!
//! Invariants: a connection that is `severed` lets nothing land; one that has `failed` has no
//! write in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Grant, Incarnation, Instant, ServerId};
use argosy_memory::SharedMemory;

use super::connect::{Handshake, Leg};
use super::random::Random;
use super::{SimCounters, SimSettings};
use crate::{Descriptor, FabricError, MemoryKey, WriteCompletion};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionId(pub(super) u64);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) incarnation: Incarnation,
    pub(super) running: bool,
    pub(super) stopped: bool,
    pub(super) powered: bool,
    pub(super) rings: u32,
    pub(super) granted: BTreeMap<MemoryKey, Arc<SharedMemory>>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) from: ServerId,
    pub(super) to: ServerId,
    pub(super) memory: Arc<SharedMemory>,
    /// The grant under which it writes.
    pub(super) access: u64,
    /// Writes that have not ended, by sequence number.
    pub(super) writes: BTreeMap<u64, Write>,
    pub(super) ended: VecDeque<WriteCompletion>,
    pub(super) last_seq: Option<u64>,
    /// When the last piece of all that are on their way is to land.
    pub(super) last_landing: Instant,
    /// Nothing lands any more; the writer may not know yet.
    pub(super) severed: bool,
    /// Why no more writes are taken: the writer knows.
    pub(super) failed: Option<FabricError>,
    /// The writer is gone.
    pub(super) closed: bool,
    pub(super) at_cut: AtCut,
}

/// What a cut of its link does to a connection.
#[derive(Debug, Default)]
pub(super) struct AtCut {
    /// What met the cut, in order.
    pub(super) held: Vec<Event>,
    /// Whether a `snap` is due.
    pub(super) wearing: bool,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) pieces_left: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Bytes `part` of a write reach the target's memory.
    Land(ConnectionId, u64, Range<usize>),
    /// The writer learns that a write is in the target's memory.
    Acknowledge(ConnectionId, u64),
    /// The writer learns that the target refuses it.
    Fail(ConnectionId, FabricError),
    /// The writer gives a silent connection up.
    Snap(ConnectionId),
    /// The last piece of a closed connection has landed.
    Forget(ConnectionId),
    /// A notification arrives.
    Ring(ServerId, ServerId),
    /// What makes a connection goes on.
    Connect(ConnectionId, Leg),
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) settings: SimSettings,
    pub(super) random: Random,
    pub(super) now: Instant,
    pub(super) servers: BTreeMap<ServerId, Server>,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    /// Those that are being made. The peer may have its end already.
    pub(super) handshakes: BTreeMap<ConnectionId, Handshake>,
    /// What is due, by moment and then in order of entry.
    pub(super) events: BTreeMap<(Instant, u64), Event>,
    pub(super) entered: u64,
    /// The number of the last grant.
    pub(super) grants: u64,
    pub(super) cuts: BTreeSet<(ServerId, ServerId)>,
    pub(super) counters: SimCounters,
}

// --- Servers ---

impl World {
    pub(super) fn new(seed: u64, settings: SimSettings) -> Self {
        Self {
            settings,
            random: Random::new(seed),
            now: Instant::default(),
            servers: BTreeMap::new(),
            connections: BTreeMap::new(),
            handshakes: BTreeMap::new(),
            events: BTreeMap::new(),
            entered: 0,
            grants: 0,
            cuts: BTreeSet::new(),
            counters: SimCounters::default(),
        }
    }

    pub(super) fn start(&mut self, server: ServerId, incarnation: Incarnation) {
        if let Some(before) = self.servers.get(&server) {
            assert!(before.incarnation < incarnation, "incarnations rise");
            self.kill(server);
            for key in self.keys_of(server) {
                self.revoke(server, key);
            }
        }
        let rings = self.servers.get(&server).map_or(0, |before| before.rings);
        let fresh = Server {
            incarnation,
            running: true,
            stopped: false,
            powered: true,
            rings,
            granted: BTreeMap::new(),
        };
        self.servers.insert(server, fresh);
    }

    pub(super) fn forget_incarnation(&mut self, server: ServerId) {
        self.server(server).incarnation = Incarnation(0);
    }

    pub(super) fn is_running(&self, server: ServerId, incarnation: Incarnation) -> bool {
        let server = &self.servers[&server];
        server.running && server.incarnation == incarnation
    }

    pub(super) fn kill(&mut self, server: ServerId) {
        self.server(server).running = false;
        self.server(server).stopped = false;
        let own = |connection: &Connection| connection.from == server;
        for id in self.connections_where(own) {
            self.end(id, self.settings.linger_max);
        }
        self.handshakes
            .retain(|_, handshake| handshake.from != server);
    }

    pub(super) fn cut_power(&mut self, server: ServerId) {
        self.kill(server);
        self.server(server).powered = false;
        let to_it = |connection: &Connection| connection.to == server;
        for id in self.connections_where(to_it) {
            self.connection(id).severed = true;
            self.wear(id);
        }
        for memory in std::mem::take(&mut self.server(server).granted).into_values() {
            memory.revoke();
            memory.fill_zero(0..memory.len());
        }
    }

    pub(super) fn set_stopped(&mut self, server: ServerId, stopped: bool) {
        self.server(server).stopped = stopped;
        if !stopped {
            self.release(|handshake| handshake.to == server);
        }
    }

    pub(super) fn is_stopped(&self, server: ServerId) -> bool {
        self.servers[&server].stopped
    }

    pub(super) fn rings(&self, server: ServerId) -> u32 {
        self.servers[&server].rings
    }

    pub(super) fn grant(
        &mut self,
        server: ServerId,
        key: MemoryKey,
        memory: Arc<SharedMemory>,
        to: ServerId,
    ) -> Descriptor {
        self.revoke(server, key);
        self.grants += 1;
        let number = self.grants;
        let owner = self.server(server);
        let by = owner.incarnation;
        memory.grant(Grant { number, to, by });
        owner.granted.insert(key, memory);
        Descriptor { key, grant: number }
    }

    pub(super) fn revoke(&mut self, server: ServerId, key: MemoryKey) {
        let Some(memory) = self.server(server).granted.remove(&key) else {
            return;
        };
        memory.revoke();
        let into = |connection: &Connection| Arc::ptr_eq(&connection.memory, &memory);
        for id in self.connections_where(into) {
            self.sever(id);
        }
    }

    fn keys_of(&self, server: ServerId) -> Vec<MemoryKey> {
        self.servers[&server].granted.keys().copied().collect()
    }

    fn server(&mut self, server: ServerId) -> &mut Server {
        self.servers
            .get_mut(&server)
            .expect("a server that was started")
    }
}

// --- Connections, as their writers see them ---

impl World {
    pub(super) fn find(
        &self,
        from: ServerId,
        to: ServerId,
        key: MemoryKey,
    ) -> Result<Descriptor, FabricError> {
        let memory = self.granted(from, to, key)?;
        let grant = memory.map(|memory| memory.access());
        let grant = grant.ok_or(FabricError::NotThere { peer: to, key })?;
        Ok(Descriptor { key, grant })
    }

    /// What `to` grants `from` under `key`, if anything.
    fn granted(
        &self,
        from: ServerId,
        to: ServerId,
        key: MemoryKey,
    ) -> Result<Option<&Arc<SharedMemory>>, FabricError> {
        if self.is_cut(from, to) || self.is_cut(to, from) {
            return Err(FabricError::Broken);
        }
        let Some(peer) = self.servers.get(&to) else {
            return Ok(None);
        };
        if !peer.powered {
            return Err(FabricError::Broken);
        }
        let memory = peer.granted.get(&key);
        Ok(memory.filter(|memory| memory.grantee() == Some(from)))
    }

    pub(super) fn write(
        &mut self,
        id: ConnectionId,
        offset: usize,
        bytes: &[u8],
        seq: u64,
    ) -> Result<(), FabricError> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Err(FabricError::Broken);
        };
        assert!(
            connection.last_seq.is_none_or(|last| last < seq),
            "seq rises"
        );
        if connection.closed {
            return Err(FabricError::Broken);
        }
        if let Some(error) = &connection.failed {
            return Err(error.clone());
        }
        if connection.writes.len() + connection.ended.len() >= self.settings.in_flight_max {
            self.counters.refused += 1;
            return Err(FabricError::Full);
        }
        connection.last_seq = Some(seq);
        self.counters.writes += 1;
        self.counters.bytes += bytes.len() as u64;
        self.launch(id, offset, bytes, seq);
        Ok(())
    }

    pub(super) fn poll(&mut self, id: ConnectionId) -> Option<WriteCompletion> {
        self.connections.get_mut(&id)?.ended.pop_front()
    }

    /// The writer is gone: what it has begun lands in part, and nobody hears of it.
    pub(super) fn close(&mut self, id: ConnectionId) {
        self.end(id, Duration::ZERO);
    }

    /// The same, where bytes that are on their way take up to so much longer.
    fn end(&mut self, id: ConnectionId, linger_max: Duration) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut connection.closed, true) {
            return;
        }
        connection.ended.clear();
        self.counters.lost += connection.at_cut.held.len() as u64;
        connection.at_cut.held.clear();
        let of_it = |event: &Event| event.connection() == Some(id);
        let due: Vec<_> = self
            .events
            .iter()
            .filter(|(_, event)| of_it(event))
            .map(|(key, event)| (*key, matches!(event, Event::Land(..))))
            .collect();
        // All later by the same span, so that what overlaps keeps its order.
        let linger = match linger_max {
            Duration::ZERO => Duration::ZERO,
            most => self.random.span(most),
        };
        let mut last = self.now;
        for (key, lands) in due {
            let event = self.events.remove(&key).expect("it was found there");
            if lands && self.random.percent(50) {
                let due = (key.0 + linger, key.1);
                self.events.insert(due, event);
                last = last.max(due.0);
            } else {
                self.counters.lost += u64::from(lands);
            }
        }
        self.schedule(last, Event::Forget(id));
    }

    /// Puts a write on its way: whole, or in pieces.
    fn launch(&mut self, id: ConnectionId, offset: usize, bytes: &[u8], seq: u64) {
        let pieces = self.pieces(offset, bytes.len());
        self.counters.torn += u64::from(pieces.len() > 1);
        let range = offset..offset + bytes.len();
        let connection = self.connection(id);
        let overlaps = connection.writes.values().any(|write| {
            let other = write.offset..write.offset + write.bytes.len();
            other.start < range.end && range.start < other.end
        });
        let not_before = if overlaps {
            connection.last_landing
        } else {
            Instant::default()
        };
        let write = Write {
            offset,
            bytes: bytes.to_vec(),
            pieces_left: pieces.len(),
        };
        connection.writes.insert(seq, write);
        for piece in pieces {
            let due = (self.now + self.delay()).max(not_before);
            let connection = self.connection(id);
            connection.last_landing = connection.last_landing.max(due);
            self.schedule(due, Event::Land(id, seq, piece));
        }
    }

    /// How a write of `len` bytes at `offset` is cut, as ranges of its bytes: at aligned words.
    fn pieces(&mut self, offset: usize, len: usize) -> Vec<Range<usize>> {
        let first_word = offset.next_multiple_of(8) - offset;
        let words = len.saturating_sub(first_word).div_ceil(8);
        let torn = words > 1 || (words == 1 && first_word > 0);
        let mut cuts = BTreeSet::from([0, len]);
        if torn && self.random.percent(self.settings.torn_percent) {
            let most = u64::from(self.settings.pieces_max.max(2)) - 1;
            for _ in 0..=self.random.below(most) {
                let word = self.random.below(words as u64);
                let word = usize::try_from(word).expect("below a usize");
                cuts.insert(first_word + word * 8);
            }
        }
        let cuts: Vec<usize> = cuts.into_iter().collect();
        if len == 0 {
            return std::iter::once(0..0).collect();
        }
        cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }
}

// --- Links and time ---

impl World {
    pub(super) fn cut(&mut self, from: ServerId, to: ServerId) {
        self.cuts.insert((from, to));
    }

    pub(super) fn heal(&mut self, from: ServerId, to: ServerId) {
        self.cuts.remove(&(from, to));
        let on_it = |c: &Connection| (c.from, c.to) == (from, to) || (c.to, c.from) == (from, to);
        for id in self.connections_where(on_it) {
            // Due at once, and so ahead of all that was written later.
            for event in std::mem::take(&mut self.connection(id).at_cut.held) {
                self.schedule(self.now, event);
            }
        }
        self.release(|h| (h.from, h.to) == (from, to) || (h.to, h.from) == (from, to));
    }

    pub(super) fn all_cuts(&self) -> Vec<(ServerId, ServerId)> {
        self.cuts.iter().copied().collect()
    }

    pub(super) fn ring(&mut self, from: ServerId, to: ServerId) {
        self.counters.rings.sent += 1;
        if from == to {
            self.happen_ring(from, to);
        } else {
            let between = |c: &&Connection| (c.from, c.to) == (from, to) && !c.closed;
            let landings = self.connections.values().filter(between);
            let landed = landings.map(|c| c.last_landing).max();
            let due = (self.now + self.delay()).max(landed.unwrap_or_default());
            self.schedule(due, Event::Ring(from, to));
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn next_event(&self) -> Option<Instant> {
        self.events.keys().next().map(|(due, _)| *due)
    }

    pub(super) fn step(&mut self, now: Instant) -> usize {
        assert!(self.now <= now, "time does not go backwards");
        let mut happened = 0;
        while let Some(first) = self.events.first_entry() {
            let (due, _) = *first.key();
            if due > now {
                break;
            }
            let event = first.remove();
            self.now = self.now.max(due);
            self.happen(event);
            happened += 1;
        }
        self.now = now;
        happened
    }

    pub(super) fn counters(&self) -> SimCounters {
        self.counters
    }

    pub(super) fn is_cut(&self, from: ServerId, to: ServerId) -> bool {
        self.cuts.contains(&(from, to))
    }

    pub(super) fn delay(&mut self) -> Duration {
        if self.random.percent(self.settings.late_percent) {
            self.counters.late += 1;
            self.random.span(self.settings.late_max)
        } else {
            self.random.span(self.settings.delay_max)
        }
    }

    pub(super) fn enter(&mut self) -> u64 {
        self.entered += 1;
        self.entered
    }

    pub(super) fn schedule(&mut self, due: Instant, event: Event) {
        let order = self.enter();
        self.events.insert((due, order), event);
    }

    pub(super) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.get_mut(&id).expect("an open connection")
    }

    fn connections_where(&self, is: impl Fn(&Connection) -> bool) -> Vec<ConnectionId> {
        let matching = self.connections.iter().filter(|(_, c)| is(c));
        matching.map(|(id, _)| *id).collect()
    }
}
