//! How a workload went, second by second.
//!
//! Each operation belongs to the interval in which its reply came. Intervals are one second long
//! until there would be more than [`POINTS_MAX`] of them; then each two become one, as often as it
//! takes, so a timeline is bounded however long a workload runs.
//!
//! Beside that the operations of each second are counted, of the first hours: what is left in the slowest
//! second does not show where seconds were made one.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::report::{micros, ratio, rounded};

/// Most intervals of a timeline.
pub const POINTS_MAX: usize = 240;

/// Seconds of which operations are counted.
const SECONDS_MAX: usize = 4 * 3600;

/// Longest latency told apart, in nanoseconds.
const LATENCY_NANOS_MAX: u64 = 120_000_000_000;

/// One interval of a [`Timeline`], as reports have it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Interval {
    /// When it began, in seconds after the workload's first request.
    pub at_seconds: f64,
    /// How long it was; the last one ends with the last reply.
    pub seconds: f64,
    /// Operations that were answered in it.
    pub ops: u64,
    /// `ops / seconds`.
    pub ops_per_second: f64,
    /// 99 % of them took at most so many microseconds; zero where there were none.
    pub p99_us: f64,
}

/// How evenly a workload went. Zeros where it took less than two seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seconds {
    /// Operations that were answered in the slowest second but the last, which is no whole one.
    pub slowest: u64,
    /// In the middle one of them.
    pub median: u64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Seconds of an interval: a power of two.
    width: u64,
    intervals: Vec<Histogram<u32>>,
    /// Operations by second.
    seconds: Vec<u64>,
    /// When the last reply came.
    end: Duration,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            width: 1,
            intervals: Vec::new(),
            seconds: Vec::new(),
            end: Duration::ZERO,
        }
    }
}

impl Timeline {
    /// An operation was answered `at` so long after the beginning, and took so many nanoseconds.
    #[inline]
    pub fn record(&mut self, at: Duration, nanos: u64) {
        self.end = self.end.max(at);
        let mut index = self.index_of(at);
        if index >= self.intervals.len() {
            while index >= POINTS_MAX {
                self.widen();
                index = self.index_of(at);
            }
            self.intervals.resize_with(index + 1, interval);
        }
        self.intervals[index].saturating_record(nanos.max(1));
        let second = usize::try_from(at.as_secs()).unwrap_or(usize::MAX);
        if second >= self.seconds.len() && second < SECONDS_MAX {
            self.seconds.resize(second + 1, 0);
        }
        if let Some(count) = self.seconds.get_mut(second) {
            *count += 1;
        }
    }

    /// Adds another client's.
    pub fn add(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.width < other.width {
            self.widen();
        }
        while other.width < self.width {
            other.widen();
        }
        self.end = self.end.max(other.end);
        let seconds = self.seconds.len().max(other.seconds.len());
        self.seconds.resize(seconds, 0);
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            *mine += theirs;
        }
        let len = self.intervals.len().max(other.intervals.len());
        self.intervals.resize_with(len, interval);
        for (mine, theirs) in self.intervals.iter_mut().zip(&other.intervals) {
            add(mine, theirs);
        }
    }

    /// The points, in order.
    #[must_use]
    pub fn points(&self) -> Vec<Interval> {
        let width = Duration::from_secs(self.width);
        (0_u32..)
            .zip(&self.intervals)
            .map(|(index, latencies)| {
                let begin = width * index;
                let seconds = width.min(self.end.saturating_sub(begin)).as_secs_f64();
                // An interval that the last reply only just reached says nothing of its rate.
                let seconds = seconds.max(0.001);
                let ops = latencies.len();
                Interval {
                    at_seconds: begin.as_secs_f64(),
                    seconds: rounded(seconds, 3),
                    ops,
                    ops_per_second: rounded(ratio(ops, 1) / seconds, 1),
                    p99_us: match ops {
                        0 => 0.0,
                        _ => micros(latencies.value_at_quantile(0.99)),
                    },
                }
            })
            .collect()
    }

    /// How evenly it went, second by second.
    #[must_use]
    pub fn seconds(&self) -> Seconds {
        let [whole @ .., _] = self.seconds.as_slice() else {
            return Seconds::default();
        };
        let mut whole = whole.to_vec();
        whole.sort_unstable();
        match whole.as_slice() {
            [slowest, _, ..] => Seconds {
                slowest: *slowest,
                median: whole[whole.len() / 2],
            },
            _ => Seconds::default(),
        }
    }

    fn index_of(&self, at: Duration) -> usize {
        usize::try_from(at.as_secs() / self.width).unwrap_or(usize::MAX)
    }

    /// Makes one interval of each two.
    fn widen(&mut self) {
        self.width *= 2;
        let narrow = std::mem::take(&mut self.intervals);
        for pair in narrow.chunks(2) {
            let mut wide = pair[0].clone();
            if let Some(second) = pair.get(1) {
                add(&mut wide, second);
            }
            self.intervals.push(wide);
        }
    }
}

