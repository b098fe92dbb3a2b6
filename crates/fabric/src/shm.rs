//! The fabric between servers on one host: memory that both have mapped.
//!
//! ```text
//! ROOT/server-N/bell               how server N is woken (see `bell`)
//! ROOT/server-N/memory/KEY         what it grants under KEY (16 hexadecimal digits)
//! ```
//!
//! 1. [`grant`](crate::Fabric::grant) writes number and peer of the grant into the memory, which must be a file on the
//!    same tmpfs as ROOT, and gives that file one more name: the key's. What had the name is revoked.
//! 2. [`connect`](crate::Fabric::connect) maps the file, and compares both; the first poll has the connection, and
//!    compares them again.
//! 3. A write checks the grant, copies, passes a full fence, and checks the grant again. It has
//!    then ended; its completion waits to be polled.
//! 4. [`revoke`](crate::Fabric::revoke) takes grant and name away.
//! 5. [`ShmFabric::open`] revokes whatever an earlier process of this server granted, before its
//!    owner reads any of it.
//!
//! Two processes may not open the same server at one time; the lock on its data directory is for
//! the owner to take. A memory's file is removed by whoever made it, under the name that it was
//! made with; only the names given here are removed here.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Grant, Incarnation, ServerId};
use argosy_memory::{Bell, BellFile, SharedMemory, own_directory};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::{
    Connecting, Descriptor, Fabric, FabricError, MemoryKey, RemoteMemory, WriteCompletion,
};

/// Most completions that a connection keeps until they are polled.
pub const ENDED_MAX: usize = 4096;

/// See the module documentation.
pub struct ShmFabric {
    root: PathBuf,
    server: ServerId,
    incarnation: Incarnation,
    bell: BellFile,
    /// The number of the next grant. Relaxed: nothing is ordered by it.
    next_grant: AtomicU64,
    granted: Mutex<Granted>,
    /// Bells of peers, mapped when they are first rung.
    peers: RwLock<BTreeMap<ServerId, Arc<BellFile>>>,
}

/// What this server grants.
type Granted = BTreeMap<MemoryKey, Arc<SharedMemory>>;

impl ShmFabric {
    /// Enters the fabric under `root` as `server`. All that an earlier process granted is revoked
    /// and withdrawn; its bell is kept. Grants are numbered from `first_grant` on: far from where another start of
    /// the server began, also from one with another device.
    ///
    /// # Errors
    /// [`FabricError::System`] when the system refuses.
    pub fn open(
        root: &Path,
        server: ServerId,
        incarnation: Incarnation,
        first_grant: u64,
    ) -> Result<Self, FabricError> {
        let own = server_dir(root, server);
        let memory = own.join("memory");
        own_directory(&own)
            .and_then(|()| own_directory(&memory))
            .map_err(|e| system("making the fabric's directory", &e))?;
        withdraw_all(&memory).map_err(|e| system("withdrawing old memory", &e))?;
        let bell =
            BellFile::create(&own.join("bell")).map_err(|e| system("making the bell", &e))?;
        Ok(Self {
            root: root.to_path_buf(),
            server,
            incarnation,
            bell,
            next_grant: AtomicU64::new(first_grant),
            granted: Mutex::default(),
            peers: RwLock::default(),
        })
    }

    /// The name that `key` of `server` has under this fabric's root. Memory may be created under
    /// it, or under any other name of the same file system.
    #[must_use]
    pub fn path_for(&self, server: ServerId, key: MemoryKey) -> PathBuf {
        server_dir(&self.root, server)
            .join("memory")
            .join(format!("{:016x}", key.0))
    }

    fn granted(&self) -> MutexGuard<'_, Granted> {
        // A panic while it was held left nothing half done.
        self.granted.lock()
    }

    fn next_grant(&self) -> u64 {
        let next = || self.next_grant.fetch_add(1, Ordering::Relaxed);
        match next() {
            // No grant has it.
            0 => next(),
            number => number,
        }
    }

    /// What `peer` has under `key`.
    fn map(&self, peer: ServerId, key: MemoryKey) -> Result<SharedMemory, FabricError> {
        match SharedMemory::open(&self.path_for(peer, key)) {
            Ok(memory) => Ok(memory),
            Err(e) if e.is_not_found() => Err(FabricError::NotThere { peer, key }),
            Err(e) => Err(system("mapping a peer's memory", &e)),
        }
    }

    /// The memory of `peer` that `descriptor` names, if it is granted to this server and has `least` bytes.
    fn reach(
        &self,
        peer: ServerId,
        descriptor: Descriptor,
        least: usize,
    ) -> Result<ShmRemote, FabricError> {
        let Descriptor { key, grant } = descriptor;
        let memory = match self.map(peer, key) {
            Err(FabricError::NotThere { .. }) => return Err(FabricError::Revoked),
            mapped => mapped?,
        };
        let access = memory.access();
        if access == 0 || access != grant || memory.grantee() != Some(self.server) {
            return Err(FabricError::Revoked);
        }
        let len = memory.len();
        if len < least {
            return Err(FabricError::TooShort {
                peer,
                key,
                len,
                least,
            });
        }
        let incarnation = memory.incarnation();
        // The peer may have made a new bell since: look for it at the next ring.
        let mut bells = self.peers.write();
        bells.remove(&peer);
        Ok(ShmRemote {
            memory,
            access,
            incarnation,
            ended: VecDeque::new(),
            last_seq: None,
            revoked: false,
        })
    }

    fn bell_of(&self, peer: ServerId) -> Option<Arc<BellFile>> {
        let known = self.peers.read();
        if let Some(bell) = known.get(&peer) {
            return Some(Arc::clone(bell));
        }
        drop(known);
        let path = server_dir(&self.root, peer).join("bell");
        let bell = Arc::new(BellFile::open(&path).ok()?);
        let mut known = self.peers.write();
        Some(Arc::clone(known.entry(peer).or_insert(bell)))
    }
}

