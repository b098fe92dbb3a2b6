//! How a trial went, as numbers: made of the samples of all requests and the failures, by nothing else.
//!
//! - *A gap* of a region is a time in which no request for its keys was answered. It belongs to the failure that was
//!   begun last when it ended. Clients send every [`TICK`](crate::load::TICK), so shorter gaps than that mean nothing.
//! - *Latency* is that of requests that were answered. Requests through a server while it is down, until all are
//!   ready again, are told apart: they wait for it, as far as they were under way.

use std::collections::BTreeMap;

use argosy_base::Instant;
use serde::Serialize;

use crate::doors::Door;
use crate::failures::{Failure, FailureKind};
use crate::record::{Came, Odd, Op, Sample};

/// The schema of the JSON.
pub(crate) const SCHEMA: &str = "argosy.trial.v1";

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// How a trial went.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// `argosy.trial.v1`.
    pub schema: &'static str,
    /// How long there was load.
    pub seconds: f64,
    /// What became of requests.
    pub outcomes: Vec<OutcomeRow>,
    /// What was done to servers.
    pub failures: Vec<FailureRow>,
    /// The longest gaps.
    pub gaps: Vec<GapRow>,
    /// How long requests took.
    pub latencies: Vec<LatencyRow>,
    /// The course of the trial.
    pub timeline: Vec<Second>,
    /// Errors that are not expected of a cluster, whatever fails in it. They prove nothing wrong.
    pub odd: Vec<OddRow>,
    /// What is wrong, in words. Empty where the trial passed.
    pub wrong: Vec<String>,
}

/// An error that is not expected.
#[derive(Clone, Debug, Serialize)]
pub struct OddRow {
    /// Who met it, and what it says.
    pub words: String,
    /// How often there was one of these words.
    pub count: u64,
    /// When the first was known, in seconds since the load began.
    pub first_at: f64,
}

/// Requests of one kind, by what became of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutcomeRow {
    /// The kind.
    pub op: &'static str,
    /// They were answered.
    pub answered: u64,
    /// They were answered that their condition did not hold.
    pub unmet: u64,
    /// An error said that they had no effect.
    pub not_applied: u64,
    /// They may have been carried out.
    pub unknown: u64,
}

/// A failure. Times are in seconds since the load began.
#[derive(Clone, Debug, Serialize)]
pub struct FailureRow {
    /// What was done.
    pub kind: FailureKind,
    /// To whom.
    pub server: usize,
    /// When.
    pub at: f64,
    /// How long the server was away.
    pub away: f64,
    /// How long after that all servers were ready; none where they were not within the slot.
    pub ready_after: Option<f64>,
    /// The longest gap of each region.
    pub gaps: Vec<f64>,
    /// The regions of which the server was the primary.
    pub primary_of: Vec<usize>,
}

/// The longest gaps with failures of one kind, in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct GapRow {
    /// The kind; none for the time before the first.
    pub kind: Option<FailureKind>,
    /// Of each region.
    pub regions: Vec<f64>,
    /// Of those whose primary failed.
    pub primary_failed: f64,
    /// Of the others.
    pub primary_kept: f64,
}

/// How long the requests of some clients took, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyRow {
    /// Which.
    pub clients: &'static str,
    /// How many requests.
    pub count: u64,
    /// Half of them at most.
    pub p50_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// 999 of 1000.
    pub p999_us: u64,
    /// All.
    pub max_us: u64,
}

/// One second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Second {
    /// Requests that were answered in it.
    pub answered: u64,
    /// 99 of 100 of them took so many microseconds at most, and the slowest; without those of
    /// [`worst_through_failed_us`](Self::worst_through_failed_us).
    pub p99_us: u64,
    /// See there.
    pub worst_us: u64,
    /// The slowest that went through a server that was down.
    pub worst_through_failed_us: u64,
}

/// What a summary is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Material<'a> {
    /// All requests, in any order.
    pub samples: &'a [Sample],
    /// All failures, in the order of time.
    pub failures: &'a [Failure],
    /// How many regions there are.
    pub regions: usize,
    /// When the load began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

/// How a trial went of which this is known. `wrong` is what is wrong, in words, and `odd` what is odd.
#[must_use]
pub(crate) fn summary(of: Material<'_>, odd: BTreeMap<String, Odd>, wrong: Vec<String>) -> Summary {
    let odd = odd.into_iter().map(|(words, odd)| OddRow {
        words,
        count: odd.count,
        first_at: odd.first.since(of.began).as_secs_f64(),
    });
    let failures = failure_rows(of);
    Summary {
        schema: SCHEMA,
        seconds: seconds(of.ended.as_nanos().saturating_sub(of.began.as_nanos())),
        outcomes: outcomes(of.samples),
        gaps: gap_rows(of, &failures),
        failures,
        latencies: latencies(of),
        timeline: timeline(of),
        odd: odd.collect(),
        wrong,
    }
}

