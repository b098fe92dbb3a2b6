//! The program's allocator, and how soon it gives back what is freed.

#![expect(
    unsafe_code,
    reason = "an option of a C library, and what runs before it"
)]

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, Ordering};

use mimalloc::MiMalloc;
use nix::sys::prctl;

/// Leaves and values of the cache, and pairs on their way to clients, come and go in sizes of some hundred
/// bytes to some thousand, from several threads. The C library's allocator takes a tenth to a fifth of a
/// read's time for that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs before the allocator sets itself up, by the convention of ELF programs.
#[used]
// SAFETY: the section holds pointers to functions that take what `main` does, or nothing.
#[unsafe(link_section = ".preinit_array")]
static BEFORE_ALL: extern "C" fn() = begin_without_huge_pages;

/// Whether huge pages were off already when the process began: it was told to have none.
static WERE_OFF: AtomicBool = AtomicBool::new(true);

/// What is allocated before the budget is known would lie in huge pages, of which 5 MiB stay unused. Whoever
/// turned them off before has decided.
extern "C" fn begin_without_huge_pages() {
    if prctl::get_thp_disable() == Ok(false) && prctl::set_thp_disable(true).is_ok() {
        WERE_OFF.store(false, Ordering::Relaxed);
    }
}

/// Huge pages from now on, unless whoever started the process has turned them off, for it or for its allocator.
pub(super) fn have_huge_pages() {
    // SAFETY: reads a number, which nobody sets.
    let allowed = unsafe { mi_option_get(ALLOW_HUGE_PAGES) } != 0;
    if allowed && !WERE_OFF.load(Ordering::Relaxed) {
        let _ = prctl::set_thp_disable(false);
    }
}

/// How long what is freed is kept for the next where it is to be given back soon, in milliseconds.
const KEPT_MILLIS: c_long = 10;
/// `mi_option_purge_delay` of `mimalloc.h`.
const PURGE_DELAY: c_int = 15;
/// `mi_option_allow_thp`: 0 where the environment says that there are to be no huge pages.
const ALLOW_HUGE_PAGES: c_int = 43;

// SAFETY: as `mimalloc.h` declares it; the library is linked for the allocator above.
unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_option_get(option: c_int) -> c_long;
    fn mi_collect(force: bool);
}

/// Gives back what this thread has allocated and others have freed, which the allocator finds only when the thread
/// asks for memory of that very size.
pub(super) fn trim() {
    // SAFETY: walks this thread's own pages.
    unsafe { mi_collect(true) };
}

/// From now on.
pub(super) fn give_back_soon() {
    // SAFETY: sets a number that is read when something is freed, and that nobody else sets.
    unsafe { mi_option_set(PURGE_DELAY, KEPT_MILLIS) };
}
