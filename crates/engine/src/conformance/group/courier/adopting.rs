//! A primary that opens and takes over what a backup has.

use std::sync::Arc;

use crate::conformance::STEPS_MAX;
use crate::{CopyError, CopyEvent, Follower};

/// Has `own` take over what `other` has.
pub(super) fn adopt_from(own: &mut dyn Follower, other: &dyn Follower) {
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
