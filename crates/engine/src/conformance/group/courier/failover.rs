//! Members fall. A backup takes over, and the member that was the primary comes back as a backup; or the group ends,
//! and the copy of one member is left.
//!
//! The primary that was may have more than the others: records that were written and not confirmed, edits that nobody
//! else has, segments that only these name. None of it is part of the history that goes on. The copy gets the
//! checkpoint of the new primary, and of that only what it lacks.

use std::sync::Arc;

use argosy_base::{Lsn, Position};
use argosy_device::Crash;

use super::backup::Backup;
use super::history::Draft;
use super::primary::{self, Fall, Primary, Recorder};
use super::{Group, Pairs, adopting};
use crate::conformance::Machine;
use crate::{Follower, Store, WriteOptions};

/// What a primary that has fallen does before a backup takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conformance::group) enum Between {
    /// Nothing.
    Nothing,
    /// It is promoted again, and falls before anybody hears of it: nobody gets its cut.
    Unheard,
    /// It serves by itself for a while, in an epoch without backups, and gives out the numbers that the next primary
    /// gives out, too.
    Alone,
}

/// A copy that can be promoted, and what it has to hold.
pub(in crate::conformance::group) struct Survivor {
    pub(in crate::conformance::group) copy: Box<dyn Follower>,
    pub(in crate::conformance::group) pairs: Pairs,
}

impl Group {
    /// The backup `index` takes over, in the next epoch. The primary that was is a backup of that number from now on.
    /// All are caught up.
    pub(in crate::conformance::group) fn fail_over(&mut self, index: usize, fall: Fall) {
        self.fail_over_after(index, fall, Between::Nothing);
    }

    /// The same; `between` comes before it.
    pub(in crate::conformance::group) fn fail_over_after(
        &mut self,
        index: usize,
        fall: Fall,
        between: Between,
    ) {
        let store = &self.primary.store;
        let (committed, branched) = (store.committed_lsn(), store.edit());
        for backup in &mut self.backups {
            backup.detach();
            // It may have what the one that is promoted has not.
            backup.allow_less();
        }
        let Backup { machine, copy, .. } = self.backups.remove(index);
        let Position { edit, lsn, .. } = copy.position();
        assert!(
            lsn >= committed,
            "{committed} was confirmed, {lsn} is there"
        );
        self.tally.met.branched += u64::from(branched > edit);
        // What lies behind `lsn` was not confirmed, and is not part of the history.
        let pairs = self.found_pairs(lsn);
        self.tally.met.dropped += self.history.end_at(lsn, pairs);
        self.tally.met.busy += u64::from(self.primary.store.background_pending() > 0);
        let mut fallen = self.primary.fall(fall);
        if between != Between::Nothing {
            fallen = self.lead_in_vain(fallen, fall, between);
        }
        let old = self.begin(machine, copy);
        self.backups.insert(index, Backup::new(old, fallen));
        let cut = self.primary.store.edit();
        assert!(cut > branched, "behind the cut {cut} is below {branched}");
        for backup in 0..self.backups.len() {
            self.attach(backup);
            // All of it is durable where it was cut, and a checkpoint states it.
            let at = self.backups[backup].copy.position().lsn;
            assert!(at >= lsn, "{lsn} was found, and backup {backup} is at {at}");
        }
    }

    /// The copy of the primary is a primary once more, and falls again. Returns its copy.
    fn lead_in_vain(
        &mut self,
        copy: Box<dyn Follower>,
        fall: Fall,
        between: Between,
    ) -> Box<dyn Follower> {
        self.primary.epoch = self.primary.epoch.next();
        let is_alone = between == Between::Alone;
        let recorder = Arc::new(Recorder::default());
        let recorder = Some(&recorder).filter(|_| !is_alone);
        let store = primary::promote(copy, self.primary.epoch, recorder).store;
        for _ in 0..100 {
            let draft = Draft::random(&mut self.choices);
            // Where nobody hears of it, it has no log to write to.
            let _ = store.write(&draft.batch, WriteOptions::default());
            let step = store.step(self.tick());
            step.expect("a device without faults");
        }
        primary::end(&mut self.primary.machine, &store, fall)
    }

