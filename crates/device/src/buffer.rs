//! Memory for direct I/O, and the little of it that is kept for reuse.
//!
//! Segments are built, shipped and read in buffers of a few lengths, each for a moment. To get one from
//! the system costs a fault for each page, more than to fill it; so the last few that were dropped are
//! kept for the next of their length. What is kept is part of a server's memory budget:
//! [`keep_at_most`], [`kept_bytes`]. Of short buffers, which hold leaves or values on their way to
//! the cache, each thread keeps a few for itself: an allocator is slow with aligned memory. Buffers of
//! reads ahead are pieces of memory that rings know ([`for_reading`](Buffer::for_reading)).
//!
//! What all buffers of the process take, in use or kept, is counted: [`allocated_bytes`].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::limits::BLOCK_SIZE;
use parking_lot::{Mutex, MutexGuard};

use crate::fixed;
use crate::pages::Pages;

/// Memory for direct I/O: whole blocks, aligned to a block.
pub struct Buffer {
    bytes: Bytes,
}

/// Bytes that were allocated by [`Bytes::new`] or [`Bytes::resident`], and are freed by [`Bytes::free`] alone; or a
/// piece of [`fixed`], in which they are, which goes back there. Long ones are the system's, so that what is not kept
/// is given back at once; shorter ones the allocator's.
struct Bytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: whoever has them owns them, and hands them out by the usual borrowing rules.
unsafe impl Send for Bytes {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Bytes {}

/// The least length that is asked of the system. An allocator would have room ready for each of the many
/// lengths that reads ahead have.
const PAGES_MIN: usize = 32 << 10;

impl Bytes {
    /// `len` zero bytes; `len` is not zero.
    fn new(len: usize) -> Self {
        if len >= PAGES_MIN {
            return Self::of_pages(Pages::new(len));
        }
        // Relaxed: nothing is ordered by it.
        ALLOCATED.fetch_add(len, Ordering::Relaxed);
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Self { start, len }
    }

    /// As [`new`](Self::new), for who writes all of them at once.
    fn resident(len: usize) -> Self {
        if len >= PAGES_MIN {
            return Self::of_pages(Pages::resident(len));
        }
        Self::new(len)
    }

    fn of_pages(pages: Pages) -> Self {
        let pages = ManuallyDrop::new(pages);
        let (start, len) = (pages.start(), pages.len());
        // Relaxed: nothing is ordered by it.
        ALLOCATED.fetch_add(len, Ordering::Relaxed);
        Self { start, len }
    }

    fn free(self) {
        ALLOCATED.fetch_sub(self.len, Ordering::Relaxed);
        if self.len >= PAGES_MIN {
            // SAFETY: made of pages in `of_pages`, and owned: nobody uses them after this.
            drop(unsafe { Pages::from_raw(self.start, self.len) });
            return;
        }
        // SAFETY: allocated in `new` with this very layout, and owned: nobody uses them after this.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, BLOCK_SIZE).expect("a buffer is far below the address space")
    }
}

impl Buffer {
    /// `len` zero bytes, rounded up to whole blocks; at least one block.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(BLOCK_SIZE);
        match take(len) {
            Some(bytes) => {
                let mut buffer = Self { bytes };
                buffer.fill(0);
                buffer
            }
            None => Self {
                bytes: Bytes::new(len),
            },
        }
    }

    /// `len` bytes, rounded up as [`zeroed`](Self::zeroed)'s, with anything in them: for what overwrites
    /// all of it. While there is some left, they are memory into which io_uring reads at less cost, if they are more
    /// than 72 KiB and at most 264.
    #[must_use]
    pub fn for_reading(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(BLOCK_SIZE);
        let piece = fixed::take(len).map(|start| Bytes { start, len });
        Self {
            bytes: piece
                .or_else(|| take(len))
                .unwrap_or_else(|| Bytes::new(len)),
        }
    }

    /// `len` bytes, rounded up as [`zeroed`](Self::zeroed)'s, with anything in them: for what writes all of it
    /// at once.
    #[must_use]
    pub fn for_filling(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(BLOCK_SIZE);
        Self {
            bytes: take(len).unwrap_or_else(|| Bytes::resident(len)),
        }
    }

    /// As [`for_reading`](Self::for_reading), for a read that is [begun](crate::Device::begin_read) before its bytes
    /// are wanted. `None`: it is long, and little is left of the memory into which io_uring reads, or it is longer
    /// than that is for.
    #[must_use]
    pub fn for_reading_ahead(len: usize) -> Option<Self> {
        if len <= fixed::SHORT_BYTES {
            return Some(Self::for_reading(len));
        }
        let len = len.next_multiple_of(BLOCK_SIZE);
        let start = fixed::take_spare(len)?;
        let bytes = Bytes { start, len };
        Some(Self { bytes })
    }

