//! A fabric between servers that live in one thread, driven by a seed and a clock of the caller's.
//!
//! 1. [`SimWorld::fabric`] starts a server, or starts it again under a higher incarnation, which
//!    revokes all that it granted before.
//! 2. What servers write is queued. It lands, is acknowledged or fails only in
//!    [`SimWorld::step`], at moments that the seed chose; [`SimWorld::next_event`] says when there
//!    is something to do. Equal seeds and equal calls give equal worlds.
//! 3. In between, the caller does harm: [`cut`](SimWorld::cut), [`heal`](SimWorld::heal),
//!    [`stop`](SimWorld::stop), [`kill`](SimWorld::kill), [`cut_power`](SimWorld::cut_power).
//! 4. [`SimWorld::counters`] says how much of that was met by a write.
//!
//! What it does to writes is as bad as the contract allows, and no worse:
//!
//! - Writes land in any order. Some land torn: in pieces, at different times, in any order, cut at
//!   aligned words. Only writes of one connection that overlap keep their order.
//! - Completions come later than the bytes, in any order.
//! - On a cut link nothing moves. Where it lasts, the connection breaks: what had not landed never
//!   will, and what had landed unacknowledged is reported as failed all the same.
//! - Memory of a server that was stopped or killed takes writes like any other.
//! - To connect takes a question and an answer, which are on their way as long as writes. A cut holds them as it does
//!   writes, and so does a peer that is stopped; some questions are lost. Where that lasts, the caller gives up. A
//!   server that was killed takes no connection more; one whose power was cut does not even say so.
//! - When a server is killed, what it had begun to write lands in part, perhaps long after.
//! - Revoking is exact: nothing lands afterwards. A write that had landed whole before may still
//!   be reported as successful; the owner's copy has it.

mod connect;
mod happen;
mod random;
mod world;

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Incarnation, Instant, ServerId};
use argosy_memory::{Bell, SharedMemory};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    Connecting, Descriptor, Fabric, FabricError, MemoryKey, RemoteMemory, WriteCompletion,
};
use world::{ConnectionId, World};

/// How bad the world is.
#[derive(Clone, Debug)]
pub struct SimSettings {
    /// Longest usual time that bytes, or an acknowledgement, take.
    pub delay_max: Duration,
    /// How many of 100 take up to `late_max` instead.
    pub late_percent: u32,
    /// Longest time that bytes, or an acknowledgement, take.
    pub late_max: Duration,
    /// How many of 100 writes that are more than a word land in pieces.
    pub torn_percent: u32,
    /// Most pieces of a write.
    pub pieces_max: u32,
    /// Most writes of a connection that have not been polled; one more is refused.
    pub in_flight_max: usize,
    /// How many of 100 questions for a connection are lost; usually only a cut keeps them away.
    pub lost_percent: u32,
    /// Longest time for which a connection, or one that is being made, bears a cut.
    pub break_max: Duration,
    /// How much longer, at most, bytes are on their way once the process that wrote them has ended; zero: no
    /// longer.
    pub linger_max: Duration,
}

impl Default for SimSettings {
    fn default() -> Self {
        Self {
            delay_max: Duration::from_micros(50),
            late_percent: 3,
            late_max: Duration::from_millis(5),
            torn_percent: 30,
            pieces_max: 6,
            in_flight_max: 256,
            lost_percent: 0,
            break_max: Duration::from_millis(200),
            linger_max: Duration::ZERO,
        }
    }
}

/// What has happened so far. A run that is to show something shows that these are not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Writes begun.
    pub writes: u64,
    /// Bytes of writes begun.
    pub bytes: u64,
    /// Writes that landed in pieces.
    pub torn: u64,
    /// Bytes or acknowledgements that took longer than usual.
    pub late: u64,
    /// Pieces that landed before one of an earlier write of their connection.
    pub overtaken: u64,
    /// Pieces and acknowledgements that met a cut.
    pub held: u64,
    /// Writes that ended as failed since the memory had been revoked.
    pub revoked: u64,
    /// Writes that landed whole, yet were reported as failed.
    pub landed_failed: u64,
    /// Pieces lost since their writer was killed or closed the connection.
    pub lost: u64,
    /// Writes refused since too many were in flight.
    pub refused: u64,
    /// Connections.
    pub connections: ConnectionCounters,
    /// Notifications.
    pub rings: RingCounters,
}

