//! A trial, from its first server to its verdict.
//!
//! ```text
//! DIR/data             the data of the cluster; removed at the end where the trial passed
//! DIR/playground       what the cluster says
//! DIR/trial.json       the summary, of schema argosy.trial.v1
//! DIR/latency.svg      latency over time
//! DIR/key-N.history    a history that is not possible: an access a line
//! ```
//!
//! Whatever goes wrong once there is load, what was recorded is checked and the summary written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::Clock as _;
use argosy_device::SystemClock;

use crate::cluster::{Cluster, Leads};
use crate::crowd::Crowd;
use crate::error::TrialError;
use crate::failures::{Failure, carry_out, plan};
use crate::judge::{Unexplained, judge, line_of};
use crate::keys::names_in;
use crate::plot::svg;
use crate::record::{History, Record};
use crate::summary::{Material, Summary, summary};
use crate::time::End;
use crate::transactions::OfRegion;

/// Regions of the cluster: two for each server to be the primary of.
const REGIONS: usize = 6;

/// How long the cluster may take to be ready, and to answer all reads, once the load is over.
const AFTERWARDS_MAX: Duration = Duration::from_secs(180);

/// What a trial is.
#[derive(Clone, Debug)]
pub struct TrialSettings {
    /// The program whose cluster is tried.
    pub program: PathBuf,
    /// Where its data and what comes of the trial go.
    pub dir: PathBuf,
    /// How long there is load.
    pub span: Duration,
    /// Whether anything is done to the servers.
    pub failures: bool,
    /// What clients choose by.
    pub seed: u64,
}

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct TrialVerdict {
    /// How it went. It passed where nothing is wrong there.
    pub summary: Summary,
    /// The histories that are not possible.
    pub faults: Vec<Unexplained>,
}

impl TrialVerdict {
    /// Whether every history is possible, nothing acknowledged was lost, and nothing else was wrong.
    #[must_use]
    pub const fn passed(&self) -> bool {
        self.summary.wrong.is_empty()
    }
}

/// Holds a trial.
///
/// # Errors
/// It could not be held, or what came of it not be written.
pub fn run(settings: &TrialSettings) -> Result<TrialVerdict, TrialError> {
    let dir = &settings.dir;
    let cluster = Cluster::start(&settings.program, dir, REGIONS, Leads::All)?;
    let ranges: Vec<_> = cluster
        .regions()?
        .into_iter()
        .map(|region| region.range)
        .collect();
    let names = names_in(&ranges)?;
    let record = Record::of(names.len());
    let transactions: Vec<_> = ranges.iter().map(|_| OfRegion::default()).collect();
    let crowd = Crowd {
        cluster: &cluster,
        names: &names,
        record: &record,
        transactions: &transactions,
        seed: settings.seed,
    };
    let asked = crowd.ask_while(|end| meanwhile(settings, &cluster, &record, end))?;
    let latest = SystemClock.now() + AFTERWARDS_MAX;
    crowd.await_ready(latest);
    crowd.read_all(latest);
    if let Err(error) = cluster.stop() {
        record.wrong(error.to_string());
    }
    let parts = record.into_parts();
    let faults = judge(&parts.histories);
    let mut wrong = parts.wrong;
    for fault in &faults {
        let name = String::from_utf8_lossy(&names[fault.key]);
        wrong.push(format!("key {} ({name}): {}", fault.key, fault.words));
        write_history(dir, fault.key, &parts.histories[fault.key])?;
    }
    let material = Material {
        samples: &asked.samples,
        failures: &asked.done,
        regions: ranges.len(),
        began: asked.began,
        ended: asked.ended,
    };
    let summary = summary(material, parts.odd, wrong);
    let json = serde_json::to_string(&summary).expect("plain data has a JSON form");
    write(&dir.join("trial.json"), &json)?;
    write(&dir.join("latency.svg"), &svg(&summary))?;
    let verdict = TrialVerdict { summary, faults };
    if verdict.passed() {
        let data = dir.join("data");
        std::fs::remove_dir_all(&data).map_err(TrialError::file("remove", &data))?;
    }
    Ok(verdict)
}

/// Carries failures out, or lets the servers alone for as long.
fn meanwhile(
    settings: &TrialSettings,
    cluster: &Cluster,
    record: &Record,
    end: &End,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    if settings.failures {
        let plan = plan(settings.span, cluster.servers.len());
        if let Err(error) = carry_out(&plan, cluster, end, &mut failures) {
            record.wrong(error.to_string());
        }
    } else {
        end.wait_until(SystemClock.now() + settings.span);
    }
    failures
}

/// Writes a history that is not possible.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write_history(dir: &Path, key: usize, history: &History) -> Result<(), TrialError> {
    let mut text = String::new();
    match history {
        History::Register(accesses) => {
            let mut accesses: Vec<_> = accesses.iter().collect();
            accesses.sort_by_key(|access| access.began);
            for access in accesses {
                let _ = writeln!(text, "{}", line_of(access));
            }
        }
        History::Counter(increments) => {
            for increment in increments {
                let _ = writeln!(text, "{increment:?}");
            }
        }
    }
    write(&dir.join(format!("key-{key}.history")), &text)
}

/// Writes a file.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), TrialError> {
    std::fs::write(path, text).map_err(TrialError::file("write", path))
}
