//! Writes that one process was handed one after the other take effect in that order.
//!
//! A *session* is one process's primary of one region: it appends every write that a client hands
//! it to the region's log before it looks at the next. So if a write of a session is known to have
//! taken effect, all earlier ones of the session have, unless they were reported as not applied. Parts of a write over
//! several regions whose outcome stayed unknown are left out: one region may have refused its part.
//! [`prove`] turns this into ends: an unknown write ends at the latest when a later one of its
//! session was seen. A log that is recovered past a hole then breaks the history of a key.

use std::collections::BTreeMap;

use super::register::{Access, AccessKind, Before, Bound};

/// A write of a session: its object, and its index in that object's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    /// The object.
    pub object: usize,
    /// The index of the access.
    pub access: usize,
}

/// Gives ends to unknown writes of `session`, whose writes are in the order in which they were
/// handed over. `histories` are those of all objects. Returns how many.
pub(crate) fn prove(session: &[Handed], histories: &mut [Vec<Access>]) -> usize {
    let mut proven = 0;
    let mut seen_by: BTreeMap<usize, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut latest = u64::MAX;
    for handed in session.iter().rev() {
        let history = &mut histories[handed.object];
        let seen = seen_by
            .entry(handed.object)
            .or_insert_with(|| first_seen(history));
        let access = &mut history[handed.access];
        let AccessKind::Write { saw, .. } = access.kind else {
            continue;
        };
        let own = match saw {
            Some(saw) if saw.applied => access.ended,
            Some(_) => None,
            None => seen.get(&access.op).copied(),
        };
        latest = latest.min(own.unwrap_or(u64::MAX));
        if saw.is_none() && access.ended.is_none() && latest < u64::MAX {
            access.ended = Some(latest);
            proven += 1;
        }
    }
    proven
}

/// By when the value of each operation had been seen.
fn first_seen(history: &[Access]) -> BTreeMap<u32, u64> {
    let mut seen = BTreeMap::new();
    for access in history {
        let bound = match access.kind {
            AccessKind::Read(bound) => bound,
            AccessKind::Write { saw: Some(saw), .. } => match saw.before {
                Before::Was(bound) => bound,
                Before::Untold | Before::Existed(_) => continue,
            },
            AccessKind::Write { saw: None, .. } | AccessKind::Exists(_) | AccessKind::Void => {
                continue;
            }
        };
        if let (Bound::To(op), Some(ended)) = (bound, access.ended) {
            let first = seen.entry(op).or_insert(ended);
            *first = ended.min(*first);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::register::{Saw, When, check};
    use super::*;

    fn write(op: u32, began: u64, ended: Option<u64>) -> Access {
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

    fn read(saw: Bound, began: u64) -> Access {
        Access {
            op: 0,
            kind: AccessKind::Read(saw),
            began,
            ended: Some(began + 1),
        }
    }

    /// Two objects, two unknown writes handed over in the order of the objects, two reads.
    fn histories(saw: [Bound; 2]) -> Vec<Vec<Access>> {
        vec![
            vec![write(1, 1, None), read(saw[0], 10)],
            vec![write(2, 2, None), read(saw[1], 20)],
        ]
    }

    const SESSION: [Handed; 2] = [
        Handed {
            object: 0,
            access: 0,
        },
        Handed {
            object: 1,
            access: 0,
        },
    ];

    fn possible(histories: &[Vec<Access>]) -> bool {
        histories
            .iter()
            .all(|history| check(Bound::Absent, history).is_ok())
    }

    #[test]
    fn a_hole_is_found_once_what_is_behind_it_was_seen() {
        let mut hole = histories([Bound::Absent, Bound::To(2)]);
        assert!(possible(&hole), "each object for itself is in order");
        assert_eq!(prove(&SESSION, &mut hole), 2);
        assert!(
            possible(&hole),
            "the read of the first came before the proof"
        );
        hole[0].push(read(Bound::Absent, 30));
        assert!(!possible(&hole));
    }

    #[test]
    fn a_prefix_is_fine() {
        for saw in [
            [Bound::Absent, Bound::Absent],
            [Bound::To(1), Bound::Absent],
        ] {
            let mut prefix = histories(saw);
            prove(&SESSION, &mut prefix);
            prefix[0].push(read(saw[0], 30));
            prefix[1].push(read(saw[1], 40));
            assert!(possible(&prefix));
        }
    }

    #[test]
    fn an_answer_proves_what_was_handed_over_before() {
        let mut all = vec![vec![write(1, 1, None)], vec![write(2, 2, Some(5))]];
        assert_eq!(prove(&SESSION, &mut all), 1);
        assert_eq!(all[0][0].ended, Some(5));
    }
}
