//! The two words of a bell, and how no wakeup is lost between them: see the module above.

use super::sync::{AtomicU32, Ordering, fence};

/// See the module documentation.
pub(super) struct Words<'a> {
    /// Counts notifications, and wraps.
    pub(super) rings: &'a AtomicU32,
    /// 1 while the owner is, or is about to be, asleep.
    pub(super) parked: &'a AtomicU32,
}

impl Words<'_> {
    #[inline]
    pub(super) fn rings(&self) -> u32 {
        self.rings.load(Ordering::SeqCst)
    }

    /// Rings; calls `wake`, which wakes whoever sleeps on `rings`, if somebody may.
    #[inline]
    pub(super) fn ring(&self, wake: impl FnOnce(&AtomicU32)) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `park`.
        fence(Ordering::SeqCst);
        if self.is_parked() {
            wake(self.rings);
        }
    }

    /// Calls `sleep`, which sleeps while `rings` is `seen`, unless it is not any more.
    pub(super) fn park(&self, seen: u32, sleep: impl FnOnce(&AtomicU32)) {
        self.parked.store(1, Ordering::SeqCst);
        // Pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        if self.rings() == seen {
            sleep(self.rings);
        }
        self.parked.store(0, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::SeqCst) != 0
    }
}