/// What became of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Those that were begun.
    pub begun: u64,
    /// Those that were refused by the peer.
    pub refused: u64,
    /// Those that were given up since nothing was heard.
    pub unheard: u64,
    /// Those that were dropped before their end.
    pub dropped: u64,
    /// Those that were made, and broke, at a cut or for want of power.
    pub broken: u64,
}

/// What became of notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// All of them.
    pub sent: u64,
    /// Those that met a cut.
    pub lost: u64,
}

impl SimCounters {
    /// Every counter with its name, in a fixed order.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 17] {
        [
            ("writes", self.writes),
            ("bytes", self.bytes),
            ("torn", self.torn),
            ("late", self.late),
            ("overtaken", self.overtaken),
            ("held", self.held),
            ("revoked", self.revoked),
            ("landed_failed", self.landed_failed),
            ("lost", self.lost),
            ("refused", self.refused),
            ("connections", self.connections.begun),
            ("connections_refused", self.connections.refused),
            ("connections_unheard", self.connections.unheard),
            ("connections_dropped", self.connections.dropped),
            ("broken", self.connections.broken),
            ("rings", self.rings.sent),
            ("rings_lost", self.rings.lost),
        ]
    }
}

/// See the module documentation. Cheap to clone: all clones are one world.
#[derive(Clone)]
pub struct SimWorld {
    world: Arc<Mutex<World>>,
}

impl SimWorld {
    /// A world of the usual badness.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_settings(seed, SimSettings::default())
    }

    /// A world as bad as `settings` say.
    #[must_use]
    pub fn with_settings(seed: u64, settings: SimSettings) -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new(seed, settings))),
        }
    }

    /// Starts `server`, and ends whatever earlier start of it there was: see [`kill`](Self::kill).
    /// All that it granted is revoked.
    ///
    /// # Panics
    /// When `incarnation` is not higher than at its last start, unless that was
    /// [forgotten](Self::forget_incarnation).
    #[must_use]
    pub fn fabric(&self, server: ServerId, incarnation: Incarnation) -> Arc<SimFabric> {
        self.lock().start(server, incarnation);
        Arc::new(SimFabric {
            world: self.clone(),
            server,
            incarnation,
        })
    }

    /// Lets `server` start at any incarnation the next time, as one that begins with another device.
    pub fn forget_incarnation(&self, server: ServerId) {
        self.lock().forget_incarnation(server);
    }

    /// Lets everything happen that is due at `now`. Returns how much that was.
    ///
    /// # Panics
    /// When `now` is before an earlier `now`.
    pub fn step(&self, now: Instant) -> usize {
        self.lock().step(now)
    }

    /// When something is due next, if anything is.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.lock().next_event()
    }

    /// The latest `now`.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now()
    }

    /// Steps until nothing is due any more, and returns when that was.
    pub fn settle(&self) -> Instant {
        let mut world = self.lock();
        while let Some(due) = world.next_event() {
            world.step(due);
        }
        world.now()
    }

    /// From now on nothing gets from `from` to `to`: no bytes, no acknowledgements, no rings.
    pub fn cut(&self, from: ServerId, to: ServerId) {
        self.lock().cut(from, to);
    }

    /// Undoes a [`cut`](Self::cut); what was held goes on its way, unless its connection broke.
    pub fn heal(&self, from: ServerId, to: ServerId) {
        self.lock().heal(from, to);
    }

    /// Undoes every cut.
    pub fn heal_all(&self) {
        let mut world = self.lock();
        for (from, to) in world.all_cuts() {
            world.heal(from, to);
        }
    }

    /// `server` does nothing from now on. Its memory takes writes, and what it wrote still lands.
    /// Not to step it is up to the caller, who may ask [`is_stopped`](Self::is_stopped).
    pub fn stop(&self, server: ServerId) {
        self.lock().set_stopped(server, true);
    }

    /// Undoes a [`stop`](Self::stop).
    pub fn resume(&self, server: ServerId) {
        self.lock().set_stopped(server, false);
    }

    /// Whether `server` is stopped.
    #[must_use]
    pub fn is_stopped(&self, server: ServerId) -> bool {
        self.lock().is_stopped(server)
    }

    /// The process of `server` ends at this instant. What it was writing lands in part. What it
    /// granted takes writes until it starts again.
    pub fn kill(&self, server: ServerId) {
        self.lock().kill(server);
    }

    /// Like [`kill`](Self::kill), but the memory that it granted is gone too: it is revoked and
    /// zeroed, and connections to it break after a while.
    pub fn cut_power(&self, server: ServerId) {
        self.lock().cut_power(server);
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.lock().counters()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        // After a panic the test has failed anyway; let it report the first one.
        self.world.lock()
    }
}

