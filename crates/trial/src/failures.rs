//! What is done to the servers, and when.
//!
//! A trial is cut into *slots* of equal length; each has one failure. Kinds take turns, and so do servers: after nine
//! slots each kind has hit each server. In steps, of one slot:
//!
//! 1. Wait until all servers are ready, for a slot at most, then for an eighth of a slot.
//! 2. Kill or stop the server, or restart it at once.
//! 3. What was killed is started again a sixteenth of a slot later, and at least a second; what was stopped goes on
//!    three eighths later, which is 30 s of a slot of 80 s.
//! 4. The rest of the slot is for what comes of it.

use std::time::Duration;

use argosy_base::{Clock as _, Instant};
use argosy_device::SystemClock;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::error::TrialError;
use crate::time::End;

/// The longest slot, and with that the number of failures of a long trial: 15 in 20 minutes.
const SLOT_MAX: Duration = Duration::from_secs(80);

/// The shortest slot, where a trial is long enough for one of each kind.
const SLOT_MIN: Duration = Duration::from_secs(20);

/// Most failures of a trial whose slots are not the longest.
const FAILURES_MAX: u32 = 15;

/// How often a server is asked whether it is ready.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// What is done to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// SIGKILL; it is started again some seconds later.
    Kill,
    /// SIGSTOP; SIGCONT comes later.
    Stop,
    /// SIGKILL, and it is started at once.
    Restart,
}

impl FailureKind {
    /// All of them, as they take turns.
    pub(crate) const ALL: [Self; 3] = [Self::Kill, Self::Stop, Self::Restart];

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// A failure that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// What is done.
    pub kind: FailureKind,
    /// To whom.
    pub server: usize,
}

/// What a trial does to its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How long each of them has.
    pub slot: Duration,
    /// One a slot.
    pub failures: Vec<Planned>,
}

/// A failure that was.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// What was done, and to whom.
    pub planned: Planned,
    /// When it was begun.
    pub began: Instant,
    /// When the server ran again: it was started, or let go on.
    pub ended: Instant,
    /// When all servers were ready again, where they were within the slot.
    pub ready: Option<Instant>,
    /// The primary of each region when it began, where that was known.
    pub primaries: Vec<Option<usize>>,
}

/// What is done in so much time to so many servers.
#[must_use]
pub(crate) fn plan(span: Duration, servers: usize) -> Plan {
    let fit = |slot: Duration| u32::try_from(span.as_nanos() / slot.as_nanos()).unwrap_or(0);
    let kinds = u32::try_from(FailureKind::ALL.len()).expect("few kinds");
    let many = fit(SLOT_MIN).min(FAILURES_MAX).max(fit(SLOT_MAX));
    let count = (many / kinds * kinds).max(kinds);
    let failures = (0..count).map(|n| {
        let n = usize::try_from(n).expect("few failures");
        Planned {
            kind: FailureKind::ALL[n % FailureKind::ALL.len()],
            server: (n + n / servers) % servers,
        }
    });
    Plan {
        slot: span / count,
        failures: failures.collect(),
    }
}

/// Does all of `plan`, until the end comes. What was done is added to `done`.
///
/// # Errors
/// A command was not carried out.
pub(crate) fn carry_out(
    plan: &Plan,
    cluster: &Cluster,
    end: &End,
    done: &mut Vec<Failure>,
) -> Result<(), TrialError> {
    let slot = plan.slot;
    for planned in &plan.failures {
        until_ready(cluster, SystemClock.now() + slot, end);
        let quiet = SystemClock.now() + slot / 8;
        if !end.wait_until(quiet) {
            break;
        }
        done.push(fail(*planned, slot, cluster, end)?);
    }
    Ok(())
}

fn fail(
    planned: Planned,
    slot: Duration,
    cluster: &Cluster,
    end: &End,
) -> Result<Failure, TrialError> {
    let server = planned.server;
    // Where nobody says, nobody is known.
    let regions = cluster.regions().unwrap_or_default();
    let began = SystemClock.now();
    let wait = |span| end.wait_until(SystemClock.now() + span);
    match planned.kind {
        FailureKind::Kill => {
            cluster.command("kill", server)?;
            wait((slot / 16).max(Duration::from_secs(1)));
            cluster.command("restart", server)?;
        }
        FailureKind::Stop => {
            cluster.command("stop", server)?;
            wait(slot * 3 / 8);
            cluster.command("cont", server)?;
        }
        FailureKind::Restart => cluster.command("restart", server)?,
    }
    let ended = SystemClock.now();
    let over = began + slot * 7 / 8;
    let ready = until_ready(cluster, over, end);
    end.wait_until(over);
    Ok(Failure {
        planned,
        began,
        ended,
        ready,
        primaries: regions.iter().map(|region| region.primary).collect(),
    })
}

/// Waits until all servers are ready, and tells when they were; until `latest` at most.
pub(crate) fn until_ready(cluster: &Cluster, latest: Instant, end: &End) -> Option<Instant> {
    loop {
        if (0..cluster.servers.len()).all(|server| cluster.is_ready(server)) {
            return Some(SystemClock.now());
        }
        let now = SystemClock.now();
        if now >= latest || !end.wait_until(now + ASKED_EVERY) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_minutes_have_each_kind_five_times() {
        let plan = plan(Duration::from_secs(20 * 60), 3);
        assert_eq!(plan.slot, Duration::from_secs(80));
        for kind in FailureKind::ALL {
            let of_it = plan.failures.iter().filter(|failure| failure.kind == kind);
            assert_eq!(of_it.count(), 5);
        }
    }

    #[test]
    fn every_kind_hits_every_server_in_nine_slots() {
        let plan = plan(Duration::from_secs(180), 3);
        let mut hit: Vec<_> = plan.failures[..9]
            .iter()
            .map(|failure| (failure.kind, failure.server))
            .collect();
        hit.sort_unstable();
        hit.dedup();
        assert_eq!(hit.len(), 9);
    }

    #[test]
    fn short_trials_have_short_slots_and_one_of_each_kind_at_least() {
        let of = |seconds| plan(Duration::from_secs(seconds), 3);
        assert_eq!(of(60).failures.len(), 3);
        assert_eq!(of(60).slot, Duration::from_secs(20));
        assert_eq!(of(3).failures.len(), 3);
        assert_eq!(of(300).failures.len(), 15);
        assert_eq!(of(3600).failures.len(), 45);
    }
}
