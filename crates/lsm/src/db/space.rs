//! What an engine does about a device that is full, here or at a member ([`space`](crate::work::space)): it looks how
//! much room there is, turns writers away, and freezes the active memtable for a pass over everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use argosy_base::{EditSeq, Instant};

use super::Lsm;
use super::background::Background;
use crate::work::stats::Counts;

/// Least time between two passes, where logs are flushed more seldom.
const PASSES_APART_MIN: Duration = Duration::from_secs(1);

impl Background {
    /// On a full device: gives up what an opening has cut off and kept. Whether that is under way.
    fn gives_up_cut_segments(&mut self, lsm: &Lsm) -> bool {
        let (store, region) = (Arc::clone(self.storage.store()), self.storage.region());
        let cut = self.storage.kept_cut();
        let given_up = cut.give_up(&store, region) as u64;
        Counts::add(&lsm.counts.cut_segments_given_up, given_up);
        cut.are_leaving()
    }

    /// Looks how much room there is, and begins what may make some.
    pub(super) fn look_for_space(&mut self, lsm: &Lsm, now: Instant) {
        let own = self.storage.store().room();
        if own.is_full() && self.gives_up_cut_segments(lsm) {
            // Writers are not turned away before that has ended.
            return;
        }
        let members = lsm.members_room();
        let full = own.is_full() || members.is_some_and(|room| room.is_full());
        let least = members.filter(|room| room.free < own.free);
        if self.jobs.note_room(now, least.unwrap_or(own), full) {
            lsm.set_full(full);
        }
        let everywhere = lsm.edits_everywhere.load(Ordering::Acquire);
        self.jobs.note_applied(EditSeq(everywhere));
        let interval = lsm.settings.flush_interval.min(PASSES_APART_MIN);
        if full
            && self
                .jobs
                .wants_pass(now, interval, lsm.lock().frozen_count() > 0)
            && lsm.freeze_now()
        {
            self.jobs.pass_begun(now);
        }
    }
}
