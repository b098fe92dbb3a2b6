//! How a copy of a region becomes a store that serves, and a store a copy again.

use std::sync::Arc;

use argosy_base::{Clock, Epoch};
use argosy_device::Waker;

use crate::cut::Cut;
use crate::set_aside::SetAside;
use crate::{CopyError, Marks, Observer, Source, Store, WindowRoom};

/// What a store serves with. By default it serves alone, and without a clock.
#[derive(Default)]
pub struct Service {
    /// The epoch in which it writes; not below that of any edit.
    pub epoch: Epoch,
    /// The epoch of the promotion: that in which the region's map names this copy for its primary the first time. The
    /// cut, with which the store begins, is numbered by it ([`EditSeq::first_of`]). A primary that starts again, or
    /// has other members than then, serves in a later epoch of the same promotion. 0: the numbers go on as before.
    ///
    /// [`EditSeq::first_of`]: argosy_base::EditSeq::first_of
    pub since: Epoch,
    /// Hears of everything that the region's other copies need, if there are any.
    pub observer: Option<Arc<dyn Observer>>,
    /// The clock by which pairs expire. Without one, nothing expires that has not expired yet.
    pub clock: Option<Arc<dyn Clock>>,
    /// Called when [`Store::step`] has something new to do.
    pub waker: Option<Waker>,
    /// Where the store shows its state.
    pub marks: Arc<Marks>,
    /// Who gives the windows their memory. With one, a store that [can rest](crate::Engine::needs_memory) begins at
    /// rest; without one, with memory that is its own.
    pub room: Option<Arc<dyn WindowRoom>>,
}

/// A copy that has become a store.
pub struct Promoted {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same store, as other members copy it; `None` where it cannot be copied.
    pub source: Option<Arc<dyn Source>>,
    /// The records that were cut off, if there were any.
    pub cut: Option<Cut>,
}

/// How far a copy has come on its way to a store.
pub enum Promotion {
    /// It waits for the device.
    Waits(Box<dyn Promoting>),
    /// It is one.
    Done(Promoted),
}

/// A copy that becomes a store, and waits for the device. Dropped, it is as if the process had died in between.
pub trait Promoting: Send {
    /// Continues as far as the device has come. Does not wait for a sync.
    ///
    /// # Errors
    /// As those of [`Follower::promote`](crate::Follower::promote).
    fn step(self: Box<Self>) -> Result<Promotion, Box<NotPromoted>>;

    /// Completes the promotion. Blocks until its writes are durable. A write for which the file system beneath the
    /// device has no room fails here; in [`step`](Self::step) it waits for room.
    ///
    /// # Errors
    /// As those of [`Follower::promote`](crate::Follower::promote).
    fn finish(self: Box<Self>) -> Result<Promoted, Box<NotPromoted>>;
}

/// A copy that has not become a store.
pub struct NotPromoted {
    /// Why.
    pub error: CopyError,
    /// What is kept of the copy, if it is [damaged](CopyError::is_damage).
    pub left: Option<SetAside>,
}

/// A store that has not become a copy. It serves no more, and what it had is of no more use to this process.
pub struct NotDemoted {
    /// Why.
    pub error: CopyError,
    /// What is kept of the copy, if it is [damaged](CopyError::is_damage).
    pub left: Option<SetAside>,
}