/// Latencies to within one percent, in some 20 KiB.
fn interval() -> Histogram<u32> {
    let empty = Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 2);
    empty.expect("the bounds are constants that suit each other")
}

fn add(to: &mut Histogram<u32>, from: &Histogram<u32>) {
    to.add(from).expect("all intervals have the same bounds");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn operations_are_counted_where_they_ended() {
        let mut timeline = Timeline::default();
        for (end, nanos) in [(0.1, 10_000), (0.9, 10_000), (2.0, 50_000), (2.5, 50_000)] {
            timeline.record(at(end), nanos);
        }
        let points = timeline.points();
        let counts: Vec<_> = points.iter().map(|point| point.ops).collect();
        assert_eq!(counts, [2, 0, 2]);
        let ends: Vec<_> = points.iter().map(|point| point.seconds).collect();
        assert_eq!(ends, [1.0, 1.0, 0.5]);
        assert!((points[2].ops_per_second - 4.0).abs() < 1e-9);
        assert!((points[0].p99_us - 10.0).abs() < 0.2, "{points:?}");
        assert!(points[1].p99_us.abs() < f64::EPSILON);
    }

    #[test]
    fn no_run_is_too_long_and_no_operation_is_lost() {
        let mut timeline = Timeline::default();
        for second in 0..10_000 {
            timeline.record(at(f64::from(second) + 0.5), 1000);
        }
        let points = timeline.points();
        assert!(points.len() <= POINTS_MAX, "{}", points.len());
        assert_eq!(points.iter().map(|point| point.ops).sum::<u64>(), 10_000);
        assert_eq!(points[0].ops, 64);
        assert!((points[1].at_seconds - 64.0).abs() < f64::EPSILON);
    }

    #[test]
    fn the_slowest_second_is_told_however_long_it_takes() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.seconds(), Seconds::default());
        for second in 0..1000 {
            let ops = match second {
                700 => 3,
                _ => 10,
            };
            (0..ops).for_each(|_| timeline.record(at(f64::from(second) + 0.5), 1000));
        }
        let told = |slowest, median| Seconds { slowest, median };
        assert_eq!(timeline.seconds(), told(3, 10));
        timeline.record(at(1001.0), 1000);
        assert_eq!(timeline.seconds(), told(0, 10), "one without any");
        let twice = timeline.clone();
        timeline.add(&twice);
        assert_eq!(timeline.seconds(), told(0, 20));
    }

    #[test]
    fn clients_are_added_whatever_their_widths() {
        let (mut short, mut long) = (Timeline::default(), Timeline::default());
        short.record(at(1.5), 1000);
        for second in 0..300 {
            long.record(at(f64::from(second)), 1000);
        }
        let mut other = long.clone();
        other.add(&short);
        short.add(&long);
        for sum in [short, other] {
            let points = sum.points();
            assert_eq!(points.iter().map(|point| point.ops).sum::<u64>(), 301);
            assert_eq!((points.len(), points[0].ops), (150, 3));
        }
    }
}
