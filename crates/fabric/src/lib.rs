//! One-sided writes into other servers' memory.
//!
//! A server grants memory to one peer, and gives it the grant's [`Descriptor`]; the peer connects to that memory and
//! writes into it without the owner's doing anything. The contract, which every provider keeps and which
//! the conformance suite checks:
//!
//! - A peer connects with the descriptor of a grant that is its own and stands, and with no other: not with that of an
//!   earlier grant of the same memory or key, and not with another peer's.
//! - A completion means that the bytes are in the target's memory. It does *not* mean that the
//!   target is alive: a stopped process's memory still completes writes.
//! - There is no order across writes, and no write but one of 8 aligned bytes lands whole. What is
//!   polled for must therefore be checked, in a private copy, before it is believed (I2).
//! - Once [`Fabric::revoke`] has returned, no write that had not completed before completes as
//!   successful, and every one that did is in the copy that the owner then takes of the memory.
//!   The owner believes that copy, never the memory itself: what an interrupted write still puts
//!   there is observed by nobody.
//! - The target owes no progress: writes complete while it does nothing. To connect may need some: it fails where the
//!   target is gone, and may where it does nothing.
//! - A write that ends after [`RemoteMemory::write`] has returned, and an attempt to connect that ends after its first
//!   poll, rings the own bell, well ended or not: a thread that parks while some are under way is woken when there is
//!   something to poll.
//! - A server that starts again under a new incarnation revokes all that it granted before.
//!
//! To connect takes round trips, and no step waits for them. It is an *attempt*, which is begun and polled:
//!
//! ```text
//! connect ──▶ under way ──▶ made        by a poll
//!               │     └───▶ failed      by a poll: refused, broken, or the grant is over
//!               └─────────▶ given up    dropped before its end
//! ```
//!
//! 1. [`Fabric::connect`] begins it, and says nothing of how it will end.
//! 2. Whoever has begun it [polls](Connecting::poll) it at once, since what ends before the first poll need not ring;
//!    and then whenever the bell has rung. Until then there is nothing to poll: an attempt that is under way takes no
//!    time of its caller's.
//! 3. It ends by itself, whatever becomes of the peer and of the way there, within a bound of the provider's. It ends
//!    once, and is not begun anew by itself. When to begin another one is for the caller to say.
//! 4. It is for the grant of its descriptor from its beginning to its end: where the memory is granted anew meanwhile,
//!    it fails. So one that is begun with the descriptor of an earlier grant never reaches a later one.
//! 5. One that is dropped leaves nothing. An answer that comes later makes no connection, and ends no other attempt.
//! 6. Each ends for itself, in any order. The caller bounds how many there are: a provider keeps little for each, and
//!    none refuses one since there are too many.
//!
//! Two providers: [`shm`] for servers on one host, and [`sim`], a world of servers in one thread
//! that is driven by a seed and a clock of the caller's. [`conformance`] holds every provider to
//! the contract. Reading order: this file, [`shm`], [`sim`].
//!
//! This crate does not know what the bytes mean.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod shm;
pub mod sim;

pub use shm::ShmFabric;
pub use sim::{ConnectionCounters, RingCounters, SimCounters, SimFabric, SimSettings, SimWorld};

use std::sync::Arc;
use std::time::Duration;

pub use argosy_base::{Descriptor, MemoryKey};
use argosy_base::{Incarnation, ServerId};
use argosy_memory::{Bell, SharedMemory};

/// Why a fabric operation failed. Variants differ in what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The peer grants this server no such memory yet. Try again later.
    #[error("{peer} grants no memory {key:?} yet")]
    NotThere {
        /// The peer that was asked.
        peer: ServerId,
        /// What it does not grant.
        key: MemoryKey,
    },
    /// The peer grants less memory than its user writes. Try again later: it has other settings, or another
    /// version.
    #[error(
        "{peer} grants {len} bytes of memory as {key:?}, and {least} are needed: what must be equal on all \
         servers is not, or it runs another version"
    )]
    TooShort {
        /// The peer that was asked.
        peer: ServerId,
        /// What it grants.
        key: MemoryKey,
        /// Bytes of that.
        len: usize,
        /// Bytes that are needed.
        least: usize,
    },
    /// The peer took the grant back, or it is another peer's. Ask for another one.
    #[error("the peer revoked the grant of this memory")]
    Revoked,
    /// The peer cannot be reached. Connect anew.
    #[error("the connection is broken")]
    Broken,
    /// Too many writes wait for completion. Poll, then try again; nothing was written.
    #[error("too many writes in flight")]
    Full,
    /// The operating system refused: no room, no permission.
    #[error("{what} failed: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
}

