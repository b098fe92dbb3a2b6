//! A fabric for tests that flips a bit in segments on their way, in as many as the test asks for.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Incarnation, ServerId};
use argosy_fabric::{
    Connecting, Descriptor, Fabric, FabricError, MemoryKey, RemoteMemory, WriteCompletion,
};
use argosy_memory::{Bell, SharedMemory};

use super::keys;

std::thread_local! {
    static TO_DAMAGE: Cell<usize> = const { Cell::new(0) };
}

/// The fabric beneath, with the bits that flip.
struct BadWire(Arc<dyn Fabric>);

/// Has a bit flip in each of the next `segments` that are shipped by servers of this thread.
pub(super) fn damage(segments: usize) {
    TO_DAMAGE.set(segments);
}

/// How many of them have yet to be shipped.
pub(super) fn to_damage() -> usize {
    TO_DAMAGE.get()
}

/// A fabric on which bits flip when a test asks for it.
pub(super) fn over_bad_wire(fabric: Arc<dyn Fabric>) -> Arc<dyn Fabric> {
    Arc::new(BadWire(fabric))
}

impl Fabric for BadWire {
    fn grant(
        &self,
        key: MemoryKey,
        memory: Arc<SharedMemory>,
        to: ServerId,
    ) -> Result<Descriptor, FabricError> {
        self.0.grant(key, memory, to)
    }

    fn find(&self, peer: ServerId, key: MemoryKey) -> Result<Descriptor, FabricError> {
        self.0.find(peer, key)
    }

    fn revoke(&self, key: MemoryKey) {
        self.0.revoke(key);
    }

    fn connect(&self, peer: ServerId, descriptor: Descriptor, least: usize) -> Box<dyn Connecting> {
        let inner = self.0.connect(peer, descriptor, least);
        // Landing slots are checked from their first byte on.
        let lands = keys::checked_from(descriptor.key) == Some(0);
        Box::new(BadConnecting { inner, lands })
    }

    fn notify(&self, peer: ServerId) {
        self.0.notify(peer);
    }

    fn bell(&self) -> Bell {
        self.0.bell()
    }

    fn park(&self, seen: Bell, timeout: Duration) {
        self.0.park(seen, timeout);
    }
}

/// A connection over it that is being made.
struct BadConnecting {
    inner: Box<dyn Connecting>,
    lands: bool,
}

impl Connecting for BadConnecting {
    fn poll(&mut self) -> Result<Option<Box<dyn RemoteMemory>>, FabricError> {
        let lands = self.lands;
        let made = self.inner.poll()?;
        Ok(made.map(|inner| Box::new(BadRemote { inner, lands }) as _))
    }
}

/// A connection over it.
struct BadRemote {
    inner: Box<dyn RemoteMemory>,
    /// What is written are segments.
    lands: bool,
}

impl RemoteMemory for BadRemote {
    fn incarnation(&self) -> Incarnation {
        self.inner.incarnation()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn write(&mut self, offset: usize, bytes: &[u8], seq: u64) -> Result<(), FabricError> {
        let left = TO_DAMAGE.get();
        if !self.lands || left == 0 {
            return self.inner.write(offset, bytes, seq);
        }
        TO_DAMAGE.set(left - 1);
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        self.inner.write(offset, &bytes, seq)
    }

    fn poll(&mut self) -> Option<WriteCompletion> {
        self.inner.poll()
    }
}
