//! `argosy inspect DIR`: everything that a data directory holds, by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use argosy_base::{DeviceSegment, SEGMENT_SIZE};
use argosy_device::Store;
use argosy_lsm::inspect::{InspectedRegion, LogEnds, Owner, log_ends};
use argosy_lsm::names::logs::LOGS;
use serde::Serialize;

use super::cut::{CutView, cut_of, print_cut};
use super::view::{
    CheckpointView, HeadView, OwnerView, PlaceView, RegionView, SegmentView, SuperblockView,
    VersionView,
};
use super::{Common, Opened, Pinned, Section, print_json, say};
use crate::cli::OutputFormat;
use crate::failure::CommandFailure;
use crate::sparse::{DEVICE, SparseFile};

/// The name and version of what `-o json` prints.
const SCHEMA: &str = "argosy.inspect.v1";

/// What `-o json` prints. What was not asked for is left out.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    dir: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    superblock: Option<SuperblockView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    head: Vec<HeadView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catalog_generation: Option<u64>,
    regions: Vec<RegionView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<CheckpointView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Vec<SegmentView>>,
}

/// Who refers to each device segment.
type Owners = BTreeMap<DeviceSegment, Vec<Owner>>;

/// Prints what `dir` holds.
pub(super) fn show(
    dir: &Path,
    sections: &[Section],
    common: &Common,
) -> Result<(), CommandFailure> {
    let opened = Opened::open(dir)?;
    let asked = |section| sections.is_empty() || sections.contains(&section);
    let all = opened.regions(None)?;
    let regions = match common.region {
        None => None,
        some => Some(opened.regions(some)?),
    };
    let mut views: Vec<_> = regions
        .as_ref()
        .unwrap_or(&all)
        .iter()
        .map(|region| {
            let ends = ends_of(&opened, region);
            let mut view = RegionView::new(region, ends.as_ref());
            if asked(Section::Logs) {
                let cut = cut_of(&opened, region);
                view.cut_segments = cut.iter().map(CutView::from).collect();
            }
            view
        })
        .collect();
    for view in &mut views {
        if !asked(Section::Manifest) {
            view.manifest.edits.clear();
        }
        if let Some(version) = &mut view.version {
            if !asked(Section::Levels) {
                version.levels.clear();
                version.trees.clear();
            }
            if !asked(Section::Logs) {
                version.logs.clear();
                version.medium_log.clear();
            }
        }
    }
    let pins = opened.pins();
    let owners = opened.owners(&all, &pins);
    let head = Store::survey(&**opened.store.device()).map_err(super::of_device)?;
    let generations = head.iter().filter(|block| block.what == "catalog");
    let generation = generations.filter_map(|block| block.generation).max();
    let file = SparseFile::at(&dir.join(DEVICE));
    let report = Report {
        schema: SCHEMA,
        dir: dir.to_path_buf(),
        superblock: asked(Section::Superblock)
            .then(|| SuperblockView::new(opened.store.superblock(), file)),
        head: match asked(Section::Superblock) {
            true => head.iter().map(HeadView::from).collect(),
            false => Vec::new(),
        },
        catalog_generation: generation.filter(|_| asked(Section::Catalog)),
        regions: views,
        checkpoints: checkpoints_of(&pins, &owners),
        segments: asked(Section::Segments).then(|| segments_of(&owners, common.region)),
    };
    match common.output {
        OutputFormat::Json => print_json(&report),
        OutputFormat::Table => {
            if let Some(file) = file.filter(|_| asked(Section::Superblock)) {
                say(&format!("the device's file is {file}"));
            }
            print_text(&report, &head, &asked);
        }
    }
    Ok(())
}

/// Where the logs of a region end; `None` where that cannot be told, which is for `verify` to say.
pub(super) fn ends_of(opened: &Opened, region: &InspectedRegion) -> Option<LogEnds> {
    let version = region.version.as_ref()?;
    if !version.table().values().all(|stored| stored.is_on_device()) {
        return None;
    }
    let windows = opened.windows(region.entry.region);
    log_ends(version, &windows, &opened.settings).ok()
}

fn checkpoints_of(pins: &[Pinned], owners: &Owners) -> Vec<CheckpointView> {
    let view = |(entry, pin): &Pinned| {
        let view = CheckpointView {
            id: entry.region.0,
            ..CheckpointView::default()
        };
        match pin {
            Err(error) => CheckpointView {
                trouble: Some(error.to_string()),
                ..view
            },
            Ok((name, version)) => {
                let alone = version.table().values().filter(|stored| {
                    let owners = owners.get(&stored.place());
                    owners.is_some_and(|owners| owners.len() == 1)
                });
                let pinned: Vec<_> = alone
                    .map(|stored| PlaceView {
                        number: stored.number().0,
                        device_segment: stored.place().0,
                    })
                    .collect();
                let logs = LOGS.iter().map(|log| version.log(*log).len());
                let (log_segments, medium_segments) = (logs.sum(), version.medium_log().len());
                let segments = version.table().len();
                CheckpointView {
                    name: Some(name.clone()),
                    last_lsn: version.replay_from().0.saturating_sub(1),
                    segments,
                    level_segments: segments - log_segments - medium_segments,
                    medium_segments,
                    log_segments,
                    own_segments: pinned.len(),
                    own_bytes: (pinned.len() * SEGMENT_SIZE) as u64,
                    pinned,
                    ..view
                }
            }
        }
    };
    pins.iter().map(view).collect()
}

fn segments_of(owners: &Owners, only: Option<u32>) -> Vec<SegmentView> {
    let views = owners.iter().map(|(place, owners)| SegmentView {
        device_segment: place.0,
        references: owners.len(),
        owners: owners.iter().map(OwnerView::from).collect(),
    });
    views
        .zip(owners.values())
        .filter(|(_, owners)| {
            let of = |owner: &Owner| Some(owner.region().0) == only;
            only.is_none() || owners.iter().any(of)
        })
        .map(|(view, _)| view)
        .collect()
}

