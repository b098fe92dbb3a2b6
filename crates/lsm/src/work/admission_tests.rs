//! What is admitted, from debts alone.

use super::*;

const HALF: Share = Share(512);

fn runs(share: Share) -> Owed {
    Owed {
        runs: share,
        ..Owed::default()
    }
}

fn worked(bytes: u64) -> Worked {
    Worked {
        bytes,
        has_more: true,
    }
}

const IDLE: Worked = Worked {
    bytes: 0,
    has_more: false,
};

#[test]
fn a_share_is_how_far_it_has_come() {
    let share = |now| Share::of(now, 100, 200);
    assert_eq!([share(0), share(100)], [Share(0); 2]);
    assert_eq!(share(150), HALF);
    assert_eq!([share(200), share(300)], [Share::ALL, Share(2048)]);
    assert_eq!(share(u64::MAX), Share(2048));
    assert_eq!(Share::of(5, 6, 6), Share(0), "there is no way between them");
    assert_eq!(Share::of(6, 6, 6), Share::ALL);
    assert_eq!(Share::of(7, 9, 6), Share::ALL);
}

#[test]
fn the_more_is_owed_the_less_is_earned() {
    let earned = |share| credit(1 << 12, Share(share));
    assert_eq!([earned(0), earned(1024), earned(2048)], [16384, 128, 1]);
    assert_eq!(earned(73), 12_296, "between them on a line");
    let all: Vec<_> = (0..=2048).map(earned).collect();
    assert!(all.is_sorted_by(|more, less| more >= less));
}

/// Writes `bytes`, if that is admitted.
fn write(admission: &mut Admission, bytes: usize) -> Result<(), BusyReason> {
    admission.admit()?;
    admission.admitted(bytes);
    Ok(())
}

#[test]
fn without_debt_or_work_all_is_admitted() {
    let mut admission = Admission::default();
    assert_eq!(write(&mut admission, usize::MAX), Ok(()));
    assert!(!admission.worked(&Owed::default(), worked(0)));
    assert_eq!(write(&mut admission, usize::MAX), Ok(()));
    assert!(!admission.worked(&runs(HALF), IDLE));
    assert_eq!(write(&mut admission, usize::MAX), Ok(()));
}

#[test]
fn with_debt_work_pays_for_writes() {
    let mut admission = Admission::default();
    assert!(admission.worked(&runs(HALF), worked(0)), "a trickle");
    assert_eq!(write(&mut admission, 96), Ok(()));
    assert_eq!(
        write(&mut admission, 9000),
        Ok(()),
        "the last may be longer"
    );
    let none = Err(BusyReason::CompactionDebt);
    assert_eq!(write(&mut admission, 1), none);
    assert!(!admission.worked(&runs(HALF), worked(8000)), "3000 of 5000");
    assert_eq!(write(&mut admission, 1), none);
    assert!(admission.worked(&runs(HALF), worked(8000)));
    assert!(!admission.worked(&runs(HALF), worked(1 << 30)), "they came");
    assert_eq!(write(&mut admission, 2 << 20), Ok(()));
    assert_eq!(write(&mut admission, 1), none, "no more is kept");
    assert!(admission.worked(&runs(HALF), IDLE), "nothing is left to do");
    assert_eq!(write(&mut admission, 1), Ok(()));
    assert!(!admission.worked(&runs(HALF), worked(8000)));
    assert_eq!(
        write(&mut admission, 1),
        none,
        "what was taken is owed still"
    );
}

/// One that is not taken for another reason costs nothing, however often it comes.
#[test]
fn what_is_not_written_costs_nothing() {
    let mut admission = Admission::default();
    admission.worked(&runs(HALF), worked(0));
    assert!((0..1000).all(|_| admission.admit() == Ok(())));
    assert_eq!(write(&mut admission, 1), Ok(()));
}

#[test]
fn the_largest_debt_is_the_reason() {
    let mut owed = Owed {
        memtables: Share(3),
        runs: Share(700),
        space: Share(699),
    };
    let mut admission = Admission::default();
    admission.worked(&owed, worked(64));
    assert_eq!(admission.limited, Some(BusyReason::CompactionDebt));
    owed.space = Share(701);
    admission.worked(&owed, worked(64));
    assert_eq!(admission.limited, Some(BusyReason::SpaceDebt));
}

/// Space that becomes free in pieces, and merges between that free nothing: writers settle at what the work
/// allows, and none of their turns is far below the others.
#[test]
fn writers_settle_at_what_the_work_allows() {
    const WAY: u64 = 128 << 20;
    const STEP: u64 = 256 << 10;
    let mut admission = Admission::default();
    let (mut taken, mut freed, mut wrote) = (0, 0, 0);
    let mut turns = Vec::new();
    for step in 0..40_000_u64 {
        let owed = Owed {
            space: Share::of(taken, 0, WAY),
            ..Owed::default()
        };
        admission.worked(&owed, worked(STEP));
        let mut now = 0;
        while now < STEP && write(&mut admission, 1024).is_ok() {
            now += 1024;
        }
        // A byte in three that are worked off is free in the end; every fourth hundred frees nothing.
        let merges = step / 100 % 4 == 3;
        freed += if merges { 0 } else { STEP / 3 };
        taken += now;
        if step % 24 == 23 {
            taken = taken.saturating_sub(std::mem::take(&mut freed));
        }
        wrote += now;
        if step % 100 == 99 {
            turns.push(std::mem::take(&mut wrote));
        }
    }
    let settled = &turns[40..];
    let mean = settled.iter().sum::<u64>() / settled.len() as u64;
    let allowed = 100 * STEP / 4;
    assert!(mean.abs_diff(allowed) * 10 < allowed, "{mean} of {allowed}");
    let least = settled.iter().min().unwrap();
    assert!(least * 2 > mean, "{settled:?}");
    assert!(taken < WAY, "{taken}");
}