/// The end of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteCompletion {
    /// The number that the writer gave.
    pub seq: u64,
    /// Whether the bytes are in the target's memory.
    pub result: Result<(), FabricError>,
}

/// An attempt to connect to one memory of a peer. See the crate documentation for its life.
///
/// Dropped before the end, it is given up: nothing was written, and nothing is left of it at either side.
pub trait Connecting: Send {
    /// The connection, once it is made; `None` before. After the end it is not polled again: there is nothing more to
    /// say but [`FabricError::Broken`].
    ///
    /// The grant is compared at the owner on the way, and once more here, with what has been heard of it since: a
    /// grant that was revoked meanwhile ends in [`FabricError::Revoked`]. Where its owner has revoked it, and that has
    /// not been heard, the connection is made, and no write on it succeeds.
    ///
    /// # Errors
    /// [`FabricError::Revoked`] where the descriptor is not of a grant that stands and is this server's;
    /// [`FabricError::TooShort`] where the memory is shorter than was asked for; [`FabricError::Broken`] where the
    /// peer is gone, or nothing is heard from it; or the provider's. It has ended then; another one may be begun.
    fn poll(&mut self) -> Result<Option<Box<dyn RemoteMemory>>, FabricError>;
}

/// A connection to one memory of a peer. Owned by one writer at a time.
pub trait RemoteMemory: Send {
    /// The incarnation under which the peer granted this memory.
    fn incarnation(&self) -> Incarnation;

    /// Bytes of the memory.
    fn len(&self) -> usize;

    /// Whether the memory has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to write `bytes` at byte `offset`. The bytes are taken before this returns. The end
    /// is reported by [`poll`](Self::poll) under `seq`, which rises from write to write.
    ///
    /// An error here means that nothing was written. Writes that overlap land in the order in
    /// which they were begun; all others in any order.
    ///
    /// # Panics
    /// When the range is not inside the memory, or `seq` does not rise.
    fn write(&mut self, offset: usize, bytes: &[u8], seq: u64) -> Result<(), FabricError>;

    /// The next write that has ended, in any order. Once this has reported a failure, it reports
    /// no success any more.
    fn poll(&mut self) -> Option<WriteCompletion>;
}

/// One server's access to the fabric.
pub trait Fabric: Send + Sync {
    /// Grants `memory` to `to` under `key`, in place of whatever was there, which is revoked.
    /// It is granted in the name of this server's incarnation; connections to an earlier
    /// grant of it fail.
    ///
    /// # Errors
    /// The provider's. What was there is revoked all the same.
    fn grant(
        &self,
        key: MemoryKey,
        memory: Arc<SharedMemory>,
        to: ServerId,
    ) -> Result<Descriptor, FabricError>;

    /// Takes back what is granted under `key`, if anything. See the contract.
    fn revoke(&self, key: MemoryKey);

    /// What `peer` grants this server under `key` at this moment. For the memory by which two servers meet, before
    /// they can send each other descriptors; all other memory is found by what a message says.
    ///
    /// It waits for nobody. A provider that has to ask the peer says [`FabricError::NotThere`] until it has heard, and
    /// what it has heard may be over: to connect with it fails then, and the caller looks again.
    ///
    /// # Errors
    /// [`FabricError::NotThere`], or the provider's.
    fn find(&self, peer: ServerId, key: MemoryKey) -> Result<Descriptor, FabricError>;

    /// Begins an attempt to connect to a peer's memory, into the first `least` bytes of which the caller will write.
    /// Whatever speaks against it is said when it is [polled](Connecting::poll).
    fn connect(&self, peer: ServerId, descriptor: Descriptor, least: usize) -> Box<dyn Connecting>;

    /// Wakes `peer` if it is parked, once the bytes of all that was written to it before are there, where nothing
    /// keeps them away. Cheap where it is not.
    fn notify(&self, peer: ServerId);

    /// The present state of this server's own bell. Read it *before* looking for work.
    fn bell(&self) -> Bell;

    /// Parks the calling thread until someone notifies this server after `seen` was read, or
    /// until `timeout` has passed. One thread at a time. It may return early; a notification may
    /// be lost only with a peer or a connection, which is why nobody parks without a timeout.
    fn park(&self, seen: Bell, timeout: Duration);
}
