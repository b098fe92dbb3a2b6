//! How a server gets its engine, and the engine its copies of regions.

use std::fmt;
use std::sync::Arc;

use argosy_base::{AddressMode, RegionId, ServerId};
use argosy_device::{RegionEntry, Store};

use crate::CopyError;
use crate::cache::{Cache, NoCache};
use crate::follower::Follower;
use crate::memory::Memory;
use crate::set_aside::SetAside;
use crate::windows::{LogSpec, Survivors, Windows};

/// The settings of an engine. Several servers of a process can start from the same ones.
pub trait Settings: fmt::Debug + Send + Sync {
    /// An engine for one server, with a cache of its own.
    fn start(&self) -> Arc<dyn Engine>;
}

/// An engine as one server has it: what its copies share, and how they are opened.
pub trait Engine: Send + Sync {
    /// The logs of each region, by rising [`id`](LogSpec::id).
    fn logs(&self) -> &[LogSpec];

    /// What pointers inside segments hold. The same on all members of a group.
    fn addresses(&self) -> AddressMode {
        AddressMode::Logical
    }

    /// What gives way where memory is short. An engine without a cache has one that never does.
    fn cache(&self) -> Arc<dyn Cache> {
        Arc::new(NoCache)
    }

    /// What its stores take of memory, without their windows. Where the engine counts for the whole process, that
    /// includes those of other engines of its kind. An engine that does not count says 0 to everything.
    fn memory(&self) -> Memory {
        Memory::default()
    }

    /// Whether the windows of a copy need memory from the start beside what is `left` of those before. Where they do
    /// not, they may be without: [`Follower::wake`] takes it then, or a store that asks its
    /// [room](crate::WindowRoom) for it.
    fn needs_memory(&self, left: &Survivors) -> bool {
        let _ = left;
        true
    }

    /// Opens a region's copy, or makes it where the catalog does not name it: only after
    /// [`Store::finish_recovery`]. `windows` is fresh, zero memory, or none where none is
    /// [needed](Self::needs_memory); `left` is what an earlier process left of them. Blocks.
    ///
    /// # Errors
    /// [`CopyError::OtherVersion`] where a later version wrote the copy; errors of the device; damage to durable data.
    ///
    /// # Panics
    /// When the windows are not those of the [logs](Self::logs).
    fn open(
        &self,
        copy: &CopyOf<'_>,
        windows: Windows,
        left: Survivors,
    ) -> Result<Box<dyn Follower>, CopyError>;

    /// Makes an empty copy of a region, in place of one that cannot be used. Only after
    /// [`Store::finish_recovery`]. Blocks.
    ///
    /// # Errors
    /// The device's.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    fn create(&self, copy: &CopyOf<'_>, windows: Windows) -> Result<Box<dyn Follower>, CopyError>;

    /// [Creates](Self::create) copies of several regions, which share their waits for the device. Returns the result of
    /// each, in their order. Blocks.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    fn create_all(&self, copies: Vec<NewCopy<'_>>) -> Vec<Result<Box<dyn Follower>, CopyError>> {
        let copies = copies.into_iter();
        copies
            .map(|NewCopy { of, windows }| self.create(&of, windows))
            .collect()
    }

    /// Claims what can be found of a copy that cannot be opened or is set aside, unless another copy has claimed it.
    /// To be called when all other copies have been opened and recovery has not ended. Blocks.
    fn claim(&self, store: &Arc<Store>, entry: &RegionEntry) -> SetAside;
}

/// Which copy is to be opened or made.
#[derive(Clone, Copy)]
pub struct CopyOf<'a> {
    /// The device on which it lies.
    pub store: &'a Arc<Store>,
    /// The region.
    pub region: RegionId,
    /// The copy builds levels of its own, and numbers their segments as this server. `None`: it takes those of the
    /// primary. Means nothing to an engine without levels.
    pub own_levels: Option<ServerId>,
}

/// A copy that is to be made.
pub struct NewCopy<'a> {
    /// Which one.
    pub of: CopyOf<'a>,
    /// Its windows, as for [`Engine::create`].
    pub windows: Windows,
}
