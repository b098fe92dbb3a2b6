//! `argosy inspect scrub`: reads every live segment, no faster than it may, and says which keys damage concerns.

use std::path::PathBuf;
use std::time::Duration;

use argosy_base::Clock as _;
use argosy_base::limits::SEGMENT_SIZE;
use argosy_device::SystemClock;
use argosy_lsm::Version;
use argosy_lsm::inspect::Problem;
use argosy_lsm::scrub::{Damage, Pass, next};
use clap::Args;
use serde::Serialize;

use super::verify::{head_problems, pin_problem};
use super::view::{DamageView, ProblemView};
use super::{Common, Opened, print_json, say};
use crate::cli::OutputFormat;
use crate::failure::CommandFailure;
use crate::units::Size;

/// The name and version of what `-o json` prints.
const SCHEMA: &str = "argosy.inspect-scrub.v1";

/// Read everything that is stored, at a bounded rate
///
/// Reads superblocks, catalog, manifests, every segment of levels and of the medium log, and every sealed
/// segment of the logs, each once, and names the keys that damage concerns. Changes nothing. What refers to
/// what is the business of `inspect verify`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy inspect scrub ./data/server-0\n  \
    argosy inspect scrub ./data/server-0 --rate 50MiB -o json\n\n\
    Exit codes: 0 whole, 1 failed or in use, 3 no device there, 8 damage was found")]
pub(super) struct Scrub {
    /// The server's, or the embedded store's, data directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Most bytes to read in a second; 0: as fast as they come
    #[arg(long, value_name = "SIZE", default_value = "0")]
    rate: Size,
    #[command(flatten)]
    common: Common,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    dir: &'a PathBuf,
    ok: bool,
    segments: u64,
    bytes: u64,
    damages: Vec<DamageView>,
    problems: Vec<ProblemView>,
}

/// Keeps to a rate.
struct Meter {
    clock: SystemClock,
    began: argosy_base::Instant,
    rate: u64,
    segments: u64,
    bytes: u64,
}

impl Meter {
    fn new(rate: Size) -> Self {
        Self {
            clock: SystemClock,
            began: SystemClock.now(),
            rate: rate.0,
            segments: 0,
            bytes: 0,
        }
    }

    /// Counts what was read, and waits for as long as that may take.
    fn read(&mut self, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
        if self.rate == 0 {
            return;
        }
        let nanos = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.rate);
        let due = self.began + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        loop {
            let left = due.since(self.clock.now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }
}

impl Scrub {
    /// Reads, and prints what was found.
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        if self.rate.0 != 0 && self.rate.0 < SEGMENT_SIZE as u64 / 60 {
            return Err(CommandFailure::Usage(format!(
                "--rate {} is less than a segment a minute",
                self.rate
            )));
        }
        let opened = Opened::open(&self.dir)?;
        let regions = opened.regions(self.common.region)?;
        let mut problems = head_problems(&opened)?;
        let mut damages = Vec::new();
        let mut meter = Meter::new(self.rate);
        for region in &regions {
            problems.extend(region.problems.iter().cloned());
            if let Some(version) = &region.version {
                damages.extend(self.scrub(&opened, version, &mut meter));
            }
        }
        if self.common.region.is_none() {
            for (entry, pin) in &opened.pins() {
                match pin {
                    Ok((_, version)) => damages.extend(self.scrub(&opened, version, &mut meter)),
                    Err(error) => problems.push(pin_problem(entry, error)),
                }
            }
        }
        let report = Report {
            schema: SCHEMA,
            dir: &self.dir,
            ok: problems.is_empty() && damages.is_empty(),
            segments: meter.segments,
            bytes: meter.bytes,
            damages: damages.iter().map(DamageView::from).collect(),
            problems: problems.iter().map(ProblemView::from).collect(),
        };
        match self.common.output {
            OutputFormat::Json => print_json(&report),
            OutputFormat::Table => print_text(&report, &problems, &damages),
        }
        match problems.len() + damages.len() {
            0 => Ok(()),
            count => Err(CommandFailure::Corrupt(format!(
                "{} is damaged: {count} found",
                self.dir.display()
            ))),
        }
    }

    fn scrub(&self, opened: &Opened, version: &Version, meter: &mut Meter) -> Vec<Damage> {
        let mut damages = Vec::new();
        let mut pass = Pass::new();
        while let Some(scrubbed) = next(version, opened.settings.layout.log_geometry(), &mut pass) {
            // Told as it is found: a pass may take long.
            for damage in &scrubbed.damages {
                tracing::warn!("{damage}");
            }
            damages.extend(scrubbed.damages);
            meter.read(scrubbed.bytes);
        }
        damages
    }
}

fn print_text(report: &Report<'_>, problems: &[Problem], damages: &[Damage]) {
    for problem in problems {
        say(&problem.to_string());
        say(&format!("    {}", problem.advice()));
    }
    for damage in damages {
        say(&damage.to_string());
    }
    let mebibytes = report.bytes >> 20;
    say(&format!(
        "read {} segments, {mebibytes} MiB",
        report.segments
    ));
    match problems.len() + damages.len() {
        0 => say("everything is what was written"),
        _ => say(
            "with other members: replace this server's device, and let it fetch the region from them; \
             without: `argosy inspect repair` makes a new copy of what is whole",
        ),
    }
}
