//! `argosy ctl region recover`: opens a region that has no whole copy left, from the highest copy that was reported.
//!
//! 1. What the master would do without an order, and what it would do with one, says its own function.
//! 2. The region loses everything behind the end of the chosen copy's logs. Members that do not report may have had
//!    more than anybody knows of. Copies that do not count are shown with the LSN that they reached.
//! 3. An order is a job. It is the master's to carry out, and it does only as long as no better copy is reported.

use argosy_base::ServerId;
use argosy_coordinator::{JobId, Region, RegionState};
use argosy_master::health::Health;
use argosy_master::promotion::{CopyReports, Preference, PromotionRule, promote};
use argosy_master::{Cluster, Mutants};
use clap::Args;
use serde::Serialize;

use super::reading::{self, Reading};
use super::regions::{CopyShown, Place, copies, copy_lines};
use super::{Common, Printed, list};
use crate::failure::CommandFailure;

/// Open a region that has no whole copy left, from the highest copy reported
///
/// A region without a primary opens by itself where a whole copy is reported, or when all members have reported. Where
/// that is not to be hoped for any more, it can be ordered to open with the highest copy that is. WHAT THE OTHERS HAD
/// BEYOND THAT IS GIVEN UP, even if they return.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy ctl region recover 1 --dry-run\n  \
    argosy ctl region recover 1 --yes --data-dir ./data\n\n\
    Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster or region, or there is nothing to be recovered, or no \
    copy to do it with, 4 too many jobs (try again), 8 data damaged")]
pub(crate) struct Recover {
    /// The region's number
    #[arg(value_name = "N")]
    region: u32,
    /// Show what would be lost, and do nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Give it up
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// What `-o json` prints.
#[derive(Debug, Serialize)]
struct Recovery {
    schema: &'static str,
    region: u32,
    epoch: u32,
    /// The order that was given.
    job: Option<u64>,
    copies: Vec<CopyShown>,
    /// The copy that would open.
    opens: Option<Opens>,
    /// Members of whose copies nothing is known. They may have had more.
    silent: Vec<u32>,
    lost: Lost,
}

/// A copy that would open.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Opens {
    server: u32,
    #[serde(flatten)]
    at: Place,
}

/// What would be lost.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum Lost {
    /// Nothing: the master opens it without an order.
    Nothing,
    /// Writes from this LSN on; and as far as copies show that do not count, up to the other one.
    From {
        /// The end of the logs of the copy that opens.
        lsn: u64,
        /// The highest end that another copy has reported.
        reported_up_to: u64,
    },
    /// It cannot be opened: no member has reported, or no copy is more than a part of one.
    CannotOpen,
}

impl Recover {
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        let mut reading = Reading::open(&self.common)?;
        let cluster = reading.cluster()?;
        let region = reading::region(&cluster.map, self.region)?;
        let mut shown = Recovery::of(&cluster, region)?;
        if self.dry_run {
            return shown.print(self.common.output);
        }
        match shown.lost {
            Lost::Nothing => {
                let words =
                    "the master opens it without an order, and nothing is lost: wait".to_owned();
                return Err(CommandFailure::NotFound(words));
            }
            Lost::CannotOpen => return Err(CommandFailure::NotFound(CANNOT_OPEN.to_owned())),
            Lost::From { .. } if !self.yes => {
                return Err(CommandFailure::Usage(format!(
                    "{}; say --yes if that is what you want, and --dry-run to see more",
                    shown.lost.words()
                )));
            }
            Lost::From { .. } => {}
        }
        let id = region.id;
        let job = reading.order(|log, map| {
            let region = map.region(id).expect("regions stay");
            let same = log.open().find(|job| {
                let is_order = job.kind == argosy_coordinator::JobKind::Recover;
                is_order && job.regions.contains_key(&id)
            });
            let same = same.map(|job| job.id);
            same.map_or_else(|| log.order_recovery(region), Ok)
        })?;
        let JobId(job) = job;
        shown.job = Some(job);
        shown.print(self.common.output)
    }
}

/// Why a region cannot be recovered.
const CANNOT_OPEN: &str = "it cannot be opened: no member has reported a copy under the present epoch, or none is more \
    than a part; start a server that has one";

impl Lost {
    fn words(&self) -> String {
        match self {
            Self::Nothing => "nothing is lost: the master opens it without an order".to_owned(),
            Self::From {
                lsn,
                reported_up_to,
            } if lsn < reported_up_to => {
                format!(
                    "writes from LSN {lsn} on are lost, of which copies that do not count show some up to \
                     {reported_up_to}"
                )
            }
            Self::From { lsn, .. } => {
                format!("writes from LSN {lsn} on are lost, if there were any")
            }
            Self::CannotOpen => CANNOT_OPEN.to_owned(),
        }
    }
}

impl Recovery {
    fn of(cluster: &Cluster, region: &Region) -> Result<Self, CommandFailure> {
        if region.state == RegionState::Serving {
            let (id, primary) = (region.id, region.primary);
            return Err(CommandFailure::NotFound(
                match cluster.servers.contains_key(&primary) {
                    true => {
                        format!("{id} is served by {primary}: there is nothing to be recovered")
                    }
                    false => format!("{id}: no member is there but may be {primary}; start one"),
                },
            ));
        }
        let all = [&region.members, &region.filling, &region.last];
        let all = all.into_iter().flatten();
        let reports: CopyReports = all
            .filter_map(|id| Some((*id, cluster.copy(*id, region)?)))
            .collect();
        let opened = |rule| promote(region, &reports, rule, prefer, Mutants::default());
        let by_order = opened(PromotionRule::WHAT_IS_LEFT);
        let opens = by_order.as_ref().and_then(|next| {
            let at = Place::of(reports.get(&next.primary)?);
            let server = next.primary.0;
            Some(Opens { server, at })
        });
        let lost = match (&opens, opened(PromotionRule::usual(1))) {
            (_, Some(_)) => Lost::Nothing,
            (None, None) => Lost::CannotOpen,
            (Some(opens), None) => Lost::From {
                lsn: opens.at.lsn,
                reported_up_to: reports.values().map(|copy| copy.lsn.0).max().unwrap_or(0),
            },
        };
        let silent = region.members.iter().filter(|id| !reports.contains_key(id));
        Ok(Self {
            schema: "argosy.ctl-recover.v1",
            region: region.id.0,
            epoch: region.epoch.0,
            job: None,
            copies: copies(cluster, region),
            opens,
            silent: silent.map(|id| id.0).collect(),
            lost,
        })
    }
}

/// The master breaks ties by the number of regions that a server leads. A dry run need not: equal copies lose the same.
const fn prefer(id: ServerId) -> Preference {
    Preference {
        health: Health::Well,
        leads: 0,
        id,
    }
}

impl Printed for Recovery {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "region {} recovers under epoch {}",
            self.region, self.epoch
        )];
        lines.push(String::new());
        lines.extend(copy_lines(&self.copies));
        lines.push(String::new());
        if let Some(opens) = &self.opens {
            let Place {
                status,
                cut,
                edit,
                lsn,
            } = &opens.at;
            lines.push(format!(
                "opens    on server {}: a {status} copy, last cut in epoch {cut}, at edit {edit}, up to LSN {lsn}",
                opens.server
            ));
        }
        lines.push(format!("lost     {}", self.lost.words()));
        lines.push(format!(
            "silent   {} (they may have had more)",
            list(&self.silent)
        ));
        if let Some(job) = self.job {
            lines.push(format!("ordered  job {job}: argosy ctl job show {job}"));
        }
        lines
    }
}
