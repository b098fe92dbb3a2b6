//! Windows that rest where nothing is written, and wake where something is.

use super::{Backup, Group};

/// Most rounds that a group is left alone for.
const ROUNDS: usize = 400;

impl Backup {
    /// Gives its windows memory again, if they rest.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.rests) {
            self.copy.wake().expect("there is memory");
            let mut slots = self.machine.windows().iter().flat_map(|log| &log.slots);
            assert!(slots.all(|slot| slot.is_allocated()), "they are awake");
        }
    }
}

impl Group {
    /// Leaves the group alone, and has its backups rest once the primary does, if its engine ever does.
    pub(in crate::conformance::group) fn rest(&mut self) {
        self.store.flush_and_mark();
        for _ in 0..ROUNDS {
            if self.source.is_at_rest() {
                break;
            }
            self.round();
        }
        if !self.source.is_at_rest() {
            return;
        }
        self.tally.met.rests += 1;
        let (last, durable) = (self.store.last_lsn(), self.store.durable_lsn());
        assert_eq!(last, durable, "what rests is durable everywhere");
        for backup in &mut self.backups {
            backup.rests = backup.copy.rest();
            assert!(backup.rests, "a backup has all that is durable everywhere");
            let mut slots = self.machine.windows().iter().flat_map(|log| &log.slots);
            assert!(!slots.any(|slot| slot.is_allocated()), "the primary rests");
            let mut slots = backup.machine.windows().iter().flat_map(|log| &log.slots);
            assert!(!slots.any(|slot| slot.is_allocated()), "its backup rests");
        }
    }
}