/// One server's access to a [`SimWorld`]. After the server was killed or started again, what was
/// left of it gets [`FabricError::Broken`].
pub struct SimFabric {
    world: SimWorld,
    server: ServerId,
    incarnation: Incarnation,
}

impl SimFabric {
    /// The world with this server in it, if it is the server's last start, and runs.
    fn alive(&self) -> Result<MutexGuard<'_, World>, FabricError> {
        let world = self.world.lock();
        if world.is_running(self.server, self.incarnation) {
            Ok(world)
        } else {
            Err(FabricError::Broken)
        }
    }
}

impl Fabric for SimFabric {
    fn grant(
        &self,
        key: MemoryKey,
        memory: Arc<SharedMemory>,
        to: ServerId,
    ) -> Result<Descriptor, FabricError> {
        Ok(self.alive()?.grant(self.server, key, memory, to))
    }

    fn revoke(&self, key: MemoryKey) {
        if let Ok(mut world) = self.alive() {
            world.revoke(self.server, key);
        }
    }

    fn find(&self, peer: ServerId, key: MemoryKey) -> Result<Descriptor, FabricError> {
        self.alive()?.find(self.server, peer, key)
    }

    fn connect(&self, peer: ServerId, descriptor: Descriptor, least: usize) -> Box<dyn Connecting> {
        let begun = self.alive();
        let begun = begun.map(|mut world| world.connect(self.server, peer, descriptor, least));
        Box::new(SimConnecting {
            world: self.world.clone(),
            // That of a process that has ended has ended, too.
            id: begun.ok(),
        })
    }

    fn notify(&self, peer: ServerId) {
        if let Ok(mut world) = self.alive() {
            world.ring(self.server, peer);
        }
    }

    fn bell(&self) -> Bell {
        Bell(self.world.lock().rings(self.server))
    }

    /// Returns at once: there is no other thread that could ring.
    fn park(&self, _seen: Bell, _timeout: Duration) {}
}

/// A connection in a [`SimWorld`] that is being made.
struct SimConnecting {
    world: SimWorld,
    /// `None` once it has ended.
    id: Option<ConnectionId>,
}

impl Connecting for SimConnecting {
    fn poll(&mut self) -> Result<Option<Box<dyn RemoteMemory>>, FabricError> {
        let id = self.id.take().ok_or(FabricError::Broken)?;
        let Some(opened) = self.world.lock().poll_connect(id)? else {
            self.id = Some(id);
            return Ok(None);
        };
        Ok(Some(Box::new(SimRemote {
            world: self.world.clone(),
            id,
            incarnation: opened.incarnation,
            len: opened.len,
        })))
    }
}

impl Drop for SimConnecting {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.world.lock().drop_connect(id);
        }
    }
}

/// A connection in a [`SimWorld`].
struct SimRemote {
    world: SimWorld,
    id: ConnectionId,
    incarnation: Incarnation,
    len: usize,
}

impl RemoteMemory for SimRemote {
    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn len(&self) -> usize {
        self.len
    }

    fn write(&mut self, offset: usize, bytes: &[u8], seq: u64) -> Result<(), FabricError> {
        let inside = offset <= self.len && bytes.len() <= self.len - offset;
        assert!(inside, "bytes {offset}+{} of {}", bytes.len(), self.len);
        self.world.lock().write(self.id, offset, bytes, seq)
    }

    fn poll(&mut self) -> Option<WriteCompletion> {
        self.world.lock().poll(self.id)
    }
}

impl Drop for SimRemote {
    fn drop(&mut self) {
        self.world.lock().close(self.id);
    }
}

#[cfg(test)]
mod tests;