    /// `copy` is the primary from now on, in the next epoch. Returns the machine of the one that was.
    fn begin(&mut self, machine: Machine, copy: Box<dyn Follower>) -> Machine {
        let next = Primary::new(machine, copy, self.primary.epoch.next());
        // What it has is everywhere once all are caught up.
        let last = next.store.last_lsn();
        next.recorder.heard(|heard| heard.last = last);
        self.flushes.clear();
        std::mem::replace(&mut self.primary, next).machine
    }

    /// The store that serves now, for a case that goes on with it when it does not.
    pub(in crate::conformance::group) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.primary.store)
    }

    /// The primary works on its own: what it makes durable, builds and commits comes to no backup.
    pub(in crate::conformance::group) fn work_alone(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step_alone();
        }
    }

    /// The primary takes `count` writes of which no backup hears, as long as it has room.
    pub(in crate::conformance::group) fn write_alone(&mut self, count: u64) {
        for _ in 0..count {
            let draft = Draft::random(&mut self.choices);
            if let Some(lsns) = self.primary.write(&draft.batch) {
                self.history.push(draft, lsns);
            }
        }
    }

    /// The primary is gone for good. Returns the copy of a backup, which was killed or has taken its windows back.
    pub(in crate::conformance::group) fn lose_primary(
        mut self,
        index: usize,
        killed: bool,
    ) -> Survivor {
        self.primary.machine.end(Crash::Kill);
        let last = self.primary.store.committed_lsn();
        if !killed {
            self.detach(index);
        }
        let Backup {
            mut machine, copy, ..
        } = self.backups.swap_remove(index);
        let copy = match killed {
            true => {
                machine.end(Crash::Kill);
                drop(copy);
                machine.open()
            }
            false => copy,
        };
        self.survivor(copy, last, "confirmed")
    }

    /// The primary is killed, and opened again.
    pub(in crate::conformance::group) fn restart_primary(mut self) -> Survivor {
        let last = self.primary.store.committed_lsn();
        let copy = self.primary.reopen(Crash::Kill);
        self.survivor(copy, last, "confirmed")
    }

    /// All lose power. Returns the copy of a backup, or of the primary.
    pub(in crate::conformance::group) fn lose_power(mut self, backup: Option<usize>) -> Survivor {
        let last = self.primary.store.durable_lsn();
        let copy = match backup {
            None => self.primary.reopen(Crash::PowerLoss),
            Some(index) => {
                let Backup {
                    mut machine, copy, ..
                } = self.backups.swap_remove(index);
                machine.end(Crash::PowerLoss);
                drop(copy);
                machine.open()
            }
        };
        self.survivor(copy, last, "durable everywhere")
    }

    /// The primary loses its power, and the backups are killed. It is opened and adopts what the backups have that have
    /// more, one after the other in this `order`. Returns its copy.
    pub(in crate::conformance::group) fn adopt(mut self, order: [usize; 2]) -> Survivor {
        let last = self.primary.store.committed_lsn();
        let mut adopted = false;
        let mut own = self.primary.reopen(Crash::PowerLoss);
        for index in order {
            let Backup { machine, copy, .. } = &mut self.backups[index];
            machine.end(Crash::Kill);
            *copy = machine.open();
            if copy.position().lsn > own.position().lsn {
                adopting::adopt_from(own.as_mut(), copy.as_ref());
                adopted = true;
            }
        }
        assert!(adopted, "what was not flushed is in windows");
        self.survivor(own, last, "confirmed by a member that was adopted from")
    }

    /// `copy`, which has to have everything up to `least`.
    fn survivor(&self, copy: Box<dyn Follower>, least: Lsn, what: &str) -> Survivor {
        let found = copy.position().lsn;
        assert!(found >= least, "{least} was {what}, and {found} is there");
        let pairs = self.found_pairs(found);
        Survivor { copy, pairs }
    }

    /// What the region held at `found`, which a copy has.
    fn found_pairs(&self, found: Lsn) -> Pairs {
        let pairs = self.pairs_at(found);
        pairs.unwrap_or_else(|| panic!("{found} is in the middle of a write"))
    }
}
