//! A backup takes over, and the member that was the primary comes back as a backup.
//!
//! The primary that was may have more than the others: records that were written and not confirmed, edits that nobody
//! else has, segments that only these name. None of it is part of the history that goes on. The copy gets the
//! checkpoint of the new primary, and of that only what it lacks.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{EditSeq, Instant, Lsn, Position, SegmentNumber, SegmentPart};
use argosy_device::Crash;

use super::{Backup, Group, Recorder, Stage, promote};
use crate::conformance::{Machine, STEPS_MAX};
use crate::stored::StoredPart;
use crate::{Follower, Store, Stored, WriteOptions};

/// How a primary comes to serve no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conformance::group) enum Fall {
    /// It lives, and becomes a backup at once.
    Demoted,
    /// Its process is killed. Its windows survive.
    Killed,
    /// It loses its power, and its windows.
    PowerLost,
    /// Its device fails at a write or sync after so many more while it is demoted, and its process ends.
    DeviceFailed(u64),
}

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
        let (committed, branched) = (self.store.committed_lsn(), self.store.edit());
        for backup in 0..self.backups.len() {
            self.detach(backup);
            // It may have what the one that is promoted has not.
            self.backups[backup].stood = Lsn(0);
        }
        let Backup { machine, copy, .. } = self.backups.remove(index);
        let Position { edit, lsn, .. } = copy.position();
        assert!(
            lsn >= committed,
            "{committed} was confirmed, {lsn} is there"
        );
        self.tally.met.branched += u64::from(branched > edit);
        self.forget_behind(lsn);
        let mut old = std::mem::replace(&mut self.machine, machine);
        self.tally.met.busy += u64::from(self.store.background_pending() > 0);
        let mut fallen = end(&mut old, &self.store, fall);
        if between != Between::Nothing {
            fallen = self.lead_in_vain(&mut old, fallen, fall, between);
        }
        self.backups.insert(index, Backup::new(old, fallen));
        self.begin(copy);
        let cut = self.store.edit();
        assert!(cut > branched, "behind the cut {cut} is below {branched}");
        for backup in 0..self.backups.len() {
            self.attach(backup);
            // All of it is durable where it was cut, and a checkpoint states it.
            let at = self.backups[backup].copy.position().lsn;
            assert!(at >= lsn, "{lsn} was found, and backup {backup} is at {at}");
        }
    }

    /// What lies behind `found` was not confirmed, and is not part of the history.
    fn forget_behind(&mut self, found: Lsn) {
        let pairs = self.pairs_at(found);
        self.pairs = pairs.unwrap_or_else(|| panic!("{found} is in the middle of a write"));
        let before = self.history.len();
        self.history.retain(|write| write.lsn <= found);
        self.tally.met.dropped += (before - self.history.len()) as u64;
    }

    /// `copy` is a primary once more, and falls again. Returns its copy.
    fn lead_in_vain(
        &mut self,
        machine: &mut Machine,
        copy: Box<dyn Follower>,
        fall: Fall,
        between: Between,
    ) -> Box<dyn Follower> {
        self.epoch = self.epoch.next();
        let is_alone = between == Between::Alone;
        let recorder = Arc::new(Recorder::default());
        let store = promote(copy, self.epoch, Some(&recorder).filter(|_| !is_alone)).store;
        for _ in 0..100 {
            let (batch, _) = self.some_write();
            // Where nobody hears of it, it has no log to write to.
            let _ = store.write(&batch, WriteOptions::default());
            self.now += super::ROUND_NANOS;
            let step = store.step(Instant::from_nanos(self.now));
            step.expect("a device without faults");
        }
        end(machine, &store, fall)
    }

    /// `copy` is the primary from now on, in the next epoch.
    fn begin(&mut self, copy: Box<dyn Follower>) {
        self.epoch = self.epoch.next();
        self.recorder = Arc::new(Recorder::default());
        let promoted = promote(copy, self.epoch, Some(&self.recorder));
        self.store = promoted.store;
        self.source = promoted.source.expect("a store that can be copied");
        self.flushes.clear();
        // What it has is everywhere once all are caught up.
        let last = self.store.last_lsn();
        self.recorder.heard(|heard| heard.last = last);
    }

    /// The store that serves now, for a case that goes on with it when it does not.
    pub(in crate::conformance::group) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Backups have nothing in use but what belongs to them: as much as when they are opened anew. The group has come
    /// to rest.
    pub(in crate::conformance::group) fn keeps_nothing_else(&mut self) {
        for index in 0..self.backups.len() {
            let Backup {
                mut machine,
                mut copy,
                ..
            } = self.backups.remove(index);
            for _ in 0..STEPS_MAX {
                copy.step().expect("a device without faults");
                if copy.is_idle() {
                    break;
                }
            }
            let used = machine.used();
            machine.end(Crash::Kill);
            drop(copy);
            let copy = machine.open();
            assert_eq!(
                used,
                machine.used(),
                "segments that backup {index} has in use"
            );
            self.backups.insert(index, Backup::new(machine, copy));
            self.attach(index);
        }
    }

    /// The primary works on its own: what it makes durable, builds and commits comes to no backup.
    pub(in crate::conformance::group) fn work_alone(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step_alone();
        }
    }

    /// The primary takes `count` writes of which no backup hears.
    pub(in crate::conformance::group) fn write_alone(&mut self, count: u64) {
        for _ in 0..count {
            self.write_unheard();
        }
    }

    /// The backup `index` is no member any more.
    pub(in crate::conformance::group) fn take_away(&mut self, index: usize) {
        let backup = self.backups.remove(index);
        self.away.push(backup);
        for (_, done) in &mut self.flushes {
            // Those behind it count one less.
            let moved = done.iter().filter(|member| **member != index);
            *done = moved
                .map(|member| member - usize::from(*member > index))
                .collect();
        }
        self.tell();
    }

    /// All that are away come back, and are caught up.
    pub(in crate::conformance::group) fn bring_back(&mut self) {
        for backup in std::mem::take(&mut self.away) {
            self.backups.push(backup);
            let index = self.backups.len() - 1;
            self.detach(index);
            self.backups[index].stood = Lsn(0);
            self.attach(index);
        }
    }
}

