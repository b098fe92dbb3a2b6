//! A group that has come to rest: what its members have then, and windows that give their memory back.

use std::collections::BTreeSet;

use argosy_base::{EditSeq, KeyRange, SegmentNumber};
use argosy_device::Crash;

use super::Group;
use super::backup::Backup;
use crate::conformance::{STEPS_MAX, collect};

/// Most rounds that a group is left alone for.
const ROUNDS: usize = 400;

impl Group {
    /// Leaves the group alone, and has its backups rest once the primary does, if its engine ever does.
    pub(in crate::conformance::group) fn rest(&mut self) {
        self.primary.store.flush_and_mark();
        for _ in 0..ROUNDS {
            if self.primary.source.is_at_rest() {
                break;
            }
            self.round();
        }
        if !self.primary.source.is_at_rest() {
            return;
        }
        self.tally.met.rests += 1;
        let store = &self.primary.store;
        let (last, durable) = (store.last_lsn(), store.durable_lsn());
        assert_eq!(last, durable, "what rests is durable everywhere");
        for backup in &mut self.backups {
            backup.rest();
            let windows = self.primary.machine.windows();
            let mut slots = windows.iter().flat_map(|log| &log.slots);
            assert!(!slots.any(|slot| slot.is_allocated()), "the primary rests");
            let mut slots = backup.machine.windows().iter().flat_map(|log| &log.slots);
            assert!(!slots.any(|slot| slot.is_allocated()), "its backup rests");
        }
    }

    /// Steps all members until each of them has every edit, every flush and every level.
    fn settle(&mut self) {
        self.primary.store.flush_now();
        for _ in 0..STEPS_MAX {
            self.round();
            let store = &self.primary.store;
            let edit = store.edit();
            let is_behind = |backup: &Backup| backup.applied() < edit || backup.copy.is_building();
            let is_behind = self.backups.iter().any(is_behind);
            if !is_behind && self.flushes.is_empty() && store.background_pending() == 0 {
                return;
            }
        }
        panic!("the group does not come to rest");
    }

    /// All members end up with the same pairs. Backups that were shipped levels have the primary's levels. Backups that
    /// built their own levels show every acknowledged write.
    pub(in crate::conformance::group) fn levels_are_equal(&mut self) {
        self.settle();
        let store = &self.primary.store;
        let (edit, digest) = (store.edit(), store.stored().digest());
        for index in 0..self.backups.len() {
            let backup = &mut self.backups[index];
            if let Some(snapshot) = backup.copy.snapshot() {
                let shown = collect(snapshot.as_ref(), &KeyRange::all());
                let pairs = self.pairs_at(snapshot.lsn());
                let pairs = pairs.expect("a backup shows whole writes");
                assert!(
                    shown.into_iter().eq(pairs),
                    "what backup {index} has built shows what was written"
                );
                let (last, built) = (self.primary.store.durable_lsn(), snapshot.lsn());
                assert!(built >= last, "{last} is flushed, and it has built {built}");
                self.tally.met.built += 1;
                continue;
            }
            assert_eq!(backup.copy.edit(), edit, "backup {index} has all edits");
            let copy = backup.copy.stored();
            assert_eq!(copy.digest(), digest, "the levels of backup {index}");
            let stored = |number: &SegmentNumber| copy.holds(*number);
            let lost: BTreeSet<_> = copy.parts().into_iter().map(|part| part.number).collect();
            assert!(lost.iter().all(stored), "backup {index} holds its parts");
            backup.copy.forget_unnamed();
            assert!(!backup.copy.holds_unnamed(), "what no edit named is free");
        }
        assert!(edit > EditSeq(0), "there is an edit at least");
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
}
