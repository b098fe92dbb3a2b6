//! Cut segments: `argosy inspect discard-cut`, which frees them, and how the other commands show them.

use std::path::PathBuf;

use argosy_base::RegionId;
use argosy_device::{Store, StoreSettings};
use argosy_engine::catalog::{EntryKind, discard_cut, kind_of};
use argosy_lsm::cut_segments::{self, KeptCut};
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::names::logs::{log_name, log_word};
use clap::Args;
use serde::Serialize;

use super::{Opened, of_device, open_to_write, say};
use crate::failure::CommandFailure;

/// Free the cut segments of a region
///
/// If a record is missing or damaged when a region is opened, the region's history ends in front of it. Two log
/// segments with whole records behind that place are kept, the first and the last of each log: its cut segments. A
/// later cut of the log replaces them, and a full device frees them. `argosy inspect` lists them; `argosy inspect dump`
/// prints their records; this command frees them. The server must be stopped. Without --region, it lists the regions
/// that have some.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  argosy inspect discard-cut ./data/server-0\n  \
    argosy inspect discard-cut ./data/server-0 --region 1\n\n\
    Exit codes: 0 done, 1 failed or in use, 3 no device there, or nothing kept of that region"
)]
pub(super) struct DiscardCut {
    /// The server's, or the embedded store's, data directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The region whose cut segments are freed
    #[arg(long, value_name = "N")]
    region: Option<u32>,
}

impl DiscardCut {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let (_lock, device) = open_to_write(&self.dir)?;
        let Some(region) = self.region else {
            let dump = Store::inspect(&*device).map_err(of_device)?;
            for entry in &dump.regions {
                if let EntryKind::Cut(region, log) = kind_of(entry) {
                    let count = entry.manifest.len();
                    say(&format!(
                        "{region}, {}: {count} cut segments",
                        log_name(log)
                    ));
                }
            }
            return Ok(());
        };
        let store = Store::open(device, &StoreSettings::default()).map_err(of_device)?;
        match discard_cut(&store, RegionId(region)).map_err(of_device)? {
            0 => Err(CommandFailure::NotFound(format!(
                "{} keeps no cut segments of region {region}",
                self.dir.display()
            ))),
            count => {
                say(&format!(
                    "{count} cut segments of region {region} are given up"
                ));
                Ok(())
            }
        }
    }
}

/// A cut segment.
#[derive(Serialize)]
pub(super) struct CutView {
    log: &'static str,
    /// `None` where its header cannot be read.
    number: Option<u64>,
    device_segment: u32,
    /// The first LSN that was cut off.
    cut_at: u64,
    /// Whole records that were, and their lowest and highest LSN.
    records: u64,
    first_lsn: Option<u64>,
    last_lsn: Option<u64>,
    /// Why its records, or some of them, cannot be read.
    trouble: Option<String>,
}

impl From<&KeptCut> for CutView {
    fn from(kept: &KeptCut) -> Self {
        Self {
            log: log_word(kept.log),
            number: kept.segment.as_ref().ok().map(|segment| segment.number.0),
            device_segment: kept.place.0,
            cut_at: kept.cut_at.0,
            records: kept.records,
            first_lsn: kept.lsns.map(|(first, _)| first.0),
            last_lsn: kept.lsns.map(|(_, last)| last.0),
            trouble: kept
                .segment
                .as_ref()
                .err()
                .or(kept.unreadable.as_ref())
                .cloned(),
        }
    }
}

/// The cut segments of `region`.
pub(super) fn cut_of(opened: &Opened, region: &InspectedRegion) -> Vec<KeptCut> {
    let geometry = opened.settings.layout.log_geometry();
    let version = region.version.as_ref();
    cut_segments::list(&opened.store, region.entry.region, version, geometry)
}

pub(super) fn print_cut(views: &[CutView]) {
    say("  cut segments  number  device  cut at LSN   records  from LSN  to LSN");
    for cut in views {
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        say(&format!(
            "  {:<12} {:>7} {:>7} {:>11} {:>9} {:>9} {:>7}{}",
            cut.log,
            number(cut.number),
            cut.device_segment,
            cut.cut_at,
            cut.records,
            number(cut.first_lsn),
            number(cut.last_lsn),
            cut.trouble
                .as_ref()
                .map_or_else(String::new, |trouble| format!("  {trouble}"))
        ));
    }
}
