//! Histories with planted mistakes are found: a stale read, a lost write, an increment that is done twice or lost.

use argosy_history::counter::Increment;
use argosy_history::register::{Access, AccessKind, Before, Bound, Saw, When};

use super::{History, judge};

fn set(op: u32, began: u64, ended: impl Into<Option<u64>>) -> Access {
    let ended = ended.into();
    let saw = ended.map(|_| Saw {
        applied: true,
        before: Before::Untold,
    });
    let kind = AccessKind::Write {
        to: Bound::To(op),
        condition: When::Always,
        saw,
    };
    Access {
        op,
        kind,
        began,
        ended,
    }
}

fn read(op: u32, saw: Bound, began: u64, ended: u64) -> Access {
    Access {
        op,
        kind: AccessKind::Read(saw),
        began,
        ended: Some(ended),
    }
}

/// The faults of a cluster of two keys, of which the first is fine.
fn faults(accesses: Vec<Access>) -> Vec<(usize, String)> {
    let fine = vec![set(1, 1, 2), read(2, Bound::To(1), 3, 4)];
    let histories = [History::Register(fine), History::Register(accesses)];
    let faults = judge(&histories).into_iter();
    faults.map(|fault| (fault.key, fault.words)).collect()
}

#[test]
fn a_stale_read_is_found() {
    let old_again = vec![
        set(1, 1, 2),
        set(2, 3, 4),
        read(3, Bound::To(2), 5, 6),
        read(4, Bound::To(1), 7, 8),
    ];
    let found = faults(old_again);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, 1);
    assert!(found[0].1.contains("request 4"), "{found:?}");
}

#[test]
fn a_lost_write_is_found() {
    let lost = vec![set(1, 1, 2), read(2, Bound::Absent, 5, 6)];
    assert!(faults(lost)[0].1.contains("request 2"));
    // What was not acknowledged may be there, or not.
    assert!(faults(vec![set(1, 1, None), read(2, Bound::Absent, 5, 6)]).is_empty());
    assert!(faults(vec![set(1, 1, None), read(2, Bound::To(1), 5, 6)]).is_empty());
}

#[test]
fn what_was_seen_of_an_unknown_write_stays() {
    let gone = vec![
        set(1, 1, 2),
        set(2, 3, None),
        read(3, Bound::To(2), 5, 6),
        read(4, Bound::To(1), 7, 8),
    ];
    assert!(faults(gone)[0].1.contains("request 4"));
}

#[test]
fn wrong_increments_are_found() {
    let told = |op, began, sum| Increment {
        op,
        began,
        told: Some((began + 1, sum)),
    };
    let faults = |increments| judge(&[History::Counter(increments)]).len();
    assert_eq!(faults(vec![told(1, 1, 1), told(2, 3, 2)]), 0);
    assert_eq!(faults(vec![told(1, 1, 1), told(2, 3, 1)]), 1, "lost");
    assert_eq!(faults(vec![told(1, 1, 1), told(2, 3, 3)]), 1, "done twice");
}
