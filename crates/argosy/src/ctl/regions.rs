//! `argosy ctl region`: the region map, and where copies stand.

use argosy_base::ServerId;
use argosy_base::range::Printable;
use argosy_coordinator::{CopyReport, CopyStatus, Region, RegionState};
use argosy_master::Cluster;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::reading::{self, Reading};
use super::recover::Recover;
use super::{Common, Printed, list, table};
use crate::failure::CommandFailure;

#[derive(Subcommand, Debug)]
pub(crate) enum RegionCommand {
    /// List the regions
    #[command(after_help = "Examples:\n  argosy ctl region list\n  \
        argosy ctl region list --data-dir ./data -o json\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster, 8 data damaged")]
    List(Common),
    /// Show one region, and what servers report of its copies
    ///
    /// Copies are reported while a region has no primary, and of regions that their server is no member of.
    #[command(after_help = "Examples:\n  argosy ctl region show 1\n  \
        argosy ctl region show 1 -o json\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster or region, 8 data damaged")]
    Show(ShowArgs),
    Recover(Recover),
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The region's number
    #[arg(value_name = "N")]
    region: u32,
    #[command(flatten)]
    common: Common,
}

/// What `region list -o json` prints.
#[derive(Debug, Serialize)]
struct Listed {
    schema: &'static str,
    regions: Vec<RegionShown>,
}

/// A region.
#[derive(Debug, Serialize)]
struct RegionShown {
    id: u32,
    state: &'static str,
    epoch: u32,
    primary: u32,
    members: Vec<u32>,
    filling: Vec<u32>,
    /// The epoch of the last promotion, and the members before it.
    since: u32,
    last: Vec<u32>,
    from: String,
    to: Option<String>,
}

/// What `region show -o json` prints.
#[derive(Debug, Serialize)]
struct One {
    schema: &'static str,
    region: RegionShown,
    copies: Vec<CopyShown>,
}

/// What a server reports of its copy.
#[derive(Debug, Serialize)]
pub(super) struct CopyShown {
    pub(super) server: u32,
    /// What it is in the group.
    pub(super) is: &'static str,
    /// Whether the server is there.
    pub(super) there: bool,
    /// Of a copy that is reported under the present epoch.
    #[serde(flatten)]
    pub(super) at: Option<Place>,
}

/// Where a copy stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Place {
    pub(super) status: &'static str,
    pub(super) cut: u32,
    /// The epoch of that cut, and the number behind it.
    pub(super) edit: String,
    /// The end of its logs.
    pub(super) lsn: u64,
}

impl Place {
    pub(super) fn of(copy: &CopyReport) -> Self {
        Self {
            status: match copy.status {
                CopyStatus::Whole => "whole",
                CopyStatus::Cut => "cut",
                CopyStatus::Partial => "partial",
            },
            cut: copy.cut.0,
            edit: format!("{}.{}", copy.edit.cut_epoch().0, copy.edit.count()),
            lsn: copy.lsn.0,
        }
    }
}

impl RegionCommand {
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        match self {
            Self::List(common) => {
                let cluster = Reading::open(&common)?.cluster()?;
                let regions = cluster.map.regions().iter().map(RegionShown::of).collect();
                let schema = "argosy.ctl-regions.v1";
                Listed { schema, regions }.print(common.output)
            }
            Self::Show(ShowArgs { region, common }) => {
                let cluster = Reading::open(&common)?.cluster()?;
                let region = reading::region(&cluster.map, region)?;
                let shown = One {
                    schema: "argosy.ctl-region.v1",
                    region: RegionShown::of(region),
                    copies: copies(&cluster, region),
                };
                shown.print(common.output)
            }
            Self::Recover(recover) => recover.run(),
        }
    }
}

/// What is reported of the copies of `region`, of all who have to do with it.
pub(super) fn copies(cluster: &Cluster, region: &Region) -> Vec<CopyShown> {
    let servers = cluster.map.servers().iter().map(|server| server.id);
    let is = |id: ServerId| match id {
        id if id == region.primary => Some("primary"),
        id if region.members.contains(&id) => Some("member"),
        id if region.filling.contains(&id) => Some("filling"),
        id if region.last.contains(&id) => Some("former"),
        id => cluster.stores(id, region.id).then_some("former"),
    };
    let copies = servers.filter_map(|id| {
        Some(CopyShown {
            server: id.0,
            is: is(id)?,
            there: cluster.servers.contains_key(&id),
            at: cluster.copy(id, region).map(|copy| Place::of(&copy)),
        })
    });
    copies.collect()
}

/// The lines of `copies`.
pub(super) fn copy_lines(copies: &[CopyShown]) -> Vec<String> {
    let row = |copy: &CopyShown| {
        let at = copy.at.as_ref();
        let number = |of: fn(&Place) -> String| at.map_or("-".to_owned(), of);
        vec![
            copy.server.to_string(),
            copy.is.to_owned(),
            if copy.there { "there" } else { "away" }.to_owned(),
            number(|at| at.status.to_owned()),
            number(|at| at.cut.to_string()),
            number(|at| at.edit.clone()),
            number(|at| at.lsn.to_string()),
        ]
    };
    let rows: Vec<_> = copies.iter().map(row).collect();
    table(
        &["server", "is", "state", "copy", "cut", "edit", "lsn"],
        &rows,
    )
}

impl RegionShown {
    fn of(region: &Region) -> Self {
        let ids = |ids: &[ServerId]| ids.iter().map(|id| id.0).collect();
        let text = |key: &[u8]| Printable(key).to_string();
        Self {
            id: region.id.0,
            state: match region.state {
                RegionState::Serving => "serving",
                RegionState::Recovering => "recovering",
            },
            epoch: region.epoch.0,
            primary: region.primary.0,
            members: ids(&region.members),
            filling: ids(&region.filling),
            since: region.since.0,
            last: ids(&region.last),
            from: text(&region.range.from),
            to: region.range.to.as_deref().map(text),
        }
    }
}

impl Printed for Listed {
    fn lines(&self) -> Vec<String> {
        let row = |region: &RegionShown| {
            vec![
                region.id.to_string(),
                region.state.to_owned(),
                region.epoch.to_string(),
                region.primary.to_string(),
                list(&region.members),
                list(&region.filling),
                format!("{:?}", region.from),
                region
                    .to
                    .as_ref()
                    .map_or("end".to_owned(), |to| format!("{to:?}")),
            ]
        };
        let rows: Vec<_> = self.regions.iter().map(row).collect();
        let head = [
            "region", "state", "epoch", "primary", "members", "filling", "from", "to",
        ];
        table(&head, &rows)
    }
}

impl Printed for One {
    fn lines(&self) -> Vec<String> {
        let region = &self.region;
        let to = region
            .to
            .as_ref()
            .map_or("the end".to_owned(), |to| format!("{to:?}"));
        let mut lines = vec![
            format!("region   {}, from {:?} to {to}", region.id, region.from),
            format!("state    {}, epoch {}", region.state, region.epoch),
            format!("primary  {}, since epoch {}", region.primary, region.since),
            format!(
                "members  {}; before: {}",
                list(&region.members),
                list(&region.last)
            ),
            format!("filling  {}", list(&region.filling)),
        ];
        lines.push(String::new());
        lines.extend(copy_lines(&self.copies));
        lines
    }
}