    /// A buffer that begins with `bytes` and is zero behind them.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Bytes { start, len } = self.bytes;
        if fixed::give_back(start) {
            return;
        }
        let bytes = Bytes { start, len };
        if len < Kept::LEN_MIN {
            // A thread that ends has nothing to keep it in.
            let mut bytes = Some(bytes);
            let _ = SHORT.try_with(|short| short.borrow_mut().keep(&mut bytes));
            if let Some(bytes) = bytes {
                bytes.free();
            }
            return;
        }
        match Kept::of(len) {
            Some(mut kept) => kept.keep(bytes),
            None => bytes.free(),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Bytes { start, len } = self.bytes;
        // SAFETY: `len` bytes were allocated and initialised in `Bytes::new` or are pages, and are owned.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Bytes { start, len } = self.bytes;
        // SAFETY: as in `deref`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

/// From now on this process keeps at most `bytes` bytes of memory for buffers: two thirds of dropped ones,
/// a third that rings know, whose size is fixed when the first device that is a file is opened. Before the
/// first call it is 12 MiB, and never more.
pub fn keep_at_most(bytes: usize) {
    fixed::use_at_most(bytes / 3);
    kept().keep_at_most(bytes / 3 * 2);
}

/// What a process keeps of memory for buffers that has `limit` bytes for all: three 128ths, from 3 to 12 MiB.
#[must_use]
pub const fn share_of(limit: usize) -> usize {
    let share = limit / 128;
    let (least, most) = (Kept::BYTES_LEAST / 2, Kept::BYTES_MAX / 2);
    if share < least {
        3 * least
    } else if share > most {
        3 * most
    } else {
        3 * share
    }
}

/// Bytes of dropped buffers that this process keeps, and of the memory for buffers that rings know.
#[must_use]
pub fn kept_bytes() -> usize {
    kept().bytes + fixed::bytes()
}

/// Bytes of all buffers of this process: in use, kept for the next of their length, and kept by threads.
#[must_use]
pub fn allocated_bytes() -> usize {
    ALLOCATED.load(Ordering::Relaxed) + fixed::bytes()
}

/// See [`allocated_bytes`].
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a buffer that was dropped, with whatever is in them.
fn take(len: usize) -> Option<Bytes> {
    if len < Kept::LEN_MIN {
        return SHORT.try_with(|short| short.borrow_mut().take(len)).ok()?;
    }
    Kept::of(len)?.take(len)
}

thread_local! {
    static SHORT: RefCell<Short> = const { RefCell::new(Short(Vec::new())) };
}

/// Short buffers that a thread dropped last.
struct Short(Vec<Bytes>);

impl Short {
    /// Most buffers that are kept.
    const COUNT_MAX: usize = 6;
    /// Most bytes of all of them.
    const BYTES_MAX: usize = 128 << 10;
    /// Longer ones are not.
    const LEN_MAX: usize = 64 << 10;

    fn take(&mut self, len: usize) -> Option<Bytes> {
        let at = self.0.iter().rposition(|kept| kept.len == len)?;
        Some(self.0.swap_remove(at))
    }

    /// Keeps `bytes`, or leaves them where they are not worth it.
    fn keep(&mut self, bytes: &mut Option<Bytes>) {
        let short = bytes
            .as_ref()
            .is_some_and(|bytes| bytes.len <= Self::LEN_MAX);
        if !short {
            return;
        }
        self.0.extend(bytes.take());
        let sum = |kept: &[Bytes]| kept.iter().map(|bytes| bytes.len).sum::<usize>();
        while self.0.len() > Self::COUNT_MAX || sum(&self.0) > Self::BYTES_MAX {
            self.0.remove(0).free();
        }
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Bytes::free);
    }
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock()
}

/// Dropped buffers. Of the process, as the allocator is, whose part it does.
static KEPT: Mutex<Kept> = Mutex::new(Kept::new());

/// See the module documentation.
struct Kept {
    /// The oldest first.
    buffers: Vec<Bytes>,
    bytes: usize,
    /// Most bytes of all that are kept.
    max: usize,
}

impl Kept {
    /// Shorter buffers the allocator keeps itself.
    const LEN_MIN: usize = 128 << 10;
    /// One segment: with less, every one that is built has to be faulted in.
    const BYTES_LEAST: usize = 2 << 20;
    /// Most bytes that `max` may be, and no buffer that is longer is kept.
    const BYTES_MAX: usize = 8 << 20;

    const fn new() -> Self {
        Self {
            buffers: Vec::new(),
            bytes: 0,
            max: Self::BYTES_MAX,
        }
    }

    /// What is kept, if buffers of `len` bytes may be among it.
    fn of(len: usize) -> Option<MutexGuard<'static, Self>> {
        let worth = (Self::LEN_MIN..=Self::BYTES_MAX).contains(&len);
        worth.then(kept)
    }

