//! Memory in whole pages, from the system and back to it at once.
//!
//! An allocator keeps what is freed for a while, in case that somebody asks for as much again. Of what is
//! large and comes and goes, a memtable or the buffers of a merge, that may be a good part of a
//! memory budget that nobody uses and everybody pays for. So these are asked of the system itself.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use argosy_base::limits::BLOCK_SIZE;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

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
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
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
    use super::*;

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
}
