//! How a process dies in the middle of what it does: after so many effects on the outside world.
//!
//! A server reaches its device, its windows and the fabric through wrappers that share one
//! [`CrashPoint`]. Each write, sync, one-sided write, new memory and renaming counts; when the count is
//! used up the process is dead at that very instant: nothing of what its code still does has an
//! effect, plain stores into windows included, and the run, which looks after every step, takes it
//! away. What was under way on the device is decided by the device's crash, what was under way on
//! the fabric by the fabric's.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Incarnation, ServerId};
use argosy_device::{Counters, Device, DeviceError, Io, MemoryDevice, OpKind, Ticket, Waker};
use argosy_fabric::{
    Connecting, Descriptor, Fabric, FabricError, MemoryKey, RemoteMemory, SimFabric, SimWorld,
    WriteCompletion,
};
use argosy_memory::{Bell, MemoryError, SharedMemory, WindowStore};

use crate::clock::SimClock;
use crate::windows::MachineWindows;
use crate::wire::Wire;

/// See the module documentation.
pub(crate) struct CrashPoint {
    server: ServerId,
    world: SimWorld,
    /// What it writes by plain stores.
    windows: MachineWindows,
    /// Effects that are left.
    left: AtomicU64,
    dead: AtomicBool,
    /// The fabric knows of it.
    started: AtomicBool,
    /// How many times more it gets no memory, and how many times it got none.
    refusals: AtomicU64,
    refused: AtomicU64,
}