fn outcomes(samples: &[Sample]) -> Vec<OutcomeRow> {
    let mut counts: BTreeMap<(Op, Came), u64> = BTreeMap::new();
    for sample in samples {
        *counts.entry((sample.op, sample.came)).or_default() += 1;
    }
    let row = |op: Op| {
        let of = |came| counts.get(&(op, came)).copied().unwrap_or(0);
        OutcomeRow {
            op: op.name(),
            answered: of(Came::Answered),
            unmet: of(Came::Unmet),
            not_applied: of(Came::NotApplied),
            unknown: of(Came::Unknown),
        }
    };
    Op::ALL.into_iter().map(row).collect()
}

/// The longest gap of each region, in nanoseconds: before the first failure, and for each of them.
fn gaps(of: Material<'_>) -> Vec<Vec<u64>> {
    let mut longest = vec![vec![0; of.regions]; of.failures.len() + 1];
    for region in 0..of.regions {
        let own =
            |sample: &&Sample| usize::from(sample.region) == region && sample.came.is_answer();
        let mut answers: Vec<_> = of.samples.iter().filter(own).map(|one| one.ended).collect();
        answers.push(of.ended.as_nanos());
        answers.sort_unstable();
        let mut last = of.began.as_nanos();
        for answer in answers {
            let begun = of
                .failures
                .partition_point(|failure| failure.began.as_nanos() <= answer);
            let longest = &mut longest[begun][region];
            *longest = answer.saturating_sub(last).max(*longest);
            last = answer.max(last);
        }
    }
    longest
}

fn failure_rows(of: Material<'_>) -> Vec<FailureRow> {
    let gaps = gaps(of);
    let row = |(failure, gaps): (&Failure, &Vec<u64>)| {
        let primaries = failure.primaries.iter().enumerate();
        let own = primaries.filter(|(_, primary)| **primary == Some(failure.planned.server));
        FailureRow {
            kind: failure.planned.kind,
            server: failure.planned.server,
            at: failure.began.since(of.began).as_secs_f64(),
            away: failure.ended.since(failure.began).as_secs_f64(),
            ready_after: failure
                .ready
                .map(|ready| ready.since(failure.ended).as_secs_f64()),
            gaps: gaps.iter().copied().map(seconds).collect(),
            primary_of: own.map(|(region, _)| region).collect(),
        }
    };
    of.failures.iter().zip(&gaps[1..]).map(row).collect()
}

fn gap_rows(of: Material<'_>, failures: &[FailureRow]) -> Vec<GapRow> {
    let before = &gaps(of)[0];
    let mut rows = vec![GapRow {
        kind: None,
        regions: before.iter().copied().map(seconds).collect(),
        primary_failed: 0.0,
        primary_kept: seconds(before.iter().copied().max().unwrap_or(0)),
    }];
    for kind in FailureKind::ALL {
        let mut row = GapRow {
            kind: Some(kind),
            regions: vec![0.0; of.regions],
            primary_failed: 0.0,
            primary_kept: 0.0,
        };
        for failure in failures.iter().filter(|failure| failure.kind == kind) {
            for (region, gap) in failure.gaps.iter().enumerate() {
                row.regions[region] = row.regions[region].max(*gap);
                let longest = match failure.primary_of.contains(&region) {
                    true => &mut row.primary_failed,
                    false => &mut row.primary_kept,
                };
                *longest = longest.max(*gap);
            }
        }
        rows.push(row);
    }
    rows
}

/// Whether a request was under way through a server while that was down, or not ready yet.
fn is_through_failed(sample: &Sample, failures: &[Failure]) -> bool {
    let Door::Resp(server) = sample.door else {
        return false;
    };
    failures.iter().any(|failure| {
        let over = failure.ready.unwrap_or(failure.ended);
        failure.planned.server == usize::from(server)
            && sample.began <= over.as_nanos()
            && sample.ended >= failure.began.as_nanos()
    })
}

