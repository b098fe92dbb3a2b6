//! A primary that opens and takes over what a backup has.

use std::sync::Arc;

use argosy_device::Crash;

use super::{Backup, Group, Survivor};
use crate::conformance::STEPS_MAX;
use crate::{CopyError, CopyEvent, Follower};

impl Group {
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
                adopt_from(own.as_mut(), copy.as_ref());
                adopted = true;
            }
        }
        assert!(adopted, "what was not flushed is in windows");
        self.survivor(own, last, "confirmed by a member that was adopted from")
    }
}

/// Has `own` take over what `other` has.
fn adopt_from(own: &mut dyn Follower, other: &dyn Follower) {
    let (before, theirs) = (own.position(), other.position());
    let adopted = own.adopt(other.checkpoint().bytes);
    let adopted = adopted.expect("a checkpoint of the same engine");
    for round in 0.. {
        assert!(round < 100, "what is missing comes to an end");
        let missing = own.missing(&adopted).expect("a checkpoint");
        if missing.is_empty() {
            break;
        }
        for part in missing {
            let bytes = other.read(part).expect("what its checkpoint names");
            match own.put_part(part.number, part.from, &Arc::new(bytes)) {
                // What it points to comes later in the list.
                Ok(()) | Err(CopyError::Unplaced { .. }) => {}
                Err(error) => panic!("{part:?} was asked for: {error}"),
            }
        }
    }
    let seq = own.submit_adopted(&adopted);
    let applied = CopyEvent::EditApplied(seq.expect("nothing is missing"));
    let mut steps = (0..STEPS_MAX).map(|_| own.step().expect("a device without faults"));
    assert!(steps.any(|events| events.contains(&applied)), "it ends");
    let after = own.position();
    assert!(after.edit >= before.edit, "no edit is taken back");
    assert!(after.edit >= theirs.edit, "their edits are here");
    let least = before.lsn.max(theirs.lsn);
    assert!(after.lsn >= least, "{least} was held, and {} is", after.lsn);
}