impl CrashPoint {
    /// A process of `server` with these windows that does not die by itself.
    #[must_use]
    pub(crate) fn new(server: ServerId, world: SimWorld, windows: MachineWindows) -> Arc<Self> {
        Arc::new(Self {
            server,
            world,
            windows,
            left: AtomicU64::new(u64::MAX),
            dead: AtomicBool::new(false),
            started: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Lets it have `effects` more.
    pub(crate) fn die_after(&self, effects: u64) {
        self.left.store(effects, Ordering::Relaxed);
    }

    /// Has it get no shared memory the next `count` times.
    pub(crate) fn refuse_memory(&self, count: u64) {
        self.refusals.store(count, Ordering::Relaxed);
    }

    /// From now on it gets memory. Returns how many times it got none.
    pub(crate) fn end_refusals(&self) -> u64 {
        self.refusals.store(0, Ordering::Relaxed);
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// Whether it gets no memory this time.
    fn gets_no_memory(&self) -> bool {
        let left = self.refusals.load(Ordering::Relaxed);
        if left > 0 {
            self.refusals.store(left - 1, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Whether it has died.
    #[must_use]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub(crate) fn kill(&self) {
        if self.dead.swap(true, Ordering::Relaxed) {
            return;
        }
        self.windows.disown();
        if self.started.load(Ordering::Relaxed) {
            self.world.kill(self.server);
        }
    }

    /// Counts an effect. False where there is none: the process is dead.
    pub(crate) fn acts(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        match self.left.load(Ordering::Relaxed) {
            u64::MAX => true,
            0 => {
                self.kill();
                false
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                true
            }
        }
    }
}

fn dead() -> std::io::Error {
    std::io::Error::other("the process has died")
}

/// A device, as a process that may crash reaches it.
pub(crate) struct CrashingDevice {
    /// The device.
    pub inner: Arc<MemoryDevice>,
    /// Who reaches it.
    pub crash_point: Arc<CrashPoint>,
    /// What moves while somebody waits.
    pub clock: Arc<SimClock>,
    /// How long a read takes, and a wait.
    pub cost: Duration,
}

fn failed(op: OpKind, at: u64, len: usize) -> DeviceError {
    DeviceError::Io {
        op,
        at,
        len,
        source: Arc::new(dead()),
    }
}

impl Device for CrashingDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        if self.crash_point.is_dead() {
            return Err(failed(OpKind::Read, at, buffer.len()));
        }
        self.clock.advance(self.cost);
        self.inner.read(at, buffer)
    }

    fn submit(&self, io: Io) -> Ticket {
        if self.crash_point.acts() {
            return self.inner.submit(io);
        }
        let (at, len) = match &io {
            Io::Write { at, range, .. } => (*at, range.len()),
            Io::Sync => (0, 0),
        };
        Ticket::ended(Err(failed(io.kind(), at, len)))
    }

    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        self.clock.advance(self.cost);
        self.inner.wait(ticket)
    }

    fn discard(&self, segment: argosy_base::DeviceSegment) {
        if self.crash_point.acts() {
            self.inner.discard(segment);
        }
    }

    fn set_waker(&self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn failure(&self) -> Option<DeviceError> {
        self.inner.failure()
    }

    fn look_for_place(&self) {
        self.inner.look_for_place();
    }

    fn written_from(&self, at: u64) -> Option<(u64, u64)> {
        self.inner.written_from(at)
    }

    fn written_up_to(&self, range: Range<u64>) -> u64 {
        self.inner.written_up_to(range)
    }

    fn is_sparse(&self) -> bool {
        self.inner.is_sparse()
    }

    fn wants_room(&self) -> bool {
        self.inner.wants_room()
    }

    fn room_beneath(&self, used: u64, freed: u64) -> Option<u64> {
        self.inner.room_beneath(used, freed)
    }
}

/// Windows, as a process that may crash reaches them.
pub(crate) struct CrashingWindows {
    /// The windows.
    pub inner: Arc<dyn WindowStore>,
    /// Who reaches them.
    pub crash_point: Arc<CrashPoint>,
}

fn refused(what: &'static str) -> MemoryError {
    MemoryError::Refused {
        what,
        path: "a window".to_owned(),
        source: Arc::new(dead()),
    }
}

impl WindowStore for CrashingWindows {
    fn survivor_names(&self) -> Vec<u64> {
        self.inner.survivor_names()
    }

    fn survivors(&self, name: u64) -> Option<Arc<SharedMemory>> {
        self.inner.survivors(name)
    }

    fn create(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        if self.crash_point.gets_no_memory() {
            Err(MemoryError::Refused {
                what: "create",
                path: "a window".to_owned(),
                source: Arc::new(std::io::ErrorKind::StorageFull.into()),
            })
        } else if self.crash_point.acts() {
            self.inner.create(name, len)
        } else {
            Err(refused("create"))
        }
    }

    fn forget_survivors(&self, name: u64) -> Result<(), MemoryError> {
        if self.crash_point.acts() {
            self.inner.forget_survivors(name)
        } else {
            Err(refused("rename"))
        }
    }
}

/// The fabric, as a process that may crash reaches it.
pub(crate) struct CrashingFabric {
    /// The fabric.
    pub inner: Arc<SimFabric>,
    /// Who reaches it.
    pub crash_point: Arc<CrashPoint>,
    /// What it writes over.
    pub wire: Arc<Wire>,
}

impl CrashingFabric {
    /// Access for `crash_point`, whose process begins now.
    #[must_use]
    pub(crate) fn start(
        world: &SimWorld,
        incarnation: Incarnation,
        crash_point: Arc<CrashPoint>,
        wire: Arc<Wire>,
    ) -> Self {
        let inner = world.fabric(crash_point.server, incarnation);
        crash_point.started.store(true, Ordering::Relaxed);
        Self {
            inner,
            crash_point,
            wire,
        }
    }
}

impl Fabric for CrashingFabric {
    fn grant(
        &self,
        key: MemoryKey,
        memory: Arc<SharedMemory>,
        to: ServerId,
    ) -> Result<Descriptor, FabricError> {
        if self.crash_point.acts() {
            self.inner.grant(key, memory, to)
        } else {
            Err(FabricError::Broken)
        }
    }

    fn find(&self, peer: ServerId, key: MemoryKey) -> Result<Descriptor, FabricError> {
        self.inner.find(peer, key)
    }

    fn revoke(&self, key: MemoryKey) {
        if self.crash_point.acts() {
            self.inner.revoke(key);
        }
    }

    fn connect(&self, peer: ServerId, descriptor: Descriptor, least: usize) -> Box<dyn Connecting> {
        Box::new(CrashingConnecting {
            inner: self.inner.connect(peer, descriptor, least),
            key: descriptor.key,
            crash_point: Arc::clone(&self.crash_point),
            wire: Arc::clone(&self.wire),
        })
    }

    fn notify(&self, peer: ServerId) {
        self.inner.notify(peer);
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    fn park(&self, seen: Bell, timeout: std::time::Duration) {
        self.inner.park(seen, timeout);
    }
}

/// A connection of a process that may crash, while it is being made.
struct CrashingConnecting {
    inner: Box<dyn Connecting>,
    key: MemoryKey,
    crash_point: Arc<CrashPoint>,
    wire: Arc<Wire>,
}

impl Connecting for CrashingConnecting {
    fn poll(&mut self) -> Result<Option<Box<dyn RemoteMemory>>, FabricError> {
        let Some(inner) = self.inner.poll()? else {
            return Ok(None);
        };
        Ok(Some(Box::new(CrashingRemote {
            inner,
            key: self.key,
            crash_point: Arc::clone(&self.crash_point),
            wire: Arc::clone(&self.wire),
        })))
    }
}

/// A connection of a process that may crash.
struct CrashingRemote {
    inner: Box<dyn RemoteMemory>,
    key: MemoryKey,
    crash_point: Arc<CrashPoint>,
    wire: Arc<Wire>,
}

impl RemoteMemory for CrashingRemote {
    fn incarnation(&self) -> Incarnation {
        self.inner.incarnation()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn write(&mut self, offset: usize, bytes: &[u8], seq: u64) -> Result<(), FabricError> {
        if self.crash_point.acts() {
            let damaged = self.wire.damage(self.key, offset, bytes);
            let bytes = damaged.as_deref().unwrap_or(bytes);
            return self.inner.write(offset, bytes, seq);
        }
        Err(FabricError::Broken)
    }

    fn poll(&mut self) -> Option<WriteCompletion> {
        self.inner.poll()
    }
}
