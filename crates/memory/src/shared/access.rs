//! The word that says who may write a memory, and how its owner takes the memory back: see the module above.

use super::Revoked;
use super::sync::{AtomicU64, Ordering, fence};

/// The number of the present grant, little-endian; 0 where no peer may write.
pub(super) struct Access<'a>(pub(super) &'a AtomicU64);

impl Access<'_> {
    #[inline]
    pub(super) fn number(&self) -> u64 {
        u64::from_le(self.0.load(Ordering::Acquire))
    }

    pub(super) fn grant(&self, number: u64) {
        self.0.store(number.to_le(), Ordering::Release);
    }

    pub(super) fn revoke(&self) {
        self.0.store(0, Ordering::SeqCst);
        // Pairs with the fence in `write`.
        fence(Ordering::SeqCst);
    }

    /// Calls `land`, which writes to the payload, as a peer that holds grant `number`.
    #[inline]
    pub(super) fn write(&self, number: u64, land: impl FnOnce()) -> Result<(), Revoked> {
        if number == 0 || self.number() != number {
            return Err(Revoked);
        }
        land();
        // Pairs with the fence in `revoke`.
        fence(Ordering::SeqCst);
        if self.number() == number {
            Ok(())
        } else {
            Err(Revoked)
        }
    }
}
