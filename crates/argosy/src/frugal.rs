//! Whether a process is frugal with memory, or takes more of it for less CPU: by its budget.
//!
//! - *Huge pages.* The allocator asks the kernel for them, and reads that come from memory then take a tenth
//!   less CPU. But a byte that is in use keeps 2 MiB, and a small budget has not many of these.
//! - *What is freed* the allocator keeps for the next, for a second. What merges and overwrites free in that
//!   time is a tenth of a small budget.
//! - *What other threads have freed* of a thread's memory the allocator finds only when that thread asks for some
//!   of the same size. The one that builds leaves, which others drive out, and those that read are made to look
//!   once a second.
//!
//! A process with less than [`BUDGET_MIN`] tells the kernel that it wants no huge pages, whatever its
//! allocator says, and the allocator to give back soon. The program begins without huge pages, and has them
//! when it knows that its budget is larger; unless whoever started it had turned them off.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::Allocator;

/// The least budget in bytes of a process that is not frugal. Below it, 10 to 30 MiB of huge pages are too many.
const BUDGET_MIN: u64 = 1 << 30;

/// The program's allocator.
static ALLOCATOR: OnceLock<Allocator> = OnceLock::new();

/// Whether this process is. Relaxed: nothing is ordered by it.
static FRUGAL: AtomicBool = AtomicBool::new(false);

/// Says how the allocator is told. Without it, it is not.
pub(crate) fn set_up(allocator: Allocator) {
    ALLOCATOR.get_or_init(|| allocator);
}

/// In a frugal process has the allocator give back what this thread has allocated and others have freed.
pub(crate) fn trim_allocator() {
    let frugal = FRUGAL.load(Ordering::Relaxed);
    if let Some(allocator) = ALLOCATOR.get().filter(|_| frugal) {
        (allocator.trim)();
    }
}

/// Decides for this process, which has `budget` bytes for what it keeps, and as for huge pages for those that
/// it starts.
pub(crate) fn decide(budget: u64) {
    if budget < BUDGET_MIN {
        be();
    } else {
        may_have_huge_pages();
        argosy_device::pages::ask_for_huge(true);
    }
}

/// This process, and those that it starts, may have huge pages; they decide for themselves.
pub(crate) fn may_have_huge_pages() {
    if let Some(allocator) = ALLOCATOR.get() {
        (allocator.have_huge_pages)();
    }
}

/// This process is frugal.
pub(crate) fn be() {
    FRUGAL.store(true, Ordering::Relaxed);
    // Where the kernel or a sandbox refuses, more is resident than is in use: no reason to stop.
    let _ = nix::sys::prctl::set_thp_disable(true);
    if let Some(allocator) = ALLOCATOR.get() {
        (allocator.give_back_soon)();
    }
}
