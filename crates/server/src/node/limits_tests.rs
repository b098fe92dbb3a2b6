//! When a slow backup is removed.

use argosy_base::LogId;

use super::*;

const LOG: LogSpec = LogSpec {
    id: LogId::FIRST,
    name: "log",
    slots: 4,
    window_bytes: 512 << 10,
    segment_windows: 4,
    slot_bytes: (512 << 10) + 4096,
};
const REMOVE_AFTER: Duration = Duration::from_millis(500);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[test]
fn at_the_limit_all_windows_but_one_wait() {
    let window = LOG.window_bytes as u64;
    let limit = [0, 1, 2, 3, 4].map(|windows| is_at_limit(windows * window, &LOG));
    assert_eq!(limit, [false, false, false, true, true]);
    assert!(!is_at_limit(3 * window - 4096, &LOG));
    let two = LogSpec { slots: 2, ..LOG };
    assert!(!is_at_limit(window / 2, &two) && is_at_limit(window, &two));
}

/// A backup that is at its limit for some of each ten milliseconds. After how many of them it is to be removed, within
/// ten seconds.
fn removed_after(at_limit: u64) -> Option<u64> {
    let mut of = AtLimit::default();
    (0..1000).find(|round| {
        of.note(true, at(round * 10));
        of.note(at_limit == 10, at(round * 10 + at_limit));
        of.is_long(at(round * 10 + 10), REMOVE_AFTER)
    })
}

#[test]
fn who_is_at_its_limit_for_most_of_the_time_is_removed() {
    let after = [10, 9, 8, 7, 6, 5, 1].map(removed_after);
    // With 7 of 10 ms there is one more in each ten.
    assert_eq!(
        after,
        [Some(49), Some(71), Some(124), Some(499), None, None, None]
    );
}

#[test]
fn a_pause_of_half_the_time_is_as_good_as_new() {
    let mut of = AtLimit::default();
    let look = |of: &mut AtLimit, is_at_limit, span: std::ops::Range<u64>| {
        span.step_by(10)
            .for_each(|now| of.note(is_at_limit, at(now)));
    };
    look(&mut of, true, 0..400);
    look(&mut of, false, 400..600);
    look(&mut of, true, 600..1100);
    assert!(!of.is_long(at(1099), REMOVE_AFTER));
    assert!(of.is_long(at(1100), REMOVE_AFTER));
    // However long it was: it is well when it has been for half of the patience.
    look(&mut of, true, 1100..9000);
    assert!(of.is_long(at(9000), REMOVE_AFTER));
    look(&mut of, false, 9000..9250);
    look(&mut of, true, 9250..9750);
    assert!(!of.is_long(at(9749), REMOVE_AFTER));
}

/// A server that was stopped itself has not seen what its backups have done.
#[test]
fn time_in_which_nobody_has_looked_does_not_count() {
    let mut of = AtLimit::default();
    of.note(true, at(0));
    of.note(true, at(5000));
    of.note(true, at(10_000));
    assert!(!of.is_long(at(10_099), REMOVE_AFTER));
    assert!(of.is_long(at(10_100), REMOVE_AFTER));
}

/// After how many tenths of a second a backup is to be removed, within ten seconds, that takes an edit in every
/// `every`th of them, where another one waits at once.
fn stuck_after(every: u64) -> Option<u64> {
    let mut of = Stuck::default();
    (0..100).find(|tenth| {
        let applied = EditSeq(tenth / every);
        let segment = None;
        of.note(Some(Untaken { applied, segment }), at(tenth * 100));
        of.is_long(at(tenth * 100), REMOVE_AFTER)
    })
}

#[test]
fn who_takes_no_edit_for_most_of_the_time_is_removed() {
    let after = [100, 20, 10, 5, 2, 1].map(stuck_after);
    assert_eq!(after, [Some(7), Some(7), Some(7), None, None, None]);
}

#[test]
fn who_has_taken_everything_is_not_stuck() {
    let mut of = Stuck::default();
    for tenth in 0..100 {
        of.note(None, at(tenth * 100));
        assert!(!of.is_long(at(tenth * 100), REMOVE_AFTER));
    }
}

/// A segment that waits counts although no edit does.
#[test]
fn who_takes_no_segment_is_stuck() {
    let mut of = Stuck::default();
    let mut note = |segment, millis| {
        let segment = Some(SegmentNumber(segment));
        let applied = EditSeq(1);
        of.note(Some(Untaken { applied, segment }), at(millis));
        of.is_long(at(millis), REMOVE_AFTER)
    };
    assert!((0..20).all(|tenth| !note(tenth, tenth * 100)));
    assert!((20..27).all(|tenth| !note(20, tenth * 100)));
    assert!(note(20, 2700));
}
