//! Asks the processor for memory that will soon be read, so that several waits for it overlap.

use std::ptr;

/// Bytes that the processor fetches at a time.
const LINE_BYTES: usize = 64;

/// Has all of `it` fetched.
#[inline]
pub fn prefetch<T>(it: &T) {
    let start = ptr::from_ref(it).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
        prefetch_at(start.wrapping_add(at));
    }
}

/// Has the line at `at` fetched, which may lead anywhere: nothing is read.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
pub fn prefetch_at(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and cannot fail, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
