//! The end of a group: of its members one is left, or one is looked at.

use argosy_base::Lsn;
use argosy_device::Crash;

use super::{Backup, Group, Pairs, adopting};
use crate::Follower;

impl Group {
    /// The primary is gone for good. Returns the copy of a backup, which was killed or has taken its windows back.
    pub(in crate::conformance::group) fn lose_primary(
        mut self,
        index: usize,
        killed: bool,
    ) -> Survivor {
        self.machine.end(Crash::Kill);
        let last = self.store.committed_lsn();
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
        let last = self.store.committed_lsn();
        let copy = self.reopen_primary(Crash::Kill);
        self.survivor(copy, last, "confirmed")
    }

    /// All lose power. Returns the copy of a backup, or of the primary.
    pub(in crate::conformance::group) fn lose_power(mut self, backup: Option<usize>) -> Survivor {
        let last = self.store.durable_lsn();
        let copy = match backup {
            None => self.reopen_primary(Crash::PowerLoss),
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
        let last = self.store.committed_lsn();
        let mut adopted = false;
        let mut own = self.reopen_primary(Crash::PowerLoss);
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

    fn reopen_primary(&mut self, crash: Crash) -> Box<dyn Follower> {
        self.machine.end(crash);
        self.machine.open()
    }

    /// `copy`, which has to have everything up to `least`.
    fn survivor(&self, copy: Box<dyn Follower>, least: Lsn, what: &str) -> Survivor {
        let found = copy.position().lsn;
        assert!(found >= least, "{least} was {what}, and {found} is there");
        let pairs = self.pairs_at(found);
        let pairs = pairs.unwrap_or_else(|| panic!("{found} is in the middle of a write"));
        Survivor { copy, pairs }
    }
}

/// A copy that can be promoted, and what it has to hold.
pub(in crate::conformance::group) struct Survivor {
    pub(in crate::conformance::group) copy: Box<dyn Follower>,
    pub(in crate::conformance::group) pairs: Pairs,
}
