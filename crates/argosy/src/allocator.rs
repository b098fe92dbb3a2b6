//! The program's allocator, and how soon it gives back what is freed.

#![expect(unsafe_code, reason = "an option of a C library")]

use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

/// Leaves and values of the cache, and pairs on their way to clients, come and go in sizes of some hundred
/// bytes to some thousand, from several threads. The C library's allocator takes a tenth to a fifth of a
/// read's time for that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How long what is freed is kept for the next where it is to be given back soon, in milliseconds.
const KEPT_MILLIS: c_long = 10;
/// `mi_option_purge_delay` of `mimalloc.h`.
const PURGE_DELAY: c_int = 15;

// SAFETY: as `mimalloc.h` declares it; the library is linked for the allocator above.
unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_collect(force: bool);
}

/// Gives back what this thread has allocated and others have freed, which the allocator finds only when the thread
/// asks for memory of that very size.
pub(super) fn collect() {
    // SAFETY: walks this thread's own pages.
    unsafe { mi_collect(true) };
}

/// From now on.
pub(super) fn give_back_soon() {
    // SAFETY: sets a number that is read when something is freed, and that nobody else sets.
    unsafe { mi_option_set(PURGE_DELAY, KEPT_MILLIS) };
}
