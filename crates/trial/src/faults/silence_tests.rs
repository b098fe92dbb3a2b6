//! Silences and steps of samples and lines that are made up.

use super::*;
use crate::doors::Door;
use crate::record::{Came, Op};

const MILLI: u64 = 1_000_000;

pub(in crate::faults) fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * MILLI)
}

/// A write that took a millisecond.
pub(in crate::faults) fn answered(region: u8, ended: u64) -> Sample {
    Sample {
        began: (ended - 1) * MILLI,
        ended: ended * MILLI,
        region,
        door: Door::Native,
        op: Op::Set,
        came: Came::Answered,
    }
}

fn times() -> Times {
    Times {
        load: at(1000),
        failed: at(3000),
        mended: at(7000),
        ended: at(10_000),
    }
}

fn gap(from: u64, to: u64) -> std::ops::Range<u64> {
    from..to
}

/// Answers every 100 ms, but for these.
fn but_for(gaps: &[std::ops::Range<u64>]) -> Vec<Sample> {
    let ticks = (1100..=10_000).step_by(100);
    let left = ticks.filter(|tick| !gaps.iter().any(|gap| gap.contains(tick)));
    left.map(|tick| answered(0, tick)).collect()
}

#[test]
fn silences_are_told_apart_by_when_they_began() {
    let samples = but_for(&[gap(1500, 2500), gap(3200, 5500), gap(7200, 7600)]);
    let found = silences(&samples, 0, times());
    let silence = |from, to| {
        Some(Silence {
            from: at(from),
            to: at(to),
        })
    };
    assert_eq!(found.failure, silence(3100, 5500));
    assert_eq!(found.mending, silence(7100, 7600));
}

#[test]
fn a_region_that_answers_is_not_silent() {
    assert_eq!(
        silences(&but_for(&[gap(3500, 3600)]), 0, times()),
        Silences::default()
    );
}

#[test]
fn errors_and_other_regions_end_no_silence() {
    let mut samples = but_for(&[gap(3200, 12_000)]);
    samples.push(Sample {
        came: Came::NotApplied,
        ..answered(0, 4000)
    });
    samples.push(answered(1, 4500));
    let failure = silences(&samples, 0, times()).failure.unwrap();
    assert_eq!((failure.from, failure.to), (at(3100), at(10_000)));
}

#[test]
fn a_silence_may_begin_before_the_failure_is_known() {
    let failure = silences(&but_for(&[gap(2900, 4000)]), 0, times())
        .failure
        .unwrap();
    assert_eq!((failure.from, failure.to), (at(2800), at(4000)));
}

#[test]
fn steps_are_those_of_the_last_promotion_within_the_silence() {
    let clock = Fixed;
    let offset = Offset::of(&clock);
    let said = |millis: u64, region, what| Said {
        micros: (Fixed::WALL + millis) * 1000,
        region,
        what,
    };
    let lines = [
        said(2000, 4, What::Promoted(1)),
        said(3500, 4, What::Raised),
        said(3600, 4, What::Promoted(1)),
        said(3650, 4, What::Opened),
        said(3700, 5, What::Raised),
        said(4000, 4, What::Raised),
        said(4100, 4, What::Promoted(2)),
        said(4200, 4, What::Regrouped),
        said(4510, 4, What::Opened),
        said(4300, 4, What::LeaseOver),
        said(4560, 4, What::Opened),
        said(6000, 4, What::Raised),
    ];
    let silence = Silence {
        from: at(3100),
        to: at(4500),
    };
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(
        steps(&lines, 4, at(3000), silence, offset),
        Steps {
            noticed: millis(1000),
            chosen: millis(1100),
            lease_over: millis(1300),
            open: millis(1510),
        }
    );
    let other = steps(&lines, 6, at(3000), silence, offset);
    assert_eq!(other, Steps::default());
}

/// The trial's clock shows 0 when the one on the wall shows this.
struct Fixed;

impl Fixed {
    const WALL: u64 = 1_000_000;
}

impl argosy_base::Clock for Fixed {
    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn wall(&self) -> argosy_base::Moment {
        argosy_base::Moment(Self::WALL)
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}
