//! How readers learn of a region's time, in every order that the memory model allows: the LSN that they wait for
//! is one by which the time is told.
//!
//! `db/time/told.rs` is compiled here once more, over the atomics of the model checker `loom` instead of the
//! standard library's.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "some of the source's parts serve others, and lints look at them where they live"
)]

#[path = "../src/db/time"]
mod time {
    pub(crate) mod told;

    /// The twin of `src/db/time/sync.rs`.
    mod sync {
        pub(super) use loom::sync::Mutex;
        pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
        pub(super) use std::sync::PoisonError;
    }
}

use argosy_base::{Lsn, Moment};
use loom::sync::Arc;
use time::told::Told;

/// What the history tells, by which record.
const HISTORY: [(Moment, Lsn); 2] = [(Moment(10), Lsn(5)), (Moment(20), Lsn(6))];

/// The LSN by which `now` is told.
fn told_by(now: Moment) -> Lsn {
    let record = HISTORY.iter().find(|(time, _)| *time == now);
    record.map_or(Lsn(0), |(_, lsn)| *lsn)
}

/// The time goes on while somebody looks.
fn while_time_goes_on(look: impl Fn(&Told) + Copy + Send + Sync + 'static) {
    loom::model(move || {
        let told = Arc::new(Told::default());
        let reader = loom::thread::spawn({
            let told = Arc::clone(&told);
            move || look(&told)
        });
        for (now, lsn) in HISTORY {
            told.set(now, lsn);
        }
        reader.join().expect("it saw a time that is told");
        assert_eq!(told.now_and_lsn(), HISTORY[1]);
    });
}

#[test]
fn the_time_is_told_by_the_lsn() {
    while_time_goes_on(|told| {
        let (now, lsn) = told.now_and_lsn();
        assert!(lsn >= told_by(now), "{now:?} is told later than by {lsn:?}");
    });
}

#[test]
fn the_committed_time_is_told_by_what_is_committed() {
    while_time_goes_on(|told| {
        let now = told.as_of(Lsn(5));
        assert!(told_by(now) <= Lsn(5), "{now:?} is not committed yet");
    });
}

/// What was committed stays told when a later record, which is not, tells more: an answer may have revealed it.
#[test]
fn a_later_record_does_not_take_the_committed_time_back() {
    loom::model(|| {
        let told = Arc::new(Told::default());
        told.set(HISTORY[0].0, HISTORY[0].1);
        let later = loom::thread::spawn({
            let told = Arc::clone(&told);
            move || told.set(HISTORY[1].0, HISTORY[1].1)
        });
        assert_eq!(told.as_of(Lsn(5)), Moment(10));
        later.join().expect("it told the time");
        assert_eq!(told.as_of(Lsn(5)), Moment(10));
        assert_eq!(told.as_of(Lsn(6)), Moment(20));
    });
}

/// Of two who know of different commits, one may tell the other.
#[test]
fn the_committed_time_does_not_go_back() {
    loom::model(|| {
        let told = Arc::new(Told::default());
        told.set(HISTORY[0].0, HISTORY[0].1);
        let other = loom::thread::spawn({
            let told = Arc::clone(&told);
            move || told.as_of(Lsn(5))
        });
        told.set(HISTORY[1].0, HISTORY[1].1);
        assert_eq!(told.as_of(Lsn(6)), Moment(20));
        other.join().expect("it looked");
        assert_eq!(
            told.as_of(Lsn(5)),
            Moment(20),
            "it is known to be committed"
        );
    });
}