fn print_text(report: &Report, head: &[argosy_device::HeadBlock], asked: &dyn Fn(Section) -> bool) {
    if let Some(superblock) = &report.superblock {
        say(&format!(
            "device {} of server {}, cluster {}",
            superblock.device_id, superblock.server, superblock.cluster_id
        ));
        say(&format!(
            "made by {}, opened {} times, {} segments of 2 MiB",
            superblock.created_by, superblock.incarnation, superblock.segments
        ));
        for block in head {
            let state = match (&block.trouble, block.generation) {
                (Some(trouble), _) => trouble.clone(),
                (None, Some(generation)) => format!("generation {generation}"),
                (None, None) => "good".to_owned(),
            };
            say(&format!(
                "{} copy {} at byte {}: {state}",
                block.what, block.copy, block.offset
            ));
        }
    }
    if let Some(generation) = report.catalog_generation {
        say(&format!(
            "catalog generation {generation}, {} regions",
            report.regions.len()
        ));
    }
    for region in &report.regions {
        print_region(region, asked);
    }
    for pin in &report.checkpoints {
        match (&pin.name, &pin.trouble) {
            (Some(name), _) => say(&format!(
                "\ncheckpoint {name}: everything up to LSN {}, {} segments ({} of levels, {} of the medium log, \
                 {} of the large log), {} of them its own: {} MiB that are free once it is dropped",
                pin.last_lsn,
                pin.segments,
                pin.level_segments,
                pin.medium_segments,
                pin.log_segments,
                pin.own_segments,
                pin.own_bytes >> 20
            )),
            (None, trouble) => say(&format!(
                "\na checkpoint that cannot be read: {}",
                trouble.as_deref().unwrap_or_default()
            )),
        }
    }
    if let Some(segments) = &report.segments {
        say("\ndevice segment  references  owners");
        for segment in segments {
            let owners: Vec<_> = segment.owners.iter().map(OwnerView::text).collect();
            say(&format!(
                "{:>14}  {:>10}  {}",
                segment.device_segment,
                segment.references,
                owners.join(", ")
            ));
        }
    }
}

fn print_region(region: &RegionView, asked: &dyn Fn(Section) -> bool) {
    let places: Vec<_> = region
        .manifest
        .device_segments
        .iter()
        .map(u32::to_string)
        .collect();
    say(&format!(
        "\nregion {}: pointers {}; manifest generation {} in device segments {}",
        region.region,
        region.addresses.unwrap_or("of a later version"),
        region.manifest.generation,
        places.join(" ")
    ));
    for problem in &region.problems {
        say(&format!("  {}", problem.text()));
    }
    for edit in &region.manifest.edits {
        say(&format!("  {}", edit.text.replace('\n', "\n  ")));
        for place in &edit.places {
            say(&format!(
                "    segment {} lies in device segment {}",
                place.number, place.device_segment
            ));
        }
    }
    if let Some(version) = &region.version {
        print_version(version, asked);
    }
    if !region.cut_segments.is_empty() {
        print_cut(&region.cut_segments);
    }
}

fn print_version(version: &VersionView, asked: &dyn Fn(Section) -> bool) {
    say(&format!(
        "  version: edit {}, epoch {}, replay from LSN {}, durable LSN {}, numbers below {}, levels {}",
        version.edit,
        version.epoch,
        version.replay_from,
        version.durable,
        version.mark,
        version.digest
    ));
    if asked(Section::Levels) && !version.levels.is_empty() {
        say(
            "  level  run      number  device    bytes  entries  deleted  form            from .. to",
        );
        for level in &version.levels {
            let to = level.keys.to.as_ref().map_or("end", |to| to.text.as_str());
            say(&format!(
                "  L{:<5} {:<8} {:>6} {:>7} {:>8} {:>8} {:>8}  {:<14}  {} .. {to}",
                level.level,
                level.run,
                level.number,
                level.device_segment,
                level.bytes,
                level.entries,
                level.tombstones,
                level.form,
                level.keys.from.text
            ));
        }
        for tree in &version.trees {
            say(&format!(
                "  L{:<5} {:<8} tree of height {}: its root is at byte {} of segment {}",
                tree.level, tree.run, tree.height, tree.root_offset, tree.root_number
            ));
        }
    }
    if asked(Section::Logs) && !version.logs.is_empty() {
        say(
            "  log       ordinal  number  device  epoch  base LSN    sealed      held  referenced      dead",
        );
        for log in &version.logs {
            let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let dead = log.dead.map_or_else(|| "-".to_owned(), |n| n.to_string());
            say(&format!(
                "  {:<9} {:>7} {:>7} {:>7} {:>6} {:>9} {:>9} {:>9} {:>11} {:>9}",
                log.log,
                log.ordinal,
                log.number,
                log.device_segment,
                log.epoch,
                log.base_lsn,
                number(log.sealed_at),
                number(log.held),
                log.referenced,
                dead
            ));
        }
    }
    if asked(Section::Logs) && !version.medium_log.is_empty() {
        print_medium_log(version);
    }
}

fn print_medium_log(version: &VersionView) {
    say("  medium log  number  device    bytes   values  referenced  from .. to");
    for medium in &version.medium_log {
        let to = medium.keys.to.as_ref().map_or("end", |to| to.text.as_str());
        say(&format!(
            "  {:>18} {:>7} {:>8} {:>8} {:>11}  {} .. {to}",
            medium.number,
            medium.device_segment,
            medium.bytes,
            medium.values,
            medium.referenced,
            medium.keys.from.text
        ));
    }
}