    /// The last of `len` bytes that was kept, with whatever is in it.
    fn take(&mut self, len: usize) -> Option<Bytes> {
        let at = self.buffers.iter().rposition(|kept| kept.len == len)?;
        self.bytes -= len;
        Some(self.buffers.remove(at))
    }

    /// Keeps `bytes`, which are of a length that may be kept, in place of the oldest if need be: nobody
    /// may ask for their length any more.
    fn keep(&mut self, bytes: Bytes) {
        if bytes.len > self.max {
            return bytes.free();
        }
        self.make_room(bytes.len);
        self.bytes += bytes.len;
        self.buffers.push(bytes);
    }

    /// Keeps so little that `len` bytes more are not too much; they are no more than the most.
    fn make_room(&mut self, len: usize) {
        while self.bytes + len > self.max {
            let oldest = self.buffers.remove(0);
            self.bytes -= oldest.len;
            oldest.free();
        }
    }

    fn keep_at_most(&mut self, max: usize) {
        self.max = max.min(Self::BYTES_MAX);
        self.make_room(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_counted() {
        // Longer than any other test's: those run at the same time.
        const LEN: usize = 1 << 30;
        let buffer = Buffer::zeroed(LEN);
        assert!(allocated_bytes() >= LEN);
        drop(buffer);
        assert!(allocated_bytes() < LEN, "and no more when it is dropped");
    }

    #[test]
    fn buffers_are_zero_whatever_they_were() {
        for len in [
            BLOCK_SIZE,
            2 * BLOCK_SIZE,
            Kept::LEN_MIN,
            1 << 20,
            Kept::BYTES_MAX + 1,
        ] {
            for _ in 0..3 {
                let mut buffer = Buffer::zeroed(len);
                assert!(buffer.iter().all(|byte| *byte == 0), "{len}");
                buffer.fill(7);
            }
        }
    }

    #[test]
    fn what_will_be_filled_is_as_long_as_asked_for() {
        for len in [1, BLOCK_SIZE + 1, PAGES_MIN, Kept::LEN_MIN] {
            let whole = len.next_multiple_of(BLOCK_SIZE);
            let mut buffer = Buffer::for_filling(len);
            assert_eq!(buffer.len(), whole);
            buffer.fill(7);
            drop(buffer);
            assert_eq!(Buffer::for_filling(len).len(), whole);
            assert!(Buffer::zeroed(len).iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_thread_keeps_a_few_short_buffers() {
        let test = || {
            drop((0..9).map(|_| Buffer::zeroed(8192)).collect::<Vec<_>>());
            drop(Buffer::zeroed(4096));
            drop(Buffer::zeroed(2 * Short::LEN_MAX));
            let count = |len| SHORT.with_borrow(|s| s.0.iter().filter(|b| b.len == len).count());
            let (eight, four) = (count(8192), count(4096));
            assert_eq!(
                (eight, four, count(2 * Short::LEN_MAX)),
                (Short::COUNT_MAX - 1, 1, 0)
            );
            let used = Buffer::for_reading(4096);
            assert_eq!(count(4096), 0);
            drop(used);
            assert_eq!(count(4096), 1);
            drop(
                (0..9)
                    .map(|_| Buffer::zeroed(Short::LEN_MAX))
                    .collect::<Vec<_>>(),
            );
            let most = Short::BYTES_MAX / Short::LEN_MAX;
            assert_eq!((count(Short::LEN_MAX), count(4096)), (most, 0));
        };
        let thread = std::thread::Builder::new().spawn(test).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let mut kept = Kept::new();
        let sizes = [128 << 10, 2 << 20, 3 << 20, 7 << 20];
        for round in 0..40 {
            kept.keep(Bytes::new(sizes[round % sizes.len()]));
            let sum: usize = kept.buffers.iter().map(|bytes| bytes.len).sum();
            assert_eq!(kept.bytes, sum);
            assert!(sum <= Kept::BYTES_MAX);
        }
        let last = kept.take(7 << 20).expect("it was kept last");
        assert_eq!(last.len, 7 << 20);
        assert!(kept.take(7 << 20).is_none(), "there is one");
        last.free();
        kept.keep_at_most(1 << 20);
        assert!(kept.bytes <= 1 << 20, "what is too much goes at once");
        kept.keep(Bytes::new(2 << 20));
        assert!(kept.bytes <= 1 << 20, "no room can be made for it");
        kept.keep_at_most(0);
        assert_eq!((kept.bytes, kept.buffers.len()), (0, 0));
        assert!(Kept::of(Kept::LEN_MIN - 1).is_none() && Kept::of(Kept::BYTES_MAX + 1).is_none());
    }
}
