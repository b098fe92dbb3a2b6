//! `argosy ctl status`: the cluster in a few lines, and whether anything is to be done about it.

use argosy_coordinator::{JobState, Region, RegionState};
use argosy_master::Cluster;
use clap::Args;
use serde::Serialize;

use super::reading::Reading;
use super::{Common, Printed, list};
use crate::failure::CommandFailure;

/// Show how a cluster is
///
/// Healthy is one whose servers are there, whose regions are served, with as many copies as they are to have, and of
/// whose jobs none has failed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy ctl status\n  \
    argosy ctl status --check --data-dir ./data -o json\n\n\
    Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster, 6 not healthy, with --check, 8 data damaged")]
pub(crate) struct Status {
    /// End with exit code 6 unless all is well
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    common: Common,
}

/// What `-o json` prints.
#[derive(Debug, Serialize)]
struct Shown {
    schema: &'static str,
    cluster: String,
    replication: &'static str,
    durability: &'static str,
    copies: u32,
    healthy: bool,
    master: Option<u32>,
    servers: Servers,
    regions: Regions,
    jobs: Jobs,
}

#[derive(Debug, Serialize)]
struct Servers {
    there: usize,
    leaving: usize,
    away: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Regions {
    served: usize,
    recovering: usize,
    /// They are served, and have fewer members than they are to have.
    short: usize,
}

#[derive(Debug, Serialize)]
struct Jobs {
    open: usize,
    failed: usize,
}

impl Status {
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        let mut reading = Reading::open(&self.common)?;
        let cluster = reading.cluster()?;
        let master = reading.master()?.map(|id| id.0);
        let shown = Shown::of(&cluster, master);
        shown.print(self.common.output)?;
        match shown.healthy || !self.check {
            true => Ok(()),
            false => Err(CommandFailure::Unhealthy("not all is well".to_owned())),
        }
    }
}

impl Shown {
    fn of(cluster: &Cluster, master: Option<u32>) -> Self {
        let map = &cluster.map;
        let there = map.servers().iter().map(|server| server.id);
        let away = there.filter(|id| !cluster.servers.contains_key(id));
        let leaving = cluster.servers.values();
        let leaving = leaving.filter(|live| live.presence.leaving);
        let count = |is: &dyn Fn(&&Region) -> bool| map.regions().iter().filter(is).count();
        let is_there = |region: &Region| {
            region.state == RegionState::Serving && cluster.servers.contains_key(&region.primary)
        };
        let copies = usize::try_from(map.copies()).unwrap_or(usize::MAX);
        let failed = cluster
            .jobs
            .jobs()
            .filter(|job| job.state == JobState::Failed);
        let mut shown = Self {
            schema: "argosy.ctl-status.v1",
            cluster: map.cluster().to_string(),
            replication: map.replication().name(),
            durability: map.durability().name(),
            copies: map.copies(),
            healthy: false,
            master,
            servers: Servers {
                there: cluster.servers.len(),
                leaving: leaving.count(),
                away: away.map(|id| id.0).collect(),
            },
            regions: Regions {
                served: count(&|region| is_there(region)),
                recovering: count(&|region| !is_there(region)),
                short: count(&|region| is_there(region) && region.members.len() < copies),
            },
            jobs: Jobs {
                open: cluster.jobs.open().count(),
                failed: failed.count(),
            },
        };
        shown.healthy = shown.master.is_some()
            && shown.servers.away.is_empty()
            && shown.regions.recovering == 0
            && shown.regions.short == 0
            && shown.jobs.failed == 0;
        shown
    }
}

impl Printed for Shown {
    fn lines(&self) -> Vec<String> {
        let Self {
            servers,
            regions,
            jobs,
            ..
        } = self;
        let master = self
            .master
            .map_or("nobody".to_owned(), |id| format!("server {id}"));
        vec![
            format!("cluster   {}", self.cluster),
            format!(
                "data      {} copies of each region, by {}; durability {}",
                self.copies, self.replication, self.durability
            ),
            format!("healthy   {}", if self.healthy { "yes" } else { "no" }),
            format!("master    {master}"),
            format!(
                "servers   {} there, of them {} about to stop; away: {}",
                servers.there,
                servers.leaving,
                list(&servers.away)
            ),
            format!(
                "regions   {} served, of them {} with too few copies; {} recovering",
                regions.served, regions.short, regions.recovering
            ),
            format!("jobs      {} open, {} failed", jobs.open, jobs.failed),
        ]
    }
}
