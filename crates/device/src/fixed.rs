//! The memory that rings know beforehand: a few pieces for long reads.
//!
//! For each direct read the kernel looks up the pages of the reader's memory, and lets them go afterwards.
//! Of memory that was *registered* with a ring it has them at hand. And memory that came new from the
//! system has to be faulted in and zeroed first, which costs more than all the rest of a read of
//! 256 KiB. So merges and long scans, whose reads are of about that length, get their buffers from here:
//! they are taken and given back again and again ([`Buffer::for_reading`](crate::Buffer::for_reading)).
//!
//! The pieces are made once for the process, within what it keeps of buffers, and are never given back:
//! a ring would go on reading into pages that are no longer theirs. Where all are in use, or a read is
//! longer, the buffer is made in the usual way.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::limits::BLOCK_SIZE;
use parking_lot::{Mutex, MutexGuard};

use crate::pages::Pages;

/// Bytes of a piece: a read ahead of 256 KiB, with the rest of the blocks in which it begins and ends.
pub(crate) const PIECE_BYTES: usize = (256 << 10) + 2 * BLOCK_SIZE;
/// Most bytes of a short read, with the rest of the blocks in which it begins and ends. Buffers of that length are
/// kept by threads and by the allocator.
pub(crate) const SHORT_BYTES: usize = (64 << 10) + 2 * BLOCK_SIZE;
/// Most bytes of all pieces. Twice as much is often the most that a process may lock.
pub(crate) const BYTES_MAX: usize = 15 * PIECE_BYTES;

/// Pieces that are left for reads that are waited for.
const SPARED: usize = 4;

/// What all pieces may take together; read when they are made.
static BYTES: AtomicUsize = AtomicUsize::new(BYTES_MAX);
static POOL: OnceLock<Option<Pool>> = OnceLock::new();

/// See the module documentation.
struct Pool {
    pages: Pages,
    /// Places of the pieces that nobody uses.
    free: Mutex<Vec<usize>>,
}

impl Pool {
    /// As many pieces as `bytes` hold; `None`: not even one.
    fn new(bytes: usize) -> Option<Self> {
        let pieces = bytes.min(BYTES_MAX) / PIECE_BYTES;
        (pieces > 0).then(|| Self {
            pages: Pages::new(pieces * PIECE_BYTES),
            free: Mutex::new((0..pieces).rev().collect()),
        })
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock()
    }

    /// Where `start` is in the pool, in bytes, if it is in it.
    fn offset_of(&self, start: *const u8) -> Option<usize> {
        let offset = start
            .addr()
            .checked_sub(self.pages.start().as_ptr().addr())?;
        (offset < self.pages.len()).then_some(offset)
    }

    fn take(&self, len: usize) -> Option<NonNull<u8>> {
        if !(SHORT_BYTES + 1..=PIECE_BYTES).contains(&len) {
            return None;
        }
        let place = self.free().pop()?;
        // SAFETY: the place is that of a piece, and all pieces are in the pages.
        Some(unsafe { self.pages.start().add(place * PIECE_BYTES) })
    }

    fn give_back(&self, start: NonNull<u8>) -> bool {
        let Some(offset) = self.offset_of(start.as_ptr()) else {
            return false;
        };
        self.free().push(offset / PIECE_BYTES);
        true
    }
}

/// The pool, made now if it was not.
fn pool() -> Option<&'static Pool> {
    // Relaxed: nothing is ordered by it.
    let made = || Pool::new(BYTES.load(Ordering::Relaxed));
    POOL.get_or_init(made).as_ref()
}

/// All pieces take at most `bytes` bytes, if none has been made so far.
pub(crate) fn use_at_most(bytes: usize) {
    BYTES.store(bytes, Ordering::Relaxed);
}

/// Bytes of all pieces, in use or not: those of a registered piece are resident.
pub(crate) fn bytes() -> usize {
    let made = POOL.get().and_then(Option::as_ref);
    made.map_or(0, |pool| pool.pages.len())
}

/// A piece with room for `len` bytes, with anything in them. It is the caller's until
/// [`give_back`] has it.
pub(crate) fn take(len: usize) -> Option<NonNull<u8>> {
    pool()?.take(len)
}

/// The same, for who can do without: only while some are left for those that cannot.
pub(crate) fn take_spare(len: usize) -> Option<NonNull<u8>> {
    let pool = pool()?;
    let spare = pool.free().len() > SPARED;
    spare.then(|| pool.take(len)).flatten()
}

/// Takes `start` back if it is the start of a piece; otherwise says so.
pub(crate) fn give_back(start: NonNull<u8>) -> bool {
    let made = POOL.get().and_then(Option::as_ref);
    made.is_some_and(|pool| pool.give_back(start))
}

/// Where all pieces lie, to register them: address and bytes.
pub(crate) fn whole() -> Option<(NonNull<u8>, usize)> {
    pool().map(|pool| (pool.pages.start(), pool.pages.len()))
}

/// Whether `bytes` lie in one of them.
pub(crate) fn holds(bytes: &[u8]) -> bool {
    let made = POOL.get().and_then(Option::as_ref);
    made.is_some_and(|pool| {
        let offset = pool.offset_of(bytes.as_ptr());
        offset.is_some_and(|offset| bytes.len() <= pool.pages.len() - offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_each_given_to_one_and_come_back() {
        let pool = Pool::new(3 * PIECE_BYTES + 1).expect("three of them");
        let mut taken: Vec<_> = (0..3).filter_map(|_| pool.take(PIECE_BYTES)).collect();
        assert_eq!(taken.len(), 3);
        assert!(pool.take(PIECE_BYTES).is_none(), "there are no more");
        taken.sort_unstable();
        assert!(
            taken
                .windows(2)
                .all(|two| two[1].addr().get() - two[0].addr().get() == PIECE_BYTES)
        );
        assert!(pool.give_back(taken[1]));
        assert_eq!(pool.take(PIECE_BYTES), Some(taken[1]));
        assert!(
            !pool.give_back(NonNull::from(&mut [0; 8]).cast()),
            "it is not of here"
        );
    }

    #[test]
    fn only_lengths_of_reads_ahead_are_worth_a_piece() {
        let pool = Pool::new(usize::MAX).expect("more than one");
        assert_eq!(pool.pages.len(), BYTES_MAX);
        assert!(pool.take(SHORT_BYTES).is_none());
        assert!(pool.take(PIECE_BYTES + BLOCK_SIZE).is_none());
        assert!(Pool::new(PIECE_BYTES - 1).is_none());
    }
}
