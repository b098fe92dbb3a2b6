//! `argosy inspect verify`: whether everything is what was written.

use std::path::PathBuf;

use argosy_base::DeviceSegment;
use argosy_device::{HeadBlock, RegionEntry, Store};
use argosy_lsm::inspect::{
    Checked, Problem, ProblemKind, verify_owners, verify_pin, verify_region,
};
use argosy_lsm::pins::PinError;
use clap::Args;
use serde::Serialize;

use super::show::ends_of;
use super::view::ProblemView;
use super::{Common, InspectedRegion, Opened, print_json, say};
use crate::cli::OutputFormat;
use crate::failure::CommandFailure;

/// The name and version of what `-o json` prints.
const SCHEMA: &str = "argosy.inspect-verify.v1";

/// Check every checksum, reference and count of references
///
/// Reads everything: superblocks, catalog, manifests, each level segment whole, all sealed logs,
/// what of the open logs was declared durable, and the record behind each pointer. Changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy inspect verify ./data/server-0\n  \
    argosy inspect verify ./data/server-0 --region 1 -o json\n\n\
    Exit codes: 0 whole, 1 failed or in use, 3 no device there, 8 damage was found")]
pub(super) struct Verify {
    /// The server's data directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    dir: &'a PathBuf,
    ok: bool,
    regions: usize,
    device_segments_used: usize,
    #[serde(flatten)]
    checked: CheckedView,
    problems: Vec<ProblemView>,
    /// Bytes of the history that are in windows only.
    window_bytes: u64,
    /// Pairs and deletes that begin there.
    window_records: u64,
    /// Pairs and deletes that are in no level yet, those among them.
    replayed_records: u64,
    notes: &'a [String],
}

/// How much was checked.
#[derive(Serialize)]
struct CheckedView {
    level_segments: u64,
    medium_segments: u64,
    entries: u64,
    pointers: u64,
    log_segments: u64,
    records: u64,
    bytes: u64,
}

impl Verify {
    /// Verifies, and prints what was found.
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let opened = Opened::open(&self.dir)?;
        // Owners are those of all regions, whichever is looked at.
        let all = opened.regions(None)?;
        let pins = opened.pins();
        let owners = opened.owners(&all, &pins);
        let asked = |problem: &Problem| {
            let region = problem.region.map(|region| region.0);
            self.common.region.is_none() || region.is_none() || region == self.common.region
        };
        let mut problems = head_problems(&opened)?;
        problems.extend(verify_owners(&owners, opened.store.total()));
        let mut checked = Checked::default();
        let mut notes = Vec::new();
        let regions = match self.common.region {
            None => all,
            Some(_) => opened.regions(self.common.region)?,
        };
        for region in &regions {
            problems.extend(region.problems.iter().cloned());
            let Some(version) = &region.version else {
                continue;
            };
            let windows = opened.windows(region.entry.region);
            let (more, found, remarks) = verify_region(version, &windows, &opened.settings);
            checked += more;
            problems.extend(found);
            problems.extend(opened.lost_windows(region, &windows));
            notes.extend(remarks);
        }
        for (entry, pin) in &pins {
            let (more, found) = match pin {
                Ok((_, version)) => verify_pin(version, &opened.settings),
                Err(error) => (Checked::default(), vec![pin_problem(entry, error)]),
            };
            checked += more;
            problems.extend(found);
        }
        problems.retain(asked);
        let in_windows: Vec<_> = regions.iter().map(|of| in_windows(&opened, of)).collect();
        let report = Report {
            schema: SCHEMA,
            dir: &self.dir,
            ok: problems.is_empty(),
            regions: regions.len(),
            device_segments_used: owners.len() + 1,
            checked: CheckedView {
                level_segments: checked.level_segments,
                medium_segments: checked.medium_segments,
                entries: checked.entries,
                pointers: checked.pointers,
                log_segments: checked.log_segments,
                records: checked.records,
                bytes: checked.bytes,
            },
            window_bytes: in_windows.iter().map(|of| of.bytes).sum(),
            window_records: in_windows.iter().map(|of| of.records).sum(),
            replayed_records: in_windows.iter().map(|of| of.replayed).sum(),
            problems: problems.iter().map(ProblemView::from).collect(),
            notes: &notes,
        };
        match self.common.output {
            OutputFormat::Json => print_json(&report),
            OutputFormat::Table => print_text(&report, &problems),
        }
        match problems.len() {
            0 => Ok(()),
            count => Err(CommandFailure::Corrupt(format!(
                "{} is damaged: {count} found",
                self.dir.display()
            ))),
        }
    }
}

/// What of the history of a region is in windows only, or in logs only.
#[derive(Clone, Copy, Default)]
struct InWindows {
    bytes: u64,
    records: u64,
    /// Records that are in no level, these among them.
    replayed: u64,
}

/// The records of `region` that are in windows. None if its logs are damaged: that is reported as a problem by itself.
fn in_windows(opened: &Opened, region: &InspectedRegion) -> InWindows {
    let Some(ends) = ends_of(opened, region) else {
        return InWindows::default();
    };
    InWindows {
        bytes: ends
            .unflushed
            .iter()
            .map(|part| part.bytes.len() as u64)
            .sum(),
        records: ends.unflushed_records,
        replayed: ends.replayed_records,
    }
}

pub(super) fn pin_problem(entry: &RegionEntry, error: &PinError) -> Problem {
    Problem {
        kind: ProblemKind::Damaged,
        part: "checkpoint".to_owned(),
        region: Some(entry.region),
        number: None,
        place: entry.manifest.first().copied(),
        offset: 0,
        what: error.to_string(),
    }
}

fn print_text(report: &Report<'_>, problems: &[Problem]) {
    for problem in problems {
        say(&problem.to_string());
        say(&format!("    {}", problem.advice()));
    }
    for note in report.notes {
        say(&format!("note: {note}"));
    }
    say(&format!(
        "checked {} regions: {} level segments with {} entries, {} pointers, {} log segments with \
         {} sealed records, {} MiB",
        report.regions,
        report.checked.level_segments,
        report.checked.entries,
        report.checked.pointers,
        report.checked.log_segments,
        report.checked.records,
        report.checked.bytes >> 20,
    ));
    if report.window_bytes > 0 || report.replayed_records > 0 {
        say(&format!(
            "in no level yet, and replayed by the next start: {} records, {} of them in shared memory alone ({} KiB)",
            report.replayed_records,
            report.window_records,
            report.window_bytes.div_ceil(1 << 10),
        ));
    }
    match problems.len() {
        0 => say("everything is what was written"),
        1 => say("1 problem"),
        count => say(&format!("{count} problems")),
    }
}

/// What is wrong with the copies of superblock and catalog.
pub(super) fn head_problems(opened: &Opened) -> Result<Vec<Problem>, CommandFailure> {
    let blocks = Store::survey(&**opened.store.device()).map_err(super::of_device)?;
    Ok(blocks.iter().filter_map(head_problem).collect())
}

fn head_problem(block: &HeadBlock) -> Option<Problem> {
    let what = block.trouble.as_ref()?;
    let kind = match block.generation {
        Some(_) => ProblemKind::Stale,
        None => ProblemKind::Damaged,
    };
    Some(Problem {
        kind,
        part: block.what.to_owned(),
        region: None,
        number: None,
        place: Some(DeviceSegment(0)),
        offset: block.offset,
        what: format!("copy {}: {what}", block.copy),
    })
}
