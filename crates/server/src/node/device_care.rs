//! What a server has to do with its device beside its regions: what other members fetch, the room that is left, copies
//! that are set aside.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::reading::FetchQueue;
use super::refilling::SetAsides;
use super::room::Rooms;

/// See the module documentation. Its locks are taken alone, behind all others.
pub(super) struct DeviceCare {
    /// What other members fetch.
    fetches: FetchQueue,
    /// What is known of the members' room.
    rooms: Mutex<Rooms>,
    set_asides: Mutex<SetAsides>,
    /// It was full when it was looked at last.
    was_full: AtomicBool,
    /// It had failed when it was looked at last.
    had_failed: AtomicBool,
}

impl DeviceCare {
    /// That of a device with `set_asides`.
    pub(super) fn new(set_asides: SetAsides) -> Self {
        Self {
            fetches: FetchQueue::default(),
            rooms: Mutex::default(),
            set_asides: Mutex::new(set_asides),
            was_full: AtomicBool::new(false),
            had_failed: AtomicBool::new(false),
        }
    }

    /// What other members fetch.
    pub(super) const fn fetches(&self) -> &FetchQueue {
        &self.fetches
    }

    /// What is known of the members' room.
    pub(super) fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock()
    }

    /// What is set aside.
    pub(super) fn set_asides(&self) -> MutexGuard<'_, SetAsides> {
        self.set_asides.lock()
    }

    /// Whether it was full at the last look; it `is_full` now.
    pub(super) fn look_whether_full(&self, is_full: bool) -> bool {
        self.was_full.swap(is_full, Ordering::Relaxed)
    }

    /// Whether it has failed since the last look; it `has_failed` now.
    pub(super) fn has_just_failed(&self, has_failed: bool) -> bool {
        !self.had_failed.swap(has_failed, Ordering::Relaxed) && has_failed
    }
}
