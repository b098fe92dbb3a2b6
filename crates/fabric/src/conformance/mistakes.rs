//! Fabrics with a planted mistake in how they connect. The suite has to find each, and nothing where there is none.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Incarnation, ServerId};
use argosy_memory::{Bell, SharedMemory};
use parking_lot::Mutex;

use super::{Harness, run};
use crate::{Connecting, Descriptor, Fabric, FabricError, MemoryKey, RemoteMemory};

/// What a fabric does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Nothing.
    None,
    /// It connects to whatever is granted under the key.
    ByName,
    /// It connects with the first descriptor that it was ever given for the key.
    EarlierGrant,
    /// An attempt that is refused goes on with the grant that stands.
    GoesOn,
    /// It connects to memory of any length.
    AnyLength,
    /// An attempt that has failed does not say so.
    NeverEnds,
}

const MISTAKES: [Mistake; 5] = [
    Mistake::ByName,
    Mistake::EarlierGrant,
    Mistake::GoesOn,
    Mistake::AnyLength,
    Mistake::NeverEnds,
];

/// Runs the suite over the worlds of `make` with each mistake planted.
///
/// # Panics
/// When the suite does not find one, or finds something where nothing is wrong.
pub(crate) fn are_found(make: &mut dyn FnMut() -> Box<dyn Harness>) {
    let mut finds = |mistake| {
        let mut make = || -> Box<dyn Harness> {
            let inner = make();
            Box::new(World { inner, mistake })
        };
        catch_unwind(AssertUnwindSafe(|| run(&mut make))).is_err()
    };
    assert!(!finds(Mistake::None), "nothing is wrong");
    for mistake in MISTAKES {
        assert!(finds(mistake), "the suite does not find {mistake:?}");
    }
}

/// A world in which every fabric makes the mistake.
struct World {
    inner: Box<dyn Harness>,
    mistake: Mistake,
}

impl Harness for World {
    fn start(&mut self, server: ServerId, incarnation: Incarnation) -> Arc<dyn Fabric> {
        Arc::new(Mistaken {
            inner: self.inner.start(server, incarnation),
            mistake: self.mistake,
            first: Mutex::default(),
        })
    }

    fn memory(&mut self, server: ServerId, len: usize) -> Arc<SharedMemory> {
        self.inner.memory(server, len)
    }

    fn kill(&mut self, server: ServerId) {
        self.inner.kill(server);
    }

    fn stop(&mut self, server: ServerId) {
        self.inner.stop(server);
    }

    fn resume(&mut self, server: ServerId) {
        self.inner.resume(server);
    }

    fn settle(&mut self) {
        self.inner.settle();
    }

    fn cut(&mut self, a: ServerId, b: ServerId) -> bool {
        self.inner.cut(a, b)
    }

    fn heal(&mut self, a: ServerId, b: ServerId) {
        self.inner.heal(a, b);
    }

    fn sleeps(&self) -> bool {
        self.inner.sleeps()
    }
}

/// A fabric that makes the mistake.
struct Mistaken {
    inner: Arc<dyn Fabric>,
    mistake: Mistake,
    /// The first descriptor that was used for each memory.
    first: Mutex<BTreeMap<(ServerId, MemoryKey), Descriptor>>,
}

impl Fabric for Mistaken {
    fn grant(
        &self,
        key: MemoryKey,
        memory: Arc<SharedMemory>,
        to: ServerId,
    ) -> Result<Descriptor, FabricError> {
        self.inner.grant(key, memory, to)
    }

    fn revoke(&self, key: MemoryKey) {
        self.inner.revoke(key);
    }

    fn find(&self, peer: ServerId, key: MemoryKey) -> Result<Descriptor, FabricError> {
        self.inner.find(peer, key)
    }

    fn connect(&self, peer: ServerId, descriptor: Descriptor, least: usize) -> Box<dyn Connecting> {
        let key = descriptor.key;
        let used = match self.mistake {
            Mistake::ByName => self.inner.find(peer, key).unwrap_or(descriptor),
            Mistake::EarlierGrant => *self.first.lock().entry((peer, key)).or_insert(descriptor),
            _ => descriptor,
        };
        let least = match self.mistake {
            Mistake::AnyLength => 0,
            _ => least,
        };
        Box::new(MistakenConnecting {
            inner: self.inner.connect(peer, used, least),
            fabric: Arc::clone(&self.inner),
            mistake: self.mistake,
            peer,
            key,
        })
    }

    fn notify(&self, peer: ServerId) {
        self.inner.notify(peer);
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    fn park(&self, seen: Bell, timeout: Duration) {
        self.inner.park(seen, timeout);
    }
}

/// An attempt that makes the mistake.
struct MistakenConnecting {
    inner: Box<dyn Connecting>,
    fabric: Arc<dyn Fabric>,
    mistake: Mistake,
    peer: ServerId,
    key: MemoryKey,
}

impl Connecting for MistakenConnecting {
    fn poll(&mut self) -> Result<Option<Box<dyn RemoteMemory>>, FabricError> {
        match (self.inner.poll(), self.mistake) {
            (Err(_), Mistake::NeverEnds) => Ok(None),
            (Err(FabricError::Revoked), Mistake::GoesOn) => {
                let found = self.fabric.find(self.peer, self.key);
                let found = found.map_err(|_| FabricError::Revoked)?;
                self.inner = self.fabric.connect(self.peer, found, 0);
                self.inner.poll()
            }
            (polled, _) => polled,
        }
    }
}
