//! Where log windows come from: memory by name, that outlives a killed process.
//!
//! A store of windows hands out new memory for a name while the memory that an earlier process
//! left under that name, the *survivor*, is still there to be read:
//!
//! 1. `survivors(name)`: what is left, already revoked. The region reads it.
//! 2. `create(name, len)`: new memory beside it, revoked until the fabric or the owner grants it.
//! 3. The region copies what it still needs into the new memory.
//! 4. `forget_survivors(name)`: from now on the new memory is what a restart finds. One rename, so
//!    that a kill at any instant leaves the old memory or the new, whole.
//!
//! New memory that has no survivor is found after a restart at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::MemoryError;
use crate::shared::SharedMemory;

/// See the module documentation. All methods may be called from any thread; those of one name by
/// one thread at a time.
pub trait WindowStore: Send + Sync {
    /// The names under which earlier memory is left, in rising order. Names that no region knows
    /// any more are orphans: `forget_survivors` removes them.
    fn survivor_names(&self) -> Vec<u64>;

    /// What an earlier process, or an earlier `create` of this one, left under `name`; revoked.
    /// `None` where nothing is left that may be believed.
    fn survivors(&self, name: u64) -> Option<Arc<SharedMemory>>;

    /// `len` zero bytes under `name`, revoked. Memory that this store handed out earlier, and that
    /// has the name, is revoked and becomes the survivor; memory that does not have it yet is
    /// replaced, and the survivor stays.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] where there is no room ([`MemoryError::is_full`]) or the system
    /// refuses.
    fn create(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError>;

    /// [`create`](Self::create), without memory for the payload ([`SharedMemory::release`]) where the system can do
    /// without.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn create_released(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        let memory = self.create(name, len)?;
        // What the system does not take back stays.
        let _ = memory.release();
        Ok(memory)
    }

    /// Gives the name to the newest memory alone. Where there is no new memory, nothing is left
    /// under `name`.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] where the system refuses.
    fn forget_survivors(&self, name: u64) -> Result<(), MemoryError>;
}

/// What is known under one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    /// What a restart finds, as long as it is there.
    pub(crate) survivor: Option<Arc<SharedMemory>>,
    /// The newest memory; what a restart finds where there is no survivor.
    pub(crate) current: Option<Arc<SharedMemory>>,
}

impl Named {
    /// Makes the memory that has the name the survivor, before new memory is made.
    pub(crate) fn retire(&mut self) {
        if let Some(current) = self.current.take() {
            current.revoke();
            self.survivor.get_or_insert(current);
        }
    }
}

/// Windows that live in this process, for tests and the simulator: clones share them, and
/// [`restart`](Self::restart) stands for a process that was killed and started again.
#[derive(Clone, Debug, Default)]
pub struct AnonymousWindows {
    named: Arc<Mutex<BTreeMap<u64, Named>>>,
}

impl AnonymousWindows {
    /// No windows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the next process finds: whatever has a name here is revoked and a survivor there.
    /// This store is of no use any more.
    #[must_use]
    pub fn restart(&self) -> Self {
        let mut found = BTreeMap::new();
        for (name, named) in std::mem::take(&mut *self.named()) {
            for memory in named.survivor.iter().chain(&named.current) {
                memory.revoke();
            }
            let survivor = named.survivor.or(named.current);
            let current = None;
            found.insert(name, Named { survivor, current });
        }
        Self {
            named: Arc::new(Mutex::new(found)),
        }
    }

    /// The process dies now: nothing that its code still writes into its windows has an effect.
    pub fn disown(&self) {
        let named = self.named();
        for named in named.values() {
            for memory in named.survivor.iter().chain(&named.current) {
                memory.disown();
            }
        }
    }

    /// Takes the power: nothing is left, here or after a restart.
    pub fn lose(&self) {
        self.named().clear();
    }

    /// What there is under each name, the survivor first.
    #[must_use]
    pub fn memories(&self) -> Vec<(u64, Arc<SharedMemory>)> {
        let named = self.named();
        let memories = named.iter().flat_map(|(name, named)| {
            let memories = named.survivor.iter().chain(&named.current);
            memories.map(|memory| (*name, Arc::clone(memory)))
        });
        memories.collect()
    }

    fn named(&self) -> MutexGuard<'_, BTreeMap<u64, Named>> {
        self.named.lock().expect("no holder of the lock panics")
    }
}

impl WindowStore for AnonymousWindows {
    fn survivor_names(&self) -> Vec<u64> {
        let named = self.named();
        let survived = named.iter().filter(|(_, named)| named.survivor.is_some());
        survived.map(|(name, _)| *name).collect()
    }

    fn survivors(&self, name: u64) -> Option<Arc<SharedMemory>> {
        self.named().get(&name)?.survivor.clone()
    }

    fn create(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        let memory = Arc::new(SharedMemory::anonymous(len));
        let mut all = self.named();
        let named = all.entry(name).or_default();
        named.retire();
        named.current = Some(memory.clone());
        Ok(memory)
    }

    fn forget_survivors(&self, name: u64) -> Result<(), MemoryError> {
        let mut all = self.named();
        if let Some(named) = all.get_mut(&name) {
            named.survivor = None;
            if named.current.is_none() {
                all.remove(&name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