/// The store of `machine` serves no more. Returns its copy, which nobody has caught up.
fn end(machine: &mut Machine, store: &Arc<dyn Store>, fall: Fall) -> Box<dyn Follower> {
    let crash = match fall {
        Fall::Demoted => {
            let demoted = Arc::clone(store).demote(machine.renew_windows());
            return demoted.unwrap_or_else(|no| panic!("it is not demoted: {}", no.error));
        }
        Fall::DeviceFailed(after) => {
            machine.fail_after(after);
            // What it was to make durable fails, or it had nothing.
            match Arc::clone(store).demote(machine.renew_windows()) {
                Ok(copy) => drop(copy),
                Err(no) => assert!(!no.error.is_damage(), "{}", no.error),
            }
            Crash::PowerLoss
        }
        Fall::Killed => Crash::Kill,
        Fall::PowerLost => Crash::PowerLoss,
    };
    machine.end(crash);
    machine.open()
}

impl Backup {
    /// `copy`, which nobody has caught up.
    pub(super) fn new(machine: Machine, copy: Box<dyn Follower>) -> Self {
        Self {
            machine,
            copy,
            at: BTreeMap::new(),
            edits: Default::default(),
            applying: None,
            applied: EditSeq(0),
            stood: Lsn(0),
            ahead: Default::default(),
            stage: Stage::Detached,
            rests: false,
        }
    }
}

/// Makes sure that nothing was `fetched` of the finished segments that a copy `had` and that the primary `has`, too.
/// Returns how many these are.
pub(super) fn check_fetched(fetched: &[SegmentPart], had: &dyn Stored, has: &dyn Stored) -> u64 {
    let of_levels = |stored: &dyn Stored| -> BTreeMap<SegmentNumber, StoredPart> {
        let parts = stored.parts().into_iter();
        parts.map(|part| (part.number, part)).collect()
    };
    let (had, has) = (of_levels(had), of_levels(has));
    let mut spared = 0;
    for (number, part) in &has {
        let Some(here) = had.get(number).filter(|here| here.log == part.log) else {
            continue;
        };
        let is_whole = match part.log {
            Some(_) => here.len >= part.len,
            None => here.len == part.len,
        };
        if is_whole {
            let again = fetched.iter().find(|fetched| fetched.number == *number);
            assert!(again.is_none(), "{again:?} is here");
            spared += u64::from(part.log.is_none());
        }
    }
    spared
}
