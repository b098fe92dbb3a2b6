//! A row of the table, and the table as Markdown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::doors::Door;
use crate::faults::fault::FaultKind;
use crate::faults::silence::Steps;
use crate::record::{Came, Sample};

/// A failure, and what it cost. Times are in seconds since it began.
#[derive(Clone, Debug, Serialize)]
pub struct FaultRow {
    /// What was done.
    pub kind: FaultKind,
    /// When the last region that the failed servers led was served again; none where none was silent.
    pub led: Option<ServedRow>,
    /// When the last of the others was.
    pub others: Option<ServedRow>,
    /// The longest silence of any region when servers returned.
    pub on_return: f64,
    /// What became of requests.
    pub requests: RequestsRow,
    /// What the cluster looked like afterwards.
    pub afterwards: AfterwardsRow,
    /// What is wrong, in words. Empty where nothing is.
    pub wrong: Vec<String>,
}

/// When a region was served again, and what it waited for; in seconds since the failure began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServedRow {
    /// The first answer.
    pub again: f64,
    /// How long there was none.
    pub silent: f64,
    /// The master had noticed.
    pub noticed: Option<f64>,
    /// Somebody was chosen to lead it.
    pub chosen: Option<f64>,
    /// Whoever led it before could not answer any more.
    pub lease_over: Option<f64>,
    /// Its logs were replayed.
    pub open: Option<f64>,
}

/// Requests by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestsRow {
    /// They were answered.
    pub answered: u64,
    /// Writes among them, and pairs that were written beside.
    pub acknowledged: u64,
    /// They had no effect.
    pub not_applied: u64,
    /// They may have had one.
    pub unknown: u64,
    /// Those of `not_applied` and `unknown` that went to a failed server itself.
    pub at_the_failed: u64,
    /// Pairs that were acknowledged and are not there, and keys whose history is not possible.
    pub lost: u64,
}

/// What a cluster looked like afterwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AfterwardsRow {
    /// When it was whole again, in seconds after the last server was started; none where it was not.
    pub whole_after: Option<f64>,
    /// What there is to say.
    pub words: Vec<String>,
}

impl ServedRow {
    /// Of a silence that lasted so long and ended then.
    #[must_use]
    pub(crate) fn of(again: Duration, silent: Duration, steps: Steps) -> Self {
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        Self {
            again: again.as_secs_f64(),
            silent: silent.as_secs_f64(),
            noticed: seconds(steps.noticed),
            chosen: seconds(steps.chosen),
            lease_over: seconds(steps.lease_over),
            open: seconds(steps.open),
        }
    }
}

impl RequestsRow {
    /// Of these samples, where these servers failed.
    #[must_use]
    pub(crate) fn of(samples: &[Sample], failed: &[usize]) -> Self {
        let mut counts: BTreeMap<Came, u64> = BTreeMap::new();
        let mut of = Self::default();
        for sample in samples {
            *counts.entry(sample.came).or_default() += 1;
            let is_write = !sample.op.is_read();
            of.acknowledged += u64::from(is_write && sample.came == Came::Answered);
            let through = match sample.door {
                Door::Resp(server) => failed.contains(&usize::from(server)),
                Door::Native => false,
            };
            of.at_the_failed += u64::from(through && !sample.came.is_answer());
        }
        let count = |came| counts.get(&came).copied().unwrap_or(0);
        Self {
            answered: count(Came::Answered) + count(Came::Unmet),
            not_applied: count(Came::NotApplied),
            unknown: count(Came::Unknown),
            ..of
        }
    }
}

impl FaultRow {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn passed(&self) -> bool {
        self.wrong.is_empty() && self.requests.lost == 0
    }

    /// The row.
    #[must_use]
    pub fn line(&self) -> String {
        let cells = [
            self.kind.words().to_owned(),
            served(self.led),
            steps(self.led.or(self.others)),
            served(self.others),
            seconds(self.on_return),
            self.requests.unknown.to_string(),
            format!(
                "{} ({})",
                self.requests.not_applied, self.requests.at_the_failed
            ),
            format!("{} of {}", self.requests.lost, self.requests.acknowledged),
            self.afterwards.cell(),
        ];
        format!("| {} |", cells.join(" | "))
    }
}

/// The heading of the table.
#[must_use]
pub fn heading() -> Vec<String> {
    let cells = [
        "what is done",
        "its regions are served again, s",
        "noticed, chosen, lease over, open, s",
        "other regions, s",
        "silent on return, s",
        "unknown",
        "not applied (at the failed server)",
        "lost of acknowledged",
        "afterwards",
    ];
    let rule = cells.map(|_| "---");
    vec![
        format!("| {} |", cells.join(" | ")),
        format!("|{}|", rule.join("|")),
    ]
}

/// Seconds, to two digits.
fn seconds(seconds: f64) -> String {
    match seconds > 0.0 {
        true => format!("{seconds:.2}"),
        false => "–".to_owned(),
    }
}

fn served(row: Option<ServedRow>) -> String {
    seconds(row.map_or(0.0, |row| row.again))
}

fn steps(row: Option<ServedRow>) -> String {
    let Some(row) = row else {
        return "–".to_owned();
    };
    let steps = [row.noticed, row.chosen, row.lease_over, row.open];
    let steps = steps.map(|step| step.map_or("–".to_owned(), |step| format!("{step:.2}")));
    steps.join(", ")
}

impl AfterwardsRow {
    fn cell(&self) -> String {
        let state = match self.whole_after {
            Some(after) => format!("whole {after:.1} s after the start"),
            None => "degraded".to_owned(),
        };
        let words = self.words.iter().cloned();
        std::iter::once(state)
            .chain(words)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