fn latencies(of: Material<'_>) -> Vec<LatencyRow> {
    let names = [
        "redis protocol, through servers that run",
        "redis protocol, through the failed server",
        "native",
    ];
    let mut taken = [const { Vec::new() }; 3];
    for sample in of.samples.iter().filter(|sample| sample.came.is_answer()) {
        let class = match sample.door {
            Door::Native => 2,
            Door::Resp(_) => usize::from(is_through_failed(sample, of.failures)),
        };
        taken[class].push(micros(sample));
    }
    let rows = names.into_iter().zip(taken);
    rows.map(|(clients, mut taken)| {
        taken.sort_unstable();
        LatencyRow {
            clients,
            count: u64::try_from(taken.len()).expect("a count"),
            p50_us: percentile(&taken, 500),
            p99_us: percentile(&taken, 990),
            p999_us: percentile(&taken, 999),
            max_us: taken.last().copied().unwrap_or(0),
        }
    })
    .collect()
}

/// What so many of a thousand of `sorted` are at most; zero where there is none.
fn percentile(sorted: &[u64], of_1000: usize) -> u64 {
    let rank = (sorted.len() * of_1000).div_ceil(1000);
    rank.checked_sub(1).map_or(0, |index| sorted[index])
}

fn timeline(of: Material<'_>) -> Vec<Second> {
    let began = of.began.as_nanos();
    let mut taken: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut through_failed: BTreeMap<u64, u64> = BTreeMap::new();
    for sample in of.samples.iter().filter(|sample| sample.came.is_answer()) {
        let second = sample.ended.saturating_sub(began) / SECOND;
        let micros = micros(sample);
        if is_through_failed(sample, of.failures) {
            let worst = through_failed.entry(second).or_default();
            *worst = micros.max(*worst);
            taken.entry(second).or_default();
        } else {
            taken.entry(second).or_default().push(micros);
        }
    }
    let last = taken.keys().last().copied();
    let all = last.map(|last| 0..=last).into_iter().flatten();
    all.map(|second| {
        let mut taken = taken.remove(&second).unwrap_or_default();
        taken.sort_unstable();
        Second {
            answered: u64::try_from(taken.len()).expect("a count"),
            p99_us: percentile(&taken, 990),
            worst_us: taken.last().copied().unwrap_or(0),
            worst_through_failed_us: through_failed.get(&second).copied().unwrap_or(0),
        }
    })
    .collect()
}

const fn micros(sample: &Sample) -> u64 {
    sample.ended.saturating_sub(sample.began) / 1000
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds are shown to three digits"
)]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / SECOND as f64
}

impl Summary {
    /// The summary in lines, as it is printed.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("load for {:.1} s", self.seconds), String::new()];
        lines.push("requests         answered      unmet  not applied    unknown".to_owned());
        for row in &self.outcomes {
            lines.push(format!(
                "{:<15} {:>9} {:>10} {:>12} {:>10}",
                row.op, row.answered, row.unmet, row.not_applied, row.unknown
            ));
        }
        lines.push(String::new());
        lines.push(
            "failure  server     at s   away s  ready after s  primary of  gap of each region, s"
                .to_owned(),
        );
        for row in &self.failures {
            let ready = row
                .ready_after
                .map_or("-".to_owned(), |after| format!("{after:.1}"));
            let primary_of: Vec<_> = row.primary_of.iter().map(usize::to_string).collect();
            lines.push(format!(
                "{:<8} {:>6} {:>8.1} {:>8.1} {ready:>14}  {:<10}  {}",
                row.kind.name(),
                row.server,
                row.at,
                row.away,
                primary_of.join(","),
                all_of(&row.gaps)
            ));
        }
        lines.push(String::new());
        lines.push("longest gap, s  primary failed  primary kept  each region".to_owned());
        for row in &self.gaps {
            lines.push(format!(
                "{:<15} {:>14.2} {:>13.2}  {}",
                row.kind.map_or("before any", FailureKind::name),
                row.primary_failed,
                row.primary_kept,
                all_of(&row.regions)
            ));
        }
        lines.push(String::new());
        lines.push(format!(
            "{:<42} {:>9} {:>9} {:>10} {:>10} {:>10}",
            "latency, us", "answers", "p50", "p99", "p99.9", "worst"
        ));
        for row in &self.latencies {
            lines.push(format!(
                "{:<42} {:>9} {:>9} {:>10} {:>10} {:>10}",
                row.clients, row.count, row.p50_us, row.p99_us, row.p999_us, row.max_us
            ));
        }
        if !self.odd.is_empty() {
            lines.push(String::new());
            lines.push("errors that are not expected, with when the first was known".to_owned());
        }
        for row in &self.odd {
            lines.push(format!(
                "{:>6} x  {:>7.1} s  {}",
                row.count, row.first_at, row.words
            ));
        }
        lines
    }
}

fn all_of(gaps: &[f64]) -> String {
    let gaps: Vec<_> = gaps.iter().map(|gap| format!("{gap:>5.2}")).collect();
    gaps.join(" ")
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
