//! Gaps, latencies and the timeline of samples that are made up.

use std::time::Duration;

use super::*;
use crate::failures::Planned;

const MILLI: u64 = 1_000_000;

/// A request for a key of `region` that was answered at `ended` and took a millisecond.
fn answered(region: u8, ended: u64) -> Sample {
    Sample {
        began: (ended - 1) * MILLI,
        ended: ended * MILLI,
        region,
        door: Door::Resp(1),
        op: Op::Get,
        came: Came::Answered,
    }
}

fn failure(kind: FailureKind, began: u64, primaries: &[usize]) -> Failure {
    let began = Instant::from_nanos(began * MILLI);
    Failure {
        planned: Planned { kind, server: 0 },
        began,
        ended: began + Duration::from_millis(500),
        ready: None,
        primaries: primaries.iter().copied().map(Some).collect(),
    }
}

fn of(samples: &[Sample], failures: &[Failure]) -> Summary {
    let material = Material {
        samples,
        failures,
        regions: 2,
        began: Instant::from_nanos(1000 * MILLI),
        ended: Instant::from_nanos(10_000 * MILLI),
    };
    summary(material, BTreeMap::new(), Vec::new())
}

#[test]
fn a_gap_belongs_to_the_failure_before_its_end() {
    let mut samples: Vec<_> = (11..=100).map(|tick| answered(0, tick * 100)).collect();
    // The other region is silent from 3 s to 6 s, but for errors.
    samples.extend(
        (11..=30)
            .chain(60..=100)
            .map(|tick| answered(1, tick * 100)),
    );
    samples.push(Sample {
        came: Came::NotApplied,
        ..answered(1, 4500)
    });
    let failures = [
        failure(FailureKind::Kill, 3500, &[1, 0]),
        failure(FailureKind::Stop, 8050, &[0, 1]),
    ];
    let summary = of(&samples, &failures);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(
        near(summary.failures[0].gaps[0], 0.1),
        "{:?}",
        summary.failures
    );
    assert!(
        near(summary.failures[0].gaps[1], 3.0),
        "{:?}",
        summary.failures
    );
    assert!(
        near(summary.failures[1].gaps[1], 0.1),
        "{:?}",
        summary.failures
    );
    assert_eq!(summary.failures[0].primary_of, [1]);
    let kill = &summary.gaps[1];
    assert_eq!(kill.kind, Some(FailureKind::Kill));
    assert!(near(kill.primary_failed, 3.0) && near(kill.primary_kept, 0.1));
    assert!(near(summary.gaps[0].primary_kept, 0.1));
}

#[test]
fn a_region_that_never_comes_back_has_a_gap_to_the_end() {
    let summary = of(
        &[answered(0, 1100)],
        &[failure(FailureKind::Kill, 2000, &[0, 0])],
    );
    assert!((summary.failures[0].gaps[0] - 8.9).abs() < 1e-9);
    assert!((summary.failures[0].gaps[1] - 9.0).abs() < 1e-9);
}

#[test]
fn requests_through_a_failed_server_are_told_apart() {
    let slow = Sample {
        began: 2900 * MILLI,
        door: Door::Resp(0),
        ..answered(0, 4100)
    };
    let native = Sample {
        door: Door::Native,
        ..answered(0, 3000)
    };
    let failures = [failure(FailureKind::Stop, 3000, &[0, 0])];
    let summary = of(&[answered(0, 4100), slow, native], &failures);
    let counts: Vec<_> = summary.latencies.iter().map(|row| row.count).collect();
    assert_eq!(counts, [1, 1, 1]);
    assert_eq!(summary.latencies[0].max_us, 1000);
    assert_eq!(summary.latencies[1].p50_us, 1_200_000);
    let second = summary.timeline[3];
    assert_eq!(second.answered, 1);
    assert_eq!(
        (second.worst_us, second.worst_through_failed_us),
        (1000, 1_200_000)
    );
    assert_eq!(summary.timeline.len(), 4);
}

#[test]
fn percentiles_are_of_what_is_there() {
    let sorted: Vec<_> = (1..=1000).collect();
    assert_eq!(percentile(&sorted, 500), 500);
    assert_eq!(percentile(&sorted, 999), 999);
    assert_eq!(percentile(&[5], 990), 5);
    assert_eq!(percentile(&[], 990), 0);
}
