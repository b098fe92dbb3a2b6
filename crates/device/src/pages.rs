//! Memory in whole pages, from the system and back to it at once.
//!
//! An allocator keeps what is freed for a while, in case that somebody asks for as much again. Of what is
//! large and comes and goes, a memtable or the buffers of a merge, that may be a good part of a
//! memory budget that nobody uses and everybody pays for. So these are asked of the system itself.
//!
//! Where a program has said so ([`ask_for_huge`]), mappings of whole huge pages lie at the boundary of one, and
//! the kernel is told that it may back them so: reads then find their addresses with fewer looks at page tables.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_base::limits::BLOCK_SIZE;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a huge page. Where a machine has others, what is asked for is of no use, and no harm.
const HUGE_BYTES: usize = 2 << 20;

/// See [`ask_for_huge`]. Relaxed: nothing is ordered by it.
static HUGE: AtomicBool = AtomicBool::new(false);

/// From now on the pages of this process are huge where they can be, or are as the system makes them, as they
/// are before the first call.
pub fn ask_for_huge(huge: bool) {
    HUGE.store(huge, Ordering::Relaxed);
}

/// Memory of the system, which begins at a page and is zero at first. Whoever holds it says what is in it:
/// nothing is borrowed from it but by `unsafe`. Given back when it is dropped.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: only an address and a length; whoever uses them answers for what other threads do there.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes, which are not resident before they are written; `len` is not zero. Where the system has
    /// none left the process ends, as it does when an allocator finds none.
    #[must_use]
    pub fn new(len: usize) -> Self {
        if len.is_multiple_of(HUGE_BYTES) && HUGE.load(Ordering::Relaxed) {
            return Self::huge(len);
        }
        Self::mapped(len, MapFlags::PRIVATE)
    }

    /// `len` bytes, all of which are resident, by one call instead of a fault for each page: for who writes all
    /// of them at once. Otherwise as [`new`](Self::new), but that pages are as the system makes them.
    #[must_use]
    pub fn resident(len: usize) -> Self {
        Self::mapped(len, MapFlags::PRIVATE | MapFlags::POPULATE)
    }

    fn mapped(len: usize, flags: MapFlags) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, aliases nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, flags) };
        match start.map(|start| NonNull::new(start.cast())) {
            Ok(Some(start)) => Self { start, len },
            _ => {
                let layout = Layout::from_size_align(len, BLOCK_SIZE);
                handle_alloc_error(layout.expect("far below the address space"))
            }
        }
    }

    /// `len` bytes, which are whole huge pages, at the boundary of one.
    fn huge(len: usize) -> Self {
        let mut pages = Self::mapped(len, MapFlags::PRIVATE);
        if !pages.start.addr().get().is_multiple_of(HUGE_BYTES) {
            drop(pages);
            pages = Self::mapped(len + HUGE_BYTES, MapFlags::PRIVATE).aligned();
        }
        let start: *mut c_void = pages.start.as_ptr().cast();
        // SAFETY: mapped above; the advice changes nothing of what is in them. A kernel without huge pages
        // refuses it.
        let _ = unsafe { madvise(start, pages.len, Advice::LinuxHugepage) };
        pages
    }

    /// Without what lies before the first boundary of a huge page, and one huge page shorter in all.
    fn aligned(self) -> Self {
        let before = self.start.addr().get().wrapping_neg() % HUGE_BYTES;
        let len = self.len - HUGE_BYTES;
        // Each part is unmapped by its own owner.
        let whole = ManuallyDrop::new(self);
        // SAFETY: less than a huge page, of which there is one more than asked for.
        let start = unsafe { whole.start.add(before) };
        // SAFETY: as above.
        let end = unsafe { start.add(len) };
        for (start, len) in [(whole.start, before), (end, HUGE_BYTES - before)] {
            if len > 0 {
                // SAFETY: of whole pages, mapped, and nobody knows them.
                drop(unsafe { Self::from_raw(start, len) });
            }
        }
        Self { start, len }
    }

    /// Those whose `start` and `len` these are.
    ///
    /// # Safety
    /// They were made by [`new`](Self::new), were not dropped, and nobody else drops them.
    #[must_use]
    pub const unsafe fn from_raw(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// The first of them.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: mapped in `new` with this length, and owned: who borrowed from it answered for that.
        let unmapped = unsafe { munmap(start, self.len) };
        debug_assert!(unmapped.is_ok(), "what is mapped can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::testing::skipped;

    #[test]
    fn pages_are_zero_and_begin_at_a_page() {
        for len in [1, BLOCK_SIZE, 3 * BLOCK_SIZE + 1] {
            let pages = Pages::new(len);
            assert_eq!(pages.start().as_ptr().addr() % BLOCK_SIZE, 0);
            // SAFETY: `len` bytes are there, zero, and nobody else knows them.
            let bytes = unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), pages.len()) };
            assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == 0));
        }
    }

    /// How many blocks of `pages` are resident, by the kernel's flag of each; `None` where it does not tell.
    fn resident(pages: &Pages) -> Option<usize> {
        let map = std::fs::File::open("/proc/self/pagemap").ok()?;
        let first = pages.start().as_ptr().addr() / BLOCK_SIZE;
        let mut there = 0;
        for place in first..first + pages.len() / BLOCK_SIZE {
            let mut word = [0; 8];
            map.read_exact_at(&mut word, 8 * place as u64).ok()?;
            there += usize::from(u64::from_le_bytes(word) >> 63 == 1);
        }
        Some(there)
    }

    #[test]
    fn pages_are_resident_at_once_where_that_is_asked_for() {
        const BLOCKS: usize = 64;
        let pages = [Pages::new, Pages::resident].map(|make| make(BLOCKS * BLOCK_SIZE));
        let [Some(none), Some(all)] = [resident(&pages[0]), resident(&pages[1])] else {
            return skipped("the kernel does not tell which pages are");
        };
        // The kernel may take some back at once, where there is little memory.
        assert!(none == 0 && all > BLOCKS / 2, "{none}, {all} of {BLOCKS}");
    }

    /// How many bytes of the mapping of `at` the kernel may back by huge pages.
    fn advised_bytes(at: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut within = None;
        for line in maps.lines() {
            let range = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            let range = range.map(|(from, to)| {
                let hex = |digits| usize::from_str_radix(digits, 16);
                (hex(from), hex(to))
            });
            if let Some((Ok(from), Ok(to))) = range {
                within = (from..to).contains(&at).then(|| to - at);
            }
            let flags = line.strip_prefix("VmFlags:").unwrap_or_default();
            if let Some(bytes) = within
                && flags.split_whitespace().any(|flag| flag == "hg")
            {
                return bytes;
            }
        }
        0
    }

    #[test]
    fn huge_pages_are_asked_for_where_whole_ones_fit_and_only_then() {
        let kernel = std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap();
        ask_for_huge(true);
        let pages: Vec<_> = (1..=3)
            .map(|count| Pages::new(count * HUGE_BYTES))
            .collect();
        let small = Pages::new(BLOCK_SIZE);
        ask_for_huge(false);
        let plain = Pages::new(4 * HUGE_BYTES);
        for pages in &pages {
            let at = pages.start().as_ptr().addr();
            assert_eq!(at % HUGE_BYTES, 0);
            assert!(!kernel || advised_bytes(at) >= pages.len());
            // SAFETY: `len` bytes are there, and nobody else knows them.
            unsafe { pages.start().as_ptr().write_bytes(7, pages.len()) };
        }
        for pages in [&small, &plain] {
            assert_eq!(advised_bytes(pages.start().as_ptr().addr()), 0);
        }
    }

    #[test]
    fn what_lies_around_whole_huge_pages_is_given_back() {
        for _ in 0..4 {
            // Moves the next mapping by a page, so that all remainders come up.
            let _apart = Pages::new(BLOCK_SIZE);
            let pages = Pages::mapped(2 * HUGE_BYTES, MapFlags::PRIVATE).aligned();
            assert_eq!(pages.start().as_ptr().addr() % HUGE_BYTES, 0);
            assert_eq!(pages.len(), HUGE_BYTES);
            // SAFETY: `len` bytes are there, and nobody else knows them.
            unsafe { pages.start().as_ptr().write_bytes(1, pages.len()) };
        }
    }
}