impl Fabric for ShmFabric {
    fn grant(
        &self,
        key: MemoryKey,
        memory: Arc<SharedMemory>,
        to: ServerId,
    ) -> Result<Descriptor, FabricError> {
        let mut granted = self.granted();
        let before = granted.remove(&key);
        let again = before.as_ref().is_some_and(|old| Arc::ptr_eq(old, &memory));
        if let Some(before) = before {
            before.revoke();
        }
        let number = self.next_grant();
        let by = self.incarnation;
        memory.grant(Grant { number, to, by });
        let path = self.path_for(self.server, key);
        let named = again || memory.path() == Some(&path);
        if !named && let Err(error) = publish(&memory, &path) {
            memory.revoke();
            return Err(error);
        }
        granted.insert(key, memory);
        Ok(Descriptor { key, grant: number })
    }

    fn revoke(&self, key: MemoryKey) {
        let mut granted = self.granted();
        if let Some(memory) = granted.remove(&key) {
            memory.revoke();
            // The name only keeps the file alive: peers that find it find it revoked.
            let _ = std::fs::remove_file(self.path_for(self.server, key));
        }
    }

    fn find(&self, peer: ServerId, key: MemoryKey) -> Result<Descriptor, FabricError> {
        let memory = self.map(peer, key)?;
        let grant = memory.access();
        match memory.grantee() {
            Some(to) if to == self.server && grant != 0 => Ok(Descriptor { key, grant }),
            _ => Err(FabricError::NotThere { peer, key }),
        }
    }

    fn connect(&self, peer: ServerId, descriptor: Descriptor, least: usize) -> Box<dyn Connecting> {
        Box::new(ShmConnecting(Some(self.reach(peer, descriptor, least))))
    }

    fn notify(&self, peer: ServerId) {
        if peer == self.server {
            self.bell.ring();
        } else if let Some(bell) = self.bell_of(peer) {
            bell.ring();
        }
    }

    fn bell(&self) -> Bell {
        self.bell.rings()
    }

    fn park(&self, seen: Bell, timeout: Duration) {
        self.bell.park(seen, timeout);
    }
}

/// What came of a [`connect`](crate::Fabric::connect), until it is polled.
struct ShmConnecting(Option<Result<ShmRemote, FabricError>>);

impl Connecting for ShmConnecting {
    fn poll(&mut self) -> Result<Option<Box<dyn RemoteMemory>>, FabricError> {
        let remote = self.0.take().unwrap_or(Err(FabricError::Broken))?;
        if remote.memory.access() != remote.access {
            return Err(FabricError::Revoked);
        }
        Ok(Some(Box::new(remote)))
    }
}

/// A peer's memory, mapped here.
struct ShmRemote {
    memory: SharedMemory,
    /// The grant under which this connection writes.
    access: u64,
    incarnation: Incarnation,
    ended: VecDeque<WriteCompletion>,
    last_seq: Option<u64>,
    revoked: bool,
}

impl RemoteMemory for ShmRemote {
    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn write(&mut self, offset: usize, bytes: &[u8], seq: u64) -> Result<(), FabricError> {
        assert!(self.last_seq.is_none_or(|last| last < seq), "seq rises");
        if self.revoked {
            return Err(FabricError::Revoked);
        }
        if self.ended.len() >= ENDED_MAX {
            return Err(FabricError::Full);
        }
        self.last_seq = Some(seq);
        let result = self.memory.write_checked(self.access, offset, bytes);
        self.revoked = result.is_err();
        self.ended.push_back(WriteCompletion {
            seq,
            result: result.map_err(|_| FabricError::Revoked),
        });
        Ok(())
    }

    fn poll(&mut self) -> Option<WriteCompletion> {
        self.ended.pop_front()
    }
}

fn server_dir(root: &Path, server: ServerId) -> PathBuf {
    root.join(format!("server-{}", server.0))
}

/// Revokes every memory that has a name in `dir`, then removes the name.
fn withdraw_all(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        // What cannot be mapped as memory could not be connected to either.
        if let Ok(memory) = SharedMemory::open(&path) {
            memory.revoke();
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn publish(memory: &SharedMemory, path: &Path) -> Result<(), FabricError> {
    memory
        .publish(path)
        .map_err(|e| system("publishing memory", &e))
}

fn system(what: &'static str, reason: &dyn std::fmt::Display) -> FabricError {
    FabricError::System {
        what,
        reason: reason.to_string(),
    }
}

#[cfg(test)]
#[path = "shm_tests.rs"]
mod tests;
