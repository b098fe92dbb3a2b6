//! Memory for edits and checkpoints that are longer than a message, of all regions of a server.
//!
//! Each holds a [`Share`] from the moment its length is known until it is applied, or has been sent. The cache gives
//! way to shares, and what arrives waits while too much arrives already.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_engine::{Cache, Charge};

/// The longest edit or checkpoint that a member takes, in bytes: at 64 bytes of it for each segment, one of a region
/// of 2 TiB. A longer one is an error of the copy that would have to take it.
pub(crate) const EDIT_BYTES_MAX: usize = 64 << 20;

/// An edit or a checkpoint is longer than any member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "edit {seq} of {from} has {len} bytes, and {EDIT_BYTES_MAX} is the most that is taken: this copy cannot follow; \
     divide the region, or write less to it"
)]
pub(crate) struct EditTooLong {
    /// The edit.
    pub(crate) seq: argosy_base::EditSeq,
    /// Who has it.
    pub(crate) from: argosy_base::ServerId,
    /// Its bytes.
    pub(crate) len: u64,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct EditMemory {
    /// Bytes of what is arriving or being sent.
    under_way: AtomicUsize,
    /// All bytes.
    held: AtomicUsize,
}

impl EditMemory {
    /// All bytes that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether as much is under way as one of the longest takes.
    pub(crate) fn is_full(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) >= EDIT_BYTES_MAX
    }

    /// Memory for one of `bytes`, at the cost of `cache`.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, cache: &Arc<dyn Cache>) -> Share {
        let charge = Charge::of(Arc::clone(cache));
        charge.set(bytes);
        self.under_way.fetch_add(bytes, Ordering::Relaxed);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Share {
            memory: Arc::clone(self),
            bytes,
            under_way: true,
            _charge: charge,
        }
    }

    /// As [`take`](Self::take), `None` while what is under way leaves no room for it. One always finds room when
    /// nothing is.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        bytes: usize,
        cache: &Arc<dyn Cache>,
    ) -> Option<Share> {
        let under_way = self.under_way.load(Ordering::Relaxed);
        (under_way + bytes <= EDIT_BYTES_MAX).then(|| self.take(bytes, cache))
    }
}

/// Memory of one edit or checkpoint.
pub(crate) struct Share {
    memory: Arc<EditMemory>,
    bytes: usize,
    under_way: bool,
    _charge: Charge,
}

impl Share {
    /// It has arrived, and is held until it is applied.
    pub(crate) fn arrived(&mut self) {
        if std::mem::take(&mut self.under_way) {
            self.memory
                .under_way
                .fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.arrived();
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {

    use super::super::Mutants;
    use super::super::copies_tests::settings;
    use super::*;

    #[test]
    fn what_arrives_waits_for_what_arrives_and_not_for_what_is_held() {
        let (memory, cache) = (
            Arc::<EditMemory>::default(),
            settings(Mutants::default()).engine.start().cache(),
        );
        let charged = || cache.stats().charged_bytes;
        let mut first = memory.try_take(EDIT_BYTES_MAX, &cache).expect("the first");
        assert!(memory.is_full() && memory.try_take(1, &cache).is_none());
        first.arrived();
        let second = memory.try_take(10, &cache).expect("it has arrived");
        assert_eq!(memory.held_bytes(), EDIT_BYTES_MAX + 10);
        assert_eq!(charged(), EDIT_BYTES_MAX as u64 + 10);
        drop(first);
        assert_eq!((memory.held_bytes(), charged()), (10, 10));
        drop(second);
        assert_eq!((memory.held_bytes(), charged()), (0, 0));
        assert!(memory.try_take(EDIT_BYTES_MAX, &cache).is_some());
    }
}
