//! `argosy inspect compare`: whether two members hold the same.

use std::path::PathBuf;

use argosy_lsm::inspect::{Comparison, Member, compare};
use clap::Args;
use serde::Serialize;

use super::{Common, Opened, print_json, say};
use crate::cli::OutputFormat;
use crate::failure::CommandFailure;

/// The name and version of what `-o json` prints.
const SCHEMA: &str = "argosy.inspect-compare.v1";

/// Prove that two members hold the same levels and logs
///
/// Compares, for each region that both directories have, level segments by number, length, checksum
/// and bytes, and log segments byte for byte as far as both have them. Of members that each built
/// their own levels (build-index) all pairs are compared. Counts the references from levels to logs
/// again on each member: a wrong count is a difference, even where both have it.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  argosy inspect compare ./data/server-0 ./data/server-1\n  \
    argosy inspect compare ./data/server-0 ./data/server-2 --region 1 -o json\n\n\
    Exit codes: 0 equal, 1 failed or in use, 3 nothing in common, 8 a difference was found"
)]
pub(super) struct Compare {
    /// A member's data directory
    #[arg(value_name = "A")]
    first: PathBuf,
    /// Another member's
    #[arg(value_name = "B")]
    second: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    first: &'a PathBuf,
    second: &'a PathBuf,
    equal: bool,
    regions: Vec<RegionReport>,
    difference: Option<DifferenceReport>,
}

#[derive(Serialize)]
struct RegionReport {
    region: u32,
    first_edit: u64,
    second_edit: u64,
    compared_at_edit: Option<u64>,
    level_segments: u64,
    level_bytes: u64,
    log_segments: u64,
    log_bytes: u64,
    pairs: Option<u64>,
    pair_bytes: u64,
}

#[derive(Serialize)]
struct DifferenceReport {
    region: u32,
    part: String,
    number: Option<u64>,
    offset: Option<u32>,
    what: String,
}

impl From<&Comparison> for RegionReport {
    fn from(found: &Comparison) -> Self {
        Self {
            region: found.region.0,
            first_edit: found.edits[0].0,
            second_edit: found.edits[1].0,
            compared_at_edit: found.at.map(|at| at.0),
            level_segments: found.level_segments,
            level_bytes: found.level_bytes,
            log_segments: found.log_segments,
            log_bytes: found.log_bytes,
            pairs: found.pairs,
            pair_bytes: found.pair_bytes,
        }
    }
}

impl Compare {
    /// Compares, and prints what was found.
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let opened = [Opened::open(&self.first)?, Opened::open(&self.second)?];
        let [a, b] = opened.each_ref().map(|opened| opened.store.superblock());
        if a.cluster_id != b.cluster_id {
            return Err(CommandFailure::Usage(format!(
                "these are of different clusters: {:032x} and {:032x}",
                a.cluster_id, b.cluster_id
            )));
        }
        let first = opened[0].regions(self.common.region)?;
        let second = opened[1].regions(self.common.region)?;
        let mut report = Report {
            schema: SCHEMA,
            first: &self.first,
            second: &self.second,
            equal: true,
            regions: Vec::new(),
            difference: None,
        };
        let mut difference = None;
        for region in &first {
            let id = region.entry.region;
            let Some(other) = second.iter().find(|other| other.entry.region == id) else {
                continue;
            };
            let windows = opened.each_ref().map(|opened| opened.windows(id));
            let member = |which: usize, region| Member {
                store: &opened[which].store,
                region,
                windows: &windows[which],
            };
            let members = [member(0, region), member(1, other)];
            match compare(members, &opened[0].settings) {
                Ok(found) => report.regions.push(RegionReport::from(&found)),
                Err(found) => {
                    difference = Some(found);
                    break;
                }
            }
        }
        report.equal = difference.is_none();
        report.difference = difference.as_ref().map(|found| DifferenceReport {
            region: found.region.0,
            part: found.part.clone(),
            number: found.number.map(|number| number.0),
            offset: found.offset,
            what: found.what.clone(),
        });
        match self.common.output {
            OutputFormat::Json => print_json(&report),
            OutputFormat::Table => print_text(&report),
        }
        match difference {
            Some(found) => Err(CommandFailure::Corrupt(format!(
                "the first difference: {found}"
            ))),
            None if report.regions.is_empty() => Err(CommandFailure::NotFound(
                "the two directories have no region in common".to_owned(),
            )),
            None => Ok(()),
        }
    }
}

fn print_text(report: &Report<'_>) {
    for found in &report.regions {
        if let Some(pairs) = found.pairs {
            say(&format!(
                "region {}: equal; built by each member for itself; {pairs} pairs ({} bytes), {} log \
                 segments ({} bytes)",
                found.region, found.pair_bytes, found.log_segments, found.log_bytes
            ));
            continue;
        }
        let edits = match (
            found.compared_at_edit,
            found.first_edit == found.second_edit,
        ) {
            (Some(at), true) => format!("both at edit {at}"),
            (Some(at), false) => format!(
                "compared at edit {at} (they stand at {} and {})",
                found.first_edit, found.second_edit
            ),
            (None, _) => format!(
                "at edits {} and {}, too far apart: only what both still have was compared",
                found.first_edit, found.second_edit
            ),
        };
        say(&format!(
            "region {}: equal; {edits}; {} level segments ({} bytes), {} log segments ({} bytes)",
            found.region,
            found.level_segments,
            found.level_bytes,
            found.log_segments,
            found.log_bytes
        ));
    }
    if let Some(found) = &report.difference {
        say(&format!("region {}: different", found.region));
    }
}
