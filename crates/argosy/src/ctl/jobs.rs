//! `argosy ctl job`: what the master does in several steps, and what became of it.

use argosy_coordinator::job::RegionStage;
use argosy_coordinator::{JobId, RedoJob};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::reading::Reading;
use super::{Common, Printed, list, table};
use crate::failure::CommandFailure;

#[derive(Subcommand, Debug)]
pub(crate) enum JobCommand {
    /// List the jobs, the oldest first
    ///
    /// All that have not ended, and the last 64 that have.
    #[command(after_help = "Examples:\n  argosy ctl job list\n  \
        argosy ctl job list --open -o json\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster, 8 data damaged")]
    List(ListArgs),
    /// Show one job, and its regions
    #[command(after_help = "Examples:\n  argosy ctl job show 7\n  \
        argosy ctl job show 7 -o json\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster or job, 8 data damaged")]
    Show(NamedArgs),
    /// Have a job tried again that has failed, or was cancelled
    #[command(after_help = "Examples:\n  argosy ctl job retry 7\n  \
        argosy ctl job retry 7 --data-dir ./data\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster or job, or it has not failed, 4 too many jobs (try \
        again), 8 data damaged")]
    Retry(NamedArgs),
    /// Have a job not done that has not begun
    ///
    /// It is not planned again before the region's group has changed otherwise.
    #[command(after_help = "Examples:\n  argosy ctl job cancel 7\n  \
        argosy ctl job cancel 7 --data-dir ./data\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster or job, or it has begun or ended, 8 data damaged")]
    Cancel(NamedArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only those that have not ended
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct NamedArgs {
    /// The job's number, as `argosy ctl job list` shows it
    #[arg(value_name = "N")]
    job: u64,
    #[command(flatten)]
    common: Common,
}

/// What `job list -o json` prints.
#[derive(Debug, Serialize)]
struct Listed {
    schema: &'static str,
    jobs: Vec<JobShown>,
}

/// A job.
#[derive(Debug, Serialize)]
struct JobShown {
    id: u64,
    kind: &'static str,
    server: u32,
    state: &'static str,
    attempts: u32,
    /// The session of the master that carries it out.
    session: Option<u64>,
    regions: usize,
    regions_open: usize,
    remark: String,
}

/// What the other commands print with `-o json`.
#[derive(Debug, Serialize)]
struct One {
    schema: &'static str,
    job: JobShown,
    regions: Vec<JobRegionShown>,
}

#[derive(Debug, Serialize)]
struct JobRegionShown {
    id: u32,
    /// Under which it was decided.
    epoch: u32,
    stage: &'static str,
}

impl JobCommand {
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        let named = match self {
            Self::List(ListArgs { open, common }) => {
                let log = Reading::open(&common)?.cluster()?.jobs;
                let jobs = log.jobs().filter(|job| !open || job.state.is_open());
                let jobs = jobs.map(JobShown::of).collect();
                let schema = "argosy.ctl-jobs.v1";
                return Listed { schema, jobs }.print(common.output);
            }
            Self::Show(ref named) | Self::Retry(ref named) | Self::Cancel(ref named) => named,
        };
        let id = JobId(named.job);
        let mut reading = Reading::open(&named.common)?;
        let job = reading.order(|log, map| {
            match self {
                Self::Retry(_) => log.retry(id, map)?,
                Self::Cancel(_) => log.cancel(id, map)?,
                Self::Show(_) | Self::List(_) => {}
            }
            log.job(id).cloned()
        })?;
        One::of(&job).print(named.common.output)
    }
}

impl JobShown {
    fn of(job: &RedoJob) -> Self {
        Self {
            id: job.id.0,
            kind: job.kind.name(),
            server: job.server.0,
            state: job.state.name(),
            attempts: job.attempts,
            session: job.actor.map(|actor| actor.0),
            regions: job.regions.len(),
            regions_open: job.regions_in(RegionStage::Open).count(),
            remark: job.remark.clone(),
        }
    }
}

impl One {
    fn of(job: &RedoJob) -> Self {
        let regions = job.regions.iter().map(|(id, region)| JobRegionShown {
            id: id.0,
            epoch: region.epoch.0,
            stage: region.stage.name(),
        });
        Self {
            schema: "argosy.ctl-job.v1",
            job: JobShown::of(job),
            regions: regions.collect(),
        }
    }
}

impl Printed for Listed {
    fn lines(&self) -> Vec<String> {
        let row = |job: &JobShown| {
            vec![
                job.id.to_string(),
                job.kind.to_owned(),
                job.server.to_string(),
                job.state.to_owned(),
                format!("{} of {}", job.regions_open, job.regions),
                job.attempts.to_string(),
                list(job.session),
                job.remark.clone(),
            ]
        };
        let rows: Vec<_> = self.jobs.iter().map(row).collect();
        let head = [
            "job", "kind", "server", "state", "open", "attempts", "session", "remark",
        ];
        table(&head, &rows)
    }
}

impl Printed for One {
    fn lines(&self) -> Vec<String> {
        let job = &self.job;
        let mut lines = vec![
            format!("job       {}: {} server {}", job.id, job.kind, job.server),
            format!("state     {}", job.state),
            format!(
                "master    session {}, attempt {}",
                list(job.session),
                job.attempts
            ),
            format!(
                "remark    {}",
                if job.remark.is_empty() {
                    "-"
                } else {
                    &job.remark
                }
            ),
            String::new(),
        ];
        let row = |region: &JobRegionShown| {
            vec![
                region.id.to_string(),
                region.epoch.to_string(),
                region.stage.to_owned(),
            ]
        };
        let rows: Vec<_> = self.regions.iter().map(row).collect();
        lines.extend(table(&["region", "decided in epoch", "stage"], &rows));
        lines
    }
}
