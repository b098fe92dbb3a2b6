//! What an engine does about a device that is full, here or at a member ([`space`](crate::work::space)): it looks how
//! much room there is, turns writers away, and freezes the active memtable for a pass over everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::Instant;
use argosy_device::Room;
use parking_lot::Mutex;

use super::background::Ground;
use crate::work::stats::Counts;

/// Least time between two passes, where logs are flushed more seldom.
const PASSES_APART_MIN: Duration = Duration::from_secs(1);

/// What tells whether a device of the region is full, and how much of it is taken for nothing.
#[derive(Default)]
pub(super) struct RegionSpace {
    /// The least room that another member has, if there are any.
    members: Mutex<Option<Room>>,
    /// Bytes of values that levels point to and newer entries shadow, as far as known.
    shadowed_bytes: AtomicU64,
}

impl RegionSpace {
    /// Bytes of values that levels point to and newer entries shadow, as far as known.
    pub(super) fn shadowed_bytes(&self) -> u64 {
        self.shadowed_bytes.load(Ordering::Relaxed)
    }

    /// Takes note of how many bytes of values levels point to and newer entries shadow.
    pub(super) fn set_shadowed_bytes(&self, bytes: u64) {
        self.shadowed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Takes note of the least room that another member has.
    pub(super) fn set_members(&self, room: Option<Room>) {
        *self.members.lock() = room;
    }

    fn members(&self) -> Option<Room> {
        *self.members.lock()
    }

    /// Looks how much room there is, and begins what may make some.
    pub(super) fn look(&self, at: &mut Ground<'_>, now: Instant) {
        let own = at.storage.store().room();
        if own.is_full() && gives_up_cut_segments(at) {
            // Writers are not turned away before that has ended.
            return;
        }
        let members = self.members();
        let full = own.is_full() || members.is_some_and(|room| room.is_full());
        let least = members.filter(|room| room.free < own.free);
        if at.jobs.note_room(now, least.unwrap_or(own), full) {
            at.lsm.shown.marks().set_full(full);
        }
        at.jobs.note_applied(at.lsm.history.edits().everywhere());
        let interval = at.lsm.settings.logs.flush_interval.min(PASSES_APART_MIN);
        if full
            && at
                .jobs
                .wants_pass(now, interval, at.lsm.lock().frozen_count() > 0)
            && at.lsm.freeze_now()
        {
            at.jobs.pass_begun(now);
        }
    }
}

/// On a full device: gives up what an opening has cut off and kept. Whether that is under way.
fn gives_up_cut_segments(at: &mut Ground<'_>) -> bool {
    let (store, region) = (Arc::clone(at.storage.store()), at.storage.region());
    let cut = at.storage.kept_cut();
    let given_up = cut.give_up(&store, region) as u64;
    Counts::add(&at.lsm.counts.cut_segments_given_up, given_up);
    cut.are_leaving()
}
