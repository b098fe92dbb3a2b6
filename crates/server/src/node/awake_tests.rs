//! Regions of which few may be awake at one time: all are served, each in its turn.

use super::*;

#[test]
fn so_many_are_awake_as_there_are_permits() {
    let permits = Permits::new(2, false);
    let [a, b, c, d] = [1, 2, 3, 4].map(RegionId);
    assert!(permits.take(a) && permits.take(b) && permits.take(a));
    assert!(!permits.take(c) && !permits.take(d) && !permits.take(c));
    let (lacking, awake) = permits.to_choose_from();
    assert_eq!((lacking, awake), (2, vec![a, b]));
    let now = Instant::from_nanos(5);
    assert!(permits.begin_to_yield(a, now));
    assert_eq!(permits.to_choose_from(), (1, vec![b]));
    // Not before its backups know.
    assert_eq!(permits.told(a), None);
    permits.gave_back(a);
    assert!(!permits.begin_to_yield(a, now));
    assert_eq!(permits.told(a), Some(c));
    assert!(!permits.take(a), "it stands behind the others");
    assert!(permits.take(c));
    // What was given and is not needed goes on, too.
    permits.gave_back(b);
    assert_eq!(permits.told(b), Some(d));
    assert_eq!(permits.unused(c), None);
    assert_eq!(permits.unused(d), Some(a));
    assert_eq!(permits.held(), (2, 2));
    // Who cannot rest goes on.
    assert!(permits.begin_to_yield(c, now));
    let span = Duration::from_nanos(3);
    assert_eq!(permits.end_yielding(now, span), []);
    assert_eq!(permits.end_yielding(now + span, span), [c]);
    assert_eq!(permits.told(c), None);
    // One that writes again before its backups were told keeps it.
    permits.gave_back(c);
    assert!(permits.take(c));
    assert_eq!(permits.told(c), None);
}

#[test]
fn regions_that_cannot_rest_hold_up_nobody() {
    let permits = Permits::new(1, false);
    let [a, b, c] = [1, 2, 3].map(RegionId);
    assert!(permits.take(a) && !permits.take(b) && !permits.take(c));
    assert_eq!(permits.grant_beside(0), None);
    assert_eq!(permits.grant_beside(1), Some(b));
    assert_eq!(permits.grant_beside(1), None, "one beside each of them");
    assert!(permits.take(b));
    // It comes back, but goes to nobody while more are held than there are.
    permits.gave_back(b);
    assert_eq!(permits.told(b), None);
    assert_eq!(permits.grant_beside(1), Some(c));
    assert_eq!(permits.held(), (2, 2));
}

#[test]
fn what_was_taken_without_a_permit_counts() {
    let permits = Permits::new(1, false);
    let [a, b, c] = [1, 2, 3].map(RegionId);
    permits.take_anyway(a);
    permits.take_anyway(b);
    assert!(!permits.take(c));
    assert_eq!(permits.forget(a), None, "there is still no more than one");
    permits.gave_back(b);
    assert_eq!(permits.told(b), Some(c));
    assert_eq!(permits.held(), (1, 2));
}
